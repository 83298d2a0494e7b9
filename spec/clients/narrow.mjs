// The dashboard on phones in a real browser: `node narrow.mjs CHROMIUM ADMIN TOKEN MCP FOLDER PICTURES STATE SCRIPTS`. Walks through the pages, notes what does not fit
// a screen, and takes pictures. STATE is "long" (names, addresses and texts are long) or "empty" (there is nothing); SCRIPTS is the folder of the scripts.
import { writeFileSync } from "node:fs";
import { browse, call, report, until } from "./browser.mjs";

const [chromium, admin, token, mcp, folder, pictures, state, scripts] = process.argv.slice(2);
const browser = await browse(chromium, folder, pictures);
const { fits, found, go, js, offline, picture, press, send, shows, signIn, size } = browser;
const LONG = "release_reservations_of_customers_whose_orders_were_cancelled_before_shipping_v2";
const PAGES = ["overview", "calls", "sessions", "streams", "tasks", "tools", "resources", "prompts", "scripts", "upstreams", "tap", "profile", "certificates", "config"];
const EMPTY = {
  overview: "Nothing is wrong.", calls: "No call runs.", sessions: "No sessions.", streams: "No event streams.", tasks: "No tasks.", tools: "No tools.", resources: "No resources.",
  prompts: "No prompts.", scripts: "No script.", upstreams: "No upstreams.", tap: "The tap is closed.", profile: "No profile", certificates: "No certificate.", config: "sessions.idle",
};

async function each(name, wanted, look) {
  for (const page of PAGES) {
    await go(`#${page}`);
    await shows(wanted[page]);
    await look(`${name}-${page}`);
  }
}

async function empty() {
  await each("empty", EMPTY, fits);
  await js("sessionStorage.clear()");
  await send("Page.navigate", { url: "about:blank" });
  await send("Page.navigate", { url: `${admin}/#calls` });
  await shows("This needs a token of the admin listener");
  await picture("empty-token");
  await send("Page.navigate", { url: "about:blank" });
  await signIn(admin, token);
  await shows("Nothing is wrong.");
  await offline(true);
  for (const page of ["calls", "overview"]) {
    await go(`#${page}`);
    await shows("The gateway has not answered since");
    await picture(`lost-${page}`);
  }
  await go("#tap");
  await press("Start");
  await shows("the gateway does not answer");
  await picture("lost-tap");
}

async function long() {
  await each("long", {
    overview: "Calls: now", calls: LONG, sessions: "client_for", streams: "user:", tasks: LONG, tools: LONG, resources: "orders://", prompts: "summarize", scripts: "nightly",
    upstreams: "down", tap: "The tap is closed.", profile: "No profile", certificates: "DNS:", config: "sessions.idle",
  }, picture);
  await go("#sessions");
  await shows("client_for");
  await size(390);
  const { nodes } = await send("Accessibility.getFullAXTree");
  found.roles = ["table", "columnheader", "row", "rowheader", "cell"].filter((role) => nodes.some((node) => node.role?.value === role && !node.ignored));
  found.titled = await js("getComputedStyle(document.querySelector('td[data-title]'), '::before').content");
  await size(1024);
  await go("#overview");
  await shows("Calls: now");
  await js("document.querySelectorAll('details').forEach((one) => { one.open = true; })");
  await until("the tables of the charts", () => js("[...document.querySelectorAll('.chart tbody')].every((one) => one.firstChild)"));
  await picture("long-charts");

  await go("#tap");
  await press("Start");
  await shows("The tap is open.");
  await call(mcp, 2, { name: "refused_".repeat(12), arguments: {} });
  await call(mcp, 3, { name: "hot", arguments: { number_of_rounds_of_the_outer_loop: 10 } });
  await shows("number_of_rounds_of_the_outer_loop");
  await picture("long-events");

  await go("#profile");
  await shows("No profile was taken yet");
  let isOver = false, number = 10;
  const calls = (async () => {
    while (!isOver) await call(mcp, ++number, { name: "hot", arguments: { number_of_rounds_of_the_outer_loop: 300000 } });
  })();
  await js("document.querySelector('input[name=seconds]').value = 300");
  await press("Start");
  await shows("The profile runs:");
  await fits("long-profiling");
  await press("Stop");
  await until("a flame graph", () => js("document.querySelectorAll('.flame rect').length > 3"));
  isOver = true;
  await calls;
  await picture("long-profiled");

  await go(`#tools/${LONG}`);
  await shows("As principal");
  await picture("long-tool");
  await go("#tools/fails");
  await shows("As principal");
  await press("Run");
  await shows("Where the time went");
  await shows("Last failures");
  await picture("long-failures");
  await go(`#resources/${encodeURIComponent(await js("fetch('/api/resources?page=0', { headers: { Authorization: 'Bearer ' + sessionStorage.token } }).then((a) => a.json()).then((a) => a.resources[0].uri ?? a.resources[0].uri_template)"))}`);
  await shows("Read");
  await picture("long-resource");
  await go("#prompts/summarize_the_correspondence_with_a_customer_of_the_last_ninety_days");
  await shows("Get");
  await picture("long-prompt");

  writeFileSync(`${scripts}/tools/broken.lua`, `return tool { "Is broken.", ${LONG.replaceAll("_", "")} ${LONG} }\n`);
  await go("#scripts");
  await shows("Not reloaded");
  await picture("long-errors");
  await go("#overview");
  await shows("Problems");
  await picture("long-wrong");
}

report(browser, async () => {
  await signIn(admin, token);
  await shows("Calls running");
  await (state === "long" ? long : empty)();
});
