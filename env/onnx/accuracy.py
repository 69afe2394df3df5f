"""The CNN in f32 and in 8 bits, in ONNX Runtime on the same test images: what the integers cost, and what they save."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import numpy

import onnx
from env.onnx.compare import read, session

# Images at a time, and how often each model is timed, interleaved.
BATCH, ROUNDS = 100, 7


@dataclass(frozen=True)
class Judged:
    """One model on the test images."""

    model: str
    size: int
    """Bytes of the file."""
    right: float
    """The share of the images that it reads right."""
    same: float
    """The share that it reads as candle does in 8 bits."""
    images_per_s: float
    """The median of the rounds."""


def judge(exact: Path, rounded: Path) -> list[Judged]:
    """Both models on the images beside the second."""
    folder = rounded.with_suffix(".reference") / "test"
    images = read(folder, "input")["images"]
    expected = read(folder, "output")["logits"].argmax(axis=1)
    digits = onnx.numpy_helper.to_array(onnx.load_tensor(str(folder / "labels_0.pb")))
    runs = {path: session(path) for path in (exact, rounded)}
    rates: dict[Path, list[float]] = {path: [] for path in runs}
    logits: dict[Path, numpy.ndarray] = {}
    for _ in range(ROUNDS):
        for path, run in runs.items():
            started = time.perf_counter()
            parts = [run.run(None, {"images": images[at : at + BATCH]})[0] for at in range(0, len(images), BATCH)]
            rates[path].append(len(images) / (time.perf_counter() - started))
            logits[path] = numpy.concatenate(parts)
    return [
        Judged(
            path.name,
            path.stat().st_size,
            float((logits[path].argmax(axis=1) == digits).mean()),
            float((logits[path].argmax(axis=1) == expected).mean()),
            statistics.median(rates[path]),
        )
        for path in runs
    ]


def images(rounded: Path) -> str:
    """Which images the models were judged on; where these are not the ones that the network was trained on, that and what to do."""
    notes = {one.key: one.value for one in onnx.load(rounded, load_external_data=False).metadata_props}
    used, trained = notes.get("ranges", "").partition(" images of ")[2], notes.get("trained on", "")
    if not trained or used == trained:
        return f"on test images of {used}"
    return (
        f"on test images of {used}; the network was trained on {trained}, so `right` says little\n"
        'next: name the folder of its images: make export-onnx ARGS="--data FOLDER"'
    )


def table(rows: list[Judged]) -> str:
    """The rows, for people."""
    lines = [f"{'model':<16} {'bytes':>10} {'right':>9} {'as candle in 8 bits':>20} {'images a second':>16}"]
    for row in rows:
        right, same = f"{row.right:.2%}", f"{row.same:.2%}"
        lines.append(f"{row.model:<16} {row.size:>10} {right:>9} {same:>20} {row.images_per_s:>16.0f}")
    return "\n".join(lines)
