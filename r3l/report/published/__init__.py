"""Published results: as data, checked, and beside ours."""

from r3l.report.published.data import COLUMNS, SCORES, Published, Reference, load, of_table

__all__ = ["COLUMNS", "SCORES", "Published", "Reference", "load", "of_table"]
