r"""The page's Markdown: the examples of CommonMark's specification, answers that grow, formulas, hostile answers.

Formulas of TeX stay as they were written: what is between \( \), \[ \], $ $ and $$ $$; so does a backslash before a
sign that is not Markdown's own, as in \, and \%.
"""

from __future__ import annotations

from typing import Any

import pytest
from answers import ANSWER, HOSTILE

#: Nodes or HTML -> a text that says what is seen: paragraphs of list items, the level of headings in the page and the
#: frame around code and tables make no difference.
SEEN = r"""
window.seen = given => {
  const html = typeof given === "string";
  const box = html ? new DOMParser().parseFromString(given, "text/html").body : document.createElement("div");
  if (!html) box.append(...given.map(each => each.node));
  for (const each of box.querySelectorAll("figcaption")) each.remove();
  const found = [];
  let text = "";
  const flush = () => { if (text.trim()) found.push(text.trim().replace(/\s+/g, " ")); text = ""; };
  (function walk(node, code) {
    for (const each of node.childNodes) {
      if (each.nodeType === Node.TEXT_NODE) {
        text += code && each.data ? JSON.stringify(each.data.replace(/\n+$/, "")) : each.data;
        continue;
      }
      if (each.nodeType !== Node.ELEMENT_NODE) continue;
      const tag = each.tagName.replace(/^H(\d)$/, (_, n) => "H" + (html ? Math.min(6, +n + 2) : n));
      if (tag === "BR") { text += " "; continue; }
      if (tag === "IMG") { text += `<A ${each.src}>${each.alt}</>`; continue; }
      if (tag === "P" && node.tagName === "LI") { text += " "; walk(each, code); text += " "; continue; }
      const framed = !["FIGURE", "DIV", "SPAN"].includes(tag);
      const inline = ["EM", "STRONG", "DEL", "CODE", "A", "LI", "SPAN"].includes(tag);
      if (!inline) flush();
      if (framed) text += `<${tag}${each.href ? " " + each.href : ""}${tag === "OL" ? each.start : ""}>`;
      walk(each, code || tag === "PRE");
      if (framed) text += "</>";
      if (!inline) flush();
    }
  })(box, false);
  flush();
  return found.join("\n").replace(/ (?=<LI>|<\/>|$)|(?<=<LI>|^) /gm, "");
};"""

pytestmark = pytest.mark.parametrize("browser", ["chromium", "firefox"], indirect=True)


@pytest.fixture
def tool(page: Any, url: str) -> Any:
    """A page with the function markdown(text, open)."""
    page.goto(url)
    page.evaluate("""async () => {
        window.markdown = (await import("/page/markdown.js")).markdown;
        window.breaches = [];
        addEventListener("securitypolicyviolation", event => breaches.push(event.violatedDirective));
    }""")
    page.evaluate("() => {" + SEEN + "}")
    return page


def test_examples_of_commonmark(tool: Any, examples: Any) -> None:
    """All of the specification but what stays text on purpose: HTML, references, underlined headings, and addresses
    that lead nowhere from here.
    """
    n, differ = tool.evaluate(r"""examples => {
        const chosen = examples.filter(({ markdown: text, html, section }) =>
            !/HTML|Setext|reference|Images|Autolinks|^Links/.test(section)
            && !/<[a-z]+[ >]|<!|\]\(\/|^ *\[.*\]:/m.test(text) && !(/<h[12]>/.test(html) && /^ *[=-]+ *$/m.test(text)));
        return [chosen.length, chosen.map(each => each.markdown).filter((text, i) =>
            seen(markdown(text, false)) !== seen(chosen[i].html))];
    }""", examples)
    assert n > 350 and set(differ) == {
        r"""\!\"\#\$\%\&\'\(\)\*\+\,\-\.\/\:\;\<\=\>\?\@\[\\\]\^\_\`\{\|\}\~""" + "\n",  # those of formulas stay
        "<https://example.com?find=\\*>\n",  # the browser escapes no star
        "    foo  \n",  # blanks at the end of code
        "> foo\n    - bar\n", "- a\n - b\n  - c\n   - d\n    - e\n",  # what looks like an item in a paragraph is one
    }


def test_an_answer_only_grows(tool: Any) -> None:
    """However it is cut into pieces: what is seen stays, and marks are never seen."""
    texts = tool.evaluate(r"""text => Array.from(text, (_, i) => {
        const box = document.createElement("div");
        box.append(...markdown(text.slice(0, i + 1), i + 1 < text.length).map(each => each.node));
        for (const each of box.querySelectorAll("button")) each.remove();
        return box.textContent.replace(/\s+/g, "");
    })""", ANSWER)
    for before, after in zip(texts, texts[1:]):
        assert after.startswith(before), (before[-40:], after[-40:])
    assert not any(mark in texts[-1] for mark in ("```", "**short", "|--", "~~", "##"))


def test_hostile_answers(tool: Any, url: str) -> None:
    """Nothing runs, loads or leads where a script runs; nothing takes long; nothing is nested without end."""
    asked: list[str] = []
    tool.on("request", lambda request: asked.append(request.url))
    for text in HOSTILE:
        took, depth = tool.evaluate("""text => {
            const begun = performance.now(), box = document.createElement("div");
            for (const [part, open] of [[text.slice(0, text.length / 2), true], [text, true], [text, false]]) {
                box.replaceChildren(...markdown(part, open).map(each => each.node));
            }
            const took = performance.now() - begun;
            document.body.append(box);
            let deepest = 0;
            for (const each of box.querySelectorAll("*")) {
                let n = 0;
                for (let node = each; node !== box; node = node.parentNode) n++;
                deepest = Math.max(deepest, n);
            }
            box.className = "hostile";
            return [took, deepest];
        }""", text)
        assert took < 5_000 and depth < 55, (text[:60], took, depth)
    hit, breaches, active, attributes, links = tool.evaluate("""() => {
        const all = tag => [...document.querySelectorAll(".hostile " + tag)];
        return [window.hit ?? null, breaches,
            all(":is(img, script, iframe, svg, style, base, meta, object, embed, form, input, video, audio)").length,
            all("*").flatMap(each => each.getAttributeNames()).filter(each => /^on|style|src/.test(each)),
            all("a").map(each => each.protocol + each.target + each.rel)];
    }""")
    assert hit is None and breaches == [] and active == 0 and attributes == []
    assert [each for each in asked if not each.startswith(f"{url}/v1/")] == []  # what the page itself asks
    assert set(links) == {"https:_blanknoopener noreferrer"}


@pytest.mark.parametrize("formula", [
    r"\(a_1 * b_2 * c_3\)", r"\[ \frac{a_1}{b_1} \, \{x\} \]", "$$ a_i * b_i * c_i $$", r"$x_1 + x_2$", r"50 \% of it",
    "\\[\na_1 &= b_1 * c_1 * d_1 \\\\\n    **x**\n\\]", "$$\n# no heading\n- no item\n$$", r"\sum_{i=1}^n a\,b\;c",
])
def test_formulas_stay_as_written(tool: Any, formula: str) -> None:
    """Whole and while they are written; what stands around them is Markdown."""
    box = """([text, open]) => { const box = document.createElement("div");
        box.append(...markdown(text, open).map(each => each.node)); return [box.textContent, box.innerHTML]; }"""
    for before, after in (("", ""), ("So *it* is:\n\n", "\n\nand *more*"), ("- an item\n\n", "")):
        text, html = tool.evaluate(box, [before + formula + after, False])
        assert formula in text and "*it*" not in text and "*more*" not in text
        assert "<em>x" not in html and "<strong>" not in html
    grown = [tool.evaluate(box, [formula[:n], True])[0] for n in range(1, len(formula) + 1)]
    assert all(after.startswith(before) for before, after in zip(grown, grown[1:])), grown


def test_prices_are_no_formulas(tool: Any) -> None:
    """A dollar before an amount begins nothing."""
    html = tool.evaluate("markdown('It costs $5 *or* $10, and **$20** more.', false)[0].node.innerHTML")
    assert html == "It costs $5 <em>or</em> $10, and <strong>$20</strong> more."
