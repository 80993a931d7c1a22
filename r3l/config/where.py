"""Moved to r3l.config.method. Until readers follow."""

from r3l.config.method import Place

__all__ = ["Place"]
