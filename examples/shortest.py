"""Best of N: imitate the shortest success of a group. A method in one file, configured by shortest.yaml."""

from pydantic import Field

from r3l.core.method import ImitationMethod, MethodSettings
from r3l.core.rollout import play_group
from r3l.core.trajectory import Group, Objective


class Settings(MethodSettings):
    """The options of the method, ``settings`` in shortest.yaml."""

    group_size: int = Field(4, ge=1)


class Shortest(ImitationMethod[Settings]):
    """Imitation of the shortest success of N rollouts."""

    Settings = Settings

    async def explore(self, task, ctx):
        rollouts = await play_group(ctx, task, self.settings.group_size)
        groups = [Group(task, rollouts, Objective.NONE)]  # no loss, only metrics
        solved = [t for t in rollouts if t.success]
        if solved:
            shortest = min(solved, key=lambda t: len(t.turns))
            groups.append(Group(task, [shortest], Objective.SFT))
        return groups
