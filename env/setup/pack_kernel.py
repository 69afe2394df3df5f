"""Makes the prebuilt Rust kernel for the set-up, and names it in the repository's manifest. `make kernel-asset` calls it.

On Linux it is linked by zig against an old C library; a Mac's is made on a Mac. Paths of the machine are replaced, so
that builds of one target by one toolchain can be compared by their sums.
"""

from __future__ import annotations

import argparse
import hashlib
import lzma
import os
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from env import paths
from env.command import output, run
from env.console import Step, ToolError, tool
from env.offline.toolchain import needed_glibc
from env.setup import kernel_asset, rust_kernel
from env.setup.kernel_info import KernelSilentError, ask

# The oldest that Rust's own standard library starts with.
GLIBC = "2.17"
# A Mac's oldest version that Rust supports on both processors.
MACOS = "11.0"
ZIG = paths.GENERATED / "zig"
REQUIREMENTS = paths.ENV / "setup" / "zig.txt"
DIST = paths.ROOT / "dist" / "kernel"
BUILD = paths.GENERATED / "build-kernel-asset"
# evcxr writes into itself where it found rustc and cargo when it was built: the same path on every machine.
TOOLS = Path("/tmp", "gpulab-kernel-asset")
NETWORK = "connect this machine to the internet, then make kernel-asset"


def main() -> None:
    """Puts the asset into dist/kernel/ and into the manifest."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    host = kernel_asset.machine_target()
    parser.add_argument("--target", default=host, help=f"such as aarch64-unknown-linux-gnu; {host} if left out")
    parser.add_argument("--url", default="", help="the address of the folder in which the file will be published")
    parser.add_argument("--build", type=Path, default=BUILD, help="where to build: kept, to go on when interrupted")
    wishes = parser.parse_args()
    asset = make(wishes.target, wishes.url, wishes.build)
    print(f"{DIST / asset.file}\n  sha256 {asset.sha256}\n  program {asset.program_sha256}")


def make(target: str, url: str, build: Path) -> kernel_asset.Asset:
    """Builds, checks, packs and names one program."""
    step = Step("kernel asset")
    linux = target.endswith("-linux-gnu")
    if not linux and sys.platform != "darwin":
        raise ToolError(f"{target} cannot be built here", "build it on a Mac, or name a target that ends in -linux-gnu")
    rustc, sysroot = output(["rustc", "--version"]), output(["rustc", "--print", "sysroot"])
    if not rustc or not sysroot:
        raise ToolError("`rustc` does not run", "make setup, then make kernel-asset")
    if not (Path(sysroot) / "lib" / "rustlib" / target).is_dir():
        run(["rustup", "target", "add", target], f"Rust's standard library for {target} could not be added", NETWORK)
    step.begin(f"building evcxr_jupyter {paths.EVCXR_VERSION} for {target} with {rustc}")
    program = compile_kernel(target, Path(sysroot), build, step)
    glibc = GLIBC if linux else ""
    if linux and kernel_asset.numbers(found := needed_glibc([program])) > kernel_asset.numbers(glibc):
        raise ToolError(f"{program} needs glibc {found}", f"build it with zig for {glibc}")
    if target == kernel_asset.machine_target():
        try:
            said = ask(program, rust_kernel.environment(Path(sysroot))).get("implementation_version")
        except KernelSilentError as error:
            raise ToolError(f"the program does not start: {error}", f"run {program} to see why") from error
        if said != paths.EVCXR_VERSION:
            raise ToolError(f"the program says it is {said}", f"pin {paths.EVCXR_VERSION} where it is built")
    else:
        step.begin(f"not started here: this machine is {kernel_asset.machine_target()}")
    asset = pack(program, target, glibc, rustc, url)
    name(asset)
    step.done(f"{asset.file}, {asset.size / 1e6:.1f} MB")
    return asset


def compile_kernel(target: str, sysroot: Path, build: Path, step: Step) -> Path:
    """The program, built for a target."""
    env = environment(os.environ, sysroot, build)
    if target.endswith("-linux-gnu"):
        tools = linker()
        env["PATH"] = os.pathsep.join([str(TOOLS), str(tools), env["PATH"]])
        command, triple = [tools / "cargo-zigbuild", "install"], f"{target}.{GLIBC}"
    else:
        env["PATH"] = os.pathsep.join([str(TOOLS), env["PATH"]])
        env["MACOSX_DEPLOYMENT_TARGET"] = MACOS
        command, triple = [TOOLS / "cargo", "install"], target
    link_tools(sysroot)
    root = build / target
    built: list[str] = []
    with step.heartbeat(lambda: f"{len(built)} of {rust_kernel.CRATES} crates"):
        run(
            [*command, "--locked", f"{rust_kernel.PROGRAM}@{paths.EVCXR_VERSION}", "--config", rust_kernel.PROFILE]
            + ["--target", triple, "--root", root, "--no-track", "--force"],
            "evcxr_jupyter could not be built",
            NETWORK,
            env=env,
            on_line=lambda line: built.append(line) if line.strip().startswith("Compiling ") else None,
        )
    check_profile(Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo"))
    return root / "bin" / rust_kernel.PROGRAM


def check_profile(home: Path, profile: Path = rust_kernel.PROFILE) -> None:
    """cargo is silent about settings for a package that is not there: a renamed crate would lose its optimisation."""
    sources = home.glob(f"registry/src/*/{rust_kernel.PROGRAM}-{paths.EVCXR_VERSION}/Cargo.lock")
    known = {name for lock in sources for name in re.findall(r'^name = "(.+)"$', lock.read_text(), re.MULTILINE)}
    named = re.findall(r"^([\w-]+) = \{", profile.read_text(encoding="utf-8"), re.MULTILINE)
    if unknown := sorted(set(named) - known):
        what = f"{profile.name} names crates that {rust_kernel.PROGRAM} is not built from: {', '.join(unknown)}"
        raise ToolError(what, f"compare it with the Cargo.lock of version {paths.EVCXR_VERSION} in {home}/registry")


def environment(base: Mapping[str, str], sysroot: Path, build: Path) -> dict[str, str]:
    """What the build may depend on, and none of this machine's paths."""
    home = Path(base.get("CARGO_HOME") or Path.home() / ".cargo")
    # Of the standard library, too: with rust-src installed rustc names its sources by where they lie.
    places = ((home, "/cargo"), (build, "/build"), (sysroot, "/rust"))
    remapped = [f"--remap-path-prefix={old}={new}" for old, new in places]
    return {
        "CARGO_TARGET_DIR": str(build / "target"),
        "CARGO_ENCODED_RUSTFLAGS": "\x1f".join(remapped),
        "CFLAGS": f"-ffile-prefix-map={home}=/cargo -ffile-prefix-map={build}=/build",
        "SOURCE_DATE_EPOCH": "0",
        **{
            name: str(build / "zig")
            for name in ("CARGO_ZIGBUILD_CACHE_DIR", "ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR")
        },
        "RUSTUP_TOOLCHAIN": str(sysroot),
        "PATH": base.get("PATH", ""),
    }


def link_tools(sysroot: Path) -> None:
    """rustc and cargo at the path that every build of the kernel sees."""
    TOOLS.mkdir(mode=0o700, exist_ok=True)
    if TOOLS.is_symlink() or TOOLS.stat().st_uid != os.getuid():
        raise ToolError(f"{TOOLS} belongs to somebody else", "remove it, then make kernel-asset")
    for name in ("rustc", "cargo"):
        link = TOOLS / name
        link.unlink(missing_ok=True)
        link.symlink_to(sysroot / "bin" / name)


def linker() -> Path:
    """zig and cargo-zigbuild, at pinned versions with their sums, in an environment of their own; its programs' folder."""
    folder = ZIG / "bin"
    wanted = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()
    stamp = ZIG / "gpulab.json"
    if paths.read_json(stamp).get("requirements") != wanted:
        shutil.rmtree(ZIG, ignore_errors=True)
        run([sys.executable, "-m", "venv", ZIG], "no virtual environment for zig", "install Python's venv")
        pip = [folder / "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes"]
        run([*pip, "-r", REQUIREMENTS], "zig could not be installed", NETWORK)
        paths.write_json(stamp, {"requirements": wanted})
    return folder


def pack(program: Path, target: str, glibc: str, rustc: str, url: str) -> kernel_asset.Asset:
    """The program, compressed, in dist/kernel/."""
    plain = program.read_bytes()
    packed = lzma.compress(plain, preset=9 | lzma.PRESET_EXTREME)
    file = f"{rust_kernel.PROGRAM}-{paths.EVCXR_VERSION}-{target}.xz"
    DIST.mkdir(parents=True, exist_ok=True)
    (DIST / file).write_bytes(packed)
    return kernel_asset.Asset(
        target=target,
        version=paths.EVCXR_VERSION,
        glibc=glibc,
        file=file,
        sha256=hashlib.sha256(packed).hexdigest(),
        size=len(packed),
        program_size=len(plain),
        program_sha256=hashlib.sha256(plain).hexdigest(),
        rustc=rustc,
        url=f"{url.rstrip('/')}/{file}" if url else "",
    )


def name(asset: kernel_asset.Asset, manifest: Path = kernel_asset.MANIFEST) -> None:
    """Writes the asset's row; those of other targets stay, older versions go."""
    others = [row for row in kernel_asset.read(manifest) if row.version == asset.version and row.target != asset.target]
    rows = sorted([*others, asset], key=lambda row: row.target)
    paths.write_json(manifest, {"assets": [{k: v for k, v in asdict(row).items() if v} for row in rows]})


if __name__ == "__main__":
    tool(main)
