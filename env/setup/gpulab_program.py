"""The program `gpulab`, which looks at this machine (`make verify`)."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path

from env import paths
from env.command import run
from env.console import Step, ToolError, say
from env.kernel_cache import recipe, set_up_progress
from env.kernel_cache.set_up_progress import Counter
from env.setup.rust import Toolchain, check_linker, toolchain

# It looks, and prints a table, at once either way: what computes, `make train-cpu` and others, build one of their own.
SETTINGS = {"CARGO_PROFILE_RELEASE_OPT_LEVEL": "0"}
# So many processes waited for a core within the last minute, on average.
IDLE_LOAD = 0.5


def program(rust: Toolchain, quiet: bool = False) -> None:
    """Builds it when its sources changed."""
    step = Step("gpulab program", quiet)
    stamp = paths.GENERATED / "program.json"
    wanted = {"sources": recipe.sources_key(), "rustc": rust.version, **SETTINGS}
    if (paths.PROGRAMS / "gpulab").is_file() and paths.read_json(stamp) == wanted:
        return step.skipped("target/release/gpulab")
    check_linker()
    step.begin("building `gpulab verify`")
    began = time.time()
    total = len(rust.crates("gpulab-cli")) or None
    counter = Counter("building `gpulab verify`", total, look=lambda: set_up_progress.built(paths.TARGET, began))
    with counter.told(step, kernels=False):
        run(
            ["cargo", "build", "--release", "-p", "gpulab-cli", "--bin", "gpulab"],
            "the program `gpulab` could not be built",
            "look at the compiler's message above; `cargo build --release -p gpulab-cli` shows all of it",
            env={"CARGO_TARGET_DIR": str(paths.TARGET), **SETTINGS},
            loses="`make verify` does not run, and recorded runs cannot name their machine",
        )
    paths.write_json(stamp, wanted)
    return step.done("target/release/gpulab")


def built() -> Path:
    """Where it is, built where it is not yet."""
    program(toolchain(quiet=True), quiet=True)
    return paths.PROGRAMS / "gpulab"


def become(*words: str) -> None:
    """Goes on as `gpulab` with these words. Only its answer is on stdout: with --json another program reads it."""
    with contextlib.redirect_stdout(sys.stderr):
        command = [str(built()), *words]
    sys.stdout.flush()
    os.execve(command[0], command, {**os.environ, "LD_LIBRARY_PATH": paths.library_path()})


def when_idle(rust: Toolchain) -> None:
    """Builds it once the machine has had little to do for a minute, and after all others: lessons take times.

    `make verify` builds it itself where that moment never came, so that a failure here is no more than a line.
    """
    try:
        os.nice(19)
        while os.getloadavg()[0] > IDLE_LOAD:
            time.sleep(5)
        program(rust, quiet=True)
    except KeyboardInterrupt:
        return
    except (ToolError, OSError) as error:
        say("gpulab program", str(error))
