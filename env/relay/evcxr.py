"""The Rust kernel behind the relay: evcxr_jupyter as a process, and the sockets to it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import zmq

from env.command import free_ports
from env.relay.wire import Wire

CHANNELS = ("shell", "iopub", "stdin", "control", "hb")
RELAY = b"relay"


class Evcxr:
    """A started evcxr_jupyter. It is ready when it has answered, and when what it publishes arrives here."""

    def __init__(self, program: Path, environment: dict[str, str], wire: Wire) -> None:
        self.folder = Path(environment["EVCXR_TMPDIR"])
        self.wire = wire
        ports = dict(zip(CHANNELS, free_ports(len(CHANNELS)), strict=True))
        file = self.folder / "connection.json"
        settings: dict[str, Any] = {f"{name}_port": port for name, port in ports.items()}
        settings |= {"transport": "tcp", "ip": "127.0.0.1", "signature_scheme": "hmac-sha256"}
        file.touch(mode=0o600)
        file.write_text(json.dumps({**settings, "key": wire.key.decode()}), encoding="utf-8")
        # Inherited: the lock that says whose folder it is, and the process group, which Jupyter kills as one.
        self.process = subprocess.Popen(
            [str(program), "--control_file", str(file)], env=environment, close_fds=False, stdin=subprocess.DEVNULL
        )
        context = zmq.Context.instance()
        self.shell, self.control, self.stdin = (context.socket(zmq.DEALER) for _ in range(3))
        self.iopub = context.socket(zmq.SUB)
        self.iopub.subscribe(b"")
        self.sockets = {"shell": self.shell, "iopub": self.iopub, "stdin": self.stdin, "control": self.control}
        for name, one in self.sockets.items():
            # evcxr asks for input from whoever sent the cell: both channels have one name.
            if one.socket_type == zmq.DEALER:
                one.identity = RELAY
            one.linger, one.reconnect_ivl, one.rcvhwm, one.sndhwm = 0, 10, 0, 0
            one.connect(f"tcp://127.0.0.1:{ports[name]}")
        self.answered = self.published = False
        self.ask()

    def ask(self) -> None:
        """Asks for a sign of life; the answer comes when what runs before the first cell is done."""
        self.shell.send_multipart(self.wire.new("kernel_info_request", {}, {}, [RELAY]))

    @property
    def ready(self) -> bool:
        """Whether cells can be sent to it."""
        return self.answered and self.published

    def ended(self) -> str:
        """How the process ended; nothing while it runs."""
        status = self.process.poll()
        if status is None:
            return ""
        if status >= 0:
            return f"exit status {status}"
        name = signal.Signals(-status).name
        return f"{name}; most often memory ran out" if name == "SIGKILL" else name

    def end(self) -> None:
        """Ends it with all that it has started: compilers, and the process that runs the cells."""
        before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
        # The relay leads its process group, see `Relay`.
        os.killpg(0, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=2)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        signal.signal(signal.SIGTERM, before)

    def close(self) -> None:
        """Closes the sockets; the folder goes at the next start of a kernel."""
        for one in self.sockets.values():
            one.close()
