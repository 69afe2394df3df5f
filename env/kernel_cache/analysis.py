"""What evcxr's type analysis takes for cargo: the real one, which it asks which crates there are, with a shorter answer.

The analysis (rust-analyzer, inside evcxr) reads the sources of every crate that `cargo metadata` lists. That list knows no
platform when it adds features up: candle comes with Metal and CUDA on any machine, polars with its SQL and its clouds,
half of it never built. metadata.py leaves out what `cargo tree` does not have, and what no type of a cell comes from; it
keeps its answers, as they are the same at each start.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from env import paths

ANSWERS = paths.GENERATED / "metadata"
SCRIPT = """#!/bin/sh
CARGO_HOME={home}; export CARGO_HOME
case " $* " in
*" --no-deps "*) ;;
" metadata "*) exec {python} -I {program} {answers} "$CARGO" "$@" ;;
esac
exec "$CARGO" "$@"
"""


def home() -> Path:
    """The reader's own CARGO_HOME."""
    return paths.cargo_bin().parent


def stand_in(folder: Path) -> Path:
    """The CARGO_HOME of the kernel that builds in `folder`: beside it, as the analysis reads all that lies in there."""
    return folder.with_name(f"{folder.name}-cargo")


def prepare(build: Path) -> None:
    """Makes that folder. The analysis looks for cargo in its `bin` before anywhere else; all else is the reader's own."""
    folder, own = stand_in(build), home()
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    program = Path(__file__).with_name("metadata.py")
    words = {"home": own, "python": sys.executable, "program": program, "answers": ANSWERS}
    script = folder / "bin" / "cargo"
    script.write_text(SCRIPT.format(**{name: shlex.quote(str(word)) for name, word in words.items()}), encoding="utf-8")
    script.chmod(0o755)
    for entry in own.iterdir() if own.is_dir() else ():
        link = folder / entry.name
        if entry.name != "bin" and not link.is_symlink():
            link.symlink_to(entry)


def restore() -> str:
    """The command by which evcxr's own builds get the reader's CARGO_HOME back."""
    return f":build_env CARGO_HOME={home()}"
