"""The Rust kernel as a process of its own: started, asked, interrupted and ended through jupyter_client.

Plain sockets and no asyncio: a cell runs inside the loop of Jupyter's own kernel, and both jupyter_client 7 (Colab has
7.4) and 8 must do.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import zmq
from jupyter_client.connect import ConnectionFileMixin, write_connection_file
from jupyter_client.launcher import launch_kernel

START_LIMIT_S = 180
WATCH = Path(__file__).with_name("watch.py")


class KernelFailed(Exception):
    """The Rust kernel did not start, or ended. The text ends with a line `next: …`."""


class _Connection(ConnectionFileMixin):
    """The kernel's addresses, and plain sockets to them; jupyter_client's own clients insist on asyncio's."""

    def __init__(self) -> None:
        super().__init__()
        self.context = zmq.Context()


class Kernel:
    """A running Rust kernel. `stop` ends it; so does the end of this Python process."""

    def __init__(self, command: list[str], folder: Path, environment: dict[str, str]) -> None:
        """Starts it in `folder`; `{connection_file}` in the command is replaced. Raises `KernelFailed`."""
        self.stopped = False
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 (closed in `stop`)
        self.file, _ = write_connection_file()
        client = _Connection()
        client.load_connection_file(self.file)
        self.session, self.context = client.session, client.context
        argv = [part.replace("{connection_file}", self.file) for part in command]
        # In a session of its own: an interrupt of the Python kernel goes to its whole process group.
        self.process = launch_kernel(argv, cwd=str(folder), env=environment, stdout=self.log, stderr=self.log)
        self.watch = subprocess.Popen(
            [sys.executable, str(WATCH), str(self.process.pid)], stdin=subprocess.PIPE, start_new_session=True
        )
        identity = self.session.bsession
        self.shell, self.stdin = client.connect_shell(identity=identity), client.connect_stdin(identity=identity)
        self.iopub, self.control = client.connect_iopub(), client.connect_control(identity=identity)
        self.poller = zmq.Poller()
        for socket in (self.iopub, self.stdin):
            self.poller.register(socket, zmq.POLLIN)
        try:
            self._wait_until_ready()
        except BaseException:
            self.stop()
            raise

    def _wait_until_ready(self) -> None:
        """Until it answers, and until what it publishes arrives here."""
        deadline = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline:
            if not self.alive():
                raise KernelFailed(
                    f"the Rust kernel ended at its start:\n{self.said()}\nnext: run the set-up cell again"
                )
            self.session.send(self.shell, "kernel_info_request", {})
            # A subscription takes a moment to arrive: what was published before it is lost.
            if self.shell.poll(1000) and self.iopub.poll(1000):
                self._empty(self.shell)
                self._empty(self.iopub)
                return
        raise KernelFailed(f"the Rust kernel gave no answer within {START_LIMIT_S} s\nnext: run the set-up cell again")

    @staticmethod
    def _empty(socket: zmq.Socket) -> None:
        while socket.poll(50):
            socket.recv_multipart()

    def alive(self) -> bool:
        """Whether its process runs."""
        return self.process.poll() is None

    def said(self) -> str:
        """The end of what the process itself printed, and how it ended."""
        self.log.seek(0)
        text = self.log.read()[-2000:].decode("utf-8", "replace").strip()
        status = self.process.poll()
        if status is not None and status < 0:
            text = f"{text}\n(ended by the signal {signal.Signals(-status).name})".strip()
        return text or "it said nothing"

    def execute(self, source: str) -> str:
        """Asks for the execution of a cell; the request's id, which its messages carry."""
        content = {"code": source, "silent": False, "store_history": True, "user_expressions": {}}
        # Input is asked for, so that it can be refused with a word about it.
        content |= {"allow_stdin": True, "stop_on_error": False}
        return self.session.send(self.shell, "execute_request", content)["header"]["msg_id"]

    def next(self, wait_s: float) -> tuple[str, dict[str, Any]] | None:
        """The next message as (`iopub` or `stdin`, message); None when none came in time."""
        ready = dict(self.poller.poll(int(wait_s * 1000)))
        for name, socket in (("iopub", self.iopub), ("stdin", self.stdin)):
            if socket in ready:
                _, message = self.session.recv(socket, mode=0)
                return name, message
        return None

    def reply(self, request: str, limit_s: float = 5) -> dict[str, Any] | None:
        """The content of the reply to a request that is done; None when there is none."""
        deadline = time.monotonic() + limit_s
        while self.shell.poll(max(0, int((deadline - time.monotonic()) * 1000))):
            _, message = self.session.recv(self.shell, mode=0)
            if message["parent_header"].get("msg_id") == request:
                return message["content"]
        return None

    def answer_input(self, request: dict[str, Any], value: str) -> None:
        """Answers a request for input; without an answer the kernel would wait for ever."""
        self.session.send(self.stdin, "input_reply", {"value": value}, parent=request)

    def interrupt(self) -> None:
        """Asks it to end the process that runs the cells: the kernel itself, and its builds, stay."""
        self.session.send(self.control, "interrupt_request", {})

    def stop(self) -> None:
        """Ends the kernel, its child and its watcher."""
        if self.stopped:
            return
        self.stopped = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        # Not by closing its pipe: by then another process might have the kernel's number.
        self.watch.kill()
        self.watch.wait()
        if self.watch.stdin is not None:
            self.watch.stdin.close()
        for socket in (self.shell, self.iopub, self.stdin, self.control):
            socket.close(linger=0)
        self.context.term()
        self.log.close()
        with contextlib.suppress(OSError):
            Path(self.file).unlink()
