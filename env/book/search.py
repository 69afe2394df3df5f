"""The search's index: each part of each page with its words, as a script, because a page from a file may fetch nothing."""

from __future__ import annotations

import json
import re

from env.book.page import Page

SPACE = re.compile(r"\s+")


def index(pages: list[Page]) -> str:
    """A script that holds `[page's title, [[address, part's title, words], …]]` for each page."""
    rows = []
    for page in pages:
        parts = []
        for section in page.sections:
            words = SPACE.sub(" ", " ".join(section.text)).strip()
            address = page.out if section.level == 1 else f"{page.out}#{section.anchor}"
            parts.append([address, section.title, words])
        rows.append([page.title, parts])
    text = json.dumps(rows, ensure_ascii=False, separators=(",", ":"))
    # Inside a script's file nothing ends it early; line separators are the one thing that JSON allows and old readers not.
    return f"window.BOOK_INDEX={text.replace(chr(0x2028), ' ').replace(chr(0x2029), ' ')};\n"
