"""Times the exported CNN by ONNX Runtime through this crate and through its Python package, interleaved; writes a table.

`python3 -m env.baselines.record_export` runs `examples/record_export`, and answers for the Python package: the same file, the
same options, inputs and outputs bound on the same side.
"""

from __future__ import annotations

from env.baselines import pages
from env.baselines.recorder import Recorder
from env.console import tool

RECORDER = Recorder("export", "gpulab-onnx", "onnx_peer", "onnxruntime", pages.export)
OPTIONS = {
    "--metrics": "also append rows for lesson 42 to this file",
    "--batches": "these batch sizes alone, such as 1,8,256",
}

if __name__ == "__main__":
    tool(lambda: RECORDER.main(__doc__, OPTIONS))
