// Tap: calls as they begin and end.
const MAX_EVENTS = 500;

function build(at, { ask, duration, el, onLeave, readEvents, Refused, setText, table, time, tokenForm, works }) {
  let openTap = null; // an AbortController while a tap is open
  onLeave(() => openTap?.abort());
  const events = [];
  let number = 0;
  const field = (label, name, more = {}) => el("label", {}, label, el("input", { name, autocomplete: "off", spellcheck: "false", ...more }));
  const start = el("button", { type: "submit" }, "Start"), state = el("p", { class: "soft", role: "status" }, "The tap is closed. Start it to see the calls from then on.");
  const form = el("form", {}, field("Tool", "tool"), field("Method", "method", { placeholder: "tools/*" }), field("Principal", "principal"), field("Outcome", "outcome", { placeholder: "ok, failed, …" }),
    field("Slower than (ms)", "slower", { inputmode: "numeric", pattern: "[0-9]*" }), start);
  const keys = tokenForm();
  keys.hidden = true;
  const rows = table("Events, newest first", [
    ["Time", (e) => time(e.time)],
    ["Event", (e) => ({ text: e.event === "answer" ? e.outcome : e.event, class: e.event !== "answer" ? "" : e.outcome === "ok" ? "good" : "bad" })],
    ["Call", (e) => e.call], ["Method", (e) => e.method], ["Name", (e) => e.name ?? e.why], ["Took", (e) => e.ms === undefined ? "" : duration(e.ms)],
    ["Principal", (e) => e.principal], ["Arguments", (e) => e.event === "dropped" ? `${e.count} events were dropped` : e.arguments ? JSON.stringify(e.arguments) : ""],
  ], (e) => e.number);
  at.append(el("p", {}, "Calls as they begin and end. Each field leaves only the calls that match it, and may have *, as in orders_*; an empty one leaves all. Of arguments you see names, types and sizes."), form, keys, state, rows.search, rows.region);
  let isDirty = false;
  function put(event) {
    event.number = ++number;
    events.unshift(event);
    if (events.length > MAX_EVENTS) events.pop();
    if (!isDirty) requestAnimationFrame(() => {
      isDirty = false;
      rows.update(events);
    });
    isDirty = true;
  }
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (openTap) {
      openTap.abort();
      return;
    }
    const query = new URLSearchParams([...new FormData(form)].filter(([, value]) => value !== ""));
    const mine = openTap = new AbortController();
    setText(start, "Stop");
    let why = "The tap is closed.";
    try {
      const response = await ask(`/api/tap?${query}`, { signal: mine.signal });
      works();
      keys.hidden = true;
      setText(state, "The tap is open.");
      await readEvents(response, (one) => {
        if (one.event === "tap closed") why = `The gateway closed the tap: ${one.why}.`;
        else if (one.event !== "tap opened") put(one);
      });
    } catch (error) {
      if (error instanceof Refused) why = `Refused: ${error.message}.`;
      else if (!mine.signal.aborted) why = "The tap has ended: the gateway does not answer.";
      keys.hidden = error.status !== 401;
    }
    if (openTap === mine) openTap = null;
    setText(start, "Start");
    setText(state, why);
  });
  return null;
}

export default { title: "Tap", every: 0, build };
