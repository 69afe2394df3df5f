"""The parts of `make test`: its steps, the commands they run, and the counting of checks."""
