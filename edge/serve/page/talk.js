// A conversation on the screen: its turns, and the answer that is being written.
import { messages, variant } from "./conversations.js";
import { markdown } from "./markdown.js";
import { Call, Failure, begin, model, readNothing } from "./model.js";
import { $, button, copy, make, morph, sleep } from "./nodes.js";
import { follow, scroll } from "./scroll.js";
import { WORDS, filled } from "./words.js";

const talk = $("talk"), text = () => $("text");
const CUT = ["length", "timeout", "cancelled", "stopped", "left", "lost"]; // can be continued
const WANTED = ["stopped", "left", "unanswered"]; // by the visitor: no fault

// What the faces of the page add.  store(conversation): it has changed; failed(why): there is no answer; measured(n):
// tokens a second; empty(): what is shown before the first question; tools: what can be done with an answer is shown;
// continues: the server goes on with an answer, which it refuses where instructions are locked.
export const face = { store() {}, failed() {}, measured() {}, empty: () => "", tools: false, continues: false };
const calls = []; // of answers that are being written, {conversation, variant, view}; view: null while it is not shown
export const state = {
  conversation: null, editing: null,
  get running() { return calls.find(call => call.conversation === this.conversation); },
};
let views = [];
// The conversation of an id, if its answer is being written.
export const live = id => calls.find(call => call.conversation.id === id)?.conversation;

export const touch = matchMedia("(pointer: coarse)"); // where the focus may bring up a keyboard

// ---- one turn ----
class View {
  constructor(turn) {
    this.turn = turn;
    this.question = make("div", { class: "words" });
    this.text = make("div", { class: "text" });
    this.note = make("p", { class: "note" });
    this.actions = make("div", { class: "actions" });
    this.own = make("div", { class: "actions" });
    const said = who => make("span", { class: "visually-hidden" }, who + " ");
    this.box = make("article", { class: "say assistant" }, said(WORDS.answer), this.text, this.note, this.actions);
    talk.append(make("article", { class: "say user" }, said(WORDS.you), this.question, this.own), this.box);
    this.show();
  }
  get variant() { return variant(this.turn); }
  get last() { return views.at(-1) === this; }
  get runs() { return state.running?.view === this; }
  wait(words) { this.note.textContent = $("status").textContent = words; }
  begin() { // it is being written
    this.box.classList.remove("failed");
    this.wait(this.variant.answer.content ? "" : WORDS.thinking);
    this.paint();
  }
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
      const title = make("summary", {}, WORDS.thoughts);
      if (!this.thought.isConnected) this.text.before(make("details", {}, title, this.thought));
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
    this.box.classList.toggle("running", this.runs);
    if (this.runs) return;
    const why = this.trouble ?? (!content && ended === "left" ? "unanswered" : ended);
    this.note.textContent = this.detail ?? WORDS[why] ?? "";
    this.box.classList.toggle("failed", !WANTED.includes(why) && (!content || !!this.trouble));
    this.tools();
  }
  tools() { // what can be done with this turn now
    const free = this.last && !state.running, { content, ended } = this.variant.answer, found = [], own = [];
    if (face.tools && content && !this.runs) found.push(["Copy", node => copy(content, node)]);
    if (face.continues && free && content && CUT.includes(ended)) found.push(["Continue", () => answer(this)]);
    if (free && !content) found.push([WORDS.again, () => another(this, this.variant.question)]);
    if (face.tools && free && content) found.push(["Another answer", () => another(this, this.variant.question)]);
    const { shown, variants } = this.turn;
    if (face.tools && free && variants.length > 1) {
      found.push(["Previous", () => this.turnTo(shown - 1), shown > 0], [`${shown + 1}/${variants.length}`],
        ["Next", () => this.turnTo(shown + 1), shown + 1 < variants.length]);
    }
    if (face.tools && free) own.push(["Edit", () => edit(this, this.variant.question)]);
    for (const [row, all] of [[this.actions, found], [this.own, own]]) {
      const names = all.map(([name, , on]) => name + on).join();
      if (names === row.dataset.names) continue; // so that none loses the focus
      row.dataset.names = names;
      const held = row.contains(document.activeElement) && document.activeElement.textContent;
      row.replaceChildren(...all.map(([name, act, on = true]) =>
        act ? button(name, act, on ? {} : { disabled: "" }) : make("span", {}, name)));
      if (held) [...row.querySelectorAll("button:enabled")].find(each => each.textContent === held)?.focus();
    }
  }
  turnTo(n) {
    this.turn.shown = n;
    this.trouble = this.detail = null;
    this.show();
    face.store(state.conversation);
    $("status").textContent = `${n + 1}/${this.turn.variants.length}`;
  }
}
const fresh = question => ({ question, answer: { content: "" } });

// Show a conversation in place of the one that is shown; what is being written there goes on.
export function show(conversation) {
  if (state.running) state.running.view = null;
  endEdit();
  readNothing();
  state.conversation = conversation;
  const call = state.running;
  views = [];
  talk.replaceChildren();
  trouble("");
  for (const turn of conversation.turns) {
    const one = variant(turn);
    if (one !== call?.variant) one.answer.ended ??= "left";
    views.push(new View(turn));
    if (one === call?.variant) {
      call.view = views.at(-1);
      call.view.begin();
    }
  }
  if (!views.length) talk.append(face.empty());
  if ($("send").hidden !== !!call) busy(!!call);
  turned = 0;
  slid();
  tools();
  scroll.following = views.length > 0;
  $("main").scrollTop = 0;
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
  const { conversation } = state, { turn, variant: one } = view, written = one.answer, begun = Date.now();
  const n = conversation.turns.indexOf(turn), { from, used } = conversation;
  const call = Object.assign(new Call(), { conversation, variant: one, view });
  const said = () => [...messages(conversation, n), { role: "user", content: one.question },
    ...(written.content ? [{ role: "assistant", content: written.content }] : [])];
  const slide = () => { // leave out the oldest turns until at most half is sent; returns whether there were any
    const first = conversation.from, before = size(said());
    while (conversation.from < n && (conversation.from === first || size(said()) > before / 2)) conversation.from++;
    conversation.used *= size(said()) / before;
    if (call.view) slid();
    return conversation.from > first;
  };
  calls.push(call);
  view.trouble = view.detail = null;
  trouble("");
  if (again) view.show();
  tools();
  busy(true);
  scroll.following = true;
  view.begin();
  view.wait(WORDS.thinking);
  follow();
  // about two characters are a token; where that is wrong, the model says so, and is asked again
  if (model.n_ctx && conversation.used + one.question.length / 2 > model.n_ctx * 7 / 8) slide();
  face.store(conversation);
  let detail, last = Date.now();
  for (let goes = true; goes;) {
    goes = false;
    call.ended = undefined;
    try {
      for await (const piece of call.pieces(said(), (name, seconds) => call.view?.wait(waiting(name, seconds)))) {
        if (piece.usage) measured(call, piece);
        call.ended = piece.ended ?? call.ended;
        if (!piece.content && !piece.thought) continue;
        delete written.ended;
        written.model = model.name;
        if (piece.content && call.view) call.view.note.textContent = "";
        written.content += piece.content ?? "";
        if (piece.thought) written.thought = (written.thought ?? "") + piece.thought;
        call.view?.later();
        if (Date.now() - last > 1000) { last = Date.now(); face.store(conversation); }
      }
      if (!call.ended) throw new Failure("lost", "the answer has no end");
      goes = call.ended === "context_full" && (face.continues || !written.content) && slide();
      if (goes && !written.content) delete written.thought;
    } catch (error) {
      call.ended = error.why;
      goes = error.why === "too_long" && slide();
      if (goes) continue;
      if (error.why === "refused" && face.tools) detail = `${WORDS.refused} (${error.message.replace(/^403 /, "")})`;
      if (!call.why) await sleep(400 - (Date.now() - begun)); // whoever tries again sees that it was tried
    }
  }
  calls.splice(calls.indexOf(call), 1);
  if (!call.came && !written.content && ["stop", "length"].includes(call.ended)) call.ended = "empty";
  if (call.ended === "too_long") { // without the older turns, too: they were not in its way
    Object.assign(conversation, { from, used });
    if (conversation.instructions.length > size(said()) / 2) call.ended = "instructions";
  }
  ended(call, turn, detail);
}
function waiting(name, seconds) {
  if (name !== "queue") return WORDS["wait_" + name];
  return seconds < 90 ? filled(WORDS.wait_seconds, { n: Math.ceil(seconds / 5) * 5 })
    : filled(WORDS.wait_minutes, { n: Math.ceil(seconds / 60) });
}
function measured({ conversation, view }, { usage: { completion_tokens, total_tokens }, seconds }) {
  conversation.used = total_tokens;
  if (view) face.measured(seconds > 0 && completion_tokens > 1 ? (completion_tokens - 1) / seconds : 0);
}
// The answer has ended.  A question that was refused goes back to where it was typed.
function ended(call, turn, detail) {
  const { conversation, variant: one, view, came, ended: why } = call, { content } = one.answer;
  if (came || !content) one.answer.ended = why;
  if (view) Object.assign(view, { detail, trouble: content && !came ? why : null });
  if (!content && turn.variants.length > 1) { // back to the one that was there
    turn.variants.splice(turn.variants.indexOf(one), 1);
    turn.shown = turn.variants.length - 1;
    if (view) {
      view.trouble = why;
      view.show();
      if (one.question !== view.variant.question && !text().value) edit(view, one.question);
    }
  } else if (view && ["too_long", "instructions"].includes(why) && !content && !text().value) {
    conversation.turns.splice(conversation.turns.indexOf(turn), 1);
    show(conversation);
    fill(one.question);
    trouble(filled(WORDS[why], { n: Math.round(model.n_ctx / 200) * 100 }));
  } else view?.paint();
  face.store(conversation);
  if (!view) return;
  busy(false);
  slid();
  tools();
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
function endEdit() {
  if (state.editing) $("editing").hidden = true;
  state.editing = null;
}
export function cancelEdit() {
  if (!state.editing) return;
  endEdit();
  fill(held);
}
// What is in the box and was not sent, {words}; of a question that is being changed {words, before}: what was there
// before.  Null: nothing.
export function unsent() {
  const words = text().value;
  if (state.editing && words && words !== state.editing.variant.question) return { words, before: held };
  const typed = state.editing ? held : words;
  return typed ? { words: typed } : null;
}
// Put it there again.
export function resume(unsent) {
  const changes = unsent?.before !== undefined && views.length && !state.running;
  fill(changes ? unsent.before : unsent?.words ?? "");
  if (changes) edit(views.at(-1), unsent.words);
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
  for (const call of calls) {
    const { conversation, came, variant: { answer } } = call;
    if (came || !answer.content) answer.ended = "left";
    call.why ??= "left";
    face.store(conversation);
  }
}

talk.addEventListener("click", event => { // the buttons of code
  const node = event.target.closest("button.copy");
  if (node) copy(node.closest("figure").querySelector("code").textContent, node);
});
