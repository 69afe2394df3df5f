"""The virtual environment with JupyterLab, its quiet settings, and the kernel's entry in it."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from env import paths
from env.command import output, run
from env.console import Step, ToolError
from env.kernel_cache.set_up_progress import Counter

OLDEST = (3, 10)
VERSION = ".".join(map(str, sys.version_info[:2]))
# Each a list in env/requirements/, with the sums of its packages; `make requirements` makes them anew.
GROUPS = ("learner", "onnx", "tests", "teach", "grading")
# For the learner's, with an ordinary connection.
INSTALL_S = 40
SETTINGS = paths.ENV / "jupyter"


def requirements(groups: Iterable[str] = ()) -> dict[str, Path]:
    """The lists of packages: the learner's, those asked for, and those that were installed before."""
    # A machine without internet has one list, of what the offline bundle brought.
    if offline := os.environ.get("GPULAB_REQUIREMENTS"):
        return {"offline": Path(offline)}
    wanted = {GROUPS[0], *groups, *paths.read_json(_stamp()).get("requirements", {})}
    return {group: paths.ENV / "requirements" / f"{group}.txt" for group in GROUPS if group in wanted}


def _stamp() -> Path:
    return paths.VENV / "gpulab.json"


def _state(lists: dict[str, Path]) -> dict:
    """What the stamp of an environment with these packages says."""
    digests = {group: hashlib.sha256(file.read_bytes()).hexdigest() for group, file in lists.items()}
    # Its place, too: a virtual environment that was moved does not run.
    return {"requirements": digests, "python": VERSION, "folder": str(paths.VENV)}


def ready() -> bool:
    """Whether JupyterLab can start: the packages are there, and so are its settings and the kernel's entry."""
    installed = paths.read_json(_stamp()) == _state(requirements()) and paths.VENV_PYTHON.exists()
    return installed and not stale_files()


def environment(groups: Iterable[str] = ()) -> None:
    """The learner's packages and those of more groups, at the versions and with the sums of env/requirements/."""
    step = Step("python packages")
    lists = requirements(groups)
    wanted, before = _state(lists), paths.read_json(_stamp())
    what = f"for {', '.join(lists)}, in .venv"
    if before == wanted and paths.VENV_PYTHON.exists():
        return step.skipped(what)
    step.begin(f"installing those {what}")
    if paths.VENV.is_symlink():
        what = (
            f"{paths.VENV} is a link to {paths.VENV.resolve()}: two copies of the course cannot share one environment"
        )
        raise ToolError(what, f"remove the link (rm {paths.VENV}), then make setup")
    found = output([paths.VENV_PYTHON, "-c", "import sys; print('%d.%d' % sys.version_info[:2], sys.prefix)"])
    # Python itself takes a moved environment for whole; the programs in it name the old place.
    moved = before.get("folder", str(paths.VENV)) != str(paths.VENV)
    if moved or found != f"{VERSION} {paths.VENV}":
        make(paths.VENV)
        before = {}
    # Once there was one list, and its sum.
    known = before.get("requirements")
    known = known if isinstance(known, dict) else {}
    changed = [file for group, file in lists.items() if known.get(group) != wanted["requirements"][group]]
    text = "".join(file.read_text(encoding="utf-8") for file in changed)
    total = len(re.findall(r"^[\w-]+(?:\[[\w-]+\])?==", text, re.MULTILINE))
    # pip fetches them one after the other; then it puts all in place, in a third of the time, and says nothing.
    counter = Counter("installing JupyterLab", total, "packages", expected_s=INSTALL_S, curve=(0, 1, 2, 2))

    def heard(line: str) -> None:
        word, _, rest = line.partition(" ")
        if word == "Collecting" or line.startswith("Requirement already satisfied"):
            counter.add(rest.removeprefix("already satisfied: ").split("==")[0])
        elif word == "Ignoring" and counter.total:
            # Of another Python, or another system.
            counter.total -= 1

    command = [paths.VENV_PYTHON, "-m", "pip", "install", "--disable-pip-version-check", "--no-color"]
    # Compiled when it is first imported, as most of it never is; unless Python is told to keep nothing then.
    command += [] if sys.dont_write_bytecode else ["--no-compile"]
    command += [] if "offline" in lists else ["--require-hashes"]
    with counter.told(step, kernels=False):
        run(
            [*command, "--progress-bar=off", *(word for file in changed for word in ("-r", file))],
            "the Python packages could not be installed",
            "connect this machine to the internet and run `make setup` again; without internet, see `make bundle`",
            on_line=heard,
        )
    paths.write_json(_stamp(), wanted)
    return step.done(what)


def make(folder: Path) -> None:
    """An empty virtual environment with pip in it."""
    shutil.rmtree(folder, ignore_errors=True)
    next_step = "install Python's venv (Debian and Ubuntu: `sudo apt install python3-venv`), then `make setup`"
    failed = "the virtual environment could not be made"
    whole = importlib.util.find_spec("ensurepip") is not None
    run([sys.executable, "-m", "venv", *([] if whole else ["--without-pip"]), folder], failed, next_step)
    if not whole:
        # As on Colab, and on Debian without python3-venv: what puts pip there is missing, but the system's pip can.
        command = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install", "--quiet", "pip"]
        run([*command, "--disable-pip-version-check"], failed, next_step)


def check_version() -> None:
    """The Python that runs the set-up also makes the virtual environment."""
    if sys.version_info[:2] < OLDEST:
        needed, this = (".".join(map(str, version[:2])) for version in (OLDEST, sys.version_info))
        what = f"this is Python {this}; the course needs {needed} or newer"
        raise ToolError(what, "make setup PYTHON=python3.12, or whichever newer one your machine has")


def kernel_spec() -> dict:
    """What Jupyter starts for a notebook of this course."""
    return {
        # Isolated (-I): a folder `env` beside the notebook, or a PYTHONPATH, must not get in the way.
        "argv": [str(paths.VENV_PYTHON), "-I", "-m", "env.launcher", "{connection_file}"],
        "display_name": "Rust (gpulab)",
        "language": "rust",
        # evcxr ends its child process for an interrupt; a signal would end the kernel.
        "interrupt_mode": "message",
        **({"env": {"GPULAB_HOME": str(paths.MADE)}} if paths.LAYERED else {}),
    }


def jupyter_files() -> dict[Path, str]:
    """The kernel's entry, JupyterLab's settings and extension, and the tools' place for Python: file and content."""
    share, config = paths.VENV / "share" / "jupyter", paths.VENV / "etc" / "jupyter"
    places = {
        "overrides.json": share / "lab" / "settings" / "overrides.json",
        "page_config.json": config / "labconfig" / "page_config.json",
        "jupyter_server_config.json": config / "jupyter_server_config.json",
    }
    files = {place: (SETTINGS / name).read_text(encoding="utf-8") for name, place in places.items()}
    extension = SETTINGS / "labextension"
    for file in (one for one in sorted(extension.rglob("*")) if one.is_file()):
        files[share / "labextensions" / "gpulab" / file.relative_to(extension)] = file.read_text(encoding="utf-8")
    spec = share / "kernels" / paths.KERNEL_NAME / "kernel.json"
    files[spec] = json.dumps(kernel_spec(), indent=1) + "\n"
    # A kernel starts in the notebook's folder: the course's tools are found from there, as `pip install -e` would do it.
    site = paths.VENV / "lib" / "python{}.{}".format(*sys.version_info) / "site-packages"
    files[site / "gpulab-tools.pth"] = f"{paths.ROOT}\n"
    return files


def stale_files() -> list[Path]:
    """Those that are missing, or of another version of the course."""
    files = jupyter_files()
    return [path for path, text in files.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]


def jupyter() -> None:
    """Writes the kernel's entry and JupyterLab's settings into the virtual environment."""
    step = Step("kernel spec")
    files, stale = jupyter_files(), stale_files()
    for path in stale:
        paths.write_text(path, files[path])
    if stale:
        step.done(f"`{paths.KERNEL_NAME}` and JupyterLab's settings, in .venv")
    else:
        step.skipped(f"`{paths.KERNEL_NAME}` and JupyterLab's settings")
