// The model, as a page asks it over HTTP: who answers, answers in pieces, and why there is none.
import { sleep } from "./nodes.js";

// Numbers that tests change.
export const limits = {
  patience: 120_000, // ms of asking a busy model again
  silence: 60_000, // ms without a byte after which a connection is dead; the server sends some every 15 s
};
export const model = { name: "", about: "", n_ctx: 0 }; // n_ctx: tokens
export const settings = { temperature: "", most: "", key: "" }; // texts, as they are typed

const CODES = { context_length_exceeded: "too_long", too_large: "too_long", loading: "loading", busy: "busy",
  memory: "busy", invalid_api_key: "key", load_failed: "failed", embeddings_only: "no_chat",
  shutting_down: "cancelled" };
const STATUS = { 401: "key", 403: "refused", 413: "too_long", 429: "busy", 502: "unreachable", 503: "busy",
  504: "unreachable" };
const WAITS = ["loading", "busy"];

// why: a name of WORDS.
export class Failure extends Error {
  constructor(why, about = why) { super(about); this.why = why; }
}
async function failure(response) {
  let error;
  try { error = (await response.json()).error; } catch { error = null; }
  const why = CODES[error?.code] ?? STATUS[response.status]
    ?? (["temperature", "max_tokens"].includes(error?.param) ? "settings" : "broken");
  const about = `${response.status} ${error?.message ?? response.statusText}`;
  return new Failure(why === "key" && settings.key ? "wrong_key" : why, about);
}

const headers = () => ({ "Content-Type": "application/json", // which keeps to ASCII, and so does every right key
  ...(/^[ -~]+$/.test(settings.key) && { Authorization: "Bearer " + settings.key }) });
function post(body, signal) {
  const most = settings.most === "" ? {} : { max_tokens: Number(settings.most) };
  const temperature = settings.temperature === "" ? {} : { temperature: Number(settings.temperature) };
  return fetch("v1/chat/completions",
    { method: "POST", headers: headers(), body: JSON.stringify({ ...temperature, ...most, ...body }), signal });
}

// A request for an answer.  why: the reason why it was ended from here; came: something of the answer did.
export class Call {
  constructor() { this.controller = new AbortController(); this.why = null; this.came = false; }
  end(why) { this.why ??= why; this.controller.abort(); }
  alive() { // a connection can break without a word, as when a device loses its power
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.end(this.came ? "lost" : "unreachable"), limits.silence);
  }
  // The pieces of the answer to messages, {content, thought}; at the end {ended, usage, seconds}.  wait(why, seconds)
  // is told while it has not begun.  Raises Failure.
  async* pieces(messages, wait) {
    try {
      const response = await this.#reach({ stream: true, stream_options: { include_usage: true }, messages }, wait);
      const seconds = Number(response.headers.get("x-queue-seconds"));
      if (seconds) wait("queue", seconds);
      for await (const event of this.#events(response.body)) {
        if (event.error) throw new Failure(CODES[event.error.code] ?? "broken", event.error.message);
        if (event.model && event.model !== model.name) begin(); // it was changed
        const [choice] = event.choices ?? [], { content, reasoning_content: thought } = choice?.delta ?? {};
        if (content || thought) { this.came = true; yield { content, thought }; }
        const ended = event.timings?.ended ?? choice?.finish_reason;
        if (ended || event.usage) yield { ended, usage: event.usage, seconds: event.timings?.decode_seconds };
      }
    } catch (error) {
      if (!this.why) console.warn(error);
      throw new Failure(this.why ?? error.why ?? (this.came ? "lost" : "unreachable"), error.message);
    } finally {
      clearTimeout(this.timer);
    }
  }
  async #reach(body, wait) { // the response, once the model has time
    for (const begun = Date.now(); ;) {
      this.alive();
      const response = await post(body, this.controller.signal);
      if (response.ok) return response;
      clearTimeout(this.timer);
      const refused = await failure(response), pause = Number(response.headers.get("Retry-After")) || 2;
      if (!WAITS.includes(refused.why) || Date.now() - begun > limits.patience) throw refused;
      wait(refused.why);
      for (let tenth = 0; tenth < pause * 10 && !this.why; tenth++) await sleep(100);
      if (this.why) throw refused;
    }
  }
  async* #events(stream) {
    const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
    let held = "";
    for (;;) {
      this.alive();
      const { value, done } = await reader.read();
      if (done) return;
      held += value;
      for (let end; (end = held.indexOf("\n\n")) >= 0; held = held.slice(end + 2)) {
        const line = held.slice(0, end);
        if (line.startsWith("data: ") && line !== "data: [DONE]") yield JSON.parse(line.slice(6));
      }
    }
  }
}

// ---- reading ahead: whole words are read before they are sent, one request at a time, while the model is idle ----
const ahead = { pause: 400 }; // ms without a key; longer while the model has other things to do

// messages(content): the conversation with a question that is being written, null while it must not be read.
export function readAhead(content, messages) {
  clearTimeout(ahead.timer);
  ahead.timer = setTimeout(() => read(content, messages), ahead.pause);
}
async function read(content, messages) {
  const words = content().trimStart().replace(/\S*$/, ""), asked = messages(words);
  if (!asked || ahead.controller || words === ahead.read) return;
  ahead.read = words;
  const { signal } = ahead.controller = new AbortController();
  let tokens = 0;
  try {
    const response = await post({ messages: asked, max_tokens: 0, partial: true }, signal);
    if (response.ok) tokens = (await response.json()).usage.prompt_tokens;
  } catch { /* the answer will say what is wrong */ }
  if (signal.aborted) return;
  ahead.controller = null;
  ahead.pause = tokens ? 400 : Math.min(2 * ahead.pause, 30_000);
  readAhead(content, messages); // there may be more by now
}
export function readNothing() {
  clearTimeout(ahead.timer);
  ahead.controller?.abort();
  ahead.controller = ahead.read = null;
}

// ---- who answers ----
const amount = n => n >= 999.5e6 ? (n / 1e9).toFixed(1) + " B" : n >= 999.5e3 ? (n / 1e6).toFixed(1) + " M"
  : (n / 1e3).toFixed(1) + " K";
export const hooks = { state() {}, key() {} }; // state(why): the model is known, or why it is not; key: it asks for one
let looking = false, tried; // tried: the key that was refused last

// Name the model, once it is there.
export async function begin() {
  if (looking) return;
  looking = true;
  for (let why = ""; why !== null; await sleep(why ? 2000 : 0)) {
    const { key } = settings;
    try {
      const response = await fetch("v1/models", { headers: headers(), signal: AbortSignal.timeout?.(10_000) });
      why = response.ok ? null : (await failure(response)).why;
      if (response.ok) {
        const { id, max_model_len, meta } = (await response.json()).data[0];
        Object.assign(model, { name: id, n_ctx: max_model_len,
          about: amount(meta.n_params) + " parameters" + (meta.demo ? ", demo model for tests" : "") });
      }
    } catch { why = "unreachable"; }
    hooks.state(why);
    if (why === "failed") break;
    if (!why?.endsWith("key") || key !== settings.key) continue; // or it was changed meanwhile
    if (key !== tried) hooks.key(why);
    tried = key;
    break;
  }
  looking = false;
}
