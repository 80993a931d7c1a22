"""Environments, one package each, found by ``registry``; what they share is in ``base``.

They know no method and import only ``r3l.core``, its rooms and ``base``.
"""
