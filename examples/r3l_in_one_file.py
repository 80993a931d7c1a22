"""R3L (reflect-then-retry, arXiv 2601.03715) in one file: read it from top to bottom.

    python examples/r3l_in_one_file.py --updates 3

A model of 1.5 million parameters solves word problems, one operation a line:

    Ann has 12 apples. Ann finds 7. Ann eats 5. How many apples are left?
    12 + 7 = 19
    19 - 5 = 14
    \\boxed{14}

It needs torch, transformers and this repository's base checkpoint. Nothing is imported from r3l, yet from one
batch it takes the same step as `r3l train --env math --method r3l` (tests/examples/test_one_file.py).
"""

import argparse
import hashlib
import json
import random
import re
from collections import namedtuple
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch.nn.functional import log_softmax, pad
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

MODEL = Path(__file__).parents[1] / "results" / "stored" / "models" / "math-1.5m"
TASKS = 16  # problems per update (paper: 96)
ATTEMPTS = 4  # per problem; with one retry of each that is the paper's N = 8
ALPHA = 3.0  # positive amplification (paper: 3)
SFT_COEF = 1.0  # weight of imitation (the paper gives no value)
TEMPERATURE = 0.7  # of sampling and of the trained log-probs: the policy that acts is the one that learns
MAX_TOKENS = 96  # of one answer or reflection
LR = 1e-4
WEIGHT_DECAY = 0.01
GRAD_CLIP = 1.0
Tokens = list[int]
Row = list[tuple[int, int, int]]  # one token: its id, 1 if the model wrote it, 1 if it carries gradient


# The environment: word problems, and a reward of 1 for the right number in the box, else 0.

Problem = namedtuple("Problem", "text answer")


def new_problem(rng: random.Random) -> Problem:
    """Draw a problem of two or five operations on numbers up to 50."""
    signs = {"buys": 1, "finds": 1, "wins": 1, "eats": -1, "gives": -1, "loses": -1}
    while True:
        name = rng.choice(["Ann", "Ben", "Cora", "Dan", "Eve", "Finn"])
        thing = rng.choice(["apples", "books", "coins", "pens", "shells", "stamps"])
        value = rng.randint(2, 49)
        text = f"{name} has {value} {thing}."
        for _ in range(rng.choice([2, 5])):
            room = {1: 50 - value, -1: value}
            verb = rng.choice([verb for verb, sign in signs.items() if room[sign] > 0])
            operand = rng.randint(1, room[signs[verb]])
            value += signs[verb] * operand
            text += f" {name} {verb} {operand}."
        text += f" How many {thing} are left?"
        # A hash of the text splits the problems, so that the test tasks of `r3l evaluate` are never trained
        # on.
        if int(hashlib.sha256(text.encode()).hexdigest(), 16) % 10 in range(2, 6):
            return Problem(text, value)


def reward_of(problem: Problem, response: str) -> float:
    """1.0 if the last boxed number is the answer, else 0.0."""
    boxed = re.findall(r"\\boxed\{(.*?)\}", response)
    return float(boxed[-1:] == [str(problem.answer)])


# The policy. A turn is one line of the answer, so a pivot can point at a line.


class Policy:
    """The model that acts and learns, with its tokenizer."""

    def __init__(self, folder: Path) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self.tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
        self.end = self.tokenizer.eos_token_id

    def user_prompt(self, message: str) -> Tokens:
        """A user's message in the model's chat template, up to where the model's answer starts."""
        text = f"<|user|>{message}<|end|><|assistant|>"
        return self.tokenizer.encode(text, add_special_tokens=False)

    def text(self, tokens: Tokens) -> str:
        return self.tokenizer.decode(tokens, skip_special_tokens=True)

    def lines(self, tokens: Tokens) -> list[Tokens]:
        """Cut a response after each line break."""
        lines: list[Tokens] = [[]]
        for k, token in enumerate(tokens):
            lines[-1].append(token)
            if "\n" in self.tokenizer.decode([token]) and k + 1 < len(tokens):
                lines.append([])
        return lines

    @torch.no_grad()
    def sample(self, prompts: list[Tokens]) -> list[Tokens]:
        """Sample a response to each prompt, in one batch; each ends with its end token unless cut off."""
        if not prompts:
            return []
        # Padding is on the left, so that all responses start in one column; 0 is the padding token.
        padded = [torch.tensor(prompt) for prompt in prompts]
        ids = pad_sequence(padded, batch_first=True, padding_side="left")
        sampled = self.model.generate(
            input_ids=ids,
            attention_mask=(ids != 0).long(),
            do_sample=True,
            temperature=TEMPERATURE,
            top_k=0,
            top_p=1.0,
            max_new_tokens=MAX_TOKENS,
        )
        responses = sampled[:, ids.shape[1] :].tolist()
        return [row[: row.index(self.end) + 1] if self.end in row else row for row in responses]

    def logprobs(self, ids_B_T: torch.Tensor) -> torch.Tensor:
        """Log-probability of each token given those before it, shape (B, T); 0 for the first token."""
        logits_B_T_V = self.model(input_ids=ids_B_T[:, :-1]).logits
        all_B_T_V = log_softmax(logits_B_T_V / TEMPERATURE, dim=-1)
        logprobs_B_T = all_B_T_V.gather(-1, ids_B_T[:, 1:, None])[..., 0]
        return pad(logprobs_B_T, (1, 0))


# Section 3.2, language-guided exploration: attempt, reflect, retry from the pivot under the suggestion.


@dataclass
class Attempt:
    """An attempt at a problem, the reflection on it, and the retry.

    ``pivot``: the line where the retry begins; None: no retry. ``retry``: its own tokens, from the pivot on.
    """

    problem: Problem
    lines: list[Tokens]
    reward: float
    reflection: Tokens = field(default_factory=list)
    pivot: int | None = None
    suggestion: str = ""
    retry: Tokens = field(default_factory=list)
    retry_reward: float = 0.0


def explore(policy: Policy, problems: list[Problem]) -> list[list[Attempt]]:
    """ATTEMPTS attempts at each problem, with their reflections and retries; a group per problem.

    Each stage is one batch for the model.
    """
    # Attempt every problem.
    repeated = [problem for problem in problems for _ in range(ATTEMPTS)]
    answers = policy.sample([policy.user_prompt(problem.text) for problem in repeated])
    attempts = []
    for problem, answer in zip(repeated, answers, strict=True):
        reward = reward_of(problem, policy.text(answer))
        attempts.append(Attempt(problem, policy.lines(answer), reward))

    # Reflect on every attempt, successes too.
    reflections = policy.sample([joined(reflection_prompt(policy, attempt)) for attempt in attempts])
    for attempt, reflection in zip(attempts, reflections, strict=True):
        reflect(policy, attempt, reflection)

    # Retry where a reflection names a pivot.
    retried = [attempt for attempt in attempts if attempt.pivot is not None]
    retries = policy.sample([joined(guided_prompt(policy, attempt)) for attempt in retried])
    for attempt, retry in zip(retried, retries, strict=True):
        attempt.retry = retry
        attempt.retry_reward = reward_of(attempt.problem, policy.text(retry))
    return [attempts[k : k + ATTEMPTS] for k in range(0, len(attempts), ATTEMPTS)]


def reflection_prompt(policy: Policy, attempt: Attempt) -> list[Tokens]:
    """The question, the answer, and the request to reflect, which tells the outcome but not the right
    answer.
    """
    outcome = "correct" if attempt.reward == 1 else "not correct"
    request = policy.user_prompt(f"{outcome}. {len(attempt.lines)} lines. Reflect.")
    return [policy.user_prompt(attempt.problem.text), joined(attempt.lines), request]


def reflect(policy: Policy, attempt: Attempt, reflection: Tokens) -> None:
    """Parse pivot and suggestion of a reflection, a JSON object; an invalid one leads to no retry."""
    attempt.reflection = reflection
    try:
        document = json.loads(policy.text(reflection))
        outcome = document["trajectory_outcome"]
        pivot = document["retry_from_step"]
        suggestion = document["improvement_suggestion"]
    except (ValueError, KeyError, TypeError):
        return
    if outcome != "success" and isinstance(pivot, int) and 0 <= pivot < len(attempt.lines):
        attempt.pivot = pivot
        attempt.suggestion = suggestion


def guided_prompt(policy: Policy, attempt: Attempt) -> list[Tokens]:
    """The question, the lines before the pivot, and there the hint; the retry continues after it."""
    question = attempt.problem.text
    hint = f"Hint: {attempt.suggestion}"
    if attempt.pivot == 0:
        return [policy.user_prompt(f"{hint}\n{question}"), [], []]
    kept = joined(attempt.lines[: attempt.pivot])
    return [policy.user_prompt(question), kept, [policy.end, *policy.user_prompt(hint)]]


def joined(pieces: list[Tokens]) -> Tokens:
    return [token for piece in pieces for token in piece]


# Section 3.3, pivotal credit: attempt and retry share all tokens before the pivot, so only later ones train.


def row_of(*pieces: tuple[Tokens, int, int]) -> Row:
    """A row from pieces of tokens: (tokens, written by the model?, carry gradient?)."""
    return [(token, written, trained) for tokens, written, trained in pieces for token in tokens]


def contrasted(policy: Policy, attempts: list[Attempt]) -> tuple[list[Row], list[float]]:
    """The rows of a group, attempts and retries, and their rewards.

    A retry trains without the hint in its prompt (context distillation, section 3.2): at test time there is
    none.
    """
    rows = []
    rewards = []
    for attempt in attempts:
        pivot = attempt.pivot or 0
        question = (policy.user_prompt(attempt.problem.text), 0, 0)
        shared = (joined(attempt.lines[:pivot]), 1, 0)
        rows.append(row_of(question, shared, (joined(attempt.lines[pivot:]), 1, 1)))
        rewards.append(attempt.reward)
        if attempt.retry:
            rows.append(row_of(question, shared, (attempt.retry, 1, 1)))
            rewards.append(attempt.retry_reward)
    return rows, rewards


def imitated(policy: Policy, attempts: list[Attempt]) -> list[Row]:
    """The rows to imitate: where a retry did better, the reflection, and the retry under its hint.

    This keeps both skills in training.
    """
    rows = []
    for attempt in attempts:
        if attempt.retry and attempt.retry_reward > attempt.reward:
            question, answer, request = reflection_prompt(policy, attempt)
            rows.append(row_of((question, 0, 0), (answer, 1, 0), (request, 0, 0), (attempt.reflection, 1, 1)))
            question, kept, hint = guided_prompt(policy, attempt)
            rows.append(row_of((question, 0, 0), (kept, 1, 0), (hint, 0, 0), (attempt.retry, 1, 1)))
    return rows


# Section 3.4, positive amplification: successes weigh more than the failures around them.


def advantages(rewards: list[float]) -> list[float]:
    """ALPHA for the best reward of a group; for others r - mean, times ALPHA if that is positive."""
    best = max(rewards)
    mean = sum(rewards) / len(rewards)
    if min(rewards) == best:  # nothing to compare, so nothing to learn
        return [0.0] * len(rewards)
    values = []
    for reward in rewards:
        if reward == best:
            values.append(ALPHA)
        else:
            values.append((reward - mean) * (ALPHA if reward > mean else 1))
    return values


# The objective: -A log p of each trained token, divided by the length |tau| of its trajectory. There is no
# importance ratio and no clipping, so old log-probs are not needed. Imitation is a second mean.


def loss_of(
    policy: Policy,
    rows: list[Row],
    advantages_B: list[float],
    imitations: list[Row],
) -> torch.Tensor:
    """The loss of one batch: the policy gradient on ``rows`` plus SFT_COEF times imitation."""
    padded = pad_sequence([torch.tensor(row) for row in rows + imitations], batch_first=True)
    ids_B_T, written_B_T, trained_B_T = padded.unbind(-1)
    length_B = written_B_T.sum(1)  # |tau|: all tokens that the model wrote, those before the pivot too
    mean_B = (policy.logprobs(ids_B_T) * trained_B_T).sum(1) / length_B
    weights_B = torch.tensor(advantages_B, dtype=policy.model.dtype)
    loss = -(weights_B * mean_B[: len(rows)]).mean()
    if imitations:
        loss = loss - SFT_COEF * mean_B[len(rows) :].mean()
    return loss


def update(policy: Policy, optimizer: torch.optim.Optimizer, groups: list[list[Attempt]]) -> None:
    """Take one optimiser step on all groups."""
    rows = []
    advantages_B = []
    imitations = []
    for attempts in groups:
        group_rows, rewards = contrasted(policy, attempts)
        rows += group_rows
        advantages_B += advantages(rewards)
        imitations += imitated(policy, attempts)
    loss = loss_of(policy, rows, advantages_B, imitations)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(policy.model.parameters(), GRAD_CLIP)
    optimizer.step()


def main(updates: int, tasks: int = TASKS) -> None:
    torch.manual_seed(0)
    rng = random.Random(0)
    policy = Policy(MODEL)
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=LR, weight_decay=WEIGHT_DECAY)
    for number in range(1, updates + 1):
        groups = explore(policy, [new_problem(rng) for _ in range(tasks)])
        update(policy, optimizer, groups)

        attempts = [attempt for group in groups for attempt in group]
        success = sum(attempt.reward for attempt in attempts) / len(attempts)
        better = [attempt.retry_reward > attempt.reward for attempt in attempts if attempt.retry]
        print(
            f"update {number}: success {success:.3f}, {sum(better)} of {len(better)} retries did better",
            flush=True,
        )


if __name__ == "__main__":
    layout = argparse.RawDescriptionHelpFormatter  # keeps the lines of the docstring
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--updates", type=int, default=30)
    main(parser.parse_args().updates)
