"""A container of the image, as `docker run` would start it, on this machine's network: files, processes and users apart."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from env.command import answer
from env.console import ToolError
from env.container.builder import IMAGE, Builder

# What Docker lets a container's root do.
CAPABILITIES = (
    "chown,dac_override,fowner,fsetid,kill,setgid,setuid,setpcap,net_bind_service,net_raw,sys_chroot,mknod,"
    "audit_write,setfcap"
)
# In mounts and processes of its own: $1 is the root, $2 the folder at /workspace or nothing, $3 chroot's user.
START = """
set -e
root=$1 work=$2 user=$3; shift 3
mount --make-rprivate /
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
touch "$root/etc/resolv.conf"
mount --bind /etc/resolv.conf "$root/etc/resolv.conf"
if [ -n "$work" ]; then mount --bind "$work" "$root/workspace"; fi
bound=-all,+$(echo "$CAPABILITIES" | sed 's/,/,+/g')
exec setpriv --bounding-set="$bound" chroot $user "$root" "$@"
"""
ADDRESS = re.compile(r"http://localhost:(\d+)/lab\S*\?token=(\w+)")
ANSWER_S, END_S = 180, 20


@dataclass
class Container:
    """One that runs, or ran."""

    root: Path
    process: subprocess.Popen[bytes]
    log: Path

    def said(self) -> str:
        """All that it printed so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def first(self) -> int:
        """The number of its first process, as seen from here."""
        return children(self.process)[0]

    def address(self) -> tuple[int, str, float]:
        """The port and the token that it prints, and after how many seconds."""
        started = time.monotonic()
        while not (found := ADDRESS.search(self.said())):
            if self.process.poll() is not None or time.monotonic() - started > ANSWER_S:
                raise ToolError(f"no address was printed:\n{self.said()[-1500:]}", "read its message")
            time.sleep(0.1)
        return int(found[1]), found[2], time.monotonic() - started

    def users(self) -> set[int]:
        """Whom its processes belong to."""
        space = os.readlink(f"/proc/{self.first()}/ns/pid")
        found = set()
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if os.readlink(process / "ns/pid") == space:
                    found.add(process.stat().st_uid)
            except OSError:  # ended meanwhile
                continue
        return found

    def layer(self) -> Path:
        """The folder with what it wrote beside its mounts, in whole files."""
        mounts = (line.split() for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines())
        options = next(mount[3] for mount in mounts if mount[1] == str(self.root) and mount[2] == "overlay")
        return Path(next(one.partition("=")[2] for one in options.split(",") if one.startswith("upperdir=")))

    def run(self, user: int, *command: str) -> subprocess.CompletedProcess[str]:
        """A command beside the others, as `docker exec` starts it."""
        enter = ["nsenter", "-t", str(self.first()), "-m", "-p", "-r", "-w", "-G", str(user), "-S", str(user)]
        return subprocess.run([*enter, *command], capture_output=True, text=True, check=False)

    def stop(self) -> float:
        """As `docker stop` does; gives the seconds that it took."""
        started = time.monotonic()
        os.kill(self.first(), signal.SIGTERM)
        self.process.wait(timeout=END_S)
        return time.monotonic() - started


@contextmanager
def started(
    builder: Builder, name: str, work: Path | None, *command: str, user: int | None = None, **environment: str
) -> Iterator[Container]:
    """`docker run -v WORK:/workspace -e … [--user USER:USER] IMAGE COMMAND`; it is gone with the block."""
    made = builder.buildah("from", "--pull-never", IMAGE)
    root = Path(builder.buildah("mount", made))
    config = builder.configuration()
    variables = [*config.get("Env", []), *(f"{key}={value}" for key, value in environment.items())]
    inside = ["/usr/bin/env", "-i", *variables, *config["Entrypoint"], *command]
    chroot = f"--userspec={user}:{user}" if user is not None else "--userspec=0:0"
    outside = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", START, "start"]
    log = builder.folder / f"{name}.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [*outside, str(root), str(work or ""), chroot, *inside],
            env={**os.environ, "CAPABILITIES": CAPABILITIES},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        )
    try:
        yield Container(root, process, log)
    finally:
        end(process)
        builder.buildah("rm", made)


def end(process: subprocess.Popen[bytes]) -> None:
    """With their first one all processes of the container end; `--kill-child` is lost when that becomes another user."""
    for number in (*children(process), process.pid) if process.poll() is None else ():
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
    process.wait()


def children(process: subprocess.Popen[bytes]) -> list[int]:
    """The processes that it has started and that still run."""
    listed = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(number) for number in listed.read_text(encoding="ascii").split()] if listed.exists() else []


def refusal(builder: Builder, name: str, work: Path | None, *command: str, **options: object) -> str:
    """What a container says that ends at once with an error."""
    with started(builder, name, work, *command, **options) as container:  # type: ignore[arg-type]
        status = container.process.wait(timeout=ANSWER_S)
        said = container.said()
    if status == 0 or "error: " not in said or "next: " not in said:
        raise ToolError(f"{name}: it ended with {status} and said:\n{said}", "it should be an error with a next step")
    return said


def checkout(source: Path, target: Path) -> None:
    """The project without what git leaves out."""
    for name in answer(["git", "ls-files", "-co", "--exclude-standard"], "run this in a checkout", source).splitlines():
        if os.path.lexists(source / name):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            copy_new(source / name, target / name)


def clone(source: Path, target: Path, owner: int) -> None:
    """A caller's own copy of a checkout, with times of now, as a clone has."""
    shutil.copytree(source, target, symlinks=True, copy_function=copy_new, dirs_exist_ok=True)
    own(target, owner)


def own(folder: Path, user: int) -> None:
    """Gives a folder and all in it to a user."""
    for path in (folder, *folder.rglob("*")):
        os.chown(path, user, user, follow_symlinks=False)


def copy_new(source: str | Path, target: str | Path) -> None:
    """A file with its mode, or a link; its time is now."""
    shutil.copyfile(source, target, follow_symlinks=False)
    if not os.path.islink(source):
        shutil.copymode(source, target)


def owners(folder: Path) -> dict[int, list[str]]:
    """Files and folders by their owner."""
    found: dict[int, list[str]] = {}
    for path in (folder, *folder.rglob("*")):
        found.setdefault(path.lstat().st_uid, []).append(str(path.relative_to(folder)))
    return found
