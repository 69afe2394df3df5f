#!/usr/bin/env python3
"""Drives a notebook in JupyterLab as a learner does: open, Run All Cells, wait, look; with screenshots in both themes."""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from env import in_venv
from env.console import ToolError, tool

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--no-proxy-server",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
WINDOW = {"width": 1280, "height": 1500}
RUN_LIMIT_S = 900
SKIPPED = 3
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
SCROLLER = ".jp-NotebookPanel:not(.lm-mod-hidden) .jp-WindowedPanel-outer"
# What the page shows: for each code cell its prompt, its error texts, and the sizes of its plots.
LOOK = """() => [...document.querySelectorAll('.jp-Notebook .jp-CodeCell')].map(cell => ({
    prompt: cell.querySelector('.jp-InputPrompt')?.textContent ?? '',
    source: cell.querySelector('.cm-content')?.textContent ?? '',
    errors: [...cell.querySelectorAll('[data-mime-type$="jupyter.stderr"], [data-mime-type$="jupyter.error"]')]
        .map(part => part.textContent),
    plots: [...cell.querySelectorAll('.jp-OutputArea-output svg, .jp-OutputArea-output img[src*="svg"]')]
        .map(plot => plot.getBoundingClientRect()).map(box => [box.width, box.height]),
}))"""
# The toolbar says "idle" before there is any kernel, so the page's own objects are asked.
READY = """() => {
    const kernel = window.jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel;
    return kernel && kernel.connectionStatus === 'connected' && kernel.status === 'idle';
}"""
# Of each plot: its smallest letters as they are seen, in pixels, and what a screen reader says.
PLOTS = """() => [...document.querySelectorAll('.gpulab-figure svg')].map(plot => [
    Math.min(...[...plot.querySelectorAll('text')].map(text =>
        parseFloat(getComputedStyle(text).fontSize) * plot.getBoundingClientRect().width / plot.viewBox.baseVal.width)),
    plot.querySelector('desc')?.textContent ?? ''])"""
LETTER_PX = 9.5
POP_UPS = """() => [...document.querySelectorAll('.jp-Dialog, .Toastify__toast')].map(part => part.textContent)"""


def chromium() -> str | None:
    """The browser: CHROMIUM names it, else what is found on PATH."""
    named = os.environ.get("CHROMIUM")
    places = (shutil.which(name) for name in ([named] if named else NAMES))
    return next((place for place in places if place), None)


def check_no_pop_up(page: Any, when: str) -> None:
    """The lesson is all that one sees."""

    seen = page.evaluate(POP_UPS)
    if seen:
        step = "switch it off in JupyterLab's settings overrides, which the set-up writes"
        raise ToolError(f"{when}, JupyterLab showed: {' | '.join(seen)}", step)


def run_all(page: Any, expected_errors: set[int]) -> int:
    """Runs all cells by the menu, waits, and judges what the page shows; the number of plots."""

    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    deadline = time.monotonic() + RUN_LIMIT_S
    done = False
    while not done:
        page.wait_for_timeout(300)
        check_no_pop_up(page, "while the notebook ran")
        cells = page.evaluate(LOOK)
        waiting = [cell for cell in cells if not cell["prompt"].strip("[]: ").isdigit()]
        done = bool(cells) and not waiting
        if done:
            # The last cell's output may follow its prompt.
            page.wait_for_timeout(700)
            cells = page.evaluate(LOOK)
        for number, cell in enumerate(cells, 1):
            # The kernel passes stderr on from a thread of its own: the last line may land below the next cell.
            if cell["errors"] and not {number, number - 1} & expected_errors:
                text = "\n".join(cell["errors"])[:1500]
                raise ToolError(f"code cell {number} `{cell['source'][:60]}` shows an error:\n{text}", "fix the cell")
        if time.monotonic() > deadline:
            begins = waiting[0]["source"][:60] if waiting else "no cell at all"
            raise ToolError(f"not done after {RUN_LIMIT_S} s; waiting for: {begins}", "make run NB=… shows the cell")
    plots = [size for cell in cells for size in cell["plots"] if min(size) >= 50]
    if not plots:
        raise ToolError("no SVG plot is visible on the page", "let the notebook show a figure; see `gpulab::plot`")
    return len(plots)


def screenshots(page: Any, folder: Path, number: str) -> list[Path]:
    """The whole notebook, page by page, in both themes."""
    taken = []
    for theme, name in THEMES.items():
        page.evaluate("name => window.jupyterapp.commands.execute('apputils:change-theme', {theme: name})", name)
        page.wait_for_function(
            "light => document.body.dataset.jpThemeLight === light", arg=str(theme == "light").lower()
        )
        page.wait_for_timeout(700)
        size = page.evaluate(
            f"() => {{const s = document.querySelector('{SCROLLER}'); return [s.scrollHeight, s.clientHeight]}}"
        )
        step = size[1] - 60
        for at in range(max(1, -(-(size[0] - 60) // step))):
            page.evaluate(f"top => document.querySelector('{SCROLLER}').scrollTo(0, top)", at * step)
            page.wait_for_timeout(150)
            taken.append(folder / f"{number}-{theme}{f'-{at + 1}' if at else ''}.png")
            page.screenshot(path=taken[-1])
    return taken


@contextmanager
def opened(browser: str, scratch: Path) -> Iterator[Any]:
    """A browser with a profile of its own."""
    from playwright.sync_api import Error, sync_playwright

    with sync_playwright() as playwright:
        try:
            context = playwright.chromium.launch_persistent_context(
                f"{scratch}/profile", executable_path=browser, headless=True, args=FLAGS, viewport=WINDOW
            )
        except Error as error:
            step = "start the browser by hand, or name another with CHROMIUM"
            raise ToolError(f"{browser} does not start: {error.message[:600]}", step) from None
        # Against what hangs, and no limit to a slow machine.
        context.set_default_timeout(RUN_LIMIT_S * 1000)
        try:
            yield context
        except Error as error:
            raise ToolError(error.message[:600], "make lab shows the same") from None
        finally:
            context.close()


def drive(notebook: Path, browser: str, folder: Path) -> str:
    """Opens the notebook and does it all; what was seen, in one line."""
    from env.ci import labserver
    from env.notebooks import relative

    number = notebook.stem.split("_")[0]
    with (
        tempfile.TemporaryDirectory() as name,
        opened(browser, Path(name)) as context,
        labserver.jupyterlab(Path(name)) as (address, token),
    ):
        page = context.new_page()
        try:
            said = look(page, f"{address}/lab/tree/{relative(notebook)}?token={token}", notebook, folder)
            check_saved_aside(page, notebook, labserver.SAVED / notebook.name)
        except Exception as error:  # noqa: BLE001 (whatever it was: with a picture)
            picture = folder / f"{number}-failed.png"
            page.screenshot(path=picture)
            log = (Path(name) / "jupyterlab.log").read_text(encoding="utf-8", errors="replace")[-600:]
            raise ToolError(f"JupyterLab's log ends:\n{log}\nseen in {relative(picture)}: {error}") from None
        return said


def check_saved_aside(page: Any, notebook: Path, copy: Path) -> None:
    """What is saved, as autosave does it, leaves the lesson as git knows it."""

    before = notebook.read_bytes()
    page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
    deadline = time.monotonic() + 20
    while not copy.is_file() and time.monotonic() < deadline:
        page.wait_for_timeout(100)
    if notebook.read_bytes() != before or not copy.is_file():
        raise ToolError("saving changed the lesson, or kept no copy of it", "look at env/jupyter/contents.py")


def check_narrow(page: Any) -> None:
    """In a window of 900 px plots keep a size at which their text can be read, and tell their values."""

    page.set_viewport_size({"width": 900, "height": WINDOW["height"]})
    page.wait_for_timeout(500)
    seen = page.evaluate(PLOTS)
    page.set_viewport_size(WINDOW)
    small = [letter for letter, _ in seen if letter < LETTER_PX]
    silent = [said for _, said in seen if not any(character.isdigit() for character in said)]
    if not seen or small or silent:
        what = f"{len(seen)} plots, letters of {small} px, without values for a screen reader: {silent}"
        raise ToolError(f"at 900 px: {what}", "look at `Figure::html` in crates/measure/src/plot/canvas.rs")


def look(page: Any, address: str, notebook: Path, folder: Path) -> str:
    """What a learner does and sees."""
    from env.notebooks import load, tags

    expected = {at for at, cell in enumerate(load(notebook).code, 1) if "expected-error" in tags(cell)}
    started = time.monotonic()
    page.goto(address)
    page.wait_for_selector(".jp-Notebook .jp-CodeCell")
    page.wait_for_function(READY)
    page.wait_for_timeout(1000)
    check_no_pop_up(page, "after opening the notebook")
    waited, started = time.monotonic() - started, time.monotonic()
    plots = run_all(page, expected)
    ran = time.monotonic() - started
    check_narrow(page)
    pictures = screenshots(page, folder, notebook.stem.split("_")[0])
    check_no_pop_up(page, "after running the notebook")
    return f"{notebook.stem}: open in {waited:.1f} s, run in {ran:.1f} s, {plots} plots, {len(pictures)} screenshots"


def faults(browser: str, folder: Path) -> str:
    """The steps of page_faults.py; what was seen, in one line."""
    from env.ci import labserver, page_faults

    with tempfile.TemporaryDirectory() as name, opened(browser, Path(name)) as context:
        return page_faults.run(context, labserver.jupyterlab, Path(name), folder)


def main() -> int:
    """0 when all was seen as it should be, 1 when not, 3 when there is no browser."""
    parser = argparse.ArgumentParser(prog="python3 -m env.ci.browser", description=__doc__)
    parser.add_argument(
        "names",
        nargs="?",
        default="",
        help="notebooks, such as 00,02; without it 00, after what newcomers met in the page",
    )
    chosen = parser.parse_args()
    from env import notebooks

    browser = chromium()
    if browser is None:
        print("skipped: no Chromium on PATH\nnext: install it (Debian: apt-get install chromium), or set CHROMIUM")
        return SKIPPED
    folder = notebooks.ROOT / "results" / "run" / "screens"
    folder.mkdir(parents=True, exist_ok=True)
    if not chosen.names:
        print(faults(browser, folder), flush=True)
    for path in notebooks.find(chosen.names or "00"):
        for old in folder.glob(f"{path.stem.split('_')[0]}-*.png"):
            old.unlink()
        print(drive(path, browser, folder), flush=True)
    return 0


if __name__ == "__main__":
    in_venv.enter("tests")
    tool(main)
