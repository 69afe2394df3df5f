#!/usr/bin/env python3
"""The class's predictions on the teacher's screen (`make class`): notebooks that call lesson.join(address, code) send theirs.

Everything is kept in memory, and gone when this ends. It listens at this machine's own address; HOST=0.0.0.0 lets the room in.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import signal
import socket

from env import in_venv
from env.classroom import contest
from env.console import ToolError, tool
from env.setup import gpulab_program

PORT = 8123


def own_address(host: str) -> str:
    """What others call this machine, where it listens to them."""
    if host not in ("0.0.0.0", "::", ""):
        return f"[{host}]" if ":" in host else host
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Sends nothing: it asks which of this machine's addresses a way out would have.
            probe.connect(("192.0.2.1", 9))
            return probe.getsockname()[0]
        except OSError:
            return socket.gethostname()


async def serve(host: str, port: int, judge: contest.Judge | None) -> None:
    """Until Ctrl-C."""
    import tornado.httpserver
    import tornado.netutil

    from env.classroom import server

    try:
        sockets = tornado.netutil.bind_sockets(port, host)
    except (OSError, OverflowError) as error:
        raise ToolError(
            f"no class at {host}, port {port}: {error}", "make class PORT=8124, or leave HOST and PORT out"
        ) from None
    port = sockets[0].getsockname()[1]
    address = f"http://{own_address(host)}:{port}"
    room = server.Room(server.new_code(), secrets.token_urlsafe(16), address, judge)
    http = tornado.httpserver.HTTPServer(
        server.application(room), max_body_size=server.BODY_READ, idle_connection_timeout=60
    )
    http.add_sockets(sockets)
    here = "127.0.0.1" if host in ("0.0.0.0", "") else own_address(host)
    print(f"your screen:       http://{here}:{port}/?token={room.token}")
    print(f'learners write:    lesson.join("{address}", "{room.code}")')
    print(f'or with a name:    lesson.join_as("{address}", "{room.code}", "NAME")')
    if judge:
        print(f'for the contest:   lesson.submit("{judge.tasks[0]}", SOURCE)   ({", ".join(judge.tasks)})')
    if host in ("127.0.0.1", "localhost", "::1"):
        print("only this machine can join; for the room: make class HOST=0.0.0.0")
    print("everything is in memory alone; Ctrl-C ends the class and deletes it", flush=True)
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    await ended.wait()
    await room.end(http)
    learners = len(room.state.learners)
    print(f"\nthe class has ended: what {learners} notebook{'s' * (learners != 1)} sent is deleted", flush=True)


def main() -> int:
    """Runs the class."""
    made = argparse.ArgumentParser(prog="python3 -m env.classroom", description=__doc__)
    made.add_argument(
        "--host", default=os.environ.get("HOST") or "127.0.0.1", help="where it listens: 0.0.0.0 for the room"
    )
    made.add_argument("--port", default=os.environ.get("PORT") or str(PORT), help="its port; 0 is any that is free")
    made.add_argument("--contest", default=os.environ.get("CONTEST", ""), metavar="TASKS",
                      help=f"hold a contest of kernels, for example {','.join(contest.TASKS)}")  # fmt: skip
    made.add_argument(
        "--gpu", action="store_true", default=bool(os.environ.get("GPU")), help="time entries on the NVIDIA GPU"
    )
    chosen = made.parse_args()
    if not chosen.port.isdigit() or int(chosen.port) >= 1 << 16:
        raise ToolError(f"PORT={chosen.port} is no port number up to 65535", "make class PORT=8123")
    tasks = [one.strip() for one in chosen.contest.split(",") if one.strip()]
    unknown = [one for one in tasks if one not in contest.TASKS]
    if unknown:
        raise ToolError(f"CONTEST={unknown[0]} is no task", f"make class CONTEST={','.join(contest.TASKS)}")
    judge = contest.Judge(gpulab_program.built(), tasks, chosen.gpu) if tasks else None
    asyncio.run(serve(chosen.host, int(chosen.port), judge))
    return 0


if __name__ == "__main__":
    # A class begins in a second: what the set-up builds is for notebooks.
    in_venv.enter(set_up=False)
    tool(main)
