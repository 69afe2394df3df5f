"""The prebuilt Rust kernel: chosen by machine and C library, fetched, compared, tried, and whatever can go wrong with it."""

from __future__ import annotations

import errno
import hashlib
import http.server
import json
import lzma
import os
import threading
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from env import paths
from env.console import Step, ToolError
from env.setup import kernel_asset, rust_kernel
from env.setup.kernel_asset import Asset, NoAssetError
from env.setup.kernel_info import KernelSilentError

PLAIN = b"#!/bin/sh\n" + os.urandom(5000)


def publish(folder: Path, plain: bytes = PLAIN, **changes: object) -> Asset:
    """An asset for this machine, its file in a folder."""
    packed = lzma.compress(plain)
    asset = Asset(
        target=kernel_asset.machine_target(),
        version=paths.EVCXR_VERSION,
        file="kernel.xz",
        sha256=hashlib.sha256(packed).hexdigest(),
        size=len(packed),
        program_size=len(plain),
        program_sha256=hashlib.sha256(plain).hexdigest(),
        rustc="rustc 1.0.0",
        glibc="2.2",
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / asset.file).write_bytes(packed)
    return replace(asset, **changes)


def starts(program: Path) -> None:
    """A trial that anything passes that may be run."""
    assert program.stat().st_mode & 0o111


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """Where the program goes; another one is there, which must survive every failure."""
    file = tmp_path / "tools" / "bin" / "evcxr_jupyter"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"the old one")
    return file


def untouched(target: Path) -> bool:
    return target.read_bytes() == b"the old one" and [file.name for file in target.parent.iterdir()] == [target.name]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The folder `tmp_path/web` over HTTP; its address."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *words: object) -> None:
            super().__init__(*words, directory=str(tmp_path / "web"))

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            if not self.path.startswith("/cut"):
                return super().do_GET()
            # A connection that breaks: half of what was announced.
            data = (tmp_path / "web" / "kernel.xz").read_bytes()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            return self.wfile.write(data[: len(data) // 2])

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as web:
        thread = threading.Thread(target=web.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{web.server_address[1]}"
        web.shutdown()


def test_the_program_for_this_machine_is_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asset = publish(tmp_path)
    others = [replace(asset, target="sparc-unknown-linux-gnu"), replace(asset, version="0.0.1")]
    assert kernel_asset.choose([*others, asset]) is asset
    with pytest.raises(NoAssetError, match=f"no prebuilt Rust kernel {paths.EVCXR_VERSION} for {asset.target}"):
        kernel_asset.choose(others)
    monkeypatch.setattr(kernel_asset, "machine_glibc", lambda: "2.16")
    with pytest.raises(NoAssetError, match=r"needs glibc 2\.17 or newer, and this machine has 2\.16"):
        kernel_asset.choose([replace(asset, glibc="2.17")])
    # Numbers, not texts: 2.9 is older than 2.17.
    monkeypatch.setattr(kernel_asset, "machine_glibc", lambda: "2.17")
    assert kernel_asset.choose([replace(asset, glibc="2.9")])
    monkeypatch.setattr(kernel_asset, "machine_glibc", lambda: "")
    with pytest.raises(NoAssetError, match="another C library"):
        kernel_asset.choose([asset])
    # A Mac's names none.
    assert kernel_asset.choose([replace(asset, glibc="")])


def test_this_machines_c_library_is_told_as_ldd_tells_it() -> None:
    if kernel_asset.machine_target().endswith("darwin"):
        assert kernel_asset.machine_glibc() == ""
    else:
        assert kernel_asset.numbers(kernel_asset.machine_glibc()) >= (2, 17)


def test_where_it_is_taken_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(kernel_asset.VARIABLE, raising=False)
    asset = publish(tmp_path / "with space")
    with pytest.raises(NoAssetError, match=r"no prebuilt Rust kernel is published yet \(GPULAB_KERNEL_ASSET=FILE"):
        kernel_asset.address(asset)
    published = replace(asset, url="https://example.org/kernel.xz")
    assert kernel_asset.address(published) == "https://example.org/kernel.xz"
    for named, found in (
        ("https://mirror.example/x.xz", "https://mirror.example/x.xz"),
        ("https://mirror.example/", "https://mirror.example/kernel.xz"),
        (str(tmp_path / "with space"), (tmp_path / "with space" / "kernel.xz").as_uri()),
        (str(tmp_path / "with space" / "kernel.xz"), (tmp_path / "with space" / "kernel.xz").as_uri()),
    ):
        monkeypatch.setenv(kernel_asset.VARIABLE, named)
        assert kernel_asset.address(published) == found


def test_a_program_is_installed_from_a_file_and_from_an_address(tmp_path: Path, target: Path, server: str) -> None:
    asset = publish(tmp_path / "web")
    for source in ((tmp_path / "web" / "kernel.xz").as_uri(), f"{server}/kernel.xz"):
        target.write_bytes(b"the old one")
        kernel_asset.install(asset, source, target, starts)
        assert target.read_bytes() == PLAIN and target.stat().st_mode & 0o777 == 0o755
        assert [file.name for file in target.parent.iterdir()] == [target.name]


@pytest.mark.parametrize("damage", ["changed", "longer", "shorter", "no xz"])
def test_a_file_that_is_not_the_named_one_is_refused(tmp_path: Path, target: Path, damage: str) -> None:
    asset = publish(tmp_path)
    file = tmp_path / asset.file
    data = file.read_bytes()
    what = "is not the file that the repository names"
    if damage == "changed":
        file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    elif damage == "longer":
        file.write_bytes(data + b"x")
    elif damage == "shorter":
        file.write_bytes(data[:-1])
        what = f"{len(data) - 1} of {len(data)} bytes"
    else:
        file.write_bytes(b"plain")
        asset = replace(asset, size=5, sha256=hashlib.sha256(b"plain").hexdigest())
        what = "cannot be unpacked"
    tried = []
    with pytest.raises(ToolError, match=what) as error:
        kernel_asset.install(asset, file.as_uri(), target, tried.append)
    assert "next: nothing to do: the kernel is built from source" in str(error.value)
    assert untouched(target) and not tried


def test_a_source_that_does_not_answer_is_told(tmp_path: Path, target: Path, server: str) -> None:
    asset = publish(tmp_path / "web")
    for source, what, advice in (
        (f"{server}/nothing.xz", "404", "connect this machine"),
        # Nobody listens on this port.
        ("http://127.0.0.1:9/kernel.xz", "refused", "connect this machine"),
        ("http://name.invalid/kernel.xz", "could not be read", "connect this machine"),
        ((tmp_path / "nowhere.xz").as_uri(), "No such file", "check its path"),
        ("nonsense://x/kernel.xz", "unknown url type", "connect this machine"),
    ):
        with pytest.raises(ToolError, match=what) as error:
            kernel_asset.install(asset, source, target, starts)
        assert f"next: {advice}" in str(error.value) and untouched(target)


def test_a_download_that_breaks_off_is_told(tmp_path: Path, target: Path, server: str) -> None:
    asset = publish(tmp_path / "web")
    with pytest.raises(ToolError, match=f"{asset.size // 2} of {asset.size} bytes|could not be read"):
        kernel_asset.install(asset, f"{server}/cut", target, starts)
    assert untouched(target)


def test_a_program_that_does_not_start_replaces_nothing(tmp_path: Path, target: Path) -> None:
    asset = publish(tmp_path, b"#!/bin/sh\necho no such symbol\nexit 7\n")
    with pytest.raises(ToolError, match=r"does not start: it ended at once \(exit status 7\)\n  no such symbol"):
        kernel_asset.install(
            asset, (tmp_path / asset.file).as_uri(), target, lambda program: rust_kernel.check(program, tmp_path)
        )
    assert untouched(target)


def test_a_program_of_another_version_replaces_nothing(
    tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rust_kernel, "ask", lambda program, env: {"implementation_version": "0.0.1"})
    asset = publish(tmp_path)
    with pytest.raises(ToolError, match=rf"version 0\.0\.1, and the course needs {paths.EVCXR_VERSION}"):
        kernel_asset.install(
            asset, (tmp_path / asset.file).as_uri(), target, lambda program: rust_kernel.check(program, tmp_path)
        )
    assert untouched(target)


def test_a_full_disk_is_told_before_and_while_it_is_written(
    tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asset = publish(tmp_path)
    source = (tmp_path / asset.file).as_uri()
    with pytest.raises(ToolError, match=r"is full: the prebuilt Rust kernel takes \d+ MiB\nnext: free some space"):
        kernel_asset.install(replace(asset, program_size=1 << 60), source, target, starts)
    assert untouched(target)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(kernel_asset.Path, "write_bytes", full)
    with pytest.raises(ToolError, match="is full"):
        kernel_asset.install(asset, source, target, starts)
    assert untouched(target)


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asset = publish(tmp_path)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ToolError, match="cannot be written: .*\nnext: make that folder writable"):
        kernel_asset.install(asset, (tmp_path / asset.file).as_uri(), tmp_path / "file" / "bin" / "x", starts)


def test_the_repositorys_manifest_names_this_version() -> None:
    assets = kernel_asset.read()
    assert len({asset.target for asset in assets}) == len(assets)
    for asset in assets:
        assert asset.version == paths.EVCXR_VERSION and len(asset.sha256) == 64 and asset.rustc.startswith("rustc ")
        assert asset.target.endswith("-apple-darwin") or kernel_asset.numbers(asset.glibc) >= (2, 17)
        assert not asset.url or asset.url.startswith("https://")


@pytest.mark.parametrize("text", ["{", '{"assets": [{"target": 1}]}', "[]", "{}"])
def test_a_damaged_manifest_is_told(tmp_path: Path, text: str) -> None:
    file = tmp_path / "kernel_assets.json"
    assert kernel_asset.read(file) == []
    file.write_text(text)
    with pytest.raises(ToolError, match=r"kernel_assets.json cannot be read: (.|\n)*next: get the file back"):
        kernel_asset.read(file)


@pytest.fixture
def generated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without a kernel, whose set-up keeps what it makes in this folder."""
    monkeypatch.setattr(paths, "GENERATED", tmp_path / "generated")
    monkeypatch.setattr(paths, "cargo_bin", lambda: tmp_path / "cargo" / "bin")
    monkeypatch.setattr(rust_kernel.shutil, "which", lambda name: None)
    monkeypatch.delenv(kernel_asset.VARIABLE, raising=False)
    (tmp_path / "generated").mkdir()
    return tmp_path / "generated"


def put(file: Path, text: str = "x") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o755)
    return file


def test_a_kernel_that_is_there_is_asked_once_and_again_when_it_changes(
    generated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Path] = []
    versions = {"own": "0.0.1"}

    def ask(program: Path, env: dict) -> dict:
        asked.append(program)
        if "silent" in program.read_text():
            raise KernelSilentError("it ended at once")
        name = "another" if "another" in program.read_text() else rust_kernel.PROGRAM
        return {
            "implementation": name,
            "implementation_version": versions.get(program.read_text(), paths.EVCXR_VERSION),
        }

    monkeypatch.setattr(rust_kernel, "ask", ask)
    own = put(tmp_path / "cargo" / "bin" / rust_kernel.PROGRAM, "own")
    assert rust_kernel.find("", tmp_path) is None and asked == [own]
    assert rust_kernel.find("", tmp_path) is None and asked == [own], "asked again though nothing changed"
    versions["own!"] = paths.EVCXR_VERSION
    put(own, "own!")
    assert rust_kernel.find("", tmp_path) == own and asked == [own, own]
    # A name in the text of a program says nothing: the program has to answer.
    for text in ("silent", f"silent evcxr_jupyter-{paths.EVCXR_VERSION}", "another kernel"):
        put(own, text)
        assert rust_kernel.find("", tmp_path) is None
    better = put(generated / "tools" / "bin" / rust_kernel.PROGRAM, "ours")
    assert rust_kernel.find(str(tmp_path / "gone"), tmp_path) == better


def test_without_a_published_kernel_it_is_built_from_source(
    generated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = tmp_path / "kernel_assets.json"
    asset = publish(tmp_path / "web")
    manifest.write_text(json.dumps({"assets": [asdict(asset)]}))
    monkeypatch.setattr(kernel_asset.read, "__defaults__", (manifest,))
    monkeypatch.setattr(
        rust_kernel,
        "ask",
        lambda *_: {"implementation": rust_kernel.PROGRAM, "implementation_version": paths.EVCXR_VERSION},
    )
    built: list[Path] = []
    monkeypatch.setattr(rust_kernel, "from_source", lambda step, root, target: built.append(root) or root)
    rust_kernel.kernel("", tmp_path)
    assert "no prebuilt Rust kernel is published yet" in capsys.readouterr().out
    assert built == [tmp_path / "cargo"]
    # The reader's file is taken, if it is the one that the manifest names.
    monkeypatch.setenv(kernel_asset.VARIABLE, str(tmp_path / "web"))
    assert rust_kernel.kernel("", tmp_path) == generated / "tools" / "bin" / rust_kernel.PROGRAM
    assert len(built) == 1 and "prebuilt" in capsys.readouterr().out
    with monkeypatch.context() as patch:
        patch.setattr(rust_kernel, "ask", lambda *_: pytest.fail("asked again, just after it was installed"))
        assert rust_kernel.kernel("", tmp_path) == generated / "tools" / "bin" / rust_kernel.PROGRAM
    (generated / "tools" / "bin" / rust_kernel.PROGRAM).unlink()
    (tmp_path / "web" / asset.file).write_bytes(b"something else")
    put(tmp_path / "cargo" / "bin" / rust_kernel.PROGRAM, "own")
    monkeypatch.setattr(
        rust_kernel, "ask", lambda *_: {"implementation": rust_kernel.PROGRAM, "implementation_version": "0.0.1"}
    )
    rust_kernel.kernel("", tmp_path)
    said = capsys.readouterr().out
    assert "is not the file that the repository names" in said and "next: nothing to do" in said
    # The reader's own version stays, ours goes beside it.
    assert (
        built[1:] == [generated / "tools"] and (tmp_path / "cargo" / "bin" / rust_kernel.PROGRAM).read_text() == "own"
    )


def test_the_build_has_the_profile_and_goes_on_where_it_was(
    generated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = tmp_path / "said"
    cargo = f"""#!/bin/sh
echo "$CARGO_TARGET_DIR $@" > {said}
echo "   Compiling one v1.0.0"
echo "   Compiling two v2.0.0"
exit "$(cat {tmp_path}/status)"
"""
    put(tmp_path / "bin" / "cargo", cargo)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin{os.pathsep}{os.environ['PATH']}")
    target = generated / "build"
    target.mkdir()
    (tmp_path / "status").write_text("1")
    with pytest.raises(ToolError, match="could not be built") as error:
        rust_kernel.from_source(Step("x"), tmp_path / "root", target)
    assert "next: connect this machine" in str(error.value)
    assert target.is_dir(), "what was built until then must stay, to go on from there"
    (tmp_path / "status").write_text("0")
    assert (
        rust_kernel.from_source(Step("x"), tmp_path / "root", target) == tmp_path / "root" / "bin" / rust_kernel.PROGRAM
    )
    assert not target.exists()
    words = said.read_text().split()
    assert words[0] == str(target) and "--locked" in words and f"evcxr_jupyter@{paths.EVCXR_VERSION}" in words
    assert words[words.index("--config") + 1] == str(rust_kernel.PROFILE) and rust_kernel.PROFILE.is_file()
