"""The class's predictions on the teacher's screen: `make class`. The protocol is in docs/classroom.md."""
