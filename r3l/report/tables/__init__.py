"""What stands in tables: scores, benchmarks, what training counted, budgets; a table from its config."""

from r3l.report.tables.from_config import ReportTable, build, write

__all__ = ["ReportTable", "build", "write"]
