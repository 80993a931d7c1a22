"""The HTML report: one file that needs no network."""

from r3l.report.html.page import write

__all__ = ["write"]
