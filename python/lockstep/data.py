"""Token stores and tokenizers.

    lockstep.data.prepare(["corpus.txt"], "runs/corpus", tokenizer="byte")
    store = lockstep.data.open("runs/corpus_train")
    store[:10]                                      # int32 tokens
    for inputs, targets in store.samples(1024, seed=1): ...

Stores and tokenizers may be read by several threads at once, and by forks of the process: they hold
no ranks. Arrays need numpy.
"""

from __future__ import annotations

import ctypes
import json
import operator
import os
import threading
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from . import _arrays, _keys, _lib, _tools, errors

__all__ = ["ChatTemplate", "File", "Prepared", "Samples", "Split", "Store", "Tokenizer", "open", "prepare"]

Path = Union[str, "os.PathLike[str]"]
INT32_MAX = 2**31 - 1


# ---- the library ------------------------------------------------------------------------------------


class _TokenFile(ctypes.Structure):
    _fields_ = [("path", ctypes.c_char_p), ("kind", ctypes.c_int), ("dtype", ctypes.c_int),
                ("tokens", ctypes.c_int64), ("sequences", ctypes.c_int64),
                ("documents", ctypes.c_int64), ("masked", ctypes.c_bool),
                ("counted", ctypes.c_int64), ("weighted", ctypes.c_bool)]


class _SampleOrder(ctypes.Structure):
    _fields_ = [("samples", ctypes.c_int64), ("seed", ctypes.c_uint64), ("shuffle", ctypes.c_bool)]


class _EncodeOptions(ctypes.Structure):
    _fields_ = [("special", ctypes.c_bool), ("around", ctypes.c_bool), ("continued", ctypes.c_bool),
                ("unfinished", ctypes.c_bool)]


class _TokenList(ctypes.Structure):
    _fields_ = [("ids", ctypes.POINTER(ctypes.c_int32)), ("count", ctypes.c_int64),
                ("capacity", ctypes.c_int64)]


class _ChatText(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_void_p), ("count", ctypes.c_size_t), ("capacity", ctypes.c_size_t),
                ("parts", ctypes.c_void_p), ("parts_count", ctypes.c_int64),
                ("parts_room", ctypes.c_int64)]


class _Text(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_void_p), ("count", ctypes.c_size_t),
                ("capacity", ctypes.c_size_t)]


_HANDLE, _I64, _TEXT, _INT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_char_p, ctypes.c_int
_OUT = ctypes.POINTER(ctypes.c_void_p)
_PROTOTYPES: Dict[str, Tuple[Any, List[Any]]] = {
    "ls_token_store_open": (_INT, [_TEXT, _OUT, _HANDLE]),
    "ls_token_store_close": (None, [_HANDLE]),
    "ls_token_store_tokens": (_I64, [_HANDLE]),
    "ls_token_store_files": (_INT, [_HANDLE]),
    "ls_token_store_file": (_TokenFile, [_HANDLE, _INT]),
    "ls_token_file_kind_name": (_TEXT, [_INT]),
    "ls_token_store_read": (_INT, [_HANDLE, _I64, _I64, _I64, _HANDLE, _HANDLE]),
    "ls_token_store_mask": (_INT, [_HANDLE, _I64, _I64, _HANDLE, _HANDLE]),
    "ls_token_store_samples": (_INT, [_HANDLE, _I64, ctypes.POINTER(_I64), _HANDLE]),
    "ls_sample_read": (_INT, [_HANDLE, _I64, _I64, _I64, _HANDLE, _HANDLE, _HANDLE]),
    "ls_sample_at": (_I64, [ctypes.POINTER(_SampleOrder), _I64]),
    "ls_tokenizer_new": (_INT, [_TEXT, _OUT, _HANDLE]),
    "ls_tokenizer_new_for_store": (_INT, [_TEXT, _OUT, _HANDLE]),
    "ls_tokenizer_free": (None, [_HANDLE]),
    "ls_tokenizer_name": (_TEXT, [_HANDLE]),
    "ls_tokenizer_spec": (_TEXT, [_HANDLE]),
    "ls_tokenizer_vocabulary": (_I64, [_HANDLE]),
    "ls_tokenizer_eod": (ctypes.c_int32, [_HANDLE]),
    "ls_tokenizer_bos": (ctypes.c_int32, [_HANDLE]),
    "ls_tokenizer_eos": (ctypes.c_int32, [_HANDLE]),
    "ls_tokenizer_id": (ctypes.c_int32, [_HANDLE, _TEXT]),
    "ls_encoder_new": (_INT, [_HANDLE, _OUT, _HANDLE]),
    "ls_encoder_free": (None, [_HANDLE]),
    "ls_encode_with": (_INT, [_HANDLE, _HANDLE, ctypes.c_size_t, ctypes.POINTER(_EncodeOptions),
                              ctypes.POINTER(_TokenList), _HANDLE]),
    "ls_decode": (_INT, [_HANDLE, _HANDLE, _I64, ctypes.POINTER(_Text), _HANDLE]),
    "ls_token_list_release": (None, [ctypes.POINTER(_TokenList)]),
    "ls_text_release": (None, [ctypes.POINTER(_Text)]),
    "ls_chat_open": (_INT, [_TEXT, _TEXT, _OUT, _HANDLE]),
    "ls_chat_free": (None, [_HANDLE]),
    "ls_chat_render": (_INT, [_HANDLE, _TEXT, ctypes.c_size_t, ctypes.c_bool,
                              ctypes.POINTER(_ChatText), _HANDLE]),
    "ls_chat_text_release": (None, [ctypes.POINTER(_ChatText)]),
}


def _function(name: str) -> Any:
    function = getattr(_lib.library(), name)
    if function.argtypes is None:
        function.restype, function.argtypes = _PROTOTYPES[name]
    return function


def _call(name: str, *arguments: Any) -> None:
    """A function that returns a status, with its error last."""
    error = _lib.Error()
    status = _function(name)(*arguments, ctypes.byref(error))
    if status:
        raise error.raised(status)


def _name(path: Path) -> bytes:
    """A path as C has it, which may hold bytes that are no UTF-8."""
    try:
        name = os.fsencode(_keys.path(path))
    except UnicodeEncodeError:
        name = b"\0"
    if b"\0" in name:
        raise errors.ArgumentError(f"{path!r}: expected a path, which has whole characters and no NUL bytes")
    return name


class _Handle:
    """An object of the library, freed with this one."""

    def __init__(self, free: str) -> None:
        self._free = free
        self._pointer = ctypes.c_void_p()

    def close(self) -> None:
        """Frees what it holds; using it afterwards is an error. Closing twice is allowed."""
        pointer, self._pointer = self._pointer, ctypes.c_void_p()
        if pointer and _lib._library is not None:
            _function(self._free)(pointer)

    def __del__(self) -> None:
        if getattr(self, "_pointer", None):
            self.close()

    @property
    def _at(self) -> ctypes.c_void_p:
        if not self._pointer:
            raise errors.ClosedError(f"this {type(self).__name__.lower()} was closed")
        return self._pointer


# ---- stores -----------------------------------------------------------------------------------------


class File(NamedTuple):
    """A file of a store. ``documents`` is 0 if the format does not say; ``counted`` are the tokens
    that count as targets: all, unless there is a mask. ``weighted``: there are weights of tokens."""

    path: str
    kind: str
    tokens: int
    sequences: int
    documents: int
    masked: bool
    counted: int
    weighted: bool


class Store(_Handle):
    """A read-only view of tokens: Megatron's .bin and .idx, llm.c's and nanoGPT's files.

    ``len(store)`` is the number of tokens, ``store[i]`` one of them, ``store[a:b]`` an int32 array
    of shape [b - a]. A store is pickled by its name.

    Args:
        spec: PREFIX, FILE, ``u16:FILE``, a folder, a pattern, a URL, or several with commas between
            (doc/data.md).

    Raises:
        DataError: a file is malformed. IOFailure: it is not there.
    """

    def __init__(self, spec: Path) -> None:
        super().__init__("ls_token_store_close")
        self.spec = _keys.path(spec)
        _call("ls_token_store_open", _name(self.spec), ctypes.byref(self._pointer))

    def __reduce__(self) -> Any:
        return (Store, (self.spec,))

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_exc: Any) -> None:
        self.close()

    def __len__(self) -> int:
        return int(_function("ls_token_store_tokens")(self._at))

    @property
    def files(self) -> List[File]:
        """Its files, in the order of the stream."""
        found = [_function("ls_token_store_file")(self._at, i)
                 for i in range(_function("ls_token_store_files")(self._at))]
        kind = _function("ls_token_file_kind_name")
        return [File(os.fsdecode(f.path), kind(f.kind).decode(), f.tokens, f.sequences, f.documents,
                     f.masked, f.counted, f.weighted) for f in found]

    @property
    def documents(self) -> int:
        """Documents of all files; 0 if their format does not say."""
        return sum(file.documents for file in self.files)

    def __getitem__(self, at: Union[int, slice]) -> Any:
        if isinstance(at, slice):
            first, end, step = at.indices(len(self))
            if step < 0:
                return self._read(end + 1, max(first - end, 0))[::step]
            return self._read(first, max(end - first, 0))[::step]
        index = operator.index(at)
        index += len(self) if index < 0 else 0
        if not 0 <= index < len(self):
            raise IndexError(f"token {at}: the store has {len(self)}")
        return int(self._read(index, 1)[0])

    def _read(self, first: int, count: int) -> Any:
        ids = _lib.numpy().empty(count, dtype="int32")
        if count:
            _call("ls_token_store_read", self._at, first, count, INT32_MAX, ids.ctypes.data)
        return ids

    def mask(self, first: int, count: int) -> Any:
        """Which of the tokens [first, first + count) count as targets: bool [count]."""
        first, count = operator.index(first), operator.index(count)
        if first < 0 or count < 0 or first + count > len(self):
            raise IndexError(f"tokens {first} to {first + count}: the store has {len(self)}")
        targets = _lib.numpy().zeros(count, dtype="int32")
        if count:
            _call("ls_token_store_mask", self._at, first, count, targets.ctypes.data)
        return targets != -1

    def samples(self, sequence: int, seed: Optional[int] = None) -> "Samples":
        """The store as samples of so many tokens, in the order of a run.

        Args:
            sequence: tokens of a sample, T.
            seed: shuffles as ``data.seed`` does; None: in the order of the store.
        """
        return Samples(self, sequence, seed)

    def tokenizer(self) -> "Tokenizer":
        """The tokenizer that :func:`prepare` recorded beside it."""
        return Tokenizer(self.spec, _recorded=True)

    def __repr__(self) -> str:
        return f"<lockstep.data.Store {self.spec}: {len(self)} tokens>"


class Samples(Sequence[Any]):
    """Samples of a store: ``samples[i]`` is (inputs, targets), int32 [T] each; targets are the
    inputs one token later, -1 where a mask says that they do not count. Iterating goes through one
    epoch; :meth:`at` takes any number, over epochs."""

    def __init__(self, store: Store, sequence: int, seed: Optional[int] = None,
                 part: Tuple[int, int] = (0, 1)) -> None:
        count = ctypes.c_int64()
        _arrays.whole("sequence", sequence, 1, 2**62)
        if seed is not None:
            _arrays.whole("seed", seed, 0, 2**63 - 1)
        _call("ls_token_store_samples", store._at, int(sequence), ctypes.byref(count))
        self.store, self.sequence, self.seed = store, int(sequence), seed
        self._part = part
        self._order = _SampleOrder(count.value, int(seed or 0), seed is not None)

    def __reduce__(self) -> Any:
        return (Samples, (self.store, self.sequence, self.seed, self._part))

    def __len__(self) -> int:
        first, step = self._part
        return len(range(first, self._order.samples, step))

    def part(self, index: int, count: int) -> "Samples":
        """Samples index, index + count, ...: the part of one of ``count`` workers."""
        if not 0 <= index < count:
            raise ValueError(f"part {index} of {count}: expected 0 to {count - 1}")
        first, step = self._part
        return Samples(self.store, self.sequence, self.seed, (first + index * step, step * count))

    def at(self, number: int) -> Tuple[Any, Any]:
        """The sample of a number from 0 on; those after the last are of the next epoch."""
        number = operator.index(number)
        if not 0 <= number < 2**63:
            raise IndexError(f"sample {number}: expected 0 or more")
        np = _lib.numpy()
        inputs, targets = (np.empty(self.sequence, dtype="int32") for _ in range(2))
        sample = _function("ls_sample_at")(ctypes.byref(self._order), number)
        _call("ls_sample_read", self.store._at, sample, self.sequence, INT32_MAX,
              inputs.ctypes.data, targets.ctypes.data)
        return inputs, targets

    def __getitem__(self, index: Any) -> Any:
        i = operator.index(index)
        i += len(self) if i < 0 else 0
        if not 0 <= i < len(self):
            raise IndexError(f"sample {index}: there are {len(self)}")
        return self.at(self._part[0] + i * self._part[1])

    def __iter__(self) -> Iterator[Tuple[Any, Any]]:
        return (self[i] for i in range(len(self)))


def open(spec: Path) -> Store:
    """Opens a token store: :class:`Store`."""
    return Store(spec)


# ---- tokenizers -------------------------------------------------------------------------------------


class _Encoder:
    """What encodes for one thread at a time, in the process that made it: in a fork its lock and its
    memory may be as another thread had them."""

    def __init__(self, tokenizer: Optional[ctypes.c_void_p] = None) -> None:
        self.process, self.lock, self.pointer = os.getpid(), threading.Lock(), ctypes.c_void_p()
        if tokenizer is not None:
            _call("ls_encoder_new", tokenizer, ctypes.byref(self.pointer))

    def free(self) -> None:
        """What it holds, once."""
        pointer, self.pointer = self.pointer, ctypes.c_void_p()
        if pointer and self.process == os.getpid() and _lib._library is not None:
            _function("ls_encoder_free")(pointer)


class Tokenizer(_Handle):
    """Texts to token ids, and back.

    Args:
        spec: ``"byte"``, a folder with tokenizer.json, or files (doc/data.md).

    Attributes:
        vocabulary: the number of ids; eod, bos, eos: ids that end a document, and that begin and end
            a text, or None.
    """

    def __init__(self, spec: Path, _recorded: bool = False) -> None:
        super().__init__("ls_tokenizer_free")
        self._encoder = _Encoder()
        new = "ls_tokenizer_new_for_store" if _recorded else "ls_tokenizer_new"
        _call(new, _name(spec), ctypes.byref(self._pointer))
        self._encoder = _Encoder(self._pointer)
        self.name: str = _function("ls_tokenizer_name")(self._pointer).decode()
        self.spec: str = os.fsdecode(_function("ls_tokenizer_spec")(self._pointer))
        self.vocabulary: int = _function("ls_tokenizer_vocabulary")(self._pointer)
        self.eod, self.bos, self.eos = (
            _known(_function(f"ls_tokenizer_{which}")(self._pointer))
            for which in ("eod", "bos", "eos"))

    def close(self) -> None:
        """Frees it; using it afterwards is an error. Closing twice is allowed."""
        self._encoder.free()
        super().close()

    def __reduce__(self) -> Any:
        return (Tokenizer, (self.spec,))

    def encode(self, text: Union[str, bytes], *, special: bool = False,
               around: bool = False) -> Any:
        """The ids of a text: int32 [n].

        Args:
            special: special tokens in the text become their ids.
            around: with the ids that the tokenizer puts around a text, such as bos.
        """
        try:
            raw = (text.encode("utf-8", "surrogateescape") if isinstance(text, str)
                   else memoryview(text).tobytes())
        except (UnicodeEncodeError, TypeError) as error:
            raise errors.ArgumentError(f"text: {str(text)[:64]!r}: expected a text of whole characters, as "
                                "UTF-8 has them, or bytes") from error
        options, out = _EncodeOptions(special, around), _TokenList()
        encoder = self._encoder
        if encoder.process != os.getpid():
            encoder = self._encoder = _Encoder(self._at)
        self._at
        try:
            with encoder.lock:
                _call("ls_encode_with", encoder.pointer, raw, len(raw), ctypes.byref(options),
                      ctypes.byref(out))
            ids = _lib.numpy().empty(out.count, dtype="int32")
            if out.count:
                ctypes.memmove(ids.ctypes.data, out.ids, ids.nbytes)
            return ids
        finally:
            _function("ls_token_list_release")(ctypes.byref(out))

    def decode(self, ids: Any) -> str:
        """The text of ids; bytes that are not UTF-8 become U+FFFD. :meth:`decode_bytes` has them."""
        return self.decode_bytes(ids).decode("utf-8", "replace")

    def decode_bytes(self, ids: Any) -> bytes:
        """The bytes of ids, a list or an integer array of shape [n]."""
        array = _lib.numpy().asarray(ids)
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise errors.ArgumentError(
                f"ids: expected integers with one dimension, not {array.dtype} {array.shape}")
        if array.size and (array.min() < 0 or array.max() >= self.vocabulary):
            raise errors.ArgumentError(f"ids: expected 0 to {self.vocabulary - 1}")
        array = _lib.numpy().ascontiguousarray(array, dtype="int32")
        out = _Text()
        try:
            _call("ls_decode", self._at, array.ctypes.data, array.size, ctypes.byref(out))
            return ctypes.string_at(out.bytes, out.count) if out.count else b""
        finally:
            _function("ls_text_release")(ctypes.byref(out))

    def id(self, token: str) -> Optional[int]:
        """The id of an added token, such as ``"<|im_end|>"``, or None."""
        try:
            name = token.encode()
        except (AttributeError, UnicodeEncodeError):
            raise errors.ArgumentError(f"token: {str(token)[:64]!r}: expected a text") from None
        return None if b"\0" in name else _known(_function("ls_tokenizer_id")(self._at, name))

    def __repr__(self) -> str:
        return f"<lockstep.data.Tokenizer {self.name}: {self.vocabulary} ids>"


class ChatTemplate(_Handle):
    """Conversations to texts, as ``apply_chat_template`` of transformers makes them.

    Args:
        folder: of a tokenizer, with tokenizer_config.json or chat_template.jinja.
        template: a file, or the name of one of several templates of the folder; None: the default.
    """

    def __init__(self, folder: Path, template: Optional[Path] = None) -> None:
        super().__init__("ls_chat_free")
        wanted = None if template is None else _name(template)
        _call("ls_chat_open", _name(folder), wanted, ctypes.byref(self._pointer))

    def render(self, messages: Sequence[Mapping[str, Any]], *, answer: bool = True, **variables: Any) -> str:
        """The text of messages ``{"role": ..., "content": ...}``, with its special tokens:
        ``tokenizer.encode(text, special=True)`` gives its ids.

        Args:
            answer: ends where the model is to answer (``add_generation_prompt``).
            variables: ``tools``, ``documents``, ``chat_template_kwargs``.
        """
        try:
            record = json.dumps({**variables, "messages": [dict(one) for one in messages]}).encode()
        except (TypeError, ValueError) as error:
            raise errors.ArgumentError(f"messages: {error}: expected a list of dicts with \"role\" and "
                                       "\"content\"") from None
        out = _ChatText()
        try:
            _call("ls_chat_render", self._at, record, len(record), answer, ctypes.byref(out))
            return ctypes.string_at(out.bytes, out.count).decode("utf-8", "replace") if out.count else ""
        finally:
            _function("ls_chat_text_release")(ctypes.byref(out))


def _known(token: int) -> Optional[int]:
    return None if token < 0 else int(token)


# ---- preparing --------------------------------------------------------------------------------------


class Split(NamedTuple):
    """Documents and tokens of a store that was written; ``counted`` tokens count as targets."""

    documents: int
    tokens: int
    counted: int


class Prepared(NamedTuple):
    """What :func:`prepare` wrote: PREFIX_train and, if documents were held out, PREFIX_valid.
    ``skipped`` records were bad, ``unknown`` characters are not in the vocabulary."""

    train: Split
    valid: Split
    text_bytes: int
    skipped: int
    unknown: int


def prepare(inputs: Union[Path, Sequence[Path]], output: Path, *, tokenizer: Path = "byte",
            validation: float = 0.1, records: str = "text", json_key: Optional[str] = None,
            chat_template: Optional[Path] = None, skip_bad: bool = False,
            special_tokens: bool = True, append_eod: bool = True,
            workers: Optional[int] = None) -> Prepared:
    """Texts and JSONL as token stores, OUTPUT_train and OUTPUT_valid.

    Args:
        inputs: files and folders; NAME.jsonl has a record a line, any other file is one document;
            .gz and .zst are unpacked.
        output: a prefix. Files appear complete, or not at all.
        tokenizer: ``"byte"``, or files (doc/data.md).
        validation: the share of documents to hold out.
        records: of JSONL: ``"text"`` under json_key, ``"pairs"`` of prompt and completion, or
            ``"chat"`` with messages; of the last two only the answers count as targets.
        chat_template: a file; None: that of the tokenizer.
        skip_bad: passes over bad records, and lists them in OUTPUT.skipped.txt.
        special_tokens: puts around documents what the tokenizer does, such as bos.
        append_eod: ends each document with the id that ends one.
        workers: threads; None: a core each. What is written does not depend on it.
    """
    several = [inputs] if isinstance(inputs, (str, os.PathLike)) else _arrays.listed(
        "inputs", inputs, "files and folders")
    answer = _tools.ask("prepare", {
        "inputs": [_keys.path(path) for path in several], "output": _keys.path(output),
        "tokenizer": _keys.path(tokenizer), "validation": validation, "records": records,
        "json_key": json_key, "skip_bad": skip_bad, "special_tokens": special_tokens,
        "chat_template": None if chat_template is None else _keys.path(chat_template),
        "append_eod": append_eod, "workers": workers})
    train, valid = Split(**answer.pop("train")), Split(**answer.pop("valid"))
    return Prepared(train, valid, **answer)
