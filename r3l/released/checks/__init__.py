"""One file a subject: generated cases, our answer, the released one. ``CHECKS`` of each lists its checks."""

SUBJECTS = {  # name of the subject -> its module
    "advantages": "r3l.released.checks.advantages",
    "configs": "r3l.released.checks.configs",
    "endings": "r3l.released.checks.endings",
    "lengths": "r3l.released.checks.lengths",
    "losses": "r3l.released.checks.losses",
    "mathematics": "r3l.released.checks.mathematics",
    "puzzles": "r3l.released.checks.puzzles",
    "reflections": "r3l.released.checks.reflections",
    "responses": "r3l.released.checks.responses",
    "rltf_advantages": "r3l.released.checks.rltf_advantages",
    "turns": "r3l.released.checks.turns",
}
