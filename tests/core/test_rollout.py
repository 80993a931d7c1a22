"""The episode loop, rewinding and retrying on the real ALFWorld engine, with a scripted policy."""

import asyncio
import multiprocessing
import os
import signal
import time

import pytest
from r3l.envs.registry import find_environment
from scripted import TASK, WALKTHROUGH, Scripted, rollout_context, say

from r3l.core.environment import Observation, Parsed
from r3l.core.errors import EngineError
from r3l.core.rollout import Prompt, play
from r3l.core.text import Message
from r3l.processes.barrier import together
from r3l.processes.pool import EnvironmentPool
from r3l.retry import Restart, RetrySettings, retry, with_guidance


@pytest.fixture(scope="module", params=[0, 1], ids=["here", "worker"])
def pool(request):
    """Engines in this process, then in a worker process."""
    pool = EnvironmentPool(find_environment("alfworld"), request.param)
    yield pool
    pool.close()


def played(responses, max_turns=15, pool=None):
    a = rollout_context(
        Scripted(responses), pool or EnvironmentPool(find_environment("alfworld"), 0), max_turns
    )
    episode = asyncio.run(play(a, TASK, 0))
    return episode.trajectory, a.counters


def test_a_winning_walkthrough(pool):
    trajectory, counters = played(map(say, WALKTHROUGH), pool=pool)
    assert trajectory.success and trajectory.reward == 1 and trajectory.stop_reason == "success"
    assert trajectory.actions == list(WALKTHROUGH)
    assert counters["env_steps"] == counters["tokens/generated"] / 2 == len(WALKTHROUGH)
    sampled = trajectory.token_ids()[trajectory.response_mask() > 0]
    assert sampled.tolist() == list(range(2 * len(WALKTHROUGH)))


@pytest.mark.parametrize(
    ("responses", "reason", "steps"),
    [
        (["no tags"], "format", 0),
        ([say("fly away")], "inadmissible", 0),
        ([say(WALKTHROUGH[0]), say("heat it")], "inadmissible", 1),
        ([say("look")] * 3, "repetition", 2),
    ],
)
def test_invalid_responses_end_the_episode_before_the_engine_sees_them(responses, reason, steps):
    trajectory, counters = played(responses)
    assert (trajectory.stop_reason, trajectory.reward, trajectory.success) == (reason, 0.0, False)
    assert counters["env_steps"] == steps and counters[f"stop/{reason}"] == 1
    assert trajectory.turns[-1].error == reason and reason in trajectory.feedback


async def played_and_retried(a, pivots, settings=None, repeat_observation=False):
    episode = await play(a, TASK, 0)
    settings = settings or RetrySettings()
    restarts = [Restart(pivot, "Hint: go on", repeat_observation=repeat_observation) for pivot in pivots]
    return episode.trajectory, [await retry(a, episode, restart, settings) for restart in restarts]


def test_retry_restores_the_pivot_and_distillation_removes_the_guidance(pool):
    wrong, rest = [*WALKTHROUGH[:3], "look", "fly"], WALKTHROUGH[3:]
    a = rollout_context(Scripted(map(say, [*wrong, *rest])), pool)
    base, (done,) = asyncio.run(played_and_retried(a, [3]))
    guided, clean = done.guided, done.distilled
    assert not base.success and guided.success and clean.success and clean.kind == "distilled"
    assert (
        guided.turns[:3] == clean.turns[:3] == base.turns[:3]
        and guided.restart_turn == clean.restart_turn == 3
    )
    assert guided.turns[3].observation == base.turns[3].observation
    assert clean.turns[3].prompt_ids == base.turns[3].prompt_ids != guided.turns[3].prompt_ids
    assert clean.turns[4:] == guided.turns[4:]
    assert [t.response_ids for t in clean.turns] == [t.response_ids for t in guided.turns]
    assert a.counters["rollouts"] == 2


def test_one_base_can_be_retried_from_several_pivots_in_any_order(pool):
    """The later pivot comes second: the record is the base's, not that of the first retry."""
    wrong = [*WALKTHROUGH[:3], "look", "fly"]
    script = [*wrong, "look", "fly", *WALKTHROUGH[2:]]
    base, (first, second) = asyncio.run(
        played_and_retried(rollout_context(Scripted(map(say, script)), pool), [1, 2])
    )
    assert not first.guided.success and second.guided.success
    assert second.guided.turns[2].observation == base.turns[2].observation


def test_guidance_stands_only_in_the_pivot_turn():
    policy = Scripted(map(say, ["look", "fly", *WALKTHROUGH]))
    pool = EnvironmentPool(find_environment("alfworld"), 0)
    _, (done,) = asyncio.run(played_and_retried(rollout_context(policy, pool), [0]))
    assert done.guided.success
    texts = ["\n".join(m.content for m in messages) for where, messages in policy.asked if "retry" in where]
    assert texts[0].startswith("Hint: go on\n0: ") and not any("Hint" in t for t in texts[1:])


def test_where_guidance_stands():
    system, user, said = Message("system", "rules"), Message("user", "desk"), Message("assistant", "OK.")
    start, later, repeated = Restart(0, "G"), Restart(1, "G"), Restart(1, "G", repeat_observation=True)
    for restart, place, messages, guided, clean in (
        (start, "user_turn", [system, user], [system, Message("user", "G\ndesk")], [system, user]),
        (start, "system_message", [system, user], [Message("system", "rules\n\nG"), user], [system, user]),
        (later, "system_message", [user], [Message("system", "G"), user], [user]),
        (  # an opening in which the model has said something already
            *(start, "system_message", [user, said, user]),
            *([user, said, Message("system", "G"), user], [user, said, user]),
        ),
        (repeated, "system_message", [user], [user, Message("system", "G"), user], [user, user]),  # audit B-6
        (Restart(0, None), "user_turn", [system, user], [system, user], [system, user]),
    ):
        assert with_guidance(restart, place)(messages) == Prompt(guided, clean)


def retried(script, pivot=0, rules="released_lenient"):
    """The retry after the base of ``script``, and the messages of its prompts."""
    a = rollout_context(Scripted(script), EnvironmentPool(find_environment("alfworld"), 0))

    async def played():
        base = await play(a, TASK, 0)
        return await retry(a, base, Restart(pivot, None), RetrySettings(retry_rules=rules))

    done = asyncio.run(played())
    return done.guided, [messages[-1].content for where, messages in a.policy.asked if "retry" in where]


def test_lenient_retries_survive_an_impossible_action():
    """Audit B-7: the released ALFWorld retry goes on where the base ends."""
    script = ["fly", "fly", *WALKTHROUGH]
    for rules, success in (("same_as_base", False), ("released_lenient", True)):
        guided, _ = retried(map(say, script), rules=rules)
        assert guided.success is success
    assert guided.turns[0].action is None and guided.turns[0].error == "inadmissible"


def test_lenient_retries_end_at_the_third_identical_action():
    """As in the released code; two of them may be the base's."""
    guided, _ = retried(map(say, ["fly", *["look"] * 3, *WALKTHROUGH]))
    assert (guided.stop_reason, guided.reward, guided.success, len(guided.turns)) == (
        "repetition",
        0,
        False,
        3,
    )
    guided, _ = retried(map(say, ["look", "look", "fly", "look", *WALKTHROUGH]), pivot=2)
    assert (guided.stop_reason, len(guided.turns)) == ("repetition", 3)


def test_after_an_invalid_response_a_lenient_retry_records_no_action():
    """The released code records no actions from then on: prompts show the earlier ones, and none counts as
    repeated.
    """
    script = ["fly", "look", "fly", *["look"] * 3, *WALKTHROUGH]
    guided, shown = retried([*map(say, script[:2]), "no tags", *map(say, script[3:])])
    assert guided.success and len(guided.turns) == 5 + len(WALKTHROUGH)
    assert [turn.error for turn in guided.turns[:3]] == [None, "format", None]
    assert shown[2] == "1: Not possible (format)." and all(text.startswith("1: ") for text in shown[2:])


@pytest.mark.filterwarnings("ignore:.*an episode is played again")
def test_an_answer_that_nobody_has_read_is_not_late_and_a_hung_worker_costs_nothing_but_time():
    """A worker may answer while this very process samples for longer than the deadline. Then it is stopped in
    the middle of a retry; the environment is played again and the episode goes on.
    """

    async def disturbed():
        env = pool.open()
        await env.reset(TASK)
        answer = asyncio.ensure_future(env.step(WALKTHROUGH[0]))
        await asyncio.sleep(0)  # the call is on its way
        time.sleep(1.3)
        await answer
        assert pool.lost == 0
        for action in WALKTHROUGH[1:3]:
            await env.step(action)
        await env.rewind(1)
        now = await env.step(WALKTHROUGH[1])
        process = pool._workers[0].process
        os.kill(process.pid, signal.SIGSTOP)
        for action in WALKTHROUGH[2:]:
            now = await env.step(action)
        await env.close()
        return now

    pool = EnvironmentPool(find_environment("alfworld"), 1, deadline=1.0)
    assert asyncio.run(disturbed()).success and pool.lost == 1
    pool.close()


@pytest.mark.filterwarnings("ignore:.*an episode is played again")
def test_a_worker_that_dies_at_every_start_is_started_three_times_in_all(monkeypatch, tmp_path):
    """In all, not for each of the waiting episodes, which took minutes."""

    def work(package, options, pipe):
        with (tmp_path / "starts").open("a") as file:
            file.write("x")
        os._exit(7)

    async def die():
        await together(lambda env: env.reset(TASK), [pool.open() for _ in range(16)])

    monkeypatch.setattr("r3l.processes.pool.work", work)
    fork = multiprocessing.get_context("fork")  # which takes the patched function along
    monkeypatch.setattr("r3l.processes.pool.multiprocessing.get_context", lambda _: fork)
    pool = EnvironmentPool(find_environment("alfworld"), 1)
    died = r"worker 0 of 'alfworld' ended 3 times in a row before it answered anything \(exit code 7\); .* doctor step"
    with pytest.raises(EngineError, match=died):
        asyncio.run(die())
    assert (tmp_path / "starts").read_text() == "xxx"
    pool.close()


class Talker:
    """An engine whose observations are not valid Unicode: two lone surrogates in the first, one in the
    second.
    """

    name = "talker"

    def create(self, options):
        return self

    def reset(self, task):
        return Observation("desk \ud800\udbff 1", ("go", "look \udfff"))

    def step(self, action):
        return Observation(f"{action} \udc00", ("go",), done=True)

    def snapshot(self):
        return None

    def close(self):
        pass


def test_observations_are_made_unicode_and_that_is_counted():
    ctx = rollout_context(Scripted([say("go")]), EnvironmentPool(Talker(), 0))
    ctx.dialogue.parse = lambda response, now, actions: Parsed("go")
    episode = asyncio.run(play(ctx, TASK, 0))
    assert (episode.first.text, episode.first.admissible) == ("desk \ufffd\ufffd 1", ("go", "look \ufffd"))
    assert ctx.counters["text/replaced"] == 3 + 1
