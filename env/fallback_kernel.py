"""A kernel that runs nothing, and tells in the notebook why the Rust kernel could not start."""

from __future__ import annotations

import os
from typing import Any

from ipykernel.kernelapp import IPKernelApp
from ipykernel.kernelbase import Kernel


class FallbackKernel(Kernel):
    """Answers every cell with the reason and the next step, so that the learner sees it where they look."""

    implementation = "gpulab-fallback"
    implementation_version = "1"
    banner = "gpulab: the Rust kernel is not ready"
    language_info = {"name": "rust", "mimetype": "text/rust", "file_extension": ".rs"}  # noqa: RUF012

    def do_execute(self, code: str, silent: bool, *_: Any, **__: Any) -> dict:
        """An error, so that Run All stops at the first cell."""
        reason = os.environ.get("GPULAB_REASON", "the Rust kernel cannot start\nnext: make setup")
        error = {"ename": "SetUpMissing", "evalue": reason.splitlines()[0], "traceback": [reason]}
        if not silent:
            self.send_response(self.iopub_socket, "error", error)
        return {"status": "error", "execution_count": self.execution_count, **error}


if __name__ == "__main__":
    IPKernelApp.launch_instance(kernel_class=FallbackKernel)
