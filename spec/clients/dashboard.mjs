// The dashboard in a real browser: `node dashboard.mjs CHROMIUM ADMIN TOKEN MCP FOLDER SCRIPTS`. Walks through the pages, by keyboard where it changes something,
// and prints what it found as JSON. Screenshots go to FOLDER. Talks the DevTools protocol itself.
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";

const [chromium, admin, token, mcp, folder, scripts] = process.argv.slice(2);
const PATIENCE_MS = 60000;
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

// Waits until `fact()` gives something, and returns it.
async function until(what, fact) {
  const end = Date.now() + PATIENCE_MS;
  for (;;) {
    const found = await fact();
    if (found) return found;
    if (Date.now() > end) throw new Error(`waited in vain for ${what}`);
    await pause(50);
  }
}

mkdirSync(folder, { recursive: true });
const profile = `${folder}/profile`;
const browser = spawn(chromium, ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
  "--disable-background-networking", "--disable-component-update", "--remote-debugging-port=0", `--user-data-dir=${profile}`, "about:blank"],
{ stdio: "ignore", env: { ...process.env, HOME: folder, XDG_RUNTIME_DIR: folder } });
process.on("exit", () => browser.kill("SIGKILL"));

const found = { console: [], requests: [], violations: [] };
let socket, last = 0;
const waiting = new Map();

async function connect() {
  const port = await until("the browser", () => existsSync(`${profile}/DevToolsActivePort`) && readFileSync(`${profile}/DevToolsActivePort`, "utf8").split("\n")[0]);
  const pages = await until("a page", async () => {
    const list = await (await fetch(`http://127.0.0.1:${port}/json`)).json();
    return list.find((one) => one.type === "page");
  });
  socket = new WebSocket(pages.webSocketDebuggerUrl);
  await new Promise((open) => { socket.onopen = open; });
  socket.onmessage = ({ data }) => {
    const message = JSON.parse(data);
    if (message.id) {
      waiting.get(message.id)(message);
      waiting.delete(message.id);
    } else if (message.method === "Runtime.exceptionThrown") found.console.push(message.params.exceptionDetails.exception?.description ?? message.params.exceptionDetails.text);
    else if (message.method === "Log.entryAdded" && message.params.entry.level === "error" && message.params.entry.source !== "network") found.console.push(message.params.entry.text);
    else if (message.method === "Network.requestWillBeSent") found.requests.push(message.params.request.url);
    else if (message.method === "Audits.issueAdded" && message.params.issue.code === "ContentSecurityPolicyIssue") found.violations.push(message.params.issue);
  };
}

async function send(method, params = {}) {
  const id = ++last;
  const answer = await new Promise((done) => {
    waiting.set(id, done);
    socket.send(JSON.stringify({ id, method, params }));
  });
  if (answer.error) throw new Error(`${method}: ${answer.error.message}`);
  return answer.result;
}

async function js(expression) {
  const { result, exceptionDetails } = await send("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
  if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
  return result.value;
}

const text = () => js("document.body?.innerText ?? ''").catch(() => ""); // a page that is about to change has no text
const shows = (what) => until(`the text ${what}`, async () => (await text()).includes(what));

async function key(name) {
  const code = { Tab: 9, Enter: 13 }[name], of = { key: name, code: name, windowsVirtualKeyCode: code, text: name === "Enter" ? "\r" : undefined };
  await send("Input.dispatchKeyEvent", { type: "keyDown", ...of });
  await send("Input.dispatchKeyEvent", { type: "keyUp", ...of });
}

// Presses Tab until the focus is on an element whose label or text begins so; then types a text there, if there is one, and presses Enter.
async function press(label, typed) {
  for (let i = 0; i < 60; i++) {
    await key("Tab");
    const at = await js("(({ activeElement: e }) => e.getAttribute('aria-label') ?? (e.labels?.[0] ?? e).innerText ?? '')(document)");
    if (at.startsWith(label)) {
      if (typed) await send("Input.insertText", { text: typed });
      await key("Enter");
      return;
    }
  }
  throw new Error(`the keyboard does not reach ${label}`);
}

const widths = [360, 768, 1440];
found.wide = [];

// Pictures in three widths, light and dark; notes pages that are wider than the screen.
async function picture(name) {
  for (const width of widths) {
    for (const scheme of ["light", "dark"]) {
      await send("Emulation.setDeviceMetricsOverride", { width, height: 800, deviceScaleFactor: 1, mobile: width < 700 });
      await send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: scheme }] });
      if (await js("document.documentElement.scrollWidth > innerWidth")) found.wide.push(`${name} at ${width}`);
      const shot = await send("Page.captureScreenshot", { format: "png" });
      writeFileSync(`${folder}/${name}-${width}-${scheme}.png`, Buffer.from(shot.data, "base64"));
    }
  }
  await send("Emulation.setDeviceMetricsOverride", { width: 1024, height: 800, deviceScaleFactor: 1, mobile: false });
  found.unnamed = [...found.unnamed ?? [], ...await js(`[...document.querySelectorAll("button, input, a, [role=region], svg")]
    .filter((e) => !(e.getAttribute("aria-label") || e.innerText || e.labels?.length)).map((e) => "${name}: " + e.outerHTML.slice(0, 80))`)];
}

const call = (id, params) => fetch(mcp, {
  method: "POST",
  headers: { "content-type": "application/json", accept: "application/json, text/event-stream", "mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": params.name },
  body: JSON.stringify({ jsonrpc: "2.0", id, method: "tools/call", params: { ...params, _meta: {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": { name: "<img src=x onerror=alert(1)>", version: "‮1" } } } }),
}).then((answer) => answer.text());

async function walk() {
  await connect();
  for (const domain of ["Page", "Runtime", "Log", "Network", "Audits"]) await send(`${domain}.enable`);
  await send("Page.navigate", { url: `${admin}/` });
  await shows("Nothing is wrong.");
  await js("location.hash = '#calls'");
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
  const held = call(1, { name: "hold", arguments: {} });
  await shows("<img src=x");
  await picture("calls");
  await press("Cancel the call");
  found.cancelled = (await held).includes("cancelled by an operator");
  await shows("No call runs.");
  await js("location.hash = '#sessions'");
  await shows("spec 1");
  await picture("sessions");
  await press("End the session");
  await shows("No sessions.");
  await js("location.hash = '#upstreams'");
  await shows("No upstreams.");
  await js("location.hash = '#tap'");
  await shows("The tap is closed.");
  await press("Start");
  await shows("The tap is open.");
  await call(2, { name: "add", arguments: { a: 40, b: 2 } });
  await call(3, { name: "<b>no</b>", arguments: {} });
  await shows('{"a":"integer","b":"integer"}');
  await shows("<b>no</b>");
  await picture("tap");
  await js("location.hash = '#overview'");
  await shows("Calls: now");
  writeFileSync(`${scripts}/tools/broken.lua`, "return tool {\n  'Broken.',\n  function( end }\n");
  await shows("The scripts were not reloaded");
  await shows("tools/broken.lua:3");
  await picture("wrong");
  rmSync(`${scripts}/tools/broken.lua`);
  await shows("Nothing is wrong.");
  const offline = (is) => send("Network.emulateNetworkConditions", { offline: is, latency: 0, downloadThroughput: -1, uploadThroughput: -1 });
  await offline(true);
  await shows("The gateway has not answered since");
  await picture("offline");
  await offline(false);
  await until("the gateway to answer again", async () => !(await text()).includes("has not answered"));
  found.images = await js("document.querySelectorAll('img, b').length");
  found.html = await js("document.documentElement.outerHTML.includes('" + token + "')");
}

let code = 0;
try {
  await walk();
} catch (error) {
  found.error = String(error.stack ?? error);
  found.text = await text().catch(() => "");
  code = 1;
}
console.log(JSON.stringify(found));
process.exit(code);
