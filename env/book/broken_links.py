"""Looks through the written pages: every link leads somewhere, and nothing is fetched from elsewhere."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

from env.notebooks import relative

WEB = re.compile(r"^(?:[a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)
# What a browser fetches by itself, in pages and in styles.
FETCHES = {"src", "poster", "data", "srcset"}
IN_STYLE = re.compile(r"""(?:url\(|@import)\s*["']?\s*((?:https?:)?//[^"')\s]+)""")


class Seen(HTMLParser):
    """The ids and links of a page, what it fetches, and its pictures without words."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.unnamed: list[str] = []
        self.fetched: list[str] = IN_STYLE.findall(page)
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = {name: value or "" for name, value in attrs}
        self.ids += [said["id"]] if "id" in said else []
        self.links += [said["href"]] if tag == "a" and "href" in said else []
        self.fetched += [
            said[name] for name in said if name in FETCHES or (name in ("href", "xlink:href") and tag != "a")
        ]
        if tag == "img" and not said.get("alt", "").strip():
            self.unnamed.append(said.get("src", "")[:60])


def broken(out: Path) -> list[str]:
    """What is wrong with the book in this folder, a line each with its next step."""
    pages = {file: Seen(file.read_text(encoding="utf-8")) for file in sorted(out.rglob("*.html"))}
    found = []
    for file, seen in pages.items():
        name = relative(file)
        twice = {one for one in seen.ids if seen.ids.count(one) > 1}
        found += [f"{name} has the id `{one}` twice\nnext: rename one heading or cell" for one in sorted(twice)]
        found += [f"{name}: no alternative text: {address}\nnext: say what it shows" for address in seen.unnamed]
        for address in seen.fetched:
            if WEB.match(address):
                found.append(f"{name} fetches {address}\nnext: bring it into the repository")
            elif wrong := _wrong(address, file, pages):
                found.append(f"{name} needs {address}: {wrong}\nnext: look at env/book/static")
        for address in (one for one in seen.links if not re.match(r"^[a-z][a-z0-9+.-]*:", one, re.IGNORECASE)):
            if wrong := _wrong(address, file, pages):
                found.append(f"{name} links to {address}: {wrong}\nnext: fix the link in its source")
    return found


def _wrong(address: str, file: Path, pages: dict[Path, Seen]) -> str | None:
    path, _, anchor = unquote(address).partition("#")
    if address.startswith("data:"):
        return None
    there = (file.parent / path).resolve() if path else file
    if not there.is_file():
        return "there is no such file"
    if anchor and there in pages and anchor not in pages[there].ids:
        return "there is no such part"
    return None
