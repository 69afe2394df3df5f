"""What the crate exports, in ONNX's checker and in ONNX Runtime; and that both would see a wrong file."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import numpy
import pytest
from env.ci import browser, steps
from env.console import ToolError

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from env.onnx import __main__ as command
from env.onnx import accuracy, compare
from env.onnx.web import write
from env.setup import onnxruntime_web as runtime

import browse_models

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
    print(command.check(folder / name))


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


@pytest.mark.parametrize(
    ("trained", "said"),
    [
        ("MNIST", "so `right` says little\nnext: name the folder"),
        ("generated digits, seed 7", "on test images of generated digits, seed 7"),
        ("", "on test images of generated digits, seed 7"),
    ],
)
def test_other_images_than_those_of_the_training_are_named(tmp_path: Path, trained: str, said: str) -> None:
    model = onnx.helper.make_model(onnx.helper.make_graph([], "nothing", [], []))
    onnx.helper.set_model_props(
        model,
        {"trained on": trained, "ranges": "of 500 images of generated digits, seed 7"}
        if trained
        else {"ranges": "of 500 images of generated digits, seed 7"},
    )
    onnx.save(model, tmp_path / "cnn-int8.onnx")
    found = accuracy.images(tmp_path / "cnn-int8.onnx")
    assert said in found and ("next:" in found) == (trained == "MNIST"), found


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
        command.check(copy)


# The same files in a browser.
needs_browser = pytest.mark.skipif(
    not steps.IN_CI and (browser.chromium() is None or not runtime.FOLDER.is_dir()),
    reason="no Chromium on PATH, or the set-up found no npm, which fetches ONNX Runtime for browsers",
)


@needs_browser
def test_a_browser_gives_what_candle_gives(folder: Path, tmp_path: Path) -> None:
    models = [folder / "course" / "cnn.onnx", folder / "course" / "gpt.onnx"]
    first = write.page(models, tmp_path / "page")
    seen = browse_models.look(first, str(browser.chromium()))
    print(compare.table(seen.rows))
    calls = [path for model in models for path in model.with_suffix(".reference").iterdir()]
    assert sorted(row.call for row in seen.rows) == sorted(path.name for path in calls)
    assert all(row.equal for row in seen.rows), compare.table(seen.rows)
    assert seen.verdict.startswith(f"{len(calls)} of {len(calls)} calls equal within 0.0001")
    # The network saw no image, so which digit it says means nothing; but it has looked.
    for chances in (seen.example, seen.drawn):
        assert len(chances) == 10 and abs(sum(chances) - 100) < 1
    assert seen.example != seen.drawn
    # With its cache the page chose, byte by byte, what one call for the whole text finds most probable.
    assert seen.written.startswith(browse_models.PROMPT.encode()) and len(seen.written) > 200, seen.written
    run = compare.session(models[1])
    ids = numpy.frombuffer(seen.written, dtype=numpy.uint8).astype(numpy.int64)[None]
    inputs = {"input_ids": ids, "attention_mask": numpy.ones_like(ids), "position_ids": numpy.arange(ids.size)[None]}
    past = {one.name: numpy.zeros((1, 4, 0, 32), numpy.float32) for one in run.get_inputs()[3:]}
    logits = run.run(["logits"], {**inputs, **past})[0][0, len(browse_models.PROMPT) - 1 : -1]
    behind = logits.max(axis=1) - logits[numpy.arange(len(logits)), ids[0, len(browse_models.PROMPT) :]]
    assert behind.max() < compare.LIMIT, f"byte {behind.argmax()} of {seen.written!r}"


@needs_browser
def test_a_browser_sees_another_weight_and_a_number_that_is_none(copy: Path, tmp_path: Path) -> None:
    for spoil in (1e-3, numpy.nan):
        model = onnx.load(copy)
        bias = next(weight for weight in model.graph.initializer if weight.name == "fc2.bias")
        numbers = onnx.numpy_helper.to_array(bias).copy()
        numbers[3] += spoil
        bias.CopyFrom(onnx.numpy_helper.from_array(numbers, "fc2.bias"))
        onnx.save(model, copy)
        first = write.page([copy], tmp_path / "page")
        with browse_models.page(first, str(browser.chromium())) as page:
            assert page.inner_text(".verdict").startswith("0 of 4 calls equal")
            # No model, no place for it.
            assert not page.is_visible("section.gpt")


@pytest.mark.parametrize("arguments", [["--web", "d", "gpt"], ["gpt", "--web=d"]])
def test_the_page_is_asked_for_beside_what_the_program_takes(arguments: list[str]) -> None:
    assert command.split(arguments) == (Path("d"), ["gpt"])
    assert command.split(["gpt", "--out", "x"]) == (None, ["gpt", "--out", "x"])


@pytest.mark.parametrize(
    ("arguments", "said"), [(["--web"], "names no folder"), (["check", "--web", "d"], "writes no model")]
)
def test_a_page_that_cannot_be_is_refused(arguments: list[str], said: str) -> None:
    with pytest.raises(ToolError, match=said):
        command.split(arguments)


def test_a_model_that_is_no_page_is_refused(folder: Path) -> None:
    with pytest.raises(ToolError, match="too large for a page"):
        write.model(folder / "external" / "gpt.onnx")


def test_without_npm_the_reader_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "FOLDER", tmp_path / "lib" / "1.0")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolError, match="`npm` is missing.*\nnext: install npm"):
        runtime.onnxruntime_web()


def test_without_a_network_the_reader_is_told_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "FOLDER", tmp_path / "lib" / "1.0")
    npm = tmp_path / "npm"
    npm.write_text("#!/bin/sh\necho no network >&2\nexit 1\n")
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(ToolError, match="could not be fetched(.|\n)*no network(.|\n)*next: connect this machine"):
        runtime.onnxruntime_web()
    assert not list(tmp_path.glob("lib/*"))


def test_another_package_is_not_taken(tmp_path: Path) -> None:
    package = tmp_path / "onnxruntime-web.tgz"
    with tarfile.open(package, "w:gz") as archive:
        archive.add(__file__, "package/dist/ort.wasm.min.js")
    with pytest.raises(ToolError, match="is not the package that the course knows"):
        runtime.unpack(package, tmp_path / "out")
    assert not (tmp_path / "out").exists()
