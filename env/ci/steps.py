"""The steps of `make test`. Each gives its checks and, for a failure, the text to show."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from env.ci.checks import FAILED, PASSED, SKIPPED, Check, of_cargo, of_notebooks, of_pages, of_pytest
from env.ci.processes import ROOT, Commands
from env.paths import VENV_PYTHON, library_path

PYTHON = str(VENV_PYTHON)
TESTS_TOO = ("--packages", "tests")
IN_CI = os.environ.get("CI", "").lower() not in ("", "0", "false")
MAC = "aarch64-apple-darwin"
RUN = ROOT / "results" / "run"
LONG_S = 5000
# The first lesson, and one with plots, an expected error and exercises.
COLAB = "00,01"
# Kernels in cells, in exercises and in solutions, with mistakes that the simulator tells by line.
PACKED = "10"
TESTS = ("--workspace", "--all-features", "--locked")
Step = Callable[[Commands], tuple[list[Check], str]]


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


def set_up(commands: Commands) -> tuple[list[Check], str]:
    """What is missing is installed, and the builds that the lessons start on are warmed."""
    return _one(commands, "set-up", [sys.executable, "-m", "env.setup", "--lessons", "all", *TESTS_TOO])


def formatted(commands: Commands) -> tuple[list[Check], str]:
    """cargo fmt."""
    return _one(commands, "rustfmt", ["cargo", "fmt", "--all", "--check"])


def clippy(commands: Commands) -> tuple[list[Check], str]:
    """clippy, tests and programs included; a warning is a failure."""
    command = ["cargo", "clippy", "--workspace", "--all-features", "--all-targets", "--locked", "--", "-D", "warnings"]
    return _one(commands, "clippy", command)


def rustdoc(commands: Commands) -> tuple[list[Check], str]:
    """The crates' pages; a warning is a failure."""
    command = ["cargo", "doc", "--workspace", "--all-features", "--no-deps", "--locked"]
    return _one(commands, "rustdoc", command, RUSTDOCFLAGS="-D warnings")


def mac(commands: Commands) -> tuple[list[Check], str]:
    """All Rust but polars, whose C takes a compiler for macOS, type-checked for Apple silicon from here: Metal code above all."""
    name = f"type check for {MAC}"
    if shutil.which("rustup") is None:
        return _skip(name, f"no rustup, which adds the target {MAC}")
    status, output = commands.run("mac target", ["rustup", "target", "add", MAC], 300)
    if status != 0:
        return _skip(name, f"the target {MAC} could not be added: {output.strip()[-300:]}")
    # All crates but gpulab-tables; the command's own features, and those of the checks, must not bring polars back.
    features = "gpulab-cli/onnx,gpulab-lessons/onnx"
    crates = ["--workspace", "--exclude", "gpulab-tables", "--features", features]
    return _one(commands, name, ["cargo", "check", *crates, "--target", MAC, "--locked"])


def build_tests(commands: Commands) -> tuple[list[Check], str]:
    """All tests built, while the set-up builds what the notebooks start on."""
    return _one(commands, "tests build", ["cargo", "test", *TESTS, "--no-run"])


def rust_tests(commands: Commands) -> tuple[list[Check], str]:
    """Unit tests, doc tests, and every CUDA C source through NVRTC."""
    command = ["cargo", "test", *TESTS, "--no-fail-fast", "--", "--show-output"]
    status, output = commands.run("rust tests", command, LONG_S, LD_LIBRARY_PATH=library_path())
    checks = of_cargo(output)
    if status != 0 and all(check.state != FAILED for check in checks) or not checks:
        checks.append(Check("rust tests", FAILED, "did not build, or found no test"))
    return checks, output


def python_tests(commands: Commands) -> tuple[list[Check], str]:
    """The tools' own tests: planted faults in notebooks, in lessons, in the set-up."""
    report = RUN / "test" / "pytest.xml"
    report.unlink(missing_ok=True)
    command = [PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", "env/tests"]
    status, output = commands.run("python tests", command, LONG_S)
    checks = of_pytest(report)
    if status != 0 and all(check.state != FAILED for check in checks) or not checks:
        checks.append(Check("python tests", FAILED, "pytest ended early, or found no test"))
    return checks, output


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
    checks = of_pages(output)
    if status != 0 and all(check.state != FAILED for check in checks) or not checks:
        checks.append(Check("pages", FAILED))
    return checks, output


def notebooks(commands: Commands) -> tuple[list[Check], str]:
    """Every notebook as shipped, and after each red check its solution and the check again, in one kernel."""
    summary = RUN / "summary.json"
    summary.unlink(missing_ok=True)
    status, output = commands.run("notebooks", [PYTHON, "-m", "env.run", "--solutions"], LONG_S, NB="")
    checks = of_notebooks(summary)
    if status != 0 and all(check.state != FAILED for check in checks) or not checks:
        checks.append(Check("notebooks", FAILED, "the runner ended early, or found no notebook"))
    return checks, output


def colab(commands: Commands) -> tuple[list[Check], str]:
    """Two notebooks of the Colab edition, with Colab's versions of what runs them; `make test-colab` runs all."""
    summary = RUN / "colab" / "summary.json"
    summary.unlink(missing_ok=True)
    status, output = commands.run("colab", [PYTHON, "-m", "env.run", COLAB, "--colab", "--solutions"], LONG_S, NB="")
    checks = [Check(f"colab: {check.name}", check.state, check.note) for check in of_notebooks(summary)]
    if status != 0 and all(check.state != FAILED for check in checks) or not checks:
        checks.append(Check("colab", FAILED, "the runner ended early, or found no notebook"))
    return checks, output


def without_nvrtc(commands: Commands) -> tuple[list[Check], str]:
    """A lesson full of kernels, as where nothing compiles (a Mac): all comes from the pack. `--without-nvrtc` runs any."""
    summary = RUN / "without-nvrtc" / "summary.json"
    summary.unlink(missing_ok=True)
    command = [PYTHON, "-m", "env.run", PACKED, "--without-nvrtc", "--solutions"]
    status, output = commands.run("without nvrtc", command, LONG_S, NB="")
    checks = [Check(f"without NVRTC: {check.name}", check.state, check.note) for check in of_notebooks(summary)]
    if status != 0 and all(check.state != FAILED for check in checks) or not checks:
        checks.append(Check("without NVRTC", FAILED, "the runner ended early, or found no notebook"))
    return checks, output


def browser(commands: Commands) -> tuple[list[Check], str]:
    """One notebook in JupyterLab: Run All, a plot, no error."""
    status, output = commands.run("browser", [PYTHON, "-m", "env.ci.browser"], LONG_S)
    if status == 3:
        return _skip("browser", output.strip())
    return [Check("browser", PASSED if status == 0 else FAILED)], output


def book(commands: Commands) -> tuple[list[Check], str]:
    """The course as pages: all links lead somewhere, and a browser shows them from files, phone and desk, light and dark."""
    status, output = commands.run("book", [PYTHON, "-m", "env.book", "--look"], LONG_S)
    if status == 3:
        return _skip("book in a browser", output.strip())
    return [Check("book", PASSED if status == 0 else FAILED)], output


# What needs nothing but Rust, then what needs packages, then what needs the set-up: two rows, side by side, about as long.
# The crates' tests are built and run beside the set-up, which leaves a core idle while it builds one large crate; the
# tools' tests and the browser's steps run beside the notebooks.
RUST: list[Step] = [formatted, clippy, rustdoc, mac, build_tests]
RUST_AFTER_PACKAGES: list[Step] = [rust_tests]
RUST_AFTER_SET_UP: list[Step] = [python_tests, browser, book]
PYTHON_AFTER_SET_UP: list[Step] = [ruff, lint, pages, notebooks, colab, without_nvrtc]


def log_folder() -> Path:
    """Where each step's output is kept."""
    return RUN / "test"
