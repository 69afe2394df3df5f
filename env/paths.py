"""Where everything lies that set-up makes, and what set-up found out about this machine."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENV = ROOT / "env"


def state_of(file: Path) -> str:
    """Another text once the file is another one."""
    status = file.stat()
    return f"{status.st_size} {status.st_mtime_ns}"


def read_json(path: Path) -> dict:
    """The object in a file; an empty one where there is no file, or where it is damaged: it is made again then."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def has_space(path: Path) -> bool:
    """Whether evcxr can load no cell from there: it hands the names of its libraries on with spaces between them."""
    return any(character.isspace() for character in str(path))


def without_spaces(folder: Path) -> Path:
    """The folder itself, or one in the user's cache, where cells are built in its place."""
    if not has_space(folder):
        return folder
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "gpulab" / hashlib.sha256(str(folder).encode()).hexdigest()[:12]


def apply_offline(file: Path = ROOT / "offline.json") -> None:
    """Where the offline bundle is unpacked: its own Rust, Python packages and crates, for whatever is run here."""
    settings = read_json(file).get("settings", {})
    path = settings.pop("PATH", "")
    # Programs that this one starts have it already.
    if path and not os.environ.get("PATH", "").startswith(path):
        settings["PATH"] = os.pathsep.join(filter(None, [path, os.environ.get("PATH", "")]))
    os.environ.update(settings)


apply_offline()
NOTEBOOKS = ROOT / "notebooks"
CRATE = ROOT / "support-crate"
CRATES = ROOT / "crates"
SIMULATOR = CRATES / "warpsim"
# Where runs go that are kept nowhere else.
RUN = ROOT / "results" / "run"
# Where all lies that set-up makes: here, or, in a container, outside of the folder that its caller mounts.
MADE = Path(os.environ.get("GPULAB_HOME") or ROOT)
# In a container's image each hard link to a file, and each new time of one, would copy the whole file.
LAYERED = MADE != ROOT
VENV = MADE / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
GENERATED = MADE / ".gpulab"
TARGET = MADE / "target"
LIBRARIES = GENERATED / "lib"
# Beside the libraries: there gpulab and warpsim look for them.
HEADERS = GENERATED / "include"
# Where evcxr builds.
BUILDS = without_spaces(GENERATED)
WARM = BUILDS / "warm"
KERNELS = BUILDS / "kernels"
STATE = GENERATED / "setup.json"
PROGRAMS = TARGET / "release"

EVCXR_VERSION = "0.22.0"
KERNEL_NAME = "gpulab-rust"


def write_text(path: Path, text: str) -> None:
    """Writes a whole file or nothing: a reader never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def write_json(path: Path, value: dict) -> None:
    """Writes an object as JSON, whole or not at all."""
    write_text(path, json.dumps(value, indent=1, sort_keys=True) + "\n")


def library_path(*more: str | Path) -> str:
    """LD_LIBRARY_PATH for what is run here: the set-up's libraries, then `more`, then what it was before."""
    return os.pathsep.join(filter(None, [str(LIBRARIES), *map(str, more), os.environ.get("LD_LIBRARY_PATH", "")]))


def rust_libraries(toolchain: Path) -> list[str]:
    """Where Rust's own libraries lie, for the loader.

    A cell's library looks for them one folder too high when its folder and Rust lie under one and the same folder (a
    home, `/tmp`): evcxr moves it after it was linked.
    """
    return [str(folder) for folder in sorted((toolchain / "lib" / "rustlib").glob("*/lib"))]


def cargo_bin() -> Path:
    """Where rustup and `cargo install` put programs."""
    return Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo") / "bin"
