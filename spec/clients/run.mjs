// The pages that run tools in a real browser: `node run.mjs CHROMIUM ADMIN TOKEN FOLDER PICTURES`. Walks by keyboard alone, and prints what it found as JSON.
import { browse, report, until } from "./browser.mjs";

const [chromium, admin, token, folder, pictures] = process.argv.slice(2);
const browser = await browse(chromium, folder, pictures);
const { focus, found, go, hides, js, key, picture, press, send, shows, signIn, type } = browser;

// True if the reader sees the thing, or its beginning where it is higher than the screen.
const inView = (what) => `(({ top, bottom }) => top > -1 && Math.min(bottom, top + innerHeight / 2) <= innerHeight || [top, bottom, innerHeight])(document.querySelector(${JSON.stringify(what)}).getBoundingClientRect())`;

// Presses Tab until the focus is on what begins so, and types there.
async function fill(label, text) {
  for (let i = 0; i < 80; i++) {
    await key("Tab");
    if ((await focus()).startsWith(label)) return type(text);
  }
  throw new Error(`the keyboard does not reach ${label}`);
}

async function walk() {
  await signIn(admin, token);
  await shows("Calls running");
  await press("Tools");
  await shows("Places an order");
  await picture("tools");
  await key("/");
  await type("ORD");
  await shows("1 of this name or title.");
  await hides("Holds.");
  await key("Escape");
  await press("order");
  await shows("As principal");
  await shows("What to order");
  await picture("tool");

  await press("Run");
  await shows("item is required");
  found.focus = await focus();
  await type("tea");
  await fill("count", "two");
  await press("Run");
  await shows("count is no number");
  await js("document.activeElement.select()");
  await type("2");
  await fill("tags", "a\nb");
  await fill("street", "Main St");
  await press("Run");
  await shows("The tool asks you");
  await shows("Really order tea?");
  await shows("packing 3");
  found.question = await js(inView("form.question"));
  found.lines = await js("document.querySelectorAll('.log li').length");
  found.last = await js("document.querySelector('progress + span').textContent");
  await picture("question");
  await press("Accept");
  await shows("As the model sees it");
  await shows("<img src=x onerror=alert(1)>");
  await shows("Structured content");
  await shows("Done.");
  found.result = await js("document.querySelector('[aria-label=\"Structured content\"]').textContent");
  found.after = await js("document.activeElement.getAttribute('aria-label')");
  await shows("Where the time went");
  found.answer = await js(inView("[aria-label=Result] h3"));
  await shows("request 2 of 2");
  found.steps = await js("[...document.querySelectorAll('.steps tbody th')].map((cell) => cell.textContent)");
  await picture("result");
  await js("document.querySelector('.steps').scrollIntoView()");
  await picture("steps");
  for (const date of ["2025-06-18"]) {
    await js(`document.querySelector("select[name=revision]").value = ${JSON.stringify(date)}`);
    await press("Run");
    await shows("Really order tea?");
    await press("Accept");
    await shows("Done.");
  }

  await go("#tools/hold");
  await shows("Holds.");
  await press("Run");
  await shows("It says that it destroys something");
  found.safe = await focus();
  await picture("sure");
  await key("Enter");
  await shows("It was not run.");
  await press("Run");
  await shows("It says that it destroys something");
  await press("Run it");
  await shows("Runs.");
  await press("Cancel");
  await shows("It has ended: cancelled by an operator.");
  await fill("As principal", "x");
  await js("document.querySelector('input[name=principal]').value = 'ann'");
  await press("Run");
  await press("Run it");
  await shows("unknown tool");
  await picture("error");

  await go("#resources");
  await shows("A note.");
  await press("note://{name}");
  await shows("put values in place");
  await press("Read");
  await shows("Put a value in place");
  await js("document.querySelector('input[name=uri]').select()");
  await type("note://x");
  await press("Read");
  await shows("note x <b>bold</b>");
  await picture("resource");
  await go("#prompts");
  await shows("Greets.");
  await press("hello");
  await shows("who (required)");
  await fill("who", "y");
  found.suggested = await until("the suggestions", () => js("(() => { const list = [...document.activeElement.list.options].map((one) => one.value); return list.length > 0 && !list.includes(\"no\") && list; })()"));
  await picture("prompt");
  await js("document.querySelector('input[name=who]').focus()");
  await type("ou");
  await press("Get");
  await shows("Hello you");
  await go("#tools");
  await shows("Holds.");
  await press("Switch off the tool hold");
  await shows("Switch off the tool hold?");
  await shows("requests for it are refused");
  found.kept = await focus();
  await picture("sure-switch");
  await key("Enter");
  await hides("Switch off the tool hold?");
  found.still_on = !(await js("document.body.innerText")).includes("Switch on");
  await press("Switch off the tool hold");
  await press("Switch it off");
  await shows("Switch on");
  await picture("switched-list");
  await go("#tools/hold");
  await shows("Switched off by token me");
  await picture("switched");
  await press("Switch on");
  await shows("Switched on.");
  await go("#upstreams");
  await shows("one");
  await shows("Withheld definitions");
  await shows("a script has this name");
  await shows("moonpool lock");
  await press("Switch off the upstream one");
  await press("Switch it off");
  await shows("switched off by token me");
  await picture("upstream-switched");
  await go("#tools/one_echo");
  await shows("Switched off with its upstream by token me");
  await go("#upstreams");
  await press("Switch on the upstream one");
  await hides("switched off by token me");
  await go("#streams");
  await shows("session");
  await picture("streams");
  await press("End the stream");
  await press("End it");
  await shows("No event streams.");
  await go("#tasks");
  await shows("working");
  await press("Cancel the task");
  await press("Cancel it");
  await shows("cancelled");
  await hides("working");
  await picture("tasks");
  await go("#tools/nothing");
  await shows("there is no tool 'nothing'");
  await go("#tools");
  await key("/");
  await type("zzz");
  await shows("Nothing has");
  found.images = await js("document.querySelectorAll('img, b').length");
}

report(browser, walk);
