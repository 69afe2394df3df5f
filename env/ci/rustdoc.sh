#!/bin/sh
# rustdoc as `cargo test --doc` calls it: first the crate's pages, in which a warning is an error, then its examples.
#
# `cargo doc` would type-check each dependency once more; here are those that the tests were built with.
set -e

pages() {
  left=$#
  while [ "$left" -gt 0 ]; do
    case "$1" in
      --test | --no-capture | --nocapture) ;;
      --test-run-directory | --test-args | --test-runtool | --test-runtool-arg)
        shift
        left=$((left - 1))
        ;;
      *) set -- "$@" "$1" ;;
    esac
    shift
    left=$((left - 1))
  done
  rustdoc "$@" -D warnings --out-dir "${CARGO_TARGET_DIR:-target}/doc"
}

case " $* " in
  *" --test "*) pages "$@" ;;
esac
exec rustdoc "$@"
