"""A program is asked by ZeroMQ what kernel it is: answers, silence, and programs that are no kernels."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path

import pytest
from env.setup import kernel_info
from env.setup import rust_kernel as setup_kernel

# Answers as a kernel does, by pyzmq, whose protocol ours must be: with a status message first, then the reply.
KERNEL = """#!{python}
import hashlib, hmac, json, os, sys, zmq
file = json.load(open(sys.argv[2]))
open({seen!r}, "w").write(os.environ["JUPYTER_PATH"])
socket = zmq.Context().socket(zmq.ROUTER)
socket.bind(f"tcp://{{file['ip']}}:{{file['control_port']}}")
sender, delimiter, signature, *parts = socket.recv_multipart()
sign = lambda parts: hmac.new(({key}).encode(), b"".join(parts), hashlib.sha256).hexdigest().encode()
assert delimiter == b"<IDS|MSG>" and signature == sign(parts), "the request's signature"
header = json.loads(parts[0])
assert header["msg_type"] == "kernel_info_request"
for kind, content in (("status", {{}}), ("kernel_info_reply", {{"implementation": "toy", "long": "x" * 70000}})):
    parts = [json.dumps(part).encode() for part in ({{"msg_type": kind}}, header, {{}}, content)]
    socket.send_multipart([sender, delimiter, sign(parts), *parts])
socket.recv_multipart()
"""


def program(folder: Path, text: str) -> Path:
    file = folder / "program"
    file.write_text(text)
    file.chmod(0o755)
    return file


def kernel(folder: Path, key: str = "file['key']") -> Path:
    return program(folder, KERNEL.format(python=sys.executable, seen=str(folder / "seen"), key=key))


def test_a_kernel_answers(tmp_path: Path) -> None:
    pytest.importorskip("zmq")
    reply = kernel_info.ask(kernel(tmp_path), os.environ, 60)
    assert reply["implementation"] == "toy" and len(reply["long"]) == 70000
    # The kernel had folders of its own, and is gone with them.
    assert not Path((tmp_path / "seen").read_text()).exists()


def test_an_answer_with_another_key_is_none(tmp_path: Path) -> None:
    pytest.importorskip("zmq")
    with pytest.raises(kernel_info.KernelSilentError, match=r"ended at once|a wrong signature") as error:
        kernel_info.ask(kernel(tmp_path, "'another'"), os.environ, 60)
    assert "signature" in str(error.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("#!/bin/sh\necho version GLIBC_2.99 not found\nexit 3\n", r"exit status 3\)\n  version GLIBC_2.99 not found"),
        ("#!/bin/sh\nkill -SEGV $$\n", r"signal 11"),
        ("#!/nowhere/python\n", r"cannot be started"),
        ("not a program", r"cannot be started"),
    ],
)
def test_a_program_that_ends_says_how(tmp_path: Path, text: str, reason: str) -> None:
    started = time.monotonic()
    with pytest.raises(kernel_info.KernelSilentError, match=reason):
        kernel_info.ask(program(tmp_path, text), os.environ, 60)
    assert time.monotonic() - started < 30


def test_a_program_that_is_silent_is_ended_with_its_children(tmp_path: Path) -> None:
    child = tmp_path / "child"
    text = f"#!/bin/sh\nsleep 600 &\necho $! > {child}\nwait\n"
    with pytest.raises(kernel_info.KernelSilentError, match="did not answer within 1 s"):
        kernel_info.ask(program(tmp_path, text), os.environ, 1)
    if not Path("/proc/self/stat").exists():
        pytest.skip("no /proc here to look in")
    deadline = time.monotonic() + 10
    while _runs(int(child.read_text())):
        assert time.monotonic() < deadline, "the child still runs"
        time.sleep(0.05)


def _runs(process: int) -> bool:
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except FileNotFoundError:
        return False
    # A zombie waits for init, and runs no more.
    return status.rsplit(")", 1)[1].split()[0] != "Z"


def test_a_port_that_speaks_something_else_is_told(tmp_path: Path) -> None:
    text = f"""#!{sys.executable}
import json, socket, sys, time
file = json.load(open(sys.argv[2]))
server = socket.create_server(("127.0.0.1", file["control_port"]))
server.accept()[0].sendall(b"HTTP/1.1 400 Bad Request" + b" " * 64)
time.sleep(60)
"""
    with pytest.raises(kernel_info.KernelSilentError, match="no ZeroMQ greeting"):
        kernel_info.ask(program(tmp_path, text), os.environ, 20)


@pytest.mark.skipif(shutil.which("evcxr_jupyter") is None, reason="no evcxr_jupyter in the PATH")
def test_the_real_kernel_answers() -> None:
    program = shutil.which("evcxr_jupyter")
    assert program is not None
    assert kernel_info.ask(Path(program), os.environ)["implementation"] == "evcxr_jupyter"


def test_a_kernel_that_is_asked_finds_rusts_own_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    libraries = tmp_path / "lib" / "rustlib" / "x86_64-unknown-linux-gnu" / "lib"
    libraries.mkdir(parents=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", "/own")
    places = setup_kernel.environment(tmp_path)["LD_LIBRARY_PATH"].split(os.pathsep)
    assert str(libraries) in places and places[-1] == "/own"
