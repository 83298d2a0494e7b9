// Upstreams: the MCP servers behind the gateway, and their switch.
import { switcher, whoSwitched } from "./browse.js";
import { P50, P99 } from "./kit.js";

// The upstreams of an answer to GET /status.
export const upstreamsOf = (status) => Array.isArray(status.upstreams) ? status.upstreams
  : Object.entries(status.upstreams ?? {}).map(([name, one]) => ({ name, ...one }));

const ms = (us) => us > 0 ? `${(us / 1000).toFixed(1)} ms` : "";

function build(at, { change, json, list, table }) {
  const rows = table("Upstreams", [
    ["Upstream", (u) => u.name], ["State", (u) => ({ text: u.off ? `${u.state}, switched off ${u.who}` : u.state, class: u.state === "down" || u.state === "barred" ? "bad" : "" })],
    ["Revision", (u) => u.transport ? `${u.revision ?? ""} over ${u.transport}` : u.revision], ["Requests", (u) => u.running > 0 ? `${u.calls}, ${u.running} running` : u.calls],
    ["Errors", (u) => u.errors], ["p50", (u) => ms(u.p50_us), P50], ["p99", (u) => ms(u.p99_us), P99], ["Last failure", (u) => u.error],
  ], (u) => u.name, switcher("upstream", (u) => u.name, change));
  const part = list(at, "No upstreams. These are other MCP servers, whose tools this gateway serves, too: moonpool add adds one to the configuration.");
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
