"""Best of N: imitate the shortest success of a group."""

from pydantic import Field

from r3l.core.method import ImitationMethod, MethodSettings
from r3l.core.rollout import play_group
from r3l.core.trajectory import Group, Objective


class Settings(MethodSettings):
    """Of configs: ``settings`` in shortest.yaml."""

    group_size: int = Field(4, ge=1)


class Shortest(ImitationMethod[Settings]):
    """N rollouts; the shortest success is imitated."""

    Settings = Settings

    async def explore(self, task, ctx):
        rollouts = await play_group(ctx, task, self.settings.group_size)
        shortest = sorted((t for t in rollouts if t.success), key=lambda t: len(t.turns))[:1]
        return [Group(task, rollouts, Objective.NONE)] + [Group(task, [t], Objective.SFT) for t in shortest]
