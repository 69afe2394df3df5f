"""The warmed build: the crates that lessons load and all below them, built once through the real kernel, for kernels to start on."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from env import paths
from env.command import run
from env.console import Step, ToolError
from env.kernel_cache import recipe, renew
from env.kernel_cache.lock import locked
from env.kernel_cache.set_up_progress import Counter, built
from env.kernel_cache.tree import dependencies, linked_copy
from env.setup.rust import CRATES_S, Toolchain

# Two set-ups at once: the second waits, then finds it done.
BUILD_LOCK = paths.GENERATED / "warm-build.lock"
WORK = paths.WARM / "building"
# Names the compiler; what is older than it was there before.
MARK = "compiler"
# Of the crates that each set-up builds: how many were done after each twentieth of the time, as in env/setup/rust.py.
CURVE = (0, 2, 14, 27, 31, 35, 36, 36, 38, 40, 42, 44, 44, 44, 47, 47, 48, 48, 48, 48, 48)
# Names a folder in which cargo has built dependencies with the kernels' settings (`make test` does): what fits is not built again.
OTHERS = "GPULAB_BUILT"


def lesson_lines(lessons: list[str]) -> list[str]:
    """The `:dep` lines of the named lessons, a text each: `["20"]` is notebooks/20_*.ipynb, `["all"]` are all."""
    found: list[str] = []
    if lessons == ["all"]:
        lessons = [file.stem for file in sorted(paths.NOTEBOOKS.glob("*.ipynb"))]
    for lesson in lessons:
        # `31` names 31a and 31b as well.
        patterns = (f"{lesson}_*.ipynb", f"{lesson}[a-z]_*.ipynb", f"{lesson}.ipynb")
        matches = sorted(path for pattern in patterns for path in paths.NOTEBOOKS.glob(pattern))
        if not matches:
            there = ", ".join(file.stem for file in sorted(paths.NOTEBOOKS.glob("*.ipynb"))) or "none"
            raise ToolError(f"there is no lesson {lesson!r} in notebooks/", f"name one of these: {there}")
        found += [lines for file in matches if (lines := recipe.dep_lines(paths.read_json(file)))]
    return list(dict.fromkeys(found))


def warm(rust: Toolchain, evcxr: Path, *sets: str) -> None:
    """Builds what sets of `:dep` lines need, in one go, but for those that the warmed build that is there serves."""
    step = Step("warmed build")
    with locked(BUILD_LOCK):
        started = time.time()
        now = {
            "compiler": recipe.compiler_key(rust.version),
            "dependencies": recipe.dependencies_key(rust.version),
            "sources": recipe.sources_key(),
        }
        folder, stamp = recipe.warmed()
        same = folder is not None and stamp["dependencies"] == now["dependencies"]
        fresh = same and stamp["sources"] == now["sources"]
        if fresh and recipe.newest_source() > stamp["built"]:
            fresh = renew.renew(folder, stamp)
        missing = [one for one in sets if not (fresh and recipe.serves(stamp["lines"], one))]
        lines = recipe.union(missing or sets)
        if not missing:
            return step.skipped(recipe.crates(lines))
        step.begin("building what changed in the crates" if same and not fresh else "building the crates")
        # With the same compiler cargo builds what changed only; candle and polars take minutes.
        _prepare(folder if stamp.get("compiler") == now["compiler"] else None, now["compiler"])
        _build(step, rust, evcxr, lines)
        shutil.rmtree(WORK / "config", ignore_errors=True)
        served = [*stamp["lines"], *missing] if fresh else missing
        since = stamp.get("since", started) if fresh else started
        _put_in_place({**now, "built": started, "since": since, "lines": served})
    return step.done(f"{recipe.crates(lines)}  (kernels start on links to it)")


def _prepare(before: Path | None, compiler: str) -> None:
    """The folder to build in: that of an interrupted build, a copy of the last build, or one with what others have built."""
    mark = WORK / MARK
    if mark.is_file() and mark.read_text() == compiler:
        return
    shutil.rmtree(WORK, ignore_errors=True)
    if before:
        linked_copy(before, WORK, incremental=True)
        (WORK / recipe.STAMP).unlink()
    elif others := os.environ.get(OTHERS):
        for folder in (Path(others) / "debug", *Path(others).glob("*-*/debug")):
            dependencies(folder, WORK / "target" / folder.relative_to(others), renew.CRATES, checked=False)
    WORK.mkdir(parents=True, exist_ok=True)
    mark.write_text(compiler)


def _build(step: Step, rust: Toolchain, evcxr: Path, lines: str) -> None:
    """Runs cells through the real kernel in the folder: the same calls of cargo that notebooks will make."""
    shutil.copyfile(paths.ROOT / "Cargo.lock", WORK / "gpulab.lock")
    paths.NOTEBOOKS.mkdir(exist_ok=True)
    target, began = WORK / "target", (WORK / MARK).stat().st_mtime
    missing = rust.crates(*recipe.crates(lines).split(", ")) - (set(built(target)) - set(built(target, began)))
    plain = lines == recipe.PLAIN and len(missing) > CURVE[-1] / 2
    counter = Counter(
        "building the crates",
        # Of our own crates cargo builds those again that changed, and which that are it does not say before.
        len(missing) or None,
        look=lambda: built(target, began),
        expected_s=CRATES_S if plain else None,
        curve=CURVE if plain else (),
    )
    with counter.told(step):
        run(
            [paths.VENV_PYTHON, "-m", "env.kernel_cache.first_cells", WORK, rust.folder, evcxr, lines],
            f"the kernel could not build {recipe.crates(lines)}",
            "look at the message above; `cargo check -p gpulab-lessons` shows the compiler's view. Notebooks keep the last build",
        )


def _put_in_place(stamp: dict) -> None:
    """The new build takes the old one's place in one moment; kernels that started on that have links of their own."""
    paths.write_json(WORK / recipe.STAMP, stamp)
    # In a container kernels that run have symbolic links to it, and its image's layers give no room back. While the image
    # is made there are none.
    keep = paths.LAYERED and os.environ.get("GPULAB_CONTAINER") == "1"
    with locked(recipe.SWAP_LOCK):
        for old in paths.WARM.iterdir():
            if old != WORK and not keep:
                shutil.rmtree(old, ignore_errors=True)
        # With its time: one that stays may be of the same sources, for fewer lines.
        WORK.rename(paths.WARM / f"{stamp['dependencies']}-{stamp['sources']}-{stamp['built']:.3f}")
