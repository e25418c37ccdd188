// Conversations, kept in this browser.
//
// {id, title, changed, stamp, instructions, from, used, turns}: changed in ms; stamp is new each time it is stored;
// from: the first turn that the model still sees; used: tokens of the context after the last answer.
// A turn is a question and its answer, in one or more variants: {variants, shown}; a variant is
// {question, answer: {content, thought, ended, model}}; ended: of WORDS, or stop.

const PREFIX = "bitnet-edge.", CONVERSATION = PREFIX + "conversation.";
const memory = new Map(); // what the browser cannot keep: texts by name, until the tab is closed

// Values by name.  Storing one returns whether the browser keeps it.
export const browser = {
  get(name) {
    try { return JSON.parse(memory.get(name) ?? localStorage.getItem(PREFIX + name)); } catch { return null; }
  },
  set(name, value) {
    const text = JSON.stringify(value);
    memory.delete(name);
    try { localStorage.setItem(PREFIX + name, text); return true; } catch { // it is full, or off
      memory.set(name, text);
      return false;
    }
  },
  remove(name) {
    memory.delete(name);
    try { localStorage.removeItem(PREFIX + name); } catch { /* it is off */ }
    for (const [other, text] of [...memory]) { // there may be room for it now
      try { localStorage.setItem(PREFIX + other, text); memory.delete(other); } catch { /* there is not */ }
    }
  },
  get full() { return memory.size > 0; },
};

const ident = () => Date.now().toString(36) + Math.random().toString(36).slice(2, 8);
export const create = () => ({ id: ident(), title: "", instructions: "", from: 0, used: 0, turns: [] });
export const variant = turn => turn.variants[turn.shown];
export const read = id => checked(browser.get("conversation." + id));
function checked(conversation) { // also what an older page, or somebody, wrote there
  const { id, title, instructions, turns } = conversation ?? {};
  const fine = turn => Array.isArray(turn?.variants) && variant(turn) && turn.variants.every(each =>
    typeof each?.question === "string" && typeof each.answer?.content === "string");
  return [id, title, instructions].every(each => typeof each === "string") && Array.isArray(turns) && turns.every(fine)
    ? conversation : null;
}

// Returns whether the browser keeps it.  What another tab has stored meanwhile stays, and this becomes another one.
export function store(conversation) {
  const there = read(conversation.id);
  if (there && there.stamp !== conversation.stamp) Object.assign(conversation,
    { id: ident(), title: conversation.title + " (2)" });
  conversation.title ||= variant(conversation.turns[0] ?? { variants: [] })?.question.slice(0, 80).trim() ?? "";
  Object.assign(conversation, { stamp: ident(), changed: Date.now() });
  return browser.set("conversation." + conversation.id, conversation);
}

// All of them, the latest first.
export function all() {
  let names = [...memory.keys()].map(name => PREFIX + name);
  try { names.push(...Object.keys(localStorage)); } catch { /* it is off */ }
  const ids = names.filter(name => name.startsWith(CONVERSATION)).map(name => name.slice(CONVERSATION.length));
  return [...new Set(ids)].map(read).filter(each => each).sort((a, b) => b.changed - a.changed);
}

// What is sent to the model before the question of turn n.
export function messages(conversation, n = conversation.turns.length) {
  const { instructions, turns, from } = conversation, said = [];
  if (instructions.trim()) said.push({ role: "system", content: instructions.trim() });
  for (const turn of turns.slice(from, n)) {
    const { question, answer } = variant(turn);
    if (!answer.content) continue; // it was not answered
    said.push({ role: "user", content: question }, { role: "assistant", content: answer.content });
  }
  return said;
}

// ---- as a file ----
function* spoken({ instructions, turns }) {
  if (instructions.trim()) yield { role: "system", content: instructions.trim() };
  for (const turn of turns) {
    const { question, answer } = variant(turn);
    yield { role: "user", content: question };
    if (answer.content) yield { role: "assistant", content: answer.content, model: answer.model };
  }
}
const markdown = conversation => [`# ${conversation.title || "Conversation"}`,
  ...[...spoken(conversation)].map(({ role, content, model }) =>
    `**${{ system: "Instructions", user: "You" }[role] ?? model ?? "Answer"}:**\n\n${content}`)].join("\n\n") + "\n";
const json = conversation => JSON.stringify({
  title: conversation.title, changed: new Date(conversation.changed).toISOString(), messages: [...spoken(conversation)],
}, null, 2) + "\n";

// Have the browser save it; kind: md or json.
export function save(conversation, kind) {
  const text = { md: markdown, json }[kind](conversation), name = conversation.title.replace(/[^\p{L}\p{N}]+/gu, " ");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text]));
  link.download = (name.trim().slice(0, 60) || "conversation") + "." + kind;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
