// The box where a question is typed.
import { messages } from "./conversations.js";
import { readAhead, readNothing } from "./model.js";
import { $ } from "./nodes.js";
import { cancelEdit, end, say, state, touch, trouble, twice } from "./talk.js";
import { WORDS } from "./words.js";

const text = () => $("text");

function grow() {
  text().style.height = "auto";
  if (text().value.length > 20_000) return; // the browser takes seconds to lay it out
  text().style.height = Math.min(text().scrollHeight + 2, innerHeight * .4) + "px";
}
function asked(content) { // what would be sent with this question; null while the model has other things to do
  const { conversation, running, editing } = state;
  return running ? null : [...messages(conversation, conversation.turns.length - (editing ? 1 : 0)),
    { role: "user", content }];
}

// newLine: whether Enter on a touch screen begins a new line, as in other chats; elsewhere Shift+Enter does.
export function begin(newLine) {
  const form = $("ask");
  form.onsubmit = event => {
    event.preventDefault();
    const question = text().value.trim();
    if (!question) return;
    if (state.running) { trouble(WORDS.later); return; }
    text().value = "";
    text().dispatchEvent(new Event("input", { bubbles: true }));
    readNothing();
    if (touch.matches) text().blur(); // the keyboard on the screen gives way to the answer
    say(question);
  };
  form.addEventListener("keydown", event => {
    if (event.target !== text() || event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    if (newLine && touch.matches) return;
    event.preventDefault();
    form.requestSubmit();
  });
  form.addEventListener("input", event => {
    if (event.isTrusted) trouble("");
    grow();
    if (text().value) readAhead(() => text().value, asked);
  });
  if (newLine && touch.matches) text().enterKeyHint = "enter";
  $("send").onclick = event => { if (twice(event)) event.preventDefault(); };
  $("stop").onclick = event => { if (!twice(event)) end("stopped"); };
  addEventListener("keydown", event => {
    if (event.key !== "Escape" || document.querySelector("dialog[open]")) return;
    if (state.running) end("stopped"); else cancelEdit();
  });
  addEventListener("resize", grow);
  grow();
}
