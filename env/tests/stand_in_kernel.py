"""A stand-in for evcxr_jupyter: it speaks its messages, as it sends them, and runs a few words instead of Rust.

`print N` prints lines, `panic`, `ask` (an error by `?`), `die` (the process that runs the cells), `exit` (the kernel),
`loop` (until it is interrupted), `value TEXT`, `say TEXT` (a line), `class JSON` (as `lesson.join`), `verdict JSON`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import zmq
from env.relay.wire import Message, Wire

PANIC = """
thread '<unnamed>' (15682) panicked at src/lib.rs:3:10:
index out of bounds: the len is 3 but the index is 10
stack backtrace:
   0: __rustc::rust_begin_unwind
             at /rustc/5980/library/std/src/panicking.rs:689:5
   1: run_user_code_2
note: Some details are omitted, run with `RUST_BACKTRACE=full` for a verbose backtrace.
"""


class StandIn:
    def __init__(self, file: str) -> None:
        settings = json.loads(Path(file).read_text())
        self.wire = Wire(settings["key"])
        context = zmq.Context.instance()
        self.sockets = {}
        for name, kind in (("shell", zmq.ROUTER), ("control", zmq.ROUTER), ("iopub", zmq.PUB)):
            self.sockets[name] = context.socket(kind)
            # Without a limit: a thousand messages wait by default, and on a slow machine the lines behind them were lost.
            self.sockets[name].sndhwm = 0
            self.sockets[name].bind(f"tcp://127.0.0.1:{settings[f'{name}_port']}")
        self.count = 1

    def tell(self, kind: str, content: dict, parent: Message) -> None:
        # As evcxr does it: the session is the client's.
        header = {**parent.header, "msg_type": kind, "msg_id": os.urandom(8).hex()}
        self.sockets["iopub"].send_multipart(self.wire.pack([], header, parent.header, content))

    def reply(self, channel: str, content: dict, parent: Message) -> None:
        header = {**parent.header, "msg_type": parent.kind.replace("_request", "_reply")}
        frames = self.wire.pack(parent.identities, header, parent.header, content)
        self.sockets[channel].send_multipart(frames)

    def stderr(self, text: str, parent: Message) -> None:
        for line in text.splitlines(keepends=True):
            self.tell("stream", {"name": "stderr", "text": line}, parent)

    def interrupted(self) -> None:
        message = self.wire.read(self.sockets["control"].recv_multipart())
        assert message is not None
        self.reply("control", {"status": "ok"}, message)

    def run(self, message: Message) -> None:
        self.count += 1
        self.tell("execute_input", {"code": message.content["code"], "execution_count": self.count}, message)
        word, _, rest = message.content["code"].partition(" ")
        status, late = "ok", ""
        if word == "print":
            for at in range(int(rest)):
                self.tell("stream", {"name": "stdout", "text": f"line {at}\n"}, message)
        elif word == "panic":
            # The text may follow the cell's end.
            late = PANIC
        elif word == "ask":
            self.stderr("invalid digit found in string\n", message)
        elif word == "value":
            self.tell("execute_result", {"data": {"text/plain": rest}, "metadata": {}, "execution_count": 2}, message)
        elif word == "say":
            self.tell("stream", {"name": "stdout", "text": rest.partition("\n")[0] + "\n"}, message)
        elif word in ("class", "verdict"):
            data = {f"application/vnd.gpulab.{word}+json": json.loads(rest)}
            self.tell("execute_result", {"data": data, "metadata": {}, "execution_count": 2}, message)
        elif word in ("die", "loop"):
            if word == "loop":
                self.interrupted()
            said = "Subprocess terminated with status: signal: 9 (SIGKILL)"
            self.tell("error", {"ename": "Error", "evalue": said, "traceback": [said]}, message)
            status = "error"
        elif word == "exit":
            sys.exit(3)
        self.reply("shell", {"status": status, "execution_count": self.count}, message)
        self.tell("status", {"execution_state": "idle"}, message)
        self.stderr(late, message)

    def serve(self) -> None:
        poller = zmq.Poller()
        for name in ("shell", "control"):
            poller.register(self.sockets[name], zmq.POLLIN)
        while True:
            ready = dict(poller.poll())
            if self.sockets["control"] in ready:
                self.interrupted()
            if self.sockets["shell"] not in ready:
                continue
            message = self.wire.read(self.sockets["shell"].recv_multipart())
            assert message is not None
            self.tell("status", {"execution_state": "busy"}, message)
            if message.kind == "execute_request":
                self.run(message)
                continue
            answers = {
                "kernel_info_request": {"status": "ok"},
                "complete_request": {"status": "ok", "matches": ["into()", "len()"], "metadata": {}},
                "inspect_request": {"status": "ok", "found": message.content.get("cursor_pos") == 5, "data": {}},
            }
            self.reply("shell", answers[message.kind], message)
            self.tell("status", {"execution_state": "idle"}, message)


if __name__ == "__main__":
    StandIn(sys.argv[2]).serve()
