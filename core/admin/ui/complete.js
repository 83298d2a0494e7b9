// Completes the arguments of a prompt while they are typed: the gateway's completion/complete as the browser's own list of suggestions of a field.
import { ask, el, readEvents } from "./kit.js";

const PAUSE_MS = 200; // between the last key and the request
const MOST = 100;

// The values for an argument; an empty list where there are none, or the gateway refuses.
async function valuesOf(prompt, argument, given, settings, signal) {
  let values = [];
  const response = await ask("/api/call", { method: "POST", signal, body: { method: "completion/complete", ...settings,
    params: { ref: { type: "ref/prompt", name: prompt }, argument, context: { arguments: given } } } });
  await readEvents(response, ({ message }) => {
    const found = message?.result?.completion?.values;
    if (Array.isArray(found)) values = found.filter((one) => typeof one === "string").slice(0, MOST);
  });
  return values;
}

// Gives each text field below `node` with the name of an argument a list of suggestions. `settings()`: the revision and the principal that asks.
export function completeArguments(node, prompt, names, settings, onLeave) {
  const fields = [...node.querySelectorAll("input")].filter((field) => names.includes(field.name));
  const given = (other) => Object.fromEntries(fields.filter((field) => field !== other && field.value !== "").map((field) => [field.name, field.value]));
  let timer = 0, open = null;
  async function suggest(field, list) {
    open?.abort();
    const mine = open = new AbortController();
    try {
      const values = await valuesOf(prompt, { name: field.name, value: field.value }, given(field), settings(), mine.signal);
      if (open === mine) list.replaceChildren(...values.map((value) => el("option", { value })));
    } catch { /* no suggestions: a field without them can be filled all the same, and Get says what is wrong */ }
  }
  for (const field of fields) {
    const list = el("datalist", { id: `${field.id}values` });
    field.after(list);
    field.setAttribute("list", list.id);
    const later = () => {
      clearTimeout(timer);
      timer = setTimeout(suggest, PAUSE_MS, field, list);
    };
    field.addEventListener("input", later);
    field.addEventListener("focus", later);
  }
  onLeave(() => {
    clearTimeout(timer);
    open?.abort();
    open = null;
  });
}
