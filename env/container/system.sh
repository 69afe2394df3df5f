#!/bin/sh
# An image's first layer, as root: what the course needs of Ubuntu, and the user that builds all else.
set -eu
export DEBIAN_FRONTEND=noninteractive

apt-get update
# tini is the first process: it hands signals on, and buries the processes that notebooks leave behind.
apt-get install -y --no-install-recommends \
    build-essential ca-certificates curl git make python3 python3-venv tini util-linux
rm -rf /var/lib/apt/lists/*

# Ubuntu's images come with a user of this number; it is the one that most callers have.
if id ubuntu >/dev/null 2>&1; then userdel --remove ubuntu 2>/dev/null; fi
useradd --uid 1000 --user-group --no-create-home --home-dir "$GPULAB_HOME/home" --shell /bin/bash gpulab
# Whoever the caller is: with these folders they work, and nobody else is in the container.
install -d -o gpulab -g gpulab -m 777 "$GPULAB_HOME" "$GPULAB_HOME/home" /workspace
