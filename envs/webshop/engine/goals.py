"""Goals: what a customer asks for, in the original's order, with its price limits drawn once and kept.

The original draws every price limit before it seeds its generator, so the limits (and with them instructions and
rewards) differ between processes. Ours belong to (asin, number of the instruction) and are written to disk.
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

SHUFFLE_SEED = 233  # the original's; its order of goals follows from it
NO_LIMIT = 1_000_000.0  # the original's price limit of a goal that states none
_LIMITS = tuple(10.0 * n for n in range(1, 100))  # the limits a goal can state, in dollars
_NEAREST = 4  # of those above the price, the limit is drawn from the nearest ones


@dataclass(frozen=True, slots=True)
class Goal:
    """A product that would satisfy the customer, and how the wish is put.

    ``options``: the wanted values; for goals made from product records, (name, value) pairs written as the
    original's fuzzy matcher reads them. ``price_upper`` in dollars.
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
    """The goals that people wrote for ``product``; those without attributes are skipped, as in the original."""
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
    """The goals made from a record's own instruction: one for every combination of its options."""
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
        # One limit for all combinations, as in the original.
        yield _goal(product, 0, text, wanted, options)


def in_order(goals: list[Goal]) -> list[Goal]:
    """The order in which sessions number the goals, from the order of the item file."""
    ordered = list(goals)
    random.Random(SHUFFLE_SEED).shuffle(ordered)
    return ordered


def price_limit(asin: str, number: int, price: float) -> float:
    """The larger of two of the four nearest limits above ``price``; NO_LIMIT where there are fewer than two."""
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
