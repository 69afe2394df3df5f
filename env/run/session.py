"""One running kernel whose cells are executed by nbclient: for runs, warm-ups, benchmarks, Colab and the container."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty
from typing import Any

import nbformat
from jupyter_client.kernelspec import NoSuchKernel
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionComplete, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode

from env.console import ToolError
from env.notebooks import KERNEL

START_LIMIT_S = 3600
# The Rust kernel passes a cell's stdout and stderr on from a thread of its own, so lines may follow its "idle".
SILENCE_S = 0.08


@dataclass
class Execution:
    """What one cell gave."""

    outputs: list[NotebookNode] = field(default_factory=list)
    seconds: float = 0.0
    # "ok", "error", "died", "timeout" or "stopped". The Rust kernel says "ok" after a panic too: see judge.py.
    status: str = "ok"


class _Client(NotebookClient):
    """nbclient's, with lines that come after "idle", the time of that, and a stream's neighbouring pieces as one."""

    idle_at = 0.0
    listening: asyncio.Task | None = None

    async def _async_poll_output_msg(self, parent_msg_id: str, cell: NotebookNode, cell_index: int) -> None:
        assert self.kc is not None
        self.idle_at, self.listening = 0.0, asyncio.current_task()
        with contextlib.suppress(Empty):
            while True:
                message = await self.kc.iopub_channel.get_msg(timeout=SILENCE_S if self.idle_at else None)
                if message["parent_header"].get("msg_id") == parent_msg_id:
                    try:
                        self.process_message(message, cell, cell_index)
                    except CellExecutionComplete:
                        self.idle_at = time.monotonic()

    def output(self, outs: list[NotebookNode], *message: Any) -> NotebookNode | None:
        new = super().output(outs, *message)
        if len(outs) > 1 and all(one.output_type == "stream" for one in outs[-2:]) and outs[-2].name == outs[-1].name:
            outs[-2].text += outs.pop().text
        return new


class RunningKernel:
    """A kernel of its own for one notebook, in a `with` block, which ends it; `stop` ends it from another thread.

    Without a `command` it is the course's own kernel. What it prints itself is kept for `said`, or with `log=False` goes
    to this process's own output.
    """

    def __init__(
        self,
        folder: Path,
        environment: dict[str, str],
        stop: threading.Event | None = None,
        command: list[str] | None = None,
        log: bool = True,
    ) -> None:
        self.stop, self.ended, self.command = stop or threading.Event(), threading.Event(), command
        self.log = tempfile.TemporaryFile() if log else None  # noqa: SIM115 (closed in `__exit__`)
        # A cell's time and its limit begin when the kernel can run it.
        environment = {"GPULAB_ANSWER_WHEN_READY": "1", **environment}
        self.options: dict[str, Any] = {"cwd": str(folder), "env": environment, "stdout": self.log, "stderr": self.log}
        self.notebook = nbformat.v4.new_notebook()
        self.limit_s, self.status = 0.0, ""

    def manager(self) -> AsyncKernelManager:
        """What starts the kernel."""
        manager = AsyncKernelManager(kernel_name="python3" if self.command else KERNEL)
        try:
            spec = manager.kernel_spec
        except NoSuchKernel:
            spec = None
        if spec is None:
            raise ToolError(f"the Jupyter kernel `{KERNEL}` is not installed", "make setup")
        if self.command:
            spec.argv = self.command
        return manager

    def __enter__(self) -> RunningKernel:  # noqa: PYI034 (`Self` needs Python 3.11)
        self.km = self.manager()
        self.client = _Client(
            self.notebook,
            km=self.km,
            allow_errors=True,
            record_timing=False,
            startup_timeout=START_LIMIT_S,
            shutdown_kernel="immediate",
            timeout_func=lambda _cell: self.limit_s,
            on_cell_executed=self._replied,
            # Each error that it would log is raised, too.
            log=logging.Logger("nbclient", logging.CRITICAL + 1),  # noqa: LOG001 (one of its own, not shared)
        )
        self.block = self.client.setup_kernel(cleanup_kc=True, **self.options)
        threading.Thread(target=self._end_when_stopped, daemon=True).start()
        try:
            self.block.__enter__()
        except (OSError, RuntimeError) as error:
            said = self.said() or str(error)
            self._kill()
            self._end()
            if self.stop.is_set():
                raise KeyboardInterrupt from None
            raise ToolError(f"the kernel did not start or gave no answer: {said}", "make setup") from error
        return self

    def _replied(self, execute_reply: dict[str, Any], **_: object) -> None:
        self.status = execute_reply["content"].get("status", "error")

    def _end_when_stopped(self) -> None:
        """nbclient knows nothing of `stop`: it notices that its kernel is gone."""
        while not self.ended.wait(0.2):
            if self.stop.is_set() and self._kill():
                return

    def _kill(self) -> bool:
        """The whole process group: the kernel's child, which runs the cells, too. False where none has begun yet."""
        group = getattr(self.km.provisioner, "pgid", None)
        if group:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        return bool(group)

    def said(self) -> str:
        """The end of what the kernel process itself printed."""
        if self.log is None:
            return ""
        self.log.seek(0)
        return self.log.read()[-2000:].decode("utf-8", "replace").strip()

    def execute(self, source: str, limit_s: float) -> Execution:
        """Executes one cell. After "died", "timeout" and "stopped" the kernel is of no more use."""
        if self.stop.is_set():
            return Execution(status="stopped")
        started, self.limit_s = time.monotonic(), limit_s
        cell = nbformat.v4.new_code_cell(source)
        self.notebook.cells.append(cell)
        try:
            self.client.execute_cell(cell, len(self.notebook.cells) - 1)
        except CellTimeoutError:
            self.status = "timeout"
            # nbclient would leave it behind, and asyncio complain of it at the end.
            self.client.listening.cancel()
        except DeadKernelError:
            self.status = "stopped" if self.stop.is_set() else "died"
        # A kernel that is gone has no "idle" of its own.
        ended = self.client.idle_at or time.monotonic()
        return Execution(cell.outputs, ended - started, self.status)

    def __exit__(self, *_: object) -> None:
        self._kill()
        self.block.__exit__(None, None, None)
        self._end()

    def _end(self) -> None:
        self.ended.set()
        if self.log is not None:
            self.log.close()
