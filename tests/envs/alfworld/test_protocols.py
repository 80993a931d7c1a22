"""Evaluation protocols on published games: messages and answers, turn by turn, by the rules of the originals.

The transcripts are worked out by hand from those rules and the game's own texts.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import scripted
from r3l.envs.alfworld.engine.games import load_game
from r3l.envs.alfworld.engine.text_engine import AlfworldEngine
from r3l.envs.alfworld.goals import FAMILIES
from r3l.envs.alfworld.task_sets.houses import generate
from r3l.envs.alfworld.task_sets.rooms import House
from r3l.envs.base.agentbench_truncation import segments, truncate
from scripted import Scripted, ScriptedDialog

from r3l.config import resolve
from r3l.core.errors import ConfigError
from r3l.core.policy import FinishReason
from r3l.core.text import Message
from r3l.files.paths import CONFIGS

ROOM = (
    "You are in the middle of a room. Looking quickly around you, you see a cabinet 4, a cabinet 3, a cabinet 2, a "
    "cabinet 1, a countertop 1, a garbagecan 1, a handtowelholder 2, a handtowelholder 1, a sinkbasin 2, a sinkbasin "
    "1, a toilet 1, a toiletpaperhanger 1, and a towelholder 1."
)
TASK = "Your task is to: clean some soapbar and put it in cabinet."
REACT = [  # what the model writes, and what stands before its next line
    ("think: I need a soapbar.", "OK."),
    ("put soapbar 1 in/on cabinet 1", "Nothing happens."),  # the words of older games
    ("Go to countertop 1", "Nothing happens."),
    (
        "go to countertop 1",
        "You arrive at countertop 1. On the countertop 1, you see a soapbar 1, and a soapbottle 1.",
    ),
    ("go to countertop 1", "Nothing happens."),  # it is there
    ("go to countertop 1", "Nothing happens."),  # three equal actions end nothing
    ("take soapbar 1 from countertop 1", "You pick up the soapbar 1 from the countertop 1."),
    ("", "Nothing happens."),
    ("go to sinkbasin 1", "You arrive at sinkbasin 1. On the sinkbasin 1, you see nothing."),
    ("clean soapbar 1 with sinkbasin 1", "You clean the soapbar 1 using the sinkbasin 1."),
    ("go to cabinet 1", "You arrive at cabinet 1. The cabinet 1 is closed."),
    ("open cabinet 1", "You open the cabinet 1. The cabinet 1 is open. In it, you see nothing."),
    ("move soapbar 1 to cabinet 1", None),
]
CONTRACT = (
    "Think first about where you are, what you know and what the task still needs, inside <think> </think>.\n"
    "Then choose one of the admissible actions and give it inside <action> </action>."
)
AGENT = "You are an agent in a simulated home, described in text"
BANNER = "-= Welcome to TextWorld, ALFRED! =-"
AT_COUNTER = "You arrive at countertop 1. On the countertop 1, you see a soapbar 1, and a soapbottle 1."
TAKEN = "You pick up the soapbar 1 from the countertop 1."
VERL_AGENT = [
    "I fly.",  # no tags: the last 30 characters, in lower case, are the action
    "<think>x</think><action>GO to countertop 1</action>",
    "<action>take soapbar 1 from countertop 1</action><action>look</action>",  # the first; the thought may lack
    "I ponder. Then: take soapbar 1 from countertop 1",
    "<think>x</think><action>go to sinkbasin 1</action>",
]


@pytest.fixture
def soapbar(download):
    (path,) = download.glob("json_2.1.1/valid_unseen/*/*/game.tw-pddl")
    return load_game("/".join(path.parts[-4:-1]), download)


def play_by(protocol, task, responses, policy=Scripted):
    return scripted.play_by("alfworld", protocol, task, responses, policy)


def examples(family):
    """The two examples of a task type, as in the file."""
    parts = (CONFIGS / "protocols/alfworld/react.txt").read_text().split("=== ")[1:]
    return "".join(part.partition("\n")[2] for part in parts if part.startswith(f"{family},"))


def test_react_turn_for_turn(soapbar):
    trajectory, asked = play_by("react", soapbar, [f"{action}\n" for action, _ in REACT])
    prefix = "Carry out a task in a household, one command a line. Here are two examples.\n"
    opening = f"{prefix}{examples(soapbar.group)}\nHere is the task.\n{ROOM}\n{TASK}\n>"
    assert asked == [[("user", opening)], *([("user", f"{answer}\n>")] for _, answer in REACT[:-1])]
    assert trajectory.success and trajectory.reward == 1 and trajectory.stop_reason == "success"
    assert len(trajectory.turns) == len(REACT) == 13


def test_react_ends_after_49_turns_and_by_no_other_rule(soapbar):
    trajectory, _ = play_by("react", soapbar, itertools.repeat("look"))
    assert (len(trajectory.turns), trajectory.stop_reason, trajectory.reward) == (49, "max_turns", 0)


def test_a_line_that_is_cut_off_costs_a_turn(soapbar):
    class CutOff(Scripted):
        def open(self):
            return CutOffDialog(self, 0, [])

    class CutOffDialog(ScriptedDialog):
        async def respond(self, sampling, address):
            return replace(await super().respond(sampling, address), finish_reason=FinishReason.LENGTH)

    trajectory, asked = play_by("react", soapbar, itertools.repeat("go to the"), CutOff)
    assert (len(trajectory.turns), trajectory.stop_reason) == (49, "max_turns")
    assert asked[1] == [("user", "Nothing happens.\n>")]


def test_verl_agent_turn_for_turn(soapbar):
    """A fresh prompt each turn with the last two observations and actions, without the command help."""
    responses = itertools.chain(VERL_AGENT, itertools.repeat("look"))
    trajectory, asked = play_by("verl_agent", soapbar, responses)
    first = f"{BANNER}\n\n{ROOM}\n\n{TASK}"
    (opening,) = asked[0]
    start = f"{AGENT}.\nCurrent observation:\n{first}\n\n"
    places = "cabinet 1,cabinet 2,cabinet 3,cabinet 4,countertop 1,garbagecan 1,handtowelholder 1,handtowelholder 2,"
    places += "sinkbasin 1,sinkbasin 2,toilet 1,toiletpaperhanger 1,towelholder 1"
    listed = [*(f"go to {place}" for place in places.split(",")), "inventory", "look"]
    actions = "Admissible actions:\n" + "".join(f"- {action}\n" for action in listed)
    assert opening == ("user", f"{start}{actions}\n{CONTRACT}")

    def shown(turn):
        ((role, text),) = asked[turn]
        head, _, rest = text.partition("\n\nAdmissible actions:\n")
        assert role == "user" and rest.endswith(CONTRACT) and "- help\n" not in rest
        return head

    task = f"{AGENT}. Your task is to: clean some soapbar and put it in cabinet.\n"
    assert shown(1) == (
        f"{task}You have taken 1 step(s) so far. The last 1:\n[Observation 1: '{first}', Action 1: 'i fly.']\n"
        "You are now at step 2. Current observation:\nNothing happens."
    )
    assert shown(3) == (
        f"{task}You have taken 3 step(s) so far. The last 2:\n"
        "[Observation 2: 'Nothing happens.', Action 2: 'go to countertop 1']\n"
        f"[Observation 3: '{AT_COUNTER}', Action 3: 'take soapbar 1 from countertop 1']\n"
        f"You are now at step 4. Current observation:\n{TAKEN}"
    )
    assert shown(4) == (
        f"{task}You have taken 4 step(s) so far. The last 2:\n"
        f"[Observation 3: '{AT_COUNTER}', Action 3: 'take soapbar 1 from countertop 1']\n"
        f"[Observation 4: '{TAKEN}', Action 4: 'ke soapbar 1 from countertop 1']\n"
        "You are now at step 5. Current observation:\nNothing happens."
    )
    assert trajectory.actions[4:7] == ["go to sinkbasin 1", "look", "look"]
    assert (len(trajectory.turns), trajectory.stop_reason, trajectory.reward) == (50, "max_turns", 0)


@pytest.mark.parametrize(
    ("actions", "reason", "turns"),
    [
        (["go to countertop 1", "look", "look", "look"], "repetition", 4),
        (["go to countertop 1", "go to countertop 1"], "inadmissible", 2),
        (["look", "inventory"] * 13, "max_turns", 25),
    ],
)
def test_r3l_ends_as_the_release(soapbar, actions, reason, turns):
    trajectory, asked = play_by(
        "r3l", soapbar, [f"<think>x</think><action>{action}</action>" for action in actions]
    )
    assert (trajectory.stop_reason, len(trajectory.turns), trajectory.reward) == (reason, turns, 0)
    (role, system), (_, opening) = asked[0]
    assert (
        role == "system"
        and "done within 25 steps" in system
        and f"{TASK}\n\nAdmissible actions:\n" in opening
    )
    ((_, second),) = asked[1]
    assert second.startswith(
        "Your task is to: clean some soapbar and put it in cabinet.\n\n"
        f"You have taken 1 step(s) so far. The last 1: step 1: {actions[0]}.\n\nYou are now at step 2."
    )


def test_agentbench_turn_for_turn(soapbar):
    """Only the current turn lists actions; one example; an impossible action is replaced by the nearest."""
    said = [
        "ACTION: Go to countertop 1\nThen I look.",
        "THOUGHT: it is there\nACTION: take soapbar from countertop 1",
        "ACTION: xyzzy",  # no word of it is in the list
        "I ponder.",
    ]
    trajectory, asked = play_by("agentbench", soapbar, said)
    assert trajectory.actions == ["go to countertop 1", "take soapbar 1 from countertop 1", "xyzzy"]
    assert (trajectory.stop_reason, trajectory.reward) == ("format", 0)
    third = asked[2]
    assert [role for role, _ in third] == ["user", "assistant"] * ((len(third) - 1) // 2) + ["user"]
    shown = examples(soapbar.group).partition("\n> ")[0]
    assert third[2] == ("user", f"Here is one example.\n{shown}") and third[3][1].startswith(
        "THOUGHT: I have to find"
    )
    assert third[-5:-1] == [
        ("user", f"Here is your task. {ROOM}\n{TASK} "),
        ("assistant", said[0]),
        ("user", f"{AT_COUNTER} "),
        ("assistant", said[1]),
    ]
    assert (
        third[-1][1].startswith(f"{TAKEN} AVAILABLE ACTIONS: ")
        and "\nmove soapbar 1 to countertop 1\n" in third[-1][1]
    )
    assert asked[3][-1][1].startswith("Nothing happens. AVAILABLE ACTIONS: ")
    assert "THOUGHT: what you think\nACTION: the action\nA response without one" in third[0][1]


def test_agentbench_ends_by_an_empty_action(soapbar):
    trajectory, _ = play_by("agentbench", soapbar, ["ACTION:\ngo to countertop 1"])
    assert (trajectory.stop_reason, len(trajectory.turns), trajectory.reward) == ("format", 1, 0)


def test_agentbench_leaves_out_the_earliest_messages(soapbar):
    """A thought of 600 one-letter words has 600 segments; five of them and the observations exceed 3,500."""
    assert segments("ab, cdefghijk 12\n") == 1 + 1 + 2 + 2
    said = [f"THOUGHT: {'a ' * 600}\nACTION: {action}" for action in ("look", "inventory") * 3]
    _, asked = play_by("agentbench", soapbar, [*said, "I ponder."])
    whole, cut = asked[2], asked[-1]
    assert "left out" not in whole[0][1] and cut[0][1].startswith(whole[0][1])
    assert cut[0][1].endswith(f"\n\n[Note: {len(whole) + 8 - len(cut)} messages are left out.]")
    assert [role for role, _ in cut[:2]] == ["user", "assistant"] and cut[-2] == ("assistant", said[-1])
    kept = sum(segments(text) for _, text in cut[1:]) + segments(whole[0][1])
    assert kept < 3500 <= kept + segments(said[0]) + segments("You see nothing.") + 100
    assert truncate([Message("user", "a a"), Message("assistant", "b"), Message("user", "c d")], 5) == [
        Message("user", "a a\n\n[Note: 2 messages are left out.]")
    ]


def test_agentbench_ends_by_three_equal_actions_from_the_fourth_turn_on(soapbar):
    trajectory, _ = play_by("agentbench", soapbar, itertools.repeat("ACTION: look"))
    assert (len(trajectory.turns), trajectory.stop_reason, trajectory.reward) == (4, "repetition", 0)


def test_agentgym_turn_for_turn(soapbar):
    """Only the first turn lists actions; the action is the text after the last label, empty without one."""
    said = [
        "Thought:\nThe Action: comes last.\n\nAction:\ngo to countertop 1",
        "take soapbar 1 from countertop 1",
        "Action: look\naround",
    ]
    trajectory, asked = play_by("agentgym", soapbar, itertools.chain(said, itertools.repeat("Action:\nlook")))
    assert trajectory.actions[:4] == ["go to countertop 1", "", "look\naround", "look"]
    assert (len(trajectory.turns), trajectory.stop_reason, trajectory.reward) == (30, "max_turns", 0)
    (role, _), (agreed, _), (shown, room) = asked[0]
    assert (role, agreed, shown) == ("user", "assistant", "user")
    assert room.startswith(f"{ROOM}\n{TASK}\nAVAILABLE ACTIONS: go to cabinet 1,go to cabinet 2,")
    assert asked[1:4] == [
        [("user", AT_COUNTER)],
        [("user", "Nothing happens.")],
        [("user", "Nothing happens.")],
    ]


def test_trinity_sends_what_follows_the_first_tag_or_nothing(soapbar):
    said = itertools.chain(
        ["<action>go to countertop 1", "I ponder.", "<action> LOOK </action><action>look</action>"],
        itertools.repeat("<think>x</think><action>look</action>"),
    )
    trajectory, asked = play_by("trinity", soapbar, said)
    assert trajectory.actions[:4] == ["go to countertop 1", "", "LOOK", "look"]
    assert (len(trajectory.turns), trajectory.stop_reason) == (30, "max_turns")
    assert [len(messages) for messages in asked] == [2] + [1] * 29 and "dmissible" not in str(asked)
    (system, contract), opening = asked[0]
    assert system == "system" and contract.endswith(
        "I first have to ...</think><action>go to cabinet 1</action>"
    )
    assert opening == ("user", f"Observation: {BANNER}\n\n{ROOM}\n\n{TASK}")
    refused = (
        "Observation: Nothing happens. Check that the action is possible, and that you keep to the form."
    )
    assert asked[1:4] == [[("user", f"Observation: {AT_COUNTER}")], [("user", refused)], [("user", refused)]]


def test_the_examples_are_games_that_were_played():
    """Each line is the engine's answer in the house that the heading names, and the last action wins."""
    engine, seen = AlfworldEngine(), []
    for part in (CONFIGS / "protocols/alfworld/react.txt").read_text().split("=== ")[1:]:
        heading, _, text = part.partition("\n")
        family, _, seed = heading.partition(", house seed ")
        now = engine.reset(generate(House(family, int(seed), 9, 9)))
        lines = now.text.split("\n\n")[1:]
        for action in [line.removeprefix("> ") for line in text.splitlines() if line.startswith("> ")]:
            now = engine.step(action)
            lines += [f"> {action}", "OK." if action.startswith("think:") else now.text]
        assert text == "\n".join(lines) + "\n" and now.success, heading
        seen.append(family)
    engine.close()
    assert seen == [family for family in FAMILIES for _ in range(2)]


def test_a_protocol_is_not_for_training():
    for env, changes in (
        ("alfworld", "env_settings.options.history=2"),
        ("alfworld", "env_settings.options.response_format=labelled,prompts=full"),  # AgentBench's
        ("webshop", "env_settings.options.response_format=labelled,prompts=full"),
    ):
        with pytest.raises(ConfigError, match="a new dialog for every turn .* is for r3l evaluate"):
            resolve("smol", env, f"grpo@{changes}", 0)
    with pytest.raises(
        ConfigError, match="a protocol is for r3l evaluate, and method 'grpo@protocol=react' trains"
    ):
        resolve("smol", "alfworld", "grpo@protocol=react", 0)
    with pytest.raises(ConfigError, match="'alfworld' has no protocol 'reactt'"):
        resolve("smol", "alfworld", "zero_shot@protocol=reactt", 0)
