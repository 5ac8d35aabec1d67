"""Runs that train, and models that do not: what a program holds of the library."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import socket
import tempfile
import weakref
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional
from typing import Sequence, Tuple, TypeVar, Union

from . import _arrays, _keys, _lib, _progress, _safetensors
from ._pictures import Picture
from ._lib import Report, Session, array_of, numpy, uninterrupted
from .errors import ArgumentError, ClosedError, CommError, IOFailure, LockstepError
from .tensor import Params

Keys = _keys.Keys
Config = _keys.Config


class Step(NamedTuple):
    """What a step gave.

    ``loss`` is the mean over the batch's tokens that count, in nats; ``grad_norm`` is taken before
    clipping. ``hash`` is that of the whole state, where the run computed it (``log.hash_every``),
    else None: :meth:`Run.hash` computes it at any time. ``weight`` is the sum of weights that a mean
    of weighted losses was divided by; None without weights.
    """

    step: int
    loss: float
    hash: Optional[str]
    grad_norm: float
    lr: float
    tokens: int
    samples: int
    sequences: int
    skipped: bool
    loss_scale: float
    step_s: float
    tokens_per_s: float
    peak_share: float
    weight: Optional[float] = None


class Score(NamedTuple):
    """How likely a model finds a text: the sum of its scored tokens' log-probabilities, in nats;
    whether greedy generation would have written it; and how many tokens were scored."""

    loglikelihood: float
    greedy: bool
    tokens: int


class Evaluation(NamedTuple):
    """The validation loss: mean over tokens, in nats; and in bits of a byte of the text."""

    loss: float
    bits_per_byte: float
    sequences: int
    tokens: int


class Generated(tuple):  # type: ignore[type-arg]
    """``ids, logp = run.generate(...)``, and more of the texts.

    Attributes:
        ids: int32 [texts, longest]: prompt and what was drawn; -1 behind the end.
        logp: float32 [texts, longest]: log-probability of each token given those before it; 0 of
            the first one and behind the end.
        mask: bool [texts, longest]: the tokens that were drawn.
        prompt_lengths: int32 [texts].
        texts: what was drawn, as text; empty without a tokenizer.
        finish: why each text ended: ``"end"``, ``"stop"``, ``"length"``, ``"context"``.
        seconds: what it took.
    """

    mask: Any
    prompt_lengths: Any
    texts: List[str]
    finish: List[str]
    seconds: float

    @property
    def ids(self) -> Any:
        """int32 [texts, longest]."""
        return self[0]

    @property
    def logp(self) -> Any:
        """float32 [texts, longest]."""
        return self[1]


@contextlib.contextmanager
def _scratch() -> Iterator[str]:
    """A folder for the time of a few orders. After Ctrl-C twice one of them may still write there:
    what it leaves is removed at the program's end, and is no error in place of the interrupt."""
    folder = tempfile.mkdtemp()
    try:
        yield folder
    except BaseException:
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _shared_folder(folder: str) -> Dict[str, Any]:
    """All tensors of a folder that rank 0 wrote, on each process."""
    try:
        return _safetensors.read_folder(folder)
    except FileNotFoundError as error:
        raise IOFailure(
            f"{folder}, which rank 0 wrote, is not on host {socket.gethostname()}: expected a temporary "
            "folder that all hosts share: set TMPDIR of rank 0 to one") from error


def _state_names(folder: str, stored: Dict[str, Any]) -> Dict[str, str]:
    """The names of the model's state_dict() in transformers -> those of the files of its folder."""
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    before = "transformer." if config["model_type"] == "gpt2" else ""
    names = {name if name.startswith("lm_head.") else before + name: name for name in stored}
    tables = [name for name in stored if name.endswith(("wte.weight", "embed_tokens.weight"))]
    if tables:
        names.setdefault("lm_head.weight", tables[0])
    return names


def _stored(names: Dict[str, str], tensors: Dict[str, Any]) -> Dict[str, Any]:
    """Tensors by the names of files. One that is there by two names has one value."""
    out: Dict[str, Any] = {}
    for name, value in tensors.items():
        stored = names.get(name, name)
        same = out.setdefault(stored, value)
        if same is not value and not numpy().array_equal(_arrays.host(name, same),
                                                         _arrays.host(name, value), equal_nan=True):
            raise ArgumentError(f"state_dict: {name} differs from {stored}: this model has one "
                                "tensor of both names")
    return out


Opened = TypeVar("Opened", bound="_Opened")


class _Opened:
    """What runs and models have in common."""

    _what = "model"

    def __init__(self) -> None:
        self._session: Optional[Session] = None
        self._answer: Dict[str, Any] = {}
        self._events: List[Callable[[Dict[str, Any]], None]] = []

    def _open(self, verb: str, options: Dict[str, Any],
              on_event: Optional[Callable[[Dict[str, Any]], None]]) -> None:
        if on_event is not None:
            self._events.append(on_event)
        session = Session()
        session.on_event = self._hear
        try:
            self._answer = session.ask(verb, options)
        except BaseException:
            session.free()  # now: the exception may hold it for long
            raise
        session.shared = self._answer.get("transport") == "mpi"
        self._opened(session)
        self.params = Params(self)

    def _opened(self, session: Session) -> None:
        self._session = session
        _lib.opened.add(weakref.ref(self, _lib.opened.discard))

    def _hear(self, event: Dict[str, Any]) -> None:
        for listener in self._events:
            listener(event)

    def _session_open(self) -> Session:
        if self._session is None:
            raise ClosedError(f"the {self._what} was closed")
        return self._session

    # -- what it is --

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._session is None

    @property
    def config(self) -> str:
        """The whole configuration, as YAML."""
        return str(self._answer["yaml"])

    @property
    def ranks(self) -> int:
        """How many ranks there are: threads of this process, or processes of an MPI job."""
        return int(self._answer["ranks"])

    @property
    def rank(self) -> int:
        """This process's rank: 0, but over MPI."""
        return int(self._answer["rank"])

    @property
    def vocabulary(self) -> int:
        """Token ids are below this."""
        return int(self._answer["vocabulary"])

    @property
    def context(self) -> int:
        """Tokens of the longest sequence."""
        return int(self._answer["context"])

    @property
    def end_of_document(self) -> Optional[int]:
        """The token that ends a document; None without a tokenizer, or if it has no such token."""
        return self._answer.get("end_of_document")

    # -- texts --

    def encode(self, text: str, special_tokens: bool = True) -> List[int]:
        """Token ids of a text, by the model's tokenizer. special_tokens: those in the text become
        their ids, and those that the tokenizer puts around a text (bos) are put there."""
        return self._encode(text, special_tokens=special_tokens)

    def _encode(self, text: str, **options: bool) -> List[int]:
        session = self._session_open()
        with session.refusing("encode"):
            if not isinstance(text, str):
                raise ArgumentError(f"got {type(text).__name__}: expected a text")
        answer = session.ask("encode", {"texts": [text], **options})
        return list(answer["ids"][0])

    def decode(self, ids: Iterable[int]) -> str:
        """The text of token ids."""
        session = self._session_open()
        with session.refusing("decode"):
            plain = [i for i in _arrays.plain_ids("ids", ids) if i >= 0]
        return str(session.ask("decode", {"ids": [plain]})["texts"][0])

    def generate(self, prompts: Union[str, Sequence[Any], Any], n: int = 1, *,
                 max_tokens: int = 128, temperature: float = 1.0, top_k: int = 0,
                 top_p: float = 1.0, seed: int = 0, stop: Sequence[str] = (),
                 ends: Optional[Sequence[int]] = None, batch: int = 64,
                 special_tokens: bool = True, scaled: bool = False) -> Generated:
        """Continues each prompt n times: texts, lists of token ids, or an array [prompts, tokens]
        whose rows end with -1.

        Text i * n + k is the k-th of prompt i. What is drawn depends on the prompt, i, k, the seed
        and the sampling alone, in any layout. A text ends at one of the token ids ``ends`` (None:
        those of the model's generation_config.json, also where a run began from it, and of a run
        what ends a document), at a text of ``stop``, after max_tokens, or where the context is full.
        temperature 0 takes the likeliest token. batch: texts under work at a time. scaled: the
        log-probabilities are of the model at temperature, as ``logprobs(ids, temperature)`` gives
        them, without top_k and top_p; else at 1.
        """
        np, session = numpy(), self._session_open()
        options: Dict[str, Any] = {
            "samples": n, "max_tokens": max_tokens, "temperature": temperature, "top_k": top_k,
            "top_p": top_p, "seed": seed, "batch": batch, "special_tokens": special_tokens,
            "scaled": scaled}
        wanted = ("ids", "lengths", "logprobs", "prompt_lengths")
        with session.refusing("generate"):
            _arrays.whole("n", n, 1, 2**31 - 1)
            arrays = self._prompts(prompts, options)
            if stop:
                options["stop"] = _arrays.texts("stop", stop)
            if ends is not None:
                options["ends"] = _arrays.plain_ids("ends", ends)
        answer = session.ask("generate", options, arrays, wanted)
        ids, lengths = answer["ids"], answer["lengths"]
        out = Generated((ids, answer["logprobs"]))
        out.prompt_lengths = answer["prompt_lengths"]
        place = np.arange(ids.shape[1])[None, :]
        out.mask = (place >= out.prompt_lengths[:, None]) & (place < lengths[:, None])
        out.texts, out.finish = answer["texts"], answer["finish"]
        out.seconds = answer["seconds"]
        return out

    def _prompts(self, prompts: Any, options: Dict[str, Any]) -> Optional[List[Any]]:
        """Ids as arrays; or texts, among the options."""
        if isinstance(prompts, str):
            prompts = [prompts]
        if not _arrays.is_array(prompts) or getattr(prompts, "ndim", 2) == 1:
            prompts = _arrays.listed("prompts", prompts, "texts or lists of token ids")
        if isinstance(prompts, list) and prompts and isinstance(prompts[0], str):
            options["prompts"] = _arrays.texts("prompts", prompts)
            return None
        ids, lengths = _arrays.ragged("prompts", prompts, self.vocabulary)
        return [array_of("ids", ids, "i4"), array_of("lengths", lengths, "i4")]

    def write(self, prompts: Union[str, Sequence[Any]], *, max_tokens: int = 128, temperature: float = 1.0,
              top_k: int = 0, top_p: float = 1.0, seed: int = 0, stop: Sequence[str] = (),
              batch: int = 64, truncate: bool = False) -> List[str]:
        """What :meth:`generate` draws, as texts alone: needs no numpy.

        Args:
            prompts: texts, or dicts ``{"prompt": TEXT, "max_tokens": 20, "stop": ["\\n"]}``, of which
                the last two may be left out. TEXT may be a list of ids.
            truncate: leaves out the first tokens of prompts that do not fit the context together with
                max_tokens, which must leave room for them.
        """
        session = self._session_open()
        with session.refusing("generate"):
            asked = [prompts] if isinstance(prompts, str) else _arrays.listed("prompts", prompts,
                                                                              "texts or dicts")
            options = {"prompts": asked, "max_tokens": max_tokens, "temperature": temperature,
                       "top_k": top_k, "top_p": top_p, "seed": seed, "stop": _arrays.texts("stop", stop),
                       "batch": batch, "truncate": truncate}
        return list(session.ask("generate", options)["texts"])

    def logprobs(self, ids: Any, temperature: float = 1.0, *, entropy: bool = False) -> Any:
        """float32 [texts, longest]: log-probability of each token given those before it, 0 of the
        first one and behind the end. Bit for bit minus the loss of training, and what
        :meth:`generate` gave, in any layout. ids: an array whose rows end with -1, or lists.
        temperature: logits are divided by it first.

        entropy=True returns (log-probabilities, entropies): of the same shape, and of each token
        the entropy in nats of the distribution over the vocabulary that it is of. It is summed over
        the whole vocabulary, to the same bits in any layout."""
        session = self._session_open()
        with session.refusing("logprobs"):
            dense, lengths = _arrays.ragged("ids", ids, self.vocabulary)
        wanted = ["logprobs", "entropy"] if entropy else ["logprobs"]
        answer = session.ask("logprobs", {"temperature": temperature, "entropy": bool(entropy)},
                             [array_of("ids", dense, "i4"), array_of("lengths", lengths, "i4")],
                             wanted)
        return (answer["logprobs"], answer["entropy"]) if entropy else answer["logprobs"]

    def score(self, requests: Sequence[Dict[str, Any]], truncate: bool = False) -> List[Score]:
        """How likely the model finds texts.

        Args:
            requests: ``{"context": TEXT, "continuation": TEXT}`` scores the continuation,
                ``{"text": TEXT}`` all of a text of any length, ``{"tokens": [...],
                "prompt_tokens": n}`` the tokens behind the first n. TEXT may be a list of ids. A
                string begins with what the tokenizer puts in front, such as bos.
            truncate: leaves out the first tokens of contexts that are too long.
        """
        session = self._session_open()
        with session.refusing("score"):
            asked = _arrays.listed("requests", requests, "dicts")
        answer = session.ask("score", {"requests": asked, "truncate": truncate})
        return [Score(**score) for score in answer["scores"]]

    # -- files of other programs --

    def save_pretrained(self, out: Union[str, "os.PathLike[str]"], *, format: str = "hf",
                        dtype: str = "fp32") -> None:
        """Writes the model for other programs: ``hf`` a folder of transformers, ``peft`` its
        adapters alone, ``gguf``, ``llmc``. dtype: fp32, bf16, fp16; of gguf also int8. out must not
        exist; folders above it are made where they lack, as transformers makes them. A run saves a
        checkpoint first."""
        path = os.path.abspath(_keys.path(out))
        self._session_open().ask("export", {"out": path, "format": format, "dtype": dtype})

    @uninterrupted()
    def state_dict(self) -> Dict[str, Any]:
        """All weights as float32 arrays, by the names of the state_dict() of transformers' model: a
        head that is the embedding is there by both names. A run saves a checkpoint first, as
        :meth:`save` does: of those before it train.keep stay. Over MPI collective; on several hosts
        it needs a temporary folder (TMPDIR of rank 0) that all of them share."""
        with _scratch() as folder:
            out = os.path.join(folder, "model")
            out = self._shared_path(out)
            self.save_pretrained(out)
            with self._session_open().refusing("share"):
                weights = _shared_folder(out)
                names = _state_names(out, weights)
            self._shared_path(out)  # all have read it before rank 0 removes it
            return {name: weights[stored] for name, stored in names.items()}

    def _shared_path(self, path: str) -> str:
        """Rank 0's, in all processes."""
        return self.share(path.encode().ljust(4096, b"\0")).rstrip(b"\0").decode()

    def share(self, value: bytes) -> bytes:
        """Rank 0's bytes, in all processes, which give as many. Over MPI collective."""
        np, session = numpy(), self._session_open()
        if self._answer["transport"] != "mpi":
            return value
        data = np.frombuffer(value, dtype=np.uint8)
        shared = session.ask("share", {}, [array_of("value", data, "u1")], ["value"])["value"]
        return bytes(shared.tobytes())

    # -- its end --

    def close(self) -> None:
        """Ends the ranks; a run saves what its steps have made. Arrays without a copy stay
        readable. Closing twice does nothing. It waits for what Ctrl-C left under way. While a call of
        another thread is, it is an error, and the run stays open; so it does if other processes of MPI ask something else."""
        session, asked = self._session, False

        def begun() -> None:
            nonlocal asked
            self._session, asked = None, True
            _lib.opened.discard(weakref.ref(self))

        if session is None:
            return
        try:
            session.ask("close", begun=begun)
        except ArgumentError:
            if asked and session.shared:
                self._opened(session)
            raise

    def __enter__(self: Opened) -> Opened:
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(f"a {self._what} has ranks: it is not copied, and no other process can have it; "
                        "open it there")

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        if kind is not None and self._session is not None and self._answer["transport"] == "mpi":
            if not _lib.part(f"{kind.__name__}: {value}", not issubclass(kind, CommError)):
                self._session.abandon()
                self._session = None
                return
        self.close()


class Run(_Opened):
    """A run that trains: what ``lockstep train`` does, one step at a time.

    ::

        run = ls.Run("cfg.yaml", {"train.steps": 100, "parallel.dp": 2})
        for m in run:
            print(m.step, m.loss)

    Args:
        config: a YAML file, or a dict of keys, ``{"train": {"steps": 100}}`` or
            ``{"train.steps": 100}``.
        keys: more keys, over those of config.
        on_step: called with each :class:`Step` when it is over, in this thread; it may use the run.
        on_event: called with dicts, ``{"event": "log" | "started" | "evaluated" | "saved" |
            "sampled" | "idle", ...}``, while a call is under way: of the run it may call
            :meth:`stop` alone.
        progress: a live line; None: on a terminal, or in a notebook.

    With keys ``rollout.dp``, ``rollout.pp`` and ``rollout.tp``, :meth:`generate`, :meth:`logprobs`
    and :meth:`score` work in that layout of the same ranks, to the same bits.

    Records, checkpoints and evaluations go to ``train.out`` as configured. Ranks are threads of
    this process; under ``mpirun`` its processes, which all make the same calls.
    """

    _what = "run"

    def __init__(self, config: Config = None, keys: Optional[Keys] = None, *,
                 on_step: Optional[Callable[[Step], None]] = None,
                 on_event: Optional[Callable[[Dict[str, Any]], None]] = None,
                 progress: Optional[bool] = None) -> None:
        super().__init__()
        self._on_step = on_step
        self._bar = _progress.make(progress)
        self._events.append(self._bar.event)
        self._open("open", _keys.configured(config, keys), on_event)
        self._step = int(self._answer["step"])
        self._ended = bool(self._answer["ended"])

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"step {self._step} of {self.steps}"
        ranks = "1 rank" if self.ranks == 1 else f"{self.ranks} ranks"
        return f"Run({self.out!r}, {state}, {ranks})"

    @property
    def step_count(self) -> int:
        """Steps done so far."""
        if self._session is not None:
            self._session.settle()
        return self._step

    @property
    def steps(self) -> int:
        """Steps that the run takes in all."""
        return int(self._answer["steps"])

    @property
    def ended(self) -> bool:
        """Whether no step follows."""
        if self._session is not None:
            self._session.settle()
        return self._ended

    @property
    def out(self) -> str:
        """The run's folder, an absolute path."""
        return str(self._answer["out"])

    @property
    def batch(self) -> int:
        """Sequences of a step."""
        return int(self._answer["batch"])

    @property
    def sequence(self) -> int:
        """Tokens of a sequence, at most."""
        return int(self._answer["sequence"])

    # -- steps --

    def __iter__(self) -> Iterator[Step]:
        while not self._ended:
            yield self.step()

    def __len__(self) -> int:
        return self.steps

    def _stepped(self, told: Report) -> None:
        """A step counts, whatever is raised behind it."""
        self._last = Step(
            told.step, told.loss, told.hash.decode() or None, told.grad_norm, told.lr, told.tokens,
            told.samples, told.sequences, told.skipped, told.loss_scale, told.step_s,
            told.tokens_per_s, told.peak_share, None if told.weight != told.weight else told.weight)
        self._step, self._ended = told.step, told.ended

    def step(self, tokens: Any = None, targets: Any = None, weights: Any = None, *,
             sum: bool = False) -> Step:
        """One step: forward, backward, update.

        Without tokens on the next batch of ``data.train``; after :meth:`backward` the update alone.

        Args:
            tokens: int [sequences, T] of the whole batch; each rank takes its share. Shorter rows end
                with -1. Sequences are at most ``batch``; padding stands for those that lack.
            targets: int [sequences, T], what follows each token, -1 where nothing counts; T is at
                most ``sequence``. None: the tokens themselves, one further, so that T may be one
                more.
            weights: float [sequences, T] of each target (of each token, where targets is None); the
                loss is their weighted mean.
            sum: the loss of the given batch is the weighted sum.
        """
        session = self._session_open()
        batch: List[Any] = []
        if not (tokens is targets is weights is None):
            with session.refusing("step"):
                batch = self._batch(tokens, targets, weights)
        session.ask("step", {"sum": True} if sum else None, batch, heard=self._stepped)
        step: Step = self._last
        self._bar.step(step, self.steps)
        if self._on_step is not None:
            self._on_step(step)
        return step

    def _batch(self, tokens: Any, targets: Any, weights: Any) -> List[Any]:
        np = numpy() if tokens is not None else None
        if np is None:
            if targets is not None or weights is not None:
                raise ArgumentError("targets and weights need tokens")
            return []
        ids = _arrays.token_ids("tokens", tokens, self.vocabulary, least=-1)
        _arrays.row_lengths("tokens", ids)  # a -1 before a token would be one that it attends to
        if targets is None:
            least_two = ids.shape[1] >= 2
            if not least_two:
                raise ArgumentError("tokens: expected at least two a sequence, or targets")
            goals = np.where(ids[:, :-1] >= 0, ids[:, 1:], -1).astype(np.int32)
            if weights is not None:
                weights = _arrays.floats("weights", weights, ids.shape)[:, 1:]
            ids = ids[:, :-1]
        else:
            goals = _arrays.token_ids("targets", targets, self.vocabulary, -1, ids.shape)
            if ((ids < 0) & (goals >= 0)).any():
                raise ArgumentError("tokens: -1 has a target: expected a token id")
            if weights is not None:
                weights = _arrays.floats("weights", weights, ids.shape)
        for size, most, what in ((ids.shape[0], self.batch, "sequences (batch.global)"),
                                 (ids.shape[1], self.sequence, "tokens (data.sequence)")):
            if not 0 < size <= most:
                raise ArgumentError(f"tokens: {size} {what}: expected from 1 to {most}")
        arrays = [array_of("inputs", np.ascontiguousarray(np.maximum(ids, 0)), "i4"),
                  array_of("targets", np.ascontiguousarray(goals), "i4")]
        if weights is not None:
            weights = np.ascontiguousarray(weights, dtype=np.float32)
            arrays.append(array_of("weights", weights, "f4"))
        return arrays

    def backward(self, tokens: Any, d_logprobs: Any, temperature: float = 1.0, *,
                 d_entropies: Any = None) -> Any:
        """The gradient of any loss, given its derivative by each token's log-probability, and by the
        entropy of the distribution that the token is of.

        Args:
            tokens: int [sequences, T] as :meth:`generate` gives them: rows end with -1. At most
                ``batch`` sequences of ``sequence`` + 1 tokens.
            d_logprobs: float [sequences, T]: the derivative by ``logprobs(tokens)``; what stands at
                the first token and behind the end counts for nothing.
            temperature: of these log-probabilities, as of :meth:`logprobs`.
            d_entropies: float [sequences, T]: the derivative by the entropies that
                ``logprobs(tokens, entropy=True)`` gives. -c adds c times the entropies to what is
                made larger.

        Returns:
            float32 [sequences, T], ``logprobs(tokens, temperature)``, bit for bit where nothing is
            dropped out; with d_entropies ``logprobs(tokens, temperature, entropy=True)``.

        :meth:`step` updates with it.
        """
        np, session = numpy(), self._session_open()
        with session.refusing("backward"):
            batch = self._gradient(tokens, d_logprobs, d_entropies)
        wanted = ["logprobs"] if d_entropies is None else ["logprobs", "entropies"]
        answer = session.ask("backward", {"sum": True, "temperature": temperature}, batch, wanted)
        out = [np.pad(answer[name], ((0, 0), (1, 0))) for name in wanted]
        return tuple(out) if d_entropies is not None else out[0]

    def _gradient(self, tokens: Any, d_logprobs: Any, d_entropies: Any) -> List[Any]:
        np = numpy()
        ids, lengths = _arrays.ragged("tokens", tokens, self.vocabulary)
        place = np.arange(ids.shape[1])[None, :]
        ids = np.where(place < lengths[:, None], ids, -1).astype(np.int32)

        def derivative(name: str, values: Any) -> Any:
            given = _arrays.shaped(name, values, 2, ids.shape)
            return _arrays.floats(name, np.where((ids >= 0) & (place > 0), given, 0), ids.shape)

        batch = self._batch(ids, None, -derivative("d_logprobs", d_logprobs))
        if d_entropies is not None:
            d = np.ascontiguousarray(derivative("d_entropies", d_entropies)[:, 1:])
            batch.append(array_of("entropy_weights", d, "f4"))
        return batch

    def discard(self) -> None:
        """Gives up the gradient of :meth:`backward`."""
        self._session_open().ask("discard")

    def stop(self) -> None:
        """The step under way is the last one. From any thread."""
        self._session_open().stop()

    # -- what it holds --

    def hash(self) -> str:
        """128 bits of the whole state, the same in any layout."""
        return str(self._session_open().ask("hash")["hash"])

    def evaluate(self) -> Evaluation:
        """The loss over ``data.valid``."""
        answer = self._session_open().ask("evaluate")
        return Evaluation(*(answer[name] for name in Evaluation._fields))

    def save(self) -> str:
        """Writes a checkpoint now; returns its folder."""
        step = self._session_open().ask("save")["step"]
        return os.path.join(self.out, "checkpoints", f"step-{step:08d}")

    def load(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """The weights of another model of the same shape: a folder of transformers, or a run. What
        the optimizer keeps stays. A model that does not fit changes nothing; after an error in its
        values, or in reading them, load again: part of the weights may be its own. A run that trains
        adapters (lora.rank) loads none: open another one with model.from."""
        session = self._session_open()
        with session.refusing("load"):
            asked = {"from": _keys.path(path)}
        session.ask("load", asked)

    @uninterrupted()
    def load_state_dict(self, tensors: Dict[str, Any], *, finite: bool = True) -> None:
        """Weights by the names of transformers, as :meth:`state_dict` gives them, or as files have
        them: all of them; finite=False lets in NaN and infinity. Over MPI collective; rank 0's
        values count. It saves a checkpoint, and on several hosts needs a temporary folder, as
        :meth:`state_dict` does."""
        session = self._session_open()
        with session.refusing("load"):
            if not isinstance(tensors, Mapping):
                raise ArgumentError(f"state_dict: got {type(tensors).__name__}: expected a dict of "
                                    "tensors by their names")
        with _scratch() as folder:
            out = self._shared_path(os.path.join(folder, "model"))
            self.save_pretrained(out)
            with session.refusing("load"):
                before = _shared_folder(out)
                tensors = _stored(_state_names(out, before), tensors)
                missing, more = sorted(set(before) - set(tensors)), sorted(set(tensors) - set(before))
                if missing or more:
                    raise ArgumentError(
                        f"state_dict: missing {', '.join(missing[:4]) or 'none'}; not known "
                        f"{', '.join(more[:4]) or 'none'}")
                whole = {name: _arrays.floats(name, tensors[name], tuple(data.shape), finite)
                         for name, data in before.items()}
            self._shared_path(out)  # all have read it before rank 0 writes
            with session.refusing("share"):
                if self.rank == 0:
                    for name in os.listdir(out):
                        if ".safetensors" in name:
                            os.remove(os.path.join(out, name))
                    _safetensors.write(os.path.join(out, "model.safetensors"), whole)
            self._shared_path(out)
            self.load(out)

    # -- pictures --

    def plot(self) -> Picture:
        """The loss over steps, as the program draws it: an SVG that a notebook shows."""
        session = Session()
        return Picture(session.ask("plot", {"runs": [self.out]})["svg"])

    def _repr_html_(self) -> str:
        try:
            return repr(self) + "<br>" + self.plot().svg
        except LockstepError:  # no step yet
            return repr(self)


class Model(_Opened):
    """A model that is not trained: a finished run, or another program's folder.

    Args:
        path: a run, one of its checkpoints, or a folder of transformers.
        keys: the layout, ``{"parallel.tp": 2}``; for a folder also ``numerics.precision``.
        which: of a run: ``"best"``, or a step; None: the newest.
        quantize: ``"none"``, ``"int8"``, ``"int8-weights"``.
    """

    def __init__(self, path: Union[str, "os.PathLike[str]"], keys: Optional[Keys] = None, *,
                 which: Optional[str] = None, quantize: str = "none",
                 on_event: Optional[Callable[[Dict[str, Any]], None]] = None) -> None:
        super().__init__()
        self.path = _keys.path(path)
        options: Dict[str, Any] = {
            "path": self.path, "keys": _keys.nested(keys or {}), "quantize": quantize}
        if which is not None:
            options["which"] = str(which)
        self._open("open_model", options, on_event)

    def __repr__(self) -> str:
        return f"Model({self.path!r}{', closed' if self.closed else ''})"


def from_pretrained(path: Union[str, "os.PathLike[str]"], keys: Optional[Keys] = None,
                    **more: Any) -> Run:
    """A run that begins from a model's weights: a folder of transformers, a run, llm.c's file.

    keys: of the run, such as ``{"train.steps": 100, "optim.lr": 1e-5, "train.out": "runs/tuned"}``.
    For a model that is not trained :class:`Model` takes less memory.
    """
    return Run({"model.from": _keys.path(path)}, keys, **more)
