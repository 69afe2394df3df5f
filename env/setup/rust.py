"""Rust itself, and the sources of its standard library."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from env import paths
from env.command import output, run
from env.console import Step, ToolError
from env.kernel_cache import rust_src
from env.setup import rustup
from env.setup.kernel_asset import numbers

WEB = "https://rustup.rs"
# What comes after the Rust kernel: the crates that notebooks start on.
CRATES_S = 120
NETWORK = "connect this machine to the internet and run `make setup` again; without internet, see `make bundle`"


@dataclass(frozen=True)
class Toolchain:
    """The Rust that kernels are built with."""

    folder: Path
    # As `rustc -vV` tells it: two compilers with the same text give the same build.
    version: str

    @property
    def short(self) -> str:
        """Such as `rustc 1.95.0`."""
        return " ".join(self.version.split()[:2])

    def crates(self, *names: str) -> set[str]:
        """The libraries that a build of these crates of ours takes, with their own; none where cargo does not say."""
        wanted = [word for name in names for word in ("-p", name)]
        command = [self.folder / "bin" / "cargo", "tree", "--locked", "--edges", "normal,build", "--prefix", "none"]
        tree = output([*command, "--format", "{p}", *wanted])
        return {line.split()[0].replace("-", "_") for line in (tree or "").splitlines() if line}


def add_to_path() -> None:
    """A shell that was opened before Rust was installed does not have its folder yet."""
    folder = str(paths.cargo_bin())
    if folder not in os.environ.get("PATH", "").split(os.pathsep):
        os.environ["PATH"] = os.pathsep.join([*filter(None, [os.environ.get("PATH")]), folder])


def toolchain(quiet: bool = False) -> Toolchain:
    """The compiler that cargo uses in this project; installed by rustup when there is none."""
    step = Step("rust", quiet)
    add_to_path()
    fresh = rustup.ensure(step.begin)
    folder, version = output(["rustc", "--print", "sysroot"]), output(["rustc", "-vV"])
    if not folder or not version:
        raise ToolError("`rustc` does not run", "run `rustc --version` to see why; `rustup default stable` fixes most")
    found = Toolchain(Path(folder), version)
    needed = re.search(
        r'^rust-version = "([\d.]+)"', (paths.ROOT / "Cargo.toml").read_text(encoding="utf-8"), re.MULTILINE
    )
    if needed and numbers(found.short) < numbers(needed[1]):
        raise ToolError(f"{found.short} is too old: the course needs {needed[1]}", "rustup update stable")
    (step.done if fresh else step.skipped)(found.short)
    return found


def check_linker() -> None:
    """Rust compiles alone, and links with the system's C compiler."""
    if not any(shutil.which(name) for name in ("cc", "gcc", "clang")):
        ways = "Debian and Ubuntu: `sudo apt install build-essential`, Fedora: `sudo dnf install gcc`, macOS: `xcode-select --install`"
        raise ToolError(
            "there is no C compiler, which Rust needs to link programs", f"install one ({ways}); then make setup"
        )


def sources(rust: Toolchain) -> None:
    """The standard library's sources and the crates that it uses: from them a cell's variables get their types."""
    step = Step("rust-src")
    manifest = rust.folder / "lib" / "rustlib" / "src" / "rust" / "library" / "Cargo.toml"
    fetched = paths.GENERATED / "rust-src.json"
    wanted = {"toolchain": str(rust.folder), "version": rust.version, "form": rust_src.FORM}
    if manifest.is_file() and rust_src.LIBRARY.is_dir() and paths.read_json(fetched) == wanted:
        return step.skipped("the standard library's sources")
    if not manifest.is_file():
        if shutil.which("rustup") is None:
            next_step = f"install your system's package `rust-src`, or Rust from {WEB}"
            raise ToolError("the standard library's sources are missing, and there is no rustup to add them", next_step)
        run(["rustup", "component", "add", "rust-src"], "rust-src could not be added", NETWORK)
    # Without them every `let` would fail: "Couldn't automatically determine type".
    fetch = ["cargo", "fetch", "--locked", "--manifest-path", manifest]
    bootstrap = {"RUSTC_BOOTSTRAP": "1"}
    try:
        run([*fetch, "--offline"], "not there yet", "", env=bootstrap)
    except ToolError:
        run(fetch, "the crates of Rust's standard library could not be downloaded", NETWORK, env=bootstrap)
    rust_src.lean(manifest.parent, rust_src.LIBRARY)
    paths.write_json(fetched, wanted)
    return step.done("the standard library's sources and the crates that it uses")
