"""The steps of the set-up, one module a part."""
