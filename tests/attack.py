"""What the parts of the standing attack share: their seed, which they print, and how much each of them does."""

import os
import secrets

SEED = int(os.environ.get("R3L_ATTACK_SEED") or secrets.randbelow(2**32))
TEXTS = int(os.environ.get("R3L_ATTACK_TEXTS") or 100_000)
MINUTES = float(os.environ.get("R3L_ATTACK_MINUTES") or 30)  # of the hostile texts
STEPS = int(os.environ.get("R3L_ATTACK_STEPS") or 1200)  # of the soak; memory grows in the first 450
