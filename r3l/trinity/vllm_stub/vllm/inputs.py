"""See the package."""

from typing import Any

MultiModalDataDict = Any
