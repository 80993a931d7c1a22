"""Part of the vLLM stub (see the package)."""

from typing import Any

MultiModalDataDict = Any
