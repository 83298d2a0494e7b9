// Profile: where the workers' processor time goes, or what allocates: a flame graph, and the hottest lines as a table.
const ROW = 18, LETTER = 6.8, LEAST = 1; // px: of a row of boxes, of a letter; narrower boxes are left out
const MOST_LINES = 200;
const COLOURS = { all: "#d5d9e0", phase: "#b9c8e8", call: "#cbb8e6", own: "#b5d8bd", s0: "#f6c177", s1: "#f2a65e", s2: "#f4b183", s3: "#ef9a6b", s4: "#f7cf8b" };

function classOf(name, depth) {
  if (depth < 3) return ["all", "phase", "call"][depth];
  if (name.startsWith("lua/moonpool/")) return "own";
  let sum = 0;
  for (const c of name.replace(/:\d+$/, "")) sum = (sum * 31 + c.codePointAt(0)) % 65521;
  return `s${sum % 5}`;
}

// The end of a path says more than its beginning.
function fitting(name, width) {
  const most = Math.floor((width - 6) / LETTER), letters = [...name];
  if (most < 3) return "";
  return letters.length <= most ? name : `…${letters.slice(letters.length - most + 1).join("")}`;
}

// The tree of the stacks. Children are in the order of their names, so that two profiles look alike.
function treeOf(stacks) {
  const node = (name, parent) => ({ name, parent, depth: parent ? parent.depth + 1 : 0, count: 0, own: 0, children: new Map() });
  const root = node("all", null);
  for (const { frames, count } of stacks) {
    let at = root;
    at.count += count;
    for (const name of frames) {
      if (!at.children.has(name)) at.children.set(name, node(name, at));
      at = at.children.get(name);
      at.count += count;
    }
    at.own += count;
  }
  return root;
}

// For each line: samples in which it is the innermost one, and samples in which it is anywhere.
function linesOf(stacks) {
  const lines = new Map();
  const line = (name) => lines.get(name) ?? lines.set(name, { name, own: 0, all: 0 }).get(name);
  for (const { frames, count } of stacks) {
    const shown = frames.length > 2 ? frames.slice(2) : [`(${frames[0]})`];
    line(shown.at(-1)).own += count;
    for (const name of new Set(shown)) line(name).all += count;
  }
  return [...lines.values()].sort((a, b) => b.own - a.own || b.all - a.all).slice(0, MOST_LINES);
}

const folded = (stacks) => stacks.map(({ frames, count }) => `${frames.map((f) => f.replace(/[;\x00-\x1f\x7f]/g, "?")).join(";")} ${count}\n`).join("");

function save(el, name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type })), link = el("a", { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

// The picture, which a reader moves in: arrows select a box, Enter shows it as wide as the picture, Escape all again.
function flame({ el, setText }) {
  const status = el("p", { class: "soft", role: "status" });
  const svg = el("svg", { class: "flame", tabindex: "0", role: "application", "aria-label": "Flame graph. Arrow keys select a frame, Enter zooms in, Escape zooms out.", keydown, click });
  const field = el("input", { type: "search", autocomplete: "off", spellcheck: "false", placeholder: "press /", input: draw });
  const out = el("button", { type: "button", click: () => zoom(root) }, "Zoom out");
  const region = el("div", { class: "scroll" }, svg);
  let root = null, top = null, selected = null, unit = "", boxes = new Map(), deepest = 0;
  const part = (count) => `${(100 * count / Math.max(1, root.count)).toFixed(1)} %`;
  const text = (node) => `${node.name}: ${part(node.count)}, ${node.count} ${unit}`;
  function say() {
    const word = field.value.toLowerCase();
    const found = word === "" ? "" : ` Frames with “${field.value}” are in ${part(hits(root, word))} of all.`;
    setText(status, (selected ? text(selected) + "." : "") + found);
  }
  function hits(node, word) {
    if (node.name.toLowerCase().includes(word)) return node.count;
    return [...node.children.values()].reduce((sum, child) => sum + hits(child, word), 0);
  }
  function draw() {
    if (!root) return;
    const width = Math.max(240, region.clientWidth - 2), height = (deepest + 1) * ROW, word = field.value.toLowerCase(), made = [];
    boxes = new Map();
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("width", width);
    svg.setAttribute("height", height);
    function box(node, x, wide) {
      if (wide < LEAST) return;
      const y = height - (node.depth + 1) * ROW, name = classOf(node.name, node.depth), isHit = word !== "" && node.name.toLowerCase().includes(word);
      const rect = el("rect", { class: `${name}${isHit ? " hit" : ""}${node === selected ? " selected" : ""}`, x: x.toFixed(1), y, width: wide.toFixed(1), height: ROW - 1 });
      const label = fitting(node.name, wide);
      const group = el("g", {}, el("title", {}, text(node)), rect, ...label ? [el("text", { x: (x + 3).toFixed(1), y: y + 13 }, label)] : []);
      boxes.set(group, node);
      made.push(group);
      let at = x;
      for (const child of [...node.children.values()].sort((a, b) => a.name < b.name ? -1 : 1)) {
        const childWide = wide * child.count / node.count;
        box(child, at, childWide);
        at += childWide;
      }
    }
    for (let up = top.parent; up; up = up.parent) {
      const y = height - (up.depth + 1) * ROW, group = el("g", {}, el("title", {}, text(up)),
        el("rect", { class: `${classOf(up.name, up.depth)}${up === selected ? " selected" : ""}`, x: 0, y, width, height: ROW - 1 }), el("text", { x: 3, y: y + 13 }, fitting(up.name, width)));
      boxes.set(group, up);
      made.push(group);
    }
    box(top, 0, width);
    svg.replaceChildren(...made);
    out.disabled = top === root;
    say();
  }
  function zoom(node) {
    top = selected = node;
    draw();
  }
  function click(event) {
    const group = event.target.closest("g");
    if (boxes.has(group)) zoom(boxes.get(group));
  }
  function keydown(event) {
    if (!root) return;
    const sorted = (node) => [...node.children.values()].sort((a, b) => b.count - a.count);
    const beside = (step) => {
      const all = selected.parent ? sorted(selected.parent) : [selected];
      return all[Math.min(Math.max(all.indexOf(selected) + step, 0), all.length - 1)];
    };
    const next = { ArrowUp: () => sorted(selected)[0], ArrowDown: () => selected.parent, ArrowLeft: () => beside(-1), ArrowRight: () => beside(1) }[event.key];
    if (event.key === "Enter") zoom(selected);
    else if (event.key === "Escape") zoom(root);
    else if (next) {
      selected = next() ?? selected;
      draw();
    } else return;
    event.preventDefault();
  }
  const tools = el("div", { class: "choice" }, el("label", { class: "search" }, "Search in frames", field), out);
  const node = el("section", {}, el("h2", {}, "Flame graph"),
    el("p", { class: "soft" }, "A box is as wide as its part of the samples; what it called is above it. A click or Enter zooms in."), tools, status, region);
  node.hidden = true;
  const observer = new ResizeObserver(() => draw());
  observer.observe(region);
  return {
    node,
    close: () => observer.disconnect(),
    update(stacks, ofUnit) {
      unit = ofUnit;
      root = top = selected = treeOf(stacks);
      deepest = Math.max(...stacks.map((s) => s.frames.length), 0);
      node.hidden = stacks.length === 0;
      draw();
    },
    // A file that needs no style sheet.
    picture() {
      const copy = svg.cloneNode(true);
      for (const name of ["class", "tabindex", "role"]) copy.removeAttribute(name);
      for (const rect of copy.querySelectorAll("rect")) {
        rect.setAttribute("fill", COLOURS[rect.getAttribute("class").split(" ")[0]]);
        rect.removeAttribute("class");
      }
      for (const label of copy.querySelectorAll("text")) {
        label.setAttribute("font-family", "monospace");
        label.setAttribute("font-size", "11");
      }
      return new XMLSerializer().serializeToString(copy);
    },
  };
}

function build(at, kit) {
  const { ask, el, onLeave, readEvents, Refused, setText, table, tokenForm, works } = kit;
  let running = null; // an AbortController while a profile runs
  let stacks = [], unit = "";
  const field = (label, name, more = {}) => el("label", {}, label, el("input", { name, autocomplete: "off", spellcheck: "false", ...more }));
  const start = el("button", { type: "submit" }, "Start"), state = el("p", { class: "soft", role: "status" }, "No profile was taken yet. Start one while calls run.");
  const progress = el("progress", { max: 1, value: 0, "aria-label": "Time of the profile" });
  progress.hidden = true;
  const kind = el("select", { name: "memory" }, el("option", { value: "" }, "Processor time"), el("option", { value: "yes" }, "Memory allocated"));
  const form = el("form", {}, field("Seconds", "seconds", { type: "number", min: 1, max: 300, value: 10, required: "" }), el("label", {}, "What", kind),
    field("Tool (may have *)", "tool", { maxlength: 255 }), field("Worker", "worker", { type: "number", min: 0, placeholder: "all" }), start);
  const keys = tokenForm();
  keys.hidden = true;
  const picture = flame(kit);
  const rows = table("Hottest lines", [["Line", (l) => ({ text: l.name, class: "" })], ["Itself", (l) => l.part(l.own)], ["With what it calls", (l) => l.part(l.all)],
    ["Samples", (l) => l.own]], (l) => l.name);
  const title = el("h2", {}, "Hottest lines");
  const saves = el("div", { class: "choice" },
    el("button", { type: "button", click: () => save(el, "profile.svg", "image/svg+xml", picture.picture()) }, "Save as SVG"),
    el("button", { type: "button", click: () => save(el, "profile.folded", "text/plain", folded(stacks)) }, "Save folded stacks"));
  saves.hidden = title.hidden = true;
  at.append(el("p", {}, "Samples the workers for a time. Calls and their limits stay as they are; waiting takes no processor time."), form, keys, progress, state, saves,
    picture.node, title, rows.search, rows.region);
  onLeave(() => {
    running?.abort();
    picture.close();
  });
  function show() {
    const all = stacks.reduce((sum, s) => sum + s.count, 0);
    picture.update(stacks, unit);
    rows.update(linesOf(stacks).map((l) => ({ ...l, part: (n) => `${(100 * n / Math.max(1, all)).toFixed(1)} %` })));
    saves.hidden = title.hidden = stacks.length === 0;
  }
  async function stop() {
    try {
      await ask("/api/profile/end", { method: "POST" });
    } catch { /* it has just ended */ }
  }
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (running) {
      stop();
      return;
    }
    const given = new FormData(form), body = { seconds: Number(given.get("seconds")) };
    if (given.get("tool")) body.tool = given.get("tool");
    if (given.get("worker") !== "") body.worker = Number(given.get("worker"));
    if (given.get("memory")) body.memory = true;
    const mine = running = new AbortController(), found = [];
    let why = "The gateway has closed the connection before the profile was complete. Start it again.", ended = null;
    setText(start, "Stop");
    try {
      const response = await ask("/api/profile", { method: "POST", body, signal: mine.signal });
      works();
      keys.hidden = true;
      progress.hidden = false;
      progress.value = 0;
      setText(state, "The profile runs.");
      await readEvents(response, (one) => {
        if (one.event === "profile began") unit = one.unit === "samples" ? "samples" : "× 512 KiB";
        else if (one.event === "progress") {
          progress.value = Math.min(1, one.ms / 1000 / body.seconds);
          setText(state, `The profile runs: ${one.samples} ${unit}.`);
        } else if (one.event === "stack") found.push(one);
        else if (one.event === "profile ended") ended = one;
      });
    } catch (error) {
      if (error instanceof Refused) why = `Refused: ${error.message}.`;
      keys.hidden = error.status !== 401;
    }
    if (running === mine) running = null;
    setText(start, "Start");
    progress.hidden = true;
    if (ended) {
      stacks = found;
      show();
      why = ended.samples === 0 ? "No samples: the workers had nothing to do, or no call was like the tool."
        : `${ended.samples} ${unit} in ${(ended.ms / 1000).toFixed(1)} s${ended.lost > 0 ? `, ${ended.lost} lost` : ""}.`;
      if (ended.workers_without_answer > 0) why += ` ${ended.workers_without_answer} workers did not answer.`;
    }
    setText(state, why);
  });
  return null;
}

export default { title: "Profile", every: 0, build };
