"""The virtual environment with JupyterLab, its quiet settings, and the kernel's entry in it."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import sys
from pathlib import Path

from env import paths
from env.command import output, run
from env.console import SetupError, Step

OLDEST = (3, 10)
SETTINGS = paths.ENV / "jupyter"


def environment() -> None:
    """The packages of env/requirements.txt, at their pinned versions."""
    step = Step("python packages")
    # A machine without internet has what the offline bundle brought.
    requirements = Path(os.environ.get("GPULAB_REQUIREMENTS") or paths.ENV / "requirements.txt")
    stamp = paths.VENV / "gpulab.json"
    version = ".".join(map(str, sys.version_info[:2]))
    digest = hashlib.sha256(requirements.read_bytes()).hexdigest()
    # Its place, too: a virtual environment that was moved does not run.
    wanted = {"requirements": digest, "python": version, "folder": str(paths.VENV)}
    if paths.read_json(stamp) == wanted and paths.VENV_PYTHON.exists():
        return step.skipped("JupyterLab and what goes with it, in .venv")
    step.begin("installing JupyterLab and what goes with it into .venv")
    found = output([paths.VENV_PYTHON, "-c", "import sys; print('%d.%d' % sys.version_info[:2], sys.prefix)"])
    if found != f"{version} {paths.VENV}":
        make(paths.VENV)
    pip = [paths.VENV_PYTHON, "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
    count: list[str] = []
    with step.heartbeat(lambda: "downloading and unpacking"):
        run(
            [*pip, "-r", requirements],
            "the Python packages could not be installed",
            "connect this machine to the internet and run `make setup` again; without internet, see `make bundle`",
            on_line=count.append,
        )
    paths.write_json(stamp, wanted)
    return step.done("JupyterLab and what goes with it, in .venv")


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
        raise SetupError(what, "make setup PYTHON=python3.12, or whichever newer one your machine has")


def kernel_spec() -> dict:
    """What Jupyter starts for a notebook of this course."""
    return {
        "argv": [str(paths.VENV_PYTHON), "-m", "env.launcher", "{connection_file}"],
        "display_name": "Rust (gpulab)",
        "language": "rust",
        # evcxr ends its child process for an interrupt; a signal would end the kernel.
        "interrupt_mode": "message",
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


def jupyter() -> None:
    """Writes the kernel's entry and JupyterLab's settings into the virtual environment."""
    step = Step("kernel spec")
    files = jupyter_files()
    stale = [path for path, text in files.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        paths.write_text(path, files[path])
    if stale:
        step.done(f"`{paths.KERNEL_NAME}` and JupyterLab's settings, in .venv")
    else:
        step.skipped(f"`{paths.KERNEL_NAME}` and JupyterLab's settings")
