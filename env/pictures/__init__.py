"""The pictures of docs/plain-words.md: one function a picture, and what they draw with."""
