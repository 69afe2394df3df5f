"""ONNX Runtime's Python package on the same file as `examples/record_export`, its inputs and outputs bound as there."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy
import onnxruntime

TYPES = {"f32": numpy.float32, "i64": numpy.int64}
# In f32 without TF32, as the crate has it.
OPTIONS = {"CPUExecutionProvider": {}, "CUDAExecutionProvider": {"use_tf32": "0"}}


class Session:
    """The file on one provider."""

    def __init__(self, model: str, provider: str) -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        self.provider = provider
        self.session = onnxruntime.InferenceSession(model, options, providers=[(provider, OPTIONS[provider])])
        self.device = "cpu" if provider.startswith("CPU") else "cuda"
        self.binding = None

    def set(self, inputs: list) -> None:
        """Copies the inputs to where it computes."""
        self.binding = self.session.io_binding()
        self.kept = []
        for name, kind, shape, file in inputs:
            array = numpy.fromfile(file, TYPES[kind]).reshape(shape)
            value = onnxruntime.OrtValue.ortvalue_from_numpy(array, self.device, 0)
            self.kept += [array, value]
            self.binding.bind_ortvalue_input(name, value)
        for output in self.session.get_outputs():
            self.binding.bind_output(output.name, self.device)
        self.binding.synchronize_inputs()

    def run(self) -> None:
        """One call, waited for."""
        self.session.run_with_iobinding(self.binding)
        self.binding.synchronize_outputs()

    def output(self, file: str) -> None:
        """The first output of a call, to that file."""
        self.run()
        self.binding.get_outputs()[0].numpy().astype(numpy.float32).tofile(file)

    def calls(self, count: int) -> list[float]:
        """The µs of each call; one before them is not timed."""
        self.run()
        times = []
        for _ in range(count):
            begun = time.perf_counter()
            self.run()
            times.append((time.perf_counter() - begun) * 1e6)
        return times


def sessions(model: str) -> list[Session]:
    """The file on every provider that this package has, and that loads; what does not is said."""
    if hasattr(onnxruntime, "preload_dlls"):
        onnxruntime.preload_dlls()
    made = []
    for name in OPTIONS:
        if name not in onnxruntime.get_available_providers():
            continue
        try:
            session = Session(str(Path(model)), name)
        except Exception as error:  # noqa: BLE001  the package raises what its C++ throws
            print(f"Python's onnxruntime on {name}: left out ({error})", file=sys.stderr)
            continue
        # A provider that does not load leaves a session on the CPU behind.
        if session.session.get_providers()[0] == name:
            made.append(session)
        else:
            print(f"Python's onnxruntime on {name}: left out, it fell back to the CPU", file=sys.stderr)
    return made


class Partner:
    """What answers the program's lines; others than objects are its own words."""

    def __init__(self, _folder: Path) -> None:
        self.sessions: list[Session] = []

    def answer(self, line: str) -> str | None:
        """The sessions of a model, or what one of them is asked for."""
        if not line.startswith("{"):
            return None
        asked = json.loads(line)
        if "model" in asked:
            self.sessions += sessions(asked["model"])
            return json.dumps([session.provider for session in self.sessions])
        session = self.sessions[asked["session"]]
        if "calls" in asked:
            return json.dumps(session.calls(asked["calls"]))
        if "set" in asked:
            session.set(asked["set"])
        else:
            session.output(asked["output"])
        return json.dumps("ok")
