// Upstreams: the MCP servers behind the gateway, and their switch.
import { switcher, whoSwitched } from "./browse.js";
import { P50, P99 } from "./kit.js";

// The upstreams of an answer to GET /status.
export const upstreamsOf = (status) => Array.isArray(status.upstreams) ? status.upstreams
  : Object.entries(status.upstreams ?? {}).map(([name, one]) => ({ name, ...one }));

function build(at, { change, json, list, table }) {
  const rows = table("Upstreams", [
    ["Upstream", (u) => u.name], ["State", (u) => ({ text: u.off ? `${u.state}, switched off ${u.who}` : u.state, class: u.state === "down" || u.state === "barred" ? "bad" : "" })],
    ["Revision", (u) => u.revision], ["Transport", (u) => u.transport], ["Requests", (u) => u.calls], ["Errors", (u) => u.errors], ["Running", (u) => u.running],
    ["p50 (ms)", (u) => ((u.p50_us ?? 0) / 1000).toFixed(1), P50], ["p99 (ms)", (u) => ((u.p99_us ?? 0) / 1000).toFixed(1), P99], ["Last failure", (u) => u.error],
  ], (u) => u.name, switcher("upstream", (u) => u.name, change));
  const part = list(at, "No upstreams. The section upstreams of the configuration names MCP servers behind this gateway.");
  at.append(rows.search, rows.region);
  return () => part.load(async () => {
    const all = upstreamsOf(await json("/status")), off = all.length > 0 ? await json("/api/switch") : { switches: [] };
    rows.update(all.map((u) => {
      const who = whoSwitched(off, "upstream", u.name);
      return { ...u, who, off: who !== "" };
    }));
    return all.length;
  });
}

export default { title: "Upstreams", every: 5000, build };
