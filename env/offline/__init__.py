"""The parts of `make bundle`: what goes into the offline bundle, and how it is packed."""
