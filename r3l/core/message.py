"""Message: what one side of a chat says."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Message:
    """One message of a chat: role in {system, user, assistant}."""

    role: str
    content: str
