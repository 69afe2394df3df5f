"""rustup at a pinned version with its sum, and the toolchain that rust-toolchain.toml names."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

import pytest
from env import paths
from env.console import ToolError
from env.setup import rustup


def put(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o755)
    return file


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without Rust, whose PATH holds one folder of ours beside the system's shell."""
    monkeypatch.setenv("PATH", f"{tmp_path}/bin{os.pathsep}/bin{os.pathsep}/usr/bin")
    for name in ("CARGO_HOME", "RUSTUP_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.delenv("RUSTUP_TOOLCHAIN", raising=False)
    if any(Path(folder, name).exists() for folder in ("/bin", "/usr/bin") for name in ("cargo", "rustup")):
        pytest.skip("this system has its own Rust")
    return tmp_path


def archive(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> str:
    """rustup's archive with an installer that writes down how it was called; its address."""
    target = rustup.machine_target()
    file = put(folder / "archive" / rustup.VERSION / target / "rustup-init", text)
    monkeypatch.setitem(rustup.SHA256, target, hashlib.sha256(file.read_bytes()).hexdigest())
    address = (folder / "archive").as_uri()
    monkeypatch.setattr(rustup.install_rustup, "__defaults__", (address,))
    return address


def test_the_toolchain_is_pinned_at_a_version_that_the_workspace_can_use() -> None:
    version, components = rustup.pinned()
    assert re.fullmatch(r"\d+\.\d+\.\d+", version) and set(components) == {"clippy", "rust-src", "rustfmt"}
    needed = re.search(r'^rust-version = "([\d.]+)"', (paths.ROOT / "Cargo.toml").read_text(), re.MULTILINE)
    assert needed and tuple(map(int, needed[1].split("."))) <= tuple(map(int, version.split(".")))


def test_the_container_has_the_same_toolchain() -> None:
    arg = re.search(r"^ARG RUST=(\S+)$", (paths.ENV / "Dockerfile.cuda").read_text(), re.MULTILINE)
    assert arg and arg[1] == rustup.pinned()[0]


def test_a_file_without_a_version_is_told(tmp_path: Path) -> None:
    file = put(tmp_path / "rust-toolchain.toml", '[toolchain]\nchannel = "stable"\ncomponents = []\n')
    with pytest.raises(ToolError, match="names no version"):
        rustup.pinned(file)


def test_sums_are_there_for_every_supported_machine() -> None:
    assert set(rustup.SHA256) == {
        f"{m}-{s}" for m in ("x86_64", "aarch64") for s in ("unknown-linux-gnu", "apple-darwin")
    }
    assert all(re.fullmatch("[0-9a-f]{64}", sum_) for sum_ in rustup.SHA256.values())


def test_a_machine_without_rust_gets_it(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive(machine, monkeypatch, f'#!/bin/sh\necho "$@" > {machine}/said\n')
    begun: list[str] = []
    assert rustup.ensure(begun.append)
    version, components = rustup.pinned()
    said = (machine / "said").read_text().split()
    assert said[said.index("--default-toolchain") + 1] == version and "--no-modify-path" in said and "-y" in said
    assert [said[at + 1] for at, word in enumerate(said) if word == "--component"] == components
    assert begun == [f"installing Rust {version} with rustup {rustup.VERSION}"]


def test_an_installer_with_another_sum_does_not_run(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive(machine, monkeypatch, f"#!/bin/sh\ntouch {machine}/ran\n")
    monkeypatch.setitem(rustup.SHA256, rustup.machine_target(), "0" * 64)
    with pytest.raises(ToolError, match=r"wrong SHA-256 .* instead of 0{64}\nnext: .*was not run") as error:
        rustup.ensure(lambda what: None)
    assert not (machine / "ran").exists() and rustup.VERSION in error.value.what


def test_without_a_network_the_address_is_named(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rustup.install_rustup, "__defaults__", ("http://127.0.0.1:9",))
    with pytest.raises(ToolError, match=r"could not be downloaded from http://127\.0\.0\.1:9/.*refused\nnext: connect"):
        rustup.ensure(lambda what: None)


def test_a_rustup_that_is_there_is_never_replaced(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive(machine, monkeypatch, f"#!/bin/sh\ntouch {machine}/ran\n")
    put(machine / "cargo_home" / "bin" / "rustup", "#!/bin/sh\n")
    with pytest.raises(ToolError, match=r"is there, but not in this shell's PATH\nnext: export PATH="):
        rustup.ensure(lambda what: None)
    assert not (machine / "ran").exists()


def test_an_unknown_machine_is_told(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rustup, "machine_target", lambda: "riscv64gc-unknown-linux-gnu")
    with pytest.raises(ToolError, match="no pinned rustup for riscv64gc"):
        rustup.ensure(lambda what: None)


def test_an_installer_that_fails_is_told(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive(machine, monkeypatch, "#!/bin/sh\necho the disk is odd\nexit 4\n")
    with pytest.raises(ToolError, match=r"exit status 4\):\n  the disk is odd\nnext: connect"):
        rustup.ensure(lambda what: None)


def test_another_users_folder_is_told(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive(machine, monkeypatch, f"#!/bin/sh\ntouch {machine}/ran\n")
    (machine / "cargo_home").mkdir()
    real = os.access
    monkeypatch.setattr(rustup.os, "access", lambda file, mode: file != machine / "cargo_home" and real(file, mode))
    with pytest.raises(ToolError, match="cargo_home belongs to another user.*\nnext: sudo chown"):
        rustup.ensure(lambda what: None)
    assert not (machine / "ran").exists()


RUSTUP = """#!/bin/sh
echo "$@" >> {folder}/said
case "$1 $2" in
"component list") cat {folder}/installed 2>/dev/null || exit 1 ;;
"toolchain install") printf 'cargo-x\\nclippy-x\\nrust-src\\nrustfmt-x\\n' > {folder}/installed ;;
esac
"""


def test_a_toolchain_that_is_missing_or_lacks_a_component_is_added(machine: Path) -> None:
    put(machine / "bin" / "rustup", RUSTUP.format(folder=machine))
    version, _ = rustup.pinned()
    for installed in (None, "cargo-x\nrust-src\nrustfmt-x\n"):
        if installed:
            (machine / "installed").write_text(installed)
        assert rustup.ensure(lambda what: None)
        assert f"toolchain install {version} --profile minimal" in (machine / "said").read_text()
        (machine / "said").unlink()
    # Nothing to do is one question, and no network.
    assert not rustup.ensure(lambda what: pytest.fail(what))
    assert (machine / "said").read_text() == f"component list --toolchain {version} --installed\n"


def test_a_readers_own_choice_stays(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(machine / "bin" / "cargo", "#!/bin/sh\n")
    assert not rustup.ensure(lambda what: pytest.fail(what)), "a system's cargo without rustup"
    put(machine / "own" / "rustup", RUSTUP.format(folder=machine))
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}{os.pathsep}{machine}/own")
    assert not rustup.ensure(lambda what: pytest.fail(what)), "a bundle's cargo before rustup's"
    put(machine / "bin" / "rustup", RUSTUP.format(folder=machine))
    monkeypatch.setenv("RUSTUP_TOOLCHAIN", "stable")
    assert not rustup.ensure(lambda what: pytest.fail(what))
