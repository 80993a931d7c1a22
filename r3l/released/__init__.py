"""Our code held against the released code on generated cases: same case, two answers, differences by reason.

A subject is one file of r3l/released/checks. Foreign definitions run in a process of their own (r3l.released.process).
"""
