"""What the Tinker protocol's requests hold, as far as our server reads them; other fields are left alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from r3l.trinity.learner import Datum, Sample


class Request(BaseModel):
    """The body of a request. Fields that no reader asks for may hold anything."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False, protected_namespaces=())


class _Chunk(Request):
    tokens: list[int]


class _Tokens(Request):
    chunks: list[_Chunk]

    @property
    def ids(self) -> list[int]:
        return [token for chunk in self.chunks for token in chunk.tokens]


class _SamplingParams(Request):
    max_tokens: int | None = Field(None, gt=0)
    temperature: float = Field(1.0, ge=0)
    seed: int | None = None


class Asked(Request):
    """``asample``: a response to a prompt, or with ``prompt_logprobs`` the log-probs of the prompt."""

    prompt: _Tokens
    sampling_params: _SamplingParams
    sampling_session_id: str
    prompt_logprobs: bool | None = None

    @property
    def sample(self) -> Sample | None:
        """The response that is asked for; None where log-probs are."""
        p = self.sampling_params
        if self.prompt_logprobs or p.max_tokens is None or p.seed is None:
            return None
        return Sample(self.prompt.ids, p.max_tokens, p.temperature, p.seed)

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if not self.prompt_logprobs and self.sample is None:
            raise ValueError("a response needs sampling_params.max_tokens and sampling_params.seed")
        return self


class _Ids(Request):
    data: list[int] = Field(min_length=1)


class _Weights(Request):
    data: list[float]


class _Targets(Request):
    target_tokens: _Ids
    weights: _Weights


class _Row(Request):
    model_input: _Tokens
    loss_fn_inputs: _Targets

    @property
    def datum(self) -> Datum:
        inputs = self.loss_fn_inputs
        ids = [*self.model_input.ids, inputs.target_tokens.data[-1]]
        return Datum(np.asarray(ids, dtype=np.int64), np.asarray([0.0, *inputs.weights.data], dtype=np.float32))


class _Rows(Request):
    data: list[_Row]

    @property
    def datums(self) -> list[Datum]:
        return [row.datum for row in self.data]


class Forward(Request):
    """``forward``."""

    forward_input: _Rows


class ForwardBackward(Request):
    """``forward_backward``."""

    forward_backward_input: _Rows


class _Adam(Request):
    learning_rate: float


class OptimStep(Request):
    """``optim_step``. Only the learning rate is read: the rest of AdamW is the run's (Trinity sends no eps)."""

    adam_params: _Adam


class Named(Request):
    """``load_weights`` and ``save_weights_for_sampler``: of what path."""

    path: str


class Session(Request):
    """``create_sampling_session``: of trained weights, or without a path of the start model."""

    model_path: str | None = None


class Future(Request):
    """``retrieve_future``: the answer to which request."""

    request_id: str


REQUESTS: Mapping[str, type[Request]] = {
    "asample": Asked,
    "forward": Forward,
    "forward_backward": ForwardBackward,
    "optim_step": OptimStep,
    "load_weights": Named,
    "save_weights_for_sampler": Named,
    "create_sampling_session": Session,
    "retrieve_future": Future,
}  # by verb; others read nothing of their bodies


def read(verb: str, body: bytes) -> Request:
    """The request that a body is. Raises ValueError, which says in a line what is wrong with it."""
    try:
        return REQUESTS.get(verb, Request).model_validate_json(body or b"{}")
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{'.'.join(map(str, first['loc'])) or 'the body'}: {first['msg']}") from error
