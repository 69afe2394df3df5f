"""The course's tools. Each target of the Makefile is `python3 -m env.NAME`; the standard library alone until `.venv` is there."""
