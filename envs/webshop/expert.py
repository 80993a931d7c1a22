"""Scripted expert of WebShop; its demonstrations train the nano model. It reads only what the policy reads.

It tracks what the pages have shown (products seen, products ruled out, options chosen), derives the correct
next actions, errs at a given rate, and criticises a finished episode by what the pages showed before the
wrong action. It never uses the goal product.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from r3l.envs.base.experts import Answers, ErrorModel, ScriptedExpert, WrongAction
from r3l.envs.webshop.engine import pages
from r3l.envs.webshop.engine.pages import Page, String
from r3l.envs.webshop.engine.synthetic import OPTIONS, Wish, read_wish

from r3l.core.environment import Observation

PREVIOUS = f"click[{pages.PREVIOUS.lower()}]"
NEXT = f"click[{pages.NEXT.lower()}]"
BACK = f"click[{pages.BACK.lower()}]"
BUY = f"click[{pages.BUY.lower()}]"
_LAST_PAGE = 3  # last page of results that the expert looks at before it searches again
_LISTED = re.compile(r"\[(?:clicked )?button\] (\S+) \[(?:clicked )?button_\]\n(.+)\n\$([\d.]+)\n")
_OPTION = re.compile(r"^  \[(clicked )?button\] (.*) \[(?:clicked )?button_\]$", re.MULTILINE)
_ITEM = re.compile(r"^(.+)\nPrice: \$([\d.]+)\nRating: ", re.MULTILINE)


@dataclass(frozen=True)
class Offer:
    """Title and price of a product, as shown on a page."""

    title: str
    price: float


@dataclass
class WebshopExpert(ScriptedExpert):
    """Scripted expert with what the pages so far have shown.

    - ``wish``: what the instruction asks for; ``at``: kind of the current page (index, results, item or sub)
    - ``query``, ``page``: the last search; ``listed``: asin -> offer on the current page of results
    - ``asin``, ``item``, ``offered``, ``chosen``: the current product, its option values, and those chosen
    - ``rejected``: asins of products that do not fit
    """

    wish: Wish
    at: str = "index"
    query: str = ""
    page: int = 0  # page of the results
    listed: dict[str, Offer] = field(default_factory=dict)  # asin -> offer, on the current page of results
    asin: str = ""
    item: Offer | None = None  # the current product
    offered: tuple[str, ...] = ()  # its option values
    chosen: tuple[str, ...] = ()
    rejected: set[str] = field(default_factory=set)  # asins of products that do not fit

    @classmethod
    def at_start(cls, first: str) -> WebshopExpert:
        """An expert that has read only the first observation ``first``, which contains the instruction.

        Raises ValueError for an instruction that is not of the synthetic catalogue.
        """
        return cls(read_wish(pages.instruction(first)))

    def observe(self, action: str, text: str) -> None:
        if pages.SEPARATOR in text:
            text = self._rich(action, text)
        results = pages.RESULTS.search(text)
        item = _ITEM.search(text)
        if results:
            if action.startswith("search["):
                self.query = action[len("search[") : -1]
            self.at = "results"
            self.page = int(results[1])
            self.asin = ""
            self.item = None
            found = _LISTED.findall(text)
            self.listed = {asin.lower(): Offer(title, float(price)) for asin, title, price in found}
        elif item:
            if self.at == "results":
                self.asin = action[len("click[") : -1]
            self.at = "item"
            self.item = Offer(item[1], float(item[2]))
            options = _OPTION.findall(text)
            self.offered = tuple(value for _, value in options)
            self.chosen = tuple(value for clicked, value in options if clicked)
            if not self.fits(self.item) or self.lacking:
                self.rejected.add(self.asin)
        else:
            self.at = "index" if "[button] Search [button_]" in text else "sub"

    def _rich(self, action: str, plain: str) -> str:
        """The page ``plain`` after ``action`` as the observation ``rich`` shows it, with all marks.

        A plain page does not show which options are chosen; the clicks on its product do.
        """
        chosen = set(self.chosen) if self.at in ("item", "sub") else set()
        clicked = action[len("click[") : -1].lower()
        if self.at == "item" and action.startswith("click[") and clicked in self.offered:
            values = next(values for values in OPTIONS.values() if clicked in values)
            chosen = chosen.difference(values) | {clicked}

        # What a string is follows from its text, and on a page of results from its place: asin, title, price.
        texts = plain.split(pages.SEPARATOR)
        strings = []
        for place, text in enumerate(texts):
            kind = "text"
            if text in pages.STANDARD_BUTTONS:
                kind = "button"
            elif any(text in values for values in OPTIONS.values()):
                kind = "option"
            elif pages.NEXT in texts[:place] and (place - texts.index(pages.NEXT)) % 3 == 1:
                kind = "link"
            strings.append(String(text, kind))
        return pages.text_rich(Page(tuple(strings)), json.dumps(sorted(chosen)), ())

    def fits(self, offer: Offer) -> bool:
        """Whether the title of ``offer`` contains kind and attributes of the wish, within its price limit."""
        wanted = (self.wish.kind, *self.wish.attributes)
        cheap = self.wish.limit is None or offer.price <= self.wish.limit
        return cheap and all(phrase in offer.title for phrase in wanted)

    @property
    def lacking(self) -> list[str]:
        """Wanted options that the current product does not offer."""
        return [option for option in self.wish.options if option not in self.offered]

    @property
    def missing(self) -> list[str]:
        """Wanted options that are not chosen yet."""
        return [option for option in self.wish.options if option not in self.chosen]

    @property
    def candidates(self) -> list[str]:
        """Asins of listed products that fit and were not ruled out, in the order of the page."""
        return [asin for asin, offer in self.listed.items() if self.fits(offer) and asin not in self.rejected]

    @property
    def search(self) -> str:
        """The words of the search for everything wanted: the attributes, the kind and the options."""
        return " ".join((*self.wish.attributes, self.wish.kind, *self.wish.options))

    def suggested(self) -> list[str]:
        """The actions still to do, in order, as far as the pages shown so far reveal them."""
        return plan(self)

    def thought(self) -> str:
        """A short subgoal of the correct next action, even if :meth:`choose` takes a wrong one."""
        if self.at == "index":
            return f"find {self.wish.kind}"
        if self.at == "sub":
            return "go back"
        step = plan(self)[0]
        buttons = {PREVIOUS: "not right", NEXT: "look further", BACK: "search again", BUY: "buy"}
        if step in buttons:
            return buttons[step]
        verb = "pick" if self.at == "results" else "choose"
        return f"{verb} {step[len('click[') : -1]}"

    def choose(
        self, now: Observation, actions: Sequence[str], error_model: ErrorModel, rng: np.random.Generator
    ) -> str:
        """A correct action on the page ``now``, or with probability ``error_model.rate`` a wrong one.

        If ``error_model.overlooks``, the agent acts as if the goal had no price limit. ``actions``: the
        earlier ones of the episode, not used here.
        """
        expert = replace(self, wish=replace(self.wish, limit=None)) if error_model.overlooks else self
        if rng.random() >= error_model.rate:
            return plan(expert)[0]

        # The systematic error of this kind of page: a vague search, the first product, buying too early.
        if expert.at == "index":
            vague = (expert.wish.kind, *expert.wish.attributes[:1])
            words = vague[: int(rng.integers(1, len(vague) + 1))]
            systematic = f"search[{' '.join(words)}]"
        elif expert.at == "results" and expert.listed:
            systematic = f"click[{next(iter(expert.listed))}]"
        else:
            systematic = BUY if expert.at == "item" else PREVIOUS
        if rng.random() < error_model.systematic and not is_right(expert, systematic):
            return systematic

        clicks = [action for action in now.admissible if action.startswith("click[")]
        others = [action for action in clicks if not is_right(expert, action)]
        return str(rng.choice(others)) if others else systematic

    def check(self, turn: int, action: str, text: str) -> WrongAction | None:
        """Judge ``action`` of ``turn``, taken on the page observed last; None if right (:func:`is_right`).

        ``text``, the page after it, makes no difference.
        """
        if is_right(self, action):
            return None
        steps = plan(self)

        # The cause, in the words of a critique: of a wrong search, click or purchase.
        limit = self.wish.limit
        offer = self.item if self.at == "item" else self.listed.get(action[len("click[") : -1])
        if self.at == "index":
            cause = "the search leaves out what is wanted"
        elif self.at == "item" and action != BUY and self.asin not in self.rejected:
            cause = f"{action} is not wanted"
        elif offer is not None and limit is not None and offer.price > limit:
            cause = "price above the limit"
        elif offer is not None and not self.fits(offer):
            cause = "not the wanted product"
        elif action == BUY and self.lacking:
            cause = f"{self.lacking[0]} not offered"
        elif action == BUY and self.missing:
            cause = f"{self.missing[0]} not chosen"
        else:
            cause = f"{action} does not help"
        return WrongAction(turn, cause, tuple(steps), complete=steps[-1] == BUY)

    def summary(self, answers: Answers) -> str:
        end = "bought" if answers[-1][0] == BUY else "nothing bought"
        return f"{len(answers)} steps, {end}"

    def possible(self, action: str, now: Observation) -> bool:
        return action in now.admissible or action.startswith("search[")

    def suggested_at_limit(self) -> list[str]:
        return plan(self)


def plan(expert: WebshopExpert) -> list[str]:
    """The correct actions from here on, in order, as far as the pages so far tell; at least one."""
    if expert.at == "index":
        return [f"search[{expert.search}]"]
    if expert.at == "results":
        return _from_results(expert)
    if expert.at == "sub":
        return [PREVIOUS]
    if expert.item is not None and expert.fits(expert.item) and not expert.lacking:
        return [*(f"click[{option}]" for option in expert.missing), BUY]
    steps = [PREVIOUS]
    if expert.candidates:
        steps += _from_results(expert)
    return steps


def right_actions(expert: WebshopExpert) -> set[str]:
    """Every next action that an error-free agent could take.

    Many searches would be right; only the one that the expert would make is in the set.
    """
    steps = plan(expert)
    if expert.at == "results" and expert.candidates:
        return {f"click[{asin}]" for asin in expert.candidates}
    if expert.at == "item" and steps[0] not in (PREVIOUS, BUY):
        return set(steps[:-1])
    return set(steps[:1])


def is_right(expert: WebshopExpert, action: str) -> bool:
    """Whether ``action`` is correct; a search is if it has all wanted words, in any order, and maybe more."""
    if expert.at == "index" and action.startswith("search["):
        return set(expert.search.split()) <= set(action[len("search[") : -1].split())
    return action in right_actions(expert)


def _from_results(expert: WebshopExpert) -> list[str]:
    """The plan on a page of results: buy a candidate, else look further or search again."""
    if expert.candidates:
        options = (f"click[{option}]" for option in expert.wish.options)
        return [f"click[{expert.candidates[0]}]", *options, BUY]
    complete = set(expert.search.split()) <= set(expert.query.split())
    if complete and expert.page < _LAST_PAGE and expert.listed:
        return [NEXT]
    return [BACK]
