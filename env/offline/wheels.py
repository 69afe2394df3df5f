"""The Python packages, for the Python of the machine without internet, which may differ from the one here."""

from __future__ import annotations

import re
import sys
import zipfile
from pathlib import Path

from env import paths
from env.command import answer
from env.console import ToolError
from env.offline.pack import Component, digest, kept

# All but what only `make test` uses; it needs the internet anyway.
GROUPS = ("learner", "onnx", "teach")
# Puts the packages in place, where the other machine's Python comes without pip.
PIP = "pip==26.3"
# For packages that hold no Python code.
ANY_PYTHON = "3.10"
PLATFORMS = ("manylinux1", "manylinux2010", "manylinux2014", "manylinux_2_17", "manylinux_2_24", "manylinux_2_28")
ADVICE = "check the network, and run again"


def check_version(python: str) -> str:
    """`3.12`, or a complaint."""
    if not re.fullmatch(r"3\.1[0-3]", python):
        raise ToolError(f"PYTHON={python} is not one of 3.10 to 3.13", "make bundle PYTHON=3.12")
    return python


def requirements(python: str) -> list[str]:
    """`name==version` of each package that set-up installs on Linux with that Python, without those for tests."""
    from packaging.requirements import Requirement

    there = {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "sys_platform": "linux",
        "os_name": "posix",
    }
    chosen = []
    for group in GROUPS:
        for line in (paths.ENV / "requirements" / f"{group}.txt").read_text(encoding="utf-8").splitlines():
            # The sums stand in lines of their own; a bundle has its own, as its wheels are packed anew.
            if "==" in line:
                one = Requirement(line.rstrip(" \\"))
                if not one.marker or one.marker.evaluate(there):
                    chosen.append(f"{one.name}{one.specifier}")
    return list(dict.fromkeys(chosen))


def component(name: str, wanted: list[str], python: str, machine: str, scratch: Path) -> Component:
    """The wheels of `wanted`, downloaded once."""
    key = digest(wanted, python, machine)
    folder = kept(scratch, name, key, lambda part: download(wanted, python, machine, part))
    files = {f"wheels/{file.name}": file for file in folder.iterdir()}
    return Component(name, key, files, machine_code=name == "nvrtc")


def download(wanted: list[str], python: str, machine: str, folder: Path) -> None:
    """Fetches wheels, never sources: those could need a compiler and more packages."""
    platforms = [item for tag in PLATFORMS for item in ("--platform", f"{tag}_{machine}")]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--implementation", "cp", "--python-version", python]
    answer([*command, *platforms, "--dest", str(folder), *wanted], ADVICE)
    for wheel in folder.glob("*.whl"):
        loosen(wheel)


def loosen(wheel: Path) -> None:
    """Undoes the wheel's own compression: the bundle's is far better, but only on what is not compressed yet."""
    loose = wheel.with_suffix(".loose")
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(loose, "w", zipfile.ZIP_STORED) as new:
        for entry in old.infolist():
            data = old.read(entry)
            if is_left_out(entry.filename):
                continue
            if entry.filename.endswith(".dist-info/RECORD"):
                data = b"".join(line for line in data.splitlines(True) if not is_left_out(line.decode().split(",")[0]))
            entry.compress_type = zipfile.ZIP_STORED
            new.writestr(entry, data)
    loose.replace(wheel)


def is_left_out(name: str) -> bool:
    """NVRTC comes twice in its wheel; nothing here loads the second build, half of its size."""
    return ".alt.so" in name
