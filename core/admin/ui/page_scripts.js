// Scripts: what was wrong at the last reload, which generations still finish calls, the files with their grants, and the reloads before.
const CASES = { net: "hosts", read: "files to read", write: "files to write", run: "programs", env: "variables", store: "keys of the store" };

// The grants of a file: those of all scripts, and those whose path is the file or a folder of it.
function grantsOf(path, { allow, grants }) {
  const found = [allow, ...Object.entries(grants).filter(([at]) => at === path || (at.endsWith("/") && path.startsWith(at))).map(([, one]) => one)];
  const kinds = Object.keys(CASES).map((kind) => [kind, [...new Set(found.flatMap((one) => one[kind] ?? []))]]).filter(([, list]) => list.length > 0);
  return kinds.map(([kind, list]) => `${CASES[kind]}: ${list.join(", ")}`).join("; ");
}

// What a generation waits for: calls of its worker that began before it was replaced, and after the one before it was.
function waitsFor(one, all, calls) {
  const before = all.filter((other) => other.worker === one.worker && other.generation < one.generation).at(-1);
  const mine = calls.filter((c) => Number.parseInt(c.call, 10) === one.worker && c.began_us < one.retired_us && (!before || c.began_us >= before.retired_us));
  return mine.length === 0 ? "background tasks, or handlers that close things"
    : mine.map((c) => `${c.name ?? c.method} (call ${c.call}${c.client ? ` of ${c.client}` : ""})`).join(", ");
}

function build(at, { bytes, duration, el, json, list, setText, table, time }) {
  const state = el("div");
  const generations = table("Generations that finish their calls", [
    ["Generation", (g) => g.generation], ["Worker", (g) => g.worker], ["Waits for", (g) => g.waits],
  ], (g) => `${g.generation} ${g.worker}`);
  const jobs = table("Jobs", [
    ["Job", (j) => j.name], ["When", (j) => j.when], ["Last began", (j) => time(j.last)], ["Took", (j) => j.took_ms === undefined ? "" : duration(j.took_ms)],
    ["Ended", (j) => ({ text: j.outcome ?? "", class: j.outcome && j.outcome !== "ok" ? "bad" : "" })], ["Next", (j) => j.running ? "runs now" : j.next ? time(j.next) : "soon"],
  ], (j) => j.name);
  const files = table("Files", [["File", (f) => f.path], ["Size", (f) => bytes(f.bytes)], ["Grants", (f) => f.grants]], (f) => f.path);
  const reloads = table("Reloads", [
    ["Time", (r) => time(r.at)], ["Result", (r) => ({ text: r.ok ? `generation ${r.generation}` : "refused", class: r.ok ? "good" : "bad" })], ["By", (r) => r.by],
    ["Took", (r) => duration(r.took_ms)], ["Changes or errors", (r) => ({ text: (r.ok ? r.changes : r.errors) || "the files equal what is served", class: "lines" })],
  ], (r) => `${r.at} ${r.generation} ${r.ok} ${r.n}`);
  const noJobs = el("p", { class: "soft" }, "No job. A file in jobs/ is one: job { \"What it does.\", every = 5 * minutes, function(call) … end }.");
  const noReloads = el("p", { class: "soft" }, "No reload since the start. Save a script, and it serves.");
  const note = el("p", { class: "soft" });
  at.append(state, generations.region, el("h2", {}, "Files"), note, files.search, files.region);
  const part = list(at, "No script. Save one as tools/hello.lua in the folder of scripts, and it serves.");
  at.append(el("h2", {}, "Jobs"), noJobs, jobs.region, el("h2", {}, "Reloads"), noReloads, reloads.search, reloads.region);
  let told = "";
  return () => part.load(async () => {
    const all = [];
    let answer = null;
    for (let page = 0; page !== undefined && all.length < 10000;) {
      const one = await json(`/api/scripts?page=${page}`);
      answer ??= one;
      all.push(...one.files);
      page = one.next;
    }
    const { status, draining } = answer, calls = draining.length === 0 ? [] : (await json("/api/calls")).calls;
    const past = (await json("/api/reloads")).reloads, scheduled = (await json("/api/jobs")).jobs;
    const text = JSON.stringify([status.ok, status.errors, status.generation]);
    if (text !== told) {
      told = text;
      state.replaceChildren(status.ok === false
        ? el("div", { class: "wrong" }, el("h2", {}, status.start ? "Started with errors" : "Not reloaded"),
          el("p", {}, `The files on the disk have errors since ${time(status.at).text}; ${status.start ? (status.start.serves === "last_good" ? "the last good generation serves" : "scripts are left out") : `generation ${status.generation} serves`}.`),
          el("pre", { tabindex: "0", "aria-label": "Errors" }, status.errors))
        : el("p", { class: "good" }, `Generation ${status.generation} serves what is on the disk. Each reload makes the next one.`));
    }
    setText(note, `${answer.count} file${answer.count === 1 ? "" : "s"} in ${answer.folder}`);
    generations.update(draining.map((one) => ({ ...one, waits: waitsFor(one, draining, calls) })));
    files.update(all.map((one) => ({ ...one, grants: grantsOf(one.path, answer) || "none" })));
    jobs.update(scheduled);
    noJobs.hidden = scheduled.length > 0;
    reloads.update(past.map((one, i) => ({ ...one, n: past.length - i })));
    noReloads.hidden = past.length > 0;
    return all.length;
  });
}

export default { title: "Scripts", every: 3000, build };
