// Elements without markup: every text is a text node, so nothing that a client or a script has named is read as HTML.

const SVG = "http://www.w3.org/2000/svg";

// An element: attributes by name, functions as listeners; children are elements or texts.
export function el(name, attributes = {}, ...children) {
  const made = ["svg", "path", "title", "g", "rect", "text"].includes(name) ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(key, value);
    else if (value !== undefined && value !== false) made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// A table whose rows stay the same elements while their data changes, so that the focus of the keyboard stays where it is.
// On a narrow screen the style sheet shows each row as a card, with the columns' titles (data-title) before the values. Some browsers forget what a
// table is when its display changes, so each part says its role.
// columns: [title, function(row) → text or { text, class, href, title, when }, what the title means]. action: { title, label(row), run(row) }. `search` is a field that
// leaves only the rows that have its text. `action.text(row)` is the button's text where it depends on the row;
// no button is shown where `action.can(row)` is false. `action.asks(row)` gives the arguments of sure(), or nothing where the action needs no question.
export function table(caption, columns, keyOf, action) {
  const body = el("tbody", { role: "rowgroup" }), rows = new Map(), columnHead = { scope: "col", role: "columnheader" };
  const titles = columns.map(([title, , hint]) => el("th", { ...columnHead, title: hint }, title));
  if (action) titles.push(el("th", columnHead, action.title));
  const region = el("div", { class: "scroll cards", tabindex: "0", role: "region", "aria-label": caption },
    el("table", { role: "table" }, el("caption", {}, caption), el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, ...titles)), body));
  const field = el("input", { type: "search", autocomplete: "off", spellcheck: "false", placeholder: "press /", input: sift });
  const search = el("label", { class: "search" }, `Search in ${caption.toLowerCase().split(",")[0]}`, field);
  function sift() {
    const text = field.value.toLowerCase();
    for (const { tr } of rows.values()) tr.hidden = text !== "" && !tr.textContent.toLowerCase().includes(text);
  }
  function update(list) {
    const seen = new Set();
    let place = body.firstChild;
    for (const data of list) {
      const key = keyOf(data);
      let row = rows.get(key);
      if (!row) {
        row = {
          tr: el("tr", { role: "row" }), data,
          cells: columns.map(([title], i) => i === 0 ? el("th", { scope: "row", role: "rowheader" }) : el("td", { role: "cell", "data-title": title })),
        };
        row.tr.append(...row.cells);
        if (action) {
          const held = row;
          row.button = el("button", { type: "button", click: () => act(action, held.data) });
          row.tr.append(el("td", { role: "cell" }, row.button));
        }
        rows.set(key, row);
      }
      row.data = data;
      if (row.button) {
        setText(row.button, action.text?.(data) ?? action.title);
        row.button.setAttribute("aria-label", action.label(data));
        row.button.hidden = action.can?.(data) === false;
      }
      columns.forEach(([, show], i) => {
        const shown = show(data), cell = row.cells[i];
        put(cell, shown);
      });
      if (row.tr !== place) body.insertBefore(row.tr, place);
      else place = place.nextSibling;
      seen.add(key);
    }
    for (const [key, row] of rows) {
      if (!seen.has(key)) {
        row.tr.remove();
        rows.delete(key);
      }
    }
    region.hidden = search.hidden = list.length === 0;
    sift();
  }
  update([]);
  return { region, search, update };
}

// Runs the action of a row, after a question where it takes something away.
export async function act(action, data) {
  const asks = action.asks?.(data);
  if (!asks || await sure(...asks)) action.run(data);
}

// Asks before something is taken away. True only if the reader presses `yes`; the focus begins at the other button.
export async function sure(title, text, yes, no = "Leave it as it is") {
  const dialog = el("dialog", { "aria-labelledby": "sure" }, el("h2", { id: "sure" }, title), el("p", {}, text),
    el("form", { method: "dialog" }, el("button", { value: "", autofocus: "" }, no), el("button", { value: "yes", class: "danger" }, yes)));
  document.body.append(dialog);
  dialog.showModal();
  await new Promise((done) => dialog.addEventListener("close", done, { once: true }));
  dialog.remove();
  return dialog.returnValue === "yes";
}

// A picture of 16 by 16 units beside a text that says the same.
export const icon = (d) => el("svg", { class: "icon", viewBox: "0 0 16 16", "aria-hidden": "true" }, el("path", { d }));

// Shows a text, or { text, class, href, title }, in a cell.
function put(cell, shown) {
  const { text = "", class: name = "", href, title } = shown !== null && typeof shown === "object" ? shown : { text: shown ?? "" };
  const link = href === undefined ? null : cell.querySelector("a") ?? el("a");
  if (link) {
    link.setAttribute("href", href);
    if (!link.parentNode) cell.replaceChildren(link);
  }
  setText(link ?? cell, String(text));
  const { length } = String(text);
  cell.className = `${name}${length <= 12 ? " brief" : length > 24 ? " long" : ""}`.trim();
  if (title) cell.title = title;
}

const WIDTH = 600, HEIGHT = 100, TOPS = { 10: [1, 2, 4, 6, 10], 1024: [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024] };
const clock = (ms) => new Date(ms).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const known = (values) => values.filter((v) => typeof v === "number");
const mean = (values) => known(values).reduce((a, b) => a + b, 0) / Math.max(1, known(values).length);

// The end of an axis: a round number that is not below `most`, nor below `least`. base: 1024 for bytes, else 10.
function topOf(most, least, base) {
  const whole = Math.max(most, least), unit = base ** Math.floor(Math.log(whole) / Math.log(base) + 1e-9);
  return unit * TOPS[base].find((n) => n * unit >= whole * 0.9999);
}

// Numbers over time: a picture with an axis, a summary as text, and a table. lines: [[name, title], …]; show(value) → text; `hint` says what the titles mean.
// The axis ends at `least` or above it.
// update({ values: { name: […] }, every_ms, until_ms }) shows other numbers; null is a gap.
export function chart(label, lines, show, { hint, least = 1, base = 10 } = {}) {
  const paths = lines.map((_, i) => el("path", { class: `line${i}`, d: "" })), title = el("title");
  const svg = el("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label }, title, el("path", { class: "grid", d: [0, 50, 100].map((y) => `M0,${y}H${WIDTH}`).join("") }), ...paths);
  const marks = [0, 1, 2].map(() => el("span")), scale = el("div", { class: "scale", "aria-hidden": "true" }, ...marks);
  const parts = lines.map((_, i) => el("span", { class: `line${i}` })), body = el("tbody"), from = el("span"), to = el("span");
  const summary = el("p", { class: "soft", title: hint }, ...parts);
  const details = el("details", { toggle: fill }, el("summary", {}, `${label} as a table`),
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `${label} as a table` },
      el("table", {}, el("thead", {}, el("tr", {}, el("th", { scope: "col", rowspan: 2 }, "From"), ...lines.map(([, t]) => el("th", { scope: "colgroup", colspan: 2 }, t))),
        el("tr", {}, ...lines.flatMap(() => ["Mean", "Most"].map((t) => el("th", { scope: "col" }, t))))), body)));
  let shown = null;
  function fill() {
    if (!details.open || !shown) return;
    const count = shown.values[lines[0][0]].length, step = Math.max(1, Math.ceil(count / 12)), rows = [];
    for (let from = 0; from < count; from += step) {
      rows.push(el("tr", {}, el("th", { scope: "row" }, clock(shown.until_ms - (count - 1 - from) * shown.every_ms)), ...lines.flatMap(([name]) => {
        const part = known(shown.values[name].slice(from, from + step));
        return part.length === 0 ? [el("td", {}, "–"), el("td", {}, "–")] : [el("td", {}, show(mean(part))), el("td", {}, show(Math.max(...part)))];
      })));
    }
    body.replaceChildren(...rows);
  }
  function update(data) {
    shown = data;
    const rows = Math.max(60, data.values[lines[0][0]].length), top = topOf(Math.max(0, ...lines.flatMap(([name]) => known(data.values[name]))), least, base);
    marks.forEach((mark, i) => setText(mark, show(top * (2 - i) / 2)));
    lines.forEach(([name], i) => {
      const values = data.values[name];
      let d = "", isOpen = false;
      values.forEach((v, k) => {
        if (typeof v !== "number") isOpen = false;
        else {
          d += `${isOpen ? "L" : "M"}${(WIDTH - (values.length - 1 - k) * WIDTH / (rows - 1)).toFixed(1)},${(HEIGHT - HEIGHT * v / top).toFixed(1)}${isOpen ? "" : "h.1"}`;
          isOpen = true;
        }
      });
      paths[i].setAttribute("d", d);
    });
    const texts = lines.map(([name, t]) => {
      const all = known(data.values[name]), now = data.values[name].at(-1);
      return all.length === 0 ? `${t}: nothing yet` : `${t}: now ${typeof now === "number" ? show(now) : "–"}, at most ${show(Math.max(...all))}`;
    });
    setText(title, `${label}. ${texts.join(". ")}`);
    texts.forEach((text, i) => setText(parts[i], text));
    setText(from, clock(data.until_ms - (rows - 1) * data.every_ms));
    setText(to, clock(data.until_ms));
    fill();
  }
  return { node: el("section", { class: "chart" }, el("h3", {}, label), el("div", { class: "plot" }, scale, svg, el("div", { class: "axis" }, from, to)), summary, details), update };
}

