"""A scripted customer that reads only what the policy reads: it warm-starts the nano model.

It keeps a belief from the observed pages (which products were seen, which were ruled out, what is chosen), knows
which next actions are right under that belief, errs at a given rate, and can review a finished episode: the pivot is
a turn whose action was not right, and the review says only what the pages up to that turn show. It never looks at
the goal product.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from envs.webshop import pages
from envs.webshop.dialogue import instruction
from envs.webshop.synthetic import Wish, read_wish

PREVIOUS, NEXT, BACK, BUY = (f"click[{b.lower()}]" for b in (pages.PREVIOUS, pages.NEXT, pages.BACK, pages.BUY))
_LAST_PAGE = 3  # a patient customer looks no further and searches anew
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
class Belief:
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
    def at_start(cls, first: str) -> Belief:
        """From the first observation, which holds the instruction."""
        return cls(read_wish(instruction(first)))

    def see(self, action: str, text: str) -> None:
        """Take in the observation that answered ``action``."""
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


def plan(belief: Belief) -> list[str]:
    """The right actions from here on as far as they are known."""
    if belief.at == "index":
        return [f"search[{belief.search}]"]
    if belief.at == "results":
        return _from_results(belief)
    if belief.at == "sub":
        return [PREVIOUS]
    if belief.item is not None and belief.fits(belief.item) and not belief.lacking:
        return [*(f"click[{option}]" for option in belief.missing), BUY]
    return [PREVIOUS, *(_from_results(belief) if belief.candidates else [])]


def right_actions(belief: Belief) -> set[str]:
    """Every next action that a careful customer could take."""
    steps = plan(belief)
    if belief.at == "results" and belief.candidates:
        return {f"click[{asin}]" for asin in belief.candidates}
    if belief.at == "item" and steps[0] not in (PREVIOUS, BUY):
        return set(steps[:-1])
    return set(steps[:1])


def is_right(belief: Belief, action: str) -> bool:
    """Whether ``action`` is right; a search is, whatever the order of its words."""
    if belief.at == "index" and action.startswith("search["):
        return set(belief.search.split()) <= set(action[len("search[") : -1].split())
    return action in right_actions(belief)


def thought(belief: Belief) -> str:
    """A short subgoal for the plan's first action."""
    step = plan(belief)[0]
    known = {PREVIOUS: "not right", NEXT: "look further", BACK: "search again", BUY: "buy"}
    if belief.at == "index":
        return f"find {belief.wish.kind}"
    if belief.at == "sub":
        return "go back"
    return known.get(step) or ("pick" if belief.at == "results" else "choose") + f" {step[len('click[') : -1]}"


@dataclass(frozen=True)
class Temperament:
    """How a customer errs. ``slip``: rate of actions that are not right.

    ``habit``: share of slips that are the typical one (a vague search, the first product, buying too early).
    ``forgets``: does not look at prices.
    """

    slip: float
    habit: float
    forgets: bool


def choose(belief: Belief, admissible: Sequence[str], who: Temperament, rng: np.random.Generator) -> str:
    """The customer's next action: a right one, or with rate ``slip`` another that the page has."""
    if who.forgets:
        belief = replace(belief, wish=replace(belief.wish, limit=None))
    if rng.random() >= who.slip:
        return plan(belief)[0]
    habit = _habitual_slip(belief, rng)
    if rng.random() < who.habit and not is_right(belief, habit):
        return habit
    others = [action for action in admissible if action.startswith("click[") and not is_right(belief, action)]
    return str(rng.choice(others)) if others else habit


def _habitual_slip(belief: Belief, rng: np.random.Generator) -> str:
    if belief.at == "index":
        vague = (belief.wish.kind, *belief.wish.attributes[:1])
        return f"search[{' '.join(vague[: int(rng.integers(1, len(vague) + 1))])}]"
    if belief.at == "results" and belief.listed:
        return f"click[{next(iter(belief.listed))}]"
    return BUY if belief.at == "item" else PREVIOUS


@dataclass(frozen=True)
class Mistake:
    """A turn whose action was not a right one, and what would have been right there."""

    turn: int
    cause: str
    better: tuple[str, ...]

    def rescues(self, max_turns: int) -> bool:
        """What is better is known up to the purchase and still fits the step limit."""
        return self.better[-1] == BUY and self.turn + len(self.better) <= max_turns


def belief_after(first: str, answers: Sequence[tuple[str, str]]) -> Belief:
    """The belief of a reader of these (action, observation after it) pairs."""
    belief = Belief.at_start(first)
    for action, text in answers:
        belief.see(action, text)
    return belief


def mistakes(first: str, answers: Sequence[tuple[str, str]]) -> list[Mistake]:
    """Every turn of an episode of (action, observation after it) pairs that was not right when it was taken."""
    belief = Belief.at_start(first)
    found = []
    for turn, (action, text) in enumerate(answers):
        if not is_right(belief, action):
            found.append(Mistake(turn, _cause(belief, action), tuple(plan(belief))))
        belief.see(action, text)
    return found


def review(first: str, answers: Sequence[tuple[str, str]], success: bool, max_turns: int) -> dict[str, Any]:
    """The reflection a careful reader writes on an episode; returns the JSON object of r3l.reflection.

    The pivot is the last mistake from which the rest was known and still fitted the step limit, else the first
    mistake; a failure without one is retried from its last turn.
    """
    found = mistakes(first, answers)
    if success and not found:
        return _report(answers, "success", None)
    if not found:
        last = len(answers) - 1
        found = [Mistake(last, "no steps left", tuple(plan(belief_after(first, answers[:last]))))]
    decisive = [mistake for mistake in found if mistake.rescues(max_turns)]
    outcome = "success_but_inefficient" if success else "failure"
    return _report(answers, outcome, decisive[-1] if decisive else found[0])


def _report(answers: Sequence[tuple[str, str]], outcome: str, mistake: Mistake | None) -> dict[str, Any]:
    return {
        "trajectory_summary": f"{len(answers)} steps, {'bought' if answers[-1][0] == BUY else 'nothing bought'}",
        "root_cause_analysis": mistake.cause if mistake else "no needless step",
        "trajectory_outcome": outcome,
        "improvement_suggestion": ", then ".join(mistake.better) if mistake else None,
        "retry_from_step": mistake.turn if mistake else None,
    }


def _from_results(belief: Belief) -> list[str]:
    if belief.candidates:
        options = (f"click[{option}]" for option in belief.wish.options)
        return [f"click[{belief.candidates[0]}]", *options, BUY]
    complete = set(belief.search.split()) <= set(belief.query.split())
    return [NEXT if complete and belief.page < _LAST_PAGE and belief.listed else BACK]


def _cause(belief: Belief, action: str) -> str:
    limit = belief.wish.limit
    offer = belief.item if belief.at == "item" else belief.listed.get(action[len("click[") : -1])
    if belief.at == "index":
        return "the search leaves out what is wanted"
    if belief.at == "item" and action != BUY and belief.asin not in belief.rejected:
        return f"{action} is not wanted"
    if offer is not None and limit is not None and offer.price > limit:
        return "price above the limit"
    if offer is not None and not belief.fits(offer):
        return "not the wanted product"
    if action == BUY:
        unchosen = belief.lacking or belief.missing
        return f"{unchosen[0]} not offered" if belief.lacking else f"{unchosen[0]} not chosen"
    return f"{action} does not help"
