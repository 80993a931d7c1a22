"""Environments, one package each, found by ``registry``; ``base`` holds their shared parts.

They know no method.
"""
