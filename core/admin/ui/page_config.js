// Config: each key of moonpool.yaml with its value, source, default and description.
const shown = (value) => value === null || value === undefined ? "" : typeof value === "string" ? value : Array.isArray(value) && value.every((v) => typeof v === "string") ? value.join(", ") : JSON.stringify(value, null, 1);

function build(at, { el, json, list, setText, table }) {
  let isAll = true;
  const note = el("p", { class: "soft" });
  const choice = [["All keys", true], ["Changed keys", false]].map(([title, all]) => el("button", {
    type: "button", "aria-pressed": String(all), click() {
      isAll = all;
      for (const button of choice) button.setAttribute("aria-pressed", String(button === this));
      show();
    },
  }, title));
  const rows = table("Keys", [
    ["Key", (k) => k.key], ["Value", (k) => ({ text: "pending" in k ? `${shown(k.pending)} after a restart` : shown(k.value), class: "pending" in k ? "bad lines" : "lines" })],
    ["From", (k) => k.source === "default" ? "default" : [k.source === "file" ? `line ${k.line}` : k.option, shown(k.default) && `default: ${shown(k.default)}`].filter(Boolean).join("; ")],
    ["Description", (k) => k.restarts ? `${k.doc} Changing this needs a restart.` : k.doc],
  ], (k) => k.key);
  at.append(note, el("div", { class: "choice", role: "group", "aria-label": "Keys that are shown" }, ...choice), rows.search, rows.region);
  const part = list(at, "No key is set: every key has its default. The file moonpool.yaml sets keys.");
  let keys = [];
  function show() {
    const wanted = isAll ? keys : keys.filter((k) => k.source !== "default");
    rows.update(wanted);
    return wanted.length;
  }
  return () => part.load(async () => {
    const answer = await json("/api/config");
    keys = answer.keys;
    setText(note, `${answer.file}. *** stands for secrets, and for what comes from a variable or a file. Changes that you save are in force at once, unless the key needs a restart or the file has an error.`);
    return show();
  });
}

export default { title: "Config", every: 10000, build };
