"""Plots as part of the page, so that they take its colours: light or dark, as the reader has it."""

from __future__ import annotations

import re
from html import escape

from env.console import ToolError

ROOT = re.compile(r"<svg\b[^>]*>")
GROUND = re.compile(r'<rect width="100%" height="100%" fill="#ffffff"/>\s*')
LABEL = re.compile(r'aria-label="([^"]*)"')
# A picture's own colours for a page of its own; in the book they are the page's, `.paper` too.
STYLE = re.compile(r"<style>(.*?)</style>\s*", re.DOTALL)
OWN = {"svg", ".paper", "@media(prefers-color-scheme:dark)"}


def inline(svg: str, where: str, label: str = "") -> str:
    """A plot of the crate without its white ground and its own text colour; as wide as the page at most.

    `label` is what a reader hears who sees no picture, where the plot does not say so itself.
    """
    start = ROOT.search(svg)
    if start is None:
        raise ToolError(f"the plot of {where} is no SVG", "look at the output; the crate's `plot` room writes it")
    head = start[0]
    said = LABEL.search(head)
    if said is None or not said[1].strip():
        if not label.strip():
            raise ToolError(f"the plot of {where} has no label", "give it a title, which is its label, too")
        head = re.sub(LABEL, "", head).replace("<svg", f'<svg aria-label="{escape(label)}"', 1)
    if "role=" not in head:
        head = head.replace("<svg", '<svg role="img"', 1)
    if re.search(r'\bid="', svg):
        # Two plots of one page may call their parts the same.
        prefix = re.sub(r"\W+", "-", where)
        svg = re.sub(r'\bid="', f'id="{prefix}-', svg)
        svg = re.sub(r"url\(#", f"url(#{prefix}-", svg)
        svg = re.sub(r'href="#', f'href="#{prefix}-', svg)
        head = head.replace('aria-describedby="', f'aria-describedby="{prefix}-')
    head = re.sub(r'\s(?:color|font-family)="[^"]*"', "", head)
    body = GROUND.sub("", svg[start.end() :], count=1)
    for style in STYLE.findall(body):
        foreign = {name.strip() for name in re.findall(r"([^{}]+)\{", style)} - OWN
        if foreign:
            text = f"the picture of {where} has styles for {', '.join(sorted(foreign))}, which would hold for the whole page"
            raise ToolError(text, "draw it with attributes in place of these styles")
    body = STYLE.sub("", body)
    return f'<div class="figure" tabindex="0">{head}{body.strip()}</div>'


def label_of(svg: str) -> str:
    """What a plot is called."""
    start = ROOT.search(svg)
    said = LABEL.search(start[0]) if start else None
    return said[1] if said else ""
