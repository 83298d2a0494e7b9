// Runs a tool, reads a resource or gets a prompt inside the gateway: progress and logs as they come, questions answered in place, and the result.
import { ask, duration, el, readEvents, Refused, setText, sure } from "./kit.js";
import { schemaForm, Wrong } from "./form.js";
import { stepsTable } from "./steps.js";

const revisions = ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
const MAX_LINES = 200;

const pre = (text, label) => el("pre", { tabindex: "0", "aria-label": label }, text);
const shown = (value) => JSON.stringify(value, null, 2);

// -- questions ----------------------------------------------------------------------------------------------------------

// The parts of a question: nodes, and answers: [title, function() → the result].
function partsOf(method, params) {
  if (method === "elicitation/create" && params.mode === "url") return {
    nodes: [el("p", {}, "It asks you to open this address, and says that you did so by Accept:"), el("p", {}, el("code", {}, String(params.url)))],
    answers: [["Accept", () => ({ action: "accept" })], ["Decline", () => ({ action: "decline" })]],
  };
  if (method === "elicitation/create") {
    const form = schemaForm(params.requestedSchema, "Answer");
    return {
      nodes: [form.node],
      answers: [["Accept", () => ({ action: "accept", content: form.read() })], ["Decline", () => ({ action: "decline" })], ["Dismiss", () => ({ action: "cancel" })]],
    };
  }
  if (method === "sampling/createMessage") {
    const text = el("textarea", { rows: "4" });
    return {
      nodes: [pre(shown(params), "What the model is asked"), el("label", {}, "What the model says", text)],
      answers: [["Send", () => ({ role: "assistant", model: "the operator", content: { type: "text", text: text.value }, stopReason: "endTurn" })]],
    };
  }
  const text = el("textarea", { rows: "3", spellcheck: "false" });
  return {
    nodes: [el("label", {}, "Roots, one URI a line", text)],
    answers: [["Send", () => ({ roots: text.value.split("\n").filter((line) => line.trim() !== "").map((uri) => ({ uri: uri.trim() })) })]],
  };
}

const words = { "elicitation/create": "The tool asks you", "sampling/createMessage": "The tool asks a model: answer for it", "roots/list": "The tool asks for your roots" };

// A question; `answer(result)` is called once.
function question(method, params, answer) {
  const { nodes, answers } = partsOf(method, params ?? {}), title = el("h3", { tabindex: "-1" }, words[method] ?? method);
  const wrong = el("p", { class: "bad" });
  const node = el("form", { class: "question", novalidate: "" }, title, el("p", {}, String(params?.message ?? "")), ...nodes, wrong,
    el("div", { class: "buttons" }, ...answers.map(([name, make], i) => el("button", {
      type: i === 0 ? "submit" : "button",
      click(event) {
        event.preventDefault();
        let result;
        try {
          result = make();
        } catch (error) {
          if (!(error instanceof Wrong)) throw error;
          return;
        }
        node.remove();
        answer(result);
      },
    }, name))));
  return { node, title };
}

// -- results ------------------------------------------------------------------------------------------------------------

function contentNode(item) {
  if (item?.type === "text" && typeof item.text === "string") return pre(item.text, "Text");
  if (item?.type === "image" && /^image\/(png|jpeg|gif|webp)$/.test(item.mimeType) && /^[\w+/=]+$/.test(item.data)) return el("img", { src: `data:${item.mimeType};base64,${item.data}`, alt: "An image of the result" });
  return pre(shown(item), "Content");
}

function resultNodes(message, { call, ms }) {
  const about = el("p", { class: "soft" }, `Took ${ms === undefined ? "?" : duration(ms)}. Call ${call ?? "?"} in the log and the audit.`);
  if (message.error) return [el("h3", {}, "Error"), el("p", { class: "bad" }, `${message.error.message} (${message.error.code})`),
    ...message.error.data === undefined ? [] : [pre(shown(message.error.data), "Data of the error")], about];
  const result = message.result ?? {}, nodes = [el("h3", {}, result.isError ? "The tool failed" : "Result"), about];
  const seen = result.content ?? result.contents?.map((one) => typeof one.text === "string" ? { type: "text", text: one.text } : one) ?? result.messages?.map((one) => one.content);
  if (seen) nodes.push(el("h4", {}, "As the model sees it"), ...seen.length === 0 ? [el("p", {}, "Nothing.")] : seen.map(contentNode));
  if (result.structuredContent !== undefined) nodes.push(el("h4", {}, "Structured content"), pre(shown(result.structuredContent), "Structured content"));
  nodes.push(el("details", {}, el("summary", {}, "The whole answer"), pre(shown(message), "The whole answer")));
  if (result.isError) nodes[0].className = "bad";
  return nodes;
}

// The steps of a call; of each of its requests, where an answer was asked for in between.
function timeNodes(requests) {
  return requests.length === 0 ? [] : [el("h4", {}, "Where the time went"), ...requests.flatMap((steps, i) => {
    const request = requests.length === 1 ? "" : `request ${i + 1} of ${requests.length}`;
    return [...request === "" ? [] : [el("h5", {}, request)], stepsTable(steps, `Time by step ${request}`.trim())];
  })];
}

// -- a run --------------------------------------------------------------------------------------------------------------

// The form that runs something: `fields` are the nodes of its own, `params()` gives the params or throws Wrong, `destructive` asks first.
// Returns { settings() }: the revision and the principal of the next run.
export function runner(at, { onLeave }, { method, fields, params, destructive, verb = "Run" }) {
  let open = null; // { name, controller, params, steps } while a call runs
  const revision = el("select", { name: "revision" }, ...revisions.map((date) => el("option", { value: date }, date)));
  const who = el("input", { name: "principal", value: "local", autocomplete: "off", spellcheck: "false" });
  const scopes = el("input", { name: "scopes", autocomplete: "off", spellcheck: "false", placeholder: "orders:read …" });
  const start = el("button", { type: "submit" }, verb), stop = el("button", { type: "button", disabled: "" }, "Cancel");
  const state = el("p", { role: "status" }), bar = el("progress", { "aria-label": "Progress" }), last = el("span", { class: "soft" }), progress = el("div", { class: "choice" }, bar, last), lines = el("ol", { class: "log", tabindex: "0", "aria-label": "Logs" }), out = el("section", { "aria-label": "Result", tabindex: "-1" });
  const questions = el("div");
  progress.hidden = true;
  const form = el("form", { class: "run", novalidate: "" }, ...fields, el("div", { class: "buttons" }, el("label", {}, "Revision", revision), el("label", {}, "As principal", who),
    el("label", {}, "With scopes", scopes)), el("div", { class: "buttons" }, start, stop));
  at.append(form, state, progress, questions, out, lines);

  function tell(text, isBad = false) {
    setText(state, text);
    state.className = isBad ? "bad" : "soft";
  }
  function line(text) {
    lines.append(el("li", {}, text));
    if (lines.childElementCount > MAX_LINES) lines.firstChild.remove();
    lines.scrollTop = lines.scrollHeight;
  }
  async function answer(body) {
    if (!open?.name) return;
    try {
      await ask(`/api/answer/${open.name}`, { method: "POST", body });
    } catch (error) {
      tell(error instanceof Refused ? `Refused: ${error.message}.` : "The answer was not sent: the gateway does not answer.", true);
    }
  }
  function put(asked) {
    questions.append(asked.node);
    show(asked.node, asked.title);
    tell("It waits for your answer.");
  }
  // Moves the focus without a jump, then as little as brings the whole into view.
  function show(node, target) {
    target.focus({ preventScroll: true });
    node.scrollIntoView({ block: "nearest" });
  }
  // All questions of an input_required result; the request is sent again with their answers.
  function putAll(result) {
    const left = Object.entries(result.inputRequests ?? {}), responses = {};
    const next = () => {
      const [key, request] = left.shift() ?? [];
      if (key === undefined) {
        tell("Runs.");
        answer({ params: { ...open.params, inputResponses: responses, requestState: result.requestState } });
      } else {
        put(question(request.method, request.params, (given) => {
          responses[key] = given;
          next();
        }));
      }
    };
    next();
  }
  function take({ message, ...about }) {
    const { method: name, id, params: given = {} } = message;
    if (name === "notifications/progress") {
      progress.hidden = false;
      if (typeof given.total === "number") bar.max = given.total;
      if (typeof given.total === "number" && typeof given.progress === "number") bar.value = given.progress;
      setText(last, `${given.progress}${given.total === undefined ? "" : ` of ${given.total}`}${given.message === undefined ? "" : `: ${given.message}`}`);
    } else if (name === "notifications/message") {
      line(`${given.level}: ${typeof given.data === "string" ? given.data : JSON.stringify(given.data)}`);
    } else if (name === "moonpool/steps") {
      open.steps.push(given.steps);
    } else if (name === "notifications/cancelled") {
      questions.replaceChildren();
    } else if (name && id !== undefined) {
      put(question(name, given, (result) => {
        tell("Runs.");
        answer({ id, result });
      }));
    } else if (message.result?.resultType === "input_required") {
      putAll(message.result);
    } else if (!name) {
      out.replaceChildren(...resultNodes(message, about), ...timeNodes(open.steps));
    }
  }
  function principal() {
    const id = who.value.trim() || "local";
    return id === "local" ? id : { id, scopes: scopes.value.split(/[\s,]+/).filter(Boolean) };
  }
  async function run(wanted) {
    const mine = open = { controller: new AbortController(), params: wanted, steps: [] };
    lines.replaceChildren();
    out.replaceChildren();
    questions.replaceChildren();
    progress.hidden = true;
    bar.removeAttribute("value");
    setText(last, "");
    start.setAttribute("aria-disabled", "true"); // and not disabled, which loses the focus
    stop.disabled = false;
    tell("Starts.");
    let why = "";
    try {
      const response = await ask("/api/call", { method: "POST", signal: mine.controller.signal, body: { method, params: wanted, revision: revision.value, principal: principal() } });
      await readEvents(response, (event) => {
        if (event.event === "call opened") {
          mine.name = event.run;
          tell("Runs.");
        } else if (event.event === "call closed") why = event.why === "answered" || event.why === "refused" ? "Done." : `It has ended: ${event.why}.`;
        else take(event);
      });
      if (why === "") why = "The stream has ended: the gateway does not answer.";
    } catch (error) {
      why = error instanceof Refused ? `Refused: ${error.message}.` : mine.controller.signal.aborted ? "Cancelled." : "The gateway does not answer.";
    }
    if (open !== mine) return;
    open = null;
    start.removeAttribute("aria-disabled");
    stop.disabled = true;
    progress.hidden = true;
    questions.replaceChildren();
    tell(why, why !== "Done.");
    if (out.firstChild) show(out, out);
    else start.focus();
  }
  async function begin() {
    let wanted;
    try {
      wanted = params();
    } catch (error) {
      if (!(error instanceof Wrong)) throw error;
      tell("Something is wrong in the form.", true);
      return;
    }
    if (destructive) {
      const isWanted = await sure("It says that it destroys something", "Run it all the same?", "Run it", "Do not run it");
      if (!isWanted) {
        tell("It was not run.");
        return;
      }
    }
    await run(wanted);
  }
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!open) begin();
  });
  stop.addEventListener("click", () => {
    if (open?.name) answer({ cancel: true });
    else open?.controller.abort();
  });
  onLeave(() => {
    const leaving = open;
    open = null;
    leaving?.controller.abort();
  });
  return { settings: () => ({ revision: revision.value, principal: principal() }) };
}
