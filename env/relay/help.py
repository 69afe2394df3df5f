"""Completion and documentation (Tab, Shift-Tab) as evcxr gives them, in an order that helps, and never silent."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from env import paths
from env.relay.wire import Message

REQUESTS = ("complete_request", "inspect_request")
# Every value has these; who looks for them knows their names.
COMMON = re.compile(
    r"(into|try_into|borrow|borrow_mut|type_id|clone_into|to_owned|as_any|evcxr_display|__\w*)\b"
    # Snippets of the type analysis.
    r"|(?:box|dbg|dbgr|deref|match|ref|refm|let|letm|call|err|ok|some|return|break|unsafe|const|if|while|not)$"
)
FUNCTION = re.compile(r"^\s*(pub )?(?:pub\([a-z]+\) )?(?:const |unsafe |async )*fn (\w+)")
OF_A_TRAIT = re.compile(r"^(?:unsafe )?impl\b.*\bfor\b|^(?:pub(?:\([a-z]+\))? )?(?:unsafe )?trait\b")
NAME = re.compile(r"\w")
NOTHING = (
    "no documentation here: it is known for names that stand in this cell or that earlier cells brought in "
    "(`use`, `let`, `fn`)\nnext: put the cursor on a name, run the cells above, and press Shift-Tab again"
)


def found(text: str) -> dict[str, Any]:
    """An answer to Shift-Tab."""
    return {"status": "ok", "found": True, "data": {"text/plain": text}, "metadata": {}}


def later(request: Message, when: str) -> dict[str, Any]:
    """The answer while evcxr cannot give one."""
    if request.kind == "inspect_request":
        return found(f"the Rust kernel is busy: documentation is shown {when}")
    at = request.content.get("cursor_pos", 0)
    return {"status": "ok", "matches": [], "cursor_start": at, "cursor_end": at, "metadata": {}}


def at_name(request: Message) -> dict[str, Any]:
    """The request with the cursor behind the name on which it stands: evcxr looks only at what lies before it."""
    if request.kind != "inspect_request":
        return request.content
    code, at = request.content.get("code", ""), request.content.get("cursor_pos", 0)
    while at < len(code) and NAME.match(code[at]):
        at += 1
    return {**request.content, "cursor_pos": at}


@cache
def private() -> frozenset[str]:
    """Functions that the course's crates keep to themselves: the type analysis offers them, and the compiler refuses them."""
    theirs, ours = set(), set()
    for file in [*paths.CRATE.glob("src/**/*.rs"), *paths.CRATES.glob("*/src/**/*.rs")]:
        of_a_trait = False
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            if line[:1] not in ("", " ", "}"):
                of_a_trait = bool(OF_A_TRAIT.match(line))
            match = FUNCTION.match(line)
            if match:
                (theirs if match[1] or of_a_trait else ours).add(match[2])
    return frozenset(ours - theirs)


def sorted_matches(content: dict[str, Any]) -> dict[str, Any]:
    """What can be called; what every value has comes last."""
    matches = content.get("matches", [])
    types = content.get("metadata", {}).get("_jupyter_types_experimental", [{}] * len(matches))
    if len(types) != len(matches):
        return content
    hidden = private()
    pairs = [pair for pair in zip(matches, types, strict=True) if pair[0].split("(")[0] not in hidden]
    pairs.sort(key=lambda pair: bool(COMMON.match(pair[0])))
    metadata = {**content.get("metadata", {}), "_jupyter_types_experimental": [kind for _, kind in pairs]}
    return {**content, "matches": [name for name, _ in pairs], "metadata": metadata}


def not_silent(content: dict[str, Any]) -> dict[str, Any]:
    """evcxr's answer, or why there is none."""
    return content if content.get("found") else found(NOTHING)
