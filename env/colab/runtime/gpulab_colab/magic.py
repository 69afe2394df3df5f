"""The cell magic `%%rust`: the cell below it runs in the Rust kernel."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Callable
from typing import Any

from .cell import GONE, Cell
from .kernel import Kernel, KernelFailed
from .output import Output, failure


class Rust:
    """The Rust kernel of a notebook, started when it is needed."""

    def __init__(self, shell: Any, start: Callable[[], Kernel]) -> None:
        self.shell, self.start = shell, start
        self.kernel: Kernel | None = None

    def ready(self, first: bool = False) -> Kernel:
        """The running kernel. One that ended between two cells is an error, unless this is the notebook's `first`."""
        if self.kernel is not None and self.kernel.alive():
            return self.kernel
        text = ""
        if self.kernel is not None and not self.kernel.stopped:
            text = f"the Rust kernel had ended: {self.kernel.said()}\nA new one runs now; {GONE}"
        self.stop()
        self.kernel = self.start()
        if text and not first:
            raise failure("KernelDied", text)
        if text:
            print(text.splitlines()[0], file=sys.stderr)
        return self.kernel

    def cell(self, line: str, source: str) -> None:
        """`%%rust`: runs the cell's Rust."""
        if line.strip():
            raise failure("UsageError", "`%%rust` stands alone on its line\nnext: put the Rust on the lines below it")
        if not source.strip():
            return
        # IPython ends a cell with a newline of its own.
        source = source.removesuffix("\n")
        first = any(text.lstrip().startswith(":dep") for text in source.splitlines())
        try:
            kernel = self.ready(first)
        except KernelFailed as error:
            raise failure("KernelFailed", str(error)) from None
        Cell(kernel, Output(self.shell)).run(source)

    def stop(self) -> None:
        """Ends the kernel; the next cell starts a new one."""
        if self.kernel is not None:
            self.kernel.stop()
            self.kernel = None


def install(shell: Any, start: Callable[[], Kernel]) -> Rust:
    """Registers `%%rust` in this notebook; a second time it keeps the kernel that runs."""
    there = getattr(shell, "gpulab_rust", None)
    if isinstance(there, Rust):
        there.start = start
        return there
    rust = Rust(shell, start)
    shell.gpulab_rust = rust
    shell.register_magic_function(rust.cell, "cell", "rust")
    atexit.register(rust.stop)
    return rust
