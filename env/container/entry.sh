#!/bin/sh
# What the container starts: takes over the user and group that own /workspace, so that files made there are the
# caller's; then opens JupyterLab, or runs the command that stands behind the image's name.
set -eu
work=${GPULAB_WORKSPACE:-/workspace}

stop() {
    printf 'error: %s\nnext: %s\n' "$1" "$2" >&2
    exit 1
}

# Root here is an ordinary user outside when the container was started without root (rootless Docker, Podman).
root_outside() {
    read -r _ outside _ </proc/self/uid_map
    [ "$outside" = 0 ]
}

if [ "$(id -u)" = 0 ] && [ "${GPULAB_AS_ROOT:-}" != 1 ] && root_outside; then
    owner=$(stat -c %u "$work") group=$(stat -c %g "$work")
    if [ "$owner" = 0 ]; then
        stop "the folder that is mounted at $work belongs to root: Docker makes a missing folder so" \
            "chown it to yourself; or, where you work as root yourself: docker run -e GPULAB_AS_ROOT=1 …"
    fi
    # A terminal in JupyterLab asks for the user's name.
    if ! getent passwd "$owner" >/dev/null; then
        echo "learner:x:$owner:$group::$GPULAB_HOME/home:/bin/bash" >>/etc/passwd
    fi
    # Groups that `--group-add` gave stay; root's own does not.
    others=$(id -G | tr ' ' '\n' | grep -vx 0 | paste -sd, -)
    if [ -n "$others" ]; then groups="--groups $others"; else groups=--clear-groups; fi
    # shellcheck disable=SC2086  # one option, or an option and its value
    exec setpriv --reuid "$owner" --regid "$group" $groups --inh-caps=-all --no-new-privs "$0" "$@"
fi

# The first process hands signals on, and buries the processes that notebooks leave behind; a shell does neither.
if [ "$$" = 1 ]; then exec tini -- "$0" "$@"; fi

# That of whoever started the container is not there, or is root's.
export HOME="$GPULAB_HOME/home"
who="user $(id -u)"
cd "$work" 2>/dev/null || stop "$who cannot read $work" "mount a folder of yours there: -v \"\$PWD\":/workspace"
if [ ! -w . ]; then
    stop "$who cannot write in $work" \
        "leave --user away, so that the folder's owner is taken; is it mounted read-only (:ro), or does SELinux forbid it (mount it with :Z)?"
fi
if [ -z "$(ls -A)" ]; then
    echo "an empty folder: the course is copied into it"
    cp -a --no-preserve=ownership "$GPULAB_HOME/course/." .
elif [ ! -f env/lab.py ] || [ ! -d support-crate ]; then
    stop "the folder that is mounted at $work is neither empty nor this course" \
        "mount a checkout of the course, or an empty folder: mkdir -p course && docker run -v \"\$PWD/course\":/workspace …"
fi
if ! mountpoint -q "$work"; then
    echo "nothing is mounted at $work: what you make is gone with this container"
    echo "next: to keep it, start the container with -v \"\$PWD\":/workspace"
fi
if [ ! -e /dev/nvidiactl ] && [ ! -e /dev/dxg ]; then
    echo "no GPU: this container was started without one. The lessons run, with the recorded run and the simulator"
    echo "next: to use a GPU, start the container with --gpus all; the host needs NVIDIA's driver and Container Toolkit"
fi

if [ "$#" -gt 0 ]; then exec "$@"; fi
# Nothing to do, unless the mounted course is newer than the image.
python3 -m env.setup
exec python3 -m env.lab
