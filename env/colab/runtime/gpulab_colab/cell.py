"""One cell of Rust, from its source to its last output."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType
from typing import Any

from .kernel import Kernel
from .output import Output, RustError, error, failure

WAIT_S = 0.2
# The kernel passes a cell's stdout and stderr on from a thread of its own, so lines may follow its "idle".
SILENCE_S = 0.08
# How long an interrupt may take: the process that runs cells ends at once, a build of the compiler goes on.
INTERRUPT_S = 10
SHOWN = ("display_data", "update_display_data", "execute_result", "clear_output")
GONE = "its variables are gone\nnext: run the cells again from the first one (in Colab: Runtime, Run before)"
NO_INPUT = "this cell asks for input, which the Colab edition does not pass on: it gets an empty line\nnext: write the value into the cell\n"


class Interrupts:
    """Counts interrupts in place of the exception that they raise: no message is lost half-read."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Interrupts:  # noqa: PYI034 (`Self` needs Python 3.11)
        # Only the main thread gets signals; Jupyter runs cells there.
        self.here = threading.current_thread() is threading.main_thread()
        if self.here:
            self.before = signal.signal(signal.SIGINT, self._note)
        return self

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1

    def __exit__(self, *_: object) -> None:
        if self.here:
            signal.signal(signal.SIGINT, self.before)


class Cell:
    """The execution of one cell."""

    def __init__(self, kernel: Kernel, output: Output) -> None:
        self.kernel, self.output = kernel, output
        self.failed: RustError | None = None
        self.idle = False

    def run(self, source: str) -> None:
        """Executes it, showing everything as it comes. Raises `RustError` where the native kernel fails the cell."""
        with Interrupts() as interrupts:
            self.request = self.kernel.execute(source)
            self._follow(interrupts)
        if interrupts.count and self.failed is None:
            text = f"interrupted at the cell's end: the process that runs the cells was ended, {GONE}"
            raise failure("KeyboardInterrupt", text)
        if self.failed is not None:
            if interrupts.count:
                self.failed.traceback += f"interrupted: the process that runs the cells was ended, {GONE}".splitlines()
            raise self.failed
        reply = self.kernel.reply(self.request)
        if reply is None or reply.get("status") != "ok":
            raise failure("Error", "the Rust kernel failed this cell without a word\nnext: run the cell again")

    def _follow(self, interrupts: Interrupts) -> None:
        """Until the kernel is done with the cell, or ended."""
        asked, deadline = 0, float("inf")
        while True:
            if interrupts.count > asked:
                if asked:
                    deadline = 0.0
                else:
                    self.kernel.interrupt()
                    deadline = time.monotonic() + INTERRUPT_S
                asked = interrupts.count
            came = self.kernel.next(SILENCE_S if self.idle else WAIT_S)
            if came is not None:
                self._show(*came)
            elif self.idle:
                return
            elif not self.kernel.alive():
                said = self.kernel.said()
                self.kernel.stop()
                text = f"the Rust kernel ended while it ran this cell: {said}\nThe next cell starts a new one; {GONE}"
                raise failure("KernelDied", text)
            elif time.monotonic() > deadline:
                self.kernel.stop()
                text = f"interrupted: the Rust kernel was busy and was ended. The next cell starts a new one; {GONE}"
                raise failure("KernelEnded", text)

    def _show(self, channel: str, message: dict[str, Any]) -> None:
        kind, content = message["msg_type"], message["content"]
        mine = message["parent_header"].get("msg_id") == self.request
        if channel == "stdin":
            self.kernel.answer_input(message, "")
            self.output.stream("stderr", NO_INPUT)
        elif kind == "stream":
            # Of the cell before, too: what a thread printed after its end.
            self.output.stream(content["name"], content["text"])
        elif not mine:
            return
        elif kind == "status":
            self.idle = content["execution_state"] == "idle"
        elif kind == "error":
            # All but the last are sent as they are; the last one fails the cell.
            if self.failed is not None:
                text = str(self.failed)
                name, lines = type(self.failed).__name__, self.failed.traceback
                self.output.message("error", {"ename": name, "evalue": text, "traceback": lines})
            self.failed = error(content)
        elif kind in SHOWN:
            self.output.message(kind, content, message)
