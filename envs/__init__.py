"""Environments, one package each, found by ``registry``; ``base`` holds their shared parts.

They know no method and import only ``r3l.core``, the rooms below it and ``base``.
"""
