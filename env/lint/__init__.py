"""The rules that `make test` lints by, for notebooks, pages and files."""
