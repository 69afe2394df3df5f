"""What a notebook that has joined a class sends to the teacher's machine: its predictions, measurements and verdicts.

`lesson.join(address, code)` asks for it; without, nothing of this is loaded and nothing is sent. A thread of its own sends, so that no
cell waits for a network; what could not be sent is kept as long as the kernel runs, and sent later. docs/classroom.md is the protocol.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import threading
import urllib.parse
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from env.classroom import questions
from env.progress import VERDICT
from env.relay import CLASS

if TYPE_CHECKING:
    from env.relay.loop import Cell

# How long the cell that joins waits for the teacher's machine, and how long a request may take.
JOIN_S, REQUEST_S = 2.0, 3.0
# How long the cell that submits a kernel waits for its verdict: others may be in front of it.
SUBMIT_S = 120.0
# Seconds before the next try, and how many events are kept meanwhile: the oldest go first.
AGAIN_S = (1.0, 2.0, 5.0, 10.0)
KEPT, AT_ONCE = 1000, 100


class Refused(Exception):
    """The teacher's machine has answered, and said no."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Classroom:
    """One notebook's place in a class. `ring` wakes the relay's loop when there is something to say."""

    def __init__(
        self, asked: dict[str, Any], secret: bytes, ring: Callable[[], None], before: Classroom | None = None
    ) -> None:
        self.address, self.code = str(asked.get("address", "")).strip(), str(asked.get("code", "")).strip().upper()
        self.lesson, self.name = str(asked.get("lesson", "")), asked.get("name")
        # The same after the kernel was restarted, so that nobody is counted twice; it tells nothing of whose it is.
        key = f"{self.address} {self.code} {self.lesson}".encode()
        self.learner = hashlib.sha256(secret + key).hexdigest()[:32]
        self.asked = questions.questions(self.lesson)
        self.guesses: dict[str, float | None] = dict.fromkeys(self.asked or ())
        self.waiting: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self.notices: deque[str] = deque()
        self.ring, self.wake = ring, threading.Event()
        # Whether the first request has come to an end, either way; whether the last one was answered; whether all is over.
        self.answered = self.joined = self.ended = False
        self.complained, self.forget, self.submitting = False, True, False
        if before is not None:
            again = before.learner == self.learner
            self.guesses |= before.guesses if again else {}
            self.waiting.extend(before.waiting if again else ())
            before.leave(forget=not again)
        self.target = _target(self.address)
        if self.target is None:
            self.answered = self.ended = True
            self.notices.append(
                f"class: `{self.address}` is no address of a class\n"
                'next: take address and code from the teacher\'s screen: lesson.join("http://192.168.1.20:8123", "CODE")'
            )
        else:
            threading.Thread(target=self._send_all, daemon=True).start()

    # What the relay's loop calls; nothing here waits.

    def cell(self, cell: Cell) -> None:
        """A cell that has ended: what of it goes to the teacher."""
        if self.ended:
            return
        code = cell.request.content.get("code", "")
        failed = cell.failed or bool(cell.errors.seen)
        name = str(cell.request.metadata.get("cellId", ""))[:80]
        events: list[dict[str, Any]] = [{"kind": "cell", "cell": name, "failed": failed}]
        for name, text in () if cell.failed else questions.guesses(code):
            if text is None or (self.asked is not None and name not in self.asked):
                continue
            try:
                self.guesses[name] = questions.number(text)
                events.append({"kind": "guess", "question": name, "value": self.guesses[name]})
            except questions.NoNumberError:
                self.notices.append(
                    f"class: `{name}` is `{text}`, which is no number that a plot can show; it was not sent\n"
                    "next: write a number, such as Some(8.0), and run the cell again"
                )
        for name, value in questions.measured(code, cell.predicted, self.guesses):
            events.append({"kind": "measured", "question": name, "value": value})
        for verdict in cell.verdicts:
            passed = verdict.get("verdict") == "PASS"
            events.append({"kind": "verdict", "exercise": str(verdict.get("exercise", ""))[:80], "passed": passed})
        self.waiting.extend(events)
        self.wake.set()

    @property
    def busy(self) -> bool:
        """Whether there is something that a cell may wait for."""
        return not self.answered or self.submitting

    def submit(self, task: str, source: str) -> None:
        """Sends a kernel's source to the contest, which says what it found."""

        def send() -> None:
            try:
                said = self._post("/submit", {"task": task, "source": source}, SUBMIT_S)
                self._tell(f"contest: {said.get('text', '')}")
            except Refused as refused:
                self._tell(f"contest: {refused}")
            except (OSError, http.client.HTTPException, ValueError):
                self._tell(
                    f"contest: no answer from {self.address}\nnext: run this cell again, when the class is reachable"
                )
            self.submitting = False
            self.ring()

        if self.ended:
            self._tell("contest: this notebook has left its class\nnext: lesson.join(address, code), then submit again")
        elif not self.submitting:
            self.submitting = True
            threading.Thread(target=send, daemon=True).start()

    def verdicts(self, data: dict[str, Any]) -> list[dict[str, Any]]:
        """The verdict in what a cell shows, if there is one."""
        found = _object(data.get(VERDICT))
        return [found] if found else []

    def leave(self, forget: bool = True) -> None:
        """Sends nothing more; asks the teacher's machine to forget what it has of this notebook, unless it joins again."""
        if not self.ended:
            self.ended, self.forget = True, forget
            self.waiting.clear()
            self.wake.set()

    def news(self) -> str:
        """What is to be shown below a cell."""
        lines = []
        while self.notices:
            lines.append(self.notices.popleft())
        return "".join(f"{line}\n" for line in lines)

    # What the thread does.

    def _tell(self, text: str) -> None:
        self.notices.append(text)

    def _send_all(self) -> None:
        tries = 0
        while not self.ended:
            try:
                self._send_waiting()
                tries = 0
            except Refused as refused:
                tries += 1
                if refused.status == 404 and self.joined:
                    # Another class is running there by now, or the same one anew.
                    self.joined = False
                elif refused.status < 500 and refused.status != 429:
                    self.ended = True
                    self._tell(f"class: {refused}")
                    self._done()
                    return
                else:
                    self._unreachable()
            except (OSError, http.client.HTTPException, ValueError):
                self._unreachable()
                tries += 1
            self._done()
            self.wake.wait(AGAIN_S[min(tries, len(AGAIN_S)) - 1] if tries else None)
            self.wake.clear()
        # A class that is over has forgotten everything by itself.
        if not self.forget:
            return
        with contextlib.suppress(OSError, Refused, http.client.HTTPException, ValueError):
            self._post("/leave", {})

    def _send_waiting(self) -> None:
        if not self.joined:
            self._join()
        while self.waiting and not self.ended:
            some = [self.waiting.popleft() for _ in range(min(AT_ONCE, len(self.waiting)))]
            try:
                said = self._post("/events", {"lesson": self.lesson, "events": some})
            except BaseException:
                self.waiting.extendleft(reversed(some))
                raise
            for one in said.get("refused", [])[:3]:
                self._tell(f"class: {one}")
        if self.complained:
            self.complained = False
            self._tell("class: the teacher's machine answers again; what was kept has been sent")

    def _join(self) -> None:
        name = {} if self.name is None else {"name": str(self.name)}
        said = self._post("/join", {"lesson": self.lesson, **name})
        if not self.joined and not self.complained:
            shown = said.get("shown_as", "")
            who = f"you are shown as {shown}" if self.name is not None else "without a name"
            self._tell(
                f"class: joined, {who}. From now on this notebook sends its predictions, measured values, verdicts "
                f"and which cells ran; `lesson.leave()` ends that and deletes them"
            )
        if said.get("note"):
            self._tell(f"class: {said['note']}")
        self.joined = True

    def _unreachable(self) -> None:
        if not self.complained:
            self.complained = True
            self._tell(
                f"class: no answer from {self.address}; cells run as always, and what they would send is kept and sent later\n"
                "next: compare the address with the teacher's screen, and see that both machines are in one network"
            )

    def _done(self) -> None:
        self.answered = True
        self.ring()

    def _post(self, path: str, body: dict[str, Any], limit_s: float = REQUEST_S) -> dict[str, Any]:
        assert self.target is not None
        host, port = self.target
        connection = http.client.HTTPConnection(host, port, timeout=limit_s)
        try:
            data = json.dumps({"code": self.code, "learner": self.learner, **body}).encode()
            connection.request("POST", path, data, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read(1 << 16)
        finally:
            connection.close()
        said = json.loads(text) if text.startswith(b"{") else {}
        if answer.status == 200 and isinstance(said, dict) and said.get("class"):
            return said
        if answer.status == 200:
            raise Refused(
                400, f"what answers at {self.address} is no class\nnext: compare the address with the teacher's screen"
            )
        raise Refused(answer.status, said.get("error") or f"HTTP status {answer.status}\nnext: ask the teacher")


def _target(address: str) -> tuple[str, int] | None:
    try:
        parts = urllib.parse.urlsplit(address if "://" in address else f"http://{address}")
        found = parts.hostname, parts.port or 80
    except ValueError:
        return None
    return (found[0], found[1]) if found[0] and parts.scheme == "http" and parts.path in ("", "/") else None


def joining(data: dict[str, Any]) -> dict[str, Any]:
    """What `lesson.join` or `lesson.leave` said in what a cell shows; it is taken out."""
    return _object(data.pop(CLASS, None)) or {}


def _object(data: object) -> dict[str, Any] | None:
    with contextlib.suppress(ValueError):
        data = json.loads(data) if isinstance(data, str) else data
    return data if isinstance(data, dict) else None
