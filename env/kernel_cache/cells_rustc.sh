#!/bin/sh
# How cargo calls rustc for a cell, and for nothing else in a kernel (RUSTC_WORKSPACE_WRAPPER).
#
# rustc goes on from what the cell before has left, and keeps nothing of what is older. A cell of functions and types alone,
# which evcxr ends with a function that gives its argument back, has no code for the variables: kept apart, it does not
# make the next cell compile that anew.
if grep -qF '*mut std::os::raw::c_void {x}' src/lib.rs 2>/dev/null; then
  set -- "$@" -Cincremental=target/incremental
fi
# Thin-local LTO went over the whole cell's code again although most of it was as before: half of rustc's time.
exec "$@" -Clto=off
