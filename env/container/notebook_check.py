"""Runs a notebook through a JupyterLab server, as its page does: python -m env.container.notebook_check PORT TOKEN PATH.

It runs inside of the container, with the Python of the set-up. Prints JSON: the seconds of each cell, and what failed.
"""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from functools import partial
from pathlib import Path

import nbformat
import websocket
from jupyter_server.gateway.gateway_client import GatewayClient
from jupyter_server.gateway.managers import GatewayKernelManager

from env.notebooks import KERNEL
from env.run.judge import judge
from env.run.session import RunningKernel

CELL_S = 600


class Server:
    """The server's own interface."""

    def __init__(self, port: int, token: str) -> None:
        self.address, self.token = f"http://127.0.0.1:{port}", token

    def ask(self, what: str, method: str = "GET", body: dict | None = None, token: str | None = None) -> bytes:
        """What it answers; a refusal is an `HTTPError`."""
        headers = {"Authorization": f"token {self.token if token is None else token}"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.address}/{what}", data, headers, method=method)
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as reply:
            return reply.read()

    def refuses(self, token: str) -> bool:
        """Whether it lets nobody in with this token."""
        try:
            self.ask("api/contents", token=token)
        except urllib.error.HTTPError as error:
            return error.code in (401, 403)
        return False


class ServerKernel(RunningKernel):
    """The kernel that the server has started for a notebook; it ends with the block."""

    def __init__(self, server: Server, path: str) -> None:
        super().__init__(Path(path).parent, {})
        wish = {"path": path, "name": path, "type": "notebook", "kernel": {"name": KERNEL}}
        self.options = {"kernel_id": json.loads(server.ask("api/sessions", "POST", wish))["kernel"]["id"]}
        # The gateway's client sends its token with requests alone.
        header = [f"Authorization: token {server.token}"]
        websocket.create_connection = partial(websocket.create_connection, header=header)
        gateway = GatewayClient.instance()
        gateway.url, gateway.auth_token, gateway.KERNEL_LAUNCH_TIMEOUT = server.address, server.token, CELL_S

    def manager(self) -> GatewayKernelManager:
        return GatewayKernelManager()


def main(port: int, token: str, path: str) -> dict:
    """All code cells in order; then the notebook is saved with its outputs."""
    server = Server(port, token)
    page = server.ask("lab")
    notebook = nbformat.from_dict(json.loads(server.ask(f"api/contents/{path}"))["content"])
    cells = []
    with ServerKernel(server, path) as kernel:
        for cell in (cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()):
            done = kernel.execute(cell.source, CELL_S)
            cell.outputs, wrong = done.outputs, judge(cell, done, CELL_S)
            printed = json.dumps(done.outputs)[-2000:]
            cells.append({"seconds": done.seconds, "failed": bool(wrong), "printed": printed})
    server.ask(f"api/contents/{path}", "PUT", {"type": "notebook", "format": "json", "content": notebook})
    shown = any("image/svg+xml" in one.get("data", {}) for cell in notebook.cells for one in cell.get("outputs", []))
    return {
        "page": b"jupyter-config-data" in page,
        "plot": shown,
        "refuses": server.refuses("0" * 32) and server.refuses(""),
        "cells": cells,
    }


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), sys.argv[2], sys.argv[3])))
