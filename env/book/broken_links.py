"""Looks through the written pages: every link leads somewhere, and nothing is fetched from elsewhere."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

from env.notebooks import relative

WEB = re.compile(r"^(?:[a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)
# What a browser fetches by itself, in pages and in styles.
FETCHES = {"src", "poster", "data", "srcset"}
IN_STYLE = re.compile(r"""(?:url\(|@import)\s*["']?\s*((?:https?:)?//[^"')\s]+)""")


@dataclass
class _Seen:
    ids: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen = _Seen()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = {name: value or "" for name, value in attrs}
        if "id" in said:
            self.seen.ids.append(said["id"])
        own = {name for name in said if name in FETCHES or (name in ("href", "xlink:href") and tag != "a")}
        self.seen.fetched += [said[name] for name in own]
        if tag == "a" and "href" in said:
            self.seen.links.append(said["href"])
        if tag == "img" and not said.get("alt", "").strip():
            self.seen.fetched.append(f"//no alternative text: {said.get('src', '')[:60]}")


def read(page: str) -> _Seen:
    """The ids, links and fetched files of a page."""
    reader = _Reader()
    reader.feed(page)
    return reader.seen


def broken(out: Path) -> list[str]:
    """What is wrong with the book in this folder, a line each with its next step."""
    pages = {file: read(file.read_text(encoding="utf-8")) for file in sorted(out.rglob("*.html"))}
    found = []
    for file, seen in pages.items():
        name = relative(file)
        twice = {one for one in seen.ids if seen.ids.count(one) > 1}
        found += [f"{name} has the id `{one}` twice\nnext: rename one heading or cell" for one in sorted(twice)]
        for address in seen.fetched:
            if WEB.match(address):
                found.append(f"{name} fetches {address}\nnext: bring it into the repository")
            elif wrong := _wrong(address, file, pages):
                found.append(f"{name} needs {address}: {wrong}\nnext: look at env/book/static")
        for address in (one for one in seen.links if not re.match(r"^[a-z][a-z0-9+.-]*:", one, re.IGNORECASE)):
            if wrong := _wrong(address, file, pages):
                found.append(f"{name} links to {address}: {wrong}\nnext: fix the link in its source")
        for address in IN_STYLE.findall(file.read_text(encoding="utf-8")):
            found.append(f"{name} fetches {address}\nnext: bring it into the repository")
    return found


def _wrong(address: str, file: Path, pages: dict[Path, _Seen]) -> str | None:
    path, _, anchor = unquote(address).partition("#")
    if address.startswith("data:"):
        return None
    there = (file.parent / path).resolve() if path else file
    if not there.is_file():
        return "there is no such file"
    if anchor and there in pages and anchor not in pages[there].ids:
        return "there is no such part"
    return None
