// What every page has at hand: requests with the reader's token, the line that tells what is wrong, numbers as texts, lists with their states.
// build(at, kit) of a page gets all of it, and what app.js adds.
export { act, chart, el, icon, setText, sure, table } from "./dom.js";
import { el, setText } from "./dom.js";

// -- requests -----------------------------------------------------------------------------------------------------------

let token = sessionStorage.getItem("token") ?? "", onToken = () => {}, whyNoToken = "";

// Sends this token from now on.
export function useToken(text) {
  token = text;
  whyNoToken = "";
  sessionStorage.setItem("token", token);
}

export const isSignedIn = () => token !== "";

// Says above the page why the reader's link gave no token; null: the reader has seen it.
export function linkFailed(error) {
  whyNoToken = error instanceof Refused ? `Refused: ${error.message}.` : "";
}

// Runs after the reader has typed a token.
export function whenTokenChanges(run) {
  onToken = run;
}

export class Refused extends Error {}

// The answer to a request with the reader's token; throws Refused if its status is not 2xx. `body` is sent as JSON.
export async function ask(path, { method = "GET", body, signal } = {}) {
  const headers = method === "GET" ? {} : { "moonpool-admin": "1" };
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const response = await fetch(path, { method, headers, signal, cache: "no-store", body: body === undefined ? undefined : JSON.stringify(body) });
  if (response.ok) return response;
  const text = await response.text();
  let why = text.trim();
  try {
    why = JSON.parse(text).error ?? why;
  } catch { /* a plain text */ }
  const refused = new Refused(why || `the gateway answered ${response.status}`);
  refused.status = response.status;
  throw refused;
}

export const json = async (path, options) => (await ask(path, options)).json();

// -- what is wrong ------------------------------------------------------------------------------------------------------

const alertLine = document.getElementById("alert"), alertText = el("span");
let lostAt = null, again = () => {};

alertLine.append(alertText, " ", el("button", { type: "button", click: () => again() }, "Try again"));

// What the button beside a complaint does.
export function whenTriedAgain(run) {
  again = run;
}

// Shows a text above the page; none: the line goes.
export function tell(text) {
  setText(alertText, text);
  alertLine.hidden = text === "";
}

// Tells why a request failed: it was refused, or no answer came.
export function fails(error) {
  if (error instanceof Refused) {
    tell(`Refused: ${error.message}.`);
    return;
  }
  lostAt ??= new Date();
  document.body.classList.add("stale");
  tell(`The gateway has not answered since ${time(lostAt).text}. What you see is from before; this page tries again.`);
}

// The last request was answered.
export function works() {
  lostAt = null;
  document.body.classList.remove("stale");
  tell(whyNoToken);
}

// -- numbers ------------------------------------------------------------------------------------------------------------

export const sum = (value) => typeof value === "object" && value !== null ? Object.values(value).reduce((a, b) => a + sum(b), 0) : value ?? 0;
export const bytes = (n) => n < 1024 ? `${Math.round(n)} B` : n < 1 << 20 ? `${Math.round(n / 1024)} KiB` : `${(n / (1 << 20)).toFixed(1)} MiB`;
// A time for people: "0.25 ms", "12 ms", "3 min 5 s".
export function duration(ms) {
  const s = Math.floor(ms / 1000);
  if (ms < 1000) return `${ms === 0 ? 0 : ms < 1 ? ms.toFixed(2) : ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;
  if (s < 60) return `${s < 10 ? (ms / 1000).toFixed(1) : s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  return s < 86400 ? `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min` : `${Math.floor(s / 86400)} d ${Math.floor(s / 3600) % 24} h`;
}

// The columns p50 and p99 of times, in ms, and what both mean.
export const P50 = "p50: half of them take no longer than this", P99 = "p99: 99 of 100 take no longer than this";

// A time of the gateway (a text, or milliseconds since 1970) in the reader's zone, with the time in UTC as its title: for a cell of a table.
export function time(of) {
  if (!of) return "";
  const at = new Date(of), local = new Date(at - at.getTimezoneOffset() * 60000);
  return { text: local.toISOString().slice(0, 19).replace("T", " "), title: `${at.toISOString()} (UTC)` };
}

// The same within a text: an element.
export function when(of) {
  const { text, title } = time(of);
  return el("time", { title }, text);
}

// -- a token ------------------------------------------------------------------------------------------------------------

// A form that asks for a token, and shows the page anew with it.
export function tokenForm() {
  const field = el("input", { type: "password", autocomplete: "off", required: "", name: "token" });
  return el("form", {
    submit(event) {
      event.preventDefault();
      useToken(field.value.trim());
      onToken();
    },
  }, el("label", {}, "Token of the admin listener", field), el("button", { type: "submit" }, "Use this token"));
}

// A part of a page that lists something: says what is wrong, or that there is nothing.
export function list(parts, empty) {
  const note = el("p", {}, "Loading…"), form = tokenForm();
  form.hidden = true;
  parts.append(note, form);
  return {
    async load(get) {
      try {
        const count = await get();
        setText(note, count === 0 ? empty : "");
        note.hidden = count > 0;
        form.hidden = true;
        works();
      } catch (error) {
        const isOurs = error instanceof Refused && (error.status === 401 || error.status === 403 || error.status === 429);
        if (isOurs) works();
        if (isOurs) setText(note, `This needs a token of the admin listener (${error.message}). Type one, or open the link that moonpool dashboard prints.`);
        note.hidden = !isOurs;
        form.hidden = !isOurs;
        if (!isOurs) throw error;
      }
    },
  };
}

// -- changes and events -------------------------------------------------------------------------------------------------

// Calls `on` with each event of the stream, until it ends.
export async function readEvents(response, on) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) if (part.startsWith("data: ")) on(JSON.parse(part.slice(6)));
  }
}
