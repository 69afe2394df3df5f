"""What each cell has shown, for a page that is opened again: JupyterLab keeps outputs in the page alone."""

from __future__ import annotations

from typing import Any

TARGET = "gpulab.outputs"
SHOWN = ("stream", "display_data", "execute_result", "error")


class Memory:
    """The outputs of the last run of each cell."""

    def __init__(self) -> None:
        # By the page's name for the cell.
        self.cells: dict[str, dict[str, Any]] = {}
        self.requests: dict[str, dict[str, Any]] = {}

    def begin(self, cell: str, request: str, code: str) -> None:
        """A cell is run: what it showed before is gone."""
        before = self.cells.get(cell)
        if before:
            self.requests.pop(before["request"], None)
        seen = {"request": request, "code": code, "running": True, "count": None, "messages": []}
        self.cells[cell] = self.requests[request] = seen

    def note(self, request: str, kind: str, content: dict[str, Any]) -> None:
        """One message that a page gets."""
        seen = self.requests.get(request)
        if seen is None:
            return
        messages = seen["messages"]
        if kind == "stream" and messages and messages[-1][0] == kind and messages[-1][1]["name"] == content["name"]:
            messages[-1][1]["text"] += content["text"]
        elif kind in SHOWN:
            messages.append([kind, dict(content)])
        elif kind == "update_display_data":
            for one in messages:
                if one[1].get("transient") == content["transient"]:
                    one[1] = dict(content)
        elif kind == "clear_output":
            messages.clear()
        elif kind == "execute_input":
            seen["count"] = content["execution_count"]
        elif kind == "status" and content["execution_state"] == "idle":
            seen["running"] = False
