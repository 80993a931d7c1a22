"""One ScienceWorld problem and what solves it, for the tests of its engine and its agent."""

from r3l.envs.scienceworld.task_sets.tasks import problem

FIND = problem("find-living-thing", 0, "test")
SOLUTION = [
    "teleport to outside",
    "look around",
    "focus on dove egg",
    "pick up dove egg",
    "teleport to kitchen",
    "move dove egg to red box",
]
