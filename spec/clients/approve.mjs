// A withheld definition on the page Upstreams in a real browser: `node approve.mjs CHROMIUM ADMIN TOKEN FOLDER PICTURES`. Looks at the difference, leaves it,
// then approves it, and prints what it found as JSON.
import { browse, report } from "./browser.mjs";

const [chromium, admin, token, folder, pictures] = process.argv.slice(2);
const browser = await browse(chromium, folder, pictures);
const { found, go, hides, js, picture, press, shows, signIn } = browser;

report(browser, async () => {
  await signIn(admin, token);
  await shows("Calls running");
  await go("#upstreams");
  await shows("its definition differs from the approved one");
  await press("Approve the tool create of one");
  await shows("Approve the tool create of one?");
  found.asked = await js("document.querySelector('dialog code').textContent");
  await picture("approve");
  await press("Leave it as it is");
  await shows("its definition differs from the approved one");
  await press("Approve the tool create of one");
  await shows("Approve the tool create of one?");
  await press("Approve it");
  await hides("its definition differs from the approved one");
  await picture("approved");
});
