"""The problem sets as a benchmark: prompts, the two protocols, and every rule's grade of a reply.

``standard``: one attempt; gold and answer are boxed before they are read, in a process that is killed at a deadline.
``r3l_released``: what the release calls accuracy: up to three attempts, each wrong one answered with "not correct" by
an oracle that knows the gold answer (``oracle``: the released grader, or ours), ``<think>`` mandatory. The two are not
on one scale and never mixed; the wording of both prompts is ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any, Literal, get_args

from r3l.envs.base.answers import boxed, extract
from r3l.envs.math import datasets
from r3l.envs.math.engine import answer_in, check_in_actor
from r3l.envs.math.grading import Grader

from r3l.core.benchmark import BenchmarkItem, Grade, Grading, Reply
from r3l.core.errors import ConfigError
from r3l.core.text import Message

ProtocolName = Literal["standard", "r3l_released"]
Prompt = Literal["boxed", "tags"]
Oracle = Literal["ours", "released"]
ATTEMPTS = 3  # of r3l_released (audit B-26)
# The release: zero-shot greedy, in-training evaluation 0.4 (B-36).
TEMPERATURES = {"standard": 0.0, "r3l_released": 0.4}

_PROMPTS = Path(__file__).parent / "prompts"


class MathBenchmark:
    """See ``r3l.core.benchmark.Benchmark``. Close it, or use it as a context manager: it has grading processes.

    ``prompt`` is of ``standard``: how the answer is asked for. ``data`` is the folder of problem sets.
    """

    max_tokens = 4096  # of a reply, under both protocols (audit 3.5 and 5)

    def __init__(
        self,
        protocol: str = "standard",
        prompt: str = "boxed",
        oracle: str = "ours",
        data: Path | None = None,
        graders: int = 1,
    ) -> None:
        _one_of("--protocol", protocol, get_args(ProtocolName))
        _one_of("prompt", prompt, get_args(Prompt))
        _one_of("oracle", oracle, get_args(Oracle))
        self.released, self._prompt, self._oracle, self._data = protocol == "r3l_released", prompt, oracle, data
        own = {"oracle": oracle} if self.released else {"prompt": prompt}
        self.settings: Mapping[str, Any] = {"protocol": protocol, **own}
        self.temperature = TEMPERATURES[protocol]
        self._grader = Grader(graders)

    def items(self, name: str) -> list[BenchmarkItem]:
        """A set of ``r3l.envs.math.datasets``."""
        seen = datasets.contaminated(name)
        return [
            BenchmarkItem(p.id, name, p.problem, p.gold, p.sha256, overlaps=p.id in seen)
            for p in datasets.load(name, self._data)
        ]

    def opening(self, item: BenchmarkItem) -> list[Message]:
        """System and user message of the protocol."""
        if self.released:
            request = _text("released").substitute(problem=item.text)
            return [Message("system", _text("released_system").template), Message("user", request)]
        if self._prompt == "tags":
            return [Message("system", _text("tags_system").template), Message("user", item.text)]
        return [Message("user", _text("boxed").substitute(problem=item.text))]

    def grade(self, item: BenchmarkItem, replies: Sequence[Reply]) -> Grading:
        """``strict`` and ``flexible`` of the last reply; r3l_released: the oracle's and the first reply's too."""
        grades = self._by_rule(item, replies[-1].text)
        if not self.released:
            return Grading(grades)
        answer = answer_in(replies[-1].text)
        oracle = self._consult(item, answer)
        if oracle.correct or len(replies) == ATTEMPTS or replies[-1].stop == "context":
            first = self._by_rule(item, replies[0].text)["strict"] if len(replies) > 1 else grades["strict"]
            return Grading({"oracle": oracle, **grades, "first_attempt": first})
        feedback = (
            _text("released_format").template if answer is None else _text("released_wrong").substitute(answer=answer)
        )
        return Grading({"oracle": oracle, **grades}, Message("user", feedback))

    def close(self) -> None:
        """End the grading processes."""
        self._grader.close()

    def __enter__(self) -> MathBenchmark:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _by_rule(self, item: BenchmarkItem, text: str) -> dict[str, Grade]:
        strict, flexible = extract(text, "strict"), extract(text, "flexible")
        graded = {answer: self._grade(item.gold, answer) for answer in {strict, flexible}}
        return {"strict": graded[strict], "flexible": graded[flexible]}

    def _consult(self, item: BenchmarkItem, answer: str | None) -> Grade:
        if answer is not None and self._oracle == "released":
            return Grade(check_in_actor(item.gold, answer), "graded", answer)
        return self._grade(item.gold, None if answer is None else boxed(answer) or answer)

    def _grade(self, gold: str, answer: str | None) -> Grade:
        graded = self._grader.grade(gold, answer)
        return Grade(graded.correct, graded.status, answer)


def _one_of(option: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise ConfigError(f"{option} is {value!r}; known: {', '.join(known)}")


def _text(name: str) -> Template:
    return Template((_PROMPTS / f"evaluate_{name}.txt").read_text(encoding="utf-8").strip())
