"""One running notebook kernel: start it, execute a cell with a time limit, end it whatever happens."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty

import nbformat
from jupyter_client.kernelspec import NoSuchKernel
from jupyter_client.manager import KernelManager
from nbformat import NotebookNode

from env.notebooks import KERNEL, Problem

START_LIMIT_S = 120
# The kernel passes a cell's stdout and stderr on from a thread of its own, so lines may follow its "idle".
SILENCE_S = 0.08


@dataclass
class Execution:
    """What one cell gave."""

    outputs: list[NotebookNode] = field(default_factory=list)
    seconds: float = 0.0
    # "ok", "error", "died", "timeout" or "stopped". The kernel says "ok" after a panic too: see judge.py.
    status: str = "ok"


class RunningKernel:
    """A kernel of its own for one notebook. Use it in a `with` block, which ends the kernel."""

    def __init__(self, folder: Path, environment: dict[str, str], stop: threading.Event) -> None:
        self.folder, self.environment, self.stop = folder, environment, stop
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 (closed in __exit__)

    def __enter__(self) -> RunningKernel:  # noqa: PYI034 (`Self` needs Python 3.11)
        try:
            self.manager = KernelManager(kernel_name=KERNEL)
            spec = self.manager.kernel_spec
            assert spec is not None
        except (NoSuchKernel, AssertionError):
            raise Problem(f"the Jupyter kernel `{KERNEL}` is not installed\nnext: make setup") from None
        # A cell's time and its limit begin when the kernel can run it.
        environment = {**os.environ, "GPULAB_ANSWER_WHEN_READY": "1", **self.environment}
        try:
            self.manager.start_kernel(cwd=str(self.folder), env=environment, stdout=self.log, stderr=self.log)
        except OSError as error:
            raise Problem(f"the kernel `{KERNEL}` did not start: {error}\nnext: make setup") from error
        self.client = self.manager.blocking_client()
        try:
            self.client.start_channels()
            self._wait_until_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_LIMIT_S
        while not self.stop.is_set():
            try:
                self.client.wait_for_ready(timeout=2)
                return
            except RuntimeError:
                if not self.manager.is_alive():
                    said = self.said() or "it said nothing"
                    raise Problem(f"the kernel `{KERNEL}` ended at its start: {said}\nnext: make setup") from None
                if time.monotonic() > deadline:
                    text = f"the kernel `{KERNEL}` gave no answer within {START_LIMIT_S} s"
                    raise Problem(f"{text}\nnext: run `make setup`, and try again on a less busy machine") from None
        raise KeyboardInterrupt

    def said(self) -> str:
        """The end of what the kernel process itself printed."""
        self.log.seek(0)
        return self.log.read()[-2000:].decode("utf-8", "replace").strip()

    def execute(self, source: str, limit_s: float) -> Execution:
        """Executes one cell. After "died", "timeout" and "stopped" the kernel is of no more use."""
        started = time.monotonic()
        done = Execution()
        message_id = self.client.execute(source, allow_stdin=False, stop_on_error=False)
        idle_at = None
        while True:
            try:
                wait = SILENCE_S if idle_at else 0.2
                message = self.client.get_iopub_msg(timeout=wait)
            except Empty:
                if idle_at:
                    break
                if self.stop.is_set():
                    done.status = "stopped"
                elif not self.manager.is_alive():
                    done.status = "died"
                elif time.monotonic() - started > limit_s:
                    done.status = "timeout"
                else:
                    continue
                break
            if message["parent_header"].get("msg_id") != message_id:
                continue
            if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                idle_at = time.monotonic()
            elif message["msg_type"] in ("stream", "execute_result", "display_data", "error"):
                _add(done.outputs, nbformat.v4.output_from_msg(message))
        done.seconds = (idle_at or time.monotonic()) - started
        if idle_at:
            done.status = self._reply(message_id)
        return done

    def _reply(self, message_id: str) -> str:
        """The status in the kernel's reply to a request that it has worked off."""
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            try:
                reply = self.client.get_shell_msg(timeout=1)
            except Empty:
                continue
            if reply["parent_header"].get("msg_id") == message_id:
                return reply["content"].get("status", "error")
        return "died"

    def __exit__(self, *_: object) -> None:
        self.client.stop_channels()
        # Kills the whole process group: the kernel's child, which runs the cells, too.
        self.manager.shutdown_kernel(now=True)
        self.log.close()


def _add(outputs: list[NotebookNode], new: NotebookNode) -> None:
    """Appends an output; lines of one stream are joined, as JupyterLab shows them."""
    last = outputs[-1] if outputs else None
    if last is not None and new.output_type == "stream" and last.output_type == "stream" and new.name == last.name:
        last.text += new.text
    else:
        outputs.append(new)
