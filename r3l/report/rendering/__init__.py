"""One model of a table, and its renderers: terminal, Markdown and LaTeX. Imports nothing of the project."""

from r3l.report.rendering.model import Cell, Column, Row, Section, Table

__all__ = ["Cell", "Column", "Row", "Section", "Table"]
