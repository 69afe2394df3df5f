"""Links of the repository's pages as links of the book: what is linked comes along, as a page or as a file."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote, unquote

from bs4 import BeautifulSoup, Tag

from env.book import code, plots
from env.book.page import Page
from env.console import ToolError
from env.lint.page_rules import ELSEWHERE
from env.notebooks import ROOT, relative

CODE = {".rs", ".py", ".cu", ".cuh", ".metal", ".toml", ".sh", ".yaml", ".yml", ".cuda", ""}
FILES = {".csv", ".json", ".jsonl", ".txt", ".png", ".jpg", ".svg", ".log"}
SOLUTIONS = ROOT / "notebooks" / "solutions"


class Links:
    """Knows the pages; collects the files that they link to."""

    def __init__(self) -> None:
        self.pages: dict[Path, Page] = {}
        self.sources: dict[Path, Page] = {}
        self.files: dict[Path, str] = {}

    def add(self, page: Page) -> None:
        """Links to the page's sources lead to it from now on."""
        for source in page.sources:
            self.pages[source] = page

    def target(self, address: str, source: Path, page: Page) -> str | None:
        """Where a link in `source` leads, seen from `page`; None where the book has nothing of it, as for a folder."""
        if ELSEWHERE.match(address) or address.startswith("//"):
            return address
        path, _, anchor = unquote(address).partition("#")
        file = (source.parent / path).resolve() if path else source
        there = self.pages.get(file) or self.pages.get(file / "README.md")
        if there is not None:
            known = there.anchors.of.get(anchor)
            if anchor and known is None:
                raise ToolError(f"{relative(source)} links to `{address}`: no such heading", "fix the link")
            if there is page and known:
                return f"#{known}"
            return page.up + there.out + (f"#{known}" if known else "")
        if not file.is_file() or SOLUTIONS in file.parents:
            return None
        if file.suffix in CODE:
            return page.up + self._source(file).out + (f"#{anchor}" if anchor else "")
        if file.suffix in FILES:
            return page.up + self.file(file)
        return None

    def file(self, file: Path) -> str:
        """The file comes along as it is; where it lies in the book."""
        return self.files.setdefault(file, f"files/{quote(relative(file))}")

    def _source(self, file: Path) -> Page:
        if file not in self.sources:
            name = relative(file)
            text = file.read_text(encoding="utf-8")
            page = Page(f"source/{quote(name)}.html", name, file.name, [file])
            page.body = f"<h1>{name}</h1>\n{code.file_block(text, file.name)}"
            self.sources[file] = page
        return self.sources[file]

    def apply(self, tree: BeautifulSoup, source: Path, page: Page) -> None:
        """Rewrites the links and images of a piece of the page."""
        for tag in tree.find_all("a", href=True):
            self._link(tag, source, page)
        for tag in tree.find_all("img", src=True):
            self._image(tree, tag, source, page)

    def _link(self, tag: Tag, source: Path, page: Page) -> None:
        leads = self.target(str(tag["href"]), source, page)
        if leads is None:
            del tag["href"]
            tag.name = "span"
            tag["class"], tag["title"] = "outside", "in the course's folder"
        else:
            tag["href"] = leads
            if ELSEWHERE.match(leads):
                tag["rel"], tag["class"] = "noreferrer", "web"

    def _image(self, tree: BeautifulSoup, tag: Tag, source: Path, page: Page) -> None:
        address, label = str(tag["src"]), str(tag.get("alt", ""))
        if not label.strip():
            raise ToolError(f"{relative(source)}: the picture `{address}` has no alternative text", "say what it shows")
        if address.startswith("data:"):
            return
        file = (source.parent / unquote(address)).resolve()
        drawn = file.with_suffix(".svg")
        if ELSEWHERE.match(address) or not (file.is_file() or drawn.is_file()):
            raise ToolError(f"{relative(source)}: the picture `{address}` is not in the repository", "bring it there")
        if drawn.is_file():
            picture = plots.inline(drawn.read_text(encoding="utf-8"), f"{page.out}-{drawn.stem}", label)
            tag.replace_with(page.picture(picture))
        else:
            tag["src"], tag["loading"] = page.up + self.file(file), "lazy"
