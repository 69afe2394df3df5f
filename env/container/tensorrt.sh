#!/bin/sh
# An image's layer with TensorRT, as root: tensorrt.sh 1 (or 0, for none). The packages come from NVIDIA's archive for
# Ubuntu, which the CUDA images know. Not run by us: that archive could not be reached from where we work.
set -eu
# The release that the course's ONNX Runtime is built for, which loads these three libraries; for any CUDA 13.
version=10.16.1.11-1+cuda13.2

case $1 in
0 | '') exit 0 ;;
1) ;;
*)
    printf 'error: TENSORRT=%s is neither 0 nor 1\nnext: docker build --build-arg TENSORRT=1 …\n' "$1" >&2
    exit 1
    ;;
esac
export DEBIAN_FRONTEND=noninteractive
apt-get update
if ! apt-get install -y --no-install-recommends \
    "libnvinfer10=$version" "libnvinfer-plugin10=$version" "libnvonnxparsers10=$version"; then
    printf 'error: TensorRT %s could not be installed\n' "$version" >&2
    echo "next: see what \`apt-cache madison libnvinfer10\` lists in the base image, and change env/container/tensorrt.sh" >&2
    exit 1
fi
rm -rf /var/lib/apt/lists/*
