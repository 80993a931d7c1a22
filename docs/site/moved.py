"""Where the link targets of docs/preregistration.md are now.

Manifests hold the sha256 of that page, so its bytes cannot change when a page it links to is merged or moved. The
site rewrites its links by this table, and tests/docs check them by it.
"""

from __future__ import annotations

MOVED = {
    "regime.md": "start_models.md#probes",
    "tuning.md": "compare.md#tune-learning-rates",
    "power.md": "compare.md#power",
}
