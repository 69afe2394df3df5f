"""The machine that the bundle is unpacked on, and the settings by which its tools find what was unpacked."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from env.console import ToolError

from .archives import INFO


def find_python(wish: str, version: str) -> str:
    """A Python of the version that the packages were chosen for."""
    for name in [wish] if wish else [sys.executable, f"python{version}", "python3"]:
        ask = [name, "-c", "import sys; print('%d.%d' % sys.version_info[:2], sys.executable)"]
        try:
            found, _, path = subprocess.run(ask, capture_output=True, text=True, check=False).stdout.partition(" ")
        except OSError:
            continue
        if found == version:
            return path.strip()
    have = wish or f"Python {platform.python_version()}"
    text = f"the bundle's packages are for Python {version}; here is {have}"
    minor = ".".join(platform.python_version_tuple()[:2])
    step = f"name a Python {version} (sh unpack.sh --python /usr/bin/python{version}), or make the bundle again for this one"
    raise ToolError(text, f"{step}: make bundle PYTHON={minor}")


def glibc() -> str:
    """The version of this machine's C library; empty where it is another one (musl, a Mac's)."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (ValueError, OSError, AttributeError):
        return ""
    return version if name == "glibc" else ""


def check_machine(info: dict) -> None:
    """Whether what is in the bundle can run here."""
    if platform.machine() != info["machine"]:
        text = f"the bundle is for {info['machine']}; this machine is {platform.machine()}"
        raise ToolError(text, "make the bundle on a machine of this kind")
    needed, here = ([int(part) for part in version.split(".") if part] for version in (info["glibc"], glibc()))
    if here < needed:
        here = f"glibc {glibc()}" if glibc() else "another C library"
        text = f"the bundle's programs need glibc {info['glibc']}; here is {here}"
        raise ToolError(text, "make the bundle on an older Linux, or run it in a newer one (a container, say)")
    if not any(shutil.which(name) for name in ("cc", "gcc", "clang")):
        text = "there is no C compiler, which Rust needs to link programs"
        raise ToolError(text, "install one from this system's own packages (Debian and Ubuntu: gcc, libc6-dev)")


def settings(folder: Path, python: str, commit: str) -> dict[str, str]:
    """What every command in the unpacked course runs with."""
    tools = folder / "tools"
    return {
        "CARGO_HOME": str(tools / "cargo"),
        "CARGO_NET_OFFLINE": "true",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(tools / "wheels"),
        "GPULAB_REQUIREMENTS": str(tools / "requirements.txt"),
        "GPULAB_COMMIT": commit,
        "GPULAB_PYTHON": python,
        "PATH": os.pathsep.join([str(tools / "rust/bin"), str(tools / "cargo/bin")]),
    }


def configure(folder: Path, info: dict, chosen: dict[str, str]) -> None:
    """Writes the settings where cargo, make and the course's own tools (env/paths.py) read them by themselves."""
    # cargo looks in the folders above the one where it runs: that of a kernel, and the standard library's own.
    config = folder / ".cargo" / "config.toml"
    config.parent.mkdir(exist_ok=True)
    config.write_text(
        '[net]\noffline = true\n\n[source.crates-io]\nreplace-with = "bundle"\n\n'
        '[source.bundle]\ndirectory = "tools/crates"\n',
        encoding="utf-8",
    )
    (folder / "tools/requirements.txt").write_text("\n".join(info["requirements"]) + "\n", encoding="utf-8")
    known = folder / "gpulab" / INFO["course"]
    about = json.loads(known.read_text(encoding="utf-8"))
    known.write_text(json.dumps({**about, "settings": chosen}, indent=1), encoding="utf-8")
    text = f"# Written by unpack.sh; read by the Makefile.\nPYTHON := {chosen['GPULAB_PYTHON']}\n"
    (folder / "gpulab/offline.mk").write_text(text, encoding="utf-8")


def make_environment(folder: Path, python: str, run: dict[str, str]) -> None:
    """A virtual environment with pip in it: some systems' Python comes without the means to make one whole."""
    venv = folder / "gpulab/.venv"
    if (venv / "bin/pip").exists():
        return
    call([python, "-m", "venv", "--clear", "--without-pip", str(venv)], folder, run)
    wheel = next((folder / "tools/wheels").glob("pip-*.whl"))
    pip = [str(venv / "bin/python"), str(wheel / "pip"), "install", "--quiet", "--no-compile"]
    call([*pip, "--disable-pip-version-check", "pip"], folder, run)


def call(command: list[str], folder: Path, run: dict[str, str]) -> None:
    """Runs a step, its output on the terminal."""
    status = subprocess.run(command, cwd=folder, env=run, check=False).returncode
    if status != 0:
        raise ToolError(f"`{' '.join(command)}` failed (exit status {status})", "fix what it says above, and run again")
