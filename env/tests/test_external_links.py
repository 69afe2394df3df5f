"""Web addresses of the pages, asked of a server on this machine: what answers, what is gone, what cannot be told."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from env.console import ToolError
from env.lint import external_links

STATUS = {"/good": 200, "/gone": 404, "/shy": 403, "/broken": 500}


class Pages(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(STATUS[self.path])
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def test_what_is_gone_is_told_from_what_does_not_answer(server):
    found = {f"{server}{path}": ["a.md", "b.md", "a.md"] for path in STATUS} | {"http://127.0.0.1:1/": ["c.md"]}
    gone, untold = external_links.check(found)
    assert gone == [f"{server}/gone: 404; in a.md, b.md"]
    assert [line.split(": ")[0] for line in untold] == [f"{server}/broken", "http://127.0.0.1:1/"]


def test_without_a_network_nothing_is_called_gone():
    with pytest.raises(ToolError, match="none of 1 servers could be reached") as error:
        external_links.check({"http://127.0.0.1:1/": ["a.md"]})
    assert "make links" in error.value.next_step


def test_the_course_names_each_address_with_its_files_and_without_anchors():
    found = external_links.addresses()
    assert len(found) > 20
    assert all(files and "#" not in address for address, files in found.items())
