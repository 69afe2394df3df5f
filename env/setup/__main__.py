"""Makes this checkout ready: what is missing is installed, what is there is left alone. `make setup` calls it.

Standard library only: it runs before there is anything else.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from env import command, in_venv, paths
from env.console import ToolError, problem, seconds
from env.kernel_cache import build, candle, recipe, set_up_progress
from env.setup import cupti, gpulab_program, nvrtc, onnxruntime, onnxruntime_web, python, rust, rust_kernel

# With less than this, a step that fails most likely failed for want of room.
ROOM_MB = 64


def main() -> int:
    """0 when notebooks can run; parts that they can do without may be missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--lessons", default=os.environ.get("LESSONS", ""), help="also warm these, such as 20,21; or all"
    )
    parser.add_argument("--part", choices=("python", "rust"), help="this part alone: an image is made layer by layer")
    parser.add_argument("--packages", action="append", default=[], choices=python.GROUPS, help="Python packages, too")
    parser.add_argument("--idle", action="store_true", help="what no notebook needs is built when nothing else runs")
    wishes = parser.parse_args()
    lessons = [name for name in wishes.lessons.replace(",", " ").split() if name]
    started = time.monotonic()
    # Ended from outside is ended as with Ctrl-C: what was started ends, too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        python.check_version()
        check_place(paths.BUILDS)
        nvrtc.check_wish(os.environ.get("NVRTC", ""))
        onnxruntime.wish()
        lines = build.lesson_lines(lessons)
        groups = [*wishes.packages, *(["onnx"] if onnxruntime.needed(lines) else [])]
        with set_up_progress.working():
            try:
                lost, found = install(lines, groups, wishes.part)
            except (ToolError, OSError) as error:
                raise disk_error(error) from error
        took = seconds(time.monotonic() - started)
        if found and not wishes.idle:
            lost += attempt(lambda: gpulab_program.program(found))
    except (ToolError, OSError) as error:
        problem(disk_error(error))
        return 1
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on from here", file=sys.stderr)
        return 130
    for error in lost:
        problem(error)
        print(f"it goes on without: {error.loses}", file=sys.stderr)
    print(f"set-up: {'ready' if not lost else 'ready, with parts missing'} ({took})", flush=True)
    if found and wishes.idle:
        gpulab_program.when_idle(found)
    return 0


def attempt(step: Callable[[], None]) -> list[ToolError]:
    """The step's error, where the course can do without it."""
    try:
        step()
    except ToolError as error:
        if not error.loses:
            raise
        return [error]
    return []


def disk_error(error: ToolError | OSError) -> ToolError:
    """The error with the next step that a read-only or a full disk needs: programs that fail there rarely name it."""
    places = [place for place in (paths.ROOT, paths.VENV, paths.GENERATED) if place.is_dir()]
    what = error.what if isinstance(error, ToolError) else str(error)
    for place in places:
        if not os.access(place, os.W_OK):
            return ToolError(what, f"make {place} writable for you, or get the project into a folder of your own")
        free = shutil.disk_usage(place).free
        if free < ROOM_MB << 20:
            return ToolError(what, f"make room: {free >> 20} MiB are free in {place}, and the set-up takes about 2 GB")
    return (
        error
        if isinstance(error, ToolError)
        else ToolError(what, "make that place writable, with room on its disk; then make setup")
    )


def check_place(builds: Path) -> None:
    """Cells can be built there."""
    if paths.has_space(builds):
        what = f"the course's folder and the folder of the cache have a space in their paths, where no cell can be built: {builds}"
        raise ToolError(what, "set XDG_CACHE_HOME to a folder without spaces in its path, then make setup")


def install(
    lines: list[str], groups: list[str], part: str | None = None
) -> tuple[list[ToolError], rust.Toolchain | None]:
    """All that notebooks need: Python's steps beside Rust's, then the build that needs both.

    Gives the optional parts that failed, and the Rust that was found.
    """
    lost: list[ToolError] = []

    def python_row() -> None:
        # JupyterLab opens as soon as these two are done.
        python.environment(groups)
        python.jupyter()
        for step in (nvrtc.nvrtc, cupti.cupti, lambda: onnxruntime.onnxruntime(lines, onnxruntime.wish())):
            lost.extend(attempt(step))
        if "tests" in groups:
            # A page of exported models is tried in a browser.
            lost.extend(attempt(onnxruntime_web.onnxruntime_web))

    def rust_row() -> tuple[rust.Toolchain, Path]:
        rust.check_linker()
        found = rust.toolchain()
        rust.sources(found)
        return found, rust_kernel.kernel(paths.read_json(paths.STATE).get("evcxr", ""), found.folder)

    if part == "python":
        python_row()
        return lost, None
    if part == "rust":
        rust_row()
        return lost, None
    with ThreadPoolExecutor(2) as rows:
        python_result, rust_result = rows.submit(python_row), rows.submit(rust_row)
        results = (python_result, rust_result)
        try:
            errors = [error for row in results if isinstance(error := row.exception(), ToolError)]
        except KeyboardInterrupt:
            command.stop()
            raise
        if len(errors) == len(results):
            # Both at once: nobody likes to fix one thing and then hear of the next.
            problem(errors[0])
            raise errors[1]
        python_result.result()
        toolchain, evcxr = rust_result.result()
    compiler = toolchain.folder / "bin" / "rustc"
    state = {
        "toolchain": str(toolchain.folder),
        "rustc": toolchain.version,
        "evcxr": str(evcxr),
        "candle": candle.find(nvrtc.driver_cuda()),
        "quick": bool(os.environ.get("GPULAB_QUICK_BUILD")),
    }
    paths.write_json(paths.STATE, {**state, "rustc_time": compiler.stat().st_mtime})
    # What was warmed before stays, unless all of it would have to be built again.
    stamp = recipe.warmed()[1]
    kept = stamp.get("lines", []) if stamp.get("compiler") == recipe.compiler_key(toolchain.version) else []
    build.warm(toolchain, evcxr, recipe.PLAIN)
    more = [one for one in [*kept, *lines] if not recipe.serves([recipe.PLAIN], one)]
    for sets in recipe.together(more):
        lost += _lessons(toolchain, evcxr, sets)
    return lost, toolchain


def _lessons(toolchain: rust.Toolchain, evcxr: Path, sets: list[str]) -> list[ToolError]:
    """One build for sets of `:dep` lines, or one each where that fails: a lesson's own crates can (a missing toolkit, say)
    without harm to the others. Gives what failed."""
    try:
        build.warm(toolchain, evcxr, *sets)
    except ToolError as error:
        if len(sets) > 1:
            return [lost for one in sets for lost in _lessons(toolchain, evcxr, [one])]
        loses = f"the lessons that load {recipe.crates(sets[0])} build them themselves, in their first cell"
        return [ToolError(error.what, error.next_step, loses)]
    return []


if __name__ == "__main__":
    in_venv.chosen_python()
    sys.exit(main())
