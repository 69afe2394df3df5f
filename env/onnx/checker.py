"""ONNX's own checker and shape inference."""

from __future__ import annotations

from pathlib import Path

import onnx


def check(path: Path) -> str:
    """A line about a file that passes; whatever is wrong with it is onnx's own exception."""
    onnx.checker.check_model(str(path), full_check=True)
    # Shapes follow from the graph alone; a large model's weights need not be read.
    inferred = onnx.shape_inference.infer_shapes(
        onnx.load(path, load_external_data=False), check_type=True, strict_mode=True, data_prop=True
    )
    known = {value.name for value in inferred.graph.value_info} | {value.name for value in inferred.graph.output}
    given = {name for node in inferred.graph.node for name in node.output}
    if unknown := sorted(given - known):
        raise ValueError(f"{path}: no shape follows for {', '.join(unknown)}")
    return f"{path}: passes onnx {onnx.__version__}'s full checker, and its strict shape inference for all {len(given)} values"
