"""The relay between Jupyter and evcxr, with a stand-in for evcxr and Jupyter's own client."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from env import paths

pytest.importorskip("jupyter_client")
from env.kernel_cache import lock, set_up_progress
from env.relay import help as helping
from env.relay import memory, printed
from env.relay.wire import Wire
from jupyter_client.manager import KernelManager
from jupyter_client.session import Session

# What Jupyter starts in these tests: the real relay; the stand-in starts when the file `ready` is there.
START = """
import os, sys, time
from pathlib import Path
from env import paths
from env.relay import NotReadyError, loop
home = Path(os.environ["HOME_OF_THE_TEST"])
paths.GENERATED = home
def start():
    while (home / "hold").exists():
        time.sleep(0.01)
    if not (home / "ready").exists():
        raise NotReadyError("the set-up has not been run\\nnext: make setup")
    folder = home / "kernel" / "build"
    (folder / "src").mkdir(parents=True, exist_ok=True)
    (folder / "src" / "lib.rs").write_text("a\\nb\\n let x = v[k];\\n")
    program = folder / "evcxr"
    program.write_text(f"#!/bin/sh\\nexec {sys.executable} {paths.ENV}/tests/stand_in_kernel.py \\"$@\\"\\n")
    program.chmod(0o755)
    return program, {**os.environ, "EVCXR_TMPDIR": str(folder)}
loop.serve(sys.argv[1], start)
"""


class Client:
    """A page: runs cells, and gets what they show."""

    def __init__(self, home: Path) -> None:
        self.home, self.manager = home, KernelManager(kernel_name="python3")
        assert self.manager.kernel_spec is not None
        self.manager.kernel_spec.argv = [sys.executable, "-c", START, "{connection_file}"]
        self.manager.kernel_spec.interrupt_mode = "message"
        environment = {**os.environ, "HOME_OF_THE_TEST": str(home), "PYTHONPATH": str(paths.ROOT)}
        environment.pop("RUST_BACKTRACE", None)
        self.manager.start_kernel(cwd=str(home), env=environment)
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    def send(self, code: str, cell: str = "a") -> str:
        content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False}
        message = self.client.session.msg("execute_request", content, metadata={"cellId": cell})
        self.client.shell_channel.send(message)
        return message["header"]["msg_id"]

    def until(self, request: str, last: str = "idle") -> list[tuple[str, dict[str, Any]]]:
        """What is shown for a request, until it is idle or until a message of this kind."""
        seen: list[tuple[str, dict[str, Any]]] = []
        while not (seen and last in (seen[-1][0], seen[-1][1].get("execution_state"))):
            message = self.client.get_iopub_msg(timeout=30)
            if message["parent_header"].get("msg_id") == request:
                seen.append((message["msg_type"], message["content"]))
        return seen

    def reply(self, request: str) -> dict[str, Any]:
        while True:
            message = self.client.get_shell_msg(timeout=30)
            if message["parent_header"].get("msg_id") == request:
                return message["content"]

    def arrived(self) -> None:
        """Waits until the relay has read what was sent before: messages of one connection keep their order."""
        self.reply(self.client.kernel_info())

    def run(self, code: str) -> str:
        """All the text that a cell shows."""
        return text(self.until(self.send(code)))


def text(seen: list[tuple[str, dict[str, Any]]]) -> str:
    """The words in messages."""
    parts = []
    for kind, content in seen:
        if kind == "stream":
            parts.append(content["text"])
        elif kind == "error":
            parts.append("\n".join(content["traceback"]))
        elif "data" in content:
            parts.append(f"{content['data'].get('text/plain', '')}\n")
    return "".join(parts)


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Client]:
    (tmp_path / "ready").touch()
    client = Client(tmp_path)
    yield client
    client.client.stop_channels()
    client.manager.shutdown_kernel(now=True)


def test_a_cell_waits_for_the_set_up_and_then_runs_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "GENERATED", tmp_path)
    with lock.locked(set_up_progress.lock_file()):
        set_up_progress.write(set_up_progress.Progress("building the crates", 12, 80, 120.0))
        client = Client(tmp_path)
        request = client.send("value 7")
        shown = client.until(request, "display_data")[-1][1]
        assert shown["data"]["text/plain"] == "Rust kernel: building the crates: 12 of 80 crates, about 2 minutes"
        set_up_progress.write(set_up_progress.Progress("building the crates", 79, 80, 10.0))
        again = client.until(request, "update_display_data")[-1][1]
        assert "79 of 80" in again["data"]["text/plain"]
        assert again["transient"] == shown["transient"]
        (tmp_path / "ready").touch()
        seen = client.until(request)
    assert [kind for kind, _ in seen if kind in ("clear_output", "execute_result")] == [
        "clear_output",
        "execute_result",
    ]
    assert client.reply(request)["status"] == "ok"
    client.client.stop_channels()
    client.manager.shutdown_kernel(now=True)


def test_a_set_up_that_is_missing_or_failed_is_told_and_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "GENERATED", tmp_path)
    (tmp_path / "hold").touch()
    client = Client(tmp_path)
    request, after = client.send("value 7"), client.send("value 8", "b")
    client.arrived()
    (tmp_path / "hold").unlink()
    assert "the set-up has not been run\nnext: make setup" in text(client.until(request))
    assert client.reply(request)["status"] == "error"
    assert client.reply(after)["status"] == "aborted"
    set_up_progress.write(set_up_progress.Progress("building", error="no network\nnext: connect this machine"))
    assert "no network\nnext: connect this machine" in client.run("value 7")
    (tmp_path / "ready").touch()
    assert client.run("value 7") == "7\n"
    client.client.stop_channels()
    client.manager.shutdown_kernel(now=True)


def test_stop_ends_a_cell_that_waits_for_the_set_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "GENERATED", tmp_path)
    with lock.locked(set_up_progress.lock_file()):
        set_up_progress.write(set_up_progress.Progress("building the crates", 12, 80, 120.0))
        client = Client(tmp_path)
        request = client.send("value 7")
        client.until(request, "display_data")
        client.manager.interrupt_kernel()
        assert "stopped before it ran" in text(client.until(request))
        assert client.reply(request)["status"] == "error"
        (tmp_path / "ready").touch()
        assert client.run("value 8") == "8\n"
    client.client.stop_channels()
    client.manager.shutdown_kernel(now=True)


def test_what_a_cell_prints_is_cut_and_counted(page: Client) -> None:
    seen = page.until(page.send("print 2300"))
    streamed = "".join(content["text"] for kind, content in seen if kind == "stream")
    assert streamed.count("\n") == printed.LINES
    last = [content["data"]["text/plain"] for kind, content in seen if kind.endswith("display_data")][-1]
    assert last.splitlines()[0] == "… 290 more lines"
    assert last.splitlines()[-1] == "line 2299"
    assert page.run("print 2000") == "".join(f"line {at}\n" for at in range(2000))


def test_a_panic_names_the_cells_line_and_what_to_do(page: Client) -> None:
    shown = page.run("panic \nlet x = v[k];")
    assert "panicked at line 2 of this cell: `let x = v[k];`:\nindex out of bounds" in shown
    assert "next: change that line" in shown
    assert "backtrace" not in shown
    assert "__rustc" not in shown


def test_an_error_of_another_crate_gets_a_next_step(page: Client) -> None:
    shown = page.run('ask \nlet n: i32 = "x".parse()?;')
    assert shown.startswith("invalid digit found in string\nnext: `?` ended the cell at line 2")


def test_stop_and_death_say_what_is_lost(page: Client) -> None:
    died = page.run("die")
    assert "ended (signal: 9 (SIGKILL)" in died
    assert "all variables are gone" in died
    assert "next: run the cells above" in died
    request, after = page.send("loop"), page.send("value 1", "b")
    page.until(request, "execute_input")
    page.arrived()
    page.manager.interrupt_kernel()
    stopped = text(page.until(request))
    assert stopped.startswith("stopped: ")
    assert "next: " in stopped
    assert page.reply(after)["status"] == "aborted"
    gone = page.run("exit")
    assert "the Rust kernel ended (exit status 3)" in gone
    assert "next: " in gone
    assert page.run("value 7") == "7\n"


def test_a_stop_with_nothing_running_leaves_variables(page: Client) -> None:
    # The Stop and a cell come by two connections, so the cell is sent when the Stop has been answered.
    page.client.control_channel.send(page.client.session.msg("interrupt_request", {}))
    assert page.client.get_control_msg(timeout=30)["content"]["status"] == "ok"
    assert page.run("value 7") == "7\n"


def test_a_page_that_is_opened_again_gets_what_ran(page: Client) -> None:
    page.run("value 7")
    page.until(page.send("loop", "b"), "execute_input")
    opened = page.client.session.msg("comm_open", {"comm_id": "1", "target_name": memory.TARGET, "data": {}})
    page.client.shell_channel.send(opened)
    cells = page.until(opened["header"]["msg_id"], "comm_msg")[-1][1]["data"]["cells"]
    assert [kind for kind, _ in cells["a"]["messages"]] == ["execute_result"]
    assert not cells["a"]["running"]
    assert cells["b"]["running"]
    # And it is answered at once while a cell runs.
    began = time.monotonic()
    page.reply(page.client.kernel_info())
    assert time.monotonic() - began < 5
    page.manager.interrupt_kernel()


def test_tab_and_shift_tab(page: Client) -> None:
    page.run("value 7")
    assert page.reply(page.client.complete("x.", 2))["matches"] == ["len()", "into()"]
    # The cursor stands in the name, and is asked for behind it.
    assert page.reply(page.client.inspect("x.len()", 3))["data"] == {}
    assert "no documentation here" in page.reply(page.client.inspect("x.len()", 6))["data"]["text/plain"]


def test_functions_that_a_crate_keeps_to_itself_are_not_offered() -> None:
    matches = helping.sorted_matches({"matches": ["alloc_bytes(bytes)", "to_device(host)"], "metadata": {}})["matches"]
    assert matches == ["to_device(host)"]
    assert "clone" not in helping.private()


def test_a_kernel_may_answer_when_it_is_ready_and_not_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPULAB_ANSWER_WHEN_READY", "1")
    (tmp_path / "ready").touch()
    client = Client(tmp_path)
    # The stand-in has answered before the client was: completion is asked of it, and not put off.
    assert client.reply(client.client.complete("x.", 2))["matches"] == ["len()", "into()"]
    client.client.stop_channels()
    client.manager.shutdown_kernel(now=True)


def test_the_relays_end_ends_evcxr(tmp_path: Path) -> None:
    (tmp_path / "ready").touch()
    client = Client(tmp_path)
    client.run("value 7")
    pid = client.manager.provisioner.pid
    listed = lambda: (
        subprocess.run(["ps", "-o", "stat=", "-g", str(pid)], capture_output=True, text=True, check=False).stdout
    )
    assert len(listed().split()) >= 2
    client.client.stop_channels()
    client.manager.shutdown_kernel()
    assert not [state for state in listed().split() if not state.startswith("Z")]


def test_messages_are_those_of_jupyter() -> None:
    session, wire = Session(key=b"secret"), Wire("secret")
    frames = session.serialize(session.msg("execute_request", {"code": "1"}), ident=b"page")
    message = wire.read(frames)
    assert message is not None
    assert (message.kind, message.content, message.identities) == ("execute_request", {"code": "1"}, [b"page"])
    assert Wire("other").read(frames) is None
    back = wire.new("status", {"execution_state": "idle"}, message.header, [])
    found = session.deserialize(session.feed_identities(back)[1])
    assert found["parent_header"]["msg_id"] == message.id


def test_compile_errors_lose_their_pale_colours_and_no_word() -> None:
    line = " \x1b[38;5;246m1 │\x1b[0m \x1b[38;5;249ml\x1b[0m\x1b[38;5;249me\x1b[0m\x1b[38;5;54m5\x1b[0m\x1b[38;5;54m6\x1b[0m;"
    assert printed.readable([line]) == [" 1 │ le\x1b[1m56\x1b[0m;"]


def test_no_import_that_makes_each_start_slower() -> None:
    code = "import sys, env.relay.loop; print(json.dumps([m for m in sys.modules if m.split('.')[0] in sys.argv]))"
    names = ["jupyter_client", "ipykernel", "tornado", "asyncio", "traitlets"]
    command = [sys.executable, "-c", f"import json; {code}", *names]
    run = subprocess.run(command, cwd=paths.ROOT, capture_output=True, text=True, check=True)
    assert json.loads(run.stdout) == []
