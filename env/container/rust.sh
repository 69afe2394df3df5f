#!/bin/sh
# An image's layer with Rust and the Rust kernel for Jupyter: rust.sh RUST EVCXR, two versions. It takes minutes, and
# depends on these two alone.
set -eu
rust=$1 evcxr=$2
# The set-up's own (env/setup/rustup.py), which a test compares.
rustup=1.28.2
case $(uname -m) in
x86_64) sum=20a06e644b0d9bd2fbdbfd52d42540bdde820ea7df86e92e533c073da0cdd43c ;;
aarch64) sum=e3853c5a252fca15252d07cb23a1bdd9377a8c6f3efa01531109281ae47f841c ;;
*)
    printf 'error: no image for the processor %s\nnext: build it on x86_64 or aarch64\n' "$(uname -m)" >&2
    exit 1
    ;;
esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
curl --proto '=https' --tlsv1.2 -fsS -o "$work/rustup-init" \
    "https://static.rust-lang.org/rustup/archive/$rustup/$(uname -m)-unknown-linux-gnu/rustup-init"
echo "$sum  $work/rustup-init" | sha256sum --check --quiet -
chmod +x "$work/rustup-init"
"$work/rustup-init" -y --quiet --profile minimal --component rust-src --no-modify-path --default-toolchain "$rust"

CARGO_TARGET_DIR=$work/target cargo install --locked --quiet "evcxr_jupyter@$evcxr" \
    --config "$(dirname "$0")/kernel_profile.toml"
# Its crates' sources; no notebook reads them.
rm -rf "$CARGO_HOME/registry"
"$(dirname "$0")/share.sh" "$CARGO_HOME"
