"""Times the programs on tiles in Rust on this GPU beside Triton's, cuBLAS, cuDNN and PyTorch, and writes a table and its page.

`python3 -m env.baselines.record_tiles` has `examples/record_tiles` time each program on the same arrays as Triton's kernels, in turn;
these are tuned here first, and each is checked before its times count. `--sweep` times other constants of ours, too.
Where the package flash-attn-4 is installed, its attention takes part, as in `record_ladders`.
A machine without rustc takes what `record_tiles --pack FOLDER` compiled elsewhere: `--ptx FOLDER`. `--cutile PROGRAM` times
cuTile, too, by a program that is built apart (`env/baselines/cutile`). Topics may be named.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from env.baselines import pages
from env.baselines.recorder import Recorder
from env.console import tool

RECORDER = Recorder("tiles", "gpulab-kernels", "triton_peer", "triton", pages.tiles)


def main() -> None:
    """Ends badly when something could not be timed."""
    made = RECORDER.parser(__doc__)
    made.add_argument("--cutile", type=Path, help="the built program of env/baselines/cutile, as one more peer")
    made.add_argument("--sweep", action="store_true", help="other constants, too: what the chosen ones are chosen from")
    made.add_argument("--ptx", type=Path, help="the folder of `record_tiles --pack`, in place of rustc")
    made.add_argument(
        "topics", nargs="*", help="of matmul_bf16, softmax, flash_attention, flash_attention_causal; all without any"
    )
    chosen = made.parse_args()
    more = [*(["--sweep"] if chosen.sweep else []), *(["--ptx", str(chosen.ptx.resolve())] if chosen.ptx else [])]
    recorder = replace(RECORDER, settings={"cutile": chosen.cutile.resolve()} if chosen.cutile else {})
    recorder.record(chosen, lambda folder: more, chosen.topics)


if __name__ == "__main__":
    tool(main)
