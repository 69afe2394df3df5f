"""Markdown as HTML, by nbconvert's reading of it: what JupyterLab shows, the page shows."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from bs4 import BeautifulSoup
from latex2mathml.converter import convert
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

from env.book import code
from env.console import ToolError
from env.lint.page_rules import Heading


def formula(text: str, display: str = "inline") -> str:
    """A formula as MathML. What the converter cannot read it raises in many kinds, or passes on with its backslash."""
    try:
        made = convert(text, display=display)
    except Exception as error:
        raise _no_formula(text, type(error).__name__) from error
    unknown = re.search(r"\\[A-Za-z]+", made)
    if unknown:
        raise _no_formula(text, f"`{unknown[0]}` is not known")
    return made


def _no_formula(text: str, why: str) -> ToolError:
    return ToolError(
        f"the formula ${text}$ cannot be drawn: {why}", "write it with the commands that latex2mathml knows"
    )


class _Renderer(IPythonRenderer):
    """Formulas as MathML, which browsers draw themselves; code in the book's colours."""

    def block_code(self, text: str, info: str | None = None) -> str:
        return code.block(text.rstrip("\n"), (info or "").split(" ")[0]) + "\n"

    def block_math(self, body: str) -> str:
        return f'<div class="formula" tabindex="0">{formula(body, "block")}</div>'

    def inline_math(self, body: str) -> str:
        return formula(body)

    def latex_environment(self, name: str, body: str) -> str:
        return self.block_math(f"\\begin{{{name}}}{body}\\end{{{name}}}")


@dataclass
class Section:
    """A part of a page that can be linked to and found."""

    level: int
    anchor: str
    title: str
    text: list[str] = field(default_factory=list)


class Anchors:
    """The ids of one page's headings: GitHub's form, and what other forms a link may say."""

    def __init__(self) -> None:
        self.taken: dict[str, int] = {}
        self.of: dict[str, str] = {}

    def give(self, heading: Heading) -> str:
        """The id of the next heading; a second one of the same name gets a number."""
        slug = heading.slug or "section"
        seen = self.taken.get(slug, 0)
        self.taken[slug] = seen + 1
        anchor = f"{slug}-{seen}" if seen else slug
        for form in {anchor, *heading.anchors}:
            self.of.setdefault(form, anchor)
        return anchor


def soup(text: str) -> BeautifulSoup:
    """A piece of Markdown as a tree."""
    html = MarkdownWithMath(renderer=_Renderer(escape=False, exclude_anchor_links=True)).render(text)
    return BeautifulSoup(html, "html.parser")


def name_headings(tree: BeautifulSoup, anchors: Anchors) -> None:
    """Gives each heading its id, and a link to itself."""
    for tag in tree.find_all(["h1", "h2", "h3", "h4"]):
        level = int(tag.name[1])
        tag["id"] = anchors.give(Heading(level, tag.get_text()))
        if level > 1:
            link = tree.new_tag("a", href=f"#{tag['id']}", attrs={"class": "anchor", "aria-label": "link to this part"})
            link.string = "#"
            tag.append(link)


def frame_tables(tree: BeautifulSoup) -> None:
    """A wide table scrolls in its own box: on a phone the page stays as wide as the screen."""
    for table in tree.find_all("table"):
        for head in table.find_all("th"):
            # A screen reader announces each column by its head.
            if not head.get_text(strip=True) and head.find("img") is None:
                head.name = "td"
        table.wrap(tree.new_tag("div", attrs={"class": "table", "tabindex": "0"}))


def sections(tree: BeautifulSoup, found: list[Section]) -> None:
    """Appends this piece's headings and words to the page's sections; words before any heading go to the last one."""
    for tag in tree.find_all(recursive=False):
        if tag.name in ("h1", "h2", "h3", "h4"):
            title = tag.get_text().removesuffix("#").strip()
            found.append(Section(int(tag.name[1]), tag["id"], title))
        elif found:
            found[-1].text.append(tag.get_text())
