// Elements without markup: every text is a text node, so nothing that a client or a script has named is read as HTML.

const SVG = "http://www.w3.org/2000/svg";

// An element: attributes by name, functions as listeners; children are elements or texts.
export function el(name, attributes = {}, ...children) {
  const made = ["svg", "polyline", "title"].includes(name) ? document.createElementNS(SVG, name) : document.createElement(name);
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
// columns: [title, function(row) → text or { text, class }]. action: { title, label(row), run(row) }.
export function table(caption, columns, keyOf, action) {
  const body = el("tbody"), rows = new Map();
  const titles = columns.map(([title]) => el("th", { scope: "col" }, title));
  if (action) titles.push(el("th", { scope: "col" }, action.title));
  const region = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    el("table", {}, el("caption", {}, caption), el("thead", {}, el("tr", {}, ...titles)), body));
  function update(list) {
    const seen = new Set();
    let place = body.firstChild;
    for (const data of list) {
      const key = keyOf(data);
      let row = rows.get(key);
      if (!row) {
        row = { tr: el("tr"), cells: columns.map((_, i) => el(i === 0 ? "th" : "td", i === 0 ? { scope: "row" } : {})), data };
        row.tr.append(...row.cells);
        if (action) {
          const held = row;
          row.tr.append(el("td", {}, el("button", { type: "button", "aria-label": action.label(data), click: () => action.run(held.data) }, action.title)));
        }
        rows.set(key, row);
      }
      row.data = data;
      columns.forEach(([, show], i) => {
        const shown = show(data), cell = row.cells[i];
        setText(cell, String((shown && shown.text !== undefined ? shown.text : shown) ?? ""));
        cell.className = (shown && shown.class) || "";
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
    region.hidden = list.length === 0;
  }
  update([]);
  return { region, update };
}

// A line of numbers over time, with a summary as text.
export function chart(label, unit) {
  const line = el("polyline", { points: "" }), title = el("title");
  const svg = el("svg", { viewBox: "0 0 300 100", preserveAspectRatio: "none", role: "img", "aria-label": label }, title, line);
  const summary = el("p", { class: "soft" });
  const values = [];
  function add(value) {
    values.push(value);
    if (values.length > 150) values.shift();
    const most = Math.max(...values, 1);
    line.setAttribute("points", values.map((v, i) => `${(300 - (values.length - 1 - i) * 2).toFixed(1)},${(97 - 94 * v / most).toFixed(1)}`).join(" "));
    const text = `${label}: now ${value.toFixed(1)} ${unit}, at most ${Math.max(...values).toFixed(1)} since this page is open`;
    setText(title, text);
    setText(summary, text);
  }
  return { nodes: [svg, summary], add };
}
