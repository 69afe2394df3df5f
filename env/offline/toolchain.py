"""The Rust toolchain and the notebook kernel, as far as a machine without internet needs them."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from env import paths
from env.command import answer
from env.console import ToolError
from env.offline.pack import Component, digest
from env.setup.rust_kernel import find

ADVICE = "make setup"
# Run-time libraries of the sanitizers, and the linker for WebAssembly: no notebook uses them.
UNUSED = ("librustc-", "wasm-component-ld")


class Toolchain:
    """The toolchain that this repository is built with."""

    def __init__(self) -> None:
        self.version = answer(["rustc", "-vV"], ADVICE)
        self.sysroot = Path(answer(["rustc", "--print", "sysroot"], ADVICE))
        self.host = next(line.split()[1] for line in self.version.splitlines() if line.startswith("host:"))
        self.library = self.sysroot / "lib/rustlib/src/rust/library"
        if not (self.sysroot / "lib/rustlib/components").is_file():
            text = (
                f"the Rust in {self.sysroot} was not installed by rustup, and cannot be told from what lies beside it"
            )
            raise ToolError(text, "install Rust with rustup (https://rustup.rs), and run again")
        if not (self.library / "Cargo.lock").is_file():
            raise ToolError("the standard library's sources are not installed", ADVICE)

    def components(self) -> list[Component]:
        """The compiler's big library apart from the rest, so that two cores pack them side by side."""
        libraries = [file for file in (self.sysroot / "lib").glob("*.so*") if not file.is_dir()]
        llvm = [file for file in libraries if file.name.startswith("libLLVM")]
        rest = [file for file in libraries if file not in llvm]
        rest += [self.sysroot / "bin" / name for name in ("cargo", "rustc")]
        rest += [file for file in (self.sysroot / "libexec").rglob("*") if file.is_file()]
        for part in ("bin", "lib"):
            found = (self.sysroot / "lib/rustlib" / self.host / part).rglob("*")
            rest += [file for file in found if file.is_file() and not file.name.startswith(UNUSED)]
        sources = [file for file in self.library.rglob("*") if file.is_file()]
        return [
            self._component("llvm", llvm, machine_code=True),
            self._component("rust", rest, machine_code=True),
            self._component("rust-src", sources, machine_code=False),
        ]

    def _component(self, name: str, files: list[Path], machine_code: bool) -> Component:
        named = {f"rust/{file.relative_to(self.sysroot)}": file for file in files}
        sizes = sorted((name, file.lstat().st_size) for name, file in named.items())
        return Component(name, digest(self.version, sizes), named, machine_code)


def kernel() -> Component:
    """evcxr_jupyter, of the version that the course is made with."""
    state = paths.read_json(paths.STATE)
    found = find(state.get("evcxr", ""), Path(state.get("toolchain", "")))
    if found is None:
        raise ToolError(f"evcxr_jupyter {paths.EVCXR_VERSION} is not installed", ADVICE)
    key = digest(hashlib.sha256(found.read_bytes()).hexdigest())
    return Component("kernel", key, {f"cargo/bin/{found.name}": found}, machine_code=True)


def needed_glibc(files: list[Path]) -> str:
    """The newest version of the C library that these programs ask for."""
    minors = (re.findall(rb"GLIBC_2\.(\d+)", file.read_bytes()) for file in files)
    return f"2.{max((int(minor) for found in minors for minor in found), default=0)}"
