// A conversation on the screen: its turns, and the answer that is being written.
import { messages, variant } from "./conversations.js";
import { markdown } from "./markdown.js";
import { Call, Failure, begin, limits, model, readNothing, settings } from "./model.js";
import { $, button, make, morph, sleep } from "./nodes.js";
import { WORDS, filled } from "./words.js";

const talk = $("talk"), main = $("main"), text = () => $("text");
const CUT = ["length", "timeout", "cancelled", "stopped", "left", "lost"]; // can be continued
const WANTED = ["stopped", "left", "unanswered"]; // by the visitor: no fault

// What the faces of the page add.  store(): the conversation has changed; failed(why): there is no answer;
// empty(): what is shown before the first question; tools: what can be done with an answer is shown; continues: the
// server goes on with an answer, which it refuses where instructions are locked.
export const face = { store() {}, empty: () => "", tools: false, continues: false, failed() {} };
export const state = { conversation: null, running: null, editing: null };
let views = [];

export const touch = matchMedia("(pointer: coarse)"); // where the focus may bring up a keyboard

// ---- one turn ----
class View {
  constructor(turn) {
    this.turn = turn;
    this.question = make("div", { class: "words" });
    this.text = make("div", { class: "text" });
    this.note = make("p", { class: "note" });
    this.hands = make("div", { class: "hands" });
    this.own = make("div", { class: "hands" });
    const said = who => make("span", { class: "visually-hidden" }, who + " ");
    this.box = make("article", { class: "say assistant" }, said(WORDS.answer), this.text, this.note, this.hands);
    talk.append(make("article", { class: "say user" }, said(WORDS.you), this.question, this.own), this.box);
    this.show();
  }
  get variant() { return variant(this.turn); }
  get last() { return views.at(-1) === this; }
  get runs() { return state.running?.view === this; }
  wait(words) { this.note.textContent = $("status").textContent = words; }
  later() { this.due ??= requestAnimationFrame(() => { this.due = null; this.paint(); }); }
  show() { // another variant
    this.question.textContent = this.variant.question;
    this.text.replaceChildren();
    this.thought?.closest("details")?.remove();
    this.from = this.done = 0; // where the last block begins in the text, and how many nodes come before it
    this.paint();
  }
  paint() {
    const { content, thought, ended } = this.variant.answer;
    if (thought) {
      this.thought ??= make("span");
      if (!this.thought.isConnected) this.text.before(make("details", {}, make("summary", {}, WORDS.thoughts), this.thought));
      morph(this.thought, make("span", {}, thought));
    }
    const rest = content.slice(this.from), found = markdown(rest, this.runs);
    found.forEach(({ node }, i) => {
      const old = this.text.childNodes[this.done + i];
      if (old) morph(old, node); else this.text.append(node);
    });
    while (this.text.childNodes.length > this.done + found.length) this.text.lastChild.remove();
    if (found.length > 1) { // only the last block can still change
      this.done += found.length - 1;
      this.from += rest.split("\n", found.at(-1).line).join("\n").length + 1;
    }
    if (this.runs) return;
    const why = this.trouble ?? (!content && ended === "left" ? "unanswered" : ended);
    this.note.textContent = this.detail ?? WORDS[why] ?? "";
    this.box.classList.toggle("failed", !WANTED.includes(why) && (!content || !!this.trouble));
    this.tools();
  }
  tools() { // what can be done with this turn now
    const free = this.last && !state.running, { content, ended } = this.variant.answer, found = [], own = [];
    if (face.tools && content) found.push(["Copy", node => copy(content, node)]);
    if (face.continues && free && content && CUT.includes(ended)) found.push(["Continue", () => answer(this)]);
    if (free && !content) found.push([WORDS.again, () => another(this, this.variant.question)]);
    if (face.tools && free && content) found.push(["Another answer", () => another(this, this.variant.question)]);
    const { shown, variants } = this.turn;
    if (face.tools && free && variants.length > 1) {
      found.push(["Previous", () => this.turnTo(shown - 1), shown > 0], [`${shown + 1}/${variants.length}`],
        ["Next", () => this.turnTo(shown + 1), shown + 1 < variants.length]);
    }
    if (face.tools && free) own.push(["Edit", () => edit(this, this.variant.question)]);
    for (const [hands, all] of [[this.hands, found], [this.own, own]]) {
      const names = all.map(([name, , on]) => name + on).join();
      if (names === hands.dataset.names) continue; // so that none loses the focus
      hands.dataset.names = names;
      const held = hands.contains(document.activeElement) && document.activeElement.textContent;
      hands.replaceChildren(...all.map(([name, act, on = true]) =>
        act ? button(name, act, on ? {} : { disabled: "" }) : make("span", {}, name)));
      if (held) [...hands.querySelectorAll("button:enabled")].find(each => each.textContent === held)?.focus();
    }
  }
  turnTo(n) {
    this.turn.shown = n;
    this.trouble = this.detail = null;
    this.show();
    face.store();
    $("status").textContent = `${n + 1}/${this.turn.variants.length}`;
  }
}
const fresh = question => ({ question, answer: { content: "" } });

// Show a conversation in place of the one that is shown.
export function show(conversation) {
  leave();
  end("left");
  state.running = null;
  cancelEdit();
  readNothing();
  if ($("send").hidden) busy(false);
  state.conversation = conversation;
  views = [];
  talk.replaceChildren();
  trouble("");
  for (const turn of conversation.turns) {
    const { answer } = variant(turn);
    if (!answer.ended) answer.ended = "left";
    views.push(new View(turn));
  }
  if (!views.length) talk.append(face.empty());
  slid();
  tools();
  following = true;
  follow();
}
function tools() { for (const each of views) each.tools(); }
function slid() { // the line from which on the model sees the conversation
  talk.querySelector(".slid")?.remove();
  const { from } = state.conversation;
  const first = views[from]?.box.previousSibling;
  if (from && first) first.before(make("p", { class: "slid" }, WORDS.slid));
}
export function trouble(words) { $("trouble").textContent = words; }

// ---- asking ----
export function say(question) {
  if (state.editing) {
    const view = state.editing;
    cancelEdit();
    return another(view, question);
  }
  const turn = { variants: [fresh(question)], shown: 0 };
  state.conversation.turns.push(turn);
  $("empty")?.remove();
  views.push(new View(turn));
  return answer(views.at(-1));
}
function another(view, question) { // another answer, beside the one that is there
  const { turn } = view;
  if (!view.variant.answer.content && question === view.variant.question) {
    view.variant.answer = { content: "" };
  } else {
    turn.variants.push(fresh(question));
    turn.shown = turn.variants.length - 1;
  }
  return answer(view, true);
}
const size = said => said.reduce((n, { content }) => n + content.length, 0);

// Write the answer of a turn, or go on with the one that is there.
async function answer(view, again) {
  const { conversation } = state, { turn } = view, n = conversation.turns.indexOf(turn), begun = Date.now();
  const { variant: one } = view, written = one.answer;
  const said = () => [...messages(conversation, n), { role: "user", content: one.question },
    ...(written.content ? [{ role: "assistant", content: written.content }] : [])];
  const slide = () => { // leave out the oldest turns until at most half is sent; returns whether there were any
    const { from } = conversation, before = size(said());
    while (conversation.from < n && (conversation.from === from || size(said()) > before / 2)) conversation.from++;
    conversation.used *= size(said()) / before;
    slid();
    return conversation.from > from;
  };
  const call = state.running = Object.assign(new Call(), { view });
  view.trouble = view.detail = null;
  trouble("");
  if (again) view.show();
  tools();
  busy(true);
  following = true;
  view.box.classList.remove("failed");
  view.wait(WORDS.thinking);
  follow();
  // about two characters are a token; where that is wrong, the model says so, and is asked again
  if (model.n_ctx && conversation.used + one.question.length / 2 > model.n_ctx * 7 / 8) slide();
  face.store();
  let why, detail, last = Date.now(), wrote = false;
  for (let goes = true; goes;) {
    goes = false;
    why = undefined;
    try {
      for await (const piece of call.pieces(said(), (name, seconds) => view.wait(waiting(name, seconds)))) {
        if (piece.usage) measured(conversation, piece);
        why = piece.ended ?? why;
        if (!piece.content && !piece.thought) continue;
        wrote = true;
        delete written.ended;
        written.model = model.name;
        if (piece.content) view.note.textContent = "";
        written.content += piece.content ?? "";
        if (piece.thought) written.thought = (written.thought ?? "") + piece.thought;
        view.later();
        if (Date.now() - last > 1000) { last = Date.now(); face.store(); }
      }
      if (!why) throw new Failure("lost", "the answer has no end");
      goes = why === "context_full" && (face.continues || !written.content) && slide();
      if (goes && !written.content) delete written.thought;
    } catch (error) {
      why = error.why;
      goes = why === "too_long" && slide();
      if (goes) continue;
      if (why === "refused") detail = error.message.replace(/^403 /, "");
      if (!call.why) await sleep(400 - (Date.now() - begun)); // whoever tries again sees that it was tried
    }
  }
  if (state.running !== call) { // another conversation is shown meanwhile
    written.ended ??= "left";
    return;
  }
  state.running = null;
  if (!wrote && !written.content && why in { stop: 1, length: 1 }) why = "empty";
  if (why === "too_long" && conversation.instructions.length > size(said()) / 2) why = "instructions";
  ended(view, one, why, detail, wrote);
}
function waiting(name, seconds) {
  if (name !== "queue") return WORDS["wait_" + name];
  return seconds < 90 ? filled(WORDS.wait_seconds, { n: Math.ceil(seconds / 5) * 5 })
    : filled(WORDS.wait_minutes, { n: Math.ceil(seconds / 60) });
}
function measured(conversation, { usage: { completion_tokens, total_tokens }, seconds }) {
  conversation.used = total_tokens;
  face.measured?.(seconds > 0 && completion_tokens > 1 ? (completion_tokens - 1) / seconds : 0);
}
// The answer has ended.  A question that was refused goes back to where it was typed.
function ended(view, one, why, detail, wrote) {
  const { turn } = view, { turns } = state.conversation, { content } = one.answer;
  view.detail = detail && `${WORDS.refused} (${detail})`;
  if (wrote || !content) one.answer.ended = why;
  else view.trouble = why;
  if (!content && turn.variants.length > 1) { // back to the one that was there
    turn.variants.splice(turn.variants.indexOf(one), 1);
    turn.shown = turn.variants.length - 1;
    view.trouble = why;
    view.show();
    if (one.question !== view.variant.question && !text().value) edit(view, one.question);
  } else if (["too_long", "instructions"].includes(why) && !content && !text().value) {
    turns.splice(turns.indexOf(turn), 1);
    views.splice(views.indexOf(view), 1);
    view.box.previousSibling.remove();
    view.box.remove();
    state.conversation.from = Math.min(state.conversation.from, turns.length);
    if (!views.length) talk.append(face.empty());
    text().value = one.question;
    text().dispatchEvent(new Event("input", { bubbles: true }));
    trouble(WORDS[why]);
  } else view.paint();
  busy(false);
  tools();
  face.store();
  $("status").textContent = [view.text.innerText.replace(/^Copy$/gm, ""), view.note.textContent].join("\n").trim();
  if (!content || view.trouble || why === "lost") { face.failed(why); begin(); }
  if (text().value) text().dispatchEvent(new Event("input", { bubbles: true }));
}

// ---- changing the last question ----
let held = ""; // what was in the box before
function edit(view, question) {
  held = state.editing ? held : text().value;
  state.editing = view;
  $("editing").hidden = false;
  fill(question);
  text().focus();
}
export function cancelEdit() {
  if (!state.editing) return; // as always in a kiosk
  state.editing = null;
  $("editing").hidden = true;
  fill(held);
}
export function fill(words) {
  text().value = words;
  text().dispatchEvent(new Event("input", { bubbles: true }));
}

let turned = 0; // when Send and Stop, which stand at one place, changed last
export const twice = click => click.timeStamp - turned < 400; // it is the second of a double click
function busy(on) { // whoever has pressed a button that is gone goes on where it makes sense
  if ($("send").hidden !== on) turned = performance.now();
  const held = [document.body, $("send"), $("stop")].includes(document.activeElement);
  $("send").hidden = on; $("stop").hidden = !on;
  if (held && !touch.matches) (on ? $("stop") : text()).focus({ preventScroll: true });
}
export function end(why) { state.running?.end(why); }
// Before the browser ends the requests of this page, which is no fault.
export function leave() {
  if (!state.running) return;
  const { view: { variant: { answer } }, came } = state.running;
  if (came || !answer.content) answer.ended = "left";
  state.running.why ??= "left";
  face.store();
}

// ---- what is in sight: the end, while anything grows (an answer, the keyboard of a phone), until somebody scrolls up;
// else the place that was read, also where a narrower window makes the lines above it longer ----
let following = true, before = 0, place = null, width = 0;
function follow() {
  if (main.clientWidth !== width && !following && place?.node.isConnected) {
    main.scrollTop += place.node.getBoundingClientRect().top - main.getBoundingClientRect().top - place.top;
  }
  width = main.clientWidth;
  if (following) main.scrollTop = main.scrollHeight;
  atEnd();
}
function atEnd() {
  const end = main.scrollHeight - main.scrollTop - main.clientHeight < 40;
  $("end").hidden = end;
  return end;
}
main.addEventListener("scroll", () => {
  following = atEnd() || (following && main.scrollTop >= before);
  before = main.scrollTop;
  if (main.clientWidth !== width) return; // the browser did it, not the reader
  const { top } = main.getBoundingClientRect();
  for (const node of talk.querySelectorAll(".words, .text > *")) { // the first that is in sight
    const { top: at, bottom } = node.getBoundingClientRect();
    if (bottom > top) { place = { node, top: at - top }; break; }
  }
});
const sizes = new ResizeObserver(follow);
for (const each of [main, talk]) sizes.observe(each);
$("end").onclick = () => { following = true; follow(); text().focus({ preventScroll: true }); };

talk.addEventListener("click", event => { // the buttons of code
  const node = event.target.closest("button.copy");
  if (node) copy(node.closest("figure").querySelector("code").textContent, node);
});
async function copy(content, node) {
  try { await navigator.clipboard.writeText(content); } catch { // there is none for pages that come without encryption
    const box = make("textarea", { class: "visually-hidden" });
    box.value = content;
    document.body.append(box);
    box.select();
    document.execCommand("copy");
    box.remove();
    node.focus({ preventScroll: true });
  }
  node.textContent = $("status").textContent = "Copied";
  setTimeout(() => { node.textContent = "Copy"; }, 2000);
}
