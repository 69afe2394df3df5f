"""What whoever publishes the course sets: the one place for the repository's address, in settings.json.

`repository` is https://github.com/OWNER/NAME (Colab opens notebooks from GitHub), or empty as long as there is none;
`bundle` is the address of a folder that holds the files of `make bundle`, such as a release's, or empty.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from env.console import ToolError
from env.notebooks import relative
from env.paths import ENV

FILE = ENV / "colab" / "settings.json"
ADDRESS = re.compile(r"https://github\.com/([A-Za-z0-9-]+)/([A-Za-z0-9._-]+?)(?:\.git)?/?")
BRANCH = re.compile(r"[A-Za-z0-9._/-]+")
BUNDLE = re.compile(r"(https|file)://\S+/")


@dataclass(frozen=True)
class Settings:
    """The address in its parts; `owner` is empty where none is set."""

    owner: str
    name: str
    branch: str
    bundle: str

    @property
    def repository(self) -> str:
        """Where git clones from; empty where no address is set."""
        return f"https://github.com/{self.owner}/{self.name}" if self.owner else ""

    def colab(self, notebook: str) -> str:
        """The page that opens a notebook of the edition in Colab."""
        return f"https://colab.research.google.com/github/{self.owner}/{self.name}/blob/{self.branch}/colab/{notebook}"

    def page(self, path: str) -> str:
        """The page that shows a file or folder of the repository."""
        return f"{self.repository}/blob/{self.branch}/{path}"

    def raw(self, path: str) -> str:
        """A file's own bytes: what a picture needs."""
        return f"https://raw.githubusercontent.com/{self.owner}/{self.name}/{self.branch}/{path}"


def load(file: Path = FILE) -> Settings:
    """The settings; what Colab could not use is a `ToolError`."""
    here = relative(file)
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
        texts = {name: str(values[name]).strip() for name in ("repository", "branch", "bundle")}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ToolError(f"{here} is damaged: {error!r}", "restore it with git") from error
    address = ADDRESS.fullmatch(texts["repository"])
    if texts["repository"] and not address:
        text = f"{here}: `{texts['repository']}` is no address that Colab opens"
        raise ToolError(text, "write https://github.com/OWNER/NAME, or nothing")
    if not BRANCH.fullmatch(texts["branch"]):
        raise ToolError(f"{here}: `{texts['branch']}` is no branch", "write the branch that is published, such as main")
    if texts["bundle"] and not BUNDLE.fullmatch(texts["bundle"]):
        step = "write the address of the folder with the files of `make bundle`, a / at its end, or nothing"
        raise ToolError(f"{here}: `{texts['bundle']}` is no address of a bundle", step)
    owner, name = address.groups() if address else ("", "")
    return Settings(owner, name, texts["branch"], texts["bundle"])
