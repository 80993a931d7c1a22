"""A table in HTML, which the script of the report makes sortable and narrows by its filters."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from r3l.report.table import Table


def to_html(table: Table) -> Markup:
    """A figure with the title, the notes and the rows."""
    filters = {column.name: column.filter for column in table.columns if column.filter is not None}
    template = TEMPLATES.get_template("table.html.jinja")
    return Markup(template.render(table=table, rows=list(table.cells()), filters=filters))


TEMPLATES = Environment(
    loader=PackageLoader("r3l.report.html"),
    autoescape=True,  # what runs say is text, never markup
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.filters["to_html"] = to_html
TEMPLATES.filters["zip"] = zip
