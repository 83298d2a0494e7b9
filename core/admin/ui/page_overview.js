// Overview: what is wrong now, then the numbers of the gateway.
import { P50, P99, duration, when } from "./kit.js";

// What the last reload did; nothing before the first one.
function lastReload(scripts, time) {
  if (!scripts.at) return "";
  return scripts.ok ? `Reloaded at ${time(scripts.at).text}: ${scripts.changes || "no changes"}.` : `Reload refused at ${time(scripts.at).text}.`;
}

// The page that shows more of a condition of /status.
const PAGES = { upstream_down: "upstreams", upstream_withheld: "upstreams", files_refused: "scripts", scripts_left_out: "scripts", jobs_fail: "scripts",
  certificate_refused: "certificates", certificate_expires: "certificates" };

// The nodes of one condition, in the words of `moonpool status`.
function condition(one, scripts, el) {
  const page = PAGES[one.condition], detail = page === "scripts" && one.condition !== "jobs_fail" ? scripts.errors : "";
  return [
    el("p", {}, el("strong", { class: one.severity === "critical" ? "bad" : "" }, one.severity), ` ${one.count ? `${one.count} ` : ""}${one.what}`,
      ...one.since ? [", since ", when(one.since)] : [], ...page ? [" ", el("a", { href: `#${page}` }, "Show")] : [], el("br"), el("span", { class: "soft" }, `next: ${one.next}`)),
    ...detail ? [el("pre", { tabindex: "0", "aria-label": "Details" }, detail)] : [],
  ];
}

const rate = (n) => `${n < 10 ? n.toFixed(1) : Math.round(n)}/s`;
const HOUR = 720; // rows
// What operators' own programs are refused, such as a page that asks without a token, is not what clients are refused.
const byClients = (refused) => Object.fromEntries(Object.entries(refused).filter(([reason]) => !/^(admin|metrics)/.test(reason)));

// The charts, from GET /api/history; those of the last hour go on by GET /api/live.
function charts(at, { ask, bytes, chart, el, json, list, onLeave, readEvents }) {
  const shown = [
    chart("Calls", [["calls", "Calls"], ["errors", "Errors"]], rate),
    chart("Time of calls", [["p50_ms", "p50"], ["p99_ms", "p99"]], duration, { hint: `${P50}. ${P99}` }),
    chart("Sessions and streams", [["sessions", "Sessions"], ["streams", "Event streams"]], (n) => String(Math.round(n)), { least: 2 }),
    chart("Memory", [["resident_bytes", "Process"], ["lua_bytes", "Lua"]], bytes, { base: 1024 }),
    chart("Processors in use", [["cpu", "Processors"]], (n) => n.toFixed(2), { least: 0.1 }),
    chart("How long a worker is held up", [["loop_p99_ms", "p99"]], duration, { hint: P99 }),
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
  function put(name, page, value, hint) {
    if (!shown.has(name)) {
      const dd = el("dd");
      numbers.append(el("div", { title: hint }, el("dt", {}, el("a", { href: `#${page}` }, name)), dd));
      shown.set(name, dd);
    }
    setText(shown.get(name), String(value));
  }
  const part = list(now, "");
  charts(at, kit);
  return () => part.load(async () => {
    const status = await json("/status"), { gauges, counters } = status;
    setText(document.getElementById("version"), status.version);
    const all = status.conditions ?? [], text = JSON.stringify([all, status.scripts.errors]);
    if (text !== told) {
      told = text;
      wrong.replaceChildren(all.length === 0 ? el("p", { class: "good" }, "Nothing is wrong.")
        : el("div", { class: "wrong" }, el("h2", {}, "Problems"), ...all.flatMap((one) => condition(one, status.scripts, el))));
    }
    put("Calls running", "calls", gauges.requests_in_flight);
    put("Calls", "tools", counters.calls);
    put("Sessions", "sessions", sum(gauges.sessions));
    put("Event streams", "streams", gauges.streams_open);
    put("Connections", "sessions", gauges.connections);
    put("Refused", "tap", sum(byClients(counters.refused ?? {})), "Requests of clients that were refused; requests to the admin listener do not count.");
    put("Errors in scripts", "tools", counters.tool_faults);
    put("Calls ended early", "calls", sum(counters.tool_aborted), "By a limit, by an operator, or because the client has left.");
    put("Memory of Lua", "profile", bytes(gauges.lua_bytes));
    put("Generation", "scripts", status.scripts.generation);
    setText(since, `Process ${status.pid} for ${duration(status.uptime_ms)}, ${status.workers} worker${status.workers === 1 ? "" : "s"}${status.draining ? ", draining" : ""}. ${lastReload(status.scripts, time)}`
      + (status.scripts.needs_restart ? ` Needs a restart: ${status.scripts.needs_restart}.` : ""));
    return 1;
  });
}

export default { title: "Overview", every: 2000, build };
