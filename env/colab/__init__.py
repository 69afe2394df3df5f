"""The Colab edition: how its notebooks, and the README's part about it, are made from `notebooks/`."""
