"""The steps of `make test`. Each gives its checks and, for a failure, the text to show."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

from env.ci import cache as kept
from env.ci import gpu
from env.ci.checks import FAILED, PASSED, SKIPPED, Check, of_junit, of_notebooks, of_pages
from env.ci.processes import ROOT, Commands
from env.command import output as output_of
from env.kernel_cache import build, recipe
from env.kernel_cache.candle import share_of_cores
from env.paths import RUN, TARGET, VENV_PYTHON, library_path

PYTHON = str(VENV_PYTHON)
TESTS_TOO = ("--packages", "tests")
IN_CI = os.environ.get("CI", "").lower() not in ("", "0", "false")
MAC = "aarch64-apple-darwin"
# Against what hangs, and no limit to a slow machine.
LONG_S = 6 * 3600
# Each takes up to 1.5 GB.
MOST_KERNELS = 4
# Kernels in cells, in exercises and in solutions, with mistakes that the simulator tells by line.
PACKED = "10"
SETTINGS = ROOT / "env" / "ci" / "cargo.toml"
# The crates in two builds, whose dependencies have the very features that the notebooks' builds ask for: what is built for
# the tests serves the notebooks (test_lines.py compares them). A new crate belongs to the first one.
CANDLE = ("gpulab-nn", "gpulab-onnx", "gpulab-lessons", "gpulab-cli", "gpulab-monitor", "gpulab-serve")
BUILDS = {
    "tables": ["--workspace", *(word for crate in CANDLE for word in ("--exclude", crate))],
    "candle": [
        *(word for crate in CANDLE for word in ("--package", crate)),
        *("--features", "gpulab-lessons/onnx,gpulab-cli/onnx,gpulab-cli/serve,gpulab-serve/candle"),
    ],
}
Step = Callable[[Commands], tuple[list[Check], str]]


def cargo(command: str, *arguments: str) -> list[str]:
    """A call of cargo that builds as all steps do: our own crates by clippy, which is rustc with more lints."""
    lints = f'build.rustc-workspace-wrapper="{clippy()}"'
    return ["cargo", *command.split(), "--locked", "--config", str(SETTINGS), "--config", lints, *arguments]


@cache
def clippy() -> Path:
    """clippy's compiler, where the toolchain has it."""
    return Path((output_of(["rustc", "--print", "sysroot"]) or "").strip()) / "bin" / "clippy-driver"


@cache
def environment() -> dict[str, str]:
    """What cargo and the tests that it runs need in their environment."""
    host = re.search(r"^host: (.+)$", output_of(["rustc", "-vV"]) or "", flags=re.MULTILINE)
    # Named as the kernels name it: build scripts and derives are then the same in all builds.
    target = {"CARGO_BUILD_TARGET": host[1]} if host else {}
    profile = recipe.profile(bool(os.environ.get("GPULAB_QUICK_BUILD")))
    # As `cargo clippy -- -D warnings` hands it on.
    strict = {"CLIPPY_ARGS": "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__"}
    return {**target, **profile, **strict, "LD_LIBRARY_PATH": library_path()}


def _one(commands: Commands, name: str, command: list[str], **environment: str) -> tuple[list[Check], str]:
    """A command that is one check."""
    if shutil.which(command[0]) is None:
        return [Check(name, FAILED, f"`{command[0]}` is missing")], f"`{command[0]}` is missing\nnext: make setup"
    status, output = commands.run(name, command, LONG_S, **environment)
    return [Check(name, PASSED if status == 0 else FAILED)], output


def _skip(name: str, why: str) -> tuple[list[Check], str]:
    """Skipped with its reason; in CI only what needs a GPU or a Mac may be."""
    return [Check(name, FAILED if IN_CI else SKIPPED, why)], why


def packages(commands: Commands) -> tuple[list[Check], str]:
    """The set-up's Python packages and libraries: all that the tests of the crates need of it."""
    return _one(
        commands, "packages", [sys.executable, "-m", "env.setup", "--part", "python", "--lessons", "all", *TESTS_TOO]
    )


def kernel(commands: Commands) -> tuple[list[Check], str]:
    """Rust, the Rust kernel and the program `gpulab`."""
    return _one(commands, "kernel", [sys.executable, "-m", "env.setup", "--part", "rust"])


def set_up(commands: Commands) -> tuple[list[Check], str]:
    """The builds that the lessons start on are warmed, from the dependencies that the tests have built."""
    command = [sys.executable, "-m", "env.setup", "--lessons", "all", *TESTS_TOO]
    return _one(commands, "set-up", command, **{build.OTHERS: str(TARGET)})


def formatted(commands: Commands) -> tuple[list[Check], str]:
    """cargo fmt."""
    return _one(commands, "rustfmt", ["cargo", "fmt", "--all", "--check"])


def mac(commands: Commands) -> tuple[list[Check], str]:
    """All Rust but polars, whose C takes a compiler for macOS, type-checked for Apple silicon from here: Metal code above all."""
    name = f"type check for {MAC}"
    if shutil.which("rustup") is None:
        return _skip(name, f"no rustup, which adds the target {MAC}")
    status, output = commands.run("mac target", ["rustup", "target", "add", MAC], LONG_S)
    if status != 0:
        return _skip(name, f"the target {MAC} could not be added: {output.strip()[-300:]}")
    features = "gpulab-cli/onnx,gpulab-cli/serve,gpulab-lessons/onnx"
    crates = ["--workspace", "--exclude", "gpulab-tables", "--features", features]
    return _one(commands, name, cargo("check", *crates, "--target", MAC), **environment())


def miri(commands: Commands) -> tuple[list[Check], str]:
    """How launches pack their arguments, under an interpreter that sees each byte that is read and is not there."""
    if output_of(["cargo", "+nightly", "miri", "--version"]) is None:
        return _skip("miri", "no nightly Rust with Miri: rustup toolchain install nightly --component miri,rust-src")
    packing = ("launch::arguments", "launch::signature", "gpu::kernel")
    command = ["cargo", "+nightly", "miri", "test", "--locked", "-p", "gpulab", "--lib", "--", *packing]
    return _one(commands, "miri", command, CARGO_TARGET_DIR=str(TARGET / "miri"))


def build_tests(commands: Commands) -> tuple[list[Check], str]:
    """All tests and programs built, and with them most of what the notebooks start on; a warning of clippy's is a failure."""
    if not clippy().exists():
        return [Check("clippy", FAILED, "it is missing")], "clippy is missing\nnext: rustup component add clippy"
    kept.restore(environment())
    checks, output = [], ""
    builds = {
        # Without a choice of targets cargo builds programs and examples, too.
        **{f"clippy and tests build: {name}": crates for name, crates in BUILDS.items()},
        "clippy: benches": ["--benches", *BUILDS["tables"]],
    }
    for name, crates in builds.items():
        found, text = _one(commands, name, cargo("test", "--no-run", *crates), **environment())
        checks, output = checks + found, output + text
    if all(check.state == PASSED for check in checks):
        kept.keep(environment())
    return checks, output


def rust_tests(commands: Commands) -> tuple[list[Check], str]:
    """Unit tests, examples in the documentation and its pages, and every CUDA C source through NVRTC."""
    checks, output = [], ""
    rustdoc = {"RUSTDOC": str(Path(__file__).with_name("rustdoc.sh"))}
    for name, crates in BUILDS.items():
        if shutil.which("cargo-nextest"):
            # nextest writes it there: .config/nextest.toml.
            report = TARGET / "nextest" / "ci" / "junit.xml"
            report.unlink(missing_ok=True)
            command = cargo("nextest run", "--profile", "ci", "--tests", *crates)
            # As many tests at a time as there are cores.
            alone = share_of_cores(os.cpu_count() or 1)
            status, text = commands.run(f"rust tests: {name}", command, LONG_S, **environment(), **alone)
            found = _complete(f"rust tests: {name}", status, of_junit(report))
            if report.exists():
                shutil.copyfile(report, log_folder() / f"rust-{name}.xml")
        else:
            command = cargo("test", "--tests", "--no-fail-fast", *crates)
            found, text = _one(commands, f"rust tests as one: {name}", command, **environment())
        command = cargo("test --doc", *crates)
        docs, more = _one(commands, f"rustdoc and doc tests: {name}", command, **environment(), **rustdoc)
        checks, output = checks + found + docs, output + text + more
    # Neither nextest's report nor its list says why a test is ignored.
    reasons = {name: why for name, why in gpu.ignored().items() if not why.startswith(gpu.HELPER)}
    return checks + [Check(name, SKIPPED, why) for name, why in reasons.items()], output


def _complete(name: str, status: int, checks: list[Check]) -> list[Check]:
    """The checks of a report, with one more where they do not explain the status."""
    if (status != 0 and all(check.state != FAILED for check in checks)) or not checks:
        return [*checks, Check(name, FAILED, "did not build or ended early, or found nothing to check")]
    return checks


def python_tests(commands: Commands) -> tuple[list[Check], str]:
    """The tools' own tests: planted faults in notebooks, in lessons, in the set-up. Those of one file share what they made."""
    report = RUN / "test" / "pytest.xml"
    report.unlink(missing_ok=True)
    command = [PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", "env/tests"]
    status, output = commands.run("python tests", [*command, "-n", "2", "--dist", "loadfile"], LONG_S)
    return _complete("python tests", status, of_junit(report)), output


def ruff(commands: Commands) -> tuple[list[Check], str]:
    """The tools' style."""
    checks, output = [], ""
    for name, command in (("ruff check", ["check"]), ("ruff format", ["format", "--check"])):
        found, text = _one(commands, name, [PYTHON, "-m", "ruff", *command, "env"])
        checks, output = checks + found, output + text
    return checks, output


def lint(commands: Commands) -> tuple[list[Check], str]:
    """Notebooks, pages and files against the course's rules."""
    return _one(commands, "lint", [PYTHON, "-m", "env.lint"])


def pages(commands: Commands) -> tuple[list[Check], str]:
    """What pages tell the reader to type: each block that is run is a check, each that is not a skip with its reason."""
    status, output = commands.run("pages", [PYTHON, "-m", "env.ci.page_blocks"], LONG_S)
    return _complete("pages", status, of_pages(output)), output


def _run(commands: Commands, name: str, folder: Path, *arguments: str) -> tuple[list[Check], str]:
    """A call of the notebook runner, with the solutions; `folder` gets the copies."""
    (folder / "summary.json").unlink(missing_ok=True)
    # One more than there are cores: a kernel waits between two cells, and for the disk.
    side_by_side = min(MOST_KERNELS, (os.cpu_count() or 1) + 1)
    command = [PYTHON, "-m", "env.run", *arguments, "--solutions", "--jobs", str(side_by_side)]
    command += ["--cell-limit", str(LONG_S)]
    status, output = commands.run(name, command, LONG_S, NB="")
    checks = of_notebooks(folder / "summary.json")
    if folder != RUN:
        checks = [Check(f"{name}: {check.name}", check.state, check.note) for check in checks]
    return _complete(name, status, checks), output


def notebooks(commands: Commands) -> tuple[list[Check], str]:
    """Every notebook as shipped, and after each red check its solution and the check again, in one kernel."""
    return _run(commands, "notebooks", RUN)


def colab(commands: Commands) -> tuple[list[Check], str]:
    """The Colab edition, with Colab's versions of what runs it."""
    return _run(commands, "colab", RUN / "colab", "--colab")


def without_nvrtc(commands: Commands) -> tuple[list[Check], str]:
    """A lesson full of kernels, as where nothing compiles (a Mac): all comes from the pack. `--without-nvrtc` runs any."""
    return _run(commands, "without nvrtc", RUN / "without-nvrtc", PACKED, "--without-nvrtc")


def _in_browser(commands: Commands, name: str, *tool: str) -> tuple[list[Check], str]:
    """A tool that drives a browser, and says with 3 that there is none."""
    status, output = commands.run(name, [PYTHON, "-m", *tool], LONG_S)
    return (
        _skip(f"{name} in a browser", output.strip())
        if status == 3
        else ([Check(name, PASSED if status == 0 else FAILED)], output)
    )


def browser(commands: Commands) -> tuple[list[Check], str]:
    """One notebook in JupyterLab: Run All, a plot, no error."""
    return _in_browser(commands, "browser", "env.ci.browser")


def book(commands: Commands) -> tuple[list[Check], str]:
    """The course as pages: all links lead somewhere, and a browser shows them from files, phone and desk, light and dark."""
    return _in_browser(commands, "book", "env.book", "--look")


def container(commands: Commands) -> tuple[list[Check], str]:
    """The container's image, built on a clean Ubuntu and tried."""
    if os.geteuid() != 0:
        return _skip("container", "it mounts and changes owners, so it must be root")
    return _one(commands, "container", [sys.executable, "-m", "env.container"])


# Rows, side by side: what cargo builds for the tests, then the tests; what the set-up makes, then the notebooks. Style comes
# first in each. One kernel alone would leave a core idle at the end, so the lesson without a compiler has a row of its own.
CARGO: list[Step] = [formatted, build_tests, rust_tests, python_tests, browser]
SET_UP: list[Step] = [packages, ruff, lint, kernel, set_up, notebooks, pages]
BESIDE: list[Step] = [without_nvrtc]
# `make test-all`: of other machines, or minutes of what the tests show in small.
MORE: list[Step] = [mac, miri, book, colab, container]
# Steps that must have gone well before one begins.
NEEDS: dict[Step, list[Step]] = {
    ruff: [packages],
    lint: [packages],
    rust_tests: [packages, build_tests],
    set_up: [packages, kernel],
    **{step: [set_up] for step in (python_tests, browser, pages, notebooks, without_nvrtc, book, colab)},
}
# Steps that must only have ended.
AFTER: dict[Step, list[Step]] = {set_up: [build_tests], **({} if shutil.which("cargo") else {formatted: [kernel]})}


def log_folder() -> Path:
    """Where each step's output is kept."""
    return RUN / "test"
