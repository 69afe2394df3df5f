"""Drives the written book in a browser as a reader does: from files, on a phone and at a desk, light and dark, with the search."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from env.book import experiments
from env.console import ToolError
from env.notebooks import relative

DESK, PHONE = {"width": 1440, "height": 950}, {"width": 390, "height": 844}
# What each of these finds is a part of this page: words of a text, a piece of code, a title.
KNOWN = {
    "bank conflict": "lessons/11_reduction.html",
    "__syncthreads": "lessons/11_reduction.html",
    "blockIdx.x * blockDim.x": "lessons/10_vector_add.html",
    "online softmax": "lessons/31a_flash_attention.html",
    "No Kernel": "docs/troubleshooting.html",
}
LOCAL = re.compile("file:|data:|blob:")
# What hangs is found; a machine that is busy with other tests has once taken more than half a minute to open a file.
LIMIT_MS = 600_000
STEP = "open experiments.html in a browser, and look at its console and at env/book/static/experiments.js"
NOTHING = "no such word anywhere qzx"
SHOTS = ["index", "lessons/10_vector_add", "lessons/12a_matmul_tiles", "lessons/31a_flash_attention", "experiments"]


@contextmanager
def visit(browser: Any, where: str, **settings: Any) -> Iterator[Any]:
    """A page of its own, which may ask for files alone and complain about nothing."""
    context = browser.new_context(**settings)
    context.set_default_timeout(LIMIT_MS)
    page, wrong = context.new_page(), []

    def note(text: str) -> None:
        wrong.append(f"{page.url}: {text[:200]}")

    context.on("request", lambda asked: LOCAL.match(asked.url) or note(f"asks for {asked.url}"))
    context.on("console", lambda message: message.type == "error" and note(message.text))
    context.on("weberror", lambda error: note(str(error.error)))
    yield page
    if wrong:
        raise ToolError(f"{where}: {'; '.join(wrong[:3])}", "open it in a browser, and look at its console")
    context.close()


def look(out: Path, browser: str, pictures: Path) -> str:
    """All checks; what was seen, in one line."""
    from playwright.sync_api import Error, sync_playwright

    from env.ci.browser import FLAGS

    files = sorted(out.rglob("*.html"))
    with sync_playwright() as playwright:
        try:
            started = playwright.chromium.launch(executable_path=browser, headless=True, args=FLAGS)
        except Error as error:
            step = "start the browser by hand, or name another with CHROMIUM"
            raise ToolError(f"{browser} does not start: {error.message[:600]}", step) from None
        try:
            _widths(started, files)
            _accessible(started, files)
            _search(started, out)
            _switches(started, out)
            moved = _experiments(started, out)
            taken = _screenshots(started, out, pictures)
        finally:
            started.close()
    return (
        f"looked at {len(files)} pages: as wide as a phone, read by axe-core in light and dark, nothing fetched, {len(KNOWN)} searches; "
        f"{moved} sliders moved; {taken} screenshots"
    )


def _widths(browser: Any, files: list[Path]) -> None:
    """On a phone no page is wider than the screen: what is wide scrolls in a box of its own."""
    with visit(browser, "on a phone", viewport=PHONE) as page:
        for file in files:
            page.goto(file.as_uri())
            wide = page.evaluate("document.documentElement.scrollWidth")
            if wide > PHONE["width"]:
                step = "find what sticks out, and give it a box that scrolls"
                raise ToolError(f"{relative(file)} is {wide} pixels wide on a phone of {PHONE['width']}", step)


def _accessible(browser: Any, files: list[Path]) -> None:
    """What axe-core finds of the WCAG's rules that a program can check: names, contrast, headings, what keys can reach."""
    from axe_playwright_python.sync_playwright import Axe

    axe, found = Axe(), []
    for colours in ("light", "dark"):
        with visit(browser, "for screen readers", viewport=DESK, color_scheme=colours) as page:
            for file in files:
                page.goto(file.as_uri())
                # It would fetch style sheets anew, which a page from a file may not.
                for wrong in axe.run(page, options={"preload": False}).response["violations"]:
                    node = wrong["nodes"][0]
                    found.append(
                        f"{relative(file)}, {colours}: {wrong['help']}: {node['target']}: {node['html'][:200]}"
                    )
    if found:
        step = "see `failureSummary` of axe-core's answer; look at env/book/static, or at the notebook"
        raise ToolError("\n".join(found[:10]), step)


def _search(browser: Any, out: Path) -> None:
    with visit(browser, "the search", viewport=DESK) as page:
        page.goto((out / "lessons" / "00_welcome.html").as_uri())
        page.keyboard.press("/")
        page.wait_for_function("window.BOOK_INDEX !== undefined")
        for words, wanted in KNOWN.items():
            page.fill("dialog.search input", words)
            found = page.eval_on_selector_all("dialog.search .hits a", "links => links.map(link => link.href)")
            if not any(wanted in address for address in found):
                raise ToolError(
                    f"the search for `{words}` does not find {wanted}, but {found[:3]}", "look at search.js"
                )
        page.fill("dialog.search input", NOTHING)
        if page.locator("dialog.search .hits a").count() or page.inner_text(".status") != "nothing found":
            raise ToolError("the search finds what is not there", "look at env/book/static/search.js")
        page.fill("dialog.search input", "bank conflict")
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile(r"\.html#"))
        seen = page.evaluate("document.querySelector(':target')?.getBoundingClientRect().top ?? -1")
        if not 0 <= seen < DESK["height"]:
            raise ToolError(f"the first place found is not in sight: {page.url}", "look at its anchor")


def _switches(browser: Any, out: Path) -> None:
    """The list of pages on a phone, and the colours, which the next page keeps."""
    with visit(browser, "the list of pages and the colours", viewport=PHONE, color_scheme="light") as page:
        page.goto((out / "index.html").as_uri())
        link = page.locator("nav.pages a[href='lessons/10_vector_add.html']")
        if link.is_visible():
            raise ToolError(
                "the list of pages covers a phone's screen at the start", "look at env/book/static/book.css"
            )
        page.click("button.menu")
        link.click()
        page.wait_for_url(re.compile("10_vector_add"))
        ground = "getComputedStyle(document.body).backgroundColor"
        light = page.evaluate(ground)
        page.click("button.theme")
        dark = page.evaluate(ground)
        page.goto((out / "lessons" / "12a_matmul_tiles.html").as_uri())
        if light == dark or page.evaluate(ground) != dark:
            raise ToolError(
                "the button for the colours does nothing, or is forgotten", "look at env/book/static/theme.js"
            )


def _experiments(browser: Any, out: Path) -> int:
    """Each slider, moved by keys, draws another picture; edited PTX is told what is wrong, and is as it was afterwards."""
    from playwright.sync_api import Error

    moved = 0
    if not (file := out / experiments.OUT).is_file():
        return moved
    with visit(browser, "the experiments", viewport=DESK) as page:
        page.goto(file.as_uri())
        for section in page.locator(".experiment").all():
            name, picture = section.get_attribute("data-name"), section.locator(".picture")
            for slider in section.locator("input[type=range]").all():
                before = picture.inner_html()
                # To the other end: neighbours may look alike.
                slider.press("End" if slider.input_value() != slider.get_attribute("max") else "Home")
                try:
                    page.wait_for_function(
                        "([name, before]) => document.querySelector(`[data-name=${name}] .picture`).innerHTML !== before",
                        arg=[name, before],
                    )
                except Error as error:
                    said = section.locator(".wrong").inner_text() or "nothing"
                    raise ToolError(f"a slider of `{name}` draws nothing; it says: {said}", STEP) from error
                moved += 1
            section.locator("summary").last.click()
            ptx, wrong = section.locator(".ptx"), section.locator(".wrong")
            ptx.fill(ptx.input_value().replace("ld.param", "ld.porom"))
            section.locator(".run").click()
            wrong.wait_for(state="visible")
            if "porom" not in wrong.inner_text() or "next:" not in wrong.inner_text():
                raise ToolError(f"`{name}`: a wrong instruction is told as {wrong.inner_text()[:200]}", STEP)
            section.locator(".reset").click()
            wrong.wait_for(state="hidden")
    return moved


def _screenshots(browser: Any, out: Path, pictures: Path) -> int:
    pictures.mkdir(parents=True, exist_ok=True)
    taken = 0
    for colours in ("light", "dark"):
        for device, size in (("desk", DESK), ("phone", PHONE)):
            with visit(browser, "the screenshots", viewport=size, color_scheme=colours) as page:
                for name in (name for name in SHOTS if (out / f"{name}.html").is_file()):
                    page.goto((out / f"{name}.html").as_uri())
                    page.screenshot(path=pictures / f"book-{name.split('/')[-1]}-{device}-{colours}.png")
                page.keyboard.press("/")
                page.wait_for_function("window.BOOK_INDEX !== undefined")
                page.fill("dialog.search input", "bank conflict")
                page.screenshot(path=pictures / f"book-search-{device}-{colours}.png")
            taken += len(SHOTS) + 1
    return taken
