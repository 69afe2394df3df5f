"""Images without Docker: debootstrap makes what stands in for the base image, buildah runs the Dockerfile."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from env.command import answer, run
from env.console import ToolError

SUITE = "noble"
ARCHIVE = "http://archive.ubuntu.com/ubuntu"
# The keys that Ubuntu signs its archive with; Debian has them in no package.
KEYRING = f"{ARCHIVE}/pool/main/u/ubuntu-keyring/ubuntu-keyring_2023.11.28.1_all.deb"
KEYRING_SHA256 = "36de43b15853ccae0028e9a767613770c704833f82586f28eb262f0311adb8a8"
# What this machine trusts beside the usual certificates, a company's own for example: https in the clean root needs it.
CERTIFICATES = Path("/usr/local/share/ca-certificates")
BASE, IMAGE = "localhost/gpulab-clean-root", "localhost/gpulab-test"
STEP = re.compile(r"(?:\[\d+/\d+\] )?STEP \d+/\d+: (.*)")


@dataclass(frozen=True)
class Layer:
    """What one instruction of a Dockerfile left: the instruction, and the digest of its files."""

    made_by: str
    digest: str


@dataclass
class Builder:
    """buildah with a store of its own, so that nobody's images are touched."""

    folder: Path

    def buildah(self, *arguments: str | Path) -> str:
        """What it prints on stdout."""
        return answer([*self._program(), *arguments], "read its message")

    def _program(self) -> list[str | Path]:
        return ["buildah", "--root", self.folder / "store", "--runroot", self.folder / "run"]

    def base(self) -> None:
        """Ubuntu's smallest system, as the image BASE."""
        keyring = self._keyring()
        container = self.buildah("from", "scratch")
        root = Path(self.buildah("mount", container))
        command = ["debootstrap", "--variant=minbase", "--include=ca-certificates", "--components=main,universe"]
        # Every Ubuntu is made alike; a Debian's debootstrap may not know the name of a new one.
        script = "/usr/share/debootstrap/scripts/gutsy"
        command += [f"--keyring={keyring}", SUITE, str(root), ARCHIVE, script]
        run(command, "debootstrap failed", f"read its message; it needs {ARCHIVE}")
        for file in CERTIFICATES.glob("*.crt"):
            shutil.copy(file, root / CERTIFICATES.relative_to("/"))
        answer(["chroot", root, "update-ca-certificates"], "read its message")
        self.buildah("config", "--cmd", "/bin/bash", container)
        self.buildah("commit", container, BASE)
        self.buildah("rm", container)

    def _keyring(self) -> Path:
        archive, there = self.folder / "keyring.deb", self.folder / "keyring"
        with urllib.request.urlopen(KEYRING, timeout=60) as reply:
            data = reply.read()
        if hashlib.sha256(data).hexdigest() != KEYRING_SHA256:
            raise ToolError(f"{KEYRING} is not the file that it was", "compare it with Ubuntu's own list of packages")
        archive.write_bytes(data)
        answer(["dpkg-deb", "-x", archive, there], "read its message")
        return there / "usr/share/keyrings/ubuntu-archive-keyring.gpg"

    def build(self, context: Path, dockerfile: str, arguments: dict[str, str]) -> None:
        """Builds IMAGE as `docker build` would, with what is known from an earlier build."""
        # Docker's own format: HEALTHCHECK is no part of the other one.
        command = [*self._program(), "bud", "--layers", "--isolation=chroot", "--network=host", "--format=docker"]
        for name, value in {"BASE": BASE, **arguments}.items():
            command += ["--build-arg", f"{name}={value}"]
        command += ["-f", dockerfile, "-t", IMAGE, "."]
        with (self.folder / "build.log").open("w", encoding="utf-8") as log:

            def said(line: str) -> None:
                print(line, file=log, flush=True)
                if STEP.match(line):
                    print(f"  {line.strip()[:110]}", flush=True)

            step = f"{self.folder}/build.log has all of it"
            run(command, "the image could not be built", step, cwd=context, on_line=said)

    def layers(self) -> list[Layer]:
        """IMAGE's layers, the base first."""
        found = json.loads(self.buildah("inspect", "--type", "image", IMAGE))["OCIv1"]
        made = [entry.get("created_by", "") for entry in found["history"] if not entry.get("empty_layer")]
        return [Layer(*pair) for pair in zip(made, found["rootfs"]["diff_ids"], strict=True)]

    def configuration(self) -> dict:
        """IMAGE's environment, entry point and user, by Docker's names."""
        return json.loads(self.buildah("inspect", "--type", "image", IMAGE))["OCIv1"]["config"]

    def remove(self) -> None:
        """Everything: containers, images, the store."""
        if (self.folder / "store").exists():
            self.buildah("rm", "--all")
            self.buildah("rmi", "--all", "--force")
        for place in mounted(self.folder):
            subprocess.run(["umount", "--lazy", place], check=False)
        if there := mounted(self.folder):
            raise ToolError(f"{there[0]} is still mounted", f"umount it, then remove {self.folder}")
        shutil.rmtree(self.folder, ignore_errors=True)


def mounted(folder: Path, mounts: Path = Path("/proc/mounts")) -> list[str]:
    """What is mounted below a folder, the deepest first."""
    places = [line.split()[1] for line in mounts.read_text(encoding="utf-8").splitlines()]
    return [place for place in reversed(places) if place.startswith(f"{folder}/")]
