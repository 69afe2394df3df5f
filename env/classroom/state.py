"""A class while it runs: who has joined, what they predicted, measured and passed. In memory alone, gone when the server ends."""

from __future__ import annotations

import math
import re
import statistics
from dataclasses import dataclass, field
from typing import Any

from env.classroom import questions

LEARNERS, LESSONS, QUESTIONS, EXERCISES, CELLS = 1000, 100, 200, 100, 500
NAME, WORDS = 40, 80
# So many times NOT YET without a PASS between them.
STUCK = 3
ID = re.compile(r"[0-9a-f]{32}")
QUESTION = re.compile(r"my_\w{1,60}(?:\[\d{1,2}\])?")


class BadRequestError(Exception):
    """What is wrong with a request, and its next step; `status` is HTTP's."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass
class Learner:
    """One notebook."""

    shown_as: str
    lesson: str
    named: bool = False
    order: int = 0
    guesses: dict[str, float] = field(default_factory=dict)
    measured: dict[str, float] = field(default_factory=dict)
    passed: set[str] = field(default_factory=set)
    # How many times NOT YET in a row.
    failing: dict[str, int] = field(default_factory=dict)
    cells: dict[str, bool] = field(default_factory=dict)


@dataclass(frozen=True)
class Asked:
    """What the course's own notebook of a lesson asks; empty for a notebook of the teacher's own."""

    questions: dict[str, str] | None
    exercises: int
    cells: set[str]


class Class:
    """Everything that the page shows."""

    def __init__(self) -> None:
        self.learners: dict[str, Learner] = {}
        self.lessons: dict[str, Asked] = {}
        self.count = 0
        # Grows with each change, so that a page is told once for many of them.
        self.version = 0

    def asked(self, lesson: str) -> Asked:
        """What a lesson asks, read once."""
        if lesson not in self.lessons:
            if len(self.lessons) >= LESSONS:
                raise BadRequestError(
                    400, "this class has too many lessons\nnext: ask the teacher to start `make class` anew"
                )
            self.lessons[lesson] = Asked(questions.questions(lesson), *questions.exercises(lesson))
        return self.lessons[lesson]

    def join(self, learner: str, lesson: str, name: str | None) -> dict[str, Any]:
        """A notebook joins, or joins again."""
        if not ID.fullmatch(learner) or not 1 <= len(lesson) <= WORDS:
            raise BadRequestError(
                400, "`learner` or `lesson` is missing or malformed\nnext: call lesson.join(address, code)"
            )
        if name is not None:
            name = " ".join("".join(one if one.isprintable() else " " for one in name).split())
            if not 1 <= len(name) <= NAME:
                raise BadRequestError(
                    400, f"a name has 1 to {NAME} letters\nnext: choose another, or join without one: lesson.join"
                )
        self.asked(lesson)
        known = self.learners.get(learner)
        if known is None and len(self.learners) >= LEARNERS:
            raise BadRequestError(
                503, f"{LEARNERS} notebooks have joined\nnext: ask the teacher to start `make class` anew"
            )
        if known is None:
            self.count += 1
        order = known.order if known else self.count
        note = ""
        shown = name or f"learner {order}"
        taken = {one.shown_as for key, one in self.learners.items() if key != learner and one.lesson == lesson}
        if shown in taken:
            note = f"another notebook of this class is {shown}\nnext: if that is not yours, call lesson.join_as with another name"
            shown = next(one for at in range(2, LEARNERS + 2) if (one := f"{shown} ({at})") not in taken)
        self.learners[learner] = known = known or Learner(shown, lesson)
        known.shown_as, known.lesson, known.named, known.order = shown, lesson, name is not None, order
        self.version += 1
        return {"shown_as": shown, "note": note}

    def shown_as(self, learner: str) -> str:
        """How a notebook is called here."""
        if learner not in self.learners:
            raise BadRequestError(404, "this notebook has not joined\nnext: call lesson.join(address, code)")
        return self.learners[learner].shown_as

    def leave(self, learner: str) -> None:
        """Deletes what is stored of a notebook."""
        if self.learners.pop(learner, None):
            self.version += 1

    def events(self, learner: str, events: list[Any]) -> list[str]:
        """Takes in what a notebook sends; what is wrong with single events, in order. The others count."""
        self.shown_as(learner)
        known = self.learners[learner]
        refused = []
        for event in events:
            why = self._event(known, event if isinstance(event, dict) else {})
            refused += [why] if why else []
        self.version += 1
        return refused

    def _event(self, learner: Learner, event: dict[str, Any]) -> str:
        kind = event.get("kind")
        if kind in ("guess", "measured"):
            question, value = event.get("question"), event.get("value")
            asked = self.asked(learner.lesson).questions
            if not isinstance(question, str) or not QUESTION.fullmatch(question) or (asked and question not in asked):
                return f"`{str(question)[:WORDS]}` is no prediction that this lesson asks for\nnext: keep the lesson's name of the variable"
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not _finite(value):
                return f"`{question}` is `{str(value)[:WORDS]}`, which is no number that a plot can show\nnext: write a number, such as Some(8.0)"
            place = learner.guesses if kind == "guess" else learner.measured
            if question not in place and len(place) >= QUESTIONS:
                return f"a notebook has at most {QUESTIONS} predictions\nnext: join from another notebook"
            # Who has seen the answer does not predict any more.
            if kind == "measured" or question not in learner.measured:
                place[question] = float(value)
        elif kind == "verdict" and isinstance(event.get("exercise"), str) and isinstance(event.get("passed"), bool):
            exercise = event["exercise"][:WORDS]
            if exercise not in learner.failing and len(learner.failing) >= EXERCISES:
                return f"a notebook has at most {EXERCISES} exercises\nnext: join from another notebook"
            learner.failing[exercise] = 0 if event["passed"] else learner.failing.get(exercise, 0) + 1
            if event["passed"]:
                learner.passed.add(exercise)
        elif kind == "cell" and isinstance(event.get("cell"), str):
            if len(learner.cells) < CELLS or event["cell"] in learner.cells:
                learner.cells[event["cell"][:WORDS]] = bool(event.get("failed"))
        else:
            return f"an event of the kind `{str(kind)[:WORDS]}` is not known here\nnext: use the same version of the course as the teacher"
        return ""

    def snapshot(self) -> dict[str, Any]:
        """What the page shows, as JSON."""
        lessons = []
        for name, asked in self.lessons.items():
            here = sorted((one for one in self.learners.values() if one.lesson == name), key=lambda one: one.order)
            if here:
                found = list(asked.questions or {}) or sorted(
                    {key for one in here for key in (*one.guesses, *one.measured)}
                )
                questions = [self._question(key, (asked.questions or {}).get(key, ""), here) for key in found]
                lessons.append({"lesson": name, "exercises": asked.exercises, "cells": len(asked.cells),
                                "questions": questions, "learners": [_row(one, asked) for one in here]})  # fmt: skip
        return {"version": self.version, "lessons": lessons}

    @staticmethod
    def _question(name: str, text: str, learners: list[Learner]) -> dict[str, Any]:
        values = [one.measured[name] for one in learners if name in one.measured]
        guesses = [one.guesses[name] for one in learners if name in one.guesses]
        span = [statistics.median(values), min(values), max(values)] if values else None
        return {"name": name, "text": text, "guesses": sorted(guesses), "measured": span}


def _row(learner: Learner, asked: Asked) -> dict[str, Any]:
    stuck = sorted(name for name, times in learner.failing.items() if times >= STUCK)
    ran = sum(1 for one in learner.cells if not asked.cells or one in asked.cells)
    return {"name": learner.shown_as, "ran": ran, "predicted": len(learner.guesses), "passed": len(learner.passed),
            "stuck": [f"{name}: {learner.failing[name]} times NOT YET" for name in stuck]}  # fmt: skip


def _finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False
