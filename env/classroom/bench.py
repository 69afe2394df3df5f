#!/usr/bin/env python3
"""How soon a prediction is on the page's stream of events, with a class of simulated learners on this machine.

`python3 -m env.classroom.bench --learners 100`: a class on a free port of the loopback address, learners that send what notebooks
send, and a page that reads the stream. With `--join http://127.0.0.1:8123 --code CODE` the learners join a class that runs here, so that
a teacher can look at the page before there is a class.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from env import in_venv
from env.console import ToolError, tool

LESSON = "10_vector_add"
# What the lesson's predictions are about, as recorded, for guesses around them.
ABOUT = {"my_factor": 17.3, "my_sectors[0]": 4.0, "my_sectors[1]": 32.0, "my_percent_of_copy": 93.0}
CELLS = ("my-predictions", "measured-table", "sector-rows", "of-ceiling", "exercise-shifted")
REQUESTS = 2 + len(CELLS)


@dataclass
class Seen:
    """When each prediction was sent, and when it stood on the page."""

    sent: dict[float, float] = field(default_factory=dict)
    arrived: dict[float, float] = field(default_factory=dict)
    wall: float = 0.0

    @property
    def delays(self) -> list[float]:
        """Seconds from one to the other, rising."""
        return sorted(self.arrived[guess] - at for guess, at in self.sent.items() if guess in self.arrived)


async def learn(post, learners: int, seconds: float, seen: Seen) -> None:
    """`learners` join, predict within `seconds`, then measure and solve an exercise."""

    async def learner(at: int) -> None:
        chance = random.Random(at)
        me = {"learner": f"{at:032x}", "lesson": LESSON}
        await post("/join", {**me, **({"name": f"Learner {chr(65 + at)}"} if at < 5 else {})})
        await asyncio.sleep(chance.random() * seconds)
        values = {name: float(f"{about * math.exp(chance.gauss(-0.3, 0.7)):.2g}") for name, about in ABOUT.items()}
        values["my_factor"] += at * 1e-6
        guesses = [{"kind": "guess", "question": name, "value": value} for name, value in values.items()]
        seen.sent[values["my_factor"]] = time.perf_counter()
        await post("/events", {**me, "events": guesses})
        for cell in range(len(CELLS)):
            await asyncio.sleep(chance.random() * seconds / REQUESTS)
            events = [{"kind": "cell", "cell": CELLS[cell], "failed": False}]
            events += [{"kind": "verdict", "exercise": "scale", "passed": cell == 4 and at % 9 > 0}]
            events += [{"kind": "measured", "question": name, "value": ABOUT[name]} for name in ABOUT if cell == 1]
            await post("/events", {**me, "events": events})

    started = time.perf_counter()
    await asyncio.gather(*map(learner, range(learners)))
    seen.wall = time.perf_counter() - started


def poster(address: str, code: str, learners: int):
    """What sends one request, on a connection of its own as notebooks do."""
    from tornado.simple_httpclient import SimpleAsyncHTTPClient

    client = SimpleAsyncHTTPClient(force_instance=True, max_clients=learners)

    async def post(path: str, body: dict) -> None:
        await client.fetch(f"{address}{path}", method="POST", body=json.dumps({"code": code, **body}))

    return post


@asynccontextmanager
async def reading(port: int, cookie: str, seen: Seen) -> AsyncIterator[None]:
    """A page that notes when it was told of each prediction."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    writer.write(f"GET /stream HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nCookie: {cookie}\r\n\r\n".encode())

    async def read() -> None:
        async for line in reader:
            if line.startswith(b"data: "):
                now = time.perf_counter()
                for lesson in json.loads(line[6:])["lessons"]:
                    for value in lesson["questions"][0]["guesses"]:
                        seen.arrived.setdefault(value, now)

    task = asyncio.ensure_future(read())
    try:
        yield
    finally:
        task.cancel()
        writer.close()


async def measure(learners: int, seconds: float) -> Seen:
    """A class of its own, from the first request to the last prediction on the page."""
    import tornado.httpserver
    import tornado.netutil

    from env.classroom import server

    room, seen = server.Room(server.new_code(), "page", ""), Seen()
    http, sockets = (
        tornado.httpserver.HTTPServer(server.application(room)),
        tornado.netutil.bind_sockets(0, "127.0.0.1"),
    )
    http.add_sockets(sockets)
    port = sockets[0].getsockname()[1]
    async with reading(port, f"{server.COOKIE}=page", seen):
        await learn(poster(f"http://127.0.0.1:{port}", room.code, learners), learners, seconds, seen)
        for _ in range(50):
            if len(seen.arrived) >= learners:
                break
            await asyncio.sleep(0.1)
        await room.end(http)
    return seen


def main() -> int:
    """Prints the figures; a class that loses a prediction fails."""
    made = argparse.ArgumentParser(prog="python3 -m env.classroom.bench", description=__doc__)
    made.add_argument("--learners", type=int, default=100)
    made.add_argument("--seconds", type=float, default=5.0, help="within which all of them predict")
    made.add_argument("--join", metavar="ADDRESS", help="fill a class that runs on this machine, and measure nothing")
    made.add_argument("--code", default="", help="the code of that class")
    chosen = made.parse_args()
    if chosen.join:
        if not chosen.join.startswith(("http://127.0.0.1:", "http://localhost:")):
            raise ToolError(
                f"{chosen.join} is no class on this machine", "start one with make class, and name its address"
            )
        post = poster(chosen.join, chosen.code, chosen.learners)
        asyncio.run(learn(post, chosen.learners, chosen.seconds, Seen()))
        return 0
    seen = asyncio.run(measure(chosen.learners, chosen.seconds))
    late, missing = seen.delays[int(0.99 * (len(seen.delays) - 1))], chosen.learners - len(seen.delays)
    print(
        f"{chosen.learners} learners, {REQUESTS * chosen.learners} requests in {seen.wall:.1f} s; learners and class in one process"
    )
    print(
        f"from sending to the page: median {1e3 * statistics.median(seen.delays):.0f} ms, p99 {1e3 * late:.0f} ms, at most {1e3 * seen.delays[-1]:.0f} ms; missing {missing}"
    )
    return int(missing > 0)


if __name__ == "__main__":
    in_venv.enter(set_up=False)
    tool(main)
