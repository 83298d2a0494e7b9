// Streams: the open event streams, and their end.
const MAX_PAGES = 5;

function build(at, { bytes, change, duration, el, json, list, setText, table }) {
  const rows = table("Streams", [
    ["Stream", (s) => s.stream], ["Kind", (s) => s.kind], ["Session", (s) => s.session], ["Principal", (s) => s.principal], ["Method", (s) => s.method],
    ["Open", (s) => duration(s.age_ms)], ["Queued", (s) => bytes(s.queued_bytes)],
  ], (s) => s.stream, { title: "End", label: (s) => `End the stream ${s.stream}`, asks: (s) => [`End the stream ${s.stream}?`, "Its client gets nothing more on it. If it is the stream of a call, the call is cancelled.", "End it"],
    run: (s) => change(`/api/stream/${s.stream}`) });
  const part = list(at, "No event streams. A client opens one by GET, by subscriptions/listen, or with a call that reports progress."), more = el("p", { class: "soft" });
  at.append(more, rows.search, rows.region);
  return () => part.load(async () => {
    const all = [];
    let page = 0;
    while (page !== undefined && page < MAX_PAGES) {
      const answer = await json(`/api/streams?page=${page}`);
      all.push(...answer.streams);
      page = answer.next;
    }
    all.sort((a, b) => b.queued_bytes - a.queued_bytes || b.age_ms - a.age_ms);
    rows.update(all);
    setText(more, page === undefined ? "" : `There are more than ${all.length}.`);
    return all.length;
  });
}

export default { title: "Streams", every: 5000, build };
