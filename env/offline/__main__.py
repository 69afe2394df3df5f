"""`make bundle`: all that a Linux machine without internet needs to run the notebooks, in parts of a chosen size.

PART=60M is the largest size of a part; PYTHON=3.12 is the other machine's Python; NVRTC=13, 12, 12.4 to 12.9 or
none is the compiler for CUDA C to take along (none where that machine has a CUDA toolkit).
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
import time
import zipapp
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path

from env import paths
from env.console import ToolError, tool
from env.offline import crates, pack, repository, wheels
from env.offline.toolchain import Toolchain, kernel, needed_glibc
from env.setup import headers
from env.setup.nvrtc import CUDA_12, CUDA_13

SCRATCH = paths.GENERATED / "bundle"
DIST = paths.ROOT / "dist"
PARTS = paths.ENV / "offline"
# What travels in `unpack.pyz`, with the one error class.
UNPACK = ("__init__", "archives", "target", "unpacker")


def nvrtc_package(wish: str) -> str | None:
    """The package and version of the compiler for CUDA C; None where none is wanted."""
    known = {"13": "=".join([CUDA_13[0], "", CUDA_13[1]]), "none": None}
    known |= {f"12.{minor}": f"nvidia-cuda-nvrtc-cu12=={version}" for minor, version in CUDA_12.items()}
    known["12"] = known[f"12.{max(CUDA_12)}"]
    if wish not in known:
        raise ToolError(f"NVRTC={wish} is unknown", f"make bundle NVRTC=13; also known: {', '.join(sorted(known))}")
    return known[wish]


def components(python: str, wish: str, machine: str) -> tuple[list[pack.Component], dict]:
    """What goes into the unchanging part, and what the other machine is told about it."""
    toolchain = Toolchain()
    packages = [wheels.PIP, *wheels.requirements(python)]
    # The kernel first: whoever wants it alone then needs the first part only (setup/prebuilt.py).
    found = [kernel(), *toolchain.components()]
    say("rust", f"{toolchain.version.splitlines()[0]}, {toolchain.sysroot.name}")
    found.append(crates.component(toolchain, SCRATCH))
    found.append(wheels.component(f"wheels-{python}", packages, python, machine, SCRATCH))
    compiler = nvrtc_package(wish)
    if compiler:
        found.append(wheels.component("nvrtc", [compiler], wheels.ANY_PYTHON, machine, SCRATCH))
        texts = headers.packages(compiler.split("==")[1])
        found.append(wheels.component("headers", texts, wheels.ANY_PYTHON, machine, SCRATCH))
    programs = [file for one in found if one.name in ("llvm", "rust", "kernel") for file in one.files.values()]
    info = {
        "machine": machine,
        "python": python,
        "glibc": needed_glibc(programs),
        "rust": toolchain.version.splitlines()[0],
        "nvrtc": compiler or "none",
        "requirements": packages[1:],
    }
    return found, info


def say(name: str, text: str, took: float | None = None) -> None:
    """One line for one step, with its seconds."""
    print(f"{name:<12}{text}" + (f"  ({took:.1f} s)" if took is not None else ""), flush=True)


def mb(size: int) -> str:
    """Bytes as MB."""
    return f"{size / 1e6:.1f} MB"


def packed(found: list[pack.Component]) -> tuple[list[Path], int]:
    """All archives, two cores at work; those of before are kept. Also the size of all files unpacked."""
    largest_first = sorted(found, key=lambda one: -sum(file.lstat().st_size for file in one.files.values()))
    archives, total = {}, 0
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        waiting: dict[str, Future[tuple[Path, int, float]]] = {}
        for one in largest_first:
            kept = (SCRATCH / f"{one.name}-{one.key}.tar.xz").is_file()
            waiting[one.name] = pool.submit(pack.compress, one, SCRATCH)
            say(one.name, f"{len(one.files)} files" + (", packed before" if kept else ", being packed"))
        for name, job in waiting.items():
            archives[name], size, took = job.result()
            say(name, f"{mb(size)} in {mb(archives[name].stat().st_size)}", took)
            total += size
    return [archives[one.name] for one in found], total


def write_script(sums: dict[str, str]) -> None:
    """The script that unpacks, and the sums by which it knows a damaged part."""
    script = DIST / "unpack.sh"
    shutil.copyfile(PARTS / "unpack.sh", script)
    script.chmod(0o755)
    with tempfile.TemporaryDirectory() as folder:
        for file in (
            "__init__.py",
            "console.py",
            "offline/__init__.py",
            *(f"offline/unpack/{one}.py" for one in UNPACK),
        ):
            (Path(folder) / "env" / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(paths.ENV / file, Path(folder) / "env" / file)
        zipapp.create_archive(folder, DIST / "unpack.pyz", main="env.offline.unpack.unpacker:run", compressed=True)
    lines = [f"{sum_}  {name}\n" for name, sum_ in sorted(sums.items())]
    (DIST / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")


def wishes() -> tuple[str, int, str, str]:
    """This machine, the largest part, the other machine's Python and compiler; a wish that cannot be kept ends it."""
    machine = platform.machine()
    if sys.platform != "linux" or machine not in ("x86_64", "aarch64"):
        raise ToolError(f"a bundle can be made on Linux only, not on {sys.platform} {machine}", "use a Linux machine")
    size = pack.parse_size(os.environ.get("PART") or "60M")
    python = wheels.check_version(os.environ.get("BUNDLE_PYTHON") or "3.12")
    wish = os.environ.get("NVRTC") or "13"
    nvrtc_package(wish)
    return machine, size, python, wish


def make() -> None:
    """Packs everything into dist/."""
    began = time.monotonic()
    machine, size, python, wish = wishes()
    found, info = components(python, wish, machine)
    archives, total = packed(found)
    info |= {"kind": "base", "key": pack.digest(*(archive.name for archive in archives)), "size": total}
    lesson, about = repository.component(SCRATCH)
    archive, total, took = pack.compress(lesson, SCRATCH)
    about |= {"kind": "course", "key": about["commit"], "size": total}
    say("course", f"commit {about['commit']}: {mb(total)} in {mb(archive.stat().st_size)}", took)
    for note in repository.notes():
        say("note", note)
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir(parents=True)
    sums = pack.write_parts(DIST, f"gpulab-offline-base-{info['key']}-{machine}", size, info, archives)
    sums |= pack.write_parts(DIST, f"gpulab-offline-course-{about['key']}-{machine}", size, about, [archive])
    write_script(sums)
    files = sorted(DIST.iterdir())
    for file in files:
        say("", f"dist/{file.name}  {mb(file.stat().st_size)}")
    say(
        "bundle",
        f"{len(sums)} parts, {mb(sum(file.stat().st_size for file in files))} in all",
        time.monotonic() - began,
    )
    print("next: carry all files in dist/ to the other machine, and run there: sh unpack.sh")


def main() -> None:
    """Leaves a whole bundle in dist/; with `--check`, says whether what was asked for can be had."""
    if sys.argv[1:] == ["--check"]:
        wishes()
    else:
        make()


if __name__ == "__main__":
    tool(main)
