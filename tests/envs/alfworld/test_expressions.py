"""Templates of game files: four forms are parsed, and no other expression is ever evaluated."""

from __future__ import annotations

from dataclasses import replace

import pytest
from official_alfworld import OfficialEnvironment
from r3l.envs.alfworld.engine.expressions import Entity, evaluate, parse_expression
from r3l.envs.alfworld.engine.games import game_texts
from r3l.envs.alfworld.engine.text_engine import AlfworldEngine
from r3l.envs.alfworld.engine.textgen import LiteralText, parse_nodes
from r3l.envs.alfworld.task_sets.houses import generate
from r3l.envs.alfworld.task_sets.rooms import House

from r3l.core.errors import DataError

HOUSE = generate(House("look_at_obj_in_light", seed=2))
ENTITIES = {
    "o": Entity("apple_1", "object", "apple 1"),
    "r": Entity("table_1", "receptacle", "", indefinite="an"),
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("o", "apple 1"),
        ("o.name", "apple 1"),
        ("r.name or r.id", "table_1"),
        ("r.indefinite + ' ' + o.name", "an apple 1"),
        ("o.type + (r.name or '?')", "object?"),
        ("r or r.name or o.definite", "the"),
    ],
)
def test_the_forms_of_the_published_grammar(text, value):
    assert evaluate(parse_expression(text), ENTITIES) == value


ATTACKS = [
    "__import__('os').system('touch {path}')",
    "o.__class__",
    "o.name.__class__",
    "open('{path}', 'w')",
    'f\'{{open("{path}", "w")}}\'',
    "o.name * 9999999999",
    "o.name % o.id",
    "o and r",
    "o." + "a" * 300,
    "(" * 199,
    "'" + "\\",
    "\x00",
]


@pytest.mark.parametrize("attack", ATTACKS)
def test_every_other_expression_is_refused(attack):
    with pytest.raises(DataError):
        parse_expression(attack)


@pytest.mark.parametrize("attack", ATTACKS[:3])
def test_both_engines_refuse_a_hostile_grammar_before_the_game_starts(attack, tmp_path):
    path = tmp_path / "created"
    hostile = attack.format(path=path)
    _, grammar, _ = game_texts(HOUSE)
    payload = {**HOUSE.payload, "grammar": grammar.replace("{o.name}", "{" + hostile + "}")}
    for game in (AlfworldEngine(), OfficialEnvironment()):
        with pytest.raises(DataError, match="house-hostile"):
            game.reset(replace(HOUSE, id="house-hostile", payload=payload))
        game.close()
    assert not path.exists()


@pytest.mark.parametrize("text", ["[open('created', 'w') for _ in 'a']", "o.name[0]", ""])
def test_what_the_packages_parser_cuts_off_is_no_expression(text):
    assert parse_nodes("This is {" + text + "} here.") == (LiteralText("This is "),)
