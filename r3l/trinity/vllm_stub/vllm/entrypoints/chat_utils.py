"""Part of the vLLM stub (see the package)."""

from typing import Any

ChatTemplateContentFormat = ConversationMessage = parse_chat_messages = parse_chat_messages_async = Any
