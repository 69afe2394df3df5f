"""What a newcomer met in the browser, step by step, in a notebook of its own: each step fails where its fault is back.

A cell that is run too early waits, one that waits for the set-up says so; output is cut; panic, `?`, Stop and compile errors
can be read and say what to do next; Tab and Shift-Tab answer; a kernel in a string has colours; a notebook that is opened
again shows what ran.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from env import paths
from env.console import ToolError
from env.kernel_cache import lock, set_up_progress
from env.notebooks import KERNEL, ROOT

CELLS = {
    "early": 'let a = 1;\nprintln!("hello {a}");',
    "many": 'for i in 0..100_000 { println!("line {i}"); }',
    "panic": "let v = vec![1, 2, 3];\nlet k = 10;\nlet x = v[k];",
    "ask": '// `?` on an error of the standard library\nlet n: i32 = "x".parse()?;',
    "refused": "let s: String = 5;\nlet b = c;",
    "wide": f'let wide = "{"a long line " * 30}";',
    "kernel": 'let k = r#"__global__ void k(float *x, int n) { if (threadIdx.x < n) x[0] = 1.5f; }"#; // not "CUDA C"',
    "help": 'let t = String::from("x");\nt.is_emp',
    "stop": 'println!("begun");\nloop { std::hint::black_box(1); }',
    "slow": 'for i in 0..20 { println!("tick {i}"); std::thread::sleep(std::time::Duration::from_secs(1)); }',
}
NAMES = list(CELLS)
LIMIT_MS = 180_000
# A cell's prompt and all its text, and how long the page took to say so.
LOOK = """at => { const cell = document.querySelectorAll('.jp-CodeCell')[at]; return {
    prompt: cell.querySelector('.jp-InputPrompt').textContent.replace(/[[\\]: ]/g, ''),
    text: [...cell.querySelectorAll('.jp-OutputArea-output')].map(part => part.textContent).join('\\n') }}"""
# Words of a cell by what the Rust mode and the extension make of them: each with its colour.
COLOURS = """at => [...document.querySelectorAll('.jp-CodeCell')[at].querySelectorAll('.cm-line span')]
    .filter(part => !part.childElementCount).map(part => [part.textContent, getComputedStyle(part).color])"""
# Of each piece of text in an error: its contrast with what is behind it (WCAG 2), the least of all.
CONTRAST = """at => {
    const numbers = colour => colour.match(/[\\d.]+/g).map(Number);
    const light = rgb => rgb.slice(0, 3).map(c => c / 255).map(c => c <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)
        .reduce((sum, c, i) => sum + c * [.2126, .7152, .0722][i], 0);
    const behind = node => {
        const layers = [];
        for (let one = node; one; one = one.parentElement) layers.push(numbers(getComputedStyle(one).backgroundColor));
        return layers.reverse().reduce((below, [r, g, b, a = 1]) => [r, g, b].map((c, i) => c * a + below[i] * (1 - a)), [255, 255, 255]);
    };
    const least = [];
    for (const part of document.querySelectorAll('.jp-CodeCell')[at].querySelectorAll('.jp-OutputArea-output')) {
        const walk = document.createTreeWalker(part, NodeFilter.SHOW_TEXT);
        for (let text = walk.nextNode(); text; text = walk.nextNode()) {
            if (!text.textContent.trim()) continue;
            const [a, b] = [light(numbers(getComputedStyle(text.parentElement).color)), light(behind(text.parentElement))];
            least.push((Math.max(a, b) + .05) / (Math.min(a, b) + .05));
        }
    }
    return Math.min(...least);
}"""
READABLE = 4.5


def notebook() -> str:
    """The notebook that these steps run."""
    cells = [
        {"cell_type": "code", "id": name, "metadata": {}, "execution_count": None, "outputs": [], "source": source}
        for name, source in CELLS.items()
    ]
    spec = {"kernelspec": {"display_name": "Rust (gpulab)", "language": "rust", "name": KERNEL}}
    return json.dumps({"cells": cells, "metadata": spec, "nbformat": 4, "nbformat_minor": 5})


class Steps:
    """The steps on one page. `folder` is where its pictures go."""

    def __init__(self, page: Any, folder: Path) -> None:
        self.page, self.folder = page, folder

    def look(self, name: str) -> dict[str, str]:
        return self.page.evaluate(LOOK, NAMES.index(name))

    def expect(self, what: str, true: bool, seen: object) -> None:
        """Fails the step, with what was seen."""
        if not true:
            raise ToolError(f"{what}: saw {str(seen)[:900]}", "look at env/relay and env/jupyter, and at the picture")

    def focus(self, name: str) -> None:
        self.page.locator(".jp-CodeCell .cm-content").nth(NAMES.index(name)).click()

    def press_run(self, name: str) -> None:
        self.focus(name)
        self.page.keyboard.press("Control+Enter")

    def wait(self, what: str, done: Callable[[], bool], seen: Callable[[], object]) -> None:
        """Until something is so."""
        deadline = time.monotonic() + LIMIT_MS / 1000
        while not done():
            self.expect(what, time.monotonic() < deadline, seen())
            self.page.wait_for_timeout(200)

    def finished(self, name: str) -> str:
        """Waits for a cell's end; its text."""
        self.wait(f"the cell `{name}` ends", lambda: self.look(name)["prompt"].isdigit(), lambda: self.look(name))
        # Output may follow the prompt.
        self.page.wait_for_timeout(500)
        return self.look(name)["text"]

    def open(self, address: str) -> None:
        self.page.goto(address)
        self.page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=LIMIT_MS)

    def early(self) -> None:
        """Run before there is a kernel: waits, asks nothing, and runs."""
        self.press_run("early")
        self.page.wait_for_timeout(300)
        pop_ups = self.page.evaluate("() => [...document.querySelectorAll('.jp-Dialog')].map(part => part.textContent)")
        self.expect("an early run opens no dialog", not pop_ups, pop_ups)
        self.expect("an early run is shown as waiting", self.look("early")["prompt"] in ("*", "2"), self.look("early"))
        self.expect("an early run runs", "hello 1" in self.finished("early"), self.look("early"))

    def many(self) -> None:
        """100,000 lines: cut, counted, and the page still answers."""
        self.press_run("many")
        text = self.finished("many")
        self.expect("lines are counted", "97,990 more lines" in text, text[-300:])
        self.expect("the last lines are shown", "line 99999" in text, text[-300:])
        self.expect("lines are cut", text.count("\n") < 2_050, text.count("\n"))
        started = time.monotonic()
        self.page.evaluate("() => document.body.scrollHeight")
        self.expect("the page answers", time.monotonic() - started < 2, time.monotonic() - started)

    def failures(self) -> None:
        """Panic, `?` and compile errors: what, where, and what next; legible in both themes."""
        for name in ("panic", "ask", "refused"):
            self.press_run(name)
            self.finished(name)
        panic, asked, refused = (self.look(name)["text"] for name in ("panic", "ask", "refused"))
        self.expect("a panic names the cell's line", "line 3 of this cell: `let x = v[k];`" in panic, panic)
        self.expect("a panic says what to do", "next: " in panic, panic)
        self.expect("a panic shows no backtrace", "backtrace" not in panic and "rust_begin" not in panic, panic)
        self.expect("`?` says what to do", "next: `?` ended the cell at line 2" in asked, asked)
        self.expect("rustc's words stay", "expected `String`, found integer" in refused, refused)
        for theme in ("JupyterLab Light", "JupyterLab Dark"):
            self.theme(theme)
            for name in ("panic", "refused"):
                least = self.page.evaluate(CONTRAST, NAMES.index(name))
                self.expect(f"`{name}` can be read in {theme}", least >= READABLE, f"a contrast of {least:.1f}")
            self.page.screenshot(path=self.folder / f"faults-{theme.split()[-1].lower()}.png")
        self.theme("JupyterLab Light")

    def theme(self, name: str) -> None:
        change = "name => window.jupyterapp.commands.execute('apputils:change-theme', {theme: name})"
        self.page.evaluate(change, name)
        light = str(name.endswith("Light")).lower()
        self.page.wait_for_function("light => document.body.dataset.jpThemeLight === light", arg=light)
        self.page.wait_for_timeout(500)

    def narrow(self) -> None:
        """In a window of 900 px a long line can be scrolled to."""
        size = self.page.viewport_size
        self.page.set_viewport_size({"width": 900, "height": 900})
        self.page.wait_for_timeout(500)
        look = "at => { const code = document.querySelectorAll('.jp-CodeCell')[at].querySelector('.cm-scroller'); return [code.scrollWidth > code.clientWidth, getComputedStyle(code).overflowX]; }"
        seen = self.page.evaluate(look, NAMES.index("wide"))
        self.expect("a long line has a scroll bar", seen == [True, "auto"], seen)
        self.page.set_viewport_size(size)

    def colours(self) -> None:
        """A kernel in a string of a cell is no string of one colour, in either theme."""
        for theme in ("JupyterLab Light", "JupyterLab Dark"):
            self.theme(theme)
            seen = dict(self.page.evaluate(COLOURS, NAMES.index("kernel")))
            kinds = [seen.get(word) for word in ("__global__", "threadIdx", "1.5f")]
            several = None not in kinds and len(set(kinds)) == len(kinds)
            self.expect(f"a kernel in a string has colours ({theme})", several, seen)
        self.theme("JupyterLab Light")

    def help(self) -> None:
        """Tab completes a name that an earlier cell made, Shift-Tab shows its documentation."""
        self.focus("help")
        self.page.keyboard.press("Control+End")
        self.page.keyboard.press("Tab")
        code = self.page.locator(".jp-CodeCell .cm-content").nth(NAMES.index("help"))
        offered = lambda: self.page.evaluate("() => document.querySelector('.jp-Completer-item')?.textContent ?? ''")
        self.wait("Tab completes", lambda: "is_empty()" in offered(), offered)
        self.page.keyboard.press("Enter")
        self.wait("what was chosen is inserted", lambda: "t.is_empty()" in code.inner_text(), code.inner_text)
        self.page.keyboard.press("Control+End")
        for _ in range(4):
            self.page.keyboard.press("ArrowLeft")
        self.page.keyboard.press("Shift+Tab")
        shown = lambda: self.page.evaluate("() => document.querySelector('.jp-Tooltip')?.textContent ?? ''")
        self.wait("Shift-Tab shows documentation", lambda: "fn is_empty(&self) -> bool" in shown(), shown)
        self.page.keyboard.press("Escape")

    def stop(self) -> None:
        """Stop says what is lost and what to do."""
        self.press_run("stop")
        self.wait("the loop begins", lambda: "begun" in self.look("stop")["text"], lambda: self.look("stop"))
        self.page.evaluate("() => window.jupyterapp.commands.execute('notebook:interrupt-kernel')")
        text = self.finished("stop")
        self.expect("Stop says what is lost", "all variables are gone" in text and "next: " in text, text)

    def came_back(self) -> None:
        """What ran while the page was closed is there, and what runs still goes on."""
        self.wait(
            "a reopened page shows what ran",
            lambda: "hello 1" in self.look("early")["text"],
            lambda: self.look("early"),
        )
        self.expect("and its numbers", self.look("early")["prompt"] == "2", self.look("early"))
        text = self.finished("slow")
        self.expect("a cell that ran goes on in the page", "tick 0" in text and "tick 19" in text, text)
        self.expect("each line once", text.count("tick 7") == 1, text)


def run(context: Any, serve: Callable[..., Any], scratch: Path, pictures: Path) -> str:
    """All steps, in two notebooks' lives; what was seen, in one line."""
    folder = ROOT / "results" / "run" / "faults"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "faults.ipynb").write_text(notebook(), encoding="utf-8")
    began = time.monotonic()
    try:
        with serve(scratch / "faults") as (address, token):
            url = f"{address}/lab/tree/results/run/faults/faults.ipynb?token={token}"
            steps = Steps(context.new_page(), pictures)
            _watched(steps, lambda: _first_life(steps, url))
            steps.page.close()
            steps = Steps(context.new_page(), pictures)
            _watched(steps, lambda: (steps.open(f"{url}&reset"), steps.came_back()))
            steps.page.close()
        waited = _waits_for_the_set_up(context, serve, scratch, pictures)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return f"the page's old faults are gone ({time.monotonic() - began:.0f} s; {waited})"


def _first_life(steps: Steps, url: str) -> None:
    steps.open(url)
    for step in (steps.early, steps.failures, steps.narrow, steps.colours, steps.help, steps.many, steps.stop):
        step()
    # Stop has taken all variables; what the page shows of them stays. The last cell still runs when the page is left.
    steps.press_run("slow")
    steps.wait("the slow cell begins", lambda: "tick 1" in steps.look("slow")["text"], lambda: steps.look("slow"))


def _watched(steps: Steps, work: Callable[[], object]) -> None:
    """With a picture where a step fails."""
    try:
        work()
    except Exception:
        steps.page.screenshot(path=steps.folder / "faults-failed.png")
        raise


def _waits_for_the_set_up(context: Any, serve: Callable[..., Any], scratch: Path, pictures: Path) -> str:
    """A cell that is run while the set-up works says how far that is, and runs when it is done."""
    home = scratch / "home"
    generated = home / ".gpulab"
    generated.mkdir(parents=True)
    before, paths.GENERATED = paths.GENERATED, generated
    try:
        with (
            lock.locked(set_up_progress.lock_file()),
            serve(scratch / "waiting", GPULAB_HOME=str(home)) as (address, token),
        ):
            set_up_progress.write(set_up_progress.Progress("building the crates", 12, 80, 120.0))
            steps = Steps(context.new_page(), pictures)

            def work() -> None:
                steps.open(f"{address}/lab/tree/results/run/faults/faults.ipynb?token={token}&reset")
                steps.press_run("early")
                line = "Rust kernel: building the crates: 12 of 80 crates, about 2 minutes"
                steps.wait(
                    "a waiting cell says so", lambda: line in steps.look("early")["text"], lambda: steps.look("early")
                )
                steps.page.screenshot(path=pictures / "waiting.png")
                set_up_progress.write(set_up_progress.Progress("building the crates", 40, 80, 60.0))
                steps.wait(
                    "the line is renewed",
                    lambda: "40 of 80" in steps.look("early")["text"],
                    lambda: steps.look("early"),
                )
                # What the set-up makes, from this checkout's own.
                for name in ("warm", "lib", "include"):
                    os.symlink(before / name, generated / name)
                shutil.copy(before / "setup.json", generated / "setup.json")
                text = steps.finished("early")
                steps.expect("then it runs, and the line is gone", text.strip() == "hello 1", text)

            _watched(steps, work)
            steps.page.close()
    finally:
        paths.GENERATED = before
    return "a cell waited for the set-up"
