"""What a cell of Rust shows, shown by the Python kernel in whose notebook it stands."""

from __future__ import annotations

import sys
from typing import Any


class RustError(Exception):
    """An error of a Rust cell: it fails the cell, and looks as the Rust kernel wrote it."""

    def __init__(self, value: str, traceback: list[str]) -> None:
        super().__init__(value)
        self.traceback = traceback

    def _render_traceback_(self) -> list[str]:
        """What IPython shows in place of a Python traceback, which would tell a reader of Rust nothing."""
        return self.traceback


def error(content: dict[str, Any]) -> RustError:
    """The kernel's `error` message as an exception; its class has the name that the kernel gave the error."""
    traceback = [str(line) for line in content.get("traceback") or [content.get("evalue", "")]]
    return type(str(content.get("ename") or "Error"), (RustError,), {})(str(content.get("evalue", "")), traceback)


def failure(name: str, text: str) -> RustError:
    """An error of our own: its text ends with a line `next: …`."""
    return error({"ename": name, "evalue": text.splitlines()[0], "traceback": text.splitlines()})


class Output:
    """Where a cell's output goes: text by the Python kernel's own streams, all else as the messages that came."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self.last: Any = None

    def stream(self, name: str, text: str) -> None:
        """Text on `stdout` or `stderr`, in the order in which it came."""
        stream = sys.stderr if name == "stderr" else sys.stdout
        if self.last is not None and self.last is not stream:
            self.last.flush()
        stream.write(text)
        self.last = stream

    def message(self, kind: str, content: dict[str, Any], message: dict[str, Any] | None = None) -> None:
        """A result, a display, its update, a wish to clear, or an error: unchanged, as an answer to this cell."""
        sys.stdout.flush()
        sys.stderr.flush()
        if "execution_count" in content:
            content = {**content, "execution_count": self.shell.displayhook.prompt_count}
        to = self.shell.display_pub
        extra = {"metadata": message["metadata"], "buffers": message["buffers"]} if message else {}
        to.session.send(to.pub_socket, kind, content, parent=to.parent_header, ident=to.topic, **extra)
