// Where the time of a call went: its steps as a table, each with a bar that shows when it ran.
import { duration, el } from "./kit.js";

const MOST_DEPTH = 5;
const ms = (us) => duration(us / 1000);

// The steps in the order of a tree, each with its depth.
function inOrder(steps) {
  const below = new Map(), list = [];
  steps.forEach((step, i) => below.set(step.below, [...below.get(step.below) ?? [], i]));
  const visit = (i, depth) => {
    list.push({ ...steps[i], depth });
    for (const one of below.get(i) ?? []) visit(one, depth + 1);
  };
  for (const i of below.get(-1) ?? []) visit(i, 0);
  return list;
}

// A table of `steps`: [{ name, below, began_us, took_us, failed, object }]; `below` is the place of the step around it.
// `label` names the table.
export function stepsTable(steps, label) {
  const whole = Math.max(1, ...steps.map((step) => step.began_us + step.took_us));
  const share = (us) => 100 * us / whole;
  const bar = (step) => el("svg", { class: step.failed ? "bar failed" : "bar", viewBox: "0 0 100 8", preserveAspectRatio: "none", role: "img", "aria-label": `from ${ms(step.began_us)} to ${ms(step.began_us + step.took_us)}` },
    el("rect", { x: share(step.began_us), y: 0, width: Math.max(0.6, share(step.took_us)), height: 8 }));
  const name = (step) => el("th", { scope: "row", class: `in${Math.min(step.depth, MOST_DEPTH)}` }, step.name, ...step.failed ? [el("span", { class: "bad" }, " (failed)")] : [],
    ...step.object ? [el("div", { class: "soft object" }, step.object)] : []);
  const rows = inOrder(steps).map((step) => el("tr", {}, name(step), el("td", {}, ms(step.began_us)), el("td", {}, ms(step.took_us)), el("td", {}, bar(step))));
  const heads = ["Step", "Began after", "Took", "When"].map((title) => el("th", { scope: "col" }, title));
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
    el("table", { class: "steps" }, el("caption", {}, label), el("thead", {}, el("tr", {}, ...heads)), el("tbody", {}, ...rows)));
}
