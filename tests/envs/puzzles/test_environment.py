"""Puzzles as environments: graded by the box, criticised by line, taught by solvers that misread."""

import itertools

import pytest
from r3l.envs.base.experts import ErrorModel
from r3l.envs.puzzles import Puzzles
from r3l.envs.puzzles.engine.answer_engine import PUZZLES
from r3l.envs.puzzles.expert import first_wrong_line, solution, write
from r3l.envs.puzzles.task_sets.tasks import TASK_SETS as SETS
from transformers import AutoTokenizer

from r3l.config import environment_of, resolve
from r3l.config.sft_recipe import load_config
from r3l.core.environment import Transcript
from r3l.core.errors import ConfigError
from r3l.core.seeds import generator
from r3l.feedback.feedback import ParsedReflection, parse_reflection
from r3l.files.paths import STORED_MODELS
from r3l.reflection import reflection_text

ERRING = {"low": 0.2, "high": 0.4, "systematic": 0.5, "overlook": 0.0}  # of the lines
CAREFUL = {"low": 0.0, "high": 0.0, "systematic": 0.0, "overlook": 0.0}
TASK_SETS = tuple(f"{name}_nano" for name in PUZZLES)


def played(task, lines, **options):
    engine = Puzzles().create(options)
    engine.reset(task)
    for line in lines:
        now = engine.step(line)
    return now


@pytest.mark.parametrize("task_set", [f"{name}/test" for name in TASK_SETS])
def test_worked_solutions_win_and_wrong_or_missing_answers_do_not(task_set):
    for task in Puzzles().tasks(task_set)[:8]:
        lines = solution(task)
        assert played(task, lines).success
        assert not played(task, [*lines[:-1], "\\boxed{}"]).success
        unread = played(task, [*lines[:-1], lines[-1].removeprefix("\\boxed")], format_penalty=0.1)
        assert (unread.success, unread.reward) == (False, -0.1)


def test_the_critic_names_the_line_and_what_is_wrong_with_the_answer():
    task = next(t for t in Puzzles().tasks("shortest_path_nano/test") if t.group == "feasible")
    right = solution(task)
    wrong = first_wrong_line(task, [right[0], "step 1: none\n", "\\boxed{infeasible}"])
    assert (wrong.line, wrong.correction) == (1, "there is a path")
    assert first_wrong_line(task, [*right[:-1], "\\boxed{infeasible}"]).line == len(right) - 1


@pytest.mark.parametrize("name", PUZZLES)
def test_every_puzzle_is_an_environment_whose_worked_solutions_fit(name):
    """Its task sets are of it, its base checkpoint was taught it, and every worked solution has room at
    nano."""
    run = resolve("nano", name, "grpo", 0)
    tokenizer = AutoTokenizer.from_pretrained(STORED_MODELS / run.model)
    assert f"{name}_nano" in load_config(run.model).task_sets
    assert resolve("smol", name, "grpo", 0).env_settings.train_task_set == f"{name}_rltf/train"
    for task in environment_of(name).tasks(run.env_settings.test_task_set):
        lines = solution(task)
        assert task.payload["puzzle"] == name and len(lines) <= run.env_settings.max_turns
        assert max(len(tokenizer(line)["input_ids"]) for line in lines) < run.sampling.max_tokens


def test_a_bad_habit_holds_throughout_a_problem_and_ends_with_a_critique():
    habitual = ErrorModel(rate=0, systematic=0, overlooks=True)
    tasks = Puzzles().tasks("knights_knaves_nano/test")
    right = {"2 people": 0, "4 people": 0}
    for task in tasks:
        lines = write(task, [], habitual, generator("test"))
        assert lines == write(task, [], habitual, generator("another"))
        assert write(task, solution(task)[:1], habitual, generator("test")) == solution(task)
        right[task.group] += played(task, lines).success
    assert right == {"2 people": 10, "4 people": 12}  # of 60 and 140, by luck
    with pytest.raises(ConfigError, match="'countdown' has no bad habit: set error_rates.overlook to 0"):
        write(Puzzles().tasks("countdown_nano/test")[0], [], habitual, generator("test"))


def test_a_recipe_names_the_task_sets_whose_spare_problems_take_turns():
    both = ["knights_knaves_nano", "shortest_path_nano"]
    stored = Puzzles().demonstrations(range(6), 1, 18, CAREFUL, both)
    spare = [(0, "knights_knaves"), (0, "shortest_path"), (1, "knights_knaves"), (1, "shortest_path")]
    assert [d.task for d in itertools.islice(stored, 4)] == [
        SETS.spare_task(f"{name}_nano", k) for k, name in spare
    ]
    with pytest.raises(
        ConfigError, match=r"must name the task sets .* for example task_sets: \[countdown_nano\]"
    ):
        Puzzles().demonstrator(())
    with pytest.raises(ConfigError, match="'sudoku_nano'"):
        Puzzles().demonstrator(["sudoku_nano"])
    with pytest.raises(
        ConfigError, match=r"'math' teaches the tasks of one task set, not of \['nano', 'chain'\]; keep"
    ):
        environment_of("math").demonstrator(["nano", "chain"])
    assert {
        len(d.steps) for d in environment_of("math").demonstrations(range(8), 1, 7, CAREFUL, ["chain"])
    } == {
        3,
        4,
        5,
        6,
    }


def test_demonstrations_are_criticised_and_retried_from_the_first_wrong_line():
    assert all(
        d.success and not d.retry for d in Puzzles().demonstrations(range(20), 1, 18, CAREFUL, TASK_SETS)
    )
    erring = list(Puzzles().demonstrations(range(60), 1, 18, ERRING, TASK_SETS))
    dialogue = Puzzles().dialogue("compact", 18)
    failed = [d for d in erring if not d.success]
    for d in erring:
        reflection = parse_reflection(reflection_text(d.critique), len(d.steps))
        assert isinstance(reflection, ParsedReflection) and reflection.perfect == d.success
        answers = tuple((step.action, "") for step in d.steps)
        assert dialogue.critique(Transcript(d.task, d.first.text, answers, d.success, None)) == d.critique
    for d in failed:
        pivot, right = d.critique.turn, solution(d.task)
        assert [step.action for step in d.steps[:pivot]] == right[:pivot]
        assert d.retry[0].action == right[pivot]
        assert d.task.payload["answer"] not in d.critique.suggestion
    assert len(failed) > 20 and sum(d.retry_success for d in failed) > 0.8 * len(failed)
