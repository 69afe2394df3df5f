"""Answers that are alike: told to the teacher, who knows whether two learners worked together. Nobody loses points by it."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict

# Shorter answers, a number from paper, are alike because they are right.
FEWEST_WORDS = 25
TOKEN = re.compile(r"[A-Za-z_]\w*|\d[\w.]*|\S")


def tokens(source: str) -> list[str]:
    """The words of an answer, without comments and white space; the kernel in a text is code, too."""
    without = re.sub(r"//[^\n]*|/\*.*?\*/", " ", source, flags=re.DOTALL)
    return TOKEN.findall(without)


def print_of(source: str, names: bool) -> str:
    """The same for two answers that differ in comments and white space; without `names`, in what things are called, too."""
    seen: dict[str, str] = {}
    words = tokens(source)
    if len(words) < FEWEST_WORDS:
        return ""
    if not names:
        words = [seen.setdefault(word, f"v{len(seen)}") if re.match(r"[A-Za-z_]", word) else word for word in words]
    return hashlib.sha256("\0".join(words).encode()).hexdigest()


def groups(answers: dict[str, dict[str, str]], known: dict[str, set[str]]) -> list[tuple[str, list[str], str]]:
    """Exercise, learners, and how alike: `answers` by learner and exercise. What is `known` (as handed out) is no copy."""
    found = []
    for exercise in sorted({name for one in answers.values() for name in one}):
        for names, how in ((True, "the same"), (False, "the same but for names")):
            handed_out = {print_of(text, names) for text in known.get(exercise, set())}
            alike = defaultdict(list)
            for learner, one in sorted(answers.items()):
                key = print_of(one.get(exercise, ""), names)
                if key and key not in handed_out:
                    alike[key].append(learner)
            said = [set(learners) for other, learners, _ in found if other == exercise]
            for learners in alike.values():
                if len(learners) > 1 and set(learners) not in said:
                    found.append((exercise, learners, how))
    return found
