"""`make class`: what notebooks send, what the teacher's machine takes, and what happens to it; the contest's judge and places."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from env import paths

pytest.importorskip("tornado")
import tornado.httpserver
import tornado.netutil
from env.classroom import bench, contest, questions, server, state
from env.relay import CLASS
from env.relay.classroom import Classroom, joining

LESSON = "10_vector_add"
ME, OTHER = "a" * 32, "b" * 32


class Running:
    """A class in a thread of its own, on the loopback address."""

    def __init__(self, port: int = 0, code: str = "ABC234", judge: contest.Judge | None = None) -> None:
        self.loop = asyncio.new_event_loop()
        self.room, self.port = server.Room(code, "token", "http://here", judge), port
        started = threading.Event()
        self.thread = threading.Thread(target=self.run, args=(started,), daemon=True)
        self.thread.start()
        assert started.wait(20)
        self.address = f"http://127.0.0.1:{self.port}"

    def run(self, started: threading.Event) -> None:
        asyncio.set_event_loop(self.loop)

        async def listen() -> tornado.httpserver.HTTPServer:
            http = tornado.httpserver.HTTPServer(server.application(self.room), max_body_size=server.BODY_READ)
            http.add_sockets(sockets := tornado.netutil.bind_sockets(self.port, "127.0.0.1", reuse_port=False))
            self.port = sockets[0].getsockname()[1]
            return http

        self.http = self.loop.run_until_complete(listen())
        started.set()
        self.loop.run_forever()

    def end(self) -> None:
        asyncio.run_coroutine_threadsafe(self.room.end(self.http), self.loop).result(20)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(20)

    def post(self, path: str, body: object, **extra: object) -> tuple[int, dict]:
        data = body if isinstance(body, bytes) else json.dumps({"code": "ABC234", "learner": ME, "lesson": LESSON, **body, **extra}).encode()  # fmt: skip
        return self.ask(urllib.request.Request(f"{self.address}{path}", data))

    def ask(self, request: urllib.request.Request) -> tuple[int, dict]:
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def question(self, name: str) -> dict:
        [lesson] = self.room.state.snapshot()["lessons"]
        return next(one for one in lesson["questions"] if one["name"] == name)


@pytest.fixture
def running() -> Iterator[Running]:
    one = Running()
    yield one
    one.end()


def until(test, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not test():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.02)


# What cells ask and say.


@pytest.mark.parametrize(("text", "value"), [("8.0", 8), ("5_000.0", 5000), ("1e3", 1000), ("100.0 / 8.0", 12.5), ("3f64", 3),
                                             ("-2.5", -2.5), ("2.0 * (3.0 + 1.0)", 8), ("512usize", 512)])  # fmt: skip
def test_numbers_as_rust_writes_them(text: str, value: float) -> None:
    assert questions.number(text) == value


@pytest.mark.parametrize("text", ["f64::NAN", "f64::INFINITY", "1e999", "1.0 / 0.0", '"eight"', "true", "x", "", "9" * 400, "(" * 400,
                                  "2.0 ** 9.0 ** 9.0", "__import__('os')"])  # fmt: skip
def test_what_is_no_number_is_named(text: str) -> None:
    with pytest.raises(questions.NoNumberError):
        questions.number(text)


def test_predictions_are_read_from_a_cell() -> None:
    code = """// How many?
let my_factor: Option<f64> = Some(8.0); // your guess
let my_sectors: [Option<f64>; 2] = [Some(4.0), None];
let my_used: [Option<u64>; 3] = [None; 3];
let my_side: Option<usize> = Some(512);
let my_stage: Option<&str> = Some("join");
let my_case: Option<(check::Idle, f64)> = None;
let other: Option<f64> = Some(1.0);"""
    assert list(questions.guesses(code)) == [
        ("my_factor", "8.0"), ("my_sectors[0]", "4.0"), ("my_sectors[1]", None), ("my_used[0]", None), ("my_used[1]", None),
        ("my_used[2]", None), ("my_side", "512")]  # fmt: skip


def test_the_lessons_questions_have_words_and_no_exercise_is_one() -> None:
    asked = questions.questions(LESSON)
    assert asked and asked["my_factor"].startswith("Pieces against neighbours") and "my_shifted_sectors" not in asked
    assert questions.questions("../secret") is None and questions.questions("99_none") is None


def test_most_predictions_of_recorded_lessons_meet_their_measurement() -> None:
    """As recorded, where no prediction was made: the printed line still says which one it belongs to."""
    asked, found = 0, 0
    for place in sorted((paths.ROOT / "results" / "h200").glob("[0-9]*.ipynb")):
        known = dict.fromkeys(questions.questions(place.stem) or {})
        seen: dict[str, float] = {}
        for cell in json.loads(place.read_text(encoding="utf-8"))["cells"]:
            printed = [
                "".join(one.get("text", "")) for one in cell.get("outputs", []) if one["output_type"] == "stream"
            ]
            lines = [line for line in "".join(printed).splitlines() if "predict" in line]
            seen |= dict(questions.measured("".join(cell["source"]), lines, known))
        asked, found = asked + sum("[" not in name for name in known), found + sum("[" not in name for name in seen)
    assert found > asked / 2, f"{found} of {asked}"


def test_a_measurement_belongs_to_the_prediction_that_its_cell_names() -> None:
    code = 'println!("a: {}; you predicted {}", a, predicted(my_a));\nfor x in [my_b, my_c] {}'
    lines = ["a: 3; you predicted 2", "b: 5 times; you predicted 7.00", "c: 6 %; you predicted none yet"]
    assert dict(questions.measured(code, lines, {"my_a": 2.0, "my_b": 7.0, "my_c": None})) == {
        "my_a": 3,
        "my_b": 5,
        "my_c": 6,
    }
    # Fewer lines than names: only a number that one of them has decides.
    assert dict(questions.measured(code, lines[1:2], {"my_a": 2.0, "my_b": 7.0, "my_c": 7.0})) == {}
    assert dict(questions.measured(code, lines[1:2], {"my_a": 2.0, "my_b": 7.0, "my_c": None})) == {"my_b": 5}


# The teacher's machine.


def test_a_class_collects_and_forgets(running: Running) -> None:
    assert running.post("/join", {}) == (200, {"class": True, "shown_as": "learner 1", "note": ""})
    assert running.post("/join", {"learner": OTHER, "name": " Ada  L. "})[1]["shown_as"] == "Ada L."
    events = [{"kind": "guess", "question": "my_factor", "value": 8}, {"kind": "guess", "question": "my_factor", "value": 9},
              {"kind": "measured", "question": "my_factor", "value": 17.3}, {"kind": "guess", "question": "my_factor", "value": 17.3},
              {"kind": "cell", "cell": "measured-table", "failed": False}]  # fmt: skip
    assert running.post("/events", {"events": events})[1] == {"class": True, "refused": []}
    # Who has seen the answer does not predict any more.
    assert running.question("my_factor")["guesses"] == [9.0]
    assert running.question("my_factor")["measured"] == [17.3, 17.3, 17.3]
    fails = [{"kind": "verdict", "exercise": "scale", "passed": False}] * state.STUCK
    running.post("/events", {"events": fails})
    [lesson] = running.room.state.snapshot()["lessons"]
    assert lesson["learners"][0]["stuck"] == ["scale: 3 times NOT YET"] and lesson["learners"][0]["ran"] == 1
    running.post("/events", {"events": [{"kind": "verdict", "exercise": "scale", "passed": True}]})
    [lesson] = running.room.state.snapshot()["lessons"]
    assert (lesson["learners"][0]["stuck"], lesson["learners"][0]["passed"]) == ([], 1)
    # Joining again, after the kernel was restarted, loses nothing; leaving deletes.
    running.post("/join", {})
    assert running.question("my_factor")["guesses"] == [9.0]
    running.post("/leave", {})
    assert running.question("my_factor")["guesses"] == [] and ME not in running.room.state.learners


def test_two_with_one_name_are_both_there_and_told(running: Running) -> None:
    running.post("/join", {"name": "Ada"})
    said = running.post("/join", {"learner": OTHER, "name": "Ada"})[1]
    assert said["shown_as"] == "Ada (2)" and "next: " in said["note"]
    assert {one.shown_as for one in running.room.state.learners.values()} == {"Ada", "Ada (2)"}


BAD = [
    ("/join", {"code": "WRONG2"}, 403, "not the code"), ("/join", {"code": None}, 403, "not the code"),
    ("/join", b"{", 400, "no JSON object"), ("/join", b"[1]", 400, "no JSON object"), ("/join", b"\xff", 400, "no JSON object"),
    ("/join", {"learner": "x"}, 400, "malformed"), ("/join", {"lesson": ""}, 400, "malformed"),
    ("/join", {"name": 7}, 400, "no text"), ("/join", {"name": "x" * 41}, 400, "1 to 40"), ("/join", {"name": "\n"}, 400, "1 to 40"),
    ("/events", {"events": []}, 404, "has not joined"), ("/events", {"events": 3}, 400, "no list"),
    ("/events", {"events": [], "much": "x" * server.BODY}, 413, "at most 64 KiB"),
    ("/submit", {"task": "transpose", "source": "x"}, 404, "has not joined"), ("/nowhere", {}, 404, "no such path"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body", "status", "said"), BAD)
def test_what_cannot_be_taken_is_told_with_the_next_step(
    running: Running, path: str, body: object, status: int, said: str
) -> None:
    got, answer = running.post(path, body)
    assert (got, said in answer["error"], "\nnext: " in answer["error"]) == (status, True, True), answer


NUMBERS = [b"NaN", b"Infinity", b"-Infinity", b"1e999", b'"eight"', b"true", b"null", b"[8]", b"1" * 400]


@pytest.mark.parametrize("value", NUMBERS)
def test_a_prediction_that_is_no_number_is_told_and_the_others_count(running: Running, value: bytes) -> None:
    running.post("/join", {})
    body = (
        b'{"code": "ABC234", "learner": "' + ME.encode() + b'", "events": [{"kind": "guess", "question": "my_factor", "value": '
        + value + b'}, {"kind": "guess", "question": "my_sectors[0]", "value": 4}, {"kind": "guess", "question": "my_other", "value": 4}, 7]}'
    )  # fmt: skip
    status, answer = running.post("/events", body)
    assert status == 200 and len(answer["refused"]) == 3 and all("\nnext: " in one for one in answer["refused"])
    assert "no number" in answer["refused"][0] and "no prediction that this lesson asks for" in answer["refused"][1]
    assert running.question("my_sectors[0]")["guesses"] == [4.0] and running.question("my_factor")["guesses"] == []


def test_codes_are_not_guessed(running: Running) -> None:
    said = [running.post("/join", {"code": f"WRONG{at}"})[0] for at in range(server.WRONG + 2)]
    assert said[0] == 403 and said[-1] == 429


def test_the_page_is_the_teachers_alone(running: Running) -> None:
    for path in ("/", "/stream", "/board", "/?token=wrong"):
        status, answer = running.ask(urllib.request.Request(f"{running.address}{path}"))
        assert (status, "next: " in answer["error"]) == (403, True), path
    request = urllib.request.Request(f"{running.address}/", headers={"Cookie": f"{server.COOKIE}=token"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        page = answer.read().decode()
    assert "ABC234" in page and "{{" not in page and answer.headers["Cache-Control"] == "no-store"


def test_a_class_of_learners_sees_each_prediction_on_the_page() -> None:
    """With fewer than the bench has: how soon is recorded there, and asserted nowhere."""
    seen = asyncio.run(bench.measure(12, 0.2))
    assert len(seen.delays) == 12 and seen.delays[0] > 0


# A notebook's side.


def cell(code: str, *printed: str, verdicts: tuple[dict, ...] = ()) -> SimpleNamespace:
    request = SimpleNamespace(content={"code": code}, metadata={"cellId": "measured-table"})
    return SimpleNamespace(request=request, predicted=list(printed), verdicts=list(verdicts), failed=False, errors=SimpleNamespace(seen=[]))  # fmt: skip


def joined(address: str, **more: object) -> Classroom:
    rung = threading.Event()
    one = Classroom({"lesson": LESSON, "address": address, "code": "abc234", **more}, b"secret", rung.set)
    assert one.ended or rung.wait(20)
    return one


def test_a_notebook_sends_what_it_predicts_measures_and_passes(running: Running) -> None:
    notebook = joined(running.address, name="Ada")
    assert "you are shown as Ada" in notebook.news()
    notebook.cell(cell("let my_factor: Option<f64> = Some(8.0);"))
    notebook.cell(
        cell(
            "x(my_factor)",
            "neighbours ÷ pieces: 17.3; you predicted 8",
            verdicts=({"exercise": "scale", "verdict": "PASS"},),
        )
    )
    until(lambda: running.room.state.learners and running.question("my_factor")["measured"])
    assert running.question("my_factor")["guesses"] == [8.0]
    [learner] = running.room.state.learners.values()
    assert learner.passed == {"scale"} and learner.cells == {"measured-table": False}
    notebook.cell(
        cell("let my_factor: Option<f64> = Some(f64::NAN);\nlet my_shifted_sectors: Option<f64> = Some(3.0);")
    )
    assert "`f64::NAN`, which is no number" in (news := notebook.news()) and "next: " in news
    # The same notebook after its kernel was restarted is nobody else.
    assert joined(running.address, name="Ada").learner == notebook.learner and len(running.room.state.learners) == 1
    notebook.leave()
    until(lambda: not running.room.state.learners)


def test_without_network_cells_go_on_and_all_is_sent_later() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    notebook = joined(f"http://127.0.0.1:{port}")
    news = notebook.news()
    assert news.count("no answer from") == 1 and "kept and sent later\nnext: " in news
    notebook.cell(cell("let my_factor: Option<f64> = Some(8.0);"))
    time.sleep(0.2)
    assert notebook.news() == ""
    running = Running(port)
    until(lambda: running.room.state.learners and running.question("my_factor")["guesses"] == [8.0])
    until(lambda: "answers again" in notebook.news())
    running.end()


@pytest.mark.parametrize(("asked", "said"), [({"code": "WRONG2"}, "not the code"), ({"name": "x" * 99}, "1 to 40"),
                                             ({"address": "ftp://x"}, "no address"), ({"address": "http://[::1"}, "no address"),
                                             ({"address": ""}, "no address"), ({"address": "http://x:99999"}, "no address")])  # fmt: skip
def test_a_notebook_that_is_refused_is_told_and_sends_nothing(running: Running, asked: dict, said: str) -> None:
    notebook = joined(**{"address": running.address, **asked})
    until(lambda: notebook.ended)
    assert said in (news := notebook.news()) and "next: " in news
    notebook.cell(cell("let my_factor: Option<f64> = Some(8.0);"))
    assert not notebook.waiting and not running.room.state.learners


def test_what_join_says_is_taken_out_of_the_output() -> None:
    data = {CLASS: '{"lesson": "x", "address": "y"}', "image/svg+xml": "<svg/>"}
    assert joining(data) == {"lesson": "x", "address": "y"} and data == {"image/svg+xml": "<svg/>"}
    assert joining({CLASS: "damaged"}) == {}


def test_the_relay_joins_sends_and_leaves(running: Running, tmp_path: Path) -> None:
    pytest.importorskip("jupyter_client")
    from env.tests.test_relay import Client

    (tmp_path / "ready").touch()
    page = Client(tmp_path)
    asked = {"lesson": LESSON, "address": running.address, "code": "ABC234"}
    assert "class: joined, without a name" in page.run(f"class {json.dumps(asked)}")
    assert page.run("let my_factor: Option<f64> = Some(8.0);") == ""
    page.run("say neighbours ÷ pieces: 17.3; you predicted 8\nx(my_factor);")
    page.run('verdict {"exercise": "scale", "verdict": "NOT YET"}')
    until(lambda: any(one.failing for one in running.room.state.learners.values()))
    assert running.question("my_factor")["guesses"] == [8.0] and running.question("my_factor")["measured"][0] == 17.3
    assert "holds no contest" in page.run('class {"lesson": "x", "task": "transpose", "source": "y"}')
    assert "class: left" in page.run(f'class {{"lesson": "{LESSON}"}}')
    until(lambda: not running.room.state.learners)
    page.run("let my_factor: Option<f64> = Some(9.0);")
    assert not running.room.state.learners
    page.client.stop_channels()
    page.manager.shutdown_kernel(now=True)


# The command.


def command(**settings: str) -> subprocess.Popen:
    environment = {**os.environ, "GPULAB_SET_UP": "1", **settings}
    return subprocess.Popen([sys.executable, "-m", "env.classroom"], cwd=paths.ROOT, env=environment, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip


def test_the_command_says_how_to_join_and_what_it_deletes() -> None:
    with command(PORT="0") as process:
        said = [process.stdout.readline() for _ in range(5)]
        found = re.search(r'lesson.join\("(http://127.0.0.1:\d+)", "(\w{6})"\)', "".join(said))
        assert found and "?token=" in said[0] and "only this machine can join" in said[3]
        notebook = Classroom({"lesson": LESSON, "address": found[1], "code": found[2]}, b"s", lambda: None)
        until(lambda: notebook.joined)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, "") and "what 1 notebook sent is deleted" in out


@pytest.mark.parametrize(("settings", "said"), [({"PORT": "70000"}, "no port number"), ({"PORT": "x"}, "no port number"),
                                                ({"HOST": "203.0.113.9", "PORT": "0"}, "no class at"), ({"CONTEST": "sort"}, "is no task")])  # fmt: skip
def test_the_command_refuses_what_it_cannot_do(settings: dict[str, str], said: str) -> None:
    with command(**settings) as process:
        _, err = process.communicate(timeout=30)
    assert process.returncode == 1 and said in err and "next: " in err


# The contest. The program is a stand-in; what it judges is tested beside it, in crates/lessons/src/contest.rs.


def judge(tmp_path: Path, script: str, **more: float) -> contest.Judge:
    program = tmp_path / "gpulab"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return contest.Judge(program, ["transpose"], **more)


PASSES = '{"passed": true, "traffic": 10, "instructions": 5, "gpu_us": null}'


@pytest.mark.parametrize(("script", "said"), [
    ("sleep 60", "has not ended after 0.5 s"), ("yes", "without a verdict"), ("kill -9 $$", "without a verdict"),
    (f"echo '{PASSES}'; kill -9 $$", "without a verdict"),
    ("echo no json", "without a verdict"), (f"echo '{PASSES}'; exit 3", "without a verdict"), ("sleep 60 & echo nothing", "has not ended after 0.5 s"),
    (f"echo '{PASSES}'; echo '{{\"passed\": false, \"what\": \"wrong\"}}'", "wrong"),
    ("head -c 1000 /dev/zero > file || echo '{\"passed\": false, \"what\": \"no file\"}'", ""),
])  # fmt: skip
def test_an_entry_that_misbehaves_has_no_place(tmp_path: Path, script: str, said: str) -> None:
    wall = 0.5 if "sleep 60" in script else 20
    found = asyncio.run(judge(tmp_path, script, wall_s=wall).of(ME, "transpose", "source"))
    assert found["passed"] is False and said in found["what"]


def test_an_entry_gets_its_source_and_nothing_of_the_teachers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_TEACHER", "x")
    script = f'[ "$(cat)" = source ] && [ "$1 $2" = "contest transpose" ] && [ -z "$SECRET_OF_THE_TEACHER" ] && [ -z "$(ls)" ] && echo \'{PASSES}\''
    assert asyncio.run(judge(tmp_path, script).of(ME, "transpose", "source"))["passed"] is True


def test_places_follow_the_score_and_the_first_of_two_that_are_equal() -> None:
    board = contest.Board(["transpose"])
    verdict = {"passed": True, "traffic": 100, "instructions": 50, "gpu_us": None}
    assert board.enter("transpose", "a", "Ada", {"passed": False, "what": "x"}) is None
    assert board.enter("transpose", "b", "Bob", verdict) == 1
    assert board.enter("transpose", "a", "Ada", dict(verdict)) == 2
    assert board.enter("transpose", "a", "Ada", {**verdict, "instructions": 40}) == 1
    # A worse one, or a wrong one, takes nothing away.
    assert board.enter("transpose", "a", "Ada", {**verdict, "traffic": 900}) == 1
    [shown] = board.snapshot()
    assert [(row["name"], row["tries"]) for row in shown["rows"]] == [("Ada", 4), ("Bob", 1)]
    board.leave("a")
    assert board.snapshot()[0]["rows"][0]["name"] == "Bob"


def test_a_notebook_submits_and_reads_its_place(tmp_path: Path) -> None:
    pytest.importorskip("jupyter_client")
    from env.tests.test_relay import Client

    running = Running(judge=judge(tmp_path, f"cat > /dev/null; sleep 0.5; echo '{PASSES}'"))
    (tmp_path / "ready").touch()
    page = Client(tmp_path)
    page.run("class " + json.dumps({"lesson": LESSON, "address": running.address, "code": "ABC234"}))

    def submit(task: str, source: str) -> str:
        """The cell waits for its verdict."""
        return page.run("class " + json.dumps({"lesson": LESSON, "task": task, "source": source}))

    assert submit("transpose", "source") == "contest: PASS: place 1, with a traffic of 10 and 5 instructions\n"
    for task, source, said in (
        ("sort", "x", "no task of this contest"),
        ("transpose", "", "1 to 20000"),
        ("transpose", "x" * 20_001, "1 to"),
    ):
        assert said in (told := submit(task, source)) and "next: " in told
    page.run(f'class {{"lesson": "{LESSON}"}}')
    until(lambda: not running.room.board.snapshot()[0]["rows"])
    assert "has joined no class" in submit("transpose", "source")
    page.client.stop_channels()
    page.manager.shutdown_kernel(now=True)
    running.end()


def test_the_tasks_are_those_of_the_program() -> None:
    source = (paths.ROOT / "crates" / "lessons" / "src" / "contest.rs").read_text(encoding="utf-8")
    assert tuple(re.findall(r'Task::\w+ => "(\w+)"', source)) == contest.TASKS
