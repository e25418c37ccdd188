// Markdown -> DOM nodes: CommonMark, but underlined headings, link references and HTML stay text; of GFM tables,
// ~~ and bare addresses.  Formulas of TeX stay as they were written.  No text is ever parsed as HTML, and nothing is
// loaded: an image is a link.
import { make } from "./nodes.js";
import { WORDS } from "./words.js";

const DEPTH = 12; // of lists and quotes, and of emphasis: what is deeper stays text, so no answer exhausts the browser
const FENCE = /^( {0,3})(`{3,}(?=[^`]*$)|~{3,})[ \t]*([^\s`]*)/, HEADING = /^ {0,3}(#{1,6})(?:[ \t]+|$)/;
const RULE = /^ {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$/, QUOTE = /^ {0,3}> ?/, CODE = /^ {4}/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])( +|$)/, FIRST_ITEM = /^ {0,3}(?:[-*+]|1[.)]) +\S/;
const FORMULA = /^ {0,3}(?:\\\[|\$\$)/, FORMULA_ENDS = { "\\[": "\\]", "$$": "$$" };
const begins = line => [FENCE, HEADING, RULE, QUOTE, FIRST_ITEM, FORMULA].some(each => each.test(line));
const lead = line => line.replace(/^[ \t]*(?:(?:[-*+>]|\d{1,9}[.)])[ \t]+)?/, // with its tabs as blanks
  start => [...start].reduce((made, char) => made + (char === "\t" ? " ".repeat(4 - made.length % 4) : char), ""));
const cells = row => row.trim().replace(/\\\|/g, "\0").replace(/^\||\|$/g, "").split("|")
  .map(each => each.trim().replace(/\0/g, "|"));
// [{node, line}]: the blocks of these lines, and the line with which each begins. open: the text still goes on, so what
// it has begun (a table, code, emphasis) is shown as that at once.
function blocks(lines, open, depth = DEPTH) {
  const made = [];
  let i = 0;
  const goesOn = () => open && i >= lines.length;
  const inside = part => blocks(part, goesOn(), depth - 1).map(each => each.node);
  while (i < lines.length) {
    const line = i, text = lead(lines[i]);
    let node, match;
    if (!text.trim()) { i++; continue; }
    if (CODE.test(text)) {
      const code = [];
      for (let next; i < lines.length && (CODE.test(next = lead(lines[i])) || !next.trim()); i++) {
        code.push(next.slice(4));
      }
      node = listing("", code.join("\n").trimEnd());
    } else if ((match = FENCE.exec(text))) {
      const [, indent, fence, language] = match, code = [], margin = new RegExp(`^ {0,${indent.length}}`);
      const ends = each => each.length >= fence.length && each === fence[0].repeat(each.length);
      for (i++; i < lines.length && (CODE.test(lines[i]) || !ends(lines[i].trim())); i++) {
        code.push(lines[i].replace(margin, ""));
      }
      i++;
      node = listing(language, code.join("\n"));
    } else if (FORMULA.test(text) && (match = formula(lines, i, open))) {
      i += match.split("\n").length;
      node = make("p", { class: "formula" }, match);
    } else if ((match = HEADING.exec(text))) {
      i++;
      const title = text.slice(match[0].length).trim().replace(/(^|[ \t])#+$/, "");
      node = inline(title.trim(), make("h" + Math.min(6, match[1].length + 2)), goesOn());
    } else if (RULE.test(text)) {
      i++;
      node = make("hr");
    } else if (QUOTE.test(text) && depth) {
      const part = [];
      for (let next; i < lines.length; i++) {
        next = lead(lines[i]);
        if (QUOTE.test(next)) part.push(next.replace(QUOTE, ""));
        else if (continues(next, part)) part.push(next.trim());
        else break;
      }
      node = make("blockquote", { dir: "auto" }, ...inside(part));
    } else if ((match = ITEM.exec(text)) && depth) {
      const kind = match[2].at(-1);
      node = /\d/.test(match[2]) ? make("ol", { dir: "auto", start: parseInt(match[2]) }) : make("ul", { dir: "auto" });
      for (let next = text; match && match[2].at(-1) === kind && !RULE.test(next); match = ITEM.exec(next)) {
        const rest = next.slice(match[0].length).trim();
        const width = match[1].length + match[2].length + (rest && match[3].length < 5 ? match[3].length : 1);
        const part = [next.slice(width)];
        for (i++; i < lines.length; i++) {
          next = lead(lines[i]);
          if (next.trim() ? next.search(/\S/) >= width : rest || part.length > 1) part.push(next.slice(width));
          else if (!ITEM.test(next) && continues(next, part)) part.push(next.trim());
          else break;
        }
        node.append(make("li", {}, ...inside(part)));
        while (i < lines.length && !lines[i].trim()) i++;
        next = lead(lines[i] ?? "");
      }
    } else if ((match = columns(text, lines[i + 1], open && i + 1 === lines.length))) {
      const row = (kind, texts) => make("tr", {}, ...match.map((align, c) =>
        inline(texts[c] ?? "", make(kind, align ? { class: align } : {}), goesOn())));
      const body = make("tbody");
      i += 2;
      const head = make("thead", {}, row("th", cells(text)));
      while (i < lines.length && lines[i].trim() && !begins(lead(lines[i]))) body.append(row("td", cells(lines[i++])));
      node = make("div", { class: "table", tabindex: 0, role: "region", "aria-label": WORDS.table },
        make("table", {}, head, body));
    } else {
      const part = [text.trim()];
      for (i++; i < lines.length && lines[i].trim(); i++) {
        const next = lead(lines[i]);
        if (begins(next) || columns(next, lines[i + 1])) break;
        part.push(next.trim());
      }
      node = inline(part.join("\n"), make("p"), goesOn());
    }
    made.push({ node, line });
  }
  return made;
}
// The lines of a formula that begins here and ends with a line, as they were written; null if there is none.
function formula(lines, from, open) {
  const ends = FORMULA_ENDS[lines[from].trim().slice(0, 2)];
  for (let i = from; i < Math.min(lines.length, from + 100); i++) {
    const line = i === from ? lines[i].trim().slice(2) : lines[i];
    if (line.includes(ends)) {
      return line.trimEnd().endsWith(ends) ? lines.slice(from, i + 1).join("\n").trim() : null;
    }
  }
  return open ? lines.slice(from).join("\n").trim() : null;
}
// Whether a line without the mark of a quote or the indent of a list still belongs to the paragraph that ends the part.
function continues(line, part) {
  const last = part.at(-1);
  return line.trim() && last.trim() && !begins(line) && ![CODE, FENCE, HEADING].some(each => each.test(last));
}
// How the columns of a table are aligned if these lines begin one, else null.
function columns(row, ruler, open) {
  if (!row.includes("|")) return null;
  const head = cells(row), found = ruler?.includes("-") ? cells(ruler) : [];
  if (open && row.trim()[0] === "|") return head.map(() => "");
  return found.length === head.length && found.every(each => /^:?-+:?$/.test(each))
    ? found.map(each => (each.endsWith(":") ? each.startsWith(":") ? "center" : "right" : "")) : null;
}
function listing(language, code) {
  return make("figure", {},
    make("figcaption", {}, language.slice(0, 40),
      make("button", { type: "button", class: "copy", "aria-label": "Copy code" }, "Copy")),
    make("pre", { tabindex: 0, role: "region", "aria-label": WORDS.code }, make("code", {}, code)));
}

// A backslash before another sign than Markdown's own belongs to a formula, and stays.
const PART = new RegExp([
  /(\\\([^]{0,2000}?\\\)|\\\[[^]{0,2000}?\\\]|\$\$[^$]{1,2000}\$\$|\$(?!\s)[^$\n]{1,200}(?<!\s)\$(?!\d))/,
  /\\(["#$&'*+.<>@\\_`|~\n-])/, /(`+)/, /(\*+|_+|~+)/, /(!?\[)/, /(\])/, /(<br ?\/?>)/,
  /(<https?:\/\/[^\s<>]+>|https?:\/\/[^\s<>]+)/, /(&(?:#\d{1,7}|#x[\da-f]{1,6}|[a-z][a-z\d]{1,31});)/, /[a-z\d]+/,
  /[^]/].map(each => each.source).join("|"), "iy");
const DESTINATION =
  /\(\s*(?:<([^<>\n]*)>|([^\s()]*(?:\([^\s()]*\)[^\s()]*)*))(?:\s+(?:"[^"]{0,500}"|'[^']{0,500}'))?\s*\)/y;
const blank = char => !char || /\s/.test(char);
const WIDE = /[\u3000-\u303f\uff00-\uffef]/; // Chinese and Japanese punctuation has no spaces around it
const mark = char => /[\p{P}\p{S}]/u.test(char) && !WIDE.test(char);
const character = entity => new DOMParser().parseFromString(entity, "text/html").body.textContent; // one, of no page
const LOCKED = document.documentElement.classList.contains("kiosk"); // no link leads out of a kiosk
function link(text) { // to an address that a browser opens without running it, else null
  let url;
  try { url = new URL(text); } catch { return null; }
  if (!/^(https?|mailto):$/.test(url.protocol)) return null;
  return LOCKED ? make("span")
    : make("a", { href: url.href, title: url.href, target: "_blank", rel: "noopener noreferrer" });
}
function inline(text, into, open) {
  if (open) { // half a mark is not shown
    let n = text.length;
    while (n && "*_~`\\".includes(text[n - 1])) n--;
    text = text.slice(0, n).replace(/!?\[([^[\]]{1,500})\]\([^()\s]{0,2000}$/, "$1");
  }
  const parts = []; // texts; nodes; runs of one mark: what ends there, is left of it as text, and begins there
  const missing = new Set(); // lengths of runs of ` that no other one closes
  let runs = [], brackets = [], match;
  for (PART.lastIndex = 0; PART.lastIndex < text.length && (match = PART.exec(text));) {
    const [all, tex, escaped, ticks, run, bracket, end, br, url, entity] = match;
    const at = match.index, next = PART.lastIndex;
    let to = next, made;
    if (tex) made = make("span", { class: "formula" }, tex);
    else if (ticks) {
      let close = missing.has(ticks.length) ? -1 : text.indexOf(ticks, next);
      while (close >= 0 && (text[close - 1] === "`" || text[close + ticks.length] === "`")) {
        close = text.indexOf(ticks, close + 1);
      }
      if (close < 0) missing.add(ticks.length);
      if (close < 0 && open) close = text.length;
      if (close >= 0) {
        const code = text.slice(next, close).replace(/\n/g, " ");
        made = make("code", {}, /^ .* $/.test(code) && code.trim() ? code.slice(1, -1) : code);
        to = close + ticks.length;
      }
    } else if (run) {
      const before = [...text.slice(Math.max(0, at - 2), at)].at(-1), after = [...text.slice(next, next + 2)][0];
      const left = !blank(after) && (!mark(after) || blank(before) || mark(before));
      const right = !blank(before) && (!mark(before) || blank(after) || mark(after));
      const free = run[0] !== "_" || !left || !right, fits = run[0] !== "~" || run.length === 2; // snake_case stays
      made = { char: run[0], n: run.length, at: parts.length, ends: 0, left: run.length, begins: [],
        opens: fits && left && (free || mark(before)), closes: fits && right && (free || mark(after)) };
      runs.push(made);
    } else if (bracket) brackets.push({ at: parts.length, runs: runs.length, image: bracket[0] === "!" });
    else if (end && brackets.length) {
      const from = brackets.pop();
      DESTINATION.lastIndex = next;
      const found = DESTINATION.exec(text), node = found && link(found[1] ?? found[2]);
      if (node) {
        pair(runs.splice(from.runs));
        parts[from.at] = { ends: 0, left: 0, begins: [node] };
        made = { ends: 1, left: 0, begins: [] };
        if (!from.image) brackets = []; // no link within a link
        to = DESTINATION.lastIndex;
      }
    } else if (br) made = make("br");
    else if (url) {
      let shown = url[0] === "<" ? url.slice(1, -1) : url.replace(/[?!.,:;*_~'"`\]]{1,9}$/, "");
      if (shown.endsWith(")") && !shown.includes("(")) shown = shown.slice(0, -1);
      to = url[0] === "<" ? next : at + shown.length;
      made = link(shown) ?? shown;
      if (made !== shown) made.append(shown);
    } else if (entity) made = character(entity);
    PART.lastIndex = to;
    parts.push(made ?? escaped ?? all);
  }
  pair(runs);
  for (const run of open ? runs : []) { // emphasis that has begun
    if (!run.opens || run.closes) continue;
    run.begins.unshift(make(run.char === "~" ? "del" : run.left > 1 ? "strong" : "em"));
    run.left = 0;
  }
  const stack = [into];
  let held = "";
  const put = node => { stack.at(-1).append(held, ...(node ? [node] : [])); held = ""; };
  for (const part of parts) {
    if (typeof part === "string") held += part;
    else if (part.nodeType) put(part);
    else {
      for (let n = 0; n < part.ends; n++) { put(); stack.pop(); }
      held += part.left ? part.char.repeat(part.left) : "";
      for (const node of part.begins) {
        put(stack.length <= DEPTH && node);
        stack.push(stack.length <= DEPTH ? node : stack.at(-1));
      }
    }
  }
  put();
  return into;
}
// Pair the runs that end emphasis with those that begin it, as CommonMark says; those that found nobody are left.
function pair(runs) {
  const floors = {};
  for (let c = 0; c < runs.length; c++) {
    const closer = runs[c], key = closer.char + closer.opens + closer.n % 3;
    while (closer.left && closer.closes) {
      let o = c - 1;
      for (; o >= 0 && runs[o].at > (floors[key] ?? -1); o--) {
        const { char, left, opens, closes, n } = runs[o];
        if (char === closer.char && left && opens
          && !((closes || closer.opens) && (n + closer.n) % 3 === 0 && n % 3)) break;
      }
      if (o < 0 || runs[o].at <= (floors[key] ?? -1)) { floors[key] = runs[c - 1]?.at ?? -1; break; }
      const opener = runs[o], used = Math.min(2, opener.left, closer.left);
      opener.begins.unshift(make(closer.char === "~" ? "del" : used === 2 ? "strong" : "em"));
      opener.left -= used; closer.left -= used; closer.ends++;
      runs.splice(o + 1, c - o - 1);
      if (!opener.left) runs.splice(o, 1);
      c = runs.indexOf(closer);
    }
    if (!closer.left || !closer.opens) runs.splice(c--, 1);
  }
}
// [{node, line}] of a text, as of blocks().
export function markdown(text, open) {
  const lines = text.split("\n");
  const last = lines.at(-1).trim().replace(/^[>\s]+/, "");
  if (open && /^(?:[-*+=_~`#|: ]*|\d{1,3}[.)]?)$/.test(last)) lines.pop(); // half a mark
  return blocks(lines, open);
}
