"""Runs a notebook through a JupyterLab server, as its page does: notebook.py PORT TOKEN PATH.

It runs inside of the container, with the Python of the set-up. Prints JSON: the seconds of each cell, and what failed.
"""

from __future__ import annotations

import json
import sys
import time
import urllib.error
import urllib.request
import uuid

import websocket

CELL_S = 600


class Server:
    """The server's own interface."""

    def __init__(self, port: int, token: str) -> None:
        self.place, self.token = f"127.0.0.1:{port}", token

    def ask(self, what: str, method: str = "GET", body: dict | None = None, token: str | None = None) -> bytes:
        """What it answers; a refusal is an `HTTPError`."""
        headers = {"Authorization": f"token {self.token if token is None else token}"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://{self.place}/{what}", data, headers, method=method)
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as reply:
            return reply.read()

    def refuses(self, token: str) -> bool:
        """Whether it lets nobody in with this token."""
        try:
            self.ask("api/contents", token=token)
        except urllib.error.HTTPError as error:
            return error.code in (401, 403)
        return False


def run_cell(channel: websocket.WebSocket, source: str) -> tuple[float, list[dict]]:
    """The seconds until it is idle again, and its outputs."""
    number, began = uuid.uuid4().hex, time.monotonic()
    header = {"msg_id": number, "msg_type": "execute_request", "username": "", "session": number, "version": "5.3"}
    content = {"code": source, "silent": False, "store_history": True, "allow_stdin": False, "stop_on_error": True}
    message = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}
    channel.send(json.dumps(message))
    outputs, waiting = [], {"reply", "idle"}
    while waiting:
        got = json.loads(channel.recv())
        if got["parent_header"].get("msg_id") != number:
            continue
        kind, content = got["msg_type"], got["content"]
        if kind == "execute_reply":
            waiting.discard("reply")
        elif kind == "status" and content["execution_state"] == "idle":
            waiting.discard("idle")
        elif kind == "stream":
            outputs.append({"output_type": "stream", "name": content["name"], "text": content["text"]})
        elif kind == "error":
            outputs.append({"output_type": "error", **{key: content[key] for key in ("ename", "evalue", "traceback")}})
        elif kind in ("display_data", "execute_result"):
            output = {"output_type": kind, "data": content["data"], "metadata": content.get("metadata", {})}
            outputs.append(output | ({"execution_count": None} if kind == "execute_result" else {}))
    return time.monotonic() - began, outputs


def main(port: int, token: str, path: str) -> dict:
    """All code cells in order; then the notebook is saved with its outputs."""
    server = Server(port, token)
    page = server.ask("lab")
    notebook = json.loads(server.ask(f"api/contents/{path}"))["content"]
    wish = {"path": path, "name": path, "type": "notebook", "kernel": {"name": "gpulab-rust"}}
    kernel = json.loads(server.ask("api/sessions", "POST", wish))["kernel"]["id"]
    place = f"ws://{server.place}/api/kernels/{kernel}/channels"
    channel = websocket.create_connection(place, timeout=CELL_S, header=[f"Authorization: token {token}"])
    cells, late = [], False
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code" and "".join(cell["source"]).strip():
            seconds, cell["outputs"] = run_cell(channel, "".join(cell["source"]))
            # The Rust kernel prints its errors, and passes the last line of one on while the next cell runs.
            wrong = [one for one in cell["outputs"] if one["output_type"] == "error" or one.get("name") == "stderr"]
            expected = "expected-error" in cell["metadata"].get("tags", [])
            failed = not wrong if expected else bool(wrong) and not late
            late = expected
            cells.append({"seconds": seconds, "failed": failed, "printed": json.dumps(cell["outputs"])[-2000:]})
    server.ask(f"api/contents/{path}", "PUT", {"type": "notebook", "format": "json", "content": notebook})
    channel.close()
    server.ask(f"api/kernels/{kernel}", "DELETE")
    shown = any("image/svg+xml" in one.get("data", {}) for cell in notebook["cells"] for one in cell.get("outputs", []))
    return {
        "page": b"jupyter-config-data" in page,
        "plot": shown,
        "refuses": server.refuses("0" * 32) and server.refuses(""),
        "cells": cells,
    }


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), sys.argv[2], sys.argv[3])))
