#!/usr/bin/env python3
"""Makes test/data/golden/ from the reference tokenizers (Python packages tokenizers and tiktoken).

    tools/golden_tokenizer.py [DIR [FAMILY...|ranks]]
    tools/golden_tokenizer.py --categories | --marks | --accents | --punctuation

DIR holds gpt2-vocab.json, gpt2-merges.txt and tinyshakespeare.txt; without it only what does not need
them is made. --categories prints the table of src/data/unicode.c: characters that the reference
knows and Python's unicodedata does not (Python 3.11: Unicode 14, as PCRE2 10.42). --marks prints
another table there: characters that utf8proc reorders or joins and the reference does not. --accents and
--punctuation print the characters that Unicode 16 has as marks or punctuation, and the reference's StripAccents and
Punctuation do not.

  unicode_classes.txt   "L|N|S FIRST LAST": code points (hexadecimal) of \\p{L}, \\p{N} and \\s
  vocab.json merges.txt a small byte-level BPE, trained here
  small_cases.txt       "HEX-OF-UTF-8 TAB ids": encoded with it
  gpt2_cases.txt        the same texts with GPT-2's files
  families/NAME.json    a tokenizer.json with the pipeline of a family (tokenizer_families.py)
  families/NAME.txt     what it does with texts and code points (write_family says how)
  tokens.tiktoken       a rank file, and what it does with each pattern:
  ranks_PATTERN.txt
"""
import base64
import ctypes
import json
import os
import random
import struct
import sys
import unicodedata
import zlib

import tiktoken
from tiktoken_ext import openai_public
from tokenizers import ByteLevelBPETokenizer, Regex, Tokenizer, normalizers, pre_tokenizers

import tokenizer_families

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "test", "data", "golden")
PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
TEXTS = [
    "", " ", "  ", "\n", "\n\n", " \n ", "a", " a", "  a", "a ", "a  ", "a  b", "a\n\nb", "\ta\t\tb",
    "Hello, world!", "It's we're I've I'm they'll he'd don't 's 'S 'RE 'sx", "''s'''ll", "'", "x'",
    "<|endoftext|>", "a<|endoftext|>b", "12 345 6789", "3.14e-10 0x1F ½ ² Ⅷ ٣٤٥ 一二三", "a1b2 c3",
    "naïve café Ünïcödé ﬁ ß", "e\u0301 a\u0308\u0323", "Ελληνικά кириллица עברית العربية हिन्दी ไทย",
    "中文字符 日本語テキスト 한국어", "😀 👩‍👩‍👧‍👦 🇩🇪 👍🏽", "a\u00a0b\u2003c\u3000d\u1680e\u202ff\u205fg", "a\u0085b\u2028c\u2029d",
    "a\u180eb \u180e c", "a\u001cb\u001dc\u001ed\u001fe", "a\u200bb\u200dc\ufeffd", "\u0000\u0001\u007f\u0080",
    "\uffff\ufffd\U0010ffff\U000e0001", "\U0001c000 \U00031350x \U000143fa1 \U0001e4f0\U00016d70",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "the" * 60, "=" * 70, " " * 70, "\n" * 70 + "x", "é" * 60, "中" * 40,
    "if (x == 0) {\n\treturn  y->z[i++];\n}\r\n", "https://example.org/a?b=c&d=%20#e", "A\u0300\u0301\u0302 b",
]


def random_texts(count):
    """Short texts of characters from every plane, with much white space and many apostrophes."""
    rng = random.Random(2019)
    tops = [0x80, 0x80, 0x250, 0x3000, 0x10000, 0x20000, 0x110000]
    texts = []
    for _ in range(count):
        text = ""
        while len(text) < 24:
            kind = rng.random()
            if kind < 0.25:
                text += rng.choice(" \n\t\r\u00a0\u2009")
            elif kind < 0.35:
                text += rng.choice(["'s", "'ll", "'re", "'", "12", "the", "<|endoftext|>"])
            else:
                code = rng.randrange(rng.choice(tops))
                text += "" if 0xD800 <= code < 0xE000 else chr(code)
        texts.append(text)
    return texts


def byte_characters():
    own = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in own]
    return {**{chr(b): b for b in own}, **{chr(256 + n): b for n, b in enumerate(others)}}


def write_classes():
    with open(os.path.join(GOLDEN, "unicode_classes.txt"), "w") as out:
        for name, pattern in [("L", r"\p{L}"), ("N", r"\p{N}"), ("S", r"\s")]:
            split = pre_tokenizers.Split(Regex(pattern), "removed")
            first = None
            for code in range(0x110001):
                known = code < 0x110000 and not 0xD800 <= code < 0xE000
                inside = known and not split.pre_tokenize_str(chr(code))
                if inside and first is None:
                    first = code
                if not inside and first is not None:
                    out.write(f"{name} {first:x} {code - 1:x}\n")
                    first = None


def write_cases(name, vocab, merges):
    """Both references must agree before a case is written."""
    byte_of = byte_characters()
    with open(vocab, encoding="utf-8") as file:
        ids = json.load(file)
    ranks = {bytes(byte_of[c] for c in t): i for t, i in ids.items() if t != "<|endoftext|>"}
    huggingface = ByteLevelBPETokenizer(vocab, merges)
    openai = tiktoken.Encoding(name, pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})
    with open(os.path.join(GOLDEN, name + "_cases.txt"), "w") as out:
        for text in TEXTS + random_texts(200):
            expected = openai.encode_ordinary(text)
            assert huggingface.encode(text).ids == expected, text
            out.write(text.encode().hex() + "\t" + " ".join(map(str, expected)) + "\n")


def write_small():
    trainer = ByteLevelBPETokenizer()
    trainer.train_from_iterator(TEXTS + [__doc__, PATTERN] * 3, vocab_size=600, min_frequency=2,
                                show_progress=False)
    model = json.loads(trainer._tokenizer.to_str())["model"]
    # As in GPT-2: bytes, then merges in their order (so that an id is a rank), then the special one.
    tokens = sorted(model["vocab"], key=model["vocab"].get) + ["<|endoftext|>"]
    vocab, merges = (os.path.join(GOLDEN, f) for f in ("vocab.json", "merges.txt"))
    with open(vocab, "w") as out:
        json.dump({token: i for i, token in enumerate(tokens)}, out, separators=(",", ":"))
        out.write("\n")
    with open(merges, "w", encoding="utf-8") as out:
        out.write("#version: 0.2\n")
        for merge in model["merges"]:
            out.write((merge if isinstance(merge, str) else " ".join(merge)) + "\n")
    write_cases("small", vocab, merges)


def specials(tokenizer):
    return [t.content for t in tokenizer.get_added_tokens_decoder().values()]


def special_texts(tokenizer, count):
    """Texts with added tokens, beside words, spaces and punctuation."""
    rng = random.Random(2024)
    parts = specials(tokenizer) + [" ", "  ", "\n", "a", "word", "words", "-", "12", "中", "e\u0301", "▁", "!",
                                   "A\u030ab", "\u00c5b", "<", "\t"]
    return ["".join(rng.choices(parts, k=7)) for _ in range(count)]


def point_text(code):
    c = chr(code)
    return f"{c}a{c}b {c}1!{c}\n {c}'s{c} \u0345{c}\u0334\U00011935{c}"


def write_points(out, encode):
    for first in range(0, 0x110000, 0x1000):
        codes = [c for c in range(first, first + 0x1000) if not 0xD800 <= c < 0xE000]
        crc = 0
        for ids in encode([point_text(c) for c in codes]):
            crc = zlib.crc32(struct.pack(f"<{1 + len(ids)}i", len(ids), *ids), crc)
        out.write(f"p {first:x} {crc:08x}\n")


def write_family(name, text):
    """Lines of NAME.txt:
    o HEX TAB ids   special tokens are ordinary text
    s HEX TAB ids   they are found, and ids put around the text
    d HEX TAB ids   the text of ids; k: without special tokens
    p FIRST CRC     of the ids (int32, each list behind its length) of point_text, for 4096 code points"""
    tokenizer = Tokenizer.from_str(text)
    folder = os.path.join(GOLDEN, "families")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name + ".json"), "w", encoding="utf-8") as out:
        out.write(text + "\n")
    line = lambda kind, data, ids: out.write(f"{kind} {data.encode().hex()}\t{' '.join(map(str, ids))}\n")
    encode = lambda texts, special: [e.ids for e in tokenizer.encode_batch_fast(
        texts, add_special_tokens=special)]
    with open(os.path.join(folder, name + ".txt"), "w") as out:
        texts = TEXTS + random_texts(12)
        marked = special_texts(tokenizer, 25)
        for kind, list_of in (("o", texts + marked), ("s", texts[:12] + marked)):
            tokenizer.encode_special_tokens = kind == "o"
            for data, ids in zip(list_of, encode(list_of, kind == "s")):
                line(kind, data, ids)
        rng = random.Random(7)
        size = max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1
        for n in range(40):
            ids = [rng.randrange(size) for _ in range(1 + n % 5)] if n % 4 else encode([texts[n]], True)[0]
            for kind, skip in (("d", False), ("k", True)):
                decoded = tokenizer.decode(ids, skip_special_tokens=skip)
                if "\ufffd" not in decoded:
                    line(kind, decoded, ids)
        tokenizer.encode_special_tokens = True
        write_points(out, lambda texts: encode(texts, False))


def byte_tokens(texts):
    """Tokens of a byte-level vocabulary trained on texts, in the order of their merges."""
    byte_of = byte_characters()
    model = tokenizer_families.train(tokenizer_families.FAMILIES["llama3"], texts, 700)
    return [bytes(byte_of[c] for c in t) for t in sorted(model["vocab"], key=model["vocab"].get)]


def write_rank_file(path, tokens):
    with open(path, "wb") as out:
        for rank, token in enumerate(tokens):
            out.write(base64.b64encode(token) + b" %d\n" % rank)


def rank_encoding(pattern, tokens):
    """tiktoken's encoding of these tokens with a published pattern."""
    known = {"llama3": tokenizer_families.WORDS % r"\p{N}{1,3}", "qwen": tokenizer_families.WORDS % r"\p{N}"}
    if pattern not in known:
        # The patterns are inside functions that download ranks.
        openai_public.load_tiktoken_bpe = lambda *a, **k: {}
        known[pattern] = getattr(openai_public, pattern)()["pat_str"]
    return tiktoken.Encoding(pattern, pat_str=known[pattern], special_tokens={},
                             mergeable_ranks={t: i for i, t in enumerate(tokens)})


def write_ranks(folder):
    """tokens.tiktoken, and what it does with each pattern: lines as those of write_family."""
    tokens = byte_tokens(training_texts(folder))
    write_rank_file(os.path.join(GOLDEN, "tokens.tiktoken"), tokens)
    for pattern in ("r50k_base", "cl100k_base", "o200k_base", "llama3", "qwen"):
        encoding = rank_encoding(pattern, tokens)
        with open(os.path.join(GOLDEN, f"ranks_{pattern}.txt"), "w") as out:
            for text in TEXTS + random_texts(12):
                ids = encoding.encode_ordinary(text)
                out.write(f"o {text.encode().hex()}\t{' '.join(map(str, ids))}\n")
            write_points(out, lambda texts: map(encoding.encode_ordinary, texts))
        print(pattern)


def training_texts(folder):
    with open(os.path.join(folder, "tinyshakespeare.txt"), encoding="utf-8") as file:
        return file.read(60000).splitlines(keepends=True) + tokenizer_families.multilingual(400, 5)


def write_families(folder, names):
    texts = training_texts(folder)
    for name in names or tokenizer_families.FAMILIES:
        write_family(name, tokenizer_families.make(name, texts))
        print(name)


def print_ranges(known):
    ranges = []
    for code in sorted(known):
        if ranges and ranges[-1][1] == code - 1 and ranges[-1][2] == known[code]:
            ranges[-1][1] = code
        else:
            ranges.append([code, code, known[code]])
    for found in ranges:
        print("{0x%x, 0x%x, %s}," % tuple(found))


def utf8proc_forms():
    """NFC and NFD by libutf8proc."""
    library, libc = ctypes.CDLL("libutf8proc.so.2"), ctypes.CDLL(None)
    library.utf8proc_map.restype = ctypes.c_ssize_t

    def form(text, options):
        data, found = text.encode(), ctypes.c_void_p()
        count = library.utf8proc_map(data, ctypes.c_ssize_t(len(data)), ctypes.byref(found), options)
        out = ctypes.string_at(found, count).decode()
        libc.free(found)
        return out
    return (lambda text: form(text, 1 << 1 | 1 << 3)), (lambda text: form(text, 1 << 1 | 1 << 4))


def print_marks():
    """Each character between marks of a higher and of a lower combining class, and what it is made of."""
    nfc, nfd = utf8proc_forms()
    known = {}
    for code in range(0x110000):
        if 0xD800 <= code < 0xE000:
            continue
        text, parts = f"\u0345{chr(code)}\u0334", nfd(chr(code))
        if nfd(text) != normalizers.NFD().normalize_str(text):
            known[code] = "0"
        if nfc(parts) != normalizers.NFC().normalize_str(parts):
            known[ord(parts[-1])] = "0"
    print_ranges(known)


def print_categories():
    categories = ("Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cf").split()
    known = {}
    for category in categories:
        split = pre_tokenizers.Split(Regex(r"\p{%s}" % category), "removed")
        for code in range(0x110000):
            if not 0xD800 <= code < 0xE000 and unicodedata.category(chr(code)) == "Cn" \
                    and not split.pre_tokenize_str(chr(code)):
                known[code] = category.upper()
    print_ranges(known)


def print_later(category, taken):
    """Characters of \\p{category} that the older tables of another step do not take."""
    split = pre_tokenizers.Split(Regex(r"\p{%s}" % category), "removed")
    print_ranges({code: "0" for code in range(0x110000) if not 0xD800 <= code < 0xE000
                  and not split.pre_tokenize_str(chr(code)) and not taken(chr(code))})


def main():
    if sys.argv[1:] == ["--categories"]:
        print_categories()
        return
    if sys.argv[1:] == ["--marks"]:
        print_marks()
        return
    if sys.argv[1:] == ["--accents"]:
        print_later("M", lambda c: not normalizers.StripAccents().normalize_str(c))
        return
    if sys.argv[1:] == ["--punctuation"]:
        print_later("P", lambda c: not pre_tokenizers.Punctuation("removed").pre_tokenize_str(c))
        return
    os.makedirs(GOLDEN, exist_ok=True)
    if sys.argv[2:] == ["ranks"]:
        write_ranks(sys.argv[1])
        return
    if len(sys.argv) > 2:
        write_families(sys.argv[1], sys.argv[2:])
        return
    write_classes()
    write_small()
    if len(sys.argv) > 1:
        write_cases("gpt2", os.path.join(sys.argv[1], "gpt2-vocab.json"),
                    os.path.join(sys.argv[1], "gpt2-merges.txt"))
        write_families(sys.argv[1], [])
        write_ranks(sys.argv[1])


if __name__ == "__main__":
    main()
