// The first minutes of an operator in a real browser: `node newcomer.mjs CHROMIUM ADMIN TOKEN MCP FOLDER PICTURES SCRIPTS`. Breaks a script and finds the
// error with its line, mends it, watches a call in the tap, and sees it in the charts.
import { writeFileSync } from "node:fs";
import { browse, call, report, until } from "./browser.mjs";

const [chromium, admin, token, mcp, folder, pictures, scripts] = process.argv.slice(2);
const browser = await browse(chromium, folder, pictures);
const { found, hides, js, picture, press, send, shows } = browser;
const tool = (line) => writeFileSync(`${scripts}/tools/hello.lua`, `return tool {\n  "Greets.",\n${line}\n}\n`);

report(browser, async () => {
  const headers = { Authorization: `Bearer ${token}`, "moonpool-admin": "1" };
  const { code } = await (await fetch(`${admin}/api/code`, { method: "POST", headers })).json();
  await send("Page.navigate", { url: `${admin}/#code=${code}` });
  await shows("Nothing is wrong.");
  found.address = await js("location.href");
  found.history = (await send("Page.getNavigationHistory")).entries.map((one) => one.url);
  found.stored = await js("JSON.stringify(sessionStorage)");
  found.code = code;
  tool('  function() return "hello" end,');
  await press("Scripts");
  await shows("tools/hello.lua");
  await shows("Generation 2 serves what is on the disk.");
  tool('  function() return "hello end,');
  await shows("Not reloaded");
  await shows("tools/hello.lua:3: ");
  found.excerpt = await js("document.querySelector('.wrong pre').textContent");
  found.still = await call(mcp, 1, { name: "hello", arguments: {} });
  tool('  function() return "hello again" end,');
  await hides("Not reloaded");
  await shows("Generation 3 serves what is on the disk.");
  found.reloads = await js("[...document.querySelectorAll('table')].at(-1).innerText");
  await press("Tap");
  await press("Start");
  await shows("The tap is open.");
  found.now = await call(mcp, 2, { name: "hello", arguments: {} });
  await shows("tools/call");
  await shows("hello");
  await press("Certificates");
  await shows("No certificate.");
  await press("Overview");
  await until("calls in the chart", async () => {
    await call(mcp, 3, { name: "hello", arguments: {} });
    const most = /^Calls: now .*?, at most ([0-9.]+)/.exec(await js("document.querySelector('.chart p')?.textContent ?? ''"));
    return most && Number(most[1]) > 0;
  });
  await js("sessionStorage.clear()");
  await send("Page.navigate", { url: "about:blank" });
  await send("Page.navigate", { url: `${admin}/#code=${code}` });
  await shows("this link was used already");
  await shows("Token of the admin listener");
  await picture("used-link");
});
