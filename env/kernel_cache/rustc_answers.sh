#!/bin/sh
# What evcxr, its type analysis and cargo call as rustc in a kernel.
#
# At each start two dozen calls ask for what is the same as long as the compiler is: its version, its folders, what a target
# has. Each takes rustc 50 ms to load its own libraries. So an answer is kept, and all else is rustc's: it compiles.
case " $* " in
  *" - --crate-name ___ "*"--print"*) ;;
  *" - "* | *".rs "*) exec "$GPULAB_RUSTC" "$@" ;;
  " -vV "* | " -Vv "* | *" --print"*) ;;
  *) exec "$GPULAB_RUSTC" "$@" ;;
esac
sum=$(printf '%s\n' "$RUSTC_BOOTSTRAP" "$@" | cksum)
answer=$GPULAB_RUSTC_ANSWERS/${sum%% *}-${sum##* }
if [ -e "$answer" ]; then
  exec cat "$answer"
fi
# Where rustc fails or warns, or the disk is full, nothing is kept, and it is asked once more.
mkdir -p "$GPULAB_RUSTC_ANSWERS" 2>/dev/null
if { "$GPULAB_RUSTC" "$@" >"$answer.$$" 2>"$answer.said.$$"; } 2>/dev/null </dev/null &&
  [ ! -s "$answer.said.$$" ] && mv -f "$answer.$$" "$answer"; then
  rm -f "$answer.said.$$"
  exec cat "$answer"
fi
rm -f "$answer.$$" "$answer.said.$$"
exec "$GPULAB_RUSTC" "$@"
