"""The loop of the relay: what Jupyter sends goes to evcxr, what evcxr says goes to Jupyter, and a cell may wait.

evcxr answers nothing while it starts or runs a cell, says too much or too little when a cell fails, and lets a cell print
until the page freezes. All else is passed on as it came.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
import uuid
from collections import deque
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import zmq

from env.kernel_cache import recipe, set_up_progress
from env.relay import CLASS, NotReadyError, memory
from env.relay import help as helping
from env.relay.evcxr import RELAY, Evcxr
from env.relay.printed import LINES, Errors, Text, readable
from env.relay.wire import Message, Wire

if TYPE_CHECKING:
    from env.relay.classroom import Classroom

INFO = {
    "status": "ok",
    "protocol_version": "5.3",
    "implementation": "evcxr_jupyter",
    "implementation_version": "",
    "language_info": {
        "name": "Rust",
        "version": "",
        "mimetype": "text/rust",
        "file_extension": ".rs",
        "pygment_lexer": "rust",
        "codemirror_mode": "rust",
    },
    "banner": "Rust, by evcxr",
    "help_links": [{"text": "Rust std docs", "url": "https://doc.rust-lang.org/stable/std/"}],
}
# What a client asks at any time, and evcxr answers late or never.
ANSWERS: dict[str, dict[str, Any]] = {
    "kernel_info_request": INFO,
    "comm_info_request": {"status": "ok", "comms": {}},
    "history_request": {"status": "ok", "history": []},
    "is_complete_request": {"status": "complete"},
}
BUSY, IDLE = {"execution_state": "busy"}, {"execution_state": "idle"}
# How often a waiting cell looks for news, and how often the count of lines that are not shown is renewed.
LOOK_S, COUNT_S = 0.5, 1.0
# evcxr passes stderr on from a thread of its own, and a panic's text may follow the cell's end, when Jupyter has stopped
# listening. A cell that shows its value has not failed.
GRACE_S, LATE_S = 0.02, 0.05
# A second Stop after this time ends what the first one could not: a compiler, say.
PATIENCE_S = 2.0
KEPT = "all variables are gone; functions, types, `use` and `:dep` lines stay"
AGAIN = "run the cells above this one again (menu Run, Run All Above Selected Cell), then this one"


class Cell:
    """A cell from its request to its reply."""

    def __init__(self, request: Message, source: Callable[[], Path]) -> None:
        self.request = request
        code = request.content.get("code", "")
        asked = os.environ.get("RUST_BACKTRACE", "0") != "0"
        self.errors = Errors(code, source, asked)
        self.texts = {"stdout": Text(), "stderr": Text()}
        # As evcxr gets it; the command that puts Cargo.lock back shows an empty value, which is none of the cell's.
        self.code = recipe.with_lock(code)
        self.locked = self.code != code
        self.failed = self.showed = False
        self.stopped: float | None = None
        self.reply: list[bytes] | None = None
        self.idle: Message | None = None
        self.done_at: float | None = None
        # Until when it waits for the answer of the class that it joins; what a class is told of it.
        self.joins: float | None = None
        self.predicted: list[str] = []
        self.verdicts: list[dict[str, Any]] = []
        # The output that tells of more lines: its name, and when it was renewed.
        self.notes: dict[str, tuple[str, float]] = {}

    def ended(self, now: float) -> bool:
        """Whether all that it prints has come."""
        return self.done_at is not None and now >= self.done_at


class Relay:
    """What Jupyter takes for the kernel. `start` gives evcxr's program and environment, or raises with the reason."""

    def __init__(self, connection: dict[str, Any], start: Callable[[], tuple[Path, dict[str, str]]]) -> None:
        self.wire = Wire(connection.get("key", ""))
        self.start, self.evcxr = start, None
        self.memory = memory.Memory()
        # The class that this notebook has joined, and what names the notebook there: it stays the same when the kernel is restarted.
        self.classroom: Classroom | None = None
        self.secret = connection.get("key", "").encode()
        self.context = zmq.Context.instance()
        # In this order they are read: a Stop ends what ran when it was pressed, and no cell that came after it.
        kinds = {"control": zmq.ROUTER, "shell": zmq.ROUTER, "stdin": zmq.ROUTER, "iopub": zmq.PUB, "hb": zmq.REP}
        self.front = {name: self.bind(connection, name, kind) for name, kind in kinds.items()}
        self.poller = zmq.Poller()
        for name in ("shell", "control", "stdin", "hb"):
            self.poller.register(self.front[name], zmq.POLLIN)
        self.queue: deque[Message] = deque()
        self.cell: Cell | None = None
        # The request at the queue's head that waits for the set-up: its name, and the output that says so.
        self.waiting: tuple[str, str, str] | None = None
        self.looked = 0.0
        # Who measures cells asks for a kernel that answers when it is ready, and not before.
        self.patient = os.environ.get("GPULAB_ANSWER_WHEN_READY") == "1"
        self.asked: list[tuple[str, Message]] = []
        # The thread that prepares evcxr's start, and what it brought.
        self.preparing: Thread | None = None
        self.prepared: list[Any] = []
        self.running = True
        # evcxr's end, and that of a preparation, wakes the loop.
        self.bell, ring = socket.socketpair()
        for one in (self.bell, ring):
            one.setblocking(False)
        self.ring = ring
        signal.set_wakeup_fd(ring.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self.leave)
        # Jupyter interrupts by message.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self.poller.register(self.bell, zmq.POLLIN)

    def bind(self, connection: dict[str, Any], name: str, kind: int) -> zmq.Socket:
        """One of the sockets that Jupyter connects to."""
        one = self.context.socket(kind)
        # A page that prints fast must lose no line; how much a cell prints is limited here.
        one.linger, one.sndhwm = 1000, 0
        if kind == zmq.ROUTER:
            one.router_handover = 1
        transport, place, port = connection["transport"], connection["ip"], connection[f"{name}_port"]
        one.bind(f"{transport}://{place}{'-' if transport == 'ipc' else ':'}{port}")
        return one

    def leave(self, *_: object) -> None:
        """Ends the loop."""
        self.running = False

    # What is said to Jupyter.

    def publish(self, kind: str, content: dict[str, Any], parent: dict[str, Any]) -> None:
        """Tells all clients."""
        self.memory.note(parent.get("msg_id", ""), kind, content)
        self.front["iopub"].send_multipart(self.wire.new(kind, content, parent, []))

    def pass_on(self, message: Message, content: dict[str, Any] | None = None) -> None:
        """Tells all clients what evcxr has said, with another content or as it came."""
        self.memory.note(message.parent.get("msg_id", ""), message.kind, content or message.content)
        self.front["iopub"].send_multipart(self.wire.changed(message, content) if content else message.frames)

    def answer(self, channel: str, request: Message, content: dict[str, Any]) -> None:
        """Tells the client that asked."""
        kind = request.kind.replace("_request", "_reply")
        self.front[channel].send_multipart(self.wire.new(kind, content, request.header, request.identities))

    def answer_whole(self, channel: str, request: Message, content: dict[str, Any]) -> None:
        """An answer between busy and idle, as clients expect it."""
        self.publish("status", BUSY, request.header)
        self.answer(channel, request, content)
        self.publish("status", IDLE, request.header)
        if self.cell:
            self.publish("status", BUSY, self.cell.request.header)

    def fail(self, request: Message, name: str, text: str) -> None:
        """Ends a cell that did not run, with what is wrong; those behind it are not run."""
        error = {"ename": name, "evalue": text.splitlines()[0], "traceback": text.splitlines()}
        self.publish("status", BUSY, request.header)
        self.publish("error", error, request.header)
        self.answer("shell", request, {"status": "error", "execution_count": 0, **error})
        self.publish("status", IDLE, request.header)
        self.abort()

    def abort(self) -> None:
        """Ends the cells that wait for their turn."""
        while self.queue:
            request = self.queue.popleft()
            self.answer_whole("shell", request, {"status": "aborted", "execution_count": 0})

    # What Jupyter says.

    def from_jupyter(self, channel: str) -> None:
        """One message of a client."""
        frames = self.front[channel].recv_multipart()
        if channel == "hb":
            self.front["hb"].send_multipart(frames)
            return
        message = self.wire.read(frames)
        if message is None:
            return
        if message.kind == "kernel_info_request" and self.patient and not (self.evcxr and self.evcxr.ready):
            self.asked.append((channel, message))
        elif message.kind in ANSWERS and (channel != "control" or message.kind == "kernel_info_request"):
            self.answer_whole(channel, message, ANSWERS[message.kind])
        elif channel == "stdin":
            if self.evcxr:
                self.evcxr.stdin.send_multipart(frames)
        elif message.kind == "execute_request":
            self.queue.append(message)
            if message.metadata.get("cellId"):
                self.memory.begin(message.metadata["cellId"], message.id, message.content.get("code", ""))
        elif message.kind == "interrupt_request":
            self.interrupt(message)
        elif message.kind == "shutdown_request":
            self.answer_whole(channel, message, {"status": "ok", "restart": message.content.get("restart", False)})
            self.leave()
        elif message.kind in helping.REQUESTS:
            self.help(message)
        elif message.kind == "comm_open" and message.content.get("target_name") == memory.TARGET:
            data = {"comm_id": message.content.get("comm_id"), "data": {"cells": self.memory.cells}}
            self.publish("status", BUSY, message.header)
            self.publish("comm_msg", data, message.header)
            self.publish("status", IDLE, message.header)
        elif channel == "shell" and self.evcxr and self.evcxr.ready:
            self.evcxr.shell.send_multipart(frames)

    def help(self, request: Message) -> None:
        """Completion and documentation: evcxr gives them between cells."""
        if not (self.evcxr and self.evcxr.ready):
            self.answer_whole("shell", request, helping.later(request, "when the Rust kernel has started"))
        elif self.cell:
            self.answer_whole("shell", request, helping.later(request, "when the cell that runs is done"))
        else:
            self.evcxr.shell.send_multipart(self.wire.changed(request, helping.at_name(request)))

    def interrupt(self, request: Message) -> None:
        """Stop: ends the running cell's process, or a cell that waits. With nothing to stop, variables stay."""
        if self.cell and self.evcxr:
            if self.cell.stopped is None:
                self.cell.stopped = time.monotonic()
                self.evcxr.control.send_multipart(request.frames)
                self.abort()
                return
            if time.monotonic() - self.cell.stopped > PATIENCE_S:
                self.evcxr.end()
        elif self.queue:
            head = self.queue.popleft()
            self.waiting = None
            self.fail(head, "Stopped", "stopped before it ran: the Rust kernel has not started yet\nnext: run it again")
        self.answer("control", request, {"status": "ok"})

    # What evcxr says.

    def from_evcxr(self, evcxr: Evcxr, channel: str) -> None:
        """One message of evcxr's."""
        frames = evcxr.sockets[channel].recv_multipart()
        message = self.wire.read(frames)
        if message is None:
            return
        if channel == "iopub":
            self.published(evcxr, message)
        elif channel == "shell" and message.identities == [RELAY]:
            evcxr.answered = True
        elif channel == "shell" and self.cell and message.parent.get("msg_id") == self.cell.request.id:
            self.cell.reply = frames
            self.settle(self.cell)
        elif channel == "shell" and message.kind == "complete_reply":
            self.front["shell"].send_multipart(self.wire.changed(message, helping.sorted_matches(message.content)))
        elif channel == "shell" and message.kind == "inspect_reply":
            self.front["shell"].send_multipart(self.wire.changed(message, helping.not_silent(message.content)))
        else:
            self.front[channel].send_multipart(frames)

    def published(self, evcxr: Evcxr, message: Message) -> None:
        """What a cell shows, or how evcxr is."""
        state = message.content.get("execution_state") if message.kind == "status" else None
        if message.parent.get("session") == self.wire.session:
            evcxr.published = True
            return
        cell = self.cell
        if cell is None or message.parent.get("msg_id") != cell.request.id:
            self.pass_on(message)
        elif state == "idle":
            cell.idle = message
            self.settle(cell)
        elif message.kind == "stream":
            self.stream(cell, message)
        elif message.kind == "error":
            cell.failed = True
            self.pass_on(message, self.error(cell, message.content))
        elif cell.locked and message.content.get("data") == {"text/plain": ""}:
            return
        elif CLASS in message.content.get("data", {}):
            self.join(cell, message)
        else:
            cell.showed = cell.showed or message.kind == "execute_result"
            self.pass_on(message)
            if self.classroom:
                cell.verdicts += self.classroom.verdicts(message.content.get("data", {}))

    def join(self, cell: Cell, message: Message) -> None:
        """A cell has called `lesson.join`, `submit` or `leave`; it ends with the answer, or without one after a short time."""
        # Only who joins a class pays for what it takes.
        from env.relay import classroom

        data = dict(message.content["data"])
        asked = classroom.joining(data)
        if any(data.values()):
            self.pass_on(message, {**message.content, "data": data})
        if "source" in asked:
            if self.classroom:
                self.classroom.submit(str(asked.get("task")), str(asked["source"]))
                cell.joins = time.monotonic() + classroom.SUBMIT_S
            else:
                text = (
                    "contest: this notebook has joined no class\nnext: lesson.join(address, code), then submit again\n"
                )
                self.publish("stream", {"name": "stdout", "text": text}, cell.request.header)
            return
        before, self.classroom = self.classroom, None
        if asked.get("address") is not None:
            self.classroom = classroom.Classroom(asked, self.secret, lambda: self.ring.send(b"!"), before)
            cell.joins = time.monotonic() + classroom.JOIN_S
        else:
            if before:
                before.leave()
            text = (
                "class: left; nothing more is sent, and what was sent is deleted"
                if before
                else "class: this notebook has joined none"
            )
            self.publish("stream", {"name": "stdout", "text": f"{text}\n"}, cell.request.header)

    def stream(self, cell: Cell, message: Message) -> None:
        """A line that the cell printed."""
        name, text = message.content.get("name", "stdout"), message.content.get("text", "")
        changed = cell.errors.line(text) if name == "stderr" else text
        if not changed:
            return
        if self.classroom and "predict" in text and len(cell.predicted) < LINES:
            cell.predicted += text.splitlines()
        shown = cell.texts[name].add(changed)
        if shown == text:
            self.pass_on(message)
        elif shown:
            self.pass_on(message, {"name": name, "text": shown})
        else:
            self.note(cell, name)

    def note(self, cell: Cell, name: str, done: bool = False) -> None:
        """Says how many lines are not shown: once a second, and when the cell is done."""
        known, at = cell.notes.get(name, ("", 0.0))
        if not done and time.monotonic() - at < COUNT_S:
            return
        output = known or uuid.uuid4().hex
        cell.notes[name] = (output, time.monotonic())
        content = {"data": {"text/plain": cell.texts[name].note(done)}, "metadata": {}}
        kind = "update_display_data" if known else "display_data"
        self.publish(kind, {**content, "transient": {"display_id": output}}, cell.request.header)

    def error(self, cell: Cell, content: dict[str, Any]) -> dict[str, Any]:
        """An error of evcxr's: what is lost, and what to do next, where it says neither."""
        said = content.get("evalue", "")
        if "Subprocess terminated" not in said:
            return {**content, "traceback": readable(content.get("traceback", []))}
        how = said.rsplit("status: ", 1)[-1]
        if cell.stopped is not None:
            text, name = f"stopped: the process that runs the cells was ended, and {KEPT}", "Stopped"
        else:
            memory = "; most often memory ran out" if "SIGKILL" in how else ""
            text, name = f"the process that runs the cells ended ({how}{memory}), and {KEPT}", "Ended"
        printed = said.split("Subprocess terminated")[0].strip()
        trace = [*filter(None, [printed]), text, f"next: {AGAIN}"]
        return {"ename": name, "evalue": text, "traceback": trace}

    def settle(self, cell: Cell) -> None:
        """Lets a cell end whose reply and idle have come, after what it may still print."""
        if cell.reply is not None and cell.idle is not None:
            late = LATE_S if cell.errors.seen else 0.0 if cell.showed or cell.failed else GRACE_S
            cell.done_at = time.monotonic() + late

    def finish(self, cell: Cell) -> None:
        """Passes on that the cell is done."""
        step = cell.errors.next_step(cell.failed or cell.showed)
        if step:
            self.publish("stream", {"name": "stderr", "text": step}, cell.request.header)
        for name, text in cell.texts.items():
            if text.more:
                self.note(cell, name, done=True)
        if self.classroom:
            self.classroom.cell(cell)
            news = self.classroom.news()
            if news:
                self.publish("stream", {"name": "stdout", "text": news}, cell.request.header)
        assert cell.reply is not None
        assert cell.idle is not None
        self.front["shell"].send_multipart(cell.reply)
        self.pass_on(cell.idle)
        self.cell = None

    def joining(self, cell: Cell, now: float) -> bool:
        """Whether the cell waits for the class: for an answer when it joins, for a verdict when it submits."""
        waits = cell.joins is not None and now < cell.joins and cell.stopped is None
        return waits and self.classroom is not None and self.classroom.busy

    # Cells and evcxr's life.

    def advance(self) -> None:
        """Whatever can be done without a message."""
        now = time.monotonic()
        if self.evcxr and self.evcxr.process.poll() is not None:
            self.lost(self.evcxr)
        if self.cell and self.cell.ended(now) and not self.joining(self.cell, now):
            self.finish(self.cell)
        while self.asked and (self.evcxr is None or self.evcxr.ready) and not self.preparing:
            channel, request = self.asked.pop(0)
            self.answer_whole(channel, request, INFO)
        if self.prepared:
            self.begun()
        if (
            self.evcxr is None
            and not self.preparing
            and now - self.looked > LOOK_S
            and (self.queue or set_up_progress.read())
        ):
            self.begin()
        elif self.evcxr and self.evcxr.answered and not self.evcxr.published and now - self.looked > LOOK_S:
            self.looked = now
            self.evcxr.ask()
        if self.queue and not self.cell and self.evcxr and self.evcxr.ready:
            self.run(self.evcxr, self.queue.popleft())

    def run(self, evcxr: Evcxr, request: Message) -> None:
        """Gives evcxr a cell."""
        if self.waiting:
            self.publish("clear_output", {"wait": False}, request.header)
            self.waiting = None
        self.cell = Cell(request, lambda: evcxr.folder / "src" / "lib.rs")
        changed = {**request.content, "code": self.cell.code}
        evcxr.shell.send_multipart(self.wire.changed(request, changed) if self.cell.locked else request.frames)

    def begin(self) -> None:
        """Prepares evcxr's start beside the loop: a copy of many files takes its time, and clients ask meanwhile."""

        def prepare() -> None:
            try:
                self.prepared.append(self.start())
            except (NotReadyError, OSError) as error:
                self.prepared.append(error)
            self.ring.send(b"!")

        self.looked = time.monotonic()
        self.preparing = Thread(target=prepare, daemon=True)
        self.preparing.start()

    def begun(self) -> None:
        """Starts evcxr with what was prepared, or tells the cell that waits why not."""
        self.preparing, found = None, self.prepared.pop()
        if isinstance(found, NotReadyError):
            return self.not_ready(str(found))
        try:
            if isinstance(found, OSError):
                raise found
            self.evcxr = Evcxr(*found, self.wire)
        except OSError as error:
            return self.not_ready(
                f"{error.strerror or error}\nnext: make room, or give yourself write access; then run it again"
            )
        for one in self.evcxr.sockets.values():
            self.poller.register(one, zmq.POLLIN)
        return None

    def not_ready(self, why: str) -> None:
        """The cell at the queue's head waits for a set-up that is at work; else it ends with the reason."""
        if not self.queue:
            return
        request, found = self.queue[0], set_up_progress.read()
        if found is None or found.error:
            self.waiting = None
            self.queue.popleft()
            self.fail(request, "SetUpMissing", f"the Rust kernel cannot start: {found.error if found else why}")
            return
        text = f"Rust kernel: {found.text()}"
        if self.waiting is None or self.waiting[0] != request.id:
            self.publish("status", BUSY, request.header)
            self.waiting = (request.id, uuid.uuid4().hex, "")
        name, output, before = self.waiting
        if text != before:
            kind = "update_display_data" if before else "display_data"
            content = {"data": {"text/plain": text}, "metadata": {}, "transient": {"display_id": output}}
            self.publish(kind, content, request.header)
            self.waiting = (name, output, text)

    def lost(self, evcxr: Evcxr) -> None:
        """evcxr has ended: the running cell ends with what is gone; the next cell starts another."""
        how, cell = evcxr.ended(), self.cell
        for one in evcxr.sockets.values():
            self.poller.unregister(one)
        evcxr.close()
        self.evcxr, self.cell, self.looked = None, None, 0.0
        request = cell.request if cell else self.queue.popleft() if self.queue else None
        if request is None:
            return
        if cell and cell.stopped is not None:
            text, name = "stopped: the Rust kernel was ended, and all that cells have made is gone", "Stopped"
        else:
            text, name = f"the Rust kernel ended ({how}), and all that cells have made is gone", "Ended"
        self.fail(request, name, f"{text}\nnext: {AGAIN}")

    def run_forever(self) -> None:
        """Until Jupyter ends it."""
        self.publish("status", {"execution_state": "starting"}, {})
        self.begin()
        while self.running:
            self.advance()
            ready = dict(self.poller.poll(self.wait_ms()))
            if self.bell.fileno() in ready:
                with contextlib.suppress(BlockingIOError):
                    self.bell.recv(4096)
            for name, one in self.front.items():
                if one in ready:
                    self.from_jupyter(name)
            evcxr = self.evcxr
            for name, one in evcxr.sockets.items() if evcxr else ():
                # A printing cell says a lot: as much as is there, before the next look around.
                for _ in range(100 if one in ready else 0):
                    self.from_evcxr(evcxr, name)
                    if not one.get(zmq.EVENTS) & zmq.POLLIN:
                        break
        if self.evcxr:
            self.evcxr.end()
            self.evcxr.close()
        self.context.destroy(linger=1000)

    def wait_ms(self) -> int | None:
        """How long nothing needs to be done unless a message comes."""
        if self.cell and self.cell.done_at is not None:
            now = time.monotonic()
            until = self.cell.joins if self.cell.joins and self.joining(self.cell, now) else self.cell.done_at
            return max(0, int((until - now) * 1000) + 1)
        waits = self.queue and not self.cell
        return int(LOOK_S * 1000) if waits or self.evcxr is None or not self.evcxr.ready else None


def serve(connection_file: str, start: Callable[[], tuple[Path, dict[str, str]]]) -> None:
    """Runs the kernel that a connection file describes."""
    # It leads a process group, so that it can end all that evcxr starts.
    if os.getpgrp() != os.getpid():
        os.setpgrp()
    connection = json.loads(Path(connection_file).read_text(encoding="utf-8"))
    Relay(connection, start).run_forever()
