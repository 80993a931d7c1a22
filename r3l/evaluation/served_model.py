"""Models behind a server instead of a checkpoint: sampling, and what must be known about their scores."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r3l.chat.renderer import ChatRenderer
from r3l.config import Run, dialogue_of, find_model, locate, model_identity, names
from r3l.core.errors import ConfigError, RunDirectoryError
from r3l.core.policy import Policy
from r3l.core.pretrained import UNLOADABLE, load_tokenizer
from r3l.endpoint.options import EndpointOptions
from r3l.endpoint.policy import MessagePolicy, TokenPolicy
from r3l.files.json_files import read_json
from r3l.files.redact import masked, masked_json
from r3l.files.writing import write_json_atomic
from r3l.processes.barrier import together
from r3l.runs.manifest import Manifest, manifest
from r3l.runs.result import result
from r3l.runs.run_dir import MANIFEST, RESULT, is_evaluated, locked
from r3l.runs.session import PlaySession, open_play_session

if TYPE_CHECKING:
    from r3l.endpoint.client import Endpoint


class Dialog(StrEnum):
    """The form in which a dialog is sent to a server."""

    MESSAGES = "messages"  # the server renders and tokenises them; works with any server
    TOKENS = "tokens"  # the sampled token ids, never rendered again; vLLM only


@dataclass(frozen=True)
class ServedModel:
    """A model behind an OpenAI-compatible server, and how it is called.

    ``endpoint``: address, model name and request options. ``dialog``: the form in which dialogs are sent.
    ``tokenizer``: folder or hub id of its tokenizer; None: the tokenizer of the run's model, if that is on
    this machine. ``about``: what the server says of the model's weights.
    """

    endpoint: EndpointOptions
    dialog: Dialog = Dialog.MESSAGES
    tokenizer: str | None = None
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def identity(self) -> dict[str, str]:
        """The texts that, with the run's settings, decide a response, by name.

        ``model``: its name. ``dialog``: ``messages`` or ``tokens``. ``request``: the request options as JSON,
        secrets masked. ``about``: what the server says of the weights, as JSON. ``tokenizer``, only if
        dialogs are sent as tokens of a ``tokenizer`` that is named: the digest of its files, or its revision,
        as JSON. The address is left out: a restarted server may have another one, and --out names the folder
        to resume in.
        """
        identity = {
            "model": self.endpoint.model,
            "dialog": self.dialog.value,
            "request": masked(json.dumps(dict(self.endpoint.fields), sort_keys=True)),
            "about": json.dumps(dict(self.about), sort_keys=True),
        }
        # Without a name it is the tokenizer of the run's model, which is in the run's fingerprint.
        if self.dialog is Dialog.TOKENS and self.tokenizer:
            identity["tokenizer"] = json.dumps(model_identity(self.tokenizer), sort_keys=True)
        return identity

    @property
    def short_hash(self) -> str:
        """Eight hex digits of a hash of the address, the model's name and ``about``.

        They tell servers apart that use the same model name.
        """
        known = [self.endpoint.model, self.endpoint.shown, self.identity["about"]]
        return hashlib.sha256(json.dumps(known).encode()).hexdigest()[:8]

    def renderer(self, run: Run) -> ChatRenderer | None:
        """The model's own tokenizer and chat template, loaded from ``tokenizer`` or the run's model.

        None if no tokenizer is named and the run's model is not on this machine. Raises ConfigError if it
        cannot be loaded.
        """
        where = self.tokenizer or locate(run.model)
        # A served name may be anything, so it is not looked up on the hub.
        if self.tokenizer is None and not Path(where).is_dir():
            return None
        try:
            tokenizer = load_tokenizer(where)
        except UNLOADABLE as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise ConfigError(
                f"the tokenizer in {where} cannot be loaded ({reason}); correct --tokenizer"
            ) from error
        return ChatRenderer(tokenizer)

    def policy(self, endpoint: Endpoint, run: Run | None = None) -> MessagePolicy | TokenPolicy:
        """The policy that samples at ``endpoint``, under the limits of ``run``: context, turns, tokenizer.

        ``run`` None: messages without limits. Raises ConfigError if tokens are to be sent and no tokenizer
        is known.
        """
        if run is None:
            return MessagePolicy(endpoint)
        renderer = self.renderer(run)
        max_context = run.sampling.max_context
        if self.dialog is Dialog.MESSAGES:
            # A strict dialogue takes one line as one turn, so a response may hold the lines of all turns. A
            # lenient one takes every response as one turn.
            lines = 1 if dialogue_of(run).lenient else run.env_settings.max_turns
            return MessagePolicy(endpoint, max_context, lines, renderer)
        if renderer is None:
            raise ConfigError(
                f"--dialog tokens needs the tokenizer of {self.endpoint.model!r}; give --tokenizer FOLDER"
            )
        return TokenPolicy(endpoint, renderer, max_context, run.samples)


@dataclass(kw_only=True)
class ServedSession(PlaySession):
    """A session that plays with a model at a server: its environments, policy and event loop.

    Every episode is a separate batch; ``batches_at_once`` is the number of requests at the same time.
    """

    served: ServedModel
    endpoint: Endpoint

    def take_counts(self) -> dict[str, float]:
        """Counts of requests, retries and irregular responses since the last call, which are then reset."""
        counts: dict[str, float] = dict(self.endpoint.counts)
        self.endpoint.counts.clear()
        return counts

    def conditions(self) -> dict[str, Any]:
        """Facts about the server that a reader of the scores must know, as JSON values for evaluation.json.

        They are its address without API keys, the model and what the server says of it (``about``), the form
        of dialogs, temperature, request fields, concurrency and limits. ``same_template``: False if the
        server's prompts have another number of tokens than ours. ``tokenizer``, only if dialogs are sent as
        tokens: its digest or revision.
        """
        options = self.served.endpoint
        run = self.run
        facts: dict[str, Any] = {
            "endpoint": options.shown,
            "model": options.model,
            "about": dict(self.served.about),
            "dialog": self.served.dialog.value,
            "same_template": getattr(self.policy, "same_template", True),
            "temperature": run.evaluation.temperature,
            "max_tokens": run.sampling.max_tokens,
            "request": masked_json(dict(options.fields)),
            "concurrency": options.concurrency,
            "deadline": options.deadline,
        }
        if self.served.dialog is Dialog.TOKENS:
            facts["tokenizer"] = model_identity(self.served.tokenizer or run.model)
        return facts


@contextmanager
def open_served_session(run: Run, served: ServedModel) -> Iterator[ServedSession]:
    """Yield a session in which the served model plays ``run``: its environment workers and a client.

    Both are closed at the end of the block. Raises ConfigError if tokens are to be sent and no tokenizer is
    known.
    """
    from r3l.endpoint.client import Endpoint  # takes seconds to import

    endpoint = Endpoint(served.endpoint)
    policy: Policy = served.policy(endpoint, run)
    with open_play_session(run, policy, together) as playing:
        schedule = {"batch": 1, "batches_at_once": served.endpoint.concurrency}
        try:
            yield ServedSession(**(vars(playing) | schedule), served=served, endpoint=endpoint)
        finally:
            playing.loop.run_until_complete(endpoint.close())


def model_named(served: str) -> str:
    """The name, in this project, of the model that a server calls ``served``.

    A hub id that a file of configs/models has becomes the file's name; anything else stays, without slashes
    at its end.
    """
    for name in names("models"):
        config = find_model(name)
        if config and config.hub == served:
            return name
    return served.rstrip("/")


def check_served_owner(run: Run, run_dir: Path, served: ServedModel) -> None:
    """Raise RunDirectoryError if ``run_dir`` holds another run, or this run with another served model.

    Served models differ if their ``identity`` does: name, request fields, what the server says of them, and
    the tokenizer of dialogs that are sent as tokens.
    """
    path = run_dir / MANIFEST
    if not path.is_file():
        return
    before = read_json(path, Manifest)
    held = before.get("agent", {}) | {"run": before["fingerprint"]}
    wanted = served.identity | {"run": run.fingerprint()}
    differing = [key for key in wanted | held if held.get(key) != wanted.get(key)]
    if differing:
        changed = [f"{key} {held.get(key)!r}, now {wanted.get(key)!r}" for key in differing]
        raise RunDirectoryError(
            f"{run_dir} holds an evaluation with {'; '.join(changed)}; choose another folder (--out)"
        )


def begin_served_run(run: Run, run_dir: Path, served: ServedModel) -> None:
    """Write manifest.json and result.json of a run that trains nothing and keeps no model, into ``run_dir``.

    The directory is made if needed; an evaluated run stays as it is. Raises RunDirectoryError if it holds
    another run, or this one of another served model.
    """
    with locked(run_dir):
        check_served_owner(run, run_dir, served)
        if is_evaluated(run_dir):
            return
        content = manifest(run)
        content["agent"] = served.identity
        write_json_atomic(run_dir / MANIFEST, content)
        write_json_atomic(run_dir / RESULT, result(run, run_dir, None, {}))
