#!/usr/bin/env python3
"""`make test-container`: builds the container's image on a clean Ubuntu, without Docker, and tries what comes out.

debootstrap makes the system, buildah runs env/Dockerfile.cuda on it, and containers are started as Docker would. What
is not tried so: Docker itself, its network, NVIDIA's base image, a GPU. LESSONS=00 says what is built (all: more minutes).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from env import paths
from env.ci.disk import held
from env.command import free_ports
from env.console import ToolError, seconds, tool
from env.container import engine
from env.container.builder import Builder

DOCKERFILE = "env/Dockerfile.cuda"
FOLDER = paths.GENERATED / "clean-root"
NOTEBOOK = "notebooks/00_welcome.ipynb"
# In an image for all lessons: one that needs candle, and ONNX Runtime.
HEAVY = "notebooks/42_export.ipynb"
# Users who are nobody on this machine, and not the image's own.
OWNER, OTHER = 4321, 5555
TOOLS = {"buildah": "buildah", "debootstrap": "debootstrap", "unshare": "util-linux", "dpkg-deb": "dpkg"}
ROOM = 12 * 10**9
# A notebook's first cell waits for the kernel; one that builds the crate takes a minute.
FIRST_CELL_S = 30
# What a kernel writes of its own; the builds that it starts on are ten times that.
LAYER_MB = 150


class Trial:
    """One call: what it checked, and the builder that it leaves nothing of."""

    def __init__(self) -> None:
        self.builder, self.context = Builder(FOLDER), FOLDER / "context"
        self.lessons = os.environ.get("LESSONS") or "00"
        self.failed = self.passed = 0

    def check(self, name: str, good: bool, told: str = "") -> None:
        """One line for each thing that was checked."""
        self.passed, self.failed = self.passed + good, self.failed + (not good)
        print(f"{'ok    ' if good else 'FAILED'} {name}{': ' + told if told else ''}", flush=True)

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Says how long the block took."""
        print(f"...    {what}", flush=True)
        began = time.monotonic()
        yield
        print(f"       {what}: {seconds(time.monotonic() - began)}", flush=True)

    def build(self) -> None:
        """The image, its size, and what a changed notebook builds anew."""
        arguments = {"LESSONS": self.lessons}
        with self.timed("clean root, by debootstrap"):
            self.builder.base()
        with self.timed(f"image, LESSONS={self.lessons}"):
            self.builder.build(self.context, DOCKERFILE, arguments)
        before = self.builder.layers()
        lesson = self.context / NOTEBOOK
        lesson.write_text(lesson.read_text(encoding="utf-8").replace('"cells"', ' "cells"', 1), encoding="utf-8")
        with self.timed("image, a notebook changed"):
            self.builder.build(self.context, DOCKERFILE, arguments)
        after = self.builder.layers()
        new = [layer.made_by for layer in after if layer not in before]
        ran = [made for made in new if "/bin/sh -c #(nop)" not in made and "COPY" not in made]
        self.check(
            "a changed notebook runs no instruction again", 0 < len(new) < 4 and not ran, f"{len(new)} new layers"
        )

    def caller(self, work: Path) -> None:
        """A checkout that belongs to somebody: JupyterLab, a notebook, the files' owner, the end."""
        # From what the image was made of: the project may be worked on meanwhile.
        engine.clone(self.context, work, OWNER)
        [port] = free_ports(1)
        with engine.started(self.builder, "caller", work, PORT=str(port)) as seat:
            size = held(seat.root)
            port, token, waited = seat.address()
            print(f"       the image's root holds {size / 1e9:.2f} GB; the address came after {waited:.1f} s")
            self.check("a missing GPU is named, with the flag", "--gpus all" in seat.said())
            self.check("no process is root's", seat.users() == {OWNER}, str(seat.users()))
            said = self.notebook(seat, NOTEBOOK, str(port), token)
            self.check("the notebook names the flag, too", "--gpus all" in said)
            if self.lessons == "all":
                self.notebook(seat, HEAVY, str(port), token)
            self.check("it ends within 20 s when told to", seat.stop() < engine.END_S)
        self.owned("files made there are the owner's", work, OWNER)
        self.check("what was measured is there", (work / "results/metrics.csv").is_file())

    def notebook(self, seat: engine.Container, notebook: str, port: str, token: str) -> str:
        """Runs one through JupyterLab; what it printed."""
        program = ["/usr/bin/env", "-C", "/workspace", "/opt/gpulab/.venv/bin/python", "-B", "-m"]
        program += ["env.container.notebook_check"]
        before = held(seat.layer())
        done = seat.run(OWNER, *program, port, token, notebook)
        if done.returncode != 0:
            self.check(f"{notebook} ran", False, done.stderr[-1500:])
            return ""
        ran = json.loads(done.stdout)
        self.check("JupyterLab's page comes, and with no other token", ran["page"] and ran["refuses"])
        wrong = [cell["printed"] for cell in ran["cells"] if cell["failed"]]
        told = f"{len(ran['cells'])} cells, {sum(cell['seconds'] for cell in ran['cells']):.1f} s"
        self.check(f"{notebook} ran, with its plot", not wrong and ran["plot"], "\n".join(wrong) or told)
        first = ran["cells"][0]["seconds"]
        self.check("its first cell built nothing", first < FIRST_CELL_S, f"{first:.1f} s")
        wrote = (held(seat.layer()) - before) / 1e6
        self.check("its kernel copied no build out of the image", wrote < LAYER_MB, f"{wrote:.0f} MB written")
        return "".join(cell["printed"] for cell in ran["cells"])

    def other_user(self, work: Path) -> None:
        """`--user`, and an empty folder."""
        engine.own(work, OTHER)
        [port] = free_ports(1)
        with engine.started(self.builder, "user", work, user=OTHER, PORT=str(port), GPULAB_TOKEN="f" * 32) as seat:
            _, token, waited = seat.address()
            self.check(
                "--user with an empty folder: the course is there", (work / NOTEBOOK).is_file(), f"{waited:.1f} s"
            )
            self.check("the token that was asked for", token == "f" * 32)
            said = engine.refusal(self.builder, "port", work, user=OTHER, PORT=str(port))
            self.check("a port in use is named, with the flag", f"-p {port + 1}:{port + 1}" in said)
        self.owned("files made there are that user's", work, OTHER)
        with engine.started(self.builder, "command", work, "make", "verify", user=OTHER) as seat:
            status = seat.process.wait(timeout=engine.ANSWER_S)
            self.check("a command in JupyterLab's place", status == 0 and "--gpus all" in seat.said())

    def refused(self, work: Path) -> None:
        """What cannot work is said, with its next step."""
        cases: list[tuple[str, int, int | None, dict[str, str], str]] = [
            ("of-root", 0, None, {}, "belongs to root"),
            ("not-writable", OWNER, OTHER, {}, f"user {OTHER} cannot write"),
            ("short-token", OWNER, None, {"GPULAB_TOKEN": "short"}, "16 or more"),
        ]
        for name, owner, user, environment, expected in cases:
            engine.own(work, owner)
            said = engine.refusal(self.builder, name, work, user=user, **environment)
            self.check(f"refused: {name}", expected in said)
        shutil.rmtree(work)
        work.mkdir()
        (work / "thesis.txt").write_text("not the course")
        engine.own(work, OWNER)
        said = engine.refusal(self.builder, "foreign", work)
        self.check("refused: a folder with other things", "neither empty" in said and len(list(work.iterdir())) == 1)

    def owned(self, name: str, work: Path, user: int) -> None:
        """Whether all in a folder belongs to one user."""
        others = {owner: files[:5] for owner, files in engine.owners(work).items() if owner != user}
        self.check(name, not others, str(others or ""))

    def run(self) -> int:
        """All of it; 1 when a check failed."""
        began = time.monotonic()
        steps: list[tuple[str, Callable[[Path], None]]] = [
            ("caller", self.caller),
            ("other-user", self.other_user),
            ("refused", self.refused),
        ]
        try:
            engine.checkout(paths.ROOT, self.context)
            self.build()
            for name, step in steps:
                work = FOLDER / "work" / name
                work.mkdir(parents=True)
                step(work)
        except ToolError as error:
            self.check("it went to its end", False, str(error))
        finally:
            self.builder.remove()
        print(f"{seconds(time.monotonic() - began)}\n{self.passed} passed, {self.failed} failed", flush=True)
        return 1 if self.failed else 0


def check_machine() -> None:
    """Whether it can run here."""
    if os.geteuid() != 0:
        raise ToolError("it mounts and changes owners, so it must be root", "sudo make test-container")
    if missing := [package for tool, package in TOOLS.items() if shutil.which(tool) is None]:
        raise ToolError(f"{', '.join(missing)} missing", f"sudo apt install {' '.join(missing)}")
    paths.GENERATED.mkdir(parents=True, exist_ok=True)
    if (free := shutil.disk_usage(paths.GENERATED).free) < ROOM:
        raise ToolError(f"{free / 1e9:.1f} GB are free in {paths.GENERATED}", f"make room for {ROOM / 1e9:.0f} GB")


def main() -> int:
    """1 when a check failed."""
    # Ended from outside, it leaves nothing behind either.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    check_machine()
    Builder(FOLDER).remove()
    FOLDER.mkdir(parents=True)
    return Trial().run()


if __name__ == "__main__":
    # 2: it cannot run here.
    tool(main, failed=2)
