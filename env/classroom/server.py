"""The class over HTTP: what notebooks send, the teacher's page, and its stream of events. On tornado, which JupyterLab brings."""

from __future__ import annotations

import asyncio
import hmac
import json
import secrets
import time
from pathlib import Path
from typing import Any

import tornado.httpserver
import tornado.web
from tornado.iostream import StreamClosedError

from env.classroom import contest
from env.classroom.state import BadRequestError, Class

STATIC = Path(__file__).parent / "static"
# Letters and digits that nobody takes for others.
ALPHABET = "ABCDEFGHJKMNPQRSTUVWXYZ23456789"
BODY, BODY_READ = 64 << 10, 1 << 20
# The page is told at most so often, and at least so often that proxies keep the connection.
PAGE_S, ALIVE_S = 0.1, 15.0
# Wrong codes that one address may try in a minute.
WRONG = 30
COOKIE = "gpulab_class"


def new_code() -> str:
    """Six letters to be read from a wall."""
    return "".join(secrets.choice(ALPHABET) for _ in range(6))


class Room:
    """What the handlers share."""

    def __init__(self, code: str, token: str, address: str, judge: contest.Judge | None = None) -> None:
        self.code, self.token, self.address = code, token, address
        self.state, self.judge = Class(), judge
        self.board = contest.Board(judge.tasks if judge else [])
        self.changed = asyncio.Event()
        self.wrong: dict[str, list[float]] = {}
        self.over = False

    def tell(self) -> None:
        """Wakes the pages."""
        self.changed.set()
        self.changed = asyncio.Event()

    async def end(self, http: tornado.httpserver.HTTPServer) -> None:
        """Ends the pages' streams, then the server."""
        self.over = True
        self.tell()
        http.stop()
        await asyncio.sleep(2 * PAGE_S)
        await http.close_all_connections()

    def guard(self, address: str, code: object) -> None:
        """Lets only those in who know the code."""
        now = time.monotonic()
        self.wrong = {
            key: late for key, times in self.wrong.items() if (late := [one for one in times if now - one < 60])
        }
        tried = self.wrong.get(address, [])
        if len(tried) >= WRONG:
            raise BadRequestError(
                429,
                "too many wrong codes from this machine\nnext: wait a minute, then take the code from the teacher's screen",
            )
        if not isinstance(code, str) or not hmac.compare_digest(code.strip().upper().encode(), self.code.encode()):
            self.wrong[address] = [*tried, now]
            raise BadRequestError(
                403, "that is not the code of this class\nnext: take address and code from the teacher's screen"
            )


class Answers(tornado.web.RequestHandler):
    """A JSON object in, one out; what is wrong is an `error` with its next step."""

    room: Room

    def initialize(self, room: Room) -> None:
        """Tornado's constructor."""
        self.room = room

    def write_error(self, status_code: int, **about: Any) -> None:
        """An error as JSON; tornado's own, too."""
        error = about.get("exc_info", (None, None))[1]
        told = isinstance(error, BadRequestError)
        text = str(error) if told else f"{self._reason}\nnext: the requests are in docs/classroom.md"
        self.set_status(error.status if isinstance(error, BadRequestError) else status_code)
        self.finish({"error": text})

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        """What a client did wrong is the client's to read."""
        if not isinstance(value, BadRequestError):
            super().log_exception(typ, value, tb)

    def object(self) -> dict[str, Any]:
        """The request's body, from somebody who knows the code."""
        if len(self.request.body) > BODY:
            raise BadRequestError(413, f"a request has at most {BODY >> 10} KiB\nnext: send fewer events at once")
        try:
            body = json.loads(self.request.body)
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            raise BadRequestError(400, "the body is no JSON object\nnext: the requests are in docs/classroom.md")
        self.room.guard(self.request.remote_ip or "", body.get("code"))
        return body


class Join(Answers):
    """A notebook joins."""

    def post(self) -> None:
        """Says how it is shown."""
        body = self.object()
        name = body.get("name")
        if name is not None and not isinstance(name, str):
            raise BadRequestError(400, "`name` is no text\nnext: join without one: lesson.join(address, code)")
        said = self.room.state.join(str(body.get("learner", "")), str(body.get("lesson", "")), name)
        self.room.tell()
        self.write({"class": True, **said})


class Events(Answers):
    """What a notebook tells."""

    def post(self) -> None:
        """Says which of them do not count, and why."""
        body = self.object()
        events = body.get("events")
        if not isinstance(events, list):
            raise BadRequestError(400, "`events` is no list\nnext: the requests are in docs/classroom.md")
        refused = self.room.state.events(str(body.get("learner", "")), events)
        self.room.tell()
        self.write({"class": True, "refused": refused})


class Leave(Answers):
    """A notebook leaves."""

    def post(self) -> None:
        """Deletes what is stored of it."""
        learner = str(self.object().get("learner", ""))
        self.room.state.leave(learner)
        self.room.board.leave(learner)
        self.room.tell()
        self.write({"class": True})


class Submit(Answers):
    """An entry of the contest; answered when it was judged."""

    async def post(self) -> None:
        """Says what was found, and which place it has."""
        body = self.object()
        name = self.room.state.shown_as(str(body.get("learner", "")))
        task, source = body.get("task"), body.get("source")
        judge, board, learner = self.room.judge, self.room.board, str(body["learner"])
        if judge is None:
            raise BadRequestError(
                409, "this class holds no contest\nnext: ask the teacher for make class CONTEST=transpose"
            )
        if task not in judge.tasks:
            raise BadRequestError(
                400, f"`{str(task)[:40]}` is no task of this contest\nnext: name one of {', '.join(judge.tasks)}"
            )
        if not isinstance(source, str) or not 0 < len(source) <= contest.SOURCE:
            raise BadRequestError(
                413, f"a kernel's source has 1 to {contest.SOURCE} letters\nnext: leave out what it does not need"
            )
        if learner in judge.waiting:
            raise BadRequestError(409, "your last entry is still at work\nnext: wait for its verdict")
        said = await judge.of(learner, task, source)
        # Who left meanwhile has no place.
        place = board.enter(task, learner, name, said) if learner in self.room.state.learners else None
        self.room.tell()
        self.write({"class": True, "text": contest.text(said, place)})


class Teachers(Answers):
    """What only the teacher's own browser gets: it has the token, which learners do not."""

    def prepare(self) -> None:
        """Refuses everybody else."""
        self.set_header("Cache-Control", "no-store")
        self.set_header("Content-Security-Policy", "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'")
        if not _same(self.get_cookie(COOKIE, ""), self.room.token):
            raise BadRequestError(
                403, "this page is the teacher's\nnext: open the whole address that `make class` has printed"
            )


class Page(Teachers):
    """The page for the wall."""

    file = "class.html"

    def prepare(self) -> None:
        """The token in the address becomes a cookie, so that no projector shows it."""
        if _same(self.get_argument("token", ""), self.room.token):
            self.set_cookie(COOKIE, self.room.token, httponly=True, samesite="Strict")
            self.redirect(self.request.path)
            return
        super().prepare()

    def get(self) -> None:
        """The page itself; all else comes by the stream."""
        self.set_header("Content-Type", "text/html; charset=utf-8")
        page = (STATIC / self.file).read_text(encoding="utf-8")
        for name, value in (("ADDRESS", self.room.address), ("CODE", self.room.code)):
            page = page.replace("{{" + name + "}}", tornado.web.escape.xhtml_escape(value))
        self.write(page)


class Board(Page):
    """The contest's."""

    file = "board.html"


class Stream(Teachers):
    """Server-sent events: the whole state after each change, at most ten times a second."""

    gone = False

    def on_connection_close(self) -> None:
        """The page was closed."""
        self.gone = True

    async def get(self) -> None:
        """Until the page is closed."""
        self.set_header("Content-Type", "text/event-stream")
        try:
            while not (self.gone or self.room.over):
                changed = self.room.changed
                self.write(
                    f"data: {json.dumps({**self.room.state.snapshot(), 'contest': self.room.board.snapshot(), 'address': self.room.address, 'code': self.room.code})}\n\n"
                )
                await self.flush()
                await asyncio.sleep(PAGE_S)
                try:
                    await asyncio.wait_for(changed.wait(), ALIVE_S)
                except asyncio.TimeoutError:
                    self.write(": alive\n\n")
        except StreamClosedError:
            return


def _same(ours: str | None, theirs: str) -> bool:
    return hmac.compare_digest((ours or "").encode(), theirs.encode())


def quiet(handler: tornado.web.RequestHandler) -> None:
    """No line for each request: the terminal is for the teacher, and keeps no addresses of learners."""


def application(room: Room) -> tornado.web.Application:
    """All paths."""
    shared = {"room": room}
    return tornado.web.Application(
        [
            ("/join", Join, shared),
            ("/events", Events, shared),
            ("/leave", Leave, shared),
            ("/submit", Submit, shared),
            ("/", Page, shared),
            ("/board", Board, shared),
            ("/stream", Stream, shared),
            ("/static/(class.css|class.js|board.js)", tornado.web.StaticFileHandler, {"path": str(STATIC)}),
        ],
        log_function=quiet,
        default_handler_class=Missing,
        default_handler_args=shared,
    )


class Missing(Answers):
    """Any other path."""

    def prepare(self) -> None:
        """Says where the paths stand."""
        raise BadRequestError(404, "there is no such path here\nnext: the requests are in docs/classroom.md")
