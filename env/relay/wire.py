"""Jupyter's messages as they lie on the wire: read, signed, answered.

jupyter_client's `Session` does this, too; importing it takes 0.25 s, at every start of a kernel.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import uuid
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

DELIMITER = b"<IDS|MSG>"
VERSION = "5.3"


@dataclass
class Message:
    """One message. `frames` are what came, to be passed on as they are."""

    frames: list[bytes]
    identities: list[bytes]
    header: dict[str, Any]
    parent: dict[str, Any]
    metadata: dict[str, Any]
    content: dict[str, Any]

    @property
    def kind(self) -> str:
        """Such as `execute_request`."""
        return self.header.get("msg_type", "")

    @property
    def id(self) -> str:
        """The message's own name, which answers carry as their parent."""
        return self.header.get("msg_id", "")


class Wire:
    """Reads and signs messages with the connection's key; evcxr gets the same, so most frames are passed on untouched."""

    def __init__(self, key: str) -> None:
        self.key = key.encode()
        self.session = uuid.uuid4().hex

    def sign(self, parts: list[bytes]) -> bytes:
        """The signature of header, parent, metadata and content."""
        if not self.key:
            return b""
        mac = hmac.new(self.key, digestmod=hashlib.sha256)
        for part in parts:
            mac.update(part)
        return mac.hexdigest().encode()

    def read(self, frames: list[bytes]) -> Message | None:
        """The message; None where it is damaged, or signed with another key."""
        try:
            at = frames.index(DELIMITER)
            parts = frames[at + 2 : at + 6]
            if not hmac.compare_digest(self.sign(parts), frames[at + 1]):
                return None
            return Message(frames, frames[:at], *map(json.loads, parts))
        except (ValueError, IndexError, TypeError):
            return None

    def pack(
        self,
        identities: list[bytes],
        header: dict[str, Any],
        parent: dict[str, Any],
        content: dict[str, Any],
        metadata: dict[str, Any] | None = None,
    ) -> list[bytes]:
        """The frames of a message."""
        parts = [json.dumps(part).encode() for part in (header, parent, metadata or {}, content)]
        return [*identities, DELIMITER, self.sign(parts), *parts]

    def new(self, kind: str, content: dict[str, Any], parent: dict[str, Any], identities: list[bytes]) -> list[bytes]:
        """The frames of a new message of the relay's own."""
        header = {
            "msg_id": uuid.uuid4().hex,
            "session": self.session,
            "username": "kernel",
            "date": datetime.now(timezone.utc).isoformat(),
            "msg_type": kind,
            "version": VERSION,
        }
        return self.pack(identities, header, parent, content)

    def changed(self, message: Message, content: dict[str, Any]) -> list[bytes]:
        """The frames of the same message with another content."""
        return self.pack(message.identities, message.header, message.parent, content, message.metadata)
