"""A notebook's code cells with their outputs as HTML; what fails on purpose and what is left to the reader is said."""

from __future__ import annotations

import colorsys
import re
from html import escape

from bs4 import BeautifulSoup
from nbconvert.filters import ansi2html
from nbformat import NotebookNode

from env.book import code, plots
from env.console import ToolError
from env.notebooks import VERDICT, tags

SVG, HTML, TEXT = "image/svg+xml", "text/html", "text/plain"
# What nbconvert makes of a terminal's colours.
FIXED = re.compile(r'style="color: rgb\((\d+),(\d+),(\d+)\)"')
SAME = re.compile(r"(<span [^>]*>)([^<]*)</span>(?:\1([^<]*)</span>)+")
SPAN = re.compile(r"<span [^>]*>([^<]*)</span>")
STYLE = re.compile(r"<style>.*?</style>", re.DOTALL)
# More lines than this scroll in a box.
TALL = 24
CHANGED = "The lesson's cell was changed after the recorded run: its output comes with the next one."


def _themed(match: re.Match[str]) -> str:
    """The hue stays; how light it is, the page decides: colours of a terminal are not legible on both light and dark pages."""
    hue, _, strength = colorsys.rgb_to_hls(*(int(part) / 255 for part in match.groups()))
    if strength < 0.1:
        return 'class="ansi-faint"'
    return f'style="color:hsl({hue * 360:.0f} 75% var(--ink-light))"'


def coloured(text: str) -> str:
    """Escaped text with spans for its colours. The Rust kernel colours each letter alone: equal neighbours are joined."""
    html = FIXED.sub(_themed, ansi2html(text))
    return SAME.sub(lambda same: f"{same[1]}{''.join(SPAN.findall(same[0]))}</span>", html)


class Outputs:
    """The outputs of one page: a style that several of them bring is written once."""

    def __init__(self, page: str) -> None:
        self.page = page
        self.styles: set[str] = set()

    def cell(self, cell: NotebookNode, outputs: list[NotebookNode] | None, recorded: bool) -> str:
        """The whole cell. `outputs` is None where the recorded cell was another one."""
        kind = next((tag for tag in ("exercise", "check", "expected-error") if tag in tags(cell)), "")
        shown = "".join(self.output(one, cell.id) for one in outputs or [])
        if recorded and outputs is None:
            shown = f'<p class="note">{CHANGED}</p>'
        label = _label(kind, cell, bool(shown))
        source = f'<div class="source">{code.block(cell.source, "rust")}</div>'
        shown = f'<div class="outputs">{shown}</div>' if shown else ""
        return f'<div class="cell {kind}" id="cell-{escape(cell.id)}">{label}{source}{shown}</div>\n'

    def output(self, output: NotebookNode, cell: str) -> str:
        """One output, in the best form that the page can show."""
        if output.output_type == "stream":
            # A message's long lines are broken; what a program prints as a table is not.
            return _text(output.text, "stderr said" if output.name == "stderr" else "stdout")
        if output.output_type == "error":
            return _text("\n".join(output.traceback) or f"{output.ename}: {output.evalue}", "stderr")
        data = output.data
        if SVG in data:
            return plots.inline(data[SVG], f"{self.page}-{cell}")
        if HTML in data:
            return self._html(data[HTML], VERDICT in data)
        if TEXT in data:
            return _text(data[TEXT], "stdout") if data[TEXT].strip() not in ("", "()") else ""
        kinds = ", ".join(data)
        raise ToolError(f"{self.page}, cell {cell}: no page can show {kinds}", "show SVG, HTML or text, too")

    def _html(self, html: str, verdict: bool) -> str:
        for style in STYLE.findall(html):
            if style in self.styles:
                html = html.replace(style, "")
            self.styles.add(style)
        # Recorded before the tables could be reached by keys.
        html = html.replace('class="gpulab-table" style', 'class="gpulab-table" tabindex="0" style')
        return f'<div class="{"verdict" if verdict else "rich"}" tabindex="0">{html.strip()}</div>'


def _label(kind: str, cell: NotebookNode, ran: bool) -> str:
    name = f"<code>{escape(str(cell.metadata.get(kind, '')))}</code>"
    said = {
        "exercise": f"Exercise {name}: as shipped, for you to fix",
        "check": f"Check of {name}{': before anybody solved it' if ran else ''}",
        "expected-error": "Fails on purpose: read the error",
    }.get(kind)
    return f'<p class="kind">{said}</p>' if said else ""


def _text(text: str, kind: str) -> str:
    tall = " tall" if text.count("\n") > TALL else ""
    return f'<pre class="{kind}{tall}" tabindex="0">{coloured(text.rstrip())}</pre>' if text.strip() else ""


def words(outputs: list[NotebookNode]) -> list[str]:
    """What the search finds of the outputs: what plots and tables are called."""
    found = []
    for output in outputs:
        data = output.get("data", {})
        if SVG in data:
            found.append(BeautifulSoup(plots.label_of(data[SVG]), "html.parser").get_text())
        elif HTML in data and VERDICT not in data:
            title = BeautifulSoup(STYLE.sub("", data[HTML])[:600], "html.parser").find("strong")
            found += [title.get_text()] if title else []
    return found
