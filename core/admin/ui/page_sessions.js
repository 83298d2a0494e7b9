// Sessions: who has one, and their end.
function build(at, { change, duration, json, list, table }) {
  const rows = table("Sessions", [
    ["Session", (s) => s.session], ["Client", (s) => s.client ? `${s.client.name} ${s.client.version ?? ""}` : ""], ["Revision", (s) => s.revision],
    ["Transport", (s) => s.transport], ["Address", (s) => s.address], ["Open", (s) => duration(s.age_ms)], ["Idle", (s) => duration(s.idle_ms)],
    ["Calls", (s) => s.calls], ["Stream", (s) => s.has_stream ? "open" : ""],
  ], (s) => s.session, { title: "End", label: (s) => `End the session ${s.session}`, asks: (s) => [`End the session ${s.session}?`, "Its client loses the session with its subscriptions and its event stream, and its running calls are cancelled. It has to open a new one.", "End it"],
    run: (s) => change(`/api/session/${s.session}`) });
  const part = list(at, "No sessions. A client of a revision before 2026-07-28 opens one by initialize; later ones have none.");
  at.append(rows.search, rows.region);
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

export default { title: "Sessions", every: 5000, build };
