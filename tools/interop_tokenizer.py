#!/usr/bin/env python3
"""Compares Lockstep's tokenizers with the packages `tokenizers` and `tiktoken` on freshly drawn texts.

    make interop [PYTHON=/path/to/venv/bin/python] [SEED=1]
    tools/interop_tokenizer.py build/liblockstep.so [--texts N] [--seed S] [--classes]

Small tokenizers of every family (tokenizer_families.py) are trained on the pages of doc/; the texts that
are compared are parts of them and random ones. Our trainer and that of `tokenizers` must make the same
merges of the pages. --classes prints what classes of characters hold, as a table
of test/data/test_tokenizer.c has it, and compares nothing. Exit code 1, with the first differences, where one differs."""
import argparse
import ctypes
import json
import os
import pathlib
import random
import re
import sys
import tempfile
import time
import unicodedata

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

import golden_tokenizer
import tokenizer_families


class Ids(ctypes.Structure):
    _fields_ = [("ids", ctypes.POINTER(ctypes.c_int32)), ("count", ctypes.c_int64),
                ("capacity", ctypes.c_int64)]


class Text(ctypes.Structure):
    _fields_ = [("bytes", ctypes.POINTER(ctypes.c_char)), ("count", ctypes.c_size_t),
                ("capacity", ctypes.c_size_t)]


class Options(ctypes.Structure):
    _fields_ = [("special", ctypes.c_bool), ("around", ctypes.c_bool), ("continued", ctypes.c_bool)]


class Ours:
    """A tokenizer of liblockstep."""

    def __init__(self, library, spec):
        self.library = library
        self.tokenizer, self.encoder = ctypes.c_void_p(), ctypes.c_void_p()
        error = ctypes.create_string_buffer(65536)
        if library.ls_tokenizer_new(spec.encode(), ctypes.byref(self.tokenizer), error):
            raise SystemExit(f"{spec}: {error.raw[:2000]}")
        assert library.ls_encoder_new(self.tokenizer, ctypes.byref(self.encoder), None) == 0

    def encode(self, text, special):
        ids, data = Ids(), text.encode()
        options = Options(special, special, False)
        assert self.library.ls_encode_with(self.encoder, data, ctypes.c_size_t(len(data)),
                                           ctypes.byref(options), ctypes.byref(ids), None) == 0
        found = ids.ids[:ids.count] if ids.count else []
        self.library.ls_token_list_release(ctypes.byref(ids))
        return found

    def decode(self, ids):
        text = Text()
        array = (ctypes.c_int32 * len(ids))(*ids)
        assert self.library.ls_decode(self.tokenizer, array, ctypes.c_int64(len(ids)),
                                      ctypes.byref(text), None) == 0
        found = text.bytes[:text.count] if text.count else b""
        self.library.ls_text_release(ctypes.byref(text))
        return found


# Characters that normal forms reorder, join or take apart, and letters to join them with.
MARKS = [chr(c) for c in range(0x110000) if unicodedata.category(chr(c)) in ("Mn", "Mc")]
JOINING = [chr(c) for c in range(0x110000)
           if unicodedata.decomposition(chr(c)) or 0x1100 <= c < 0x1200 or 0xAC00 <= c < 0xAC40]


def random_text(rng, parts, corpus):
    """Parts of a corpus, special tokens, runs, marks, and characters of every plane."""
    text = ""
    for _ in range(rng.randrange(1, 12)):
        kind = rng.random()
        if kind < 0.3:
            at = rng.randrange(len(corpus))
            text += corpus[at:at + rng.randrange(1, 60)]
        elif kind < 0.4:
            text += rng.choice(parts)
        elif kind < 0.5:
            text += rng.choice(" \n\t-='a1é中") * rng.randrange(1, 70)
        elif kind < 0.65:
            for _ in range(rng.randrange(1, 12)):
                text += rng.choice(rng.choice(["aeiouAEIOU", MARKS, MARKS, JOINING]))
        else:
            top = rng.choice([0x80, 0x250, 0x800, 0x3000, 0x10000, 0x20000, 0x110000])
            for _ in range(rng.randrange(1, 8)):
                code = rng.randrange(top)
                text += "" if 0xD800 <= code < 0xE000 else chr(code)
    return text


def compare(name, ours, theirs, decode, texts):
    """theirs(text, special) gives ids. Returns how many texts differ."""
    wrong = 0
    for text in texts:
        for special in (False, True):
            expected, found = theirs(text, special), ours.encode(text, special)
            decoded = decode(expected)
            same = found == expected and ("\ufffd" in decoded
                                          or ours.decode(expected) == decoded.encode())
            if not same and wrong < 3:
                print(f"{name}: special={special} {text!r}\n  expected {expected}\n  found    {found}")
            wrong += not same
    return wrong


def check_family(library, name, folder, corpus, texts):
    path = os.path.join(folder, name + ".json")
    with open(path, "w", encoding="utf-8") as file:
        file.write(tokenizer_families.make(name, corpus.splitlines(keepends=True)))
    reference = Tokenizer.from_file(path)

    def theirs(text, special):
        reference.encode_special_tokens = not special
        return reference.encode(text, add_special_tokens=special).ids

    return compare(name, Ours(library, path), theirs,
                   lambda ids: reference.decode(ids, skip_special_tokens=False), texts)


def check_ranks(library, pattern, folder, tokens, texts):
    path = os.path.join(folder, pattern + ".tiktoken")
    golden_tokenizer.write_rank_file(path, tokens)
    reference = golden_tokenizer.rank_encoding(pattern, tokens)
    ours = Ours(library, path)
    ours.encode, encode = lambda text, special: encode(text, False), ours.encode
    return compare("tiktoken " + pattern, ours, lambda text, special: reference.encode_ordinary(text),
                   reference.decode, texts)


class Training(ctypes.Structure):
    """struct ls_train_tokenizer_config"""
    _fields_ = [("inputs", ctypes.POINTER(ctypes.c_char_p)), ("inputs_count", ctypes.c_int),
                ("json_key", ctypes.c_char_p), ("output", ctypes.c_char_p), ("vocabulary", ctypes.c_int64),
                ("pattern", ctypes.c_char_p), ("special", ctypes.POINTER(ctypes.c_char_p)),
                ("special_count", ctypes.c_int), ("frequency_min", ctypes.c_int64),
                ("workers", ctypes.c_int), ("stop", ctypes.c_void_p)]


SPECIAL = ["<|endoftext|>", "<pad>"]


def train_theirs(pre_tokenizer, corpus, vocabulary, frequency_min):
    """What the package's trainer makes of the documents."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=vocabulary, min_frequency=frequency_min, special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return json.loads(tokenizer.to_str())["model"]


def check_training(library, pattern, folder, corpus, texts):
    """Our trainer beside the package's: the vocabulary, the merges, and what each makes of texts."""
    path, output = os.path.join(folder, "corpus.jsonl"), os.path.join(folder, "trained_" + pattern)
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in corpus)
    wrong = 0
    for vocabulary, frequency_min in ((300, 1), (4000, 2), (100000, 3)):
        config = Training((ctypes.c_char_p * 1)(path.encode()), 1, None, output.encode(), vocabulary,
                          pattern.encode(), (ctypes.c_char_p * 2)(*(s.encode() for s in SPECIAL)), 2,
                          frequency_min, 3, None)
        error = ctypes.create_string_buffer(65536)
        if library.ls_train_tokenizer(ctypes.byref(config), ctypes.create_string_buffer(256), error):
            raise SystemExit(f"{pattern}: {error.raw[:2000]}")
        reference = Tokenizer.from_file(os.path.join(output, "tokenizer.json"))
        found = json.loads(reference.to_str())["model"]
        expected = train_theirs(reference.pre_tokenizer, corpus, vocabulary, frequency_min)
        wrong += found["vocab"] != expected["vocab"] or found["merges"] != expected["merges"]

        def theirs(text, special):
            reference.encode_special_tokens = not special
            return reference.encode(text, add_special_tokens=special).ids

        wrong += compare("trained " + pattern, Ours(library, output), theirs,
                         lambda ids: reference.decode(ids, skip_special_tokens=False), texts)
    return wrong


SIGNS = ("? * + ?? *? +? ?+ *+ ++ {2} {1,2} {,2} {2,} {0} {1} {0,2} {2}? {1,2}? {2,}? {2}+ {1,2}+ {,2}? {,2}+ "
         "{1,1} {3,1} { {,} {a} {1,}?+ +* ?* +?+ {2}{2}").split()
LETTERS = {"plain": "abx", "cased": "sStTfFiIkKl'ſßﬆﬁK", "wide": "éͅιΙ中²Ⅰⓐǆǅ\u200d\n", "marks": "-]}&~# :<^"}
ESCAPES = r"\s \S \d \D \w \W \n \t \r \f \u0061 \u00e9 \p{L} \P{L} \p{Lu} \p{N} \p{M} \p{P} \p{Han} \P{Nd}".split()
ODD = (r"\b \B \h \H \R \X \A \z \Z \G \K \N \O \1 \0 \x41 \x{61} \o{141} \e \a \v \cA \k<n> \g<1> \y \pL \Q ^ "
       r"\é (?#c) (?m:.) (?s:.) (?x:a) (?-i:a) (?<n>a) (?P<n>a) (?|a|b) (?~a) (?(1)a) (*FAIL) (?=) () (?:) \ "
       r"\p{^L} \p{l} \p{Letter}").split()
MEMBERS = (r"a b - ^ ^a a-c a-b-x ] [ [b] [^b] && & ~~ -- . $ * { ( | : [:alpha:] \] \- \^ \\ é 中-龥 \u0061-\u0063 !-/ "
           r"a- -a \s- -\s \w-z").split()


class PatternDraw:
    """One expression of some of the constructs, and texts of its letters."""

    def __init__(self, rng):
        self.rng = rng
        self.letters = list(LETTERS[rng.choice(["plain"] * 3 + list(LETTERS))])
        signs = rng.choice([SIGNS[:6], SIGNS[:16], SIGNS])
        with_odd = lambda likely, parts: parts if rng.random() < likely else []
        self.signs = with_odd(0.8, signs)
        self.atoms = (list("abx") + [re.escape(c) for c in self.letters] + with_odd(0.3, ESCAPES)
                      + with_odd(0.1, ODD) + with_odd(0.3, [".", "$", "(?i)"]))
        self.members = [*"abx", "a-c", *with_odd(0.8, list(set(self.letters) - set("-]^&"))),
                        *with_odd(0.3, ESCAPES), *with_odd(0.2, MEMBERS)]
        self.groups = ["(?:"] * 3 + ["(", "(?>"] + with_odd(0.3, ["(?=", "(?!", "(?<=", "(?<!"]) + with_odd(
            0.3, ["(?i:", "(?:(?i)"])
        self.empty = rng.random() < 0.2

    def item(self, depth):
        kind = self.rng.random()
        if depth > 0 and kind < 0.45:
            part = self.rng.choice(self.groups) + self.branches(depth - 1) + ")"
        elif kind < 0.65:
            members = "".join(self.rng.choices(self.members, k=self.rng.randrange(1, 4)))
            part = self.rng.choice(["[", "[", "[^"]) + members + "]"
        else:
            part = self.rng.choice(self.atoms)
        return part + (self.rng.choice(self.signs) if self.signs and self.rng.random() < 0.4 else "")

    def branches(self, depth):
        return "|".join("".join(self.item(depth) for _ in range(self.rng.randrange(not self.empty, 4)))
                        for _ in range(self.rng.choice([1, 1, 2, 3])))

    def pattern(self):
        return self.branches(self.rng.randrange(1, 4)) + self.rng.choice(["", "a", "b"])

    def text(self):
        letters = self.letters + list("aab" + self.rng.choice(["x", "A1 \t", "é中²\u3000", "\n\n\r-", "{},2"]))
        return "".join(self.rng.choices(letters, k=self.rng.randrange(1, 12)))


class Range(ctypes.Structure):
    _fields_ = [("begin", ctypes.c_size_t), ("end", ctypes.c_size_t)]


ONIGURUMA, FANCY = 0, 1  # enum data_pattern_syntax


class OurPattern:
    """A pattern of liblockstep; supported is False for one that is refused."""

    def __init__(self, library, pattern, syntax):
        self.library, self.splitter, self.state = library, ctypes.c_void_p(), ctypes.c_void_p()
        self.supported = library.data_splitter_new(pattern.encode(), syntax, False,
                                                   ctypes.byref(self.splitter), None) == 0
        if self.supported:
            assert library.data_split_state_new(self.splitter, ctypes.byref(self.state), None) == 0

    def release(self):
        self.library.data_split_state_free(self.state)
        self.library.data_splitter_free(self.splitter)

    def find(self, text):
        """Where matches begin and end; None for what takes too many steps."""
        data, found, at = text.encode(), [], Range()
        while at.end < len(data):
            if self.library.data_split_find(self.splitter, self.state, data, ctypes.c_size_t(len(data)),
                                            ctypes.c_size_t(at.end), ctypes.byref(at), None):
                return None
            if at.begin < len(data):
                found.append((len(data[:at.begin].decode()), len(data[:at.end].decode())))
        return found


def their_pattern(pattern):
    """A function as OurPattern.find; None for a pattern that is refused."""
    try:
        regex = Regex(pattern)
    except Exception:  # the package has no narrower one
        return None
    pieces, between = (pre_tokenizers.Split(regex, behavior) for behavior in ("isolated", "removed"))

    def find(text):
        try:
            left = {place for _, place in between.pre_tokenize_str(text)}
            return [place for _, place in pieces.pre_tokenize_str(text) if place not in left]
        except BaseException as error:  # Oniguruma's limit of steps
            if type(error).__name__ != "PanicException":
                raise
            return None

    return find


def check_patterns(library, rng, count, syntax):
    """Drawn expressions on drawn texts. Returns how many expressions are equal, refused and different."""
    equal, refused, different = 0, 0, []
    for _ in range(count):
        draw = PatternDraw(rng)
        pattern = draw.pattern()
        ours, theirs = OurPattern(library, pattern, syntax), their_pattern(pattern)
        if not ours.supported or not theirs:
            refused += 1
        else:
            found = ((text, theirs(text), ours.find(text)) for text in (draw.text() for _ in range(30)))
            first = next((f for f in found if None not in f and f[1] != f[2]), None)
            equal += first is None
            different += [(pattern, *first)] if first else []
        ours.release()
    return equal, refused, different


CLASSES = [r"\w", r"\W", r"[\w]", r"\d", r"\s"] + [r"\p{%s}" % name for name in (
    "Han Hiragana Katakana Hangul Thai Hebrew Greek Latin Cyrillic Arabic Devanagari "
    "L M N P S Lu Lo").split()]


def print_classes():
    """Of each class its characters' number, and the sum of their numbers modulo 2^32. Of each
    normalizer how many characters it changes, and a hash of what becomes of all."""
    everything = "".join(chr(c) for c in range(0x110000) if not 0xd800 <= c < 0xe000)
    for pattern in CLASSES:
        split = pre_tokenizers.Split(Regex(pattern), "removed")
        left = "".join(text for text, _ in split.pre_tokenize_str(everything))
        held = set(map(ord, everything)) - set(map(ord, left))
        escaped = pattern.replace("\\", "\\\\")
        print(f'    {{"{escaped}", {len(held)}, {sum(held) % 2**32}u}},')
    for name in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents"):
        normalizer, hashed, changed = getattr(normalizers, name)(), 0, 0
        for character in everything:
            text = normalizer.normalize_str(character)
            changed += text != character
            for byte in text.encode() + b"\0":
                hashed = (31 * hashed + byte) % 2**32
        print(f'    {{"{name}", {changed}, {hashed}u}},')


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library")
    parser.add_argument("--texts", type=int, default=500)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--classes", action="store_true")
    options = parser.parse_args()
    if options.classes:
        print_classes()
        return
    library = ctypes.CDLL(os.path.abspath(options.library))
    rng = random.Random(options.seed)
    pages = sorted((pathlib.Path(__file__).resolve().parent.parent / "doc").glob("*.md"))
    corpus = "\n".join([page.read_text(encoding="utf-8") for page in pages]
                       + tokenizer_families.multilingual(300, options.seed))
    parts = sorted({t["content"] for f in tokenizer_families.FAMILIES.values() for t in f["added"]})
    texts = [random_text(rng, parts, corpus) for _ in range(options.texts)] + ["", "a" * 100000]
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in tokenizer_families.FAMILIES:
            differ = check_family(library, name, folder, corpus, texts)
            print(f"{name}: {2 * len(texts)} encodings, {differ} differ")
            wrong += differ
        equal, refused, differ = check_patterns(library, rng, 10 * options.texts, ONIGURUMA)
        print(f"patterns: {equal} equal, {refused} refused, {len(differ)} differ")
        for pattern, text, expected, found in differ[:9]:
            print(f"{pattern!r} in {text!r}: expected {expected}, found {found}")
        twin = check_patterns(library, rng, 10 * options.texts, FANCY)[2]
        print(f"patterns read as fancy-regex reads them, which must be seen: {len(twin)} differ")
        wrong += len(differ) + (not twin)
        tokens = golden_tokenizer.byte_tokens(corpus.splitlines(keepends=True))
        for pattern in ("r50k_base", "cl100k_base", "o200k_base", "llama3", "qwen"):
            differ = check_ranks(library, pattern, folder, tokens, texts)
            print(f"tiktoken {pattern}: {len(texts)} encodings, {differ} differ")
            wrong += differ
        for pattern in ("gpt2", "llama3", "qwen", "o200k_base", "tekken"):
            differ = check_training(library, pattern, folder, corpus.split("\n\n"), texts[::10])
            print(f"trained {pattern}: three vocabularies, {differ} differ")
            wrong += differ
    print(f"seed {options.seed}: {'all equal' if wrong == 0 else f'{wrong} differ'}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
