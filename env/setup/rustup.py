"""Rust by rustup: rustup itself at a pinned version with its SHA-256, and the toolchain that rust-toolchain.toml names."""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import shutil
import tempfile
import urllib.request
from collections.abc import Callable
from pathlib import Path

from env import paths
from env.command import output, run
from env.console import ToolError
from env.setup.kernel_asset import machine_target

VERSION = "1.28.2"
ARCHIVE = "https://static.rust-lang.org/rustup/archive"
# As published beside each program (`rustup-init.sha256`), and computed from the program as downloaded.
SHA256 = {
    "x86_64-unknown-linux-gnu": "20a06e644b0d9bd2fbdbfd52d42540bdde820ea7df86e92e533c073da0cdd43c",
    "aarch64-unknown-linux-gnu": "e3853c5a252fca15252d07cb23a1bdd9377a8c6f3efa01531109281ae47f841c",
    "x86_64-apple-darwin": "9c331076f62b4d0edeae63d9d1c9442d5fe39b37b05025ec8d41c5ed35486496",
    "aarch64-apple-darwin": "20ef5516c31b1ac2290084199ba77dbbcaa1406c45c1d978ca68558ef5964ef5",
}
TIMEOUT_S = 60
NETWORK = "connect this machine to the internet, then make setup; without internet, see `make bundle`"
OWN = "or use the Rust that is there: `RUSTUP_TOOLCHAIN=stable make setup`"


def pinned(file: Path = paths.ROOT / "rust-toolchain.toml") -> tuple[str, list[str]]:
    """The toolchain's version and components. Python 3.10 has no reader of TOML, and the file has two lines to read."""
    text = file.read_text(encoding="utf-8")
    channel = re.search(r'^channel = "([\d.]+)"$', text, re.MULTILINE)
    components = re.search(r"^components = \[(.*)\]$", text, re.MULTILINE)
    if channel is None or components is None:
        raise ToolError(f"{file.name} names no version and components", f"get it back with `git checkout {file}`")
    return channel[1], re.findall(r'"([\w-]+)"', components[1])


def has_toolchain() -> bool:
    """Whether rustup has the pinned toolchain with all its components; asks no network."""
    version, components = pinned()
    installed = output(["rustup", "component", "list", "--toolchain", version, "--installed"])
    return installed is not None and all(
        any(line == name or line.startswith(f"{name}-") for line in installed.splitlines()) for name in components
    )


def ensure(begin: Callable[[str], None]) -> bool:
    """Installs rustup where there is no Rust, and the pinned toolchain where rustup lacks it; tells whether it did.

    A Rust that is not rustup's (a system's package, an offline bundle's) stays as it is, and so does the choice of a
    reader who sets RUSTUP_TOOLCHAIN. `begin` is told what takes a while.
    """
    version, components = pinned()
    cargo, manager = shutil.which("cargo"), shutil.which("rustup")
    # rustup's cargo lies beside it; a bundle's comes first in the PATH, on a machine that may have rustup, too.
    if cargo is not None and (manager is None or Path(cargo).parent != Path(manager).parent):
        return False
    if manager is None:
        check_homes()
        begin(f"installing Rust {version} with rustup {VERSION}")
        install_rustup(version, components)
        return True
    if os.environ.get("RUSTUP_TOOLCHAIN") or has_toolchain():
        return False
    check_homes()
    begin(f"installing Rust {version} beside the Rust that is there")
    command = ["rustup", "toolchain", "install", version, "--profile", "minimal", "--no-self-update"]
    wanted = [word for name in components for word in ("--component", name)]
    run([*command, *wanted], f"Rust {version} could not be installed", f"{NETWORK}; {OWN}")
    return True


def check_homes() -> None:
    """Rust's folders may be another user's, after a `sudo`: rustup and cargo would fail there in words of their own."""
    for variable, name in (("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")):
        folder = Path(os.environ.get(variable) or Path.home() / name)
        if folder.exists() and not os.access(folder, os.W_OK):
            next_step = f"sudo chown -R $(id -un) {folder}, or set {variable} to a folder of your own; then make setup"
            raise ToolError(f"{folder} belongs to another user: Rust cannot be installed or used there", next_step)


def install_rustup(version: str, components: list[str], archive: str = ARCHIVE) -> None:
    """Downloads rustup's installer, compares its sum, and runs it. Nothing runs that differs from the pinned sum."""
    if (there := paths.cargo_bin() / "rustup").exists():
        # The installer would replace it, and its toolchains, without a word.
        raise ToolError(f"{there} is there, but not in this shell's PATH", f'export PATH="{there.parent}:$PATH"')
    target = machine_target()
    expected = SHA256.get(target)
    if expected is None:
        raise ToolError(f"there is no pinned rustup for {target}", "install Rust by your system's way; then make setup")
    address = f"{archive}/{VERSION}/{target}/rustup-init"
    with tempfile.TemporaryDirectory(prefix="gpulab-rustup-") as folder:
        program = Path(folder) / "rustup-init"
        try:
            with urllib.request.urlopen(address, timeout=TIMEOUT_S) as source, program.open("wb") as file:
                shutil.copyfileobj(source, file)
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise ToolError(f"rustup could not be downloaded from {address}: {reason}", NETWORK) from error
        found = hashlib.sha256(program.read_bytes()).hexdigest()
        if found != expected:
            what = f"rustup-init has the wrong SHA-256 (download of {address}): {found} instead of {expected}"
            raise ToolError(
                what, "try again on another network: what answered is not the published file, and was not run"
            )
        program.chmod(0o755)
        options = ["-y", "--quiet", "--no-modify-path", "--profile", "minimal", "--default-toolchain", version]
        wanted = [word for name in components for word in ("--component", name)]
        run([program, *options, *wanted], f"Rust {version} could not be installed", NETWORK)
