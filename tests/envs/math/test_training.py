"""R3L on templated problems with the stored base checkpoint: what is sampled, shared and masked, token by token."""

from r3l.config import build_method, resolve
from r3l.local.session import open_session


def explored(method, tasks=6, **changes):
    overrides = ["workers=0", *(f"{key}={value}" for key, value in changes.items())]
    run = resolve("nano", "math", method, 0, overrides=overrides)
    with open_session(run, run.model) as session:
        train_tasks = session.package.tasks(run.env_settings.train_task_set)[:tasks]
        ctx = session.rollout_context(("test",), run.sampling.temperature)
        explored = session.concurrently(lambda task: build_method(run).explore(task, ctx), train_tasks)
        groups = [group for task_groups in explored for group in task_groups]
    return groups, ctx.counters


def test_a_retry_shares_the_kept_lines_with_its_base_and_only_those_carry_no_gradient():
    groups, counters = explored("r3l")
    pairs = later = 0
    for group in groups:
        if group.objective != "policy":
            continue
        bases = {t.member: t for t in group.trajectories if t.kind == "base"}
        for again in (t for t in group.trajectories if t.kind == "distilled"):
            base, pivot = bases[again.member], again.restart_turn
            shared = sum(len(turn.prompt_ids) + len(turn.response_ids) for turn in base.turns[:pivot])
            assert base.trainable.start == again.trainable.start == pivot
            assert again.token_ids()[:shared].tolist() == base.token_ids()[:shared].tolist()
            for t in (base, again):
                sampled = t.response_mask()
                assert not t.credit_mask()[:shared].any()
                assert (t.credit_mask()[shared:] == sampled[shared:]).all()
            # the response goes on: after the prompt there is nothing that was not sampled
            assert [turn.prompt_ids for turn in again.turns[1:]] == [()] * (len(again.turns) - 1)
            assert all(turn.response.endswith("\n") for turn in again.turns[:-1])
            pairs += 1
            later += pivot > 0
    assert pairs > 8 and later > 3
    assert counters["leak/guidance"] >= counters["retry/count"] > 0  # audited item by item
    assert counters["leak/answer_stated"] <= 0.2 * counters["leak/guidance"]
