"""The Rust kernel for Jupyter, evcxr_jupyter: one that is there, a prebuilt one, or one built from source."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from env import paths
from env.command import run
from env.console import Step, ToolError
from env.kernel_cache.set_up_progress import Counter, built
from env.setup import kernel_asset
from env.setup import prebuilt as bundle
from env.setup.kernel_asset import PROGRAM
from env.setup.kernel_info import KernelSilentError, ask
from env.setup.rust import CRATES_S, NETWORK

# By package, so that what runs in a cell is fast and the rest is built quickly.
PROFILE = Path(__file__).with_name("kernel_profile.toml")
# Half of its 600 s of CPU time on 2 cores; how many libraries were done after each twentieth of another build's time.
EXPECTED_S = 330
CURVE = (0, 36, 72, 77, 90, 114, 123, 142, 142, 143, 143, 144, 144, 148, 148, 164, 213, 227, 237, 256, 263)
# What `kernel_info` said of a program is kept until the program changes: asking takes as long as a kernel's start.
ANSWERS = "kernel-info.json"


def environment(toolchain: Path) -> dict[str, str]:
    """Where a kernel that is asked, or built, finds the Rust that the set-up decided on."""
    programs = toolchain / "bin"
    return {
        **os.environ,
        "CARGO": str(programs / "cargo"),
        "RUSTC": str(programs / "rustc"),
        "RUSTUP_TOOLCHAIN": str(toolchain),
        "PATH": os.pathsep.join([str(programs), os.environ.get("PATH", "")]),
        # A kernel loads a first library when it starts: without Rust's own it ends at once, where both lie in one folder.
        "LD_LIBRARY_PATH": paths.library_path(*paths.rust_libraries(toolchain)),
    }


def version(program: Path, env: Mapping[str, str]) -> str:
    """What the program says its version is. `KernelSilentError` where it is no evcxr_jupyter that starts."""
    known = paths.read_json(paths.GENERATED / ANSWERS)
    if known.get(str(program), {}).get("file") != paths.state_of(program):
        reply = ask(program, env)
        if reply.get("implementation") != PROGRAM:
            raise KernelSilentError(f"it is the kernel {reply.get('implementation')}")
        remember(program, str(reply.get("implementation_version")))
        return str(reply.get("implementation_version"))
    return known[str(program)]["version"]


def remember(program: Path, answer: str) -> None:
    """Keeps what a program has said, until its file changes."""
    known = paths.read_json(paths.GENERATED / ANSWERS)
    known[str(program)] = {"file": paths.state_of(program), "version": answer}
    paths.write_json(paths.GENERATED / ANSWERS, known)


def candidates(known: str) -> Iterator[Path]:
    """Where the kernel may be: the one found last time, the set-up's own, the reader's."""
    places = [
        known,
        paths.GENERATED / "tools" / "bin" / PROGRAM,
        shutil.which(PROGRAM) or "",
        paths.cargo_bin() / PROGRAM,
    ]
    yield from dict.fromkeys(path for place in places if place and os.access(path := Path(place), os.X_OK))


def find(known: str, toolchain: Path) -> Path | None:
    """A program that says of itself that it is evcxr_jupyter of the pinned version, if this machine has one."""
    env = environment(toolchain)
    for path in candidates(known):
        try:
            if version(path, env) == paths.EVCXR_VERSION:
                return path
        except (KernelSilentError, OSError):
            continue
    return None


def prebuilt(step: Step, toolchain: Path) -> Path | None:
    """The program that the manifest names; None, with the reason told, where there is none that serves."""
    target = paths.GENERATED / "tools" / "bin" / PROGRAM
    try:
        asset = kernel_asset.choose(kernel_asset.read())
        source = kernel_asset.address(asset)
        step.begin(f"fetching the Rust kernel {asset.version}, prebuilt, {(asset.size >> 20) + 1} MiB, from {source}")
        kernel_asset.install(asset, source, target, lambda program: check(program, toolchain))
    except (kernel_asset.NoAssetError, ToolError) as why:
        step.begin(str(why))
        return None
    # It was asked just now.
    remember(target, asset.version)
    step.done(f"{asset.version}, prebuilt, {target.parent}")
    return target


def bundled(step: Step, address: str, toolchain: Path) -> Path | None:
    """The program of an offline bundle that the reader names; None, with the reason told, where it does not serve."""
    step.begin(f"fetching the Rust kernel {paths.EVCXR_VERSION}, prebuilt, from {address}")
    try:
        found = bundle.kernel(address)
    except ToolError as error:
        step.begin(f"{error.what}; {error.next_step}")
        return None
    try:
        check(found, toolchain)
    except ToolError as error:
        found.unlink()
        step.begin(str(error))
        return None
    step.done(f"{paths.EVCXR_VERSION}, prebuilt, {found.parent}")
    return found


def check(program: Path, toolchain: Path) -> None:
    """Raises a `ToolError` where a new program does not start, or is of another version."""
    try:
        found = ask(program, environment(toolchain)).get("implementation_version")
    except KernelSilentError as error:
        raise ToolError(f"the prebuilt Rust kernel does not start: {error}", kernel_asset.FROM_SOURCE) from error
    if found != paths.EVCXR_VERSION:
        what = f"the prebuilt Rust kernel is version {found}, and the course needs {paths.EVCXR_VERSION}"
        raise ToolError(what, kernel_asset.FROM_SOURCE)


def from_source(step: Step, root: Path, target: Path) -> Path:
    """Builds the kernel; an interrupted build goes on in `target`, which is removed in the end."""
    step.begin(f"building the Rust kernel {paths.EVCXR_VERSION}, once")
    counter = Counter(
        "building the Rust kernel",
        CURVE[-1],
        look=lambda: built(target),
        expected_s=EXPECTED_S,
        later_s=CRATES_S,
        curve=CURVE,
    )
    command = ["cargo", "install", "--locked", f"{PROGRAM}@{paths.EVCXR_VERSION}", "--config", PROFILE]
    with counter.told(step):
        run(
            [*command, "--root", root, "--force"],
            "evcxr_jupyter could not be built",
            f"{NETWORK}; where it is a crate that does not compile: `rustup toolchain install`",
            env={"CARGO_TARGET_DIR": str(target)},
        )
    shutil.rmtree(target, ignore_errors=True)
    step.done(f"{paths.EVCXR_VERSION}, {root / 'bin'}")
    return root / "bin" / PROGRAM


def kernel(known: str, toolchain: Path) -> Path:
    """The Rust kernel for Jupyter, at the pinned version."""
    step = Step(PROGRAM)
    if found := find(known, toolchain):
        step.skipped(f"{paths.EVCXR_VERSION}, {found}")
        return found
    if (address := os.environ.get(bundle.VARIABLE, "")) and (found := bundled(step, address, toolchain)):
        return found
    if found := prebuilt(step, toolchain):
        return found
    # A reader's own version stays; ours goes beside it.
    taken = (paths.cargo_bin() / PROGRAM).exists()
    root = paths.GENERATED / "tools" if taken else paths.cargo_bin().parent
    return from_source(step, root, paths.GENERATED / "build-evcxr")
