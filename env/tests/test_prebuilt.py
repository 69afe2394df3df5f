"""The Rust kernel out of a published bundle, and a virtual environment where the system's Python comes without ensurepip."""

from __future__ import annotations

import importlib.util
import os
import platform
import subprocess
from pathlib import Path

import pytest
from env import paths
from env.console import Step
from env.offline import pack
from env.setup import prebuilt, python, rust_kernel

ABOUT = {"kind": "base", "machine": platform.machine(), "glibc": "2.2"}


def publish(folder: Path, content: bytes, **changes: object) -> str:
    """A bundle's base half in small parts, the kernel between two other components; its address."""
    archives = []
    for name, inside, data in (
        ("llvm", "rust/lib/llvm.so", b"\x01" * 300),
        ("kernel", f"cargo/bin/{prebuilt.PROGRAM}", content),
        ("rust", "rust/bin/rustc", bytes(range(256)) * 40),
    ):
        file = folder / f"{name}.bin"
        file.write_bytes(data)
        archives.append(pack.compress(pack.Component(name, "0123456789ab", {inside: file}), folder / "kept")[0])
    dist = folder / "dist"
    dist.mkdir(exist_ok=True)
    sums = pack.write_parts(dist, "gpulab-offline-base-b1-x", 1500, {**ABOUT, **changes}, archives)
    sums["gpulab-offline-course-c1-x.part01"] = "0" * 64
    (dist / "SHA256SUMS").write_text("".join(f"{sum_}  {name}\n" for name, sum_ in sums.items()))
    return dist.as_uri() + "/"


@pytest.fixture
def generated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(paths, "GENERATED", tmp_path / "generated")
    return tmp_path / "generated"


def test_the_kernel_is_taken_and_only_the_parts_that_hold_it_are_fetched(
    tmp_path: Path, generated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = os.urandom(64)
    monkeypatch.setattr(rust_kernel, "ask", lambda *_: {"implementation_version": paths.EVCXR_VERSION})
    address = publish(tmp_path, content)
    fetched = []
    real = prebuilt.fetch
    monkeypatch.setattr(prebuilt, "fetch", lambda *words: fetched.append(words[1]) or real(*words))
    found = rust_kernel.bundled(Step("evcxr_jupyter"), address, tmp_path)
    assert found == generated / "tools/bin/evcxr_jupyter" and found.read_bytes() == content
    assert found.stat().st_mode & 0o111
    assert 0 < len(fetched) < len(prebuilt.base_parts(address))
    assert not (generated / "bundle-parts").exists()


def test_whatever_is_wrong_with_a_bundle_it_is_told_and_the_kernel_is_built(
    tmp_path: Path, generated: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rust_kernel, "ask", lambda *_: {"implementation_version": "0.0.1"})
    step = Step("evcxr_jupyter")

    def told(address: str) -> str:
        assert rust_kernel.bundled(step, address, tmp_path) is None
        assert not (generated / "tools/bin/evcxr_jupyter").exists()
        return capsys.readouterr().out

    assert "could not be read" in told((tmp_path / "nowhere").as_uri() + "/")
    address = publish(tmp_path, b"evcxr_jupyter-0.0.1")
    assert "is version 0.0.1, and the course needs" in told(address)
    assert "this machine is" in told(publish(tmp_path, b"x", machine="sparc"))
    assert "need glibc 9.9" in told(publish(tmp_path, b"x", glibc="9.9"))
    address = publish(tmp_path, b"x")
    first = min((tmp_path / "dist").glob("*base*part01"))
    first.write_bytes(first.read_bytes()[:-1] + b"?")
    assert "part01 is damaged; it is built here instead" in told(address)


def test_an_environment_without_ensurepip_gets_the_systems_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list] = []
    monkeypatch.setattr(python, "run", lambda command, *_, **__: commands.append([str(part) for part in command]))
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ensurepip" else real(name))
    python.make(tmp_path / "venv")
    make, pip = commands
    assert "--without-pip" in make
    subprocess.run(make, check=True)
    assert not (tmp_path / "venv/bin/pip").exists()
    assert pip[1:5] == ["-m", "pip", "--python", str(tmp_path / "venv/bin/python")]
    # The system's pip really can: it lists what is in an environment that has no pip of its own.
    done = subprocess.run([*pip[:5], "list"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_an_environment_is_whole_where_ensurepip_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list] = []
    monkeypatch.setattr(python, "run", lambda command, *_, **__: commands.append([str(part) for part in command]))
    python.make(tmp_path / "venv")
    assert len(commands) == 1 and "--without-pip" not in commands[0]
