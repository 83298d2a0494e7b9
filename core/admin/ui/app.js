// The shell of the dashboard: which pages there are, their navigation, and when a page asks again. What pages share is in kit.js.
//
// A page is a file page_NAME.js whose default export is { title, every, build }. build(at, kit) fills the element `at` and returns load(), or
// nothing. The shell calls load() at once and then each `every` ms while the page is shown (0: never); what load() throws is told above the page.
// `kit` is what kit.js exports, and:
//   rest         what follows "#NAME/" in the address, decoded: the page of one thing
//   change(path, options)  asks for a change by DELETE, or options.method with options.body; then loads the page again
//   refresh()    loads the page again now
//   onLeave(fn)  runs fn when another page is shown
import * as shared from "./kit.js";

// The navigation: groups of pages, by their names, each with its icon (kit.js). A page needs its name here, and its file.
const groups = {
  Now: {
    overview: "M2 12a6 6 0 1 1 12 0M8 12l3-4", calls: "M2 5h10M9 2l3 3-3 3M14 11H4M7 8l-3 3 3 3", sessions: "M8 8a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM2 14a6 4 0 0 1 12 0",
    streams: "M1 5q2-3 4.5 0t4.5 0 4.5 0M1 11q2-3 4.5 0t4.5 0 4.5 0", tasks: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM8 5v3l2 2",
    signins: "M2 8h8M7 5l3 3-3 3M8 2h6v12H8",
  },
  Catalog: {
    tools: "M10 2a4 4 0 0 0-3.5 6L2 12.5 3.5 14 8 9.5A4 4 0 0 0 14 6l-2.5 1L9 4.5z", resources: "M4 2h5l3 3v9H4zM9 2v3h3", prompts: "M2 3h12v8H7l-3 3v-3H2z",
    scripts: "M5 4L1 8l4 4M11 4l4 4-4 4", upstreams: "M8 2v5l-4 4M8 7l4 4M2 11h4v3H2zM10 11h4v3h-4z",
  },
  Observe: { tap: "M1 8q7-9 14 0-7 9-14 0zM8 6a2 2 0 1 0 0 4 2 2 0 0 0 0-4z", profile: "M2 13h12M3 10h8M5 7h5M6 4h3" },
  Gateway: {
    nodes: "M8 2v4M8 6L3 11M8 6l5 5M6 1h4v3H6zM1 11h4v3H1zM11 11h4v3h-4z", certificates: "M8 1l6 2v5q-1 5-6 7-5-2-6-7V3z", config: "M2 4h12M2 8h12M2 12h12M5 2v4M11 6v4M7 10v4",
  },
};
const names = Object.values(groups).flatMap(Object.keys);

const { el, fails, icon, useToken, whenTokenChanges, whenTriedAgain, works } = shared;
const main = document.getElementById("main"), nav = document.querySelector("nav");
const pages = new Map(await Promise.all(names.map(async (name) => [name, (await import(`./page_${name}.js`)).default])));
let timer = 0, refresh = async () => {}, shown = null;

nav.append(...Object.entries(groups).map(([title, list]) => el("div", {}, el("p", { class: "group", id: `group-${title}` }, title),
  el("ul", { "aria-labelledby": `group-${title}` }, ...Object.entries(list).map(([name, picture]) => el("li", {}, el("a", { href: `#${name}` }, icon(picture), pages.get(name).title)))))));

// On a narrow screen the pages are behind a button; on a wide one the button is not shown, and they always are.
const menu = document.getElementById("menu");

function openMenu(isOpen) {
  menu.setAttribute("aria-expanded", String(isOpen));
  menu.parentElement.classList.toggle("open", isOpen);
}

menu.addEventListener("click", () => openMenu(menu.getAttribute("aria-expanded") === "false"));

function leave() {
  clearTimeout(timer);
  for (const run of shown?.leaving ?? []) run();
  document.querySelector("dialog[open]")?.close();
}

// Changes the code of a link for a token. The link leaves the address and the history at once.
async function useCode(code) {
  history.replaceState(null, "", "#overview");
  try {
    useToken((await shared.json("/session", { method: "POST", body: { code } })).token);
  } catch (error) {
    shared.linkFailed(error);
  }
  show();
}

// A reader who is signed in decides: another site may have opened the link, so that the reader acts as its maker.
function askAboutCode(code) {
  leave();
  shown = null;
  history.replaceState(null, "", "#overview");
  main.replaceChildren(el("h1", {}, "Sign in anew?"), el("p", {}, "This tab is signed in already. The link signs it in as the one who made the link."),
    el("p", {}, el("button", { type: "button", click: () => useCode(code) }, "Use the link"), " ",
      el("button", { type: "button", click: show }, "Stay signed in")));
}

// The page of nodes is in the navigation only where there is a cluster.
async function seeCluster() {
  try {
    document.body.classList.toggle("clustered", (await shared.json("/status")).cluster !== undefined);
  } catch { /* the page tells it */ }
}

function show() {
  const code = /^#code=(\w+)$/.exec(location.hash)?.[1];
  if (code) {
    (shared.isSignedIn() ? askAboutCode : useCode)(code);
    return;
  }
  if (location.hash === "#main") return;
  const [wanted, ...more] = location.hash.slice(1).split("/"), name = pages.has(wanted) ? wanted : names[0], { title, every, build } = pages.get(name);
  leave();
  openMenu(false);
  for (const link of nav.querySelectorAll("a")) {
    if (link.hash === `#${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${title} – moonpool`;
  main.replaceChildren(el("h1", {}, title));
  works();
  const mine = shown = { leaving: [] };
  let load = null, wait = every;
  refresh = async () => {
    clearTimeout(timer);
    if (!load || shown !== mine) return;
    try {
      if (!document.hidden) await load();
      wait = every;
    } catch (error) {
      if (shown === mine) fails(error);
      wait = Math.min(Math.max(wait, 1000) * 2, 15000);
    }
    if (shown === mine && wait) timer = setTimeout(refresh, wait);
  };
  const ours = refresh;
  async function change(path, options = { method: "DELETE" }) {
    try {
      await shared.ask(path, options);
      await ours();
    } catch (error) {
      fails(error);
    }
  }
  let rest = more.join("/");
  try {
    rest = decodeURIComponent(rest);
  } catch { /* is shown as it came */ }
  load = build(main, { ...shared, rest, change, refresh: ours, onLeave: (run) => mine.leaving.push(run) });
  ours();
  seeCluster();
}

// -- colours and keys ---------------------------------------------------------------------------------------------------

const themes = ["auto", "light", "dark"], button = document.getElementById("theme"), keys = document.getElementById("keys");
let theme = themes.includes(sessionStorage.getItem("theme")) ? sessionStorage.getItem("theme") : "auto";

function useTheme() {
  document.documentElement.dataset.theme = theme;
  shared.setText(button, `Colours: ${theme}`);
}

button.addEventListener("click", () => {
  theme = themes[(themes.indexOf(theme) + 1) % themes.length];
  sessionStorage.setItem("theme", theme);
  useTheme();
});
useTheme();

document.getElementById("help").addEventListener("click", () => keys.showModal());
addEventListener("keydown", (event) => {
  const at = event.target, isField = at instanceof HTMLElement && (at.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(at.tagName));
  if (event.key === "Escape" && isField) at.blur();
  else if (event.key === "Escape" && menu.getAttribute("aria-expanded") === "true" && !keys.open) {
    openMenu(false);
    menu.focus();
  }
  if (isField || event.ctrlKey || event.altKey || event.metaKey || keys.open) return;
  if (event.key === "?") keys.showModal();
  const field = event.key === "/" && [...main.querySelectorAll("input[type=search]")].find((one) => one.offsetParent);
  if (!field) return;
  event.preventDefault();
  field.focus();
});

// -- the beginning ------------------------------------------------------------------------------------------------------

whenTokenChanges(show);
whenTriedAgain(() => refresh());
addEventListener("hashchange", () => {
  shared.linkFailed(null);
  show();
  if (location.hash !== "#main") main.focus({ preventScroll: true });
});
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) refresh();
});
show();
