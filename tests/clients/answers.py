"""What models write, and what must not run, load or hang."""

ANSWER = """Sure! Here is a **short** overview of *ternary* numbers, with `snake_case_name` and snake_case_name kept.

## Steps

1. **Install** the program:
   ```bash
   curl -O https://example.org/a/long/address/that/is/wider/than/any/phone/can/show/at/once/and/so/it/goes/on.tar.gz

   bitnet-edge pull bonsai-1.7b
   ```
2. Ask a question
   - a sub point
   - another one, ~~wrong~~ right

| Language | Weights | A column with a long title, so that this table is wide |
|:---|---:|:---:|
| Python | 1,234 | fine |
| C | 5 * 3 | a \\| b |

> A quote,
> of *two* lines.

```python
def hello(name):
\tprint(f"Hello **{name}**")  # <b>a comment</b>
```

---
Done: 2 * 3 * 4 = 24.
"""
HOSTILE = [
    "<img src=x onerror='window.hit=1'><script>window.hit=1</script>\n\n<script>window.hit=1</script>\n",
    "[a](javascript:window.hit=1) [b](JaVaScRiPt:window.hit=1) [c](java&#x0a;script:window.hit=1)",
    "[d](data:text/html,<script>window.hit=1</script>)",
    "[e](vbscript:x) [f](//evil.example) <javascript:window.hit=1> [g](&#106;avascript:window.hit=1) [h](blob:x)",
    "![x](https://evil.example/spy.png) ![y](x.png \"onerror=window.hit=1\")",
    "[z](https://a.example/\"onclick=window.hit=1)",
    "```html\" onload=window.hit=1\n<svg onload='window.hit=1'>\n```\n<iframe srcdoc='<script>parent.hit=1</script>'>",
    "&lt;img src=x onerror=window.hit=1&gt; &#60;script&#62;window.hit=1&#60;/script&#62;",
    "<style>* { display: none }</style><base href=//evil.example><meta http-equiv=refresh content='0;//evil.example'>",
    "|a|b|\n|-|-|\n" + "|1|2|\n" * 5000, "|" * 3000 + "\n" + "|-" * 3000, "```\n" * 3000, ">" * 20000 + "x",
    "- " * 20000 + "x", "\n".join(" " * 2 * n + "- x" for n in range(500)), "**a *b " * 5000, "*_" * 10000, "[" * 20000,
    "[a](" * 10000, "`" * 20000, " ".join("`" * n for n in range(1, 200)), "a** " * 10000, "~~a *b " * 5000,
    "&a" * 10000,
    "\u202e" + "x\u0301" * 5000, "x" * 100_000, "https://a" * 3000, "\0\ufffd\ud83d\ude00" * 1000,
]
