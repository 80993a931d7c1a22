"""The shop: an ``Environment`` of sessions with the original's pages, actions and rewards.

A session is a small immutable value, so a snapshot is the session itself and restoring it is O(1).
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
from r3l.envs.webshop.engine.products import Product
from r3l.envs.webshop.engine.reward import score

from r3l.core.environment import Observation
from r3l.core.errors import EngineError
from r3l.core.seeds import seed_of
from r3l.core.task import Task

SEARCH_ACTION = "search[keywords]"  # entry of the admissible actions on a page with a search bar


@dataclass(frozen=True, slots=True)
class Session:
    """State of a session.

    ``goal``: its number. ``at``: kind of the current page (index, search_results, item_page, item_sub_page or
    done). ``keywords``, ``page``: the last search. ``asin``: current product. ``opened``: asins opened so
    far. ``options``: chosen (name, value) pairs.
    """

    goal: int
    at: str = "index"
    keywords: tuple[str, ...] = ()
    page: int = 1  # page of the search results
    asin: str | None = None
    opened: frozenset[str] = frozenset()  # asins of the products opened so far
    options: tuple[tuple[str, str], ...] = ()  # chosen (name, value)
    sub_page: str = ""
    reward: float = 0.0

    @property
    def url(self) -> str:
        """``WORDS/PAGE/OPTIONS``: the last search's words joined by +, its page, the chosen options as JSON.

        The observation ``text_rich`` marks an option as clicked if its quoted value occurs here, as in the
        original's address.
        """
        return f"{'+'.join(self.keywords)}/{self.page}/{json.dumps(dict(self.options))}"


@dataclass(frozen=True, slots=True)
class _SessionSnapshot:
    load: int  # of the engine when it was taken
    session: Session


class WebshopEngine:
    """The engine of WebShop (an ``Environment``), which plays one session at a time.

    The engines of a process share the opened catalogue.
    """

    _goal: Goal  # from the first reset on
    _page: Page

    def __init__(self, options: WebshopOptions | None = None) -> None:
        self.options = options or WebshopOptions()
        self._catalogue: Catalogue | None = None
        self._session: Session | None = None
        self._loads = 0  # number of tasks started; by it snapshots of different tasks differ

    def reset(self, task: Task) -> Observation:
        """Start ``task`` (payload: ``catalogue``, its id, and ``goal``, a session number of the original).

        Raises DataError if the catalogue is missing, damaged or has another id, or has no such goal.
        """
        self._session = None
        self._catalogue = Catalogue.at(locate(str(task.payload["catalogue"])))
        self._goal = self._catalogue.goal(int(task.payload["goal"]))
        self._loads += 1
        return self._enter(Session(int(task.payload["goal"])))

    def step(self, action: str) -> Observation:
        """Apply ``search[keywords]`` or ``click[target]`` and return the next observation.

        A purchase ends the episode with its reward. Any other action or target changes nothing: the same page
        is shown again, marked as refused, with reward -``penalty`` (not always under ``refused: released``,
        see WebshopOptions). Raises EngineError before a successful ``reset``.
        """
        session = self._current()
        targets = self._page.targets
        released = self.options.refused == "released"
        name, argument = read_action(action)
        if not released and action.startswith("click[") and action.endswith("]"):
            # A target of the page may contain brackets and line breaks, which read_action does not read.
            target = action[len("click[") : -1]
            listed = [text for text in (target, target.lower()) if text in targets]
            if listed:
                name = "click"
                argument = listed[0]

        # The released code validates actions, without blanks around them, before it sends them (audit B-21).
        if released:
            stripped = argument.strip()
            searches = name.strip() == "search" and self._page.bar
            clicks = name.strip() == "click" and stripped in targets
            if not stripped or not (searches or clicks):
                return self._refuse()

        if name == "search":
            return self._enter(self._searched(session, tuple(argument.split(" "))))
        if name == "click" and argument in targets and argument != pages.SEARCH.lower():
            return self._enter(self._clicked(session, argument, targets[argument]))
        return self._observe(0.0) if released else self._refuse()

    def snapshot(self) -> _SessionSnapshot:
        return _SessionSnapshot(self._loads, self._current())

    def restore(self, snapshot: Any) -> Observation:
        if not isinstance(snapshot, _SessionSnapshot) or snapshot.load != self._loads:
            raise EngineError("the snapshot belongs to another task than the one now started")
        return self._enter(snapshot.session)

    def close(self) -> None:
        """Forget the session; the catalogue stays open for other engines of the process."""
        self._session = None

    def _current(self) -> Session:
        if self._session is None:
            raise EngineError("no session: reset the engine with a task first")
        return self._session

    def _enter(self, session: Session) -> Observation:
        """Make ``session`` the current one and show its page."""
        self._session = session
        if session.at == "index":
            self._page = pages.search_page(self._goal)
        elif session.at == "search_results":
            hits = self._hits(session)
            size = self._shop.meta.page_size
            shown = map(self._shop.product, hits[(session.page - 1) * size : session.page * size])
            self._page = pages.results_page(self._goal, shown, session.page, len(hits))
        elif session.at == "done":
            self._page = pages.done_page(str(session.asin), session.options, session.reward)
        elif session.at == "item_page":
            self._page = pages.item_page(self._goal, self._product(session.asin))
        else:
            self._page = pages.sub_page(self._goal, self._product(session.asin), session.sub_page)
        return self._observe(session.reward if session.at == "done" else 0.0)

    def _refuse(self) -> Observation:
        """The unchanged page in answer to an impossible action."""
        return replace(self._observe(0.0 - self.options.penalty), refused=True)

    def _observe(self, reward: float) -> Observation:
        """The observation of the current page, with its admissible actions."""
        session = self._current()
        done = session.at == "done"
        if self.options.observation == "plain":
            text = pages.text_plain(self._page)
        else:
            text = pages.text_rich(self._page, session.url, session.opened)
        clicks = [f"click[{target}]" for target in self._page.targets if target != pages.SEARCH.lower()]
        admissible = ([SEARCH_ACTION] if self._page.bar else []) + clicks
        return Observation(
            text,
            tuple(admissible),
            reward,
            done,
            success=done and session.reward >= 1.0,
            invalid_action_reward=0.0 - self.options.penalty,
        )

    def _hits(self, session: Session) -> Sequence[int]:
        """Numbers of the found products, best first.

        ``<r>``, ``<c>`` and ``<q>`` are hidden search commands of the original.
        """
        command = session.keywords[0]
        rest = session.keywords[1:]
        if command == "<r>":  # random products; unlike the original's, seeded by the goal for equal replays
            rng = random.Random(seed_of("webshop", self._shop.meta.id, session.goal))
            return rng.sample(range(self._shop.meta.products), k=min(HITS, self._shop.meta.products))
        if command == "<c>" and rest:
            return self._shop.listed("category", rest[0].strip())
        if command == "<q>":
            return self._shop.listed("query", " ".join(rest).strip())
        return self._shop.search(" ".join(session.keywords))

    def _searched(self, session: Session, keywords: tuple[str, ...], page: int = 1) -> Session:
        return replace(
            session,
            at="search_results",
            keywords=keywords,
            page=page,
            asin=None,
            options=(),
            reward=0.0,
        )

    def _clicked(self, session: Session, name: str, target: String) -> Session:
        """The session after a click."""
        # In the order of the original: a button takes precedence over an option of the same name.
        if name == pages.BUY.lower():
            chosen = [value for _, value in session.options]
            purchase = score(self._goal, self._product(session.asin), chosen, self._shop.nouns)
            return replace(session, at="done", reward=purchase.reward)
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

        # Every other target leads to the page of a product: its link, one of its options, or "< Prev" on a
        # sub-page.
        at_item = replace(session, at="item_page", sub_page="")
        if target.kind == "link":
            return replace(at_item, asin=target.text, opened=session.opened | {target.text})
        if target.kind == "option":
            options = dict(session.options) | {target.group: target.text}
            return replace(at_item, options=tuple(options.items()))
        return at_item

    def _product(self, asin: str | None) -> Product:
        """The product of the current page."""
        assert asin is not None
        number = self._shop.number(asin)
        assert number is not None, asin
        return self._shop.product(number)

    @property
    def _shop(self) -> Catalogue:
        assert self._catalogue is not None
        return self._catalogue


def read_action(action: str) -> tuple[str, str]:
    """Parse ``name[argument]`` on the first line into (name, lower-case argument); ("", "") for another form.

    The argument begins after the last opening bracket that has text between it and the closing one.
    """
    line = action.partition("\n")[0]
    end = line.rfind("]")
    start = line.rfind("[", 1, max(end - 1, 0))
    if start <= 0:
        return "", ""
    return line[:start], line[start + 1 : end].lower()
