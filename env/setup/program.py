"""The program `gpulab`, which looks at this machine (`make verify`)."""

from __future__ import annotations

import os

from env import paths
from env.command import run
from env.console import Step
from env.kernel_cache import recipe
from env.setup.rust import Toolchain, check_linker

# Where nobody waits for it twice (GPULAB_QUICK_BUILD, which CI sets): `verify` answers at once either way.
QUICK = {"CARGO_PROFILE_RELEASE_OPT_LEVEL": "0"}


def program(rust: Toolchain, quiet: bool = False) -> None:
    """Builds it when its sources changed."""
    step = Step("gpulab program", quiet)
    stamp = paths.GENERATED / "program.json"
    settings = QUICK if os.environ.get("GPULAB_QUICK_BUILD") else {}
    # Of other settings it is another program, which a reader's own set-up replaces.
    wanted = {"sources": recipe.sources_key(), "rustc": rust.version, **settings}
    built = paths.PROGRAMS / "gpulab"
    if built.is_file() and paths.read_json(stamp) == wanted:
        return step.skipped("target/release/gpulab")
    check_linker()
    step.begin("building `gpulab verify`")
    count: list[str] = []
    with step.heartbeat(lambda: f"{len(count)} crates built"):
        run(
            ["cargo", "build", "--release", "-p", "gpulab-cli", "--bin", "gpulab"],
            "the program `gpulab` could not be built",
            "look at the compiler's message above; `cargo build --release -p gpulab-cli` shows all of it",
            env={"CARGO_TARGET_DIR": str(paths.TARGET), **settings},
            on_line=lambda line: count.append(line) if line.strip().startswith("Compiling ") else None,
            loses="`make verify` does not run, and recorded runs cannot name their machine",
        )
    paths.write_json(stamp, wanted)
    return step.done("target/release/gpulab")
