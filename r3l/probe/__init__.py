"""The probe of a fixed model (`r3l probe`): what training would learn from, measured without training.

How episodes fail, whether the environment's critic and the model can say why, and whether a retry from the
right turn, or under a hint, does better than another attempt.
"""
