"""See the package."""

from typing import Any

ModelConfig = Any
