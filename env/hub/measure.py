"""What a machine carries: a real JupyterHub with learners at once, each in the first cells of lesson 10.

    python3 -m env.hub.measure --learners 10 --jupyterhub ~/hub/bin/jupyterhub --out results/hub.csv

One learner alone comes first, then all at once, then all but one while that one runs an endless loop. The jupyterhub named
needs jupyterlab beside it and configurable-http-proxy on the PATH; nothing of it is a learner's.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import csv
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from statistics import median
from typing import Any

from env import in_venv, paths
from env.console import ToolError, tool

HUB = "http://127.0.0.1:8000"
LIMIT_S = 900.0


class Learner:
    """One who is logged in, with a kernel."""

    def __init__(self, name: str, token: str) -> None:
        self.name, self.token, self.socket = name, token, None

    async def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """One question to the hub, or to the learner's server."""
        from tornado.httpclient import AsyncHTTPClient, HTTPRequest

        made = json.dumps(body) if body is not None else "" if method == "POST" else None
        headers = {"Authorization": f"token {self.token}"}
        asked = HTTPRequest(HUB + path, method, headers, made, request_timeout=LIMIT_S, allow_nonstandard_methods=True)
        answer = await AsyncHTTPClient().fetch(asked, raise_error=False)
        if answer.code >= 400:
            raise ToolError(f"{method} {path}: {answer.code} {answer.body[:300]!r}", "see the hub's log, printed above")
        return json.loads(answer.body) if answer.body else None

    async def begin(self) -> None:
        """Starts the server and a kernel."""
        from tornado.httpclient import HTTPRequest
        from tornado.websocket import websocket_connect

        await self.ask("POST", f"/hub/api/users/{self.name}")
        await self.ask("POST", f"/hub/api/users/{self.name}/server")
        while not (await self.ask("GET", f"/hub/api/users/{self.name}")).get("servers", {}).get("", {}).get("ready"):
            await asyncio.sleep(0.5)
        place = {"name": paths.KERNEL_NAME, "path": "notebooks/10_vector_add.ipynb"}
        kernel = await self.ask("POST", f"/user/{self.name}/api/kernels", place)
        address = f"{HUB.replace('http', 'ws')}/user/{self.name}/api/kernels/{kernel['id']}/channels"
        request = HTTPRequest(address, headers={"Authorization": f"token {self.token}"}, request_timeout=LIMIT_S)
        self.socket = await websocket_connect(request)

    async def run(self, source: str, wait: bool = True) -> float:
        """Executes a cell; its seconds."""
        started, name = time.monotonic(), uuid.uuid4().hex
        header = {"msg_id": name, "msg_type": "execute_request", "username": self.name, "session": self.name}
        content = {"code": source, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False}
        message = {"header": header | {"version": "5.3"}, "parent_header": {}, "metadata": {}, "content": content}
        assert self.socket is not None
        await self.socket.write_message(json.dumps(message | {"channel": "shell", "buffers": []}))
        while wait:
            answer = await asyncio.wait_for(self.socket.read_message(), LIMIT_S)
            if answer is None:
                raise ToolError(f"{self.name}'s kernel is gone", "see the hub's log, printed above")
            said = json.loads(answer)
            if said["parent_header"].get("msg_id") == name and said["msg_type"] == "execute_reply":
                break
        return time.monotonic() - started

    async def first_plot(self) -> float:
        """Seconds from the login to the first picture of lesson 10."""
        from env.notebooks import find, load

        started = time.monotonic()
        await self.begin()
        lesson = load(find("10")[0])
        for cell in lesson.notebook.cells:
            if cell.cell_type == "code":
                await self.run(cell.source)
            if cell.get("id") == "launch-picture":
                break
        return time.monotonic() - started


def memory_mib(root: int) -> float:
    """What a process and all below it have in memory, a page that several share once for all of them."""
    from env.grading.isolation import descendants

    total = 0
    for one in descendants(root):
        try:
            lines = Path(f"/proc/{one}/smaps_rollup").read_text(encoding="ascii").splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


async def measure(count: int, token: str, root: int) -> list[tuple[str, int, float, str]]:
    """What, with how many learners, value, unit."""
    rows: list[tuple[str, int, float, str]] = []
    before = memory_mib(root)
    first = Learner("learner-0", token)
    rows.append(("first plot", 1, await first.first_plot(), "s"))
    others = [Learner(f"learner-{n}", token) for n in range(1, count)]
    times = await asyncio.gather(*(one.first_plot() for one in others))
    rows.append(("first plot", len(others), median(times), "s"))
    rows.append(("memory a learner", count, (memory_mib(root) - before) / count, "MiB"))
    cell = 'println!("still here");'
    rows.append(("a println cell", len(others), median(await asyncio.gather(*(one.run(cell) for one in others))), "s"))
    await first.run("loop { std::hint::black_box(()); }", wait=False)
    await asyncio.sleep(5)
    loop = await asyncio.gather(*(one.run(cell) for one in others))
    rows.append(("a println cell beside an endless loop", len(others), median(loop), "s"))
    return rows


def end(hub: subprocess.Popen) -> None:
    """Ends a hub with all that it has started: a learner's kernel in an endless loop outlives its server."""
    from env.grading.isolation import descendants

    started = descendants(hub.pid)
    hub.send_signal(signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        hub.wait(30)
    for one in started:
        with contextlib.suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)


def main() -> int:
    """Starts a hub, measures, and ends it."""
    parser = argparse.ArgumentParser(prog="python3 -m env.hub.measure", description=__doc__)
    parser.add_argument("--learners", type=int, default=10)
    parser.add_argument("--jupyterhub", default="jupyterhub", help="its program (default: the one on the PATH)")
    parser.add_argument("--out", type=Path, help="a CSV file for the rows")
    chosen = parser.parse_args()
    if chosen.learners < 2:
        raise ToolError("one learner is no class", "--learners 2 or more")
    token = secrets.token_hex(16)
    with tempfile.TemporaryDirectory() as homes:
        for n in range(chosen.learners):
            (Path(homes) / f"learner-{n}").mkdir()
        told = {"HUB_TRIAL": "1", "HUB_PASSWORD": secrets.token_hex(8), "HUB_HOMES": homes, "HUB_TOKEN": token}
        beside = str(Path(chosen.jupyterhub).resolve().parent)
        told["PATH"] = os.pathsep.join([beside, os.environ["PATH"]])
        command = [chosen.jupyterhub, "-f", str(paths.ENV / "hub" / "jupyterhub_config.py"), "--log-level=WARN"]
        try:
            hub = subprocess.Popen(command, cwd=homes, env={**os.environ, **told}, start_new_session=True)
        except OSError as error:
            step = (
                "install jupyterhub and jupyterlab into an environment, and name it: --jupyterhub ~/hub/bin/jupyterhub"
            )
            raise ToolError(f"{chosen.jupyterhub} could not be started: {error.strerror}", step) from error
        try:
            _wait(hub)
            rows = asyncio.run(measure(chosen.learners, token, hub.pid))
        finally:
            end(hub)
    load_1, _, load_15 = os.getloadavg()
    print(f"load averages at the end: {load_1:.1f} (1 min), {load_15:.1f} (15 min), {os.cpu_count()} cores")
    for what, learners, value, unit in rows:
        print(f"{what:<40} {learners:>3} at once  {value:8.2f} {unit}")
    if chosen.out:
        with chosen.out.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["what", "learners", "value", "unit", "cores", "load_15_min"])
            writer.writerows([(*row[:2], f"{row[2]:.3g}", row[3], os.cpu_count(), f"{load_15:.1f}") for row in rows])
    return 0


def _wait(hub: subprocess.Popen) -> None:
    from urllib.error import URLError
    from urllib.request import urlopen

    for _ in range(240):
        if hub.poll() is not None:
            raise ToolError("jupyterhub ended", "see what it printed above")
        try:
            with urlopen(f"{HUB}/hub/health", timeout=5):
                return
        except (URLError, OSError):
            time.sleep(0.5)
    raise ToolError("jupyterhub did not answer", "see what it printed above")


if __name__ == "__main__":
    if "--help" not in sys.argv and "-h" not in sys.argv:
        in_venv.enter()
    tool(main)
