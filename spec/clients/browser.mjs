// A browser for the specs of the dashboard: starts a headless chromium, talks the DevTools protocol to it, and gathers what a page must not do.
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const PATIENCE_MS = 90000, MAX_PICTURE_PX = 2400;
const axe = readFileSync(fileURLToPath(new URL("node_modules/axe-core/axe.min.js", import.meta.url)), "utf8");
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

// Waits until `fact()` gives something, and returns it.
export async function until(what, fact) {
  const end = Date.now() + PATIENCE_MS;
  for (;;) {
    const found = await fact();
    if (found) return found;
    if (Date.now() > end) throw new Error(`waited in vain for ${what}`);
    await pause(50);
  }
}

// Starts a browser whose files are in `folder`; pictures go to `pictures`. found: { console, requests, violations, wide, unnamed, axe }.
export async function browse(chromium, folder, pictures) {
  mkdirSync(folder, { recursive: true });
  mkdirSync(pictures, { recursive: true });
  const profile = `${folder}/profile`;
  const browser = spawn(chromium, ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
    "--disable-background-networking", "--disable-component-update", "--remote-debugging-port=0", `--user-data-dir=${profile}`, "about:blank"],
  { stdio: "ignore", env: { ...process.env, HOME: folder, XDG_RUNTIME_DIR: folder } });
  process.on("exit", () => browser.kill("SIGKILL"));

  const found = { console: [], requests: [], violations: [], wide: [], unnamed: [], axe: [] };
  const waiting = new Map();
  let last = 0;
  const port = await until("the browser", () => existsSync(`${profile}/DevToolsActivePort`) && readFileSync(`${profile}/DevToolsActivePort`, "utf8").split("\n")[0]);
  const page = await until("a page", async () => (await (await fetch(`http://127.0.0.1:${port}/json`)).json()).find((one) => one.type === "page"));
  const socket = new WebSocket(page.webSocketDebuggerUrl);
  await new Promise((open) => { socket.onopen = open; });
  socket.onmessage = ({ data }) => {
    const { id, method, params, ...rest } = JSON.parse(data);
    if (id) {
      waiting.get(id)(rest);
      waiting.delete(id);
    } else if (method === "Runtime.exceptionThrown") found.console.push(params.exceptionDetails.exception?.description ?? params.exceptionDetails.text);
    else if (method === "Log.entryAdded" && params.entry.level === "error" && params.entry.source !== "network") found.console.push(params.entry.text);
    else if (method === "Network.requestWillBeSent") found.requests.push(params.request.url);
    else if (method === "Audits.issueAdded" && params.issue.code === "ContentSecurityPolicyIssue") found.violations.push(params.issue);
  };

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
  const hides = (what) => until(`the end of the text ${what}`, async () => !(await text()).includes(what));

  const codes = { Tab: 9, Enter: 13, Escape: 27, " ": 32 };

  async function key(name) {
    const of = { key: name, code: codes[name] ? name : undefined, windowsVirtualKeyCode: codes[name], text: name === "Enter" ? "\r" : codes[name] ? undefined : name };
    await send("Input.dispatchKeyEvent", { type: "keyDown", ...of });
    await send("Input.dispatchKeyEvent", { type: "keyUp", ...of });
  }

  const type = (what) => send("Input.insertText", { text: what });
  const focus = () => js("(({ activeElement: e }) => e?.getAttribute('aria-label') ?? (e?.labels?.[0] ?? e)?.innerText ?? '')(document)");

  // Presses Tab until the focus is on an element whose label or text begins so; then types a text there, if there is one, and presses Enter.
  async function press(label, typed) {
    for (let i = 0; i < 80; i++) {
      await key("Tab");
      if ((await focus()).startsWith(label)) {
        if (typed) await type(typed);
        await key("Enter");
        return;
      }
    }
    throw new Error(`the keyboard does not reach ${label}`);
  }

  const size = (width) => send("Emulation.setDeviceMetricsOverride", { width, height: 800, deviceScaleFactor: 1, mobile: width < 700 });

  // Violations of accessibility, as texts.
  async function look(name, width, scheme) {
    if (!await js("typeof axe === 'object'")) await js(`${axe}; 0`);
    const list = await js(`axe.run(document, { resultTypes: ["violations"] }).then(({ violations }) =>
      violations.flatMap((v) => v.nodes.map((n) => v.id + ": " + n.target.join(" ") + " " + n.failureSummary)))`);
    found.axe.push(...list.map((one) => `${name} at ${width}, ${scheme}: ${one}`));
  }

  // What reaches beyond a screen of this width: the page, what is wider than its container, and what scrolls sideways. Preformatted text may; and tables
  // at 1024 px, where the navigation is beside them and a time such as "1 min 31 s" decides whether they fit.
  const tooWide = (width) => js(`(async () => {
    await new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)));
    const width = ${width}, main = document.getElementById("main"), page = document.scrollingElement;
    const named = (e) => e.tagName.toLowerCase() + (e.className.baseVal ?? e.className) + " “" + (e.getAttribute("aria-label") ?? e.textContent).slice(0, 40) + "”";
    const wide = page.scrollWidth > width ? ["the page has " + page.scrollWidth + " px"] : [];
    for (const e of width !== 1024 ? main.querySelectorAll(":not(pre, pre *, svg *)") : []) {
      const unseen = e.closest("caption, thead");
      if (!e.checkVisibility() || (unseen && getComputedStyle(unseen).position === "absolute")) continue;
      const scrolls = ["auto", "scroll"].includes(getComputedStyle(e).overflowX) && e.scrollWidth > e.clientWidth && e.tagName !== "TEXTAREA";
      const box = e.getBoundingClientRect(), around = (e.tagName === "DIALOG" ? document.body : e.parentElement).getBoundingClientRect();
      if (scrolls || box.right > Math.min(width, around.right) + 1) wide.push(named(e) + " has " + Math.round(Math.max(box.width, e.scrollWidth)) + " px");
    }
    return wide.slice(0, 3);
  })()`);

  // Notes in found.wide what does not fit a screen of these widths.
  async function fits(name, widths = [320, 390]) {
    for (const width of widths) {
      await size(width);
      found.wide.push(...(await tooWide(width)).map((one) => `${name} at ${width}: ${one}`));
    }
    await size(1024);
  }

  // Pictures in three widths, light and dark; notes what does not fit the screen, what has no name, and what axe finds.
  async function picture(name) {
    await fits(name, [320, 1024]);
    for (const width of [390, 768, 1280]) {
      await size(width);
      for (const scheme of ["light", "dark"]) {
        await send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: scheme }] });
        if (scheme === "light") found.wide.push(...(await tooWide(width)).map((one) => `${name} at ${width}: ${one}`));
        if (width !== 768) await look(name, width, scheme);
        const height = Math.min(await js("document.documentElement.scrollHeight"), MAX_PICTURE_PX);
        const shot = await send("Page.captureScreenshot", { format: "png", captureBeyondViewport: true, clip: { x: 0, y: 0, width, height, scale: 1 } });
        writeFileSync(`${pictures}/${name}-${width}-${scheme}.png`, Buffer.from(shot.data, "base64"));
      }
    }
    await size(1024);
    found.unnamed.push(...await js(`[...document.querySelectorAll("button, input, select, textarea, a, [role=region], svg:not([aria-hidden])")]
      .filter((e) => !(e.getAttribute("aria-label") || e.innerText || e.labels?.length)).map((e) => "${name}: " + e.outerHTML.slice(0, 80))`));
  }

  const go = (hash) => js(`location.hash = ${JSON.stringify(hash)}`);
  const offline = (is) => send("Network.emulateNetworkConditions", { offline: is, latency: 0, downloadThroughput: -1, uploadThroughput: -1 });

  for (const domain of ["Page", "Runtime", "Log", "Network", "Audits"]) await send(`${domain}.enable`);
  await size(1024);

  // Opens a link as `moonpool dashboard` prints it.
  async function signIn(admin, token) {
    const headers = { Authorization: `Bearer ${token}`, "moonpool-admin": "1" };
    const { code } = await (await fetch(`${admin}/api/code`, { method: "POST", headers })).json();
    await send("Page.navigate", { url: `${admin}/#code=${code}` });
  }

  return { fits, focus, found, go, hides, js, key, offline, picture, press, send, shows, signIn, size, text, type };
}

// Runs `walk`, prints what was found as JSON, and ends the process: with 1, and the text of the page, if the walk has failed.
export async function report(browser, walk) {
  let code = 0;
  try {
    await walk();
  } catch (error) {
    browser.found.error = String(error.stack ?? error);
    browser.found.text = await browser.text().catch(() => "");
    code = 1;
  }
  process.stdout.write(`${JSON.stringify(browser.found)}\n`, () => process.exit(code));
}

// Calls a tool of the gateway at `url`, by a client whose name is markup.
export const call = (url, id, params) => fetch(url, {
  method: "POST",
  headers: { "content-type": "application/json", accept: "application/json, text/event-stream", "mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": params.name },
  body: JSON.stringify({ jsonrpc: "2.0", id, method: "tools/call", params: { ...params, _meta: {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": { name: "<img src=x onerror=alert(1)>", version: "\u202e1" } } } }),
}).then((answer) => answer.text());
