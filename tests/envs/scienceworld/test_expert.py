"""The scripted expert of ScienceWorld on the real simulator (what holds everywhere:
../test_demonstrations.py)."""

from dove_egg import SOLUTION
from r3l.envs.base.experts import criticise
from r3l.envs.scienceworld import ScienceWorld
from r3l.envs.scienceworld.expert import ScienceWorldExpert, plan

from r3l.core.environment import Critique, Outcome, Transcript
from r3l.core.task import Task

DEMONSTRATOR = ScienceWorld().demonstrator()
FIRST = "Your task is to find a(n) animal.\nThis room is called the hallway. In it, you see: \n\ta picture\n"
GARDEN = (
    "This outside location is called the outside. Here you see: \n\tan axe\n\ta dove egg\nYou also see:\n"
)


def test_plan_follows_what_has_been_done():
    expert = ScienceWorldExpert.at_start(SOLUTION, FIRST)
    assert plan(expert) == SOLUTION
    assert expert.suggested() == SOLUTION[:2]  # no text has shown the egg yet
    expert.observe("teleport to outside", "You teleport to the outside.")
    expert.observe("look around", GARDEN)
    assert plan(expert) == expert.suggested() == SOLUTION[2:]
    expert.observe("teleport to kitchen", "You teleport to the kitchen.")
    assert plan(expert) == ["teleport to outside", *SOLUTION[2:]]
    expert.observe("teleport to outside", "You teleport to the outside.")
    expert.observe("focus on dove", "No known action matches that input.")
    assert plan(expert) == SOLUTION[2:]
    expert.observe("focus on axe", "You focus on the axe.")
    assert plan(expert) == []


def test_the_critique_names_the_turn_by_hand():
    answers = [
        ("teleport to outside", "You teleport to the outside."),
        ("look around", GARDEN),
        ("focus on axe", "You focus on the axe."),
    ]
    transcript = Transcript(Task("t", "scienceworld", "test"), FIRST, tuple(answers), False, None)
    critique = criticise(ScienceWorldExpert.at_start(SOLUTION, FIRST), transcript, 12)
    suggestion = ", then ".join(SOLUTION[2:])
    assert critique == Critique(Outcome.FAILURE, "3 steps, 1 places", "axe is wrong", suggestion, 2)
