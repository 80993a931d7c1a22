"""The scripted expert of WebShop, whose demonstrations teach the nano model. It reads only what the policy reads.

It keeps track of what the pages have shown (which products were seen, which were ruled out, what is chosen), knows
which next actions are right by that, errs at a given rate, and criticises a finished episode by what the pages up to
the wrong action show. It never looks at the goal product.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from r3l.envs.base.experts import Answers, ErrorModel, ScriptedExpert, WrongAction
from r3l.envs.webshop.engine import pages
from r3l.envs.webshop.engine.synthetic import Wish, read_wish

from r3l.core.environment import Observation

PREVIOUS, NEXT, BACK, BUY = (f"click[{b.lower()}]" for b in (pages.PREVIOUS, pages.NEXT, pages.BACK, pages.BUY))
_LAST_PAGE = 3  # a patient customer looks no further and searches again
_RESULTS = re.compile(r"Page (\d+) \(Total results: (\d+)\)")
_LISTED = re.compile(r"\[(?:clicked )?button\] (\S+) \[(?:clicked )?button_\]\n(.+)\n\$([\d.]+)\n")
_OPTION = re.compile(r"^  \[(clicked )?button\] (.*) \[(?:clicked )?button_\]$", re.MULTILINE)
_ITEM = re.compile(r"^(.+)\nPrice: \$([\d.]+)\nRating: ", re.MULTILINE)


@dataclass(frozen=True)
class Offer:
    """A product as a page shows it."""

    title: str
    price: float


@dataclass
class WebshopExpert(ScriptedExpert):
    """What the pages so far say. ``at``: index, results, item or sub."""

    wish: Wish
    at: str = "index"
    query: str = ""
    page: int = 0
    listed: dict[str, Offer] = field(default_factory=dict)
    asin: str = ""
    item: Offer | None = None
    offered: tuple[str, ...] = ()
    chosen: tuple[str, ...] = ()
    rejected: set[str] = field(default_factory=set)

    @classmethod
    def at_start(cls, first: str) -> WebshopExpert:
        """From the first observation, which holds the instruction."""
        return cls(read_wish(pages.instruction(first)))

    def observe(self, action: str, text: str) -> None:
        if action.startswith("search[") and _RESULTS.search(text):
            self.query = action[len("search[") : -1]
        if results := _RESULTS.search(text):
            self._see_results(int(results[1]), text)
        elif item := _ITEM.search(text):
            self._see_item(action, Offer(item[1], float(item[2])), text)
        else:
            self.at = "index" if "[button] Search [button_]" in text else "sub"

    def _see_results(self, page: int, text: str) -> None:
        self.at, self.page, self.asin, self.item = "results", page, "", None
        self.listed = {asin.lower(): Offer(title, float(price)) for asin, title, price in _LISTED.findall(text)}

    def _see_item(self, action: str, item: Offer, text: str) -> None:
        if self.at == "results":
            self.asin = action[len("click[") : -1]
        options = _OPTION.findall(text)
        self.at, self.item = "item", item
        self.offered = tuple(value for _, value in options)
        self.chosen = tuple(value for clicked, value in options if clicked)
        if not self.fits(item) or self.lacking:
            self.rejected.add(self.asin)

    def fits(self, offer: Offer) -> bool:
        """The title names the kind and every attribute, and the price is within the limit."""
        wanted = (self.wish.kind, *self.wish.attributes)
        cheap = self.wish.limit is None or offer.price <= self.wish.limit
        return cheap and all(phrase in offer.title for phrase in wanted)

    @property
    def lacking(self) -> list[str]:
        """Wanted options that the present product does not offer."""
        return [option for option in self.wish.options if option not in self.offered]

    @property
    def missing(self) -> list[str]:
        """Wanted options that are not chosen yet."""
        return [option for option in self.wish.options if option not in self.chosen]

    @property
    def candidates(self) -> list[str]:
        """Listed products that fit and were not ruled out, in page order."""
        return [asin for asin, offer in self.listed.items() if self.fits(offer) and asin not in self.rejected]

    @property
    def search(self) -> str:
        """The search that names everything that is wanted."""
        return " ".join((*self.wish.attributes, self.wish.kind, *self.wish.options))

    def suggested(self) -> list[str]:
        """The plan: it names only what pages have shown."""
        return plan(self)

    def thought(self) -> str:
        """A short subgoal for the plan's first action."""
        step = plan(self)[0]
        known = {PREVIOUS: "not right", NEXT: "look further", BACK: "search again", BUY: "buy"}
        if self.at == "index":
            return f"find {self.wish.kind}"
        if self.at == "sub":
            return "go back"
        return known.get(step) or ("pick" if self.at == "results" else "choose") + f" {step[len('click[') : -1]}"

    def choose(
        self, now: Observation, actions: Sequence[str], error_model: ErrorModel, rng: np.random.Generator
    ) -> str:
        """A right action, or with the error rate another that the page has. The price limit may be overlooked.

        The systematic errors: a vague search, the first product, buying too early.
        """
        expert = replace(self, wish=replace(self.wish, limit=None)) if error_model.overlooks else self
        if rng.random() >= error_model.rate:
            return plan(expert)[0]
        systematic = _systematic_error(expert, rng)
        if rng.random() < error_model.systematic and not is_right(expert, systematic):
            return systematic
        others = [action for action in now.admissible if action.startswith("click[") and not is_right(expert, action)]
        return str(rng.choice(others)) if others else systematic

    def check(self, turn: int, action: str, text: str) -> WrongAction | None:
        if is_right(self, action):
            return None
        steps = plan(self)
        return WrongAction(turn, _cause(self, action), tuple(steps), complete=steps[-1] == BUY)

    def summary(self, answers: Answers) -> str:
        return f"{len(answers)} steps, {'bought' if answers[-1][0] == BUY else 'nothing bought'}"

    def possible(self, action: str, now: Observation) -> bool:
        return action in now.admissible or action.startswith("search[")

    def suggested_at_limit(self) -> list[str]:
        return plan(self)


def plan(expert: WebshopExpert) -> list[str]:
    """The right actions from here on as far as they are known."""
    if expert.at == "index":
        return [f"search[{expert.search}]"]
    if expert.at == "results":
        return _from_results(expert)
    if expert.at == "sub":
        return [PREVIOUS]
    if expert.item is not None and expert.fits(expert.item) and not expert.lacking:
        return [*(f"click[{option}]" for option in expert.missing), BUY]
    return [PREVIOUS, *(_from_results(expert) if expert.candidates else [])]


def right_actions(expert: WebshopExpert) -> set[str]:
    """Every next action that an error-free expert could take."""
    steps = plan(expert)
    if expert.at == "results" and expert.candidates:
        return {f"click[{asin}]" for asin in expert.candidates}
    if expert.at == "item" and steps[0] not in (PREVIOUS, BUY):
        return set(steps[:-1])
    return set(steps[:1])


def is_right(expert: WebshopExpert, action: str) -> bool:
    """Whether ``action`` is right; a search is, whatever the order of its words."""
    if expert.at == "index" and action.startswith("search["):
        return set(expert.search.split()) <= set(action[len("search[") : -1].split())
    return action in right_actions(expert)


def _systematic_error(expert: WebshopExpert, rng: np.random.Generator) -> str:
    if expert.at == "index":
        vague = (expert.wish.kind, *expert.wish.attributes[:1])
        return f"search[{' '.join(vague[: int(rng.integers(1, len(vague) + 1))])}]"
    if expert.at == "results" and expert.listed:
        return f"click[{next(iter(expert.listed))}]"
    return BUY if expert.at == "item" else PREVIOUS


def _from_results(expert: WebshopExpert) -> list[str]:
    if expert.candidates:
        options = (f"click[{option}]" for option in expert.wish.options)
        return [f"click[{expert.candidates[0]}]", *options, BUY]
    complete = set(expert.search.split()) <= set(expert.query.split())
    return [NEXT if complete and expert.page < _LAST_PAGE and expert.listed else BACK]


def _cause(expert: WebshopExpert, action: str) -> str:
    limit = expert.wish.limit
    offer = expert.item if expert.at == "item" else expert.listed.get(action[len("click[") : -1])
    if expert.at == "index":
        return "the search leaves out what is wanted"
    if expert.at == "item" and action != BUY and expert.asin not in expert.rejected:
        return f"{action} is not wanted"
    if offer is not None and limit is not None and offer.price > limit:
        return "price above the limit"
    if offer is not None and not expert.fits(offer):
        return "not the wanted product"
    if action == BUY and (unchosen := expert.lacking or expert.missing):  # none: nothing to buy on this page
        return f"{unchosen[0]} not offered" if expert.lacking else f"{unchosen[0]} not chosen"
    return f"{action} does not help"
