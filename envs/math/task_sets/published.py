"""The published files of each set, and how to read their rows."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from r3l.envs.base.answers import boxed

from r3l.core.errors import DataError

Row = Mapping[str, Any]
Fields = tuple[str, str, str]  # id within the set, problem, gold

_BARE_BOX = re.compile(r"\\boxed\s+(\w)")
_DAPO_PREFIX = re.compile(r"\ASolve the following math problem step by step\..*?\n\n", re.DOTALL)
_DAPO_SUFFIX = re.compile(r"\n\nRemember to put your answer on its own line after \"Answer:\"\.\Z")


@dataclass(frozen=True)
class Origin:
    """Location of the file of a set, in a data folder and on the hub (dataset, file), and how to read a row.

    Both names may be patterns; the files are read in the order of their names. ``read(row, number)`` gives
    id, problem and gold answer. ``columns``: the columns to read from a parquet file; None for all.
    ``without_gold``: numbers (from 0) of rows that have no gold answer and are left out.
    """

    file: str
    hub: tuple[str, str]
    read: Callable[[Row, int], Fields]
    columns: tuple[str, ...] | None = None
    without_gold: frozenset[int] = frozenset()


def _gsm8k(row: Row, number: int) -> Fields:
    return str(number), row["question"], str(row["answer"]).rpartition("####")[2].strip().replace(",", "")


def _math500(row: Row, number: int) -> Fields:
    return str(row["unique_id"]).removesuffix(".json"), row["problem"], row["answer"]


def _math_train(row: Row, number: int) -> Fields:
    """The gold answer is the box in the solution, which all copies have.

    The verl copy's own ``target`` lacks rows of matrices and spaces after commands (``\\tanx``), and is
    empty twice although the box has an answer.
    """
    truth = row["reward_model"]["ground_truth"] if "reward_model" in row else row
    problem = truth["question"] if "question" in truth else truth["problem"]
    return str(number), problem.strip(), _boxed_in(truth, "solution")


def _minerva(row: Row, number: int) -> Fields:
    problem = row["problem"] if "problem" in row else row["question"]
    gold = _boxed_in(row, "solution") if "solution" in row else str(row["answer"]).strip()
    return str(row.get("idx", number)), problem, gold


def _olympiad(row: Row, number: int) -> Fields:
    answers = [part for text in row["final_answer"] for part in _listed(text)]
    return str(row["id"]), row["question"], ", ".join(answers)


def _whole_number(row: Row, number: int) -> Fields:
    """A row of AMC or AIME. Some copies store the integer answers as floats or with leading zeros."""
    value = float(row["answer"])
    if value != int(value):
        raise ValueError(f"key 'answer' has value {row['answer']!r}; it must be a whole number")
    return (
        str(row.get("id", number)),
        row["problem"] if "problem" in row else row["question"],
        str(int(value)),
    )


def _dapo(row: Row, number: int) -> Fields:
    """A row of DAPO without the instruction around the problem, which only the published file has."""
    problem = _DAPO_SUFFIX.sub("", _DAPO_PREFIX.sub("", row["prompt"][0]["content"]))
    return str(number), problem.strip(), str(row["reward_model"]["ground_truth"]).strip()


def _deepmath(row: Row, number: int) -> Fields:
    return str(number), row["question"].strip(), row["final_answer"].strip()


def _boxed_in(row: Row, key: str) -> str:
    """The content of the last box of a field. In TeX a single character needs no braces."""
    answer = boxed(_BARE_BOX.sub(r"\\boxed{\1}", row[key]))
    if answer is None:
        raise ValueError(f"key {key!r} has no \\boxed{{...}}")
    return answer.strip()


def _listed(text: str) -> Iterator[str]:
    r"""The answers in an OlympiadBench text.

    ``$8$,$4$`` has two, ``$(2,4)$`` one. A final full stop is dropped.
    """
    for part in re.split(r"\$\s*,\s*\$?|,\s*\$", text.strip().rstrip(".")):
        bare = part.strip().strip("$").strip()
        if bare:
            yield bare


ORIGINS = {
    "gsm8k": Origin("gsm8k_test.jsonl", ("openai/gsm8k", "main/test-00000-of-00001.parquet"), _gsm8k),
    "gsm8k_train": Origin("gsm8k_train.jsonl", ("openai/gsm8k", "main/train-00000-of-00001.parquet"), _gsm8k),
    "math500": Origin("math500_test.jsonl", ("HuggingFaceH4/MATH-500", "test.jsonl"), _math500),
    "math_train": Origin(
        "math_train_7500.parquet",
        ("DigitalLearningGmbH/MATH-lighteval", "data/train-00000-of-00001.parquet"),
        _math_train,
        without_gold=frozenset({5341, 5343}),
    ),
    "minerva": Origin("minerva_math_test.jsonl", ("math-ai/minervamath", "test.jsonl"), _minerva),
    "olympiadbench": Origin("olympiadbench_test.jsonl", ("math-ai/olympiadbench", "test.jsonl"), _olympiad),
    "amc23": Origin("amc23_test.jsonl", ("math-ai/amc23", "test-00000-of-00001.parquet"), _whole_number),
    "aime24": Origin(
        "aime24_test.jsonl", ("HuggingFaceH4/aime_2024", "data/train-00000-of-00001.parquet"), _whole_number
    ),
    "dapo_raw": Origin(
        "dapo_math_17k.parquet", ("BytedTsinghua-SIA/DAPO-Math-17k", "data/dapo-math-17k.parquet"), _dapo
    ),
    "deepmath_raw": Origin(
        "deepmath/train-*.parquet",
        ("zwhe99/DeepMath-103K", "data/train-*.parquet"),
        _deepmath,
        columns=("question", "final_answer"),  # the other columns are 5 GB of solutions
    ),
}


def rows_of(path: Path, columns: Sequence[str] | None = None) -> Iterator[Row]:
    """The rows of a .parquet or JSON-lines file, one after the other; of a .parquet file only ``columns``.

    None: all columns. Raises DataError for a missing or damaged file, one that is not UTF-8, and a line that
    is no JSON object.
    """
    if path.suffix == ".parquet":
        import pyarrow
        from pyarrow import parquet

        try:
            with parquet.ParquetFile(path) as file:
                # In batches: DAPO's file has each row a hundred times.
                for batch in file.iter_batches(columns=columns):
                    yield from batch.to_pylist()
        except (pyarrow.ArrowException, OSError) as error:
            raise DataError(f"{path}: not a readable parquet file ({error}); download it again") from error
        return
    number = 0
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                yield _object(path, number, line)
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}, after row {number}: unreadable ({error}); download it again") from error


def _object(path: Path, number: int, line: str) -> Row:
    """One line of a JSON-lines file; raises DataError, with file and row, if it is no JSON object."""
    try:
        row = json.loads(line)
    except ValueError as error:
        raise DataError(f"{path}, row {number}: not valid JSON ({error}); download it again") from error
    if not isinstance(row, dict):
        raise DataError(
            f"{path}, row {number}: not a JSON object; take the file named in docs/environments.md"
        )
    return row
