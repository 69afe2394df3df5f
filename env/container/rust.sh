#!/bin/sh
# An image's layer with Rust and the Rust kernel for Jupyter: rust.sh RUST EVCXR, two versions. It takes minutes, and
# depends on these two alone.
set -eu
rust=$1 evcxr=$2
rustup=1.29.0

# As published beside the program: https://static.rust-lang.org/rustup/archive/1.29.0/…/rustup-init.sha256
case $(uname -m) in
x86_64) sum=4acc9acc76d5079515b46346a485974457b5a79893cfb01112423c89aeb5aa10 ;;
aarch64) sum=9732d6c5e2a098d3521fca8145d826ae0aaa067ef2385ead08e6feac88fa5792 ;;
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

CARGO_TARGET_DIR=$work/target cargo install --locked --quiet "evcxr_jupyter@$evcxr"
# Its crates' sources; no notebook reads them.
rm -rf "$CARGO_HOME/registry"
"$(dirname "$0")/share.sh" "$CARGO_HOME"
