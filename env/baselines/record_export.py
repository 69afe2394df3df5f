"""Times the exported CNN by ONNX Runtime through this crate and through its Python package, interleaved; writes a table.

`python3 -m env.baselines.record_export` runs `examples/record_export`, and answers for the Python package: the same file, the
same options, inputs and outputs bound on the same side.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from env.baselines import pages
from env.baselines.recorder import Recorder
from env.console import tool

RECORDER = Recorder("export", "gpulab-onnx", "onnx_peer", "onnxruntime", pages.export)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = RECORDER.parser(__doc__)
    made.add_argument("--metrics", type=Path, help="also append rows for lesson 42 to this file")
    made.add_argument("--batches", help="these batch sizes alone, such as 1,8,256")
    return made


def main() -> None:
    """Ends badly when something could not be timed."""
    chosen = parser().parse_args()
    more = ["--metrics", str(chosen.metrics.resolve())] if chosen.metrics else []
    more += ["--batches", chosen.batches] if chosen.batches else []
    RECORDER.record(chosen, lambda _folder: more, [])


if __name__ == "__main__":
    tool(main)
