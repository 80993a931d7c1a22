"""Where the link targets of docs/preregistration.md are now.

Manifests hold the sha256 of that page, so its bytes cannot change when a page it links to is merged or moved.
The site rewrites its links by this table, and tests/docs check them by it.
"""

from __future__ import annotations

MOVED = {
    "regime.md": "tiers.md#probes",
    "start_models.md": "tiers.md#base-checkpoints",
    "start_models.md#probes": "tiers.md#probes",
    "start_models.md#hints-and-impossible-actions-alfworld-15m-hints": "tiers.md#base-checkpoints",
    "tuning.md": "compare.md#tune-learning-rates",
    "power.md": "compare.md#power",
    "one_card.md#training": "../results/notebook/2026-11-26-demonstrations-on-an-h100.md",
    "one_card.md#r3l-against-grpo-registered": "../results/notebook/2026-11-27-r3l-against-grpo-on-gsm8k.md",
}
