"""Sessions on the real engine: the original's rules one by one, recorded sessions, snapshots, replay,
memory."""

import random
from dataclasses import replace

import pytest
from r3l.envs.webshop import WebShop, WebshopOptions
from r3l.envs.webshop.engine.catalogue import Catalogue, Source, build
from r3l.envs.webshop.engine.goals import human_goals
from r3l.envs.webshop.engine.pages import instruction
from r3l.envs.webshop.engine.products import product_of
from r3l.envs.webshop.engine.shop import SEARCH_ACTION, WebshopEngine

from r3l.core.errors import DataError, EngineError
from r3l.core.task import Task
from r3l.processes.worker import RecordedEnvironment


@pytest.fixture
def engine(task):
    engine = WebshopEngine()
    engine.reset(task(0))
    return engine


def random_action(now, rng):
    """A random customer: searches for words of the instruction, clicks anything, sometimes invalid
    targets."""
    if rng.random() < 0.05:
        return rng.choice(("", "click[nothing]", "search", "buy[it]", "click[search]"))
    if SEARCH_ACTION in now.admissible or rng.random() < 0.1:
        words = instruction(now.text).split() if "Instruction:" in now.text else ["gift"]
        return f"search[{' '.join(rng.sample(words, min(len(words), rng.randint(1, 6))))}]"
    return rng.choice(now.admissible)


def play(engine, *actions):
    for action in actions:
        now = engine.step(action)
    return now


def session(engine):
    return engine.snapshot().session


def test_the_first_page(engine, shop, task):
    first = engine.reset(task(5))
    wish = shop.goal(5).instruction
    assert first.text == f"WebShop\nInstruction: \n{wish}\n[button] Search [button_]\n"
    assert first.admissible == (SEARCH_ACTION,) and not first.done


def test_what_is_not_understood_changes_nothing(engine):
    before, here = session(engine), engine.restore(engine.snapshot())
    for action in (
        "",
        "search",
        "search[]",
        "click[search]",
        "click[nothing]",
        "Search[tea]",
        "buy[tea]",
        "tea[",
        "[",
    ):
        assert engine.step(action) == replace(here, refused=True) and session(engine) == before


def test_search_from_any_page_and_page_turning(engine):
    first = play(engine, "search[shirt]")
    assert "Page 1 (Total results: " in first.text and "click[< prev]" not in first.admissible
    second = play(engine, "click[Next >]")  # the argument is lowered
    assert session(engine).page == 2 and "click[< prev]" in second.admissible
    assert play(engine, "click[< prev]") == first
    empty = play(engine, *["click[next >]"] * 6)  # past the end there is still Next
    assert empty.admissible == ("click[back to search]", "click[< prev]", "click[next >]")
    play(engine, "search[tea]", play(engine, "search[tea]").admissible[2])
    assert session(engine).at == "item_page"
    # The original accepts a search where there is no search bar.
    assert "Page 1" in play(engine, "search[shirt]").text and session(engine).asin is None


@pytest.mark.parametrize(
    ("action", "to_the_shop", "to_the_release"),
    [
        ("search[tea]", "searches", -0.1),  # there is no search bar on a page of results
        ("click[nothing]", -0.1, -0.1),
        ("fly", -0.1, -0.1),
        ("click[ ]", -0.1, -0.1),
        ("click[ next >]", -0.1, 0.0),  # the release reads it without blanks, the shop finds no such button
        (" click[next >]", -0.1, 0.0),
        ("click[Next >]", "turns the page", "turns the page"),
    ],
)
def test_who_refuses_an_action(task, action, to_the_shop, to_the_release):
    for refused, expected in (("shop", to_the_shop), ("released", to_the_release)):
        engine = WebshopEngine(WebshopOptions(penalty=0.1, refused=refused))
        engine.reset(task(0))
        before = play(engine, "search[shirt]")
        now = engine.step(action)
        if isinstance(expected, str):
            assert now.text != before.text and now.reward == 0 and not now.refused
        else:
            assert (now.text, now.reward, now.refused) == (before.text, expected, expected < 0), refused


def test_on_the_first_page_the_release_takes_the_search_button_for_an_action(task):
    for refused, expected in (("shop", -0.1), ("released", 0.0)):
        engine = WebshopEngine(WebshopOptions(penalty=0.1, refused=refused))
        first = engine.reset(task(0))
        now = engine.step("click[Search]")
        assert (now.text, now.reward) == (first.text, expected)
    empty = engine.step("search[ ]")
    assert (empty.text, empty.reward) == (first.text, -0.1)


def test_options_live_as_long_as_in_the_original(engine, shop):
    asin = shop.product(shop.listed("query", "shirts")[0]).asin.lower()
    play(engine, "search[<q> shirts]", f"click[{asin}]")
    item = shop.product(shop.number(asin.upper()))
    (color, colors), (size, sizes) = item.options
    now = play(engine, f"click[{colors[0]}]", f"click[{sizes[0]}]", f"click[{colors[1]}]")
    assert session(engine).options == ((color, colors[1]), (size, sizes[0]))
    assert now.text.startswith(f"You have clicked {sizes[0]}.\nYou have clicked {colors[1]}.\nInstruction:\n")
    # They survive sub pages,
    features = play(engine, "click[features]")
    assert f"\n {item.bullets[0]} \n" in features.text and play(engine, "click[< prev]") == now
    # are cleared on the way back to the results, where the product is marked as opened,
    results = play(engine, "click[< prev]")
    assert session(engine).options == () and f"[clicked button] {item.asin} [clicked button_]" in results.text
    # and everything but the goal is cleared by Back to Search.
    play(engine, f"click[{asin}]", f"click[{colors[0]}]", "click[back to search]")
    assert session(engine) == type(session(engine))(goal=0)


def test_a_searched_word_in_quotes_marks_an_option_as_clicked(engine, shop):
    """The original searches for the quoted value in the page's address, which contains the keywords too."""
    item = shop.product(shop.listed("query", "shirts")[0])
    value = item.options[0][1][0]
    now = play(engine, f'search[shirts "{value}"]', "search[<q> shirts]", f"click[{item.asin.lower()}]")
    assert "clicked" not in now.text
    now = play(engine, f'search[{item.name} "{value}"]', f"click[{item.asin.lower()}]")
    assert f"[clicked button] {value} [clicked button_]" in now.text and session(engine).options == ()


def test_buying_the_goal_scores_one_and_anything_else_ends_too(engine, shop, task):
    for number in range(12):
        goal = shop.goal(number)
        engine.reset(task(number))
        play(engine, f"search[<q> {goal.query}]", f"click[{goal.asin.lower()}]")
        bare = engine.snapshot()
        bought = play(engine, *(f"click[{value}]" for value in goal.options), "click[buy now]")
        assert (bought.reward, bought.done, bought.success) == (1.0, True, True)
        assert bought.admissible == () and "Your score (min 0.0, max 1.0)\n1.0\n" in bought.text
        engine.restore(bare)
        without = play(engine, "click[buy now]")
        wanted = len(goal.attributes) + len(goal.options) + 1
        assert without.reward == pytest.approx((wanted - len(goal.options)) / wanted)
        assert without.done and not without.success


def test_every_pivot_of_random_episodes_replays_identically(task, shop):
    """Return by snapshot through the pool's recorder, and by replaying the actions from the start."""
    compared = 0
    for number in range(15):
        rng, recorded = random.Random(number), RecordedEnvironment(WebshopEngine())
        seen, actions = [recorded.reset(task(number))], []
        while not seen[-1].done and len(actions) < 15:
            actions.append(random_action(seen[-1], rng))
            seen.append(recorded.step(actions[-1]))
        for pivot in reversed(range(len(seen))):
            assert recorded.rewind(pivot) == replace(seen[pivot], refused=False)
            compared += 1
        again = WebshopEngine()
        assert [again.reset(task(number)), *map(again.step, actions)] == seen
    assert compared > 75


def test_misuse_is_named(task, shop):
    engine = WebshopEngine()
    with pytest.raises(EngineError, match="reset the engine"):
        engine.step("search[tea]")
    engine.reset(task(0))
    mark = engine.snapshot()
    engine.reset(task(1))
    with pytest.raises(EngineError, match="another task"):
        engine.restore(mark)
    with pytest.raises(DataError, match=r"goal 4195 is outside catalogue original-90-.*goals 0 to 269"):
        engine.reset(task(4195))
    other = Task("t", "webshop", "t", "", {"catalogue": "original-1181436-00000000", "goal": 0})
    with pytest.raises(
        DataError, match=r"holds catalogue original-90-.*belongs to original-1181436-00000000"
    ):
        engine.reset(other)
    assert isinstance(Catalogue.at(shop.folder), Catalogue)


def test_the_released_penalty_ranks_an_impossible_last_action_below_dithering(task):
    """B-20: a missing button costs 0.1 if it ends the episode; by default nothing."""
    engine = WebShop().create({"penalty": 0.1})
    first = engine.reset(task(0))
    assert (first.reward, first.invalid_action_reward) == (0.0, -0.1)
    assert engine.step("click[nothing]").reward == -0.1
    valid = engine.step("search[gift]")
    assert (valid.reward, valid.invalid_action_reward) == (0.0, -0.1)
    plain = WebShop().create({})
    plain.reset(task(0))
    after = plain.step("click[nothing]")
    assert (after.reward, after.invalid_action_reward) == (0.0, 0.0)


def pot_offered_in(values, tmp_path, monkeypatch):
    """A task of a catalogue with one product, a pot whose option ``pack`` has ``values``."""
    record = {
        "asin": "B1",
        "name": "Tea pot",
        "full_description": "holds tea",
        "small_description": ["one line"],
        "pricing": "$5.00",
        "customization_options": {"pack": [{"value": value} for value in values]},
        "category": "kitchen",
        "query": "tea pot",
        "product_category": "Kitchen",
    }
    wish = {"instruction": "find a pot", "instruction_attributes": ["red"], "instruction_options": []}
    product = product_of(record, {}, "items.json, record 0")
    build([Source(product, tuple(human_goals(product, [wish], "human.json")))], tmp_path / "shop", "original")
    shop = Catalogue.at(tmp_path / "shop")
    monkeypatch.setenv("R3L_WEBSHOP", str(shop.folder))
    return Task("t", "webshop", "t", "", {"catalogue": shop.meta.id, "goal": 0})


def test_every_listed_option_can_be_chosen(tmp_path, monkeypatch):
    values = ["pack [6]", "[x] y", "two\nlines", "[a]", "a] click[b", "]", "1 [2] [3]", "plain"]
    engine = WebshopEngine()
    engine.reset(pot_offered_in(values, tmp_path, monkeypatch))
    shown = play(engine, "search[tea pot]", "click[b1]")
    for value in values:
        assert f"click[{value}]" in shown.admissible
        assert not engine.step(f"click[{value}]").refused and session(engine).options == (("pack", value),)


@pytest.mark.parametrize(
    ("action", "chosen"),
    [
        ("click[size: [x]]", None),
        ("click[pack [6]]", None),
        ("click[a] b]", "a] b"),
        ("click[ plain ]", None),
    ],
)
def test_the_release_cannot_click_a_target_with_an_opening_bracket(tmp_path, monkeypatch, action, chosen):
    """Its pattern ``(.+)\\[(.+)\\]`` takes the last opening bracket: click[size: [x]] is an action named "click[size: "
    (audit B-21). Blanks pass its check, and then do nothing in the shop."""
    engine = WebshopEngine(WebshopOptions(penalty=0.1, refused="released"))
    engine.reset(pot_offered_in(["size: [x]", "pack [6]", "a] b", "plain"], tmp_path, monkeypatch))
    play(engine, "search[tea pot]", "click[b1]")
    now = engine.step(action)
    passes = chosen is not None or action == "click[ plain ]"
    assert (now.reward, now.refused) == (0.0 if passes else -0.1, not passes)
    assert session(engine).options == ((("pack", chosen),) if chosen else ())
