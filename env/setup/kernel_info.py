"""Asks a Jupyter kernel's program what it is: a `kernel_info_request` on its control channel.

The set-up asks before any Python package is installed, so the few frames of ZeroMQ's protocol (ZMTP 3.0, mechanism NULL)
that one request takes are written here: https://rfc.zeromq.org/spec/23/
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from env.command import free_ports

HOST = "127.0.0.1"
PORTS = ("control_port", "shell_port", "stdin_port", "hb_port", "iopub_port")
DELIMITER = b"<IDS|MSG>"
MORE, LONG, COMMAND = 1, 2, 4
# A kernel starts its first process before it answers: seconds, more where the disk's cache is cold.
TIMEOUT_S = 120.0


class KernelSilentError(Exception):
    """The program does not run, or is no Jupyter kernel; the text says how it ended."""


def ask(program: Path, environment: Mapping[str, str], timeout_s: float = TIMEOUT_S) -> dict:
    """The content of the kernel's `kernel_info_reply`. The kernel is started for this, and ended."""
    deadline = time.monotonic() + timeout_s
    with tempfile.TemporaryDirectory(prefix="gpulab-ask-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        connection = _connection()
        file = folder / "connection.json"
        file.touch(mode=0o600)
        file.write_text(json.dumps(connection), encoding="utf-8")
        env = {
            **environment,
            # Folders of its own: evcxr would update a kernel spec that the reader installed.
            "EVCXR_TMPDIR": name,
            "EVCXR_CONFIG_DIR": name,
            "JUPYTER_PATH": name,
        }
        with (folder / "log").open("w+b") as log:
            try:
                process = subprocess.Popen(
                    [program, "--control_file", file],
                    cwd=folder,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                raise KernelSilentError(f"it cannot be started: {error.strerror or error}") from error
            try:
                with _connect(connection, process, deadline) as channel:
                    return _request(channel, connection["key"].encode(), deadline)
            except (OSError, ValueError) as error:
                # A process that dies closes its end first.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(1)
                raise KernelSilentError(_reason(process, error, timeout_s, log)) from error
            finally:
                _end(process)


def _connection() -> dict:
    """What a kernel is told: its ports, free at this moment, and the key that signs messages."""
    ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
    key = secrets.token_hex(16)
    return {**ports, "transport": "tcp", "ip": HOST, "key": key, "signature_scheme": "hmac-sha256"}


def _connect(connection: dict, process: subprocess.Popen, deadline: float) -> socket.socket:
    while True:
        try:
            return socket.create_connection((HOST, connection["control_port"]), _left(deadline))
        except ConnectionRefusedError:
            if process.poll() is not None:
                raise
            time.sleep(0.02)


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _reason(process: subprocess.Popen, error: Exception, timeout_s: float, log) -> str:
    log.seek(0)
    said = log.read().decode(errors="replace").strip().splitlines()[-4:]
    if (status := process.poll()) is not None:
        name = f"signal {-status}" if status < 0 else f"exit status {status}"
        return "\n".join([f"it ended at once ({name})", *(f"  {line}" for line in said)])
    if isinstance(error, TimeoutError):
        return f"it did not answer within {timeout_s:.0f} s"
    return f"it does not answer as a Jupyter kernel does: {error}"


def _end(process: subprocess.Popen) -> None:
    """Ends the kernel and what it has started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _request(channel: socket.socket, key: bytes, deadline: float) -> dict:
    channel.settimeout(_left(deadline))
    # Signature, version 3.0, mechanism, "not the server", filler.
    channel.sendall(b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32))
    greeting = _exactly(channel, 64, deadline)
    if greeting[0] != 0xFF or greeting[9] != 0x7F or greeting[10] < 3:
        raise ValueError("no ZeroMQ greeting")
    ready = b"\x05READY" + _property("Socket-Type", b"DEALER") + _property("Identity", b"")
    channel.sendall(_frame(ready, COMMAND))
    header = {
        "msg_id": secrets.token_hex(8),
        "session": secrets.token_hex(8),
        "username": "",
        "date": "",
        "msg_type": "kernel_info_request",
        "version": "5.3",
    }
    parts = [json.dumps(part).encode() for part in (header, {}, {}, {})]
    message = [DELIMITER, _sign(key, parts), *parts]
    channel.sendall(b"".join(_frame(part, MORE if part is not message[-1] else 0) for part in message))
    while True:
        reply = _message(channel, deadline)
        _, signature, *parts = reply[reply.index(DELIMITER) :]
        if len(parts) < 4 or not hmac.compare_digest(signature, _sign(key, parts[:4])):
            raise ValueError("a wrong signature")
        if json.loads(parts[0]).get("msg_type") == "kernel_info_reply":
            content = json.loads(parts[3])
            if not isinstance(content, dict):
                raise ValueError("an empty reply")
            return content


def _property(name: str, value: bytes) -> bytes:
    return bytes([len(name)]) + name.encode() + len(value).to_bytes(4, "big") + value


def _frame(body: bytes, flags: int) -> bytes:
    if len(body) > 255:
        return bytes([flags | LONG]) + len(body).to_bytes(8, "big") + body
    return bytes([flags, len(body)]) + body


def _sign(key: bytes, parts: list[bytes]) -> bytes:
    return hmac.new(key, b"".join(parts), hashlib.sha256).hexdigest().encode()


def _message(channel: socket.socket, deadline: float) -> list[bytes]:
    """The frames of the next message; the peer's commands between messages are passed over."""
    frames: list[bytes] = []
    while True:
        flags = _exactly(channel, 1, deadline)[0]
        size = int.from_bytes(_exactly(channel, 8 if flags & LONG else 1, deadline), "big")
        if size > 1 << 20:
            raise ValueError("a frame of more than 1 MiB")
        body = _exactly(channel, size, deadline)
        if flags & COMMAND:
            continue
        frames.append(body)
        if not flags & MORE:
            return frames


def _exactly(channel: socket.socket, size: int, deadline: float) -> bytes:
    data = b""
    while len(data) < size:
        channel.settimeout(_left(deadline))
        piece = channel.recv(size - len(data))
        if not piece:
            raise ConnectionError("it closed the connection")
        data += piece
    return data
