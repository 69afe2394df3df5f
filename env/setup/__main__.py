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

from env import paths
from env.console import SetupError, problem, seconds
from env.kernel_cache import build, candle, recipe
from env.setup import cupti, nvrtc, onnxruntime, program, python, rust

# With less than this, a step that fails most likely failed for want of room.
ROOM_MB = 64


def main() -> int:
    """0 when notebooks can run; parts that they can do without may be missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--lessons", default=os.environ.get("LESSONS", ""), help="also warm these, such as 20,21; or all"
    )
    parser.add_argument("--part", choices=("python", "rust"), help="this part alone: an image is made layer by layer")
    wishes = parser.parse_args()
    lessons = [name for name in wishes.lessons.replace(",", " ").split() if name]
    started = time.monotonic()
    # Ended from outside is ended as with Ctrl-C: what was started ends, too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        python.check_version()
        check_place(paths.ROOT)
        nvrtc.check_wish(os.environ.get("NVRTC", ""))
        onnxruntime.wish()
        lost = install(build.lesson_lines(lessons), wishes.part)
    except (SetupError, OSError) as error:
        problem(disk_error(error))
        return 1
    except KeyboardInterrupt:
        print("\nstopped; `make setup` goes on from here", file=sys.stderr)
        return 130
    for error in lost:
        problem(error)
        print(f"it goes on without: {error.loses}", file=sys.stderr)
    print(f"set-up: {'ready' if not lost else 'ready, with parts missing'} ({seconds(time.monotonic() - started)})")
    return 0


def disk_error(error: SetupError | OSError) -> SetupError:
    """The error with the next step that a read-only or a full disk needs: programs that fail there rarely name it."""
    places = [place for place in (paths.ROOT, paths.VENV, paths.GENERATED) if place.is_dir()]
    what = error.what if isinstance(error, SetupError) else str(error)
    for place in places:
        if not os.access(place, os.W_OK):
            return SetupError(what, f"make {place} writable for you, or get the project into a folder of your own")
        free = shutil.disk_usage(place).free
        if free < ROOM_MB << 20:
            return SetupError(what, f"make room: {free >> 20} MiB are free in {place}, and the set-up takes about 2 GB")
    return (
        error
        if isinstance(error, SetupError)
        else SetupError(what, "make that place writable, with room on its disk; then make setup")
    )


def check_place(root: Path) -> None:
    """The kernel hands file names on with spaces between them."""
    if any(character.isspace() for character in str(root)):
        what = f"the folder's path has a space in it, which the Rust kernel cannot handle: {root}"
        raise SetupError(what, "move the project to a path without spaces, then make setup")


def install(lines: list[str], part: str | None = None) -> list[SetupError]:
    """All steps: Python's beside Rust's, then the build that needs both. Gives the optional parts that failed."""
    lost: list[SetupError] = []

    def optional(step: Callable[[], None]) -> None:
        try:
            step()
        except SetupError as error:
            if not error.loses:
                raise
            lost.append(error)

    def python_row() -> None:
        python.environment()
        python.jupyter()
        optional(nvrtc.nvrtc)
        optional(cupti.cupti)
        optional(lambda: onnxruntime.onnxruntime(lines, onnxruntime.wish()))

    def rust_row() -> tuple[rust.Toolchain, Path]:
        rust.check_linker()
        found = rust.toolchain()
        rust.sources(found)
        evcxr = rust.evcxr(paths.read_json(paths.STATE).get("evcxr", ""))
        optional(lambda: program.program(found))
        return found, evcxr

    if part == "python":
        python_row()
        return lost
    if part == "rust":
        rust_row()
        return lost
    with ThreadPoolExecutor(2) as rows:
        python_result, rust_result = rows.submit(python_row), rows.submit(rust_row)
        results = (python_result, rust_result)
        errors = [error for row in results if isinstance(error := row.exception(), SetupError)]
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
    wanted = [*build.lines_to_keep(toolchain), *lines]
    build.warm(toolchain, evcxr, recipe.PLAIN)
    # A lesson's own crates can fail to build (a missing toolkit, say) without harm to the others.
    for one in dict.fromkeys(wanted):
        if not recipe.serves([recipe.PLAIN], one):
            optional(lambda one=one: _lesson(toolchain, evcxr, one))
    return lost


def _lesson(toolchain: rust.Toolchain, evcxr: Path, lines: str) -> None:
    try:
        build.warm(toolchain, evcxr, lines)
    except SetupError as error:
        loses = f"the lessons that load {recipe.crates(lines)} build them themselves, in their first cell"
        raise SetupError(error.what, error.next_step, loses) from error


if __name__ == "__main__":
    sys.exit(main())
