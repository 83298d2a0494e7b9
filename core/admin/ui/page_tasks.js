// MCP tasks: calls that go on after the answer to their request, and their end.
const MAX_PAGES = 5;

function build(at, { change, duration, json, list, setText, table, time, el }) {
  const rows = table("Tasks", [
    ["Task", (t) => t.task], ["Tool", (t) => t.tool], ["Status", (t) => ({ text: t.status.replace("_", " "), class: t.status === "failed" ? "bad" : "", title: t.message })],
    ["Principal", (t) => t.principal], ["Begun", (t) => time(t.created)], ["Age", (t) => duration(Math.max(0, Date.now() - new Date(t.created)))], ["Kept for", (t) => duration(t.ttl_ms)],
  ], (t) => t.task, { title: "Cancel", label: (t) => `Cancel the task ${t.task} of ${t.tool}`, can: (t) => !t.ended, asks: (t) => [`Cancel the task ${t.task} of ${t.tool}?`, "It ends without a result; what it has done so far stays done.", "Cancel it"],
    run: (t) => change(`/api/task/${t.task}`) });
  const part = list(at, "No tasks. A tool with the option task can run as one: its client asks for the result later."), more = el("p", { class: "soft" });
  at.append(more, rows.search, rows.region);
  return () => part.load(async () => {
    const all = [];
    let page = 0;
    while (page !== undefined && page < MAX_PAGES) {
      const answer = await json(`/api/tasks?page=${page}`);
      all.push(...answer.tasks);
      page = answer.next;
    }
    all.sort((a, b) => (a.ended ?? false) - (b.ended ?? false) || b.created.localeCompare(a.created));
    rows.update(all);
    setText(more, page === undefined ? "" : `There are more than ${all.length}.`);
    return all.length;
  });
}

export default { title: "Tasks", every: 5000, build };
