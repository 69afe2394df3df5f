"""Drives the written page in a browser as a reader does: reads its table, draws a digit, lets the GPT write on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from env.book.look import DESK, PHONE, visit
from env.console import ToolError
from env.onnx.compare import Row

PROMPT = "A thread block is"
STEP = "open the page in a browser, and look at its console and at env/onnx/web/static/page.js"
CHANCES = (
    "() => [...document.querySelectorAll('.chances li span:last-child')].map(part => parseFloat(part.textContent))"
)


@dataclass(frozen=True)
class Seen:
    """What the page did."""

    rows: list[Row]
    """Each call against candle."""
    verdict: str
    """The page's own sum of them."""
    example: list[float]
    """Probabilities of the digit that the page draws at first, in percent."""
    drawn: list[float]
    """Those of a line from top to bottom."""
    written: bytes
    """The prompt and what the GPT wrote behind it, always the most probable byte."""


@contextmanager
def page(first: Path, browser: str, **settings: Any) -> Iterator[Any]:
    """The page, once it has compared all calls."""
    from env.ci.browser import FLAGS
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=browser, headless=True, args=FLAGS)
        try:
            with visit(started, "the exported models", **settings) as tab:
                tab.goto(first.resolve().as_uri())
                tab.wait_for_function("window.gpulab?.rows || window.gpulab?.failed")
                if failed := tab.evaluate("gpulab.failed"):
                    raise ToolError(f"the page says: {failed}", STEP)
                yield tab
        finally:
            started.close()


def look(first: Path, browser: str) -> Seen:
    """All of it at a desk, then the width on a phone."""
    with page(first, browser, viewport=DESK) as tab:
        rows = [
            Row(*(found[name] for name in ("model", "call", "outputs", "numbers", "largest", "size")))
            for found in tab.evaluate("gpulab.rows")
        ]
        example = tab.evaluate(CHANCES)
        draw(tab, (140, 40), (140, 240))
        drawn = tab.evaluate(CHANCES)
        tab.fill(".prompt", PROMPT)
        tab.locator(".temperature").press("Home")
        tab.click(".go")
        tab.wait_for_function("document.querySelector('.gpt .took').textContent.includes('is full')")
        written = tab.evaluate(
            "[...document.querySelector('.written').childNodes].map(part => part.textContent).join('')"
        )
        tab.set_viewport_size(PHONE)
        wide = tab.evaluate("document.documentElement.scrollWidth")
        if wide > PHONE["width"]:
            raise ToolError(f"the page is {wide} pixels wide on a phone of {PHONE['width']}", STEP)
        return Seen(rows, tab.inner_text(".verdict"), example, drawn, written.encode())


def draw(tab: Any, *points: tuple[float, float]) -> None:
    """A stroke on the cleared pad, and waits until the network has seen all of it."""
    tab.click(".clear")
    box = tab.locator(".pad").bounding_box()
    tab.mouse.move(box["x"] + points[0][0], box["y"] + points[0][1])
    tab.mouse.down()
    for x, y in points[1:]:
        tab.mouse.move(box["x"] + x, box["y"] + y, steps=8)
    tab.mouse.up()
    tab.wait_for_function("!gpulab.looking && document.querySelector('.cnn .took').textContent")
