"""Small tokenizers with the pipelines of published families, for golden files and comparisons.

A pipeline (normalizer, pre-tokenizer, post-processor, decoder, added tokens) is the family's; the
vocabulary is trained here, since published ones are large. Needs the Python package tokenizers."""
import json
import random

from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

WORDS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
CASED = (r"[^\r\n\p{L}\p{N}]?" + UPPER + "*" + LOWER + r"+%s|[^\r\n\p{L}\p{N}]?" + UPPER + "+" + LOWER
         + r"*%s|%s| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SUFFIX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
GPT2 = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
REPLACED = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
SPACED = [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
          {"type": "Fuse"}]
STRIPPED = {"type": "Sequence", "decoders": [*SPACED, {"type": "Strip", "content": " ", "start": 1,
                                                       "stop": 0}]}


def split(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


def metaspace(scheme, parts):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": parts}


def added(content, special=True, **flags):
    token = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": not special}
    return {"content": content, **token, "special": special, **flags}


def around(bos=None, eos=None):
    token = lambda name: [{"SpecialToken": {"id": name, "type_id": 0}}] if name else []
    single = token(bos) + [{"Sequence": {"id": "A", "type_id": 0}}] + token(eos)
    return {"type": "TemplateProcessing", "single": single,
            "pair": single + [{"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {name: {"id": name, "ids": [name], "tokens": [name]}
                               for name in (bos, eos) if name}}


LLAMA3_POST = {"type": "Sequence", "processors": [{**BYTE_LEVEL, "use_regex": True},
                                                  around("<|begin_of_text|>")]}
SPM = ["<unk>", "<s>", "</s>"]

# form bytes: byte-level; characters: with byte fallback. `first`: tokens before all others.
FAMILIES = {
    "gpt2": dict(pre=GPT2, post={**GPT2}, added=[added("<|endoftext|>")]),
    "llama3": dict(pre=sequence(split(WORDS % r"\p{N}{1,3}"), BYTE_LEVEL), post=LLAMA3_POST,
                   ignore_merges=True,
                   added=[added(t) for t in ("<|begin_of_text|>", "<|end_of_text|>",
                                             "<|start_header_id|>", "<|eot_id|>")]),
    "qwen": dict(normalizer={"type": "NFC"}, pre=sequence(split(WORDS % r"\p{N}"), BYTE_LEVEL),
                 post={**BYTE_LEVEL},
                 added=[added(t) for t in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")]
                 + [added("<tool_call>", False, normalized=False),
                    added("</tool_call>", False, normalized=False)]),
    "smollm2": dict(pre=sequence({"type": "Digits", "individual_digits": True}, GPT2),
                    added=[added(t) for t in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")]),
    "olmo2": dict(pre=sequence(split(WORDS % r"\p{N}{1,3}", "Removed", True), BYTE_LEVEL),
                  added=[added("<|endoftext|>"), added("|||PHONE_NUMBER|||", False, normalized=False)]),
    "o200k": dict(pre=sequence(split(CASED % (SUFFIX, SUFFIX, r"\p{N}{1,3}")), BYTE_LEVEL),
                  ignore_merges=True, added=[added("<|endoftext|>")]),
    "tekken": dict(pre=sequence(split(CASED % ("", "", r"\p{N}")), BYTE_LEVEL), ignore_merges=True,
                   post=around("<s>"), added=[added("<s>"), added("</s>"), added("[INST]")]),
    "llama2": dict(form="characters", first=SPM, pairs=True,
                   normalizer={"type": "Sequence",
                               "normalizers": [{"type": "Prepend", "prepend": "▁"}, REPLACED]},
                   pre=None, post=around("<s>"), decoder=STRIPPED,
                   added=[added(t) for t in SPM]),
    "mistral": dict(form="characters", first=SPM, pre=metaspace("first", False),
                    post=around("<s>"), decoder=STRIPPED,
                    added=[added(t) for t in [*SPM, "[INST]", "[/INST]"]]),
    "gemma": dict(form="characters", first=["<pad>", "<eos>", "<bos>", "<unk>"],
                  normalizer=REPLACED,
                  pre={"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious",
                       "invert": False},
                  post=around("<bos>"), decoder={"type": "Sequence", "decoders": SPACED},
                  added=[added(t) for t in ("<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>")]
                  + [added("\n" * n, False, normalized=False) for n in range(2, 6)]),
    # What no published family has at once: other behaviors, forms and flags.
    "odd": dict(normalizer={"type": "Sequence",
                            "normalizers": [{"type": "NFC"},
                                            {"type": "Replace", "pattern": {"Regex": r"\s{2,}"},
                                             "content": " "}]},
                pre=sequence({"type": "Split", "pattern": {"String": "-"},
                              "behavior": "MergedWithNext", "invert": False},
                             split(r"[\p{P}\p{S}]", "MergedWithPrevious"), split(r"\p{N}+$"),
                             split(r"[^\s]+|\s+", "Contiguous"),
                             {"type": "Digits", "individual_digits": False}, GPT2),
                post=around("<s>", "</s>"),
                added=[added("<s>"), added("</s>"), added("<mask>", lstrip=True),
                       added("<sep>", rstrip=True), added("word", False, single_word=True),
                       added("A\u030ab", False), added("<s", False, normalized=False)]),
    "always": dict(form="characters", first=SPM, fallback=False, normalizer={"type": "NFD"},
                   pre=metaspace("always", True),
                   decoder={"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always",
                            "split": True},
                   added=[added(t) for t in SPM]),
    "words": dict(pre=sequence({"type": "WhitespaceSplit"},
                               {"type": "Punctuation", "behavior": "Contiguous"}, BYTE_LEVEL),
                  added=[added("<|endoftext|>")]),
    "accents": dict(normalizer={"type": "Sequence",
                                "normalizers": [{"type": "NFD"}, {"type": "StripAccents"},
                                                {"type": "Lowercase"}]},
                    pre=sequence({"type": "Whitespace"}, {"type": "Punctuation"}, BYTE_LEVEL),
                    added=[added("<|endoftext|>")]),
    # A text that begins with what is stripped has no prefix, and tokens of characters of bytes.
    "marks": dict(form="characters", first=SPM, fallback=False,
                  normalizer={"type": "Sequence",
                              "normalizers": [{"type": "NFKD"}, {"type": "StripAccents"},
                                              {"type": "Replace", "pattern": {"Regex": r"\d-"},
                                               "content": "-"}, {"type": "Lowercase"}]},
                  pre=sequence({"type": "Digits", "individual_digits": True},
                               metaspace("first", True)),
                  decoder={"type": "Sequence", "decoders": SPACED},
                  added=[added(t) for t in SPM]),
    "bytes": dict(pre=GPT2, added=[added("<|endoftext|>"), added("\u0120caf\u00c3\u00a9"),
                                   added("na\u00efve", False), added("\u4e2d\u00e9"),
                                   added("\u010a", False, normalized=False)]),
    # Merges go over spaces, so a text is one word.
    "phrases": dict(form="characters", first=SPM, phrases=True, normalizer=REPLACED, pre=None,
                    decoder={"type": "Sequence", "decoders": SPACED},
                    added=[added(t) for t in SPM]),
}


def multilingual(count, seed):
    """Lines of words from several scripts, each word repeated often enough to be learned."""
    rng = random.Random(seed)
    ranges = [(0x61, 0x7a), (0x41, 0x5a), (0xe0, 0xff), (0x3b1, 0x3c9), (0x430, 0x44f), (0x5d0, 0x5ea),
              (0x627, 0x64a), (0x905, 0x939), (0x4e00, 0x4e60), (0x3042, 0x3093), (0xac00, 0xac40),
              (0x1f600, 0x1f640), (0x30, 0x39)]
    words = ["".join(chr(rng.randint(*r)) for _ in range(rng.randint(1, 6)))
             for r in ranges for _ in range(12)]
    return [" ".join(rng.choices(words, k=8)) for _ in range(count)]


def train(family, texts, size):
    """Vocabulary and merges of a family."""
    characters = family.get("form") == "characters"
    first = family.get("first", [])
    if family.get("fallback", True) and characters:
        first = first + [f"<0x{b:02X}>" for b in range(256)]
    tokenizer = Tokenizer(models.BPE())
    if characters:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
        if family.get("phrases"):
            texts = [t.replace(" ", "▁") for t in texts]
            tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"\n"), "isolated")
        alphabet = ["▁"]
    else:
        tokenizer.pre_tokenizer = Tokenizer.from_str(json.dumps(
            {"model": {"type": "BPE", "vocab": {}, "merges": []}, "pre_tokenizer": family["pre"],
             "added_tokens": []})).pre_tokenizer
        alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=size + len(first), initial_alphabet=alphabet, limit_alphabet=280,
        special_tokens=first, show_progress=False))
    return json.loads(tokenizer.to_str())["model"]


def make(name, texts, size=560):
    """The text of a family's tokenizer.json."""
    family = FAMILIES[name]
    model = train(family, texts, size)
    vocab = model["vocab"]
    tokens = []
    for token in family["added"]:
        tokens.append({"id": vocab.get(token["content"], len(vocab) + sum(
            t["content"] not in vocab for t in tokens)), **token})
    ids = {t["content"]: t["id"] for t in tokens}
    post = json.loads(json.dumps(family.get("post")))
    for step in [post, *(post or {}).get("processors", [])]:
        for special in (step or {}).get("special_tokens", {}).values():
            special["ids"] = [ids[special["id"]]]
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    if family.get("pairs"):
        merges = [m.split(" ") for m in merges]
    unknown = "<unk>" if "<unk>" in vocab else None
    characters = family.get("form") == "characters"
    return json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens,
        "normalizer": family.get("normalizer"), "pre_tokenizer": family["pre"],
        "post_processor": post,
        "decoder": family.get("decoder", {**BYTE_LEVEL, "add_prefix_space": True, "use_regex": True}),
        "model": {"type": "BPE", "dropout": None, "unk_token": unknown,
                  "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": bool(unknown), "byte_fallback": characters and family.get("fallback", True),
                  "ignore_merges": family.get("ignore_merges", False), "vocab": vocab,
                  "merges": merges}}, ensure_ascii=False, separators=(",", ":"))
