"""A kernel shut off: without network, with a few folders of this machine to read, limits, and an end that ends all of it.

bubblewrap does it with the kernel's namespaces, as root or not. Where it cannot, nothing is graded unless the teacher says so.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from jupyter_client.manager import AsyncKernelManager

from env import paths
from env.console import ToolError
from env.run.session import RunningKernel

# Where the kernel runs, as it sees it: beside support-crate, which `:dep` lines name from there. Nothing else is in it.
PLACE = paths.ROOT / "graded"
SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64")
SETTINGS = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "passwd", "group", "localtime", "fonts")
# Of the course: what cells are built from. Not the notebooks with their solutions, not the tests with right answers.
COURSE = ("env", "support-crate", "crates", "models", "Cargo.toml", "Cargo.lock", "rust-toolchain.toml", "LICENSE")
HIDDEN = ("crates/lessons/tests",)
LOCKS = ("kernels.lock", "warm-swap.lock")
LOOK_S = 0.1
# The sandbox has one of its own.
TEMPORARY = "/tmp"


@dataclass(frozen=True)
class Limits:
    """What one submission may take. `cell_s` is for each cell, `whole_s` for all of them."""

    cell_s: float = 60.0
    whole_s: float = 600.0
    memory_gib: float = 4.0
    processes: int = 256
    file_gib: float = 1.0


def bubblewrap() -> str:
    """Its program; nothing where it is missing, or may make no namespaces here."""
    program = shutil.which("bwrap")
    if program is None:
        return ""
    command = [program, "--unshare-all", "--cap-drop", "ALL", "--ro-bind", "/", "/", "true"]
    tried = subprocess.run(command, capture_output=True, check=False)
    return program if tried.returncode == 0 else ""


def network_alone() -> list[str]:
    """What runs a program without network where bubblewrap does not: util-linux's unshare, as root or in a user namespace."""
    program = shutil.which("unshare")
    for more in ([], ["--user", "--map-root-user"]):
        command = [program or "", "--net", *more]
        if program and subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0:
            return command
    return []


class Isolation:
    """How submissions are shut off on this machine; `words` say it to whoever reads the grades."""

    def __init__(self, less: bool = False) -> None:
        self.program = bubblewrap()
        if self.program:
            self.network: list[str] = []
            self.words = (
                "network off, own processes, this machine's files out of sight but for the course's crates and Rust"
            )
            return
        if not less:
            why = "bubblewrap (bwrap) is missing, or may make no namespaces here"
            step = "sudo apt install bubblewrap; to grade those whom you trust without it: make grade ISOLATION=less"
            raise ToolError(f"submissions cannot be isolated: {why}", step)
        self.network = network_alone()
        net = "network off (unshare)" if self.network else "NETWORK ON: `unshare --net` is refused here"
        self.words = (
            f"{net}; ALL FILES of this account can be read and written; limits on time, memory and processes only"
        )

    def command(self, kernel: list[str], scratch: Path, limits: Limits) -> list[str]:
        """The command that starts the kernel inside."""
        limited = _limited(limits)
        if not self.program:
            return [*self.network, *limited, *kernel]
        return [self.program, *_walls(scratch), "--", *limited, *kernel]


def _limited(limits: Limits) -> list[str]:
    """util-linux's prlimit: what one process may take. Root's processes are not counted by it; `Watch` counts all."""
    program = shutil.which("prlimit")
    if program is None:
        return []
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    processes = [] if os.geteuid() == 0 or 0 <= hard < 4096 or 0 <= soft < 4096 else ["--nproc=4096:4096"]
    return [program, f"--fsize={int(limits.file_gib * 2**30)}", "--core=0", *processes]


def _bind(kind: str, path: Path) -> list[str]:
    return [kind, str(path), str(path)] if path.exists() else []


def _walls(scratch: Path) -> list[str]:
    """bubblewrap's arguments: an empty system, and what is brought into it."""
    walls = ["--unshare-all", "--cap-drop", "ALL", "--die-with-parent", "--new-session", "--hostname", "graded"]
    walls += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", TEMPORARY]
    for name in SYSTEM:
        path = Path("/") / name
        if path.is_symlink():
            walls += ["--symlink", os.readlink(path), str(path)]
        else:
            walls += _bind("--ro-bind", path)
    for name in SETTINGS:
        walls += _bind("--ro-bind", Path("/etc") / name)
    state = paths.read_json(paths.STATE)
    rust, evcxr = Path(state.get("toolchain", "/nowhere")), Path(state.get("evcxr", "/nowhere"))
    home = paths.cargo_bin().parent
    for path in (Path(sys.base_prefix), rust, evcxr, home / "registry", home / "git"):
        if path.is_absolute() and path != Path("/usr"):
            walls += _bind("--ro-bind", path)
    for path in (paths.VENV, paths.GENERATED, *(paths.ROOT / name for name in COURSE)):
        walls += _bind("--ro-bind", path)
    for name in HIDDEN:
        walls += ["--tmpfs", str(paths.ROOT / name)] if (paths.ROOT / name).is_dir() else []
    # The builds of all kernels lie in one folder: this one sees its own.
    walls += ["--bind", str(scratch / "kernels"), str(paths.KERNELS)]
    for name in LOCKS:
        walls += ["--bind", str(scratch / name), str(paths.GENERATED / name)]
    walls += ["--bind", str(scratch / "graded"), str(PLACE), "--bind", str(scratch / "run"), str(scratch / "run")]
    return [*walls, "--chdir", str(PLACE)]


def environment(scratch: Path) -> dict[str, str]:
    """What the kernel is told, and nothing else of this process's environment."""
    told = {name: os.environ[name] for name in ("PATH", "LANG", "CANDLE_NUM_THREADS") if name in os.environ}
    if paths.LAYERED:
        told["GPULAB_HOME"] = str(paths.MADE)
    told["CARGO_HOME"] = str(paths.cargo_bin().parent)
    # The warmed build lies behind another mount: no hard link leads over.
    told |= {"GPULAB_SOFT_LINKS": "1", "GPULAB_ANSWER_WHEN_READY": "1", "HOME": TEMPORARY, "CARGO_NET_OFFLINE": "true"}
    return told | {"GPULAB_RESULTS": f"{TEMPORARY}/results", "GPULAB_CHARTS": "svg"}


class Watch(threading.Thread):
    """Counts the processes of a kernel and their memory, and ends all of them where they are too many."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(daemon=True)
        self.limits, self.root, self.over, self.ended = limits, 0, "", threading.Event()
        self.most_mib = 0

    def run(self) -> None:
        """Until it is told to end."""
        page = os.sysconf("SC_PAGE_SIZE")
        while not self.ended.wait(LOOK_S):
            family = descendants(self.root) if self.root else {}
            memory = sum(family.values()) * page / 2**30
            self.most_mib = max(self.most_mib, int(memory * 1024))
            if len(family) > self.limits.processes:
                self.over = f"more than {self.limits.processes} processes"
            elif memory > self.limits.memory_gib:
                self.over = f"more than {self.limits.memory_gib:g} GiB of memory"
            else:
                continue
            # The first process of a namespace takes all others along.
            for one in family:
                with contextlib.suppress(OSError):
                    os.kill(one, signal.SIGKILL)


def descendants(root: int) -> dict[int, int]:
    """All that a process has started, and what they started: their pages in memory, by process. Linux only."""
    parents, pages = {}, {}
    for entry in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if not entry.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):
            after = Path(f"/proc/{entry}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
            parents[int(entry)], pages[int(entry)] = int(after[1]), int(after[21])
    found = {root: pages.get(root, 0)} if root in parents else {}
    grown = True
    while grown:
        new = {one: pages[one] for one, parent in parents.items() if parent in found and one not in found}
        found |= new
        grown = bool(new)
    return found


class IsolatedKernel(RunningKernel):
    """The course's kernel behind walls; cells reach it through sockets in a folder, since it has no network."""

    def __init__(
        self, isolation: Isolation, limits: Limits, notebook: str, stop: threading.Event | None = None
    ) -> None:
        self.isolation, self.limits = isolation, limits
        # Sockets have short names.
        self.scratch = Path(tempfile.mkdtemp(prefix="grade-"))
        for name in ("kernels", "graded", "run"):
            (self.scratch / name).mkdir()
        paths.KERNELS.mkdir(parents=True, exist_ok=True)
        for name in LOCKS:
            (self.scratch / name).touch()
            (paths.GENERATED / name).touch()
        (self.scratch / "graded" / "notebook.ipynb").write_text(notebook, encoding="utf-8")
        self.watch = Watch(limits)
        told = environment(self.scratch) | {"JPY_SESSION_NAME": "notebook.ipynb"}
        place = self.scratch / "graded"
        if not isolation.program:
            # Without walls the crates lie where they lie.
            place = paths.ROOT / "notebooks"
            told["GPULAB_RESULTS"] = str(self.scratch / "run")
        super().__init__(place, told, stop)

    def manager(self) -> AsyncKernelManager:
        """With sockets in the scratch folder, and the walls around the kernel's command."""
        manager = super().manager()
        if self.isolation.network or self.isolation.program:
            manager.transport = "ipc"
            manager.connection_file = str(self.scratch / "run" / "kernel.json")
            manager.ip = str(self.scratch / "run" / "s")
        spec = manager.kernel_spec
        spec.argv = self.isolation.command(list(spec.argv), self.scratch, self.limits)
        return manager

    def __enter__(self) -> IsolatedKernel:  # noqa: PYI034 (`Self` needs Python 3.11)
        self.watch.start()
        try:
            super().__enter__()
        except BaseException:
            self._away()
            raise
        self.watch.root = getattr(self.km.provisioner, "pid", 0) or 0
        return self

    def __exit__(self, *more: object) -> None:
        try:
            super().__exit__(*more)
        finally:
            self._away()

    def _away(self) -> None:
        self.watch.ended.set()
        shutil.rmtree(self.scratch, ignore_errors=True)
