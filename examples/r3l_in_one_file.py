"""R3L (reflect-then-retry, arXiv 2601.03715) in one file: read it from top to bottom.

    python examples/r3l_in_one_file.py --updates 3

A model of 1.5 million parameters solves word problems, one operation a line:

    Ann has 12 apples. Ann finds 7. Ann eats 5. How many apples are left?
    12 + 7 = 19
    19 - 5 = 14
    \\boxed{14}

Needed: torch, transformers and this repository's base checkpoint. Nothing is imported from r3l, yet from one batch it
takes the same step as `r3l train --env math --method r3l` (tests/examples/test_one_file.py).
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
TASKS = 16  # problems in one update (paper: 96)
ATTEMPTS = 4  # per problem; with a retry of each that is the paper's N = 8
ALPHA = 3.0  # positive amplification (paper: 3)
SFT_COEF = 1.0  # weight of imitation (the paper gives no value)
TEMPERATURE = 0.7  # of sampling, and of the log-probs that are trained: the policy that acted is the one that learns
MAX_TOKENS = 96  # of one answer or reflection
LR, WEIGHT_DECAY, GRAD_CLIP = 1e-4, 0.01, 1.0
Tokens = list[int]
Row = list[tuple[int, int, int]]  # of each token: its id, did the model write it?, does it carry gradient?

# The environment: a problem, and a reward of 1 for the right answer in the box, else 0.

Problem = namedtuple("Problem", "text answer")


def new_problem(rng: random.Random) -> Problem:
    """Two operations or five, numbers up to 50. A hash of the text keeps the test tasks of `r3l evaluate` out."""
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
        if int(hashlib.sha256(text.encode()).hexdigest(), 16) % 10 in range(2, 6):
            return Problem(text, value)


def reward_of(problem: Problem, response: str) -> float:
    return float(re.findall(r"\\boxed\{(.*?)\}", response)[-1:] == [str(problem.answer)])


# Sampling. A turn is one line of the answer: what a pivot can point at.
class Policy:
    """The model that acts and learns, with its tokenizer."""

    def __init__(self, folder: Path) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self.tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
        self.end = self.tokenizer.eos_token_id

    def asked(self, message: str) -> Tokens:
        """A user's message in the model's chat template, up to where the model writes."""
        return self.tokenizer.encode(f"<|user|>{message}<|end|><|assistant|>", add_special_tokens=False)

    def text(self, tokens: Tokens) -> str:
        return self.tokenizer.decode(tokens, skip_special_tokens=True)

    def lines(self, tokens: Tokens) -> list[Tokens]:
        """A response cut after each line break."""
        breaks = [k + 1 for k, token in enumerate(tokens[:-1]) if "\n" in self.tokenizer.decode([token])]
        return [tokens[a:b] for a, b in zip([0, *breaks], [*breaks, len(tokens)], strict=True)]

    @torch.no_grad()
    def sample(self, prompts: list[Tokens]) -> list[Tokens]:
        """A response to each prompt, its end token included."""
        if not prompts:
            return []
        ids = pad_sequence([torch.tensor(prompt) for prompt in prompts], batch_first=True, padding_side="left")
        mask, width = (ids != 0).long(), ids.shape[1]  # 0 is the padding token
        how = {"do_sample": True, "temperature": TEMPERATURE, "top_k": 0, "top_p": 1.0, "max_new_tokens": MAX_TOKENS}
        written = self.model.generate(input_ids=ids, attention_mask=mask, **how)[:, width:].tolist()
        return [row[: row.index(self.end) + 1] if self.end in row else row for row in written]

    def logprobs(self, ids_B_T: torch.Tensor) -> torch.Tensor:
        """Log-probability of each token given those before it, (B, T); 0 for the first. Padding is on the right."""
        logits_B_T_V = self.model(input_ids=ids_B_T[:, :-1]).logits
        all_B_T_V = log_softmax(logits_B_T_V / TEMPERATURE, dim=-1)
        found_B_T = all_B_T_V.gather(-1, ids_B_T[:, 1:, None])[..., 0]
        return pad(found_B_T, (1, 0))


# Section 3.2, language-guided exploration: attempt, reflect, retry from the pivot under the suggestion.
@dataclass
class Attempt:
    """An attempt, the reflection on it and the retry (its own tokens, from the pivot on)."""

    problem: Problem
    lines: list[Tokens]
    reward: float
    reflection: Tokens = field(default_factory=list)
    pivot: int | None = None  # the line where the retry begins; None: there is none
    suggestion: str = ""
    retry: Tokens = field(default_factory=list)
    retry_reward: float = 0.0


def explore(policy: Policy, problems: list[Problem]) -> list[list[Attempt]]:
    """ATTEMPTS attempts at each problem, each with its reflection and its retry. Each stage is one batch."""
    asked = [problem for problem in problems for _ in range(ATTEMPTS)]
    answers = policy.sample([policy.asked(problem.text) for problem in asked])
    rewards = [reward_of(problem, policy.text(answer)) for problem, answer in zip(asked, answers, strict=True)]
    attempts = [Attempt(*of) for of in zip(asked, map(policy.lines, answers), rewards, strict=True)]
    reflections = policy.sample([sum(reflection_prompt(policy, attempt), []) for attempt in attempts])
    for attempt, reflection in zip(attempts, reflections, strict=True):
        reflect(policy, attempt, reflection)
    retried = [attempt for attempt in attempts if attempt.pivot is not None]
    retries = policy.sample([sum(guided_prompt(policy, attempt), []) for attempt in retried])
    for attempt, retry in zip(retried, retries, strict=True):
        attempt.retry = retry
        attempt.retry_reward = reward_of(attempt.problem, policy.text(retry))
    return [attempts[k : k + ATTEMPTS] for k in range(0, len(attempts), ATTEMPTS)]


def reflection_prompt(policy: Policy, attempt: Attempt) -> tuple[Tokens, Tokens, Tokens]:
    """The dialog so far, then the outcome (not the answer) with the request. Successes are reflected on as well."""
    outcome = "correct" if attempt.reward == 1 else "not correct"
    request = policy.asked(f"{outcome}. {len(attempt.lines)} lines. Reflect.")
    return policy.asked(attempt.problem.text), sum(attempt.lines, []), request


def reflect(policy: Policy, attempt: Attempt, reflection: Tokens) -> None:
    """Read pivot and suggestion from a reflection, a JSON object. One that is not valid leads to no retry."""
    attempt.reflection = reflection
    try:
        said = json.loads(policy.text(reflection))
        outcome, pivot = said["trajectory_outcome"], said["retry_from_step"]
        suggestion = said["improvement_suggestion"]
    except (ValueError, KeyError, TypeError):  # also one that finds nothing to improve, which suggests nothing
        return
    if outcome != "success" and isinstance(pivot, int) and 0 <= pivot < len(attempt.lines):
        attempt.pivot, attempt.suggestion = pivot, suggestion


def guided_prompt(policy: Policy, attempt: Attempt) -> tuple[Tokens, Tokens, Tokens]:
    """What a retry continues: the question, the attempt's lines before the pivot, and there the hint."""
    problem, hint = attempt.problem.text, f"Hint: {attempt.suggestion}"
    if attempt.pivot == 0:
        return policy.asked(f"{hint}\n{problem}"), [], []
    kept = sum(attempt.lines[: attempt.pivot], [])
    return policy.asked(problem), kept, [policy.end, *policy.asked(hint)]


# Section 3.3, pivotal credit: an attempt and its retry share all before the pivot, so only what follows it trains.
def row_of(*pieces: tuple[Tokens, int, int]) -> Row:
    return [(token, written, trained) for tokens, written, trained in pieces for token in tokens]


def contrasted(policy: Policy, attempts: list[Attempt]) -> tuple[list[Row], list[float]]:
    """A group and its rewards: attempts, and retries as if they had needed no hint (distillation, section 3.2)."""
    rows, rewards = [], []
    for attempt in attempts:
        pivot = attempt.pivot or 0
        shared = (policy.asked(attempt.problem.text), 0, 0), (sum(attempt.lines[:pivot], []), 1, 0)
        rows.append(row_of(*shared, (sum(attempt.lines[pivot:], []), 1, 1)))
        rewards.append(attempt.reward)
        if attempt.retry:
            rows.append(row_of(*shared, (attempt.retry, 1, 1)))
            rewards.append(attempt.retry_reward)
    return rows, rewards


def imitated(policy: Policy, attempts: list[Attempt]) -> list[Row]:
    """Where a retry did better: the reflection, and the retry under its hint. This keeps both skills in training."""
    rows = []
    for attempt in attempts:
        if attempt.retry and attempt.retry_reward > attempt.reward:
            for prompt, written in (reflection_prompt, attempt.reflection), (guided_prompt, attempt.retry):
                question, answer, request = prompt(policy, attempt)
                rows.append(row_of((question, 0, 0), (answer, 1, 0), (request, 0, 0), (written, 1, 1)))
    return rows


# Section 3.4, positive amplification: what went well weighs more than the failures around it.
def advantages(rewards: list[float]) -> list[float]:
    """ALPHA for the best reward of a group; of the others r - mean, times ALPHA where that is positive."""
    if min(rewards) == max(rewards):  # nothing to compare, so nothing to learn
        return [0.0] * len(rewards)
    mean = sum(rewards) / len(rewards)
    return [ALPHA if r == max(rewards) else (r - mean) * (ALPHA if r > mean else 1) for r in rewards]


# The objective: -A log p of each trained token, with no importance ratio and no clipping (so old log-probs are not
# needed), divided by the length |tau| of its trajectory; and plain imitation beside it, averaged apart.
def loss_of(policy: Policy, rows: list[Row], advantages_B: list[float], imitations: list[Row]) -> torch.Tensor:
    dtype, every = policy.model.dtype, [torch.tensor(row) for row in rows + imitations]
    ids_B_T, written_B_T, trained_B_T = pad_sequence(every, batch_first=True).unbind(-1)
    length_B = written_B_T.sum(1)  # |tau|: every token that the model wrote, those before the pivot too
    mean_B = (policy.logprobs(ids_B_T) * trained_B_T).sum(1) / length_B
    loss = -(torch.tensor(advantages_B, dtype=dtype) * mean_B[: len(rows)]).mean()
    return loss - SFT_COEF * mean_B[len(rows) :].mean() if imitations else loss


def update(policy: Policy, optimizer: torch.optim.Optimizer, groups: list[list[Attempt]]) -> None:
    """One optimiser step from one batch."""
    compared = [contrasted(policy, attempts) for attempts in groups]
    advantages_B = [advantage for _, rewards in compared for advantage in advantages(rewards)]
    imitations = [row for attempts in groups for row in imitated(policy, attempts)]
    loss = loss_of(policy, [row for rows, _ in compared for row in rows], advantages_B, imitations)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(policy.model.parameters(), GRAD_CLIP)
    optimizer.step()


def main(updates: int, tasks: int = TASKS) -> None:
    torch.manual_seed(0)
    rng, policy = random.Random(0), Policy(MODEL)
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=LR, weight_decay=WEIGHT_DECAY)
    for number in range(1, updates + 1):
        groups = explore(policy, [new_problem(rng) for _ in range(tasks)])
        update(policy, optimizer, groups)
        attempts = sum(groups, [])
        success = sum(attempt.reward for attempt in attempts) / len(attempts)
        better = [attempt.retry_reward > attempt.reward for attempt in attempts if attempt.retry]
        print(f"update {number}: success {success:.3f}, {sum(better)} of {len(better)} retries did better", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=30)
    main(parser.parse_args().updates)
