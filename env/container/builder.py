"""Images without Docker: debootstrap makes what stands in for the base image, buildah runs the Dockerfile."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

SUITE = "noble"
ARCHIVE = "http://archive.ubuntu.com/ubuntu"
# The keys that Ubuntu signs its archive with; Debian has them in no package.
KEYRING = f"{ARCHIVE}/pool/main/u/ubuntu-keyring/ubuntu-keyring_2023.11.28.1_all.deb"
KEYRING_SHA256 = "36de43b15853ccae0028e9a767613770c704833f82586f28eb262f0311adb8a8"
# What this machine trusts beside the usual certificates, a company's own for example: https in the clean root needs it.
CERTIFICATES = Path("/usr/local/share/ca-certificates")
BASE, IMAGE = "localhost/gpulab-clean-root", "localhost/gpulab-test"
STEP = re.compile(r"(?:\[\d+/\d+\] )?STEP \d+/\d+: (.*)")


class Failed(Exception):
    """A command that failed, with its last words and a line `next: …`."""


@dataclass(frozen=True)
class Layer:
    """What one instruction of a Dockerfile left: the instruction, and the digest of its files."""

    made_by: str
    digest: str


@dataclass
class Builder:
    """buildah with a store of its own, so that nobody's images are touched."""

    folder: Path
    say: Callable[[str], None] = field(default=print)

    def buildah(self, *arguments: str | Path) -> str:
        """What it prints on stdout."""
        command = ["buildah", "--root", str(self.folder / "store"), "--runroot", str(self.folder / "run")]
        done = subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Failed(f"`buildah {arguments[0]}` failed: {done.stderr.strip()[-800:]}\nnext: read its message")
        return done.stdout.strip()

    def base(self) -> None:
        """Ubuntu's smallest system, as the image BASE."""
        keyring = self._keyring()
        container = self.buildah("from", "scratch")
        root = Path(self.buildah("mount", container))
        command = ["debootstrap", "--variant=minbase", "--include=ca-certificates", "--components=main,universe"]
        # Every Ubuntu is made alike; a Debian's debootstrap may not know the name of a new one.
        script = "/usr/share/debootstrap/scripts/gutsy"
        log = self.folder / "debootstrap.log"
        with log.open("wb") as file:
            done = subprocess.run(
                [*command, f"--keyring={keyring}", SUITE, str(root), ARCHIVE, script],
                stdout=file,
                stderr=file,
                check=False,
            )
        if done.returncode != 0:
            said = log.read_text(encoding="utf-8", errors="replace")[-800:]
            raise Failed(f"debootstrap failed:\n{said}\nnext: read its message; it needs {ARCHIVE}")
        for file in CERTIFICATES.glob("*.crt"):
            shutil.copy(file, root / CERTIFICATES.relative_to("/"))
        subprocess.run(["chroot", root, "update-ca-certificates"], check=True, capture_output=True)
        self.buildah("config", "--cmd", "/bin/bash", container)
        self.buildah("commit", container, BASE)
        self.buildah("rm", container)

    def _keyring(self) -> Path:
        archive, there = self.folder / "keyring.deb", self.folder / "keyring"
        with urllib.request.urlopen(KEYRING, timeout=60) as reply:
            data = reply.read()
        if hashlib.sha256(data).hexdigest() != KEYRING_SHA256:
            raise Failed(f"{KEYRING} is not the file that it was\nnext: compare it with Ubuntu's own list of packages")
        archive.write_bytes(data)
        subprocess.run(["dpkg-deb", "-x", archive, there], check=True)
        return there / "usr/share/keyrings/ubuntu-archive-keyring.gpg"

    def build(self, context: Path, dockerfile: str, arguments: dict[str, str]) -> None:
        """Builds IMAGE as `docker build` would, with what is known from an earlier build."""
        command = ["buildah", "--root", str(self.folder / "store"), "--runroot", str(self.folder / "run"), "bud"]
        # Docker's own format: HEALTHCHECK is no part of the other one.
        command += ["--layers", "--isolation", "chroot", "--network", "host", "--format", "docker"]
        for name, value in {"BASE": BASE, **arguments}.items():
            command += ["--build-arg", f"{name}={value}"]
        command += ["-f", dockerfile, "-t", IMAGE, "."]
        lines: list[str] = []
        with (self.folder / "build.log").open("w", encoding="utf-8") as log:
            process = subprocess.Popen(
                command, cwd=context, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
            )
            assert process.stdout is not None
            with process:
                for line in process.stdout:
                    log.write(line)
                    log.flush()
                    lines.append(line.rstrip())
                    if STEP.match(line):
                        self.say(f"  {line.strip()[:110]}")
        if process.returncode != 0:
            said = "\n".join(lines[-15:])
            raise Failed(f"the image could not be built:\n{said}\nnext: {self.folder}/build.log has all of it")

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
            raise Failed(f"{there[0]} is still mounted\nnext: umount it, then remove {self.folder}")
        shutil.rmtree(self.folder, ignore_errors=True)


def mounted(folder: Path, mounts: Path = Path("/proc/mounts")) -> list[str]:
    """What is mounted below a folder, the deepest first."""
    places = [line.split()[1] for line in mounts.read_text(encoding="utf-8").splitlines()]
    return [place for place in reversed(places) if place.startswith(f"{folder}/")]
