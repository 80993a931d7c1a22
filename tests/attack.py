"""What the parts of the standing attack share: their seed, which they print, and how much each of them does."""

import os
import secrets

SEED = int(os.environ.get("R3L_ATTACK_SEED") or secrets.randbelow(2**32))
TEXTS = int(os.environ.get("R3L_ATTACK_TEXTS") or 100_000)
MINUTES = float(os.environ.get("R3L_ATTACK_MINUTES") or 30)  # of the hostile texts
KILLS = int(os.environ.get("R3L_ATTACK_KILLS") or 25)  # of a hundred, shared out among the processes as below
STEPS = int(os.environ.get("R3L_ATTACK_STEPS") or 1200)  # of the soak; memory grows in the first 450
OF_A_HUNDRED = {"trainer": 46, "worker": 29, "java": 14, "snakemake": 11}


def kills_of(role):
    """How many."""
    return max(1, round(OF_A_HUNDRED[role] * KILLS / 100))
