// The page Profile of the dashboard in a real browser: `node profile.mjs CHROMIUM ADMIN TOKEN MCP FOLDER PICTURES`. Takes a profile while calls run, moves
// in its flame graph by keyboard, searches in it, and prints what it found as JSON.
import { browse, call, report, until } from "./browser.mjs";

const [chromium, admin, token, mcp, folder, pictures] = process.argv.slice(2);
const browser = await browse(chromium, folder, pictures);
const { found, go, js, key, picture, press, send, shows, signIn } = browser;
const status = () => js("[...document.querySelectorAll('[role=status]')].map((e) => e.textContent).join(' | ')");
const arrow = async (name, code) => {
  for (const type of ["keyDown", "keyUp"]) await send("Input.dispatchKeyEvent", { type, key: name, code: name, windowsVirtualKeyCode: code });
};

async function walk() {
  await signIn(admin, token);
  await shows("Calls running");
  await go("#profile");
  await shows("No profile was taken yet");
  await picture("profile-empty");
  let isOver = false, number = 0;
  const calls = (async () => {
    while (!isOver) await call(mcp, ++number, { name: "hot", arguments: { n: 300000 } });
  })();
  await press("Start");
  await shows("The profile runs:");
  await press("Stop");
  await until("a flame graph", () => js("document.querySelectorAll('.flame rect').length > 3"));
  isOver = true;
  await calls;
  await picture("profile");
  found.table = await js("document.querySelector('main table tbody')?.innerText");
  await js("document.querySelector('.flame').focus()");
  for (const name of ["all", "handler", "tools/call hot"]) {
    await until(`the frame ${name}`, async () => (await status()).includes(`${name}: `));
    await arrow("ArrowUp", 38);
  }
  await until("a line", async () => /hot\.lua:\d+: /.test(await status()));
  await key("Enter");
  found.zoomed = await js("[...document.querySelectorAll('.flame rect')].filter((r) => r.getAttribute('width') === document.querySelector('.flame').getAttribute('width') || r.getAttribute('width') === document.querySelector('.flame').getAttribute('width') + '.0').length");
  await picture("profile-zoomed");
  await key("Escape");
  await until("all of it", async () => (await status()).includes("all: "));
  await js("document.querySelector('main input[type=search]').focus()");
  await browser.type("hot.lua");
  await until("the part of what was found", async () => /Frames with “hot\.lua” are in \d/.test(await status()));
  found.hits = await js("document.querySelectorAll('.flame .hit').length");
  await picture("profile-search");
}

report(browser, walk);
