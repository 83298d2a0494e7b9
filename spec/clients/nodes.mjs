// The page Nodes in a real browser: `node nodes.mjs CHROMIUM ADMIN TOKEN FOLDER PICTURES`. Finds it in the navigation, looks at it, forgets a node
// that is stale, and prints what it found as JSON.
import { browse, report } from "./browser.mjs";

const [chromium, admin, token, folder, pictures] = process.argv.slice(2);
const browser = await browse(chromium, folder, pictures);
const { found, go, hides, js, picture, press, shows, signIn } = browser;

report(browser, async () => {
  await signIn(admin, token);
  await shows("Calls running");
  await go("#nodes");
  await shows("ghost");
  found.link = await js("document.querySelector('nav a[href=\"#nodes\"]').offsetParent !== null");
  await shows("stale");
  found.text = await js("document.querySelector('main').innerText");
  await picture("nodes");
  await press("Forget the node ghost");
  await shows("Forget the node ghost?");
  await press("Forget it");
  await hides("ghost");
});
