"""Rust itself, the sources of its standard library, and the kernel that runs Rust cells."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from env import paths
from env.command import output, run
from env.console import Step, ToolError
from env.kernel_cache.progress import Counter, built
from env.setup import prebuilt

INSTALLER, WEB = "https://sh.rustup.rs", "https://rustup.rs"
# Measured on 2 cores: the seconds, and how many crates were done after each twentieth of them.
EXPECTED_S = 530
CURVE = (0, 36, 72, 77, 90, 114, 123, 142, 142, 143, 143, 144, 144, 148, 148, 164, 213, 227, 237, 256, 263)
# The crates that notebooks start on are built after it.
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
    fresh = shutil.which("cargo") is None
    if fresh:
        if shutil.which("curl") is None:
            next_step = (
                f"install curl (Debian and Ubuntu: `sudo apt install curl`), or Rust from {WEB}; then make setup"
            )
            raise ToolError("there is no Rust on this machine, and no curl to fetch it with", next_step)
        step.begin("installing Rust with rustup")
        # The compiler, cargo, the standard library.
        counter = Counter("installing Rust", 3, "parts")
        curl = f"curl --proto '=https' --tlsv1.2 -sSf {INSTALLER} | sh -s -- -y --profile minimal --no-modify-path"
        # Without pipefail a failed download would be an empty script that succeeds.
        with counter.told(step):
            run(
                ["bash", "-o", "pipefail", "-c", curl],
                "Rust could not be installed",
                NETWORK,
                on_line=lambda line: counter.add(line.split()[-1]) if "installing component" in line else None,
            )
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


def numbers(text: str) -> tuple[int, ...]:
    """The parts of the first version number in a text: `rustc 1.95.0` is (1, 95, 0)."""
    found = re.search(r"\d+(?:\.\d+)+", text)
    return tuple(int(part) for part in found[0].split(".")) if found else ()


def sources(rust: Toolchain) -> None:
    """The standard library's sources and the crates that it uses: from them a cell's variables get their types."""
    step = Step("rust-src")
    manifest = rust.folder / "lib" / "rustlib" / "src" / "rust" / "library" / "Cargo.toml"
    fetched = paths.GENERATED / "rust-src.json"
    wanted = {"toolchain": str(rust.folder), "version": rust.version}
    if manifest.is_file() and paths.read_json(fetched) == wanted:
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
    paths.write_json(fetched, wanted)
    return step.done("the standard library's sources and the crates that it uses")


def is_pinned(program: Path) -> bool:
    """Whether this is the pinned evcxr_jupyter: it has no `--version`, but its panic messages name its sources."""
    try:
        return f"evcxr_jupyter-{paths.EVCXR_VERSION}".encode() in program.read_bytes()
    except OSError:
        return False


def find_evcxr(known: str) -> Path | None:
    """The pinned evcxr_jupyter, if this machine has it. `known` was found last time."""
    name = "evcxr_jupyter"
    places = [known, paths.GENERATED / "tools" / "bin" / name, shutil.which(name) or "", paths.cargo_bin() / name]
    return next((Path(place) for place in places if place and is_pinned(Path(place))), None)


def _prebuilt(step: Step, address: str) -> Path | None:
    """The kernel of a published bundle; None, with the reason told, where there is none that fits."""
    step.begin(f"fetching the Rust kernel {paths.EVCXR_VERSION}, prebuilt, from {address}")
    try:
        found = prebuilt.kernel(address)
    except ToolError as error:
        step.begin(f"{error.what}; {error.next_step}")
        return None
    if not is_pinned(found):
        found.unlink()
        step.begin(f"the kernel in {address} is not version {paths.EVCXR_VERSION}; {prebuilt.BUILT}")
        return None
    step.done(f"{paths.EVCXR_VERSION}, prebuilt, {found.parent}")
    return found


def evcxr(known: str) -> Path:
    """The Rust kernel for Jupyter, at the pinned version."""
    step = Step("evcxr_jupyter")
    found = find_evcxr(known)
    if found:
        step.skipped(f"{paths.EVCXR_VERSION}, {found}")
        return found
    if (address := os.environ.get(prebuilt.VARIABLE, "")) and (found := _prebuilt(step, address)):
        return found
    root = paths.cargo_bin().parent
    if (paths.cargo_bin() / "evcxr_jupyter").exists():
        # A reader's own version stays; ours goes beside it.
        root = paths.GENERATED / "tools"
    step.begin(f"building the Rust kernel {paths.EVCXR_VERSION}, once")
    # A folder of its own, so that an interrupted build goes on where it was.
    target = paths.GENERATED / "build-evcxr"
    counter = Counter(
        "building the Rust kernel",
        CURVE[-1],
        look=lambda: built(target),
        expected_s=EXPECTED_S,
        later_s=CRATES_S,
        curve=CURVE,
    )
    command = ["cargo", "install", "--locked", f"evcxr_jupyter@{paths.EVCXR_VERSION}", "--root", root, "--force"]
    with counter.told(step):
        run(
            command,
            "evcxr_jupyter could not be built",
            f"{NETWORK}; where it is a crate that does not compile: `rustup update stable`",
            env={"CARGO_TARGET_DIR": str(target)},
        )
    shutil.rmtree(target, ignore_errors=True)
    step.done(f"{paths.EVCXR_VERSION}, {root / 'bin'}")
    return root / "bin" / "evcxr_jupyter"
