"""`make kernel-asset`: what the prebuilt kernel is built with, checked for, and called in the manifest."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from env import paths
from env.console import ToolError
from env.setup import kernel_asset, pack_kernel, rust_kernel
from env.setup.kernel_info import KernelSilentError

HOST = kernel_asset.machine_target()


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program, as if it had been built; dist/ and the manifest lie in a folder of ours."""
    file = tmp_path / "built"
    file.write_bytes(b"\x7fELF GLIBC_2.4\0 GLIBC_2.17\0" + os.urandom(3000))
    manifest = tmp_path / "kernel_assets.json"
    monkeypatch.setattr(pack_kernel, "DIST", tmp_path / "dist")
    monkeypatch.setattr(pack_kernel.name, "__defaults__", (manifest,))
    monkeypatch.setattr(kernel_asset.read, "__defaults__", (manifest,))
    monkeypatch.setattr(pack_kernel, "compile_kernel", lambda *_: file)
    monkeypatch.setattr(pack_kernel, "run", lambda *_: None)
    monkeypatch.setattr(pack_kernel, "output", lambda command: "rustc 1.2.3" if "--version" in command else "/rust")
    monkeypatch.setattr(pack_kernel, "ask", lambda *_: {"implementation_version": paths.EVCXR_VERSION})
    return file


def test_what_is_packed_is_what_the_set_up_takes(program: Path, tmp_path: Path) -> None:
    asset = pack_kernel.make(HOST, "https://example.org/v1/", tmp_path)
    assert kernel_asset.read() == [asset]
    assert asset.url == f"https://example.org/v1/evcxr_jupyter-{paths.EVCXR_VERSION}-{HOST}.xz"
    assert asset.rustc == "rustc 1.2.3" and asset.glibc == ("2.17" if "linux" in HOST else "")
    target = tmp_path / "bin" / "evcxr_jupyter"
    kernel_asset.install(asset, (tmp_path / "dist" / asset.file).as_uri(), target, lambda program: None)
    assert target.read_bytes() == program.read_bytes()
    assert pack_kernel.make(HOST, "https://example.org/v1", tmp_path) == asset, "packed again it is another file"


def test_a_row_replaces_its_targets_and_leaves_the_others(program: Path, tmp_path: Path) -> None:
    first = pack_kernel.make(HOST, "", tmp_path)
    assert first.url == "" and "url" not in (tmp_path / "kernel_assets.json").read_text()
    other = replace(first, target="sparc-unknown-linux-gnu")
    # A row of an older version, which nothing asks for any more.
    pack_kernel.name(replace(first, target="mips-unknown-linux-gnu", version="0.0.1"))
    pack_kernel.name(other)
    program.write_bytes(program.read_bytes() + b"changed")
    second = pack_kernel.make(HOST, "", tmp_path)
    assert second.sha256 != first.sha256
    assert kernel_asset.read() == sorted([second, other], key=lambda asset: asset.target)


@pytest.mark.skipif("linux" not in HOST, reason="a Mac has no glibc")
def test_a_program_that_needs_a_newer_c_library_is_refused(program: Path, tmp_path: Path) -> None:
    program.write_bytes(program.read_bytes() + b"GLIBC_2.39\0")
    with pytest.raises(ToolError, match=r"needs glibc 2\.39\nnext: build it with zig for 2\.17"):
        pack_kernel.make(HOST, "", tmp_path)
    assert kernel_asset.read() == []


def test_a_program_that_does_not_start_is_refused(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*_: object) -> dict:
        raise KernelSilentError("it ended at once (signal 11)")

    monkeypatch.setattr(pack_kernel, "ask", silent)
    with pytest.raises(ToolError, match=r"does not start: .*signal 11"):
        pack_kernel.make(HOST, "", tmp_path)
    monkeypatch.setattr(pack_kernel, "ask", lambda *_: {"implementation_version": "0.0.1"})
    with pytest.raises(ToolError, match=r"says it is 0\.0\.1"):
        pack_kernel.make(HOST, "", tmp_path)
    assert kernel_asset.read() == [] and not (tmp_path / "dist").exists()


@pytest.mark.skipif("linux" not in HOST, reason="a Mac builds for Macs")
def test_a_macs_program_is_made_on_a_mac(program: Path, tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="aarch64-apple-darwin cannot be built here\nnext: build it on a Mac"):
        pack_kernel.make("aarch64-apple-darwin", "", tmp_path)


def test_the_build_sees_none_of_this_machines_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    base = {"CARGO_HOME": "/me/cargo", "PATH": "/bin", "RUSTFLAGS": "-Ctarget-cpu=native", "CFLAGS": "-march=native"}
    env = pack_kernel.environment(base, Path("/rust"), Path("/build-here"))
    flags = env["CARGO_ENCODED_RUSTFLAGS"].split("\x1f")
    places = (("/me/cargo", "/cargo"), ("/build-here", "/build"), ("/rust", "/rust"))
    assert flags == [f"--remap-path-prefix={old}={new}" for old, new in places]
    assert "native" not in str(env) and env["CARGO_TARGET_DIR"] == "/build-here/target"


def test_the_tools_lie_at_one_path_of_our_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack_kernel, "TOOLS", tmp_path / "tools")
    for sysroot in ("one", "two"):
        pack_kernel.link_tools(tmp_path / sysroot)
        assert (tmp_path / "tools" / "rustc").readlink() == tmp_path / sysroot / "bin" / "rustc"
    monkeypatch.setattr(pack_kernel.os, "getuid", lambda: 12345)
    with pytest.raises(ToolError, match="belongs to somebody else"):
        pack_kernel.link_tools(tmp_path)


def test_settings_for_a_crate_that_is_not_there_are_found(tmp_path: Path) -> None:
    lock = tmp_path / "registry" / "src" / "index" / f"evcxr_jupyter-{paths.EVCXR_VERSION}" / "Cargo.lock"
    lock.parent.mkdir(parents=True)
    names = re.findall(r"^([\w-]+) = \{", rust_kernel.PROFILE.read_text(), re.MULTILINE)
    assert "rowan" in names and "salsa" in names
    lock.write_text("".join(f'[[package]]\nname = "{name}"\n' for name in names))
    pack_kernel.check_profile(tmp_path)
    lock.write_text(lock.read_text().replace('"rowan"', '"rowan2"'))
    with pytest.raises(ToolError, match="names crates that .*: rowan\nnext: compare"):
        pack_kernel.check_profile(tmp_path)
