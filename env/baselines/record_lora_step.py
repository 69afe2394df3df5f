"""Times a step of LoRA and of QLoRA on SmolLM2-135M's shape on this GPU beside Hugging Face's peft, and writes a table.

`python3 -m env.baselines.record_lora_step` has `examples/record_lora_step` time the course's kernels (and candle, where it was built with
CUDA), and in each repetition peft here, on the same weights, adapters and tokens. Gradients are compared with candle's in f32 and
losses with peft's before a time counts.
"""

from __future__ import annotations

from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from env.baselines import pages
from env.baselines.pages import Facts
from env.baselines.recorder import Recorder
from env.console import tool


def page(table: Path, facts: Facts) -> str:
    """The page, with the versions of what peft stands on."""
    there = [name for name in ("peft", "transformers") if find_spec(name) is not None]
    return pages.lora_step(table, facts | {name: version(name) for name in there})


RECORDER = Recorder("lora_step", "gpulab-nn", "peft_step_torch", "peft", page)

OPTIONS = {
    "--work": "texts x tokens, such as 8x512,4x128",
    "--ways": "of peft: eager,bf16,compiled,graphs",
    "--quick": "few samples",
}

if __name__ == "__main__":
    tool(lambda: RECORDER.main(__doc__, OPTIONS))
