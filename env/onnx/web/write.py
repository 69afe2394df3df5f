"""Writes the page: `index.html`, its styles and scripts, ONNX Runtime, and a script for each model."""

from __future__ import annotations

import base64
import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import numpy

import onnx
from env import paths
from env.console import ToolError
from env.onnx.compare import LIMIT, read
from env.setup import onnxruntime_web as runtime

STATIC = Path(__file__).with_name("static")
# The book's colours and letters.
STYLES = [paths.ENV / "book" / "static" / name for name in ("book.css", "content.css")]
# A page that a browser opens in one piece.
MOST_BYTES = 64 << 20
# What the page does with a model goes by its first input.
KINDS = {"images": "cnn", "input_ids": "gpt"}


def packed(content: bytes) -> str:
    """As text, as the page's function `unpack` reads it."""
    return base64.b64encode(gzip.compress(content, 1, mtime=0)).decode()


def tensor(name: str, values: numpy.ndarray) -> dict[str, Any]:
    """A tensor for ONNX Runtime in JavaScript; WebAssembly's numbers are little-endian, as these."""
    kind = {"float32": "float32", "int64": "int64"}[str(values.dtype)]
    return {"name": name, "type": kind, "dims": list(values.shape), "data": packed(values.tobytes())}


def model(path: Path) -> tuple[str, dict[str, Any]]:
    """The model's name on the page, and all that it needs: the file, and the calls that lie beside it."""
    graph = onnx.load(str(path), load_external_data=False).graph
    outside = any(weight.data_location == onnx.TensorProto.EXTERNAL for weight in graph.initializer)
    if outside or path.stat().st_size > MOST_BYTES:
        raise ToolError(f"{path} is too large for a page", "leave --web out, or export a smaller model")
    name = KINDS.get(graph.input[0].name)
    if name is None:
        raise ToolError(f"{path}: the page has no use for a model of {graph.input[0].name}", "leave --web out")
    calls = []
    for folder in sorted(path.with_suffix(".reference").iterdir()):
        inputs, outputs = read(folder, "input"), read(folder, "output")
        sides = {"inputs": inputs, "outputs": outputs}
        calls.append(
            {"name": folder.name, **{side: [tensor(*one) for one in found.items()] for side, found in sides.items()}}
        )
    known: dict[str, Any] = {"file": path.name, "bytes": path.stat().st_size, "calls": calls}
    if name == "gpt":
        # As `gpulab_nn::gpt` has it: a model of 256 tokens reads bytes.
        shapes = {weight.name: list(weight.dims) for weight in graph.initializer}
        vocabulary, _ = shapes["wte.weight"]
        context, _ = shapes["wpe.weight"]
        past = [one for one in graph.input if one.name.startswith("past_key_values.")]
        known |= {"bytewise": vocabulary == 256, "context": context, "past": [one.name for one in past]}
        known["heads"], known["head"] = (past[0].type.tensor_type.shape.dim[axis].dim_value for axis in (1, 3))
    return name, {**known, "onnx": packed(path.read_bytes())}


def page(models: list[Path], to: Path) -> Path:
    """Writes it all into a folder; its first page. Files of an earlier page are replaced."""
    made = dict(model(path) for path in models)
    if not runtime.FOLDER.is_dir():
        runtime.onnxruntime_web()
    fetched = runtime.FOLDER
    program = {"version": runtime.VERSION, "limit": LIMIT}
    program |= {"glue": packed((fetched / runtime.GLUE).read_bytes())}
    program |= {"program": packed((fetched / runtime.PROGRAM).read_bytes())}
    to.mkdir(parents=True, exist_ok=True)
    for source in [*STYLES, *sorted(STATIC.iterdir()), fetched / runtime.SCRIPT]:
        shutil.copyfile(source, to / source.name)
    (to / "runtime.js").write_text(f"gpulab.runtime = {json.dumps(program)};\n", encoding="utf-8")
    # An empty script for a model that is not there: the page then says what writes it.
    for name in KINDS.values():
        text = f"gpulab.models.{name} = {json.dumps(made[name])};\n" if name in made else ""
        (to / f"{name}.js").write_text(text, encoding="utf-8")
    return to / "index.html"
