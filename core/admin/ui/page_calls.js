// Calls: those that run now, with their end, and the last ones that have ended.
const MAX_ENDED = 200; // as many as each worker keeps

function build(at, { change, duration, el, json, list, setText, table, time }) {
  const named = [["Method", (c) => c.method], ["Name", (c) => c.name], ["Principal", (c) => c.principal]];
  const rows = table("Running calls", [
    ["Call", (c) => c.call], ...named, ["Client", (c) => c.client], ["Address", (c) => c.address], ["Running", (c) => duration(c.running_ms)],
  ], (c) => c.call, {
    title: "Cancel", label: (c) => `Cancel the call ${c.call} of ${c.name ?? c.method}`,
    asks: (c) => [`Cancel the call of ${c.name ?? c.method}?`, "Its client gets an error instead of a result; what it has done so far stays done.", "Cancel the call"],
    run: (c) => change(`/api/call/${c.call}`),
  });
  const part = list(at, "No call runs.");
  at.append(rows.search, rows.region, el("h2", {}, "Ended"));
  const ended = table("Ended calls, newest first", [
    ["Ended", (c) => time(c.ended)], ...named, ["Outcome", (c) => ({ text: c.code ? `${c.outcome} (${c.code})` : c.outcome, class: c.outcome === "ok" ? "good" : "bad" })],
    ["Took", (c) => duration(c.took_ms)], ["Call", (c) => c.id],
  ], (c) => c.call), none = el("p", { class: "soft" });
  at.append(none, ended.search, ended.region);
  return () => part.load(async () => {
    const [{ calls }, past] = await Promise.all([json("/api/calls"), json("/api/calls?state=ended")]);
    rows.update(calls);
    ended.update(past.calls.sort((a, b) => b.ended.localeCompare(a.ended)).slice(0, MAX_ENDED));
    setText(none, past.calls.length > 0 ? "" : "No call has ended since the start.");
    none.hidden = past.calls.length > 0;
    return calls.length;
  });
}

export default { title: "Calls", every: 2000, build };
