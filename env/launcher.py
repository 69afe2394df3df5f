"""What Jupyter starts for a notebook: a linked copy of the warmed build for this kernel alone, and evcxr_jupyter on it.

Two notebooks must never build in one folder, and neither should build what the other has built. Jupyter talks to
the relay (env/relay); the next start removes what this one leaves behind.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
from pathlib import Path

from env import paths
from env.kernel_cache import lock, recipe
from env.kernel_cache.tree import linked_copy
from env.relay import NotReadyError

OWNER = "owner.lock"
START_LOCK = paths.GENERATED / "kernels.lock"
SETUP = f"open a terminal in {paths.ROOT}, run `make setup`, then run the cell again"


def remove_dead(kernels: Path) -> None:
    """Removes the folders of kernels that have ended, however they ended."""
    # Nobody takes a folder for dead between its making and its locking.
    with lock.locked(START_LOCK):
        dead = [folder for folder in kernels.glob("*") if lock.is_free(folder / OWNER)]
    for folder in dead:
        shutil.rmtree(folder, ignore_errors=True)


def own_folder(kernels: Path) -> Path:
    """A new folder that stays ours until this process ends."""
    kernels.mkdir(parents=True, exist_ok=True)
    with lock.locked(START_LOCK):
        folder = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=kernels))
        lock.take(folder / OWNER)
    return folder


def toolchain(state: dict) -> Path:
    """The Rust that the set-up found, if it is still the same."""
    folder = Path(state.get("toolchain", ""))
    try:
        same = (folder / "bin" / "rustc").stat().st_mtime == state.get("rustc_time")
    except OSError:
        same = False
    if not same:
        raise NotReadyError("Rust was updated or removed after the set-up")
    return folder


def preload(stamp: dict, notebook: str, folder: Path) -> str | None:
    """The notebook's `:dep` lines, to load them ahead of its first cell, if that is sure to need no build."""
    if not notebook.endswith(".ipynb"):
        return None
    lines = recipe.dep_lines(paths.read_json(folder / Path(notebook).name))
    current = stamp["sources"] == recipe.sources_key() and recipe.newest_source() <= stamp["built"]
    # A line that fails here would end the kernel; in the cell it is an error that can be read.
    sure = lines is not None and recipe.serves(stamp["lines"], lines) and (folder / "../support-crate").is_dir()
    return lines if sure and current else None


def prepare(base: dict[str, str], working_folder: Path) -> tuple[Path, dict[str, str]]:
    """Makes the kernel's folder; gives the program to run and its environment."""
    state = paths.read_json(paths.STATE)
    if not state:
        raise NotReadyError("the set-up has not been run")
    evcxr, rust = Path(state.get("evcxr", "")), toolchain(state)
    if not os.access(evcxr, os.X_OK):
        raise NotReadyError("evcxr_jupyter, the program that runs Rust cells, is missing")
    with lock.locked(recipe.SWAP_LOCK, shared=True):
        warmed, stamp = recipe.warmed()
        if warmed is None:
            raise NotReadyError("the support crate has not been built yet")
        if stamp["dependencies"] != recipe.dependencies_key(state.get("rustc", "")):
            raise NotReadyError("the crates that the course uses have changed since the set-up")
        folder = own_folder(paths.KERNELS)
        build = folder / "build"
        try:
            linked_copy(warmed, build, soft=paths.LAYERED or os.environ.get("GPULAB_SOFT_LINKS") == "1")
        except OSError:
            # On a full disk half a copy is in the way.
            shutil.rmtree(build, ignore_errors=True)
            raise
    # Jupyter's server names the notebook; a runner without a server can do the same.
    notebook = base.get("GPULAB_NOTEBOOK") or base.get("JPY_SESSION_NAME", "")
    recipe.write_config(build, preload(stamp, notebook, working_folder))
    return evcxr, recipe.environment(base, build, rust, evcxr)


def start() -> tuple[Path, dict[str, str]]:
    """evcxr's program and environment, or `NotReadyError` with what to do."""
    try:
        return prepare(dict(os.environ), Path.cwd())
    except NotReadyError as error:
        raise NotReadyError(f"{error}\nnext: {SETUP}") from None
    finally:
        # Thousands of files, for which no cell waits; on a full disk the next start has their room.
        threading.Thread(target=remove_dead, args=(paths.KERNELS,), daemon=True).start()


def main(connection_file: str) -> None:
    """Runs the kernel until Jupyter ends it."""
    from env.relay import loop

    loop.serve(connection_file, start)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(
            "usage: python -m env.launcher CONNECTION_FILE\nnext: Jupyter calls this; open a notebook with `make lab`"
        )
    main(sys.argv[1])
