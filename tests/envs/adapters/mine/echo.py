"""A taskset with an Env of its own: say a word again, until it is said right."""

import verifiers.v1 as vf

__all__ = ["Echo", "Echoes"]

WORDS = ("yes", "no", "maybe", "never")


class Config(vf.TasksetConfig):
    opened_by: str = "prompt"
    """prompt, messages, or user: who says the first words."""


class Word(vf.Task[vf.TaskData, vf.State, vf.TaskConfig]):
    async def setup(self, trace, runtime) -> None:
        trace.info["heard"] = []

    async def finalize(self, trace) -> None:
        trace.record_metric("turns", trace.num_turns)

    @vf.stop
    async def gave_up(self, trace: vf.Trace) -> bool:
        return trace.last_reply == "enough"

    @vf.reward
    async def said(self, trace) -> float:
        right = trace.last_reply == WORDS[self.data.idx]
        return right / trace.metrics["turns"]


class Echoes(vf.Taskset[Word, Config]):
    def load(self):
        for word in WORDS:
            if self.config.opened_by == "prompt":
                yield Word(vf.TaskData(prompt=f"Say {word}.", system_prompt="Be short."))
            elif self.config.opened_by == "user":
                yield Word(vf.TaskData(name=word, system_prompt="Be short."))
            else:
                example = [vf.UserMessage(content="Say so."), vf.AssistantMessage(content="so")]
                yield Word(vf.TaskData(prompt=[*example, vf.UserMessage(content=f"Say {word}.")]))


class Seats(vf.EnvConfig):
    speaker: vf.AgentConfig = vf.AgentConfig(max_turns=3)


class Echo(vf.Env[Seats]):
    async def run(self, task, agents):
        async with agents.speaker.interaction(task) as talk:
            said = await (talk.turn() if task.data.prompt else talk.turn(f"Say {task.data.name}."))
            while not said.terminated and said.last_reply != WORDS[task.data.idx]:
                said = await talk.turn(f"That was {said.last_reply!r}. Again.")

    async def finalize(self, task, episode):
        (trace,) = episode.traces
        trace.record_reward("stopped", trace.stop_condition in ("max_turns", "gave_up"), weight=-0.25)
