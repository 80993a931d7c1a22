"""Prompts and the reading of responses, on the real engine's observations."""

import json

import pytest
from r3l.envs.webshop.dialogue import WebshopDialogue, compact
from r3l.envs.webshop.engine import WebshopEngine
from r3l.envs.webshop.pages import instruction

from r3l.core.environment import Observation

FULL, COMPACT = WebshopDialogue("full", 15), WebshopDialogue("compact", 10)
ANYWHERE = Observation("", ())


def response(action):
    return f"<think>so</think> then <action>{action}</action>"


@pytest.fixture
def at_item(task, shop):
    """A goal's product page, with the observations on the way to it."""
    engine, goal = WebshopEngine(), shop.goal(0)
    seen = [engine.reset(task(0)), engine.step(f"search[<q> {goal.query}]")]
    seen.append(engine.step(f"click[{goal.asin.lower()}]"))
    return engine, goal, seen


def test_compact_shows_what_matters_on_one_line(at_item, shop):
    engine, goal, (first, results, item) = at_item
    assert [m.content for m in COMPACT.opening(None, first)] == [f"0: {goal.instruction}"]
    products = [shop.product(number) for number in shop.listed("query", goal.query)]
    assert COMPACT.following(first, ["x"], results).content == "1: page 1 of 3 results; " + "; ".join(
        f"{p.asin} {p.name} {p.price_label}".lower() for p in products
    )
    product = shop.product(shop.number(goal.asin))
    (name, values), (other, others) = product.options
    expected = (
        f"{name}: {{}}, {values[1]}, {values[2]}; {other}: {', '.join(others)}; {product.name}; {product.price_label}"
    )
    assert compact(item.text) == expected.format(values[0]).lower()
    assert compact(engine.step(f"click[{values[0]}]").text) == expected.format(f"*{values[0]}*").lower()
    assert compact(engine.step("click[features]").text) == product.bullets[0].lower().join("  ")
    assert compact(engine.step("click[back to search]").text) == "search page"


def test_released_prompts_hold_everything_needed(at_item):
    _, goal, (first, results, _) = at_item
    system, user = FULL.opening(None, first)
    assert (system.role, user.role) == ("system", "user") and "at most 15 actions" in system.content
    assert "only on a page that has a search bar" in system.content  # defect B-21 mended
    assert goal.instruction in user.content and '{"has_search_bar": true, "clickables": []}' in user.content
    later = FULL.following(first, ["search[x]"], results).content
    listed = json.loads(next(line for line in later.splitlines() if line.startswith('{"has_search_bar"')))
    assert listed["has_search_bar"] is False and listed["clickables"][:2] == ["back to search", "next >"]
    assert goal.asin.lower() in listed["clickables"] and results.text.strip() in later
    for part in ("<think>", "</think>", "<action>", "</action>"):
        assert part in later
    assert "$contract" not in later and instruction(results.text) == goal.instruction
