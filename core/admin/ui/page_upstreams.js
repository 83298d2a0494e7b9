// Upstreams: the MCP servers behind the gateway, their switch, and which of their definitions clients do not get.
import { switcher, whoSwitched } from "./browse.js";
import { duration, fails, P50, P99, sure } from "./kit.js";

// The upstreams of an answer to GET /status.
export const upstreamsOf = (status) => Array.isArray(status.upstreams) ? status.upstreams
  : Object.entries(status.upstreams ?? {}).map(([name, one]) => ({ name, ...one }));

const ms = (us) => us > 0 ? duration(us / 1000) : "";

// The lines of two definitions, as JSON: "- " before what is approved so far and is gone, "+ " before what is new.
function difference(was, is) {
  const [before, now] = [was, is].map((text) => text ? JSON.stringify(JSON.parse(text), null, 2).split("\n") : []);
  return [...before.filter((line) => !now.includes(line)).map((line) => `- ${line}`), ...now.map((line) => `${before.includes(line) ? " " : "+"} ${line}`)].join("\n");
}

function build(at, { change, el, json, list, table, time }) {
  const rows = table("Upstreams", [
    ["Upstream", (u) => u.name], ["State", (u) => ({ text: u.off ? `${u.state}, switched off ${u.who}` : u.state, class: u.state === "down" || u.state === "barred" ? "bad" : "" })],
    ["Revision", (u) => u.transport ? `${u.revision ?? ""} over ${u.transport}` : u.revision], ["Requests", (u) => u.running > 0 ? `${u.calls}, ${u.running} running` : u.calls],
    ["Errors", (u) => u.errors], ["p50", (u) => ms(u.p50_us), P50], ["p99", (u) => ms(u.p99_us), P99], ["Last failure", (u) => u.error ? { text: `${u.error} (${time(u.error_at).text})`, title: time(u.error_at).title } : ""],
  ], (u) => u.name, switcher("upstream", (u) => u.name, change));
  const part = list(at, "No upstreams. These are other MCP servers, whose tools this gateway serves, too: moonpool add adds one to the configuration.");
  const kept = table("Definitions that clients do not get", [["Upstream", (w) => w.upstream], ["Kind", (w) => w.kind], ["Name", (w) => w.name], ["Why", (w) => w.why], ["What to do", (w) => w.hint]],
    (w) => JSON.stringify([w.upstream, w.kind, w.name]),
    { title: "Approve", label: (w) => `Approve the ${w.kind} ${w.name} of ${w.upstream}`, can: (w) => w.kind !== "instructions" && w.hint.startsWith("moonpool lock"), run: approve });
  async function approve({ upstream, kind, name }) {
    const body = { upstream, kind, name };
    try {
      const { hash, is, was } = await json("/api/approve", { method: "POST", body });
      if (await sure(`Approve the ${kind} ${name} of ${upstream}?`, el("code", { class: "lines" }, difference(was, is)), "Approve it"))
        await change("/api/approve", { method: "POST", body: { ...body, hash } });
    } catch (error) {
      fails(error);
    }
  }
  const withheld = el("section", { "aria-label": "Withheld definitions" }, el("h2", {}, "Withheld definitions"),
    el("p", { class: "soft" }, "Clients do not get these. Approve those that are new or have changed; moonpool lock shows the difference, too."), kept.region);
  withheld.hidden = true;
  at.append(rows.search, rows.region, withheld);
  return () => part.load(async () => {
    const all = upstreamsOf(await json("/status")), off = all.length > 0 ? await json("/api/switch") : { switches: [] };
    rows.update(all.map((u) => {
      const who = whoSwitched(off, "upstream", u.name);
      return { ...u, who, off: who !== "" };
    }));
    const held = all.flatMap((u) => (Array.isArray(u.withheld) ? u.withheld : []).map((w) => ({ ...w, upstream: u.name })));
    kept.update(held);
    withheld.hidden = held.length === 0;
    return all.length;
  });
}

export default { title: "Upstreams", every: 5000, build };
