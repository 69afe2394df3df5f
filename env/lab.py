"""JupyterLab on the first lesson (`make lab`): it opens as soon as Python's packages are there, while the set-up goes on.

A cell that runs before the Rust kernel is there waits for it (env/kernel_cache/set_up_progress.py).
"""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from env import in_venv, paths
from env.command import output
from env.console import ToolError, seconds, tool
from env.setup import python

FIRST = "notebooks/00_welcome.ipynb"
RUNNING = paths.GENERATED / "lab.json"
LOG = paths.GENERATED / "lab.log"
START_LIMIT_S = 60
ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Set by the container's image. A port there is published by its number, and the server is reached from outside.
IN_CONTAINER = bool(os.environ.get("GPULAB_CONTAINER"))
# A shorter word can be guessed, and it opens a shell.
TOKEN = re.compile(r"[A-Za-z0-9_-]{16,}")


def place(notebook: str) -> str:
    """A notebook's place on the server."""
    return f"/lab/tree/{notebook}" if (paths.ROOT / notebook).is_file() else "/lab"


def address(port: int, token: str, notebook: str = FIRST) -> str:
    """What to open in a browser."""
    return f"http://localhost:{port}{place(notebook)}?token={token}"


def page(server: int) -> Path:
    """The file by which Jupyter's server has a browser led to it: the token is in there, and in no program's arguments."""
    folder = output([paths.VENV_PYTHON, "-c", "from jupyter_core.paths import jupyter_runtime_dir as d; print(d())"])
    return Path(folder or "") / f"jpserver-{server}-open.html"


def answers(port: int, token: str) -> bool:
    """Whether a JupyterLab that knows this token answers there."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/lab?token={token}")
    try:
        # No proxy: the server is on this machine.
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10) as reply:
            return reply.status == 200 and b"jupyter-config-data" in reply.read()
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


def is_free(port: int) -> bool:
    """Whether a server could listen there."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def choose_port(wish: str) -> int:
    """PORT if it was given; else 8888, or the next one that is free."""
    if not wish:
        return next(port for port in range(8888, 65536) if is_free(port))
    if not wish.isdigit() or not 1024 <= int(wish) <= 65535:
        raise ToolError(f"PORT={wish} is no port number from 1024 to 65535", "make lab PORT=8888")
    if not is_free(int(wish)):
        other = int(wish) % 65535 + 1
        ways = f"make lab PORT={other}, or without PORT"
        if IN_CONTAINER:
            ways = f"docker run -e PORT={other} -p {other}:{other} …"
        raise ToolError(f"something else uses port {wish}", ways)
    return int(wish)


def choose_token(wish: str) -> str:
    """GPULAB_TOKEN if it was given; else one that nobody can guess."""
    if wish and not TOKEN.fullmatch(wish):
        what = "GPULAB_TOKEN is no 16 or more of the characters A-Z a-z 0-9 _ -"
        raise ToolError(what, "leave it away for a random one, or take what `openssl rand -hex 16` prints")
    return wish or secrets.token_hex(16)


def command(port: int, notebook: str = FIRST) -> list[str]:
    """JupyterLab with this checkout as its folder. Its settings are files in .venv/etc, from env/jupyter."""
    options = ["--no-browser", "--ServerApp.port_retries=0", f"--ServerApp.port={port}"]
    options += ["--ServerApp.ip=0.0.0.0"] if IN_CONTAINER else []
    options += [f"--LabApp.default_url={place(notebook)}"]
    options += [f"--ServerApp.root_dir={paths.ROOT}", *(["--allow-root"] if os.geteuid() == 0 else [])]
    return [str(paths.VENV_PYTHON), "-m", "jupyterlab", *options]


def environment(token: str) -> dict[str, str]:
    """The token by environment, where `ps` does not show it; windows that other projects left open stay away."""
    return {**os.environ, "JUPYTER_TOKEN": token, "JUPYTERLAB_WORKSPACES_DIR": str(paths.GENERATED / "workspaces")}


@contextmanager
def running(port: int, token: str, notebook: str = FIRST) -> Iterator[subprocess.Popen[bytes]]:
    """A server that answers; with the block it ends, and ends its kernels. `make lab` finds one with the first lesson again."""
    started = time.monotonic()
    with LOG.open("wb") as log:
        # A session of its own: Ctrl-C must reach it once, from here, or it ends before its kernels do.
        server = subprocess.Popen(
            command(port, notebook),
            cwd=paths.ROOT,
            env=environment(token),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        while not answers(port, token):
            if server.poll() is not None or time.monotonic() - started > START_LIMIT_S:
                said = LOG.read_text(encoding="utf-8", errors="replace")[-1500:].strip()
                raise ToolError(f"JupyterLab did not start:\n{said}", "make clean, then make lab")
            time.sleep(0.1)
        print(f"JupyterLab answers after {seconds(time.monotonic() - started)}; Ctrl-C here ends it and its kernels")
        if notebook == FIRST:
            # For this user's eyes only: the token opens a shell.
            RUNNING.touch(mode=0o600)
            known = {"port": port, "token": token, "pid": server.pid}
            RUNNING.write_text(json.dumps(known), encoding="utf-8")
        yield server
    finally:
        server.terminate()
        server.wait()
        if notebook == FIRST:
            RUNNING.unlink(missing_ok=True)


def show(port: int, token: str, server: int, notebook: str = FIRST) -> None:
    """Prints the address, and opens it unless NO_BROWSER is set."""
    print(f"\n  {address(port, token, notebook)}\n", flush=True)
    if not os.environ.get("NO_BROWSER") and not webbrowser.open(page(server).as_uri()):
        print("no browser opened: open this address yourself (make lab NO_BROWSER=1 does not try)", flush=True)


@contextmanager
def set_up() -> Iterator[subprocess.Popen[bytes]]:
    """The set-up, in a process group of its own, which ends with the block; interrupted, it goes on next time."""
    process = subprocess.Popen([sys.executable, "-m", "env.setup", "--idle"], cwd=paths.ROOT, start_new_session=True)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def wait_for_packages(process: subprocess.Popen[bytes]) -> bool:
    """Until JupyterLab can start; false where the set-up ended before, and said why."""
    while not python.ready():
        if process.poll() is not None:
            return python.ready()
        time.sleep(0.1)
    return True


def until_its_end(process: subprocess.Popen[bytes]) -> int:
    """Its status. A signal that comes just before a wait without a limit would be heard at the end of that wait."""
    while process.poll() is None:
        time.sleep(0.1)
    return process.returncode


def leave(*_: object) -> NoReturn:
    """Ends this process by way of every `finally`. Once: `make` passes on a signal that the terminal sent already."""
    for number in ENDINGS:
        signal.signal(number, signal.SIG_IGN)
    sys.exit(0)


def main() -> int:
    """Runs until Ctrl-C, a closed terminal or `kill`, or until the server ends."""
    for number in ENDINGS:
        signal.signal(number, leave)
    known = paths.read_json(RUNNING)
    if known and answers(known["port"], known["token"]):
        print("JupyterLab runs already; end it with Ctrl-C where it was started")
        show(known["port"], known["token"], known["pid"])
        # The course may be newer than when that one was started.
        with set_up() as process:
            return until_its_end(process)
    port, token = choose_port(os.environ.get("PORT", "")), choose_token(os.environ.get("GPULAB_TOKEN", ""))
    with set_up() as process:
        if not wait_for_packages(process):
            return process.returncode or 1
        with running(port, token) as server:
            show(port, token, server.pid)
            return until_its_end(server)


if __name__ == "__main__":
    in_venv.chosen_python()
    tool(main)
