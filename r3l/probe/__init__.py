"""Regime cards: what training from a start model would be about, measured without training (`r3l probe`).

How its episodes fail, whether the environment's critic and the model can say why, and whether a retry from the right
turn, or under a hint, does better than another attempt.
"""
