"""The chat page: the files of this folder, which browsers load from this server and from nowhere else.

main.js chooses one of two faces: home.js, or kiosk.js for visitors.  talk.js is the conversation that both show.
"""

from __future__ import annotations

import json
from pathlib import Path

from edge.serve.service import Settings

FOLDER = Path(__file__).parent
PREFIX = "/page/"  # of the addresses of all files but index.html
KINDS = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
                               "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-cache"}
RIGHT_TO_LEFT = ("ar",)


def files() -> dict[str, tuple[bytes, str]]:
    """(content, media type) of each file that index.html loads, by its name."""
    return {each.name: (each.read_bytes(), KINDS[each.suffix]) for each in FOLDER.iterdir() if each.suffix in KINDS}


def index(settings: Settings) -> bytes:
    """The page itself, for this service: the face for visitors if it is a kiosk, else that for people at home."""
    html, kiosk = (FOLDER / "index.html").read_text("utf-8"), settings.kiosk
    shown = {"kiosk": kiosk and kiosk.shown, "locked": settings.locked}
    data = json.dumps(shown).replace("<", "\\u003c")  # so that no text of it ends the element
    if kiosk is not None:
        direction = "rtl" if kiosk.language in RIGHT_TO_LEFT else "ltr"
        html = html.replace('<html lang="en" dir="ltr" class="at-home">',
                            f'<html lang="{kiosk.language}" dir="{direction}" class="kiosk">')
        html = html.replace("page/home.js", "page/kiosk.js")
    return html.replace('{"kiosk": null, "locked": false}', data).encode()
