"""What the crate exports, in ONNX's checker and in ONNX Runtime; and that both would see a wrong file."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from env.ci import steps

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from env.onnx import accuracy, checker, compare

ROOT = Path(__file__).resolve().parents[2]
EXACT = ("course/cnn.onnx", "course/gpt.onnx", "external/gpt.onnx", "older/cnn.onnx", "older/gpt.onnx")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Written by the crate's own test, with candle's outputs; the same build as that of the Rust tests."""
    folder = tmp_path_factory.mktemp("exported")
    done = subprocess.run(
        steps.cargo("test", *steps.BUILDS["candle"], "--test", "export"),
        cwd=ROOT,
        env={**os.environ, **steps.environment(), "GPULAB_EXPORTED": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    """The CNN, to be spoiled."""
    shutil.copytree(folder / "course" / "cnn.reference", tmp_path / "cnn.reference")
    return Path(shutil.copy(folder / "course" / "cnn.onnx", tmp_path))


@pytest.mark.parametrize("name", [*EXACT, "course/cnn-int8.onnx", "older/cnn-int8.onnx"])
def test_the_checker_passes_every_file(folder: Path, name: str) -> None:
    print(checker.check(folder / name))


@pytest.mark.parametrize("name", EXACT)
def test_onnx_runtime_gives_what_candle_gives(folder: Path, name: str) -> None:
    rows = compare.compare(folder / name)
    print(compare.table(rows))
    assert len(rows) >= 4
    assert all(row.equal for row in rows), compare.table(rows)


@pytest.mark.parametrize("written", ["course", "older"])
def test_integers_give_what_candle_says_they_give(folder: Path, written: str) -> None:
    (row,) = compare.compare(folder / written / "cnn-int8.onnx")
    # A number halfway between two integers may become either: that is a step of one product of many.
    assert 0 < row.largest < 0.02 * row.size, row
    exact, rounded = accuracy.judge(folder / written / "cnn.onnx", folder / written / "cnn-int8.onnx")
    assert rounded.size < 0.27 * exact.size
    assert rounded.same > 0.9
    print(accuracy.table([exact, rounded]))


@pytest.mark.parametrize("written", ["course", "older"])
def test_onnx_runtime_computes_in_integers(folder: Path, tmp_path: Path, written: str) -> None:
    """It takes a pair only in the form that it knows; else it computes in f32, slower than without pairs."""
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "computed.onnx")
    options.log_severity_level = 3
    onnxruntime.InferenceSession(folder / written / "cnn-int8.onnx", options, providers=["CPUExecutionProvider"])
    computed = [node.op_type for node in onnx.load(options.optimized_model_filepath).graph.node]
    assert [name for name in computed if name.startswith("Q")] == [
        "QuantizeLinear",
        *["QLinearConv"] * 2,
        *["QGemm"] * 2,
    ]
    assert "DequantizeLinear" not in computed


def test_another_weight_is_seen(copy: Path) -> None:
    model = onnx.load(copy)
    bias = next(weight for weight in model.graph.initializer if weight.name == "fc2.bias")
    numbers = onnx.numpy_helper.to_array(bias).copy()
    numbers[3] += 1e-3
    bias.CopyFrom(onnx.numpy_helper.from_array(numbers, "fc2.bias"))
    onnx.save(model, copy)
    rows = compare.compare(copy)
    assert not any(row.equal for row in rows)
    assert "0 of 4 calls equal" in compare.table(rows)


def test_a_number_that_is_none_is_seen(copy: Path) -> None:
    model = onnx.load(copy)
    bias = next(weight for weight in model.graph.initializer if weight.name == "fc2.bias")
    bias.raw_data = b"\xff\xff\xff\xff" + bias.raw_data[4:]
    onnx.save(model, copy)
    assert not any(row.equal for row in compare.compare(copy))


def test_a_missing_output_is_seen(copy: Path) -> None:
    (copy.with_suffix(".reference") / "batch-2" / "output_0.pb").unlink()
    with pytest.raises(ValueError, match="the model gives"):
        compare.compare(copy)


@pytest.mark.parametrize("spoil", ["attribute", "shape", "operator"])
def test_the_checker_sees_what_is_wrong(copy: Path, spoil: str) -> None:
    model = onnx.load(copy)
    if spoil == "attribute":
        model.graph.node[0].attribute[0].name = "kernel_shap"
    elif spoil == "shape":
        model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 11
    else:
        model.graph.node[0].op_type = "Convolution"
    onnx.save(model, copy)
    with pytest.raises(Exception, match="(kernel_shap|nferred shape|Convolution)"):
        checker.check(copy)
