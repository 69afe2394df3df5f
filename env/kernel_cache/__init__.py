"""Warmed builds: what they depend on, and the linked copy that each kernel gets."""
