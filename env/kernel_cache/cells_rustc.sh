#!/bin/sh
# How cargo calls rustc for a cell, and for nothing else in a kernel (RUSTC_WORKSPACE_WRAPPER).
#
# For the cells that follow, the call is written down as a script of its own (cells_cargo.sh).
case " $* " in
  *" --crate-name ctx "*)
    if [ -n "$GPULAB_CELL" ] && [ ! -e "$GPULAB_CELL/rustc" ]; then
      {
        export -p
        # cargo's own pipe for taking turns.
        printf 'unset MAKEFLAGS MFLAGS CARGO_MAKEFLAGS GPULAB_CELL\nexec'
        for word in "$0" "$@"; do
          case $word in
            *\'*) word=$(printf '%s' "$word" | sed "s/'/'\\\\''/g") ;;
          esac
          printf " '%s'" "$word"
        done
        echo
      } >"$GPULAB_CELL/rustc"
    fi
    ;;
esac
# rustc goes on from what the cell before has left, and keeps nothing of what is older. A cell of functions and types alone,
# which evcxr ends with a function that gives its argument back, has no code for the variables: kept apart, it does not
# make the next cell compile that anew.
if grep -qF '*mut std::os::raw::c_void {x}' src/lib.rs 2>/dev/null; then
  set -- "$@" -Cincremental=target/incremental
fi
# Thin-local LTO went over the whole cell's code again although most of it was as before: half of rustc's time.
# A quick build (recipe.py) adds a flag; without one there is no word.
# shellcheck disable=SC2086
exec "$@" -Clto=off $GPULAB_CELL_FLAGS
