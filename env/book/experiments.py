"""The page of experiments: lessons' kernels with sliders, run in the reader's browser by the simulator as WebAssembly."""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from env import paths
from env.book import markdown
from env.book.markdown import Section
from env.book.page import Page
from env.command import run
from env.notebooks import ROOT

FOLDER = ROOT / "crates" / "web"
# Of its own: another target, and the standard library built for it.
TARGET = paths.TARGET / "web"
WASM = "wasm32-unknown-unknown"
# The standard library is built from its source, which the set-up brings; the target itself need not be installed.
BUILD = ["cargo", "rustc", "--locked", "--release", "-p", "gpulab-web", "--lib", "--crate-type=cdylib"]
BUILD += [f"--target={WASM}", "-Z", "build-std=std,panic_abort"]
SMALL = {
    "CARGO_PROFILE_RELEASE_OPT_LEVEL": "s",
    "CARGO_PROFILE_RELEASE_LTO": "true",
    "CARGO_PROFILE_RELEASE_CODEGEN_UNITS": "1",
    "CARGO_PROFILE_RELEASE_PANIC": "abort",
    "CARGO_PROFILE_RELEASE_STRIP": "true",
    # `-Z build-std` is not stable yet.
    "RUSTC_BOOTSTRAP": "1",
    "CARGO_TARGET_DIR": str(TARGET),
}
DESCRIBE = ["cargo", "run", "--locked", "-p", "gpulab-web", "--example", "experiments", "--"]
OUT = "experiments.html"


@dataclass
class Experiments:
    """What the page is made of."""

    described: list[dict[str, Any]]
    program: bytes

    def files(self) -> dict[str, bytes]:
        """What the page loads: as scripts, since a page from a file may read no other file."""
        data = {
            # The rest stands in the page.
            one["name"]: {"sliders": one["sliders"], "kernels": one["kernels"]}
            for one in self.described
        }
        packed = base64.b64encode(gzip.compress(self.program, mtime=0)).decode()
        return {
            "static/experiments-data.js": f"window.gpulabExperiments = {json.dumps(data)};\n".encode(),
            "static/warpsim.js": f'window.gpulabWarpsim = "{packed}";\n'.encode(),
        }

    def page(self) -> Page:
        """The page, with a link from each experiment to its lesson."""
        page = Page(
            OUT, "The simulator in this page", "Experiments", [FOLDER], group="Guides", template="experiments.html"
        )
        page.prose(OPENING)
        page.facts["experiments"] = [one | {"task": Markup(str(markdown.soup(one["task"])))} for one in self.described]
        for one in self.described:
            page.sections.append(Section(2, one["name"], one["title"], [one["task"]]))
        return page


OPENING = """# The simulator in this page

Kernels of the lessons, to be run right here: a launch runs in *warpsim*, the course's simulator of a GPU, which is part of
this page. Move a slider, and the kernel runs again; the picture and the counters below it are those that the notebooks
show. Nothing is sent anywhere, and nothing measures time: only a GPU has times.
"""


def made() -> Experiments:
    """Compiles the simulator for the browser, and describes the experiments: a minute or two for the first time."""
    next_step = "run `make setup`, then look at the compiler's message above"
    run(BUILD, "the simulator could not be built for the browser", next_step, env=SMALL)
    out = TARGET / "experiments.json"
    environment = {"LD_LIBRARY_PATH": paths.library_path()}
    run([*DESCRIBE, out], "the experiments could not be described", next_step, env=environment)
    program = TARGET / WASM / "release" / "gpulab_web.wasm"
    return Experiments(json.loads(out.read_text(encoding="utf-8")), program.read_bytes())


def of_lesson(experiments: Experiments | None, lesson: str) -> list[dict[str, Any]]:
    """Those that a lesson's page leads to."""
    return [one for one in experiments.described if one["lesson"] == lesson] if experiments else []
