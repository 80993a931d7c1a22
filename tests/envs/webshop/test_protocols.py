"""Evaluation protocols on WebShop: messages and answers, worked out by hand from the originals' rules."""

import itertools

import pytest
from r3l.envs.base.agentbench_truncation import segments
from r3l.envs.webshop.text.dialogue import VerlAgentWebshopDialogue
from scripted import play_by


def wish(shop, goal):
    return shop.goal(goal).instruction


def test_verl_agent_turn_for_turn(shop, task):
    """A fresh prompt each turn with the last two pages, in quotes and without the instruction."""
    said = ["Buy it.", "<action>SEARCH[shirt]</action>", "<think>x</think><action>click[next >]</action>"]
    trajectory, asked = play_by("webshop", "verl_agent", task(5), itertools.chain(said, itertools.repeat("")))
    assert trajectory.actions[:4] == ["buy it.", "search[shirt]", "click[next >]", ""]
    assert (len(trajectory.turns), trajectory.stop_reason, trajectory.reward) == (15, "max_turns", 0)
    ((_, opening),), ((_, second),), ((_, fourth),) = asked[0], asked[1], asked[3]
    assert (
        f"Your task is to: {wish(shop, 5)}\nCurrent observation:\n'Search'\n\nAdmissible actions:\n"
        in opening
    )
    assert "search[<your query>]\n\nThink about" in opening and "search[keywords]" not in opening
    assert opening.endswith(
        "Then choose one of the admissible actions and give it inside <action> </action>."
    )
    assert "The last 1:\n[Observation 1: ''Search'', Action 1: 'buy it.']\nYou are now at step 2." in second
    assert (
        "You have taken 3 step(s) so far. The last 2:\n[Observation 2: ''Search'', Action 2: 'search[shirt]']"
        in fourth
    )
    assert "[Observation 3: ''Back to Search' [SEP] 'Page 1 (Total results: " in fourth
    assert (
        "observation:\n'Back to Search' [SEP] 'Page 2 (Total results: " in fourth
        and "click[< prev]\n" in fourth
    )


def test_verl_agent_leaves_its_history_out_of_a_prompt_of_more_than_13000_characters(monkeypatch, shop, task):
    assert VerlAgentWebshopDialogue.max_characters == 13_000
    said = [
        "<action>search[shirt]</action>",
        "<action>click[next >]</action>",
        "<action>click[< prev]</action>",
    ]
    _, whole = play_by("webshop", "verl_agent", task(5), itertools.chain(said, itertools.repeat("")))
    monkeypatch.setattr(VerlAgentWebshopDialogue, "max_characters", len(whole[3][0][1]) - 1)
    _, asked = play_by("webshop", "verl_agent", task(5), itertools.chain(said, itertools.repeat("")))
    assert asked[1] == whole[1] and "The last 1:" in asked[1][0][1]
    head, _, page = whole[3][0][1].partition("observation:\n")
    ((_, short),) = asked[3]
    assert "The last 2:" in head and short.endswith(page.rpartition("observation:\n")[2])
    assert short.startswith("You are an agent") and f"{wish(shop, 5)}\nCurrent observation:\n" in short
    assert "Observation 3" not in short and "step" not in short.partition("Current")[0]


def test_agentbench_turn_for_turn(shop, task):
    said = ["Thought:\nI look.\n\nAction:\nsearch[shirt]", "Action: \n click[Next >] or so"]
    said += ["action: click[< prev]", "Action is click[next >]"]
    trajectory, asked = play_by("webshop", "agentbench", task(5), said)
    assert trajectory.actions == ["search[shirt]", "click[Next >]", "click[< prev]"]
    assert (len(trajectory.turns), trajectory.stop_reason, trajectory.reward) == (4, "format", 0)
    first = asked[0]
    assert [role for role, _ in first] == ["user", "assistant"] * 6 + ["user"]
    assert (
        first[3][1]
        == "Thought:\nfind face cream\n\nAction:\nsearch[organic alcohol free face cream pack of 4 rose]"
    )
    assert first[-1][1] == (
        f"Observation:\nWebShop [SEP] Instruction: [SEP] {wish(shop, 5)} [SEP] Search\n\n"
        "Available Actions:\n{'has_search_bar': True, 'clickables': ['search']}"
    )
    assert [len(messages) for messages in asked[:2]] == [13, 15]
    assert asked[1][:13] == first and asked[1][13] == ("assistant", said[0])
    page, _, available = asked[1][14][1].partition(
        "\n\nAvailable Actions:\n{'has_search_bar': False, 'clickables': "
    )
    assert "Page 1 (Total" in page and available.startswith("['back to search', 'next >', ")


def test_agentbench_leaves_out_the_earliest_messages(task):
    """A thought of 600 words of one letter has 600 segments, and the limit is 3,500."""
    said = [
        f"Thought:\n{'a ' * 600}\n\nAction:\nsearch[shirt]",
        *[f"{'a ' * 600}Action: click[next >]"] * 5,
        "Stop.",
    ]
    _, asked = play_by("webshop", "agentbench", task(5), said)
    instruction, last = asked[0][0][1], asked[-1]
    assert last[0][1].startswith(f"{instruction}\n\n[Note: ") and last[-2] == ("assistant", said[-2])
    assert [role for role, _ in last[:2]] == ["user", "assistant"]
    assert segments(instruction) + sum(segments(text) for _, text in last[1:]) < 3500


@pytest.mark.parametrize(
    ("protocol", "said", "reason", "turns", "reward"),
    [
        ("r3l", ["<think>a</think><action>click[a]</action>"] * 2, "repetition", 2, -0.1),
        ("r3l", ["<action>search[tea]</action>"], "format", 1, -0.1),
        ("original", itertools.repeat("Buy it."), "max_turns", 100, 0),
    ],
)
def test_how_episodes_end(task, protocol, said, reason, turns, reward):
    trajectory, asked = play_by("webshop", protocol, task(5), said)
    assert (trajectory.stop_reason, len(trajectory.turns), trajectory.reward) == (reason, turns, reward)
    assert protocol == "r3l" or "Observation 1" not in asked[-1][0][1]  # no memory
