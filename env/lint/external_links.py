"""Asks every web address in notebooks and pages whether it still answers (`make links`). The only lint that needs a network."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

from env import in_venv
from env.console import ToolError, tool

TIMEOUT_S = 20
AT_ONCE = 8
# Some servers refuse what does not look like a browser.
AGENT = "Mozilla/5.0 (compatible; gpulab link check)"
# The server is there and the page may be: it only does not answer programs.
REFUSED = {401, 403, 405, 406, 429, 503, 999}


def addresses() -> dict[str, list[str]]:
    """Each address, without its anchor, and the files that name it."""
    from env import notebooks
    from env.lint import file_rules, page_rules

    found: dict[str, list[str]] = defaultdict(list)
    pages = [path for path in file_rules.files() if path.suffix == ".md"]
    texts = [(path, path.read_text(encoding="utf-8")) for path in pages]
    for path in notebooks.find():
        cells = notebooks.load(path).notebook.cells
        texts.append((path, "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")))
    for path, text in texts:
        for target in page_rules.links(text):
            if target.startswith(("http://", "https://")):
                found[target.partition("#")[0]].append(notebooks.relative(path))
    return dict(found)


def ask(address: str) -> str | int:
    """The status that the server gives, or why there is none."""
    request = urllib.request.Request(address, headers={"User-Agent": AGENT})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except (urllib.error.URLError, OSError, ValueError) as error:
        return str(getattr(error, "reason", error))


def check(found: dict[str, list[str]]) -> tuple[list[str], list[str]]:
    """What is gone, and what could not be told, as lines to print."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = dict(zip(found, pool.map(ask, found), strict=True))
    hosts = {urlsplit(address).netloc for address in found}
    unreached = {urlsplit(address).netloc for address, said in answers.items() if isinstance(said, str)}
    if hosts and unreached == hosts:
        raise ToolError(
            f"none of {len(hosts)} servers could be reached: {next(iter(answers.values()))}",
            "see that this machine is online, and run `make links` again",
        )
    gone, untold = [], []
    for address, said in answers.items():
        if isinstance(said, int) and (said < 400 or said in REFUSED):
            continue
        line = f"{address}: {said}; in {', '.join(sorted(set(found[address])))}"
        (gone if said in (404, 410) else untold).append(line)
    return gone, untold


def main() -> int:
    """1 when a page is gone."""
    found = addresses()
    gone, untold = check(found)
    for line in gone:
        print(f"gone: {line}\nnext: link to where it moved, or take the link out")
    for line in untold:
        print(f"no answer: {line}")
    print(f"{len(found)} addresses, {len(gone)} gone, {len(untold)} without an answer")
    return 1 if gone else 0


if __name__ == "__main__":
    in_venv.enter(set_up=False)
    tool(main)
