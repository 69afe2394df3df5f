"""ONNX Runtime on the CPU against candle: the same inputs, all outputs, the largest difference of each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy
import onnxruntime

import onnx

# What the two may differ by: both compute in f32, and sum in another order.
LIMIT = 1e-4


@dataclass(frozen=True)
class Row:
    """One call of one model."""

    model: str
    call: str
    outputs: int
    numbers: int
    largest: float
    """The largest absolute difference of all outputs."""
    size: float
    """The largest number that candle gave."""

    @property
    def equal(self) -> bool:
        """Within the limit, and for numbers below 1 within that share of the largest; NaN never is."""
        return self.largest <= LIMIT * min(1.0, self.size)


def read(folder: Path, word: str) -> dict[str, numpy.ndarray]:
    """Tensors by name, of the files that the program wrote."""
    found = {}
    for path in folder.glob(f"{word}_*.pb"):
        tensor = onnx.load_tensor(str(path))
        found[tensor.name] = onnx.numpy_helper.to_array(tensor)
    return found


def session(model: Path) -> onnxruntime.InferenceSession:
    """ONNX Runtime's CPU, and no other; products of 8 bits are summed up exactly."""
    options = onnxruntime.SessionOptions()
    # On a CPU with AVX2 and without VNNI sums of two products do not fit into the 16 bits that it else gives them.
    options.add_session_config_entry("session.x64quantprecision", "1")
    return onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


def compare(model: Path) -> list[Row]:
    """All calls that lie beside `model.onnx` in `model.reference`."""
    run, rows = session(model), []
    for folder in sorted(model.with_suffix(".reference").iterdir()):
        expected = read(folder, "output")
        names = [output.name for output in run.get_outputs()]
        if sorted(names) != sorted(expected):
            raise ValueError(f"{folder}: outputs {sorted(expected)}, and the model gives {sorted(names)}")
        found = dict(zip(names, run.run(names, read(folder, "input")), strict=True))
        largest = 0.0
        for name, values in expected.items():
            if values.shape != found[name].shape:
                raise ValueError(f"{folder}: `{name}` has the shape {found[name].shape}, and candle's {values.shape}")
            # A maximum that meets a NaN must not lose it.
            largest = float(numpy.max([largest, numpy.max(numpy.abs(values - found[name]))]))
        numbers = sum(values.size for values in expected.values())
        top = max(float(numpy.max(numpy.abs(values))) for values in expected.values())
        rows.append(Row(model.stem, folder.name, len(expected), numbers, largest, top))
    return rows


def table(rows: list[Row]) -> str:
    """The rows, for people."""
    lines = [
        f"{'model':<6} {'call':<28} {'outputs':>7} {'numbers':>9} {'largest number':>14} {'largest difference':>18}"
    ]
    for row in rows:
        lines.append(
            f"{row.model:<6} {row.call:<28} {row.outputs:>7} {row.numbers:>9} {row.size:>14.3f} {row.largest:>18.1e}"
            + ("" if row.equal else f"  more than {LIMIT:g}")
        )
    equal = sum(row.equal for row in rows)
    return "\n".join(
        [*lines, f"{equal} of {len(rows)} calls equal within {LIMIT:g} (ONNX Runtime {onnxruntime.__version__})"]
    )
