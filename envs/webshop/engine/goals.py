"""Goals of customers in the original's order, with price limits that are drawn once and stored.

The original draws every price limit before it seeds its generator, so the limits (and with them
instructions and rewards) differ between processes. Ours are seeded by (asin, number of the instruction) and
written to disk.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from r3l.envs.webshop.engine.products import MISSING, Product, expect, texts_of

from r3l.core.seeds import seed_of

SHUFFLE_SEED = 233  # the original's; it determines the order of goals
NO_LIMIT = 1_000_000.0  # the original's value for a goal without a price limit
_LIMITS = tuple(10.0 * n for n in range(1, 100))  # possible price limits in dollars
_NEAREST = 4  # a limit is drawn from this many of the nearest ones above the price


@dataclass(frozen=True, slots=True)
class Goal:
    """A product that satisfies the customer, with the customer's instruction.

    ``asin``, ``category``, ``query``, ``name``, ``product_category``: the product's. ``attributes``: the
    wanted ones. ``options``: the wanted values; for goals made from product records, (name, value) pairs, as
    the original's fuzzy matcher expects. ``price_upper``: price limit in dollars, NO_LIMIT without one.
    """

    asin: str
    category: str
    query: str
    name: str
    product_category: str
    instruction: str
    attributes: tuple[str, ...]
    options: tuple[str | tuple[str, str], ...]
    price_upper: float

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, line: str | bytes) -> Goal:
        fields = json.loads(line)
        fields["attributes"] = tuple(fields["attributes"])
        fields["options"] = tuple(o if isinstance(o, str) else (o[0], o[1]) for o in fields["options"])
        return cls(**fields)


def human_goals(product: Product, instructions: Sequence[Mapping[str, Any]], where: str) -> Iterator[Goal]:
    """Goals that people wrote for ``product``. Like the original, it skips instructions without attributes.

    A price limit (:func:`price_limit`) is added to the instruction. ``where``: file and position of the
    record, for errors (DataError).
    """
    for number, entry in enumerate(instructions):
        at = f"{where}, asin {product.asin}, entry {number}"
        wanted = expect(entry, dict, at, "the entry").get("instruction_attributes", MISSING)
        if wanted is not MISSING and not wanted:
            continue
        attributes = texts_of(wanted, at, "instruction_attributes")
        options = texts_of(entry.get("instruction_options", MISSING), at, "instruction_options")
        wish = expect(entry.get("instruction", MISSING), str, at, "instruction").strip(".")
        yield _goal(product, number, wish, attributes, options)


def synthetic_goals(product: Product, attributes: Mapping[str, Any], where: str) -> Iterator[Goal]:
    """Goals made from a record's own instruction: one for each combination of the product's options.

    A record without an instruction gives none. The wanted options and a price limit are added to the text.
    ``attributes``: its entry in the attribute file. ``where``: file and position, for errors (DataError).
    """
    wish = attributes.get("instruction")
    if wish is None:
        return
    at = f"{where}, asin {product.asin}"
    wish = expect(wish, str, at, "instruction")
    wanted = texts_of(attributes.get("instruction_attributes", MISSING), at, "instruction_attributes")
    named = sorted(product.options)
    for combination in itertools.product(*(values for _, values in named)):
        options = tuple((name, value) for (name, _), value in zip(named, combination, strict=True))
        listed = ", and ".join(f"{name}: {value}" for name, value in options)
        text = f"{wish} with {listed}" if listed else wish
        # Number 0 for all combinations: like in the original, they share one price limit.
        yield _goal(product, 0, text, wanted, options)


def in_order(goals: list[Goal]) -> list[Goal]:
    """A copy of ``goals`` in the order of the original's session numbers: shuffled with its fixed seed.

    ``goals`` are in the order of the item file.
    """
    ordered = list(goals)
    random.Random(SHUFFLE_SEED).shuffle(ordered)
    return ordered


def price_limit(asin: str, number: int, price: float) -> float:
    """The price limit in dollars of goal ``number`` of product ``asin``, which costs ``price``.

    As in the original, the candidates are the four lowest multiples of 10, up to 990, above the price. Two
    different ones are drawn, seeded by ``asin`` and ``number``, and the larger is the limit. NO_LIMIT if
    there are fewer than two candidates.
    """
    above = [limit for limit in _LIMITS if limit > price][:_NEAREST]
    if len(above) < 2:
        return NO_LIMIT
    return max(random.Random(seed_of("webshop", "price_upper", asin, number)).sample(above, 2))


def _goal(
    product: Product,
    number: int,
    wish: str,
    attributes: tuple[str, ...],
    options: tuple[str | tuple[str, str], ...],
) -> Goal:
    """A goal of ``product``: the instruction ``wish``, with the price limit of ``number`` if there is one."""
    limit = price_limit(product.asin, number, product.price)
    clause = "" if limit == NO_LIMIT else f", and price lower than {limit:.2f} dollars"
    return Goal(
        asin=product.asin,
        category=product.category,
        query=product.query,
        name=product.name,
        product_category=product.product_category,
        instruction=wish + clause,
        attributes=attributes,
        options=options,
        price_upper=limit,
    )
