// Calls: those that run now, and their end.
function build(at, { change, duration, json, list, table }) {
  const named = [["Method", (c) => c.method], ["Name", (c) => c.name], ["Principal", (c) => c.principal]];
  const rows = table("Running calls", [
    ["Call", (c) => c.call], ...named, ["Client", (c) => c.client], ["Address", (c) => c.address], ["Running", (c) => duration(c.running_ms)],
  ], (c) => c.call, {
    title: "Cancel", label: (c) => `Cancel the call ${c.call} of ${c.name ?? c.method}`,
    asks: (c) => [`Cancel the call of ${c.name ?? c.method}?`, "Its client gets an error instead of a result; what it has done so far stays done.", "Cancel the call"],
    run: (c) => change(`/api/call/${c.call}`),
  });
  const part = list(at, "No call runs. A call is in this list from its begin to its end; the page Tap also shows those that have ended.");
  at.append(rows.search, rows.region);
  return () => part.load(async () => {
    const { calls } = await json("/api/calls");
    rows.update(calls);
    return calls.length;
  });
}

export default { title: "Calls", every: 2000, build };
