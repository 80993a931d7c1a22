"""Rows of CSV files that are kept in memory."""

from pydantic import BaseModel

from r3l.files.csv_files import FILES, read_csv


class Line(BaseModel):
    number: int


def test_the_rows_of_the_last_files_are_kept_and_those_of_earlier_ones_forgotten(tmp_path):
    """A viewer that stays open reads files again and again as they change."""
    path = tmp_path / "a.csv"

    def read(number):
        path.write_text(f"number\n{number}\n")
        return read_csv(path, Line)

    first = read(0)
    assert first == [(f"{path}, line 2", Line(number=0))] and read(0) is first
    for number in range(FILES):
        read(number + 1)
    again = read(0)
    assert again == first and again is not first
