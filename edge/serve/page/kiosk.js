// The page in front of visitors (serve --kiosk): no settings, no list, and nothing of one visitor is left for the next.
import * as box from "./box.js";
import { create } from "./conversations.js";
import { begin, hooks, model } from "./model.js";
import { $, button, make } from "./nodes.js";
import { end, face, fill, say, show, state, trouble } from "./talk.js";
import { WORDS, filled } from "./words.js";

const WARNING = 15; // seconds before everything is gone, in which it can be kept
const REFRESH = 60; // seconds between two looks at whether the operator has changed the kiosk
let kiosk, touched, looks = 0;

// By both clocks: one is set back or forth, the other one stands still while a device sleeps.
function touch() { touched = { date: Date.now(), time: performance.now() }; }
const idle = () => Math.max(Date.now() - touched.date, performance.now() - touched.time) / 1000;

face.empty = () => make("div", { id: "empty" },
  ...(kiosk.greeting ? [make("p", { class: "greeting", dir: "auto" }, kiosk.greeting)] : []),
  make("div", { class: "suggestions" }, ...kiosk.suggestions.map(each => button(each, () => {
    if (!state.running) { $("text").value = ""; say(each); }
  }, { dir: "auto" }))));

function forget() {
  const old = $("text");
  old.replaceWith(old.cloneNode()); // a new one has no history that could be undone
  end("left");
  show(create());
  fill("");
  $("status").textContent = "";
  if ($("there").open) $("there").close();
}
const nothing = () => !state.conversation.turns.length && !$("text").value;

// Once a second.
function look() {
  if (state.running) touch();
  const left = kiosk.idle_seconds - idle(), warns = !nothing() && left <= Math.min(WARNING, kiosk.idle_seconds / 2);
  if (nothing()) { if (++looks % REFRESH === 0) refresh(); } else if (left <= 0) { forget(); return; }
  if (!warns) { $("there").close(); return; }
  $("gone").textContent = filled(WORDS.gone, { n: Math.ceil(left) });
  if (!$("there").open) $("there").showModal();
}
async function refresh() {
  try {
    const response = await fetch("", { headers: { Accept: "text/html" } });
    const changed = response.ok && !(await response.text()).includes($("config").textContent);
    if (changed && nothing()) location.reload();
  } catch { /* the server is not there */ }
}
function answers(why) { // who answers, or why nobody does
  const name = model.name ? ` (${model.name})` : "", wrong = WORDS.wrong.replace(" ({model})", name);
  $("wrong").textContent = why ? `${WORDS["wait_" + why] ?? WORDS[why] ?? WORDS.broken} ${wrong}` : wrong;
}

export function start(config) {
  kiosk = config;
  touch();
  for (const node of document.querySelectorAll("[data-words]")) node.textContent = WORDS[node.dataset.words];
  for (const node of document.querySelectorAll("[data-label]")) node.ariaLabel = WORDS[node.dataset.label];
  $("text").placeholder = WORDS.question;
  $("text").maxLength = kiosk.longest_question;
  document.title = $("name").textContent = kiosk.title;
  answers();
  hooks.state = answers;
  for (const each of ["pointerdown", "keydown", "input", "wheel"]) addEventListener(each, touch, { passive: true });
  addEventListener("input", () => {
    const most = kiosk.longest_question;
    if ($("text").value.length >= most) trouble(filled(WORDS.most, { n: most }));
  });
  addEventListener("pagehide", forget); // a page that is shown again, as it was, shows nothing
  for (const each of ["contextmenu", "dragstart", "dragover", "drop"]) {
    addEventListener(each, event => event.preventDefault());
  }
  $("over").onclick = forget;
  // not with the touch or key itself, whose click would then be one of what lies below
  $("there").onclick = $("there").onkeyup = () => $("there").close();
  box.begin(false);
  show(create());
  setInterval(look, 1000);
  begin();
}
