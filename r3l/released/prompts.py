"""Prompts of the paper's released code for methods: reflection, guidance, critique."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from r3l.core.environment import Prompts
from r3l.core.text import Message
from r3l.released.texts import FOLDER, Text, render, texts


class ReleasedPrompts:
    """Prompts of the paper's released code for one ``environment`` (a folder of it: alfworld, dapo, ...).

    They are read from the user's clone. Every method raises ConfigError if there is no clone, or if a file in
    it is not the released one. The constructor reads nothing.
    """

    def __init__(self, environment: str) -> None:
        self._folder = f"{FOLDER}/{environment}"
        self._utils = f"{self._folder}/utils.py"

    def template(self, name: str, **values: object) -> str:
        """The text of the released jinja template ``prompts/NAME.j2``, rendered with ``values``."""
        return render(f"{self._folder}/prompts/{name}.j2", **values)

    def texts(self, function: str, *fields: str, used: str | None = None) -> tuple[Text, ...]:
        """Strings in ``function`` of the environment's ``utils.py`` with exactly these f-string expressions.

        They are in order of appearance. ``used``: only strings that are assigned to this variable ("return":
        that are returned). Raises ConfigError if there is none.
        """
        return texts(self._utils, function, *fields, used=used)

    def reflection(self, log: str) -> list[Message]:
        """The messages (system, user) that ask for a reflection on an episode; ``log``: from :meth:`log`."""
        (request,) = texts(f"{self._folder}/R3L_workflow.py", "get_reflect", "formatted_trajectory")
        content = request.fill({"formatted_trajectory": log})
        return [Message("system", self.template("reflection")), Message("user", content)]

    def guidance(self, report: Mapping[str, Any]) -> str:
        """The text that guides a retry: the complete ``report`` (a reflection as JSON) under a heading."""
        words = self.template("self_correction", report=json.dumps(report, indent=2, ensure_ascii=False))
        heading, *_ = self.texts("second_rollout", "original_system_prompt", "guidance_prompt")
        return heading.fill({"original_system_prompt": "", "guidance_prompt": words}).lstrip("\n")

    def critique(self, log: str, reward: float) -> list[Message]:
        """The message that asks for a critique of an episode (Critique-GRPO); ``log``: from :meth:`log`."""
        return [Message("user", self.template("critique", trajectory=log, reward=reward))]

    def refinement(self, critique: str) -> str:
        """The text that guides Critique-GRPO's second attempt: it shows the ``critique`` of the first."""
        (words,) = texts(f"{self._folder}/critique_grpo_workflow.py", "generate_refinement", "critique_text")
        return words.fill({"critique_text": critique})

    def log(self, prompts: Prompts, responses: Sequence[str], feedback: str) -> str:
        """The text of an episode with numbered steps, the closing ``feedback`` as one more step (audit B-23).

        ``prompts``: the messages before each of ``responses``, as many (else ValueError). An empty
        ``feedback`` is left out.
        """
        messages: list[Message] = []
        for prompt, response in zip(prompts, responses, strict=True):
            messages += [*prompt, Message("assistant", response)]
        if feedback:
            messages.append(Message("user", self.closed(feedback)))
        step = 0
        lines: list[str] = []
        for message in messages:
            # The release names the same values differently from one environment to the next.
            values = {"content": message.content, "content.strip()": message.content.strip()}
            values |= dict.fromkeys(("turn_counter", "step_counter"), str(step))
            lines += [line.fill(values) for line in self._log_lines(message.role)]
            if message.role == "assistant":
                step += 1
        return "\n".join(lines)

    def closed(self, feedback: str) -> str:
        """The last message of an episode's log: its closing ``feedback`` in the released words."""
        closing, *_ = self.texts("first_rollout", "feedback")
        return closing.fill({"feedback": feedback})

    def _log_lines(self, role: str) -> tuple[Text, ...]:
        """Templates of the lines that show one message in a log; an observation has a heading."""
        function = "format_trajectory_for_reflection"
        observation, response = self.texts(function, "content.strip()")
        if role == "system":
            return self.texts(function, "content")
        if role == "assistant":
            return (response,)
        return (*self.texts(function, "turn_counter"), observation)
