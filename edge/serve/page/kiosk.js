// The page in front of visitors (serve --kiosk): no settings, no list, and nothing of one visitor is left for the next.
import * as box from "./box.js";
import { create } from "./conversations.js";
import { begin, hooks, model } from "./model.js";
import { $, button, make } from "./nodes.js";
import { face, fill, say, show, state } from "./talk.js";
import { WORDS, filled } from "./words.js";

const WARNING = 15; // seconds before everything is gone, in which it can be kept
let kiosk, touched = Date.now();

face.empty = () => make("div", { id: "empty" },
  ...(kiosk.greeting ? [make("p", { class: "greeting", dir: "auto" }, kiosk.greeting)] : []),
  make("div", { class: "suggestions" }, ...kiosk.suggestions.map(each => button(each, () => {
    if (!state.running) { $("text").value = ""; say(each); }
  }, { dir: "auto" }))));

function forget() {
  const old = $("text");
  old.replaceWith(old.cloneNode()); // a new one has no history that could be undone
  show(create());
  fill("");
  $("status").textContent = "";
  if ($("there").open) $("there").close();
}
const nothing = () => !state.conversation.turns.length && !$("text").value;

// Once a second, by the clock: a device may have slept meanwhile.
function look() {
  if (state.running) touched = Date.now();
  const left = kiosk.idle_seconds - (Date.now() - touched) / 1000;
  if (nothing()) return;
  if (left <= 0) { forget(); return; }
  if (left > Math.min(WARNING, kiosk.idle_seconds / 2)) return;
  $("gone").textContent = filled(WORDS.gone, { n: Math.ceil(left) });
  if (!$("there").open) $("there").showModal();
}
function stay() {
  touched = Date.now();
  if ($("there").open) $("there").close();
}

export function start(config) {
  kiosk = config;
  for (const node of document.querySelectorAll("[data-words]")) node.textContent = WORDS[node.dataset.words];
  $("text").placeholder = WORDS.question;
  $("text").maxLength = kiosk.longest_question;
  document.title = $("name").textContent = kiosk.title;
  hooks.named = () => { $("wrong").textContent = filled(WORDS.wrong, { model: model.name }); };
  for (const each of ["pointerdown", "keydown", "input", "wheel"]) addEventListener(each, stay, { passive: true });
  addEventListener("pagehide", forget); // a page that is shown again, as it was, shows nothing
  for (const each of ["contextmenu", "dragstart", "dragover", "drop"]) {
    addEventListener(each, event => event.preventDefault());
  }
  $("over").onclick = forget;
  $("there").onclose = stay;
  box.begin(false);
  show(create());
  setInterval(look, 1000);
  begin();
}
