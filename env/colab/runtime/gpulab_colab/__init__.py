"""Rust cells in a notebook whose own kernel is Python, as in Google Colab: the set-up cell and the magic `%%rust`.

It runs in that notebook's Python, so it needs nothing but what Colab has: IPython, jupyter_client, pyzmq.
"""

from .set_up import start

__all__ = ["start"]
