// What the pages of tools, resources and prompts share: the list with its search, and the page of one thing.
import { el, json, list, setText, table } from "./kit.js";

const MAX_PAGES = 5;
const ms = (n) => n === undefined ? "" : n < 10 ? n.toFixed(2) : n.toFixed(0);

// The list of a kind ("tools"). `keyOf(row)` is what its page is called.
export function browse(at, { onLeave, refresh }, { kind, keyOf, hasTimes, empty }) {
  const search = el("input", { type: "search", name: "search", autocomplete: "off", spellcheck: "false", placeholder: "/" }), count = el("p", { class: "soft" });
  const more = el("button", { type: "button", click: () => { pages++; refresh(); } }, "More");
  let pages = 1, wait = 0;
  const rows = table(kind[0].toUpperCase() + kind.slice(1), [
    ["Name", (t) => ({ text: keyOf(t), href: `#${kind}/${encodeURIComponent(keyOf(t))}` })],
    ["What it is", (t) => t.title ? `${t.title}: ${t.description ?? ""}` : t.description], ["From", (t) => t.origin === "upstream" ? `upstream ${t.from}` : t.from],
    ["State", (t) => [t.off && "off", t.destructive && "destructive"].filter(Boolean).join(", ")],
    ["Calls", (t) => t.calls], ["Failed", (t) => ({ text: t.errors, class: t.errors > 0 ? "bad" : "" })],
    ...hasTimes ? [["Half take (ms)", (t) => ms(t.p50_ms)], ["99 % take (ms)", (t) => ms(t.p99_ms)]] : [],
  ], keyOf);
  at.append(el("form", { submit: (event) => event.preventDefault() }, el("label", {}, `Search in ${kind}`, search)));
  const part = list(at, empty);
  at.append(count, rows.region, more);
  more.hidden = true;
  search.addEventListener("input", () => {
    clearTimeout(wait);
    wait = setTimeout(() => {
      pages = 1;
      refresh();
    }, 150);
  });
  onLeave(() => clearTimeout(wait));
  return () => part.load(async () => {
    const all = [], text = search.value.trim();
    let total = 0, next = 0;
    for (let page = 0; page < Math.min(pages, MAX_PAGES) && next !== undefined; page++) {
      const answer = await json(`/api/${kind}?page=${page}${text === "" ? "" : `&search=${encodeURIComponent(text)}`}`);
      all.push(...answer[kind]);
      ({ total, next } = answer);
    }
    rows.update(all);
    more.hidden = next === undefined || pages >= MAX_PAGES;
    setText(count, total === all.length ? "" : `The first ${all.length} of ${total}.`);
    if (text !== "") setText(count, total === 0 ? `Nothing has “${text}” in its name or title.` : `${total} of this name or title.`);
    return total === 0 && text !== "" ? 1 : total;
  });
}

// The page of one thing: what `path` answers, then `extra(at, thing)` once, then its definition and failures.
export function single(at, { kind, name, path, hasTimes, extra }) {
  const head = el("div"), numbers = el("dl", { class: "numbers" }), body = el("div"), shown = new Map();
  at.append(el("p", {}, el("a", { href: `#${kind}` }, `All ${kind}`)), el("h2", {}, name), head);
  const part = list(at, "");
  at.append(body);
  const failures = table("Last failures, newest first", [
    ["Time", (f) => new Date(f.at * 1000).toLocaleString()], ["Call", (f) => f.call], ["Outcome", (f) => ({ text: f.outcome, class: "bad" })],
    ["Code", (f) => f.code || ""], ["ms", (f) => ms(f.ms)],
  ], (f) => `${f.call} ${f.at}`);
  let isBuilt = false;
  function put(title, text) {
    if (!shown.has(title)) {
      const dd = el("dd");
      numbers.append(el("div", {}, el("dt", {}, title), dd));
      shown.set(title, dd);
    }
    setText(shown.get(title), String(text ?? ""));
  }
  function build(thing) {
    const facts = [thing.origin === "upstream" ? `From the upstream ${thing.from}.` : `From ${thing.from}.`, thing.off && "Switched off: no client sees it.",
      thing.scopes?.length > 0 && `Needs ${thing.scopes.join(" ")}.`, thing.visible && "Visible to some clients only.", thing.policies?.length > 0 && `Policies: ${thing.policies.join(", ")}.`,
      thing.timeout && `At most ${thing.timeout} s.`, thing.concurrency && `${thing.concurrency} at once.`, thing.task && `As a task: ${thing.task}.`, thing.destructive && "Destructive."];
    head.append(...thing.title ? [el("p", {}, el("strong", {}, thing.title))] : [], el("p", { class: "about" }, thing.description ?? ""), el("p", { class: "soft" }, facts.filter(Boolean).join(" ")));
    extra(body, thing);
    const dates = Object.keys(thing.definitions ?? {}).sort().reverse(), text = el("pre", { tabindex: "0", "aria-label": "Definition" });
    const date = el("select", { name: "definition", change: () => setText(text, JSON.stringify(thing.definitions[date.value], null, 2)) }, ...dates.map((one) => el("option", { value: one }, one)));
    if (dates.length > 0) setText(text, JSON.stringify(thing.definitions[dates[0]], null, 2));
    body.append(el("h2", {}, "How it fares"), numbers, failures.region, el("h2", {}, "Definition"),
      el("form", { submit: (event) => event.preventDefault() }, el("label", {}, "As clients of this revision get it", date)), text);
  }
  return () => part.load(async () => {
    const thing = await json(path);
    if (!isBuilt) build(thing);
    isBuilt = true;
    put("Calls", thing.calls);
    put("Failed", thing.errors);
    if (hasTimes) put("Half take (ms)", ms(thing.p50_ms));
    if (hasTimes) put("99 % take (ms)", ms(thing.p99_ms));
    failures.update(thing.failures ?? []);
    return 1;
  });
}
