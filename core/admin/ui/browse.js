// What the pages of tools, resources and prompts share: the list with its search, and the page of one thing.
import { act, duration, el, json, list, P50, P99, setText, table, time } from "./kit.js";

const MAX_PAGES = 5;
const ms = (n) => n === undefined ? "" : duration(n);
const LOSES = { upstream: "none of its tools, resources and prompts", tool: "not this tool", resource: "not this resource", prompt: "not this prompt" };

// What switches a thing of a kind ("tool") off or on: for the last column of a table, and for the page of one thing.
export function switcher(kind, keyOf, change) {
  return {
    title: "Switch", text: (t) => t.off ? "Switch on" : "Switch off", label: (t) => `Switch ${t.off ? "on" : "off"} the ${kind} ${keyOf(t)}`,
    asks: (t) => t.off ? null : [`Switch off the ${kind} ${keyOf(t)}?`,
      `From then on clients see ${LOSES[kind]}, and requests for it are refused. What runs goes on. It stays off, also after reloads, until an operator switches it on.`, "Switch it off"],
    run: (t) => change("/api/switch", { method: "POST", body: { [kind]: keyOf(t), on: t.off === true } }),
  };
}

// By which caller a thing of a kind is off, and since when, from GET /api/switch; "" if it is on, or nothing is known of it.
export const whoSwitched = ({ switches }, kind, name) => {
  const found = switches.find((one) => one.kind === kind && one.name === name);
  return found ? `by ${found.by}${found.since ? `, ${time(found.since * 1000).text}` : ""}` : "";
};

// The list of a kind ("tools"). `keyOf(row)` is what its page is called.
export function browse(at, { change, onLeave, refresh }, { kind, keyOf, hasTimes, empty }) {
  const search = el("input", { type: "search", name: "search", autocomplete: "off", spellcheck: "false", placeholder: "press /" }), count = el("p", { class: "soft" });
  const more = el("button", { type: "button", click: () => { pages++; refresh(); } }, "More");
  let pages = 1, wait = 0;
  const rows = table(kind[0].toUpperCase() + kind.slice(1), [
    ["Name", (t) => ({ text: keyOf(t), href: `#${kind}/${encodeURIComponent(keyOf(t))}` })],
    ["What it is", (t) => `${t.off ? "(off) " : ""}${t.destructive ? "(destructive) " : ""}${t.title ? `${t.title}: ` : ""}${t.description ?? ""}`], ["From", (t) => t.origin === "upstream" ? `upstream ${t.from}` : t.from],
    ["Calls", (t) => t.calls], ["Failed", (t) => ({ text: t.errors, class: t.errors > 0 ? "bad" : "" })],
    ...hasTimes ? [["p50", (t) => ms(t.p50_ms), P50], ["p99", (t) => ms(t.p99_ms), P99]] : [],
  ], keyOf, switcher(kind.slice(0, -1), keyOf, change));
  at.append(el("form", { submit: (event) => event.preventDefault() }, el("label", { class: "search" }, `Search in ${kind}`, search)));
  const part = list(at, empty);
  at.append(count, rows.region, more);
  more.hidden = true;
  search.addEventListener("input", () => {
    clearTimeout(wait);
    wait = setTimeout(() => {
      pages = 1;
      refresh();
    }, 150);
  });
  onLeave(() => clearTimeout(wait));
  return () => part.load(async () => {
    const all = [], text = search.value.trim();
    let total = 0, next = 0;
    for (let page = 0; page < Math.min(pages, MAX_PAGES) && next !== undefined; page++) {
      const answer = await json(`/api/${kind}?page=${page}${text === "" ? "" : `&search=${encodeURIComponent(text)}`}`);
      all.push(...answer[kind]);
      ({ total, next } = answer);
    }
    rows.update(all);
    more.hidden = next === undefined || pages >= MAX_PAGES;
    setText(count, total === all.length ? "" : `The first ${all.length} of ${total}.`);
    if (text !== "") setText(count, total === 0 ? `Nothing has “${text}” in its name or title.` : `${total} of this name or title.`);
    return total === 0 && text !== "" ? 1 : total;
  });
}

// The page of one thing: what `path` answers, then `extra(at, thing)` once, then its definition and failures.
export function single(at, { change }, { kind, name, path, hasTimes, extra }) {
  const head = el("div"), numbers = el("dl", { class: "numbers" }), body = el("div"), shown = new Map();
  at.append(el("p", {}, el("a", { href: `#${kind}` }, `All ${kind}`)), el("h2", {}, name), head);
  const part = list(at, "");
  at.append(body);
  const failures = table("Last failures, newest first", [
    ["Time", (f) => time(f.at * 1000)], ["Call", (f) => f.call], ["Outcome", (f) => ({ text: f.outcome, class: "bad" })],
    ["Code", (f) => f.code || ""], ["Took", (f) => ms(f.ms)],
  ], (f) => `${f.call} ${f.at}`);
  const one = kind.slice(0, -1), action = switcher(one, (t) => t.name, change), failuresTitle = el("h3", {}, "Last failures"), state = el("span"), button = el("button", { type: "button", click: () => act(action, now) });
  let isBuilt = false, now = null;
  function put(title, text, hint) {
    if (!shown.has(title)) {
      const dd = el("dd");
      numbers.append(el("div", { title: hint }, el("dt", {}, title), dd));
      shown.set(title, dd);
    }
    setText(shown.get(title), String(text ?? ""));
  }
  function build(thing) {
    const facts = [thing.origin === "upstream" ? `From the upstream ${thing.from}.` : `From ${thing.from}.`, thing.scopes?.length > 0 && `Needs ${thing.scopes.join(" ")}.`, thing.visible && "Visible to some clients only.", thing.policies?.length > 0 && `Policies: ${thing.policies.join(", ")}.`,
      thing.timeout && `At most ${thing.timeout} s.`, thing.concurrency && `${thing.concurrency} at once.`, thing.task && `As a task: ${thing.task}.`, thing.destructive && "Destructive."];
    head.append(...thing.title ? [el("p", {}, el("strong", {}, thing.title))] : [], el("p", { class: "about" }, thing.description ?? ""), el("p", { class: "soft" }, facts.filter(Boolean).join(" ")),
      el("p", { class: "choice" }, state, button));
    extra(body, thing);
    const dates = Object.keys(thing.definitions ?? {}).sort().reverse(), text = el("pre", { tabindex: "0", "aria-label": "Definition" });
    const date = el("select", { name: "definition", change: () => setText(text, JSON.stringify(thing.definitions[date.value], null, 2)) }, ...dates.map((one) => el("option", { value: one }, one)));
    if (dates.length > 0) setText(text, JSON.stringify(thing.definitions[dates[0]], null, 2));
    body.append(el("h2", {}, "Calls and failures"), numbers, failuresTitle, failures.region, el("h2", {}, "Definition"),
      el("form", { submit: (event) => event.preventDefault() }, el("label", {}, "As clients of this revision get it", date)), text);
  }
  return () => part.load(async () => {
    const thing = await json(path);
    const off = thing.off ? await json("/api/switch") : null, withAll = off && thing.origin === "upstream" && whoSwitched(off, "upstream", thing.from);
    now = thing;
    if (!isBuilt) build(thing);
    isBuilt = true;
    setText(state, off ? `Switched off ${withAll ? `with its upstream ${withAll}` : whoSwitched(off, one, thing.name)}. No client sees it.`.replace(" .", ".") : "Switched on.");
    setText(button, action.text(thing));
    put("Calls", thing.calls);
    put("Failed", thing.errors);
    if (hasTimes) put("p50", ms(thing.p50_ms) || "–", P50);
    if (hasTimes) put("p99", ms(thing.p99_ms) || "–", P99);
    failures.update(thing.failures ?? []);
    failuresTitle.hidden = !thing.failures?.length;
    return 1;
  });
}
