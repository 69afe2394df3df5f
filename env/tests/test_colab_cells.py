"""`%%rust` in a Python kernel, with the real Rust kernel behind it: what a notebook's page sees of it."""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Empty

import pytest
from env import paths
from jupyter_client.manager import KernelManager

RUNTIME = paths.ENV / "colab" / "runtime"
LIMIT_S = 120
START = f"""
import sys
sys.path.insert(0, {str(RUNTIME)!r})
from gpulab_colab import magic, set_up
rust = magic.install(get_ipython(), set_up.starter("none"))
rust.ready().process.pid
"""
# The same, with a Python kernel behind it: it can do what the Rust kernel never does.
OTHER = """
import os, sys
from gpulab_colab.kernel import Kernel
from gpulab_colab.magic import Rust
other = Rust(get_ipython(), lambda: Kernel(
    [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"], ".", dict(os.environ)))
get_ipython().register_magic_function(other.cell, "cell", "other")
other.ready().process.pid
"""
KILL = 'std::process::Command::new("kill").arg("-9").arg(std::os::unix::process::parent_id().to_string()).status();'


PROGRAM = """
class Shell:
    def register_magic_function(self, *_): pass

command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
rust = magic.install(Shell(), lambda: kernel.Kernel(command, ".", dict(os.environ)))
print(rust.ready().process.pid)
"""
NATIVE = """
def native(source):
    request, found = rust.kernel.execute(source), []
    while rust.kernel.reply(request, 0.2) is None:
        pass
    while (message := rust.kernel.next(0.5)) is not None:
        if message[1]["msg_type"] == "error":
            found.append(message[1]["content"])
    return found
"""


def unnumbered(value: object) -> str:
    """Without the number that evcxr gives to a cell."""
    return re.sub(r"command_\d+", "", str(value))


class Page:
    """A front end: asks for cells, and keeps every message with the moment at which it came."""

    def __init__(self, manager: KernelManager) -> None:
        self.manager, self.client = manager, manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=LIMIT_S)

    def run(self, source: str, interrupt_after: str = "") -> tuple[str, list[dict]]:
        """The reply's status, and the messages; interrupts the kernel once this text has come."""
        request, messages = self.client.execute(source, allow_stdin=False, stop_on_error=False), []
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            try:
                message = self.client.get_iopub_msg(timeout=1)
            except Empty:
                continue
            if message["parent_header"].get("msg_id") != request:
                continue
            if message["content"].get("execution_state") == "idle":
                return self.status(request), messages
            messages.append({**message, "at": time.monotonic()})
            if interrupt_after and interrupt_after in message["content"].get("text", ""):
                self.manager.interrupt_kernel()
        raise TimeoutError(source)

    def status(self, request: str) -> str:
        """The status in the reply to a request; answers to questions of before may lie in front of it."""
        while (reply := self.client.get_shell_msg(timeout=LIMIT_S))["parent_header"].get("msg_id") != request:
            pass
        return reply["content"]["status"]

    def result(self, source: str) -> str:
        """The value of a cell of Python."""
        status, messages = self.run(source)
        assert status == "ok", messages
        return next(one["content"]["data"]["text/plain"] for one in messages if one["msg_type"] == "execute_result")


def text(messages: list[dict], name: str = "stdout") -> str:
    """What a stream said."""
    return "".join(one["content"]["text"] for one in messages if one["content"].get("name") == name)


def shown(messages: list[dict]) -> list[tuple[str, dict]]:
    """All but streams and the kernel's states."""
    return [
        (m["msg_type"], m["content"]) for m in messages if m["msg_type"] not in ("stream", "status", "execute_input")
    ]


def gone(pid: int) -> bool:
    """Whether a process ends within some seconds."""
    for _ in range(100):
        state = Path(f"/proc/{pid}/stat")
        if not state.is_file() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.1)
    return False


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    manager = KernelManager(kernel_name="python3")
    if python := os.environ.get("GPULAB_TEST_PYTHON"):
        assert manager.kernel_spec is not None
        manager.kernel_spec.argv[0] = python
    manager.start_kernel(cwd=str(paths.ROOT / "env"), env={**os.environ, "PYDEVD_DISABLE_FILE_VALIDATION": "1"})
    made = Page(manager)
    try:
        made.result(START)
        yield made
    finally:
        made.client.stop_channels()
        manager.shutdown_kernel(now=True)


def test_lines_come_as_they_are_printed(page: Page) -> None:
    source = '%%rust\nprintln!("one"); std::thread::sleep(std::time::Duration::from_millis(1500)); eprintln!("two");'
    status, messages = page.run(source)
    assert (status, text(messages), text(messages, "stderr")) == ("ok", "one\n", "two\n")
    first, second = (one["at"] for one in messages if one["msg_type"] == "stream")
    assert second - first > 1


def test_figures_keep_all_their_types(page: Page) -> None:
    svg, verdict = "<svg xmlns='http://www.w3.org/2000/svg'/>", '{"verdict": "PASS", "hint": null}'
    parts = [("image/svg+xml", svg), ("text/html", "<b>x</b>"), ("application/vnd.gpulab.verdict+json", verdict)]
    lines = [
        f'print!("EVCXR_BEGIN_CONTENT {kind}\\n{{}}\\nEVCXR_END_CONTENT\\n", r#"{value}"#);' for kind, value in parts
    ]
    status, messages = page.run("%%rust\n" + "\n".join(lines))
    ((kind, content),) = shown(messages)
    assert (status, kind) == ("ok", "execute_result")
    expected = {**dict(parts), "application/vnd.gpulab.verdict+json": {"verdict": "PASS", "hint": None}}
    assert {
        name: value.strip() if isinstance(value, str) else value for name, value in content["data"].items()
    } == expected
    assert content["execution_count"] == next(
        m["content"]["execution_count"] for m in messages if "code" in m["content"]
    )


def test_errors_are_the_native_ones_and_fail_the_cell(page: Page) -> None:
    source = "let a: u8 = planted_one;\nlet b: u8 = planted_two;"
    status, messages = page.run(f"%%rust\n{source}")
    errors = [content for kind, content in shown(messages) if kind == "error"]
    assert status == "error"
    # The kernel asked without us: the number of the cell apart, the same words.
    page.run(NATIVE)
    native = ast.literal_eval(page.result(f"native({source!r})"))
    assert len(errors) == len(native) >= 2
    for one, other in zip(errors, native, strict=True):
        assert {key: unnumbered(one[key]) for key in other} == {key: unnumbered(value) for key, value in other.items()}


def test_a_panic_is_text_as_in_the_native_kernel(page: Page) -> None:
    status, messages = page.run('%%rust\npanic!("planted panic");')
    assert status == "ok" and "planted panic" in text(messages, "stderr") and shown(messages) == []


def test_blank_cells_and_arguments(page: Page) -> None:
    assert page.run("%%rust\n  \n\n")[0] == "ok"
    status, messages = page.run("%%rust now\n1 + 1")
    assert status == "error" and "next: " in str(shown(messages))


def test_an_interrupt_ends_the_cell_and_not_the_kernel(page: Page) -> None:
    source = '%%rust\nprintln!("round"); loop { std::thread::sleep(std::time::Duration::from_millis(10)); }'
    status, messages = page.run(source, interrupt_after="round")
    ((_, content),) = shown(messages)
    assert status == "error" and "the process that runs the cells was ended" in content["evalue"]
    assert "interrupted" in str(content["traceback"]) and "next: " in str(content["traceback"])
    assert text(page.run('%%rust\nprintln!("again");')[1]) == "again\n"


def test_a_kernel_that_dies_is_told_and_replaced(page: Page) -> None:
    status, messages = page.run(f"%%rust\n{KILL}")
    ((_, content),) = shown(messages)
    # The relay outlives evcxr, and starts another.
    assert (status, content["ename"]) == ("error", "Ended") and "next: " in str(content["traceback"])
    assert text(page.run('%%rust\nprintln!("a new one");')[1]) == "a new one\n"


def test_a_kernel_that_died_between_two_cells(page: Page) -> None:
    """As the system ends the largest process where memory runs out."""
    pid = int(page.result(OTHER))
    os.kill(pid, signal.SIGKILL)
    assert gone(pid)
    status, messages = page.run("%%other\n1 + 1")
    ((_, content),) = shown(messages)
    assert status == "error" and "SIGKILL" in str(content["traceback"]) and "next: " in str(content["traceback"])
    assert page.run("%%other\n1 + 1")[0] == "ok"


def test_displays_updates_clearings_and_input(page: Page) -> None:
    page.result(OTHER)
    source = (
        "%%other\nfrom IPython.display import display, clear_output\n"
        "d = display({'a/b': 'x'}, raw=True, display_id='one')\nd.update({'a/b': 'y'}, raw=True)\nclear_output(wait=True)\n"
        "print(repr(input('name? ')))"
    )
    status, messages = page.run(source)
    kinds = shown(messages)
    assert status == "ok" and [kind for kind, _ in kinds] == ["display_data", "update_display_data", "clear_output"]
    assert kinds[0][1]["transient"] == kinds[1][1]["transient"] == {"display_id": "one"}
    assert kinds[1][1]["data"] == {"a/b": "y"} and kinds[2][1] == {"wait": True}
    assert text(messages) == "''\n" and "asks for input" in text(messages, "stderr")


def test_the_rust_kernel_ends_with_the_python_one(page: Page) -> None:
    pid = int(page.result("rust.kernel.process.pid"))
    python = int(page.result("os.getpid()"))
    os.kill(python, signal.SIGKILL)
    assert gone(pid)


def test_a_program_that_ends_by_itself_leaves_no_kernel() -> None:
    code = f"import os, sys\nsys.path.insert(0, {str(RUNTIME)!r})\nfrom gpulab_colab import magic, kernel\n{PROGRAM}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT_S, check=True)
    assert gone(int(done.stdout))
