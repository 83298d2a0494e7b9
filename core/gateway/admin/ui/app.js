// The pages of the dashboard. Each page is { title, build(main) → refresh() }, and refresh runs again after `every` ms while the page is shown.
import { chart, el, setText, table } from "./dom.js";

const alertLine = document.getElementById("alert"), main = document.getElementById("main");
const MAX_EVENTS = 500;

// -- requests -----------------------------------------------------------------------------------------------------------

let token = sessionStorage.getItem("token") ?? "";

class Refused extends Error {}

async function ask(path, { method = "GET", signal } = {}) {
  const headers = method === "GET" ? {} : { "moonpool-admin": "1" };
  if (token) headers.Authorization = `Bearer ${token}`;
  const response = await fetch(path, { method, headers, signal, cache: "no-store" });
  if (response.ok) return response;
  const text = await response.text();
  let why = text.trim();
  try {
    why = JSON.parse(text).error ?? why;
  } catch { /* a plain text */ }
  const refused = new Refused(why || `the gateway answered ${response.status}`);
  refused.status = response.status;
  throw refused;
}

const json = async (path, options) => (await ask(path, options)).json();

// -- what is wrong ------------------------------------------------------------------------------------------------------

let lostAt = null;

function tell(text) {
  setText(alertLine, text);
  alertLine.hidden = text === "";
}

function fails(error) {
  if (error instanceof Refused) {
    tell(`Refused: ${error.message}.`);
    return;
  }
  lostAt ??= new Date();
  document.body.classList.add("stale");
  tell(`The gateway has not answered since ${lostAt.toLocaleTimeString()}. What you see is from before; this page tries again.`);
}

function works() {
  lostAt = null;
  document.body.classList.remove("stale");
  tell("");
}

// -- numbers ------------------------------------------------------------------------------------------------------------

const sum = (value) => typeof value === "object" && value !== null ? Object.values(value).reduce((a, b) => a + sum(b), 0) : value ?? 0;
const bytes = (n) => n < 1 << 20 ? `${Math.round(n / 1024)} KiB` : `${(n / (1 << 20)).toFixed(1)} MiB`;
function duration(ms) {
  const s = Math.floor(ms / 1000);
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  return s < 86400 ? `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min` : `${Math.floor(s / 86400)} d ${Math.floor(s / 3600) % 24} h`;
}

// What the last reload did; nothing before the first one.
function lastReload(scripts) {
  if (!scripts.at) return "";
  return scripts.ok ? `Reloaded at ${scripts.at}: ${scripts.changes || "no changes"}.` : `Reload refused at ${scripts.at}.`;
}

// -- a token ------------------------------------------------------------------------------------------------------------

function tokenForm() {
  const field = el("input", { type: "password", autocomplete: "off", required: "", name: "token" });
  return el("form", {
    submit(event) {
      event.preventDefault();
      token = field.value.trim();
      sessionStorage.setItem("token", token);
      show();
    },
  }, el("label", {}, "Token of the admin listener", field), el("button", { type: "submit" }, "Use this token"));
}

// A part of a page that lists something: says what is wrong, or that there is nothing.
function list(parts, empty) {
  const note = el("p", {}, "Loading…"), form = tokenForm();
  form.hidden = true;
  parts.append(note, form);
  return {
    async load(get) {
      try {
        const count = await get();
        setText(note, count === 0 ? empty : "");
        note.hidden = count > 0;
        form.hidden = true;
        works();
      } catch (error) {
        const isOurs = error instanceof Refused && (error.status === 401 || error.status === 403 || error.status === 429);
        if (isOurs) works();
        if (isOurs) setText(note, `This needs a token of the admin listener (${error.message}).`);
        note.hidden = !isOurs;
        form.hidden = !isOurs;
        if (!isOurs) throw error;
      }
    },
  };
}

// -- overview -----------------------------------------------------------------------------------------------------------

const upstreamsOf = (status) => Array.isArray(status.upstreams) ? status.upstreams
  : Object.entries(status.upstreams ?? {}).map(([name, one]) => ({ name, ...one }));

// What an operator must act on: a list of { text, detail }.
function wrongs(status) {
  const found = [], scripts = status.scripts ?? {};
  if (scripts.ok === false) found.push({ text: `The scripts were not reloaded at ${scripts.at}: the version before still serves.`, detail: scripts.errors });
  for (const one of status.stuck ?? []) found.push({ text: "A thread is stuck.", detail: typeof one === "string" ? one : JSON.stringify(one) });
  if (status.draining) found.push({ text: "The gateway drains: it takes nothing new." });
  if (scripts.needs_restart) found.push({ text: `These keys of the configuration need a restart: ${scripts.needs_restart}` });
  for (const one of status.certificates ?? []) if (!one.ok) found.push({ text: `The new certificate of ${one.address} is refused: see the log.` });
  for (const one of upstreamsOf(status)) if (one.state === "down" || one.state === "barred") found.push({ text: `The upstream ${one.name} is ${one.state}.` });
  return found;
}

function overview(at) {
  const wrong = el("div"), numbers = el("dl", { class: "numbers" }), since = el("p", { class: "soft" });
  const rate = chart("Calls", "a second"), shown = new Map();
  at.append(wrong, numbers, el("h2", {}, "Calls a second"), ...rate.nodes, since);
  let before = null, told = null;
  function put(name, value) {
    if (!shown.has(name)) {
      const dd = el("dd");
      numbers.append(el("div", {}, el("dt", {}, name), dd));
      shown.set(name, dd);
    }
    setText(shown.get(name), String(value));
  }
  const part = list(at, "");
  return () => part.load(async () => {
    const status = await json("/status"), { gauges, counters } = status, now = performance.now();
    setText(document.getElementById("version"), status.version);
    const problems = wrongs(status), text = JSON.stringify(problems);
    if (text !== told) {
      told = text;
      wrong.replaceChildren(problems.length === 0 ? el("p", { class: "good" }, "Nothing is wrong.") : el("div", { class: "wrong" }, el("h2", {}, "Wrong now"),
        ...problems.flatMap(({ text: line, detail }) => [el("p", {}, line), ...detail ? [el("pre", { tabindex: "0", "aria-label": "Details" }, detail)] : []])));
    }
    put("Calls running", gauges.requests_in_flight);
    put("Calls", counters.calls);
    put("Sessions", sum(gauges.sessions));
    put("Event streams", gauges.streams_open);
    put("Connections", gauges.connections);
    put("Refused", sum(counters.refused));
    put("Errors in scripts", counters.tool_faults);
    put("Calls ended early", sum(counters.tool_aborted));
    put("Memory of Lua", bytes(gauges.lua_bytes));
    put("Generation", status.scripts.generation);
    if (before && now > before.now) rate.add(Math.max(0, (counters.calls - before.calls) / (now - before.now) * 1000));
    before = { now, calls: counters.calls };
    setText(since, `Process ${status.pid} for ${duration(status.uptime_ms)}, ${status.workers} worker${status.workers === 1 ? "" : "s"}. ${lastReload(status.scripts)}`);
    return 1;
  });
}

// -- calls, sessions, upstreams -----------------------------------------------------------------------------------------

async function change(path) {
  try {
    await ask(path, { method: "DELETE" });
    await refresh();
  } catch (error) {
    fails(error);
  }
}

function calls(at) {
  const rows = table("Running calls", [
    ["Call", (c) => c.call], ["Method", (c) => c.method], ["Name", (c) => c.name], ["Principal", (c) => c.principal], ["Client", (c) => c.client],
    ["Address", (c) => c.address], ["Running", (c) => duration(c.running_ms)],
  ], (c) => c.call, { title: "Cancel", label: (c) => `Cancel the call ${c.call} of ${c.name ?? c.method}`, run: (c) => change(`/api/call/${c.call}`) });
  const part = list(at, "No call runs.");
  at.append(rows.region);
  return () => part.load(async () => {
    const answer = await json("/api/calls");
    rows.update(answer.calls);
    return answer.calls.length;
  });
}

function sessions(at) {
  const rows = table("Sessions", [
    ["Session", (s) => s.session], ["Client", (s) => s.client ? `${s.client.name} ${s.client.version ?? ""}` : ""], ["Revision", (s) => s.revision],
    ["Transport", (s) => s.transport], ["Address", (s) => s.address], ["Open", (s) => duration(s.age_ms)], ["Idle", (s) => duration(s.idle_ms)],
    ["Calls", (s) => s.calls], ["Stream", (s) => s.has_stream ? "open" : ""],
  ], (s) => s.session, { title: "End", label: (s) => `End the session ${s.session}`, run: (s) => change(`/api/session/${s.session}`) });
  const part = list(at, "No sessions. A client opens one by initialize.");
  at.append(rows.region);
  return () => part.load(async () => {
    const all = [];
    for (let page = 0; page !== undefined && all.length < 500;) {
      const answer = await json(`/api/sessions?page=${page}`);
      all.push(...answer.sessions);
      page = answer.next;
    }
    all.sort((a, b) => a.idle_ms - b.idle_ms);
    rows.update(all);
    return all.length;
  });
}

function upstreams(at) {
  const rows = table("Upstreams", [
    ["Upstream", (u) => u.name], ["State", (u) => ({ text: u.state, class: u.state === "down" || u.state === "barred" ? "bad" : "" })],
    ["Revision", (u) => u.revision], ["Transport", (u) => u.transport], ["Requests", (u) => u.calls], ["Errors", (u) => u.errors], ["Running", (u) => u.running],
    ["Half take (ms)", (u) => ((u.p50_us ?? 0) / 1000).toFixed(1)], ["99 % take (ms)", (u) => ((u.p99_us ?? 0) / 1000).toFixed(1)], ["Last failure", (u) => u.error],
  ], (u) => u.name);
  const part = list(at, "No upstreams. The section upstreams of the configuration names MCP servers behind this gateway.");
  at.append(rows.region);
  return () => part.load(async () => {
    const all = upstreamsOf(await json("/status"));
    rows.update(all);
    return all.length;
  });
}

// -- tap ----------------------------------------------------------------------------------------------------------------

let openTap = null; // an AbortController while a tap is open

// Calls `on` with each event of the stream, until it ends.
async function readEvents(response, on) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) if (part.startsWith("data: ")) on(JSON.parse(part.slice(6)));
  }
}

function tap(at) {
  const events = [];
  let number = 0;
  const field = (label, name, more = {}) => el("label", {}, label, el("input", { name, autocomplete: "off", spellcheck: "false", ...more }));
  const start = el("button", { type: "submit" }, "Start"), state = el("p", { class: "soft", role: "status" }, "The tap is closed.");
  const form = el("form", {}, field("Tool", "tool"), field("Method", "method"), field("Principal", "principal"), field("Outcome", "outcome"),
    field("Slower than (ms)", "slower", { inputmode: "numeric", pattern: "[0-9]*" }), start);
  const keys = tokenForm();
  keys.hidden = true;
  const rows = table("Events, newest first", [
    ["Time", (e) => e.time ? e.time.slice(11, 23) : ""],
    ["Event", (e) => ({ text: e.event === "answer" ? e.outcome : e.event, class: e.event !== "answer" ? "" : e.outcome === "ok" ? "good" : "bad" })],
    ["Call", (e) => e.call], ["Method", (e) => e.method], ["Name", (e) => e.name ?? e.why], ["ms", (e) => e.ms],
    ["Principal", (e) => e.principal], ["Arguments", (e) => e.event === "dropped" ? `${e.count} events were dropped` : e.arguments ? JSON.stringify(e.arguments) : ""],
  ], (e) => e.number);
  at.append(el("p", {}, "Calls as they begin and end. A filter may have *; of arguments you see names, types and sizes."), form, keys, state, rows.region);
  let isDirty = false;
  function put(event) {
    event.number = ++number;
    events.unshift(event);
    if (events.length > MAX_EVENTS) events.pop();
    if (!isDirty) requestAnimationFrame(() => {
      isDirty = false;
      rows.update(events);
    });
    isDirty = true;
  }
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (openTap) {
      openTap.abort();
      return;
    }
    const query = new URLSearchParams([...new FormData(form)].filter(([, value]) => value !== ""));
    const mine = openTap = new AbortController();
    setText(start, "Stop");
    let why = "The tap is closed.";
    try {
      const response = await ask(`/api/tap?${query}`, { signal: mine.signal });
      works();
      keys.hidden = true;
      setText(state, "The tap is open.");
      await readEvents(response, (one) => {
        if (one.event === "tap closed") why = `The gateway closed the tap: ${one.why}.`;
        else if (one.event !== "tap opened") put(one);
      });
    } catch (error) {
      if (error instanceof Refused) why = `Refused: ${error.message}.`;
      else if (!mine.signal.aborted) why = "The tap has ended: the gateway does not answer.";
      keys.hidden = error.status !== 401;
    }
    if (openTap === mine) openTap = null;
    setText(start, "Start");
    setText(state, why);
  });
  return null;
}

// -- the pages ----------------------------------------------------------------------------------------------------------

const pages = {
  overview: ["Overview", overview, 2000], calls: ["Running calls", calls, 2000], sessions: ["Sessions", sessions, 5000],
  upstreams: ["Upstreams", upstreams, 5000], tap: ["Tap", tap, 0],
};
let timer = 0, refresh = async () => {};

function show() {
  const given = /^#token=([\w.~-]+)$/.exec(location.hash);
  if (given) {
    token = given[1];
    sessionStorage.setItem("token", token);
    history.replaceState(null, "", "#overview");
  }
  if (location.hash === "#main") return;
  const name = location.hash.slice(1) in pages ? location.hash.slice(1) : "overview", [title, build, every] = pages[name];
  clearTimeout(timer);
  openTap?.abort();
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${title} – moonpool`;
  main.replaceChildren(el("h1", {}, title));
  works();
  const load = build(main);
  let wait = every, mine = {};
  current = mine;
  refresh = async () => {
    clearTimeout(timer);
    if (!load || current !== mine) return;
    try {
      if (!document.hidden) await load();
      wait = every;
    } catch (error) {
      if (current === mine) fails(error);
      wait = Math.min(wait * 2, 15000);
    }
    if (current === mine) timer = setTimeout(refresh, wait);
  };
  refresh();
}

let current = null;

addEventListener("hashchange", () => {
  show();
  if (location.hash !== "#main") main.focus({ preventScroll: true });
});
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) refresh();
});
show();
