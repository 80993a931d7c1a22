"""A taskset of the tests: sums in the words that a stored base checkpoint knows."""

import itertools
import re

import verifiers.v1 as vf

__all__ = ["Chain"]

SUMS = [(have, buys) for have in range(5, 25) for buys in range(1, 9)]


class Data(vf.TaskData):
    answer: int


class Sum(vf.Task[Data, vf.State, vf.TaskConfig]):
    @vf.reward(weight=2.0)
    async def right(self, trace) -> float:
        return float(re.findall(r"\\boxed\{(\d+)\}", trace.last_reply)[-1:] == [str(self.data.answer)])

    @vf.reward(weight=-1.0)
    async def long(self, trace) -> float:
        if "crash" in trace.last_reply:
            raise RuntimeError("out of ink")
        return float(len(trace.last_reply) > 100)


class Chain(vf.Taskset[Sum, vf.TasksetConfig]):
    def load(self):
        for have, buys in itertools.islice(SUMS, 60):
            text = f"Dan has {have} stamps. Dan buys {buys}. Dan eats 2. How many stamps are left?"
            yield Sum(Data(prompt=text, answer=have + buys - 2), self.config.task)
