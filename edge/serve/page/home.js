// The page of a person at home: a list of conversations, instructions, settings.
import * as box from "./box.js";
import { all, browser, create, read, save, store } from "./conversations.js";
import { begin, hooks, model, settings } from "./model.js";
import { $, button, make } from "./nodes.js";
import { cancelEdit, end, face, fill, leave, live, resume, show, state, trouble, unsent } from "./talk.js";
import { WORDS } from "./words.js";

const text = $("text"), WIDE = matchMedia("(min-width: 64rem)");
const FULL = "This browser has no room for more: what you write now is gone when this tab is closed. Delete a "
  + "conversation, or save it as a file.";
const STATES = { unreachable: "not reachable", loading: "getting ready…", busy: "busy", key: "asks for a key",
  wrong_key: "wrong key", failed: "could not be started" };
const FIELDS = ["temperature", "most", "key"]; // of all conversations
const own = { // of this tab: which conversation it shows
  get() { try { return sessionStorage.getItem("bitnet-edge.open"); } catch { return null; } },
  set(id) { try { sessionStorage.setItem("bitnet-edge.open", id); } catch { /* it is off */ } },
};
const isNew = conversation => !conversation.stamp;
const draft = conversation => "draft." + (isNew(conversation) ? "new" : conversation.id);
let deleted; // {conversation, typed}: what was deleted last, and what was in its box

// ---- conversations ----
face.tools = true;
face.store = conversation => {
  const wasNew = isNew(conversation), here = conversation === state.conversation;
  if (deleted?.conversation === conversation) return;
  if (conversation.turns.length || conversation.instructions) {
    if (!store(conversation)) trouble(FULL);
    if (wasNew) browser.remove("draft.new");
    if (here) own.set(conversation.id);
  } else if (!wasNew) { // its only question was refused
    browser.remove("conversation." + conversation.id);
    Object.assign(conversation, { title: "", stamp: undefined });
  }
  if (here) keepDraft();
  list();
  facts();
};
face.measured = speed => { $("speed").textContent = speed ? speed.toFixed(speed < 100 ? 1 : 0) + " tokens/s" : ""; };
face.failed = why => {
  if (why.endsWith("key")) openSettings("key", why);
  if (why === "instructions") openSettings("instructions", why);
};
face.empty = () => make("div", { id: "empty" }, make("h2", {}, "What would you like to know?"),
  make("p", {}, `A machine answers${model.name ? ` (${model.name})` : ""}. It may be wrong: check what matters.`),
  make("p", {}, "Your messages go to the computer that serves this page, and nowhere else. Conversations are kept in "
    + "this browser."));
function keepDraft(now = unsent()) {
  const name = draft(state.conversation);
  if (now) browser.set(name, now); else browser.remove(name);
}
function open(conversation, typed = browser.get(draft(conversation))) { // typed: what is in the box, as of unsent()
  if (!face.continues) conversation.instructions = ""; // they are locked
  show(conversation);
  own.set(conversation.id);
  resume(typed);
  if (browser.full) trouble(FULL);
  $("speed").textContent = "";
  list();
  facts();
}
function another(conversation, typed) { // in place of the one that is shown
  keepDraft();
  open(conversation, typed);
}
$("fresh").onclick = () => { // what is in the box goes along
  const now = unsent(), there = isNew(state.conversation) ? null : browser.get("draft.new");
  keepDraft(now?.before ? { words: now.before } : null);
  open(create(), { words: [there?.words, now?.words].filter(each => each).join("\n\n") });
  $("status").textContent = "New conversation.";
  if (!WIDE.matches) fold(true);
  text.focus();
};
function forget(conversation) {
  deleted = { conversation, typed: unsent() };
  browser.remove("conversation." + conversation.id);
  browser.remove(draft(conversation));
  end("left");
  open(create(), null);
  $("undo-words").textContent = `“${titled(conversation)}” was deleted.`;
  $("undone").hidden = false;
  if (!WIDE.matches) fold(true);
  $("undo").focus();
}
$("undo").onclick = () => {
  const { conversation, typed } = deleted;
  $("undone").hidden = true;
  deleted = null;
  store(conversation);
  another(conversation, typed);
};
$("undo-close").onclick = () => { $("undone").hidden = true; };

// ---- the list ----
const titled = conversation => conversation.title || "New conversation";
function list() {
  const held = document.activeElement?.closest?.("#list li")?.dataset.id, found = all();
  const names = JSON.stringify([state.conversation.id, found.map(({ id, title }) => [id, title, !!live(id)])]);
  if (renaming || names === listed) return;
  listed = names;
  $("list").replaceChildren(...found.map(conversation => {
    const here = conversation.id === state.conversation.id;
    const date = new Date(conversation.changed).toLocaleDateString(undefined, { dateStyle: "medium" });
    const title = button(titled(conversation), () => {
      if (!here) another(live(conversation.id) ?? read(conversation.id) ?? conversation);
      if (!WIDE.matches) fold(true);
    }, { class: "title", dir: "auto", ...(here && { "aria-current": "true" }) });
    title.append(make("small", {}, live(conversation.id) ? "answering…" : date));
    const item = make("li", { "data-id": conversation.id }, title);
    if (here) {
      item.append(make("div", { class: "actions" },
        button("Rename", () => rename(item)),
        ...[["md", "Markdown"], ["json", "JSON"]].map(([kind, name]) => button(name, () => save(state.conversation, kind),
          { "aria-label": `Save as ${name}`, title: `Save as ${name}` })),
        button("Delete", () => forget(state.conversation))));
    }
    return item;
  }));
  if (!$("list").children.length) $("list").append(make("li", { class: "none" }, "None yet."));
  reach();
  if (held) $("list").querySelector(`[data-id="${held}"] button`)?.focus();
}
function reach() { $("list").querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" }); }
let renaming = false, listed;
function rename(item) {
  const { conversation } = state, field = make("input", { "aria-label": "Title", maxlength: 200 });
  field.value = conversation.title;
  renaming = true;
  item.querySelector(".title").replaceWith(field);
  field.focus();
  field.select();
  const done = keep => {
    if (!renaming) return;
    renaming = false;
    listed = null;
    if (keep && field.value.trim()) { conversation.title = field.value.trim(); face.store(conversation); }
    list();
    $("list").querySelector("[aria-current]")?.focus();
  };
  field.onkeydown = event => {
    if (event.isComposing) return;
    if (event.key === "Enter") done(true);
    if (event.key === "Escape") { event.stopPropagation(); done(false); }
  };
  field.onblur = () => done(true);
}
function fold(on) {
  $("side").hidden = on;
  reach();
  $("unfold").setAttribute("aria-expanded", String(!on));
}
$("unfold").onclick = () => {
  fold(!$("side").hidden);
  if (WIDE.matches) browser.set("folded", $("side").hidden);
  if (!$("side").hidden) $("list").querySelector("button")?.focus();
};
$("side").addEventListener("keydown", event => {
  if (event.key !== "Escape" || WIDE.matches) return;
  event.stopPropagation();
  fold(true);
  $("unfold").focus();
});
$("shade").onclick = () => fold(true);
WIDE.addEventListener("change", () => fold(!WIDE.matches || !!browser.get("folded")));

addEventListener("storage", event => { // another tab has changed something
  list();
  const there = read(state.conversation.id);
  if (!there || state.running || event.key !== "bitnet-edge.conversation." + there.id
    || there.stamp === state.conversation.stamp) return;
  const typed = unsent();
  show(there);
  resume(typed);
  facts();
});

// ---- how full the context is, and what the model was told ----
function facts() {
  const { used, instructions } = state.conversation, full = model.n_ctx ? Math.min(1, used / model.n_ctx) : 0;
  $("gauge").hidden = !full;
  $("context").value = full;
  $("gauge").title = `The model keeps ${model.n_ctx} tokens (parts of words) in mind; ${Math.round(used)} are used. `
    + "When it is full, it no longer sees the oldest questions.";
  $("full").textContent = Math.round(100 * full) + " %";
  $("told")?.remove();
  const told = instructions.trim();
  if (told) $("talk").prepend(make("p", { id: "told", dir: "auto", title: told }, `Instructions: ${told}`));
}

// ---- settings ----
function openSettings(field, why) {
  $("settings-note").textContent = { wrong_key: "Wrong key.", instructions: WORDS.instructions }[why] ?? "";
  if (!$("settings").open) {
    for (const id of FIELDS) $(id).value = settings[id];
    if ($("instructions")) $("instructions").value = state.conversation.instructions;
    $("settings").returnValue = "";
    $("settings").showModal();
  }
  ($(field) ?? $("temperature")).focus();
}
$("open").onclick = () => openSettings("instructions");
$("settings").addEventListener("close", () => { // by Done, or by Cancel or Escape, which change nothing
  if ($("settings").returnValue) {
    for (const id of FIELDS) settings[id] = $(id).value;
    browser.set("settings", settings);
    const { conversation } = state, instructions = $("instructions")?.value ?? "";
    if (instructions !== conversation.instructions) {
      conversation.instructions = instructions;
      face.store(conversation);
    }
  }
  begin();
});

$("unchanged").onclick = cancelEdit;

// locked: the instructions are those of whoever runs the server.
export function start(locked) {
  if (locked) $("of-instructions").remove();
  face.continues = !locked;
  for (const id of FIELDS) settings[id] = String(browser.get("settings")?.[id] ?? "");
  hooks.state = why => {
    $("about").textContent = why ? STATES[why] ?? "" : model.about;
    if (why) return;
    $("name").textContent = document.title = model.name;
    $("empty")?.replaceWith(face.empty());
    facts();
  };
  hooks.key = why => openSettings("key", why);
  box.begin(true);
  text.addEventListener("input", () => keepDraft());
  for (const each of ["beforeunload", "pagehide"]) addEventListener(each, leave);
  const typed = text.value ? { words: text.value } : undefined; // before this ran
  open(read(own.get()) ?? create(), typed);
  fold(!WIDE.matches || !all().length || !!browser.get("folded"));
  if (!matchMedia("(pointer: coarse)").matches) text.focus();
  begin();
}
