// Nodes of the page.

export const $ = id => document.getElementById(id);
export const sleep = ms => new Promise(resolve => setTimeout(resolve, ms));

export function make(tag, attributes = {}, ...inside) {
  const node = document.createElement(tag);
  for (const name in attributes) node.setAttribute(name, attributes[name]);
  node.append(...inside);
  return node;
}

export function button(words, act, attributes = {}) {
  const node = make("button", { type: "button", ...attributes }, words);
  node.onclick = () => act(node);
  return node;
}

// Make a node like another one, and keep of it what is alike: selections, scrolled code and open details stay.
export function morph(old, fresh) {
  if (old.nodeName !== fresh.nodeName || old.className !== fresh.className) { old.replaceWith(fresh); return; }
  if (old.nodeType === Node.TEXT_NODE) {
    if (fresh.data.startsWith(old.data)) old.appendData(fresh.data.slice(old.data.length));
    else old.data = fresh.data;
    return;
  }
  for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  const nodes = [...fresh.childNodes];
  nodes.forEach((node, i) => { if (old.childNodes[i]) morph(old.childNodes[i], node); else old.append(node); });
  while (old.childNodes.length > nodes.length) old.lastChild.remove();
}

// Copy a text, for the button that was pressed.
export async function copy(content, node) {
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
