// The dashboard in a real browser: `node dashboard.mjs CHROMIUM ADMIN TOKEN MCP FOLDER PICTURES SCRIPTS`. Walks through the pages, by keyboard where it
// changes something, and prints what it found as JSON.
import { rmSync, writeFileSync } from "node:fs";
import { browse, call, report } from "./browser.mjs";

const [chromium, admin, token, mcp, folder, pictures, scripts] = process.argv.slice(2);
const browser = await browse(chromium, folder, pictures);
const { focus, found, go, hides, js, key, offline, picture, press, send, shows, type } = browser;

async function walk() {
  await send("Page.navigate", { url: `${admin}/` });
  await shows("Nothing is wrong.");
  await go("#calls");
  await shows("This needs a token of");
  await picture("token");
  await press("Token of", token);
  await shows("No call runs.");
  await send("Page.navigate", { url: "about:blank" });
  await send("Page.navigate", { url: `${admin}/#token=${token}` });
  await shows("Calls running");
  found.hash = await js("location.hash");
  await picture("overview");
  await press("Calls");
  await shows("No call runs.");
  const held = call(mcp, 1, { name: "hold", arguments: {} });
  await shows("<img src=x");
  await picture("calls");
  await press("Cancel the call");
  found.cancelled = (await held).includes("cancelled by an operator");
  await shows("No call runs.");
  await go("#sessions");
  await shows("spec 1");
  await picture("sessions");
  await press("End the session");
  await shows("No sessions.");
  await go("#upstreams");
  await shows("No upstreams.");
  await go("#tap");
  await shows("The tap is closed.");
  await press("Start");
  await shows("The tap is open.");
  await call(mcp, 2, { name: "add", arguments: { a: 40, b: 2 } });
  await call(mcp, 3, { name: "<b>no</b>", arguments: {} });
  await shows('{"a":"integer","b":"integer"}');
  await shows("<b>no</b>");
  await picture("tap");
  await go("#overview");
  await shows("Calls: now");
  await shows("Half take: now");
  writeFileSync(`${scripts}/tools/broken.lua`, "return tool {\n  'Broken.',\n  function( end }\n");
  await shows("The scripts were not reloaded");
  await shows("tools/broken.lua:3");
  await picture("wrong");
  rmSync(`${scripts}/tools/broken.lua`);
  await shows("Nothing is wrong.");
  await offline(true);
  await shows("The gateway has not answered since");
  await picture("offline");
  await offline(false);
  await hides("has not answered");
  found.images = await js("document.querySelectorAll('img, b').length");
  found.html = await js("document.documentElement.outerHTML.includes('" + token + "')");
}

report(browser, walk);
