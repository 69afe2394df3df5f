"""A JupyterLab server of its own for a test: own port, own token, own settings; it ends with the `with` block."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from env import lab
from env.command import free_ports
from env.console import ToolError
from env.notebooks import ROOT

START_LIMIT_S = 60
# Copies of lessons, as JupyterLab saves them: below its own folder, or it refuses them.
SAVED = ROOT / "results" / "run" / "saved"
# What differs from a learner's JupyterLab, because the test must see all cells.
SETTINGS = {
    "notebook-extension/tracker": {"windowingMode": "none"},
}


@contextmanager
def jupyterlab(scratch: Path, **more: str) -> Iterator[tuple[str, str]]:
    """A JupyterLab of its own, with settings of its own, so nobody's windows are touched: (address, token).

    `more` goes into its environment.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    [port] = free_ports(1)
    for name, values in SETTINGS.items():
        file = scratch / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps(values), encoding="utf-8")
    token, log = secrets.token_hex(16), scratch / "jupyterlab.log"
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--ServerApp.port_retries=0", "--allow-root"]
    command += ["--LabApp.expose_app_in_browser=True"]
    command += [f"--ServerApp.port={port}", f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={ROOT}"]
    environment = {**os.environ, "JUPYTERLAB_SETTINGS_DIR": str(scratch / "settings")}
    environment["JUPYTERLAB_WORKSPACES_DIR"] = str(scratch / "workspaces")
    # A reader's own copies of lessons stay as they are, and the test begins with the course's.
    environment["GPULAB_WORK"] = str(SAVED)
    shutil.rmtree(SAVED, ignore_errors=True)
    for name in ("GPULAB_EDIT", "RUST_BACKTRACE"):
        environment.pop(name, None)
    environment |= more
    with log.open("wb") as file:
        server = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=file, stderr=file, start_new_session=True)
    address = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + START_LIMIT_S
        while not lab.answers(port, token):
            if server.poll() is not None or time.monotonic() > deadline:
                said = log.read_text(encoding="utf-8", errors="replace")[-1500:]
                raise ToolError(f"JupyterLab did not start:\n{said}", "make setup")
            time.sleep(0.2)
        yield address, token
    finally:
        _end(server, address, token)
        shutil.rmtree(SAVED, ignore_errors=True)


def _ask(address: str, token: str, what: str, method: str = "GET") -> bytes:
    request = urllib.request.Request(f"{address}/{what}", method=method, headers={"Authorization": f"token {token}"})
    # No proxy: the server is on this machine.
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10) as answer:
        return answer.read()


def _end(server: subprocess.Popen[bytes], address: str, token: str) -> None:
    """Ends the kernels first: each is in a process group of its own."""
    try:
        for kernel in json.loads(_ask(address, token, "api/kernels")):
            _ask(address, token, f"api/kernels/{kernel['id']}", "DELETE")
    except (OSError, ValueError):
        pass
    server.terminate()
    try:
        server.wait(timeout=10)
    except subprocess.TimeoutExpired:
        server.kill()
