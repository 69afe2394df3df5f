"""The parts of `make test-container`: a clean Ubuntu, the image that is built on it, and containers of that image."""
