"""The shop: sessions over a shared catalogue, with the original's pages, actions and scores (an ``Environment``).

A session is one small immutable value, so a snapshot is the session itself and restoring is O(1).
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from r3l.envs.webshop import WebshopOptions
from r3l.envs.webshop.engine import pages
from r3l.envs.webshop.engine.build import locate
from r3l.envs.webshop.engine.catalogue import HITS, Catalogue
from r3l.envs.webshop.engine.goals import Goal
from r3l.envs.webshop.engine.pages import Page, String
from r3l.envs.webshop.engine.reward import score

from r3l.core.environment import Observation
from r3l.core.errors import EngineError
from r3l.core.seeds import seed_of
from r3l.core.task import Task

SEARCH_ACTION = "search[keywords]"  # how the admissible list says that there is a search bar


@dataclass(frozen=True, slots=True)
class Session:
    """Where a customer is. ``at``: index, search_results, item_page, item_sub_page or done."""

    goal: int
    at: str = "index"
    keywords: tuple[str, ...] = ()
    page: int = 1
    asin: str | None = None
    opened: frozenset[str] = frozenset()
    options: tuple[tuple[str, str], ...] = ()
    sub_page: str = ""
    reward: float = 0.0

    @property
    def url(self) -> str:
        """The part of the original's address that its observations depend on."""
        return f"{'+'.join(self.keywords)}/{self.page}/{json.dumps(dict(self.options))}"


@dataclass(frozen=True, slots=True)
class _Mark:
    load: int
    session: Session


class WebshopEngine:
    """One live session (an ``Environment``). Engines of a process share the opened catalogue."""

    _goal: Goal  # from the first reset on
    _page: Page

    def __init__(self, options: WebshopOptions | None = None) -> None:
        self.options = options or WebshopOptions()
        self._catalogue: Catalogue | None = None
        self._session: Session | None = None
        self._loads = 0  # tells marks of different tasks apart

    def reset(self, task: Task) -> Observation:
        """Start ``task`` (payload: ``catalogue`` and ``goal``, a session number of the original).

        Raises DataError when the catalogue is missing, damaged or another one, or has no such goal.
        """
        self._session = None
        self._catalogue = Catalogue.at(locate(str(task.payload["catalogue"])))
        self._goal = self._catalogue.goal(int(task.payload["goal"]))
        self._loads += 1
        return self._enter(Session(int(task.payload["goal"])))

    def step(self, action: str) -> Observation:
        """Apply ``search[keywords]`` or ``click[target]``; anything else, or what is not there, changes nothing."""
        session = self._current()
        name, argument = self._read(action)
        released = self.options.refused == "released"
        if released and not self._passes(name.strip(), argument.strip()):
            return self._refuse()
        if name == "search":
            return self._enter(self._searched(session, tuple(argument.split(" "))))
        if name == "click" and argument in self._page.targets and argument != pages.SEARCH.lower():
            return self._enter(self._clicked(session, argument, self._page.targets[argument]))
        return self._observe(0.0) if released else self._refuse()

    def snapshot(self) -> _Mark:
        return _Mark(self._loads, self._current())

    def restore(self, snapshot: Any) -> Observation:
        if not isinstance(snapshot, _Mark) or snapshot.load != self._loads:
            raise EngineError("the snapshot belongs to another task than the one now started")
        return self._enter(snapshot.session)

    def close(self) -> None:
        """Forget the session; the catalogue stays open for the process's other engines."""
        self._session = None

    def _read(self, action: str) -> tuple[str, str]:
        """The name and argument of an action. A listed click is what it says, brackets and line breaks included."""
        if action.startswith("click[") and action.endswith("]"):
            for argument in (action[len("click[") : -1], action[len("click[") : -1].lower()):
                if argument in self._page.targets:
                    return "click", argument
        return read_action(action)

    def _passes(self, name: str, argument: str) -> bool:
        """Whether the released code sends an action on (audit B-21); both without blanks around them."""
        targets = self._page.targets
        return bool(argument) and (self._page.bar if name == "search" else name == "click" and argument in targets)

    def _current(self) -> Session:
        if self._session is None:
            raise EngineError("no session: reset the engine with a task first")
        return self._session

    def _enter(self, session: Session) -> Observation:
        self._session, self._page = session, self._render(session)
        return self._observe(session.reward if session.at == "done" else 0.0)

    def _refuse(self) -> Observation:
        return replace(self._observe(0.0 - self.options.penalty), refused=True)

    def _observe(self, reward: float) -> Observation:
        session = self._current()
        done = session.at == "done"
        plain = self.options.observation == "plain"
        text = pages.text_plain(self._page) if plain else pages.text_rich(self._page, session.url, session.opened)
        clicks = [f"click[{target}]" for target in self._page.targets if target != pages.SEARCH.lower()]
        admissible = ([SEARCH_ACTION] if self._page.bar else []) + clicks
        success = done and session.reward >= 1.0
        return Observation(
            text, tuple(admissible), reward, done, success, invalid_action_reward=0.0 - self.options.penalty
        )

    def _render(self, session: Session) -> Page:
        if session.at == "index":
            return pages.search_page(self._goal)
        if session.at == "search_results":
            return self._results(session)
        assert session.asin is not None
        if session.at == "done":
            return pages.done_page(session.asin, session.options, session.reward)
        product = self._shop.product(self._number(session.asin))
        if session.at == "item_page":
            return pages.item_page(self._goal, product)
        return pages.sub_page(self._goal, product, session.sub_page)

    def _results(self, session: Session) -> Page:
        hits, size = self._hits(session), self._shop.meta.page_size
        shown = hits[(session.page - 1) * size : session.page * size]
        return pages.results_page(self._goal, map(self._shop.product, shown), session.page, len(hits))

    def _hits(self, session: Session) -> Sequence[int]:
        """Product numbers, best first; ``<r>``, ``<c>``, ``<q>`` are the original's hidden search commands."""
        command, rest = session.keywords[0], session.keywords[1:]
        if command == "<r>":  # unseeded in the original; here it belongs to the goal, so that replays agree
            rng = random.Random(seed_of("webshop", self._shop.meta.id, session.goal))
            return rng.sample(range(self._shop.meta.products), k=min(HITS, self._shop.meta.products))
        if command == "<c>" and rest:
            return self._shop.listed("category", rest[0].strip())
        if command == "<q>":
            return self._shop.listed("query", " ".join(rest).strip())
        return self._shop.search(" ".join(session.keywords))

    def _searched(self, session: Session, keywords: tuple[str, ...], page: int = 1) -> Session:
        return replace(session, at="search_results", keywords=keywords, page=page, asin=None, options=(), reward=0.0)

    def _clicked(self, session: Session, name: str, target: String) -> Session:
        """The order of the cases is the original's: a button's meaning goes before an option of the same text."""
        if name == pages.BUY.lower():
            return replace(session, at="done", reward=self._score(session))
        if name == pages.BACK.lower():
            return Session(session.goal)
        if session.at == "search_results" and name in (pages.NEXT.lower(), pages.PREVIOUS.lower()):
            turn = 1 if name == pages.NEXT.lower() else -1
            return self._searched(session, session.keywords, session.page + turn)
        if name == pages.PREVIOUS.lower() and session.at == "item_page":
            return self._searched(session, session.keywords, session.page)
        for sub_page in pages.SUBPAGES:
            if name == sub_page.lower():
                return replace(session, at="item_sub_page", sub_page=sub_page)
        return self._item(session, target)

    def _item(self, session: Session, target: String) -> Session:
        there = replace(session, at="item_page", sub_page="")
        if target.kind == "link":
            return replace(there, asin=target.text, opened=session.opened | {target.text})
        if target.kind == "option":
            options = dict(session.options) | {target.group: target.text}
            return replace(there, options=tuple(options.items()))
        return there

    def _score(self, session: Session) -> float:
        assert session.asin is not None
        bought = self._shop.product(self._number(session.asin))
        chosen = [value for _, value in session.options]
        return score(self._goal, bought, chosen, self._shop.nouns).reward

    def _number(self, asin: str) -> int:
        number = self._shop.number(asin)
        assert number is not None, asin
        return number

    @property
    def _shop(self) -> Catalogue:
        assert self._catalogue is not None
        return self._catalogue


def read_action(action: str) -> tuple[str, str]:
    """The action's name and its argument in lower case; two empty strings where it is none.

    ``name[argument]`` on the first line, where the argument begins at the last bracket that leaves it one.
    """
    line = action.partition("\n")[0]
    end = line.rfind("]")
    start = line.rfind("[", 1, max(end - 1, 0))
    return (line[:start], line[start + 1 : end].lower()) if start > 0 else ("", "")
