// Overview: what is wrong now, then the numbers of the gateway.
import { P50, P99, duration } from "./kit.js";
import { upstreamsOf } from "./page_upstreams.js";

// What the last reload did; nothing before the first one.
function lastReload(scripts, time) {
  if (!scripts.at) return "";
  return scripts.ok ? `Reloaded at ${time(scripts.at).text}: ${scripts.changes || "no changes"}.` : `Reload refused at ${time(scripts.at).text}.`;
}

// What an operator must act on: a list of { text, detail, page }.
function wrongs(status, time) {
  const found = [], scripts = status.scripts ?? {};
  if (scripts.start) found.push({ text: scripts.start.serves === "last_good" ? "The files on the disk have errors: the last good generation serves."
    : `Left out because of errors: ${scripts.start.left_out.join(", ")}.`, detail: scripts.errors, page: "scripts" });
  else if (scripts.ok === false) found.push({ text: `The scripts were not reloaded at ${time(scripts.at).text}: the version before still serves.`, detail: scripts.errors, page: "scripts" });
  for (const one of status.stuck ?? []) found.push({ text: "A thread is stuck.", detail: typeof one === "string" ? one : JSON.stringify(one) });
  if (status.draining) found.push({ text: "The gateway drains: it takes nothing new." });
  if (scripts.needs_restart) found.push({ text: `These keys of the configuration need a restart: ${scripts.needs_restart}` });
  for (const one of status.certificates ?? []) if (!one.ok) found.push({ text: `The new certificate of ${one.address} is refused: see the log.`, page: "certificates" });
  for (const one of upstreamsOf(status)) if (one.state === "down" || one.state === "barred") found.push({ text: `The upstream ${one.name} is ${one.state}.`, page: "upstreams" });
  return found;
}

const rate = (n) => `${n < 10 ? n.toFixed(1) : Math.round(n)}/s`, ms = (n) => n >= 10000 ? duration(n) : `${n < 10 ? n.toFixed(1) : Math.round(n)} ms`;
const HOUR = 720; // rows

// The charts, from GET /api/history; those of the last hour go on by GET /api/live.
function charts(at, { ask, bytes, chart, el, json, list, onLeave, readEvents }) {
  const shown = [
    chart("Calls", [["calls", "Calls"], ["errors", "Errors"]], rate),
    chart("Time of calls", [["p50_ms", "p50"], ["p99_ms", "p99"]], ms, `${P50}. ${P99}`),
    chart("Sessions and streams", [["sessions", "Sessions"], ["streams", "Event streams"]], (n) => String(Math.round(n))),
    chart("Memory", [["resident_bytes", "Process"], ["lua_bytes", "Lua"]], bytes),
    chart("Processors in use", [["cpu", "Processors"]], (n) => n.toFixed(2)),
    chart("How long a worker is held up", [["loop_p99_ms", "p99"]], ms, P99),
  ];
  const names = ["calls", "errors", "p50_ms", "p99_ms", "sessions", "streams", "resident_bytes", "lua_bytes", "cpu", "loop_p99_ms"];
  const grid = el("div", { class: "charts" });
  grid.append(...shown.map((one) => one.node));
  let span = "hour", data = null, began = 0, latest = {}, part = [], isOver = false, wait = 1000, timer = 0, open = null;
  const choice = ["hour", "day"].map((name) => el("button", { type: "button", "aria-pressed": String(name === span), click: () => choose(name) }, `Last ${name}`));
  at.append(el("h2", {}, "Over time"), el("div", { class: "choice", role: "group", "aria-label": "Time of the charts" }, ...choice), grid);
  grid.hidden = true;
  const states = list(at, "");
  onLeave(() => {
    isOver = true;
    clearTimeout(timer);
    open?.abort();
  });
  function choose(name) {
    span = name;
    choice.forEach((button, i) => button.setAttribute("aria-pressed", String(["hour", "day"][i] === name)));
    open?.abort();
    follow();
  }
  function draw() {
    for (const one of shown) one.update(data);
  }
  // Adds what came since the last row as a row that is not complete yet.
  function add(event) {
    Object.assign(latest, event);
    if (part.length === 0) for (const name of names) data.values[name].push(null);
    part.push({ ...latest });
    for (const name of names) {
      const all = part.map((one) => one[name]).filter((v) => typeof v === "number"), values = data.values[name];
      values[values.length - 1] = all.length === 0 ? null : all.reduce((a, b) => a + b, 0) / all.length;
      if (values.length > HOUR) values.shift();
    }
    data.until_ms = event.at_ms;
    if (event.at_ms - began >= data.every_ms) {
      began += data.every_ms;
      part = [];
    }
    draw();
  }
  async function follow() {
    clearTimeout(timer);
    const mine = open = new AbortController();
    try {
      await states.load(async () => {
        const got = await json(`/api/history?span=${span}&numbers=${names}`, { signal: mine.signal });
        if (open !== mine || isOver) return 1;
        data = got;
        began = got.until_ms;
        part = [];
        latest = {};
        grid.hidden = false;
        draw();
        wait = 1000;
        return 1;
      });
      if (span === "hour" && open === mine && !isOver) {
        await readEvents(await ask("/api/live", { signal: mine.signal }), (event) => {
          if (open === mine) add(event);
        });
      }
    } catch { /* the numbers above tell it, and ask again */ }
    if (isOver || open !== mine) return;
    wait = Math.min(wait * 2, 15000);
    timer = setTimeout(follow, span === "day" ? 60000 : wait);
  }
  follow();
}

function build(at, kit) {
  const { bytes, el, json, list, setText, sum, time } = kit;
  const wrong = el("div"), numbers = el("dl", { class: "numbers" }), since = el("p", { class: "soft" }), now = el("div");
  at.append(wrong, numbers, since, now);
  let told = null;
  const shown = new Map();
  function put(name, value) {
    if (!shown.has(name)) {
      const dd = el("dd");
      numbers.append(el("div", {}, el("dt", {}, name), dd));
      shown.set(name, dd);
    }
    setText(shown.get(name), String(value));
  }
  const part = list(now, "");
  charts(at, kit);
  return () => part.load(async () => {
    const status = await json("/status"), { gauges, counters } = status;
    setText(document.getElementById("version"), status.version);
    const problems = wrongs(status, time), text = JSON.stringify(problems);
    if (text !== told) {
      told = text;
      wrong.replaceChildren(problems.length === 0 ? el("p", { class: "good" }, "Nothing is wrong.") : el("div", { class: "wrong" }, el("h2", {}, "Wrong now"),
        ...problems.flatMap(({ text: line, detail, page }) => [el("p", {}, line, ...page ? [" ", el("a", { href: `#${page}` }, "Show")] : []),
          ...detail ? [el("pre", { tabindex: "0", "aria-label": "Details" }, detail)] : []])));
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
    setText(since, `Process ${status.pid} for ${duration(status.uptime_ms)}, ${status.workers} worker${status.workers === 1 ? "" : "s"}. ${lastReload(status.scripts, time)}`);
    return 1;
  });
}

export default { title: "Overview", every: 2000, build };
