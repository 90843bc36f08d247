// The page: its panels, its colours, its token, and whether the service answers.

import { mark, say } from "./dom.js";
import { plural } from "./format.js";
import { FleetPanel } from "./fleet.js";
import { LatticePanel } from "./lattice.js";
import { PlaygroundPanel } from "./playground.js";
import { Rates } from "./rates.js";
import { RequestsPanel } from "./requests.js";
import { setToken, token } from "./service.js";
import { Store } from "./store.js";

const byId = (id) => document.getElementById(id);
const store = new Store();
const panels = {
  lattice: new LatticePanel(byId("panel-lattice"), store, notify),
  requests: new RequestsPanel(byId("panel-requests"), store),
  fleet: new FleetPanel(byId("panel-fleet"), store, notify),
  playground: new PlaygroundPanel(byId("panel-playground"), store, notify),
};

// --- Panels ---------------------------------------------------------------------------------------

let shown = "";
// What each panel has not shown yet, since only the visible one is drawn.
const missed = Object.fromEntries(Object.keys(panels).map((name) => [name, {}]));

function show() {
  const wanted = location.hash.slice(1);
  // Another hash is that of the link that skips the head.
  shown = wanted in panels ? wanted : shown || "lattice";
  for (const name of Object.keys(panels)) byId(`panel-${name}`).hidden = name !== shown;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${shown}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  draw();
}

function draw() {
  if (document.hidden) return;
  const touched = missed[shown];
  missed[shown] = {};
  panels[shown].update(touched);
}

let planned = false;

store.listen((touched) => {
  for (const waiting of Object.values(missed)) {
    for (const [section, keys] of Object.entries(touched)) {
      waiting[section] ??= new Set();
      for (const key of keys) waiting[section].add(key);
    }
  }
  tellState();
  if (planned) return;
  planned = true;
  requestAnimationFrame(() => {
    planned = false;
    draw();
  });
});
addEventListener("hashchange", () => {
  show();
  byId("main").focus({ preventScroll: true });
});
document.addEventListener("visibilitychange", draw);

// --- Who is asked, and whether it answers ---------------------------------------------------------

function tellState() {
  const status = byId("status");
  mark(status, "data-state", store.state);
  byId("token-button").hidden = !token() && store.state !== "refused";
  if (store.state === "live") {
    const who = store.client.client ? ` as ${store.client.client}${store.client.operator ? ", operator" : ""}` : "";
    say(status, `Live${who}: ${plural(store.models.size, "model")}, ${plural(store.workers.size, "worker")}`);
  } else if (store.state === "refused") {
    say(status, "A token is needed");
    askForToken();
  } else {
    say(status, `No connection${store.why ? `: ${store.why}` : ""}. Trying again…`);
  }
}

let tried = false;

function askForToken() {
  const dialog = byId("token-dialog");
  say(byId("token-error"), tried ? "The service does not know this token." : "");
  if (!dialog.open) dialog.showModal();
}

byId("token-dialog").addEventListener("close", () => {
  const input = byId("token");
  if (!input.value) return;
  setToken(input.value.trim());
  input.value = "";
  tried = true;
  dispatchEvent(new Event("token"));
});
byId("token-button").addEventListener("click", () => {
  if (store.state === "refused") return askForToken();
  setToken("");
  return location.reload();
});

// --- Colours --------------------------------------------------------------------------------------

const THEMES = { auto: ["Auto", "as the system has them"], light: ["Light", "light"], dark: ["Dark", "dark"] };
const theme = byId("theme");

function setTheme(name) {
  const [label, help] = THEMES[name];
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  localStorage.setItem("shaperouter.theme", name);
  theme.textContent = label;
  theme.setAttribute("aria-label", `Colours: ${help}`);
}

theme.addEventListener("click", () => {
  const names = Object.keys(THEMES);
  const now = document.documentElement.dataset.theme ?? "auto";
  setTheme(names[(names.indexOf(now) + 1) % names.length]);
});
const stored = localStorage.getItem("shaperouter.theme");
setTheme(stored in THEMES ? stored : "auto");

// --- Notices --------------------------------------------------------------------------------------

let fading = 0;

function notify(text, isError = false) {
  const notice = byId("notice");
  notice.textContent = text;
  notice.classList.toggle("bad", isError);
  notice.classList.add("shown");
  clearTimeout(fading);
  fading = setTimeout(() => notice.classList.remove("shown"), isError ? 12000 : 6000);
}

new Rates(byId("rates"), store);
show();
store.follow();
