"""CPU against GPU by experiment (`make report`): builds the program `gpulab` with polars if need be, and has it summarise
`results/metrics.csv` (with none there, the recorded run) as text, a page and a chart beside it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from env import in_venv, paths
from env.command import run
from env.console import SetupError, Step, problem
from env.run import redraw


def build() -> None:
    """The program with polars: minutes for the first time, a second when nothing changed."""
    step = Step("gpulab, polars")
    step.begin("building `gpulab report`")
    count: list[str] = []
    with step.heartbeat(lambda: f"{len(count)} crates built"):
        run(
            ["cargo", "build", "--release", "-p", "gpulab-cli", "--bin", "gpulab", "--features", "tables"],
            "the program `gpulab` could not be built with polars",
            "look at the compiler's message above",
            env={"CARGO_TARGET_DIR": str(paths.TARGET)},
            on_line=lambda line: count.append(line) if line.strip().startswith("Compiling ") else None,
            loses="`make report` has no report",
        )
    step.done("target/release/gpulab")


def main() -> int:
    """Prints the tables, and where the files lie."""
    in_venv.enter()
    try:
        build()
    except SetupError as error:
        problem(error)
        return 1
    made = subprocess.run(
        [str(paths.PROGRAMS / "gpulab"), "report", *sys.argv[1:]], stdout=subprocess.PIPE, check=False
    )
    text = made.stdout.decode()
    sys.stdout.write(text)
    if made.returncode != 0:
        return made.returncode
    # The program names its files in the last line.
    files = [Path(name) for name in text.rstrip().rpartition("written: ")[2].split(", ")]
    for svg in (file for file in files if file.suffix == ".svg"):
        if redraw.fonts_missing():
            print(
                "no PNG: no font is installed, and it would have no text\nnext: install one (apt install fonts-dejavu-core)"
            )
            continue
        png = svg.with_suffix(".png")
        png.write_bytes(redraw.png(svg.read_text(encoding="utf-8"), svg.name))
        print(f"         {png}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
