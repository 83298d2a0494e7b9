// Overview: what is wrong now, then the numbers of the gateway.
import { upstreamsOf } from "./page_upstreams.js";

// What the last reload did; nothing before the first one.
function lastReload(scripts) {
  if (!scripts.at) return "";
  return scripts.ok ? `Reloaded at ${scripts.at}: ${scripts.changes || "no changes"}.` : `Reload refused at ${scripts.at}.`;
}

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

function build(at, { bytes, chart, duration, el, json, list, setText, sum }) {
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

export default { title: "Overview", every: 2000, build };
