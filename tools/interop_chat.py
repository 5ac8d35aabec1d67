#!/usr/bin/env python3
"""Holds `lockstep generate --chat` against transformers, on small random models.

    make interop [PYTHON=/path/to/venv/bin/python] [SEED=1]
    tools/interop_chat.py --lockstep build/lockstep [--seed 1] [--count 20]

Needs torch and transformers. For each chat template of test/chat/golden, beside a tokenizer of its
family, a folder is made as save_pretrained writes it, and `count` conversations are drawn. Each has
the ids of apply_chat_template(add_generation_prompt=True), and the answer of greedy generate: the
same tokens, up to the same end. A conversation that one refuses, the other must refuse.

Then the same by turns: the lines of a conversation on standard input, whose answers are those that
transformers gives when each joins the conversation.
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import torch
import transformers

TESTS = pathlib.Path(__file__).resolve().parents[1] / "test"
# template: tokenizer, and what begins and ends a turn
TEMPLATES = {
    "chatml": ("smollm2", "<|im_start|>", "<|im_end|>"),
    "gemma2": ("gemma", "<bos>", "<eos>"),
    "llama2": ("llama2", "<s>", "</s>"),
    "llama3": ("llama3", "<|begin_of_text|>", "<|eot_id|>"),
    "mistral": ("mistral", "<s>", "</s>"),
    "olmo2": ("olmo2", "<|endoftext|>", "<|endoftext|>"),
    "qwen2.5": ("qwen", None, "<|im_end|>"),
    "qwen3": ("qwen", None, "<|im_end|>"),
}
TOKENS = 12
WORDS = ["who", " are", " you", "?", " Zürich", "\n", " 1234", " <b>", "  two", "日本", " it's", "."]


def folder_make(folder, template, seed):
    family, bos, eos = TEMPLATES[template]
    tokenizer_file = (TESTS / "data/golden/families" / f"{family}.json").read_text()
    (folder / "tokenizer.json").write_text(tokenizer_file)
    names = {"eos_token": eos} | ({"bos_token": bos} if bos else {})
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), **names)
    tokenizer.chat_template = (TESTS / "chat/golden" / f"{template}.jinja").read_text()
    tokenizer.save_pretrained(folder)
    torch.manual_seed(seed)
    ends = [tokenizer.eos_token_id, 7]
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=1024,
        initializer_range=0.5)
    model = transformers.LlamaForCausalLM(config)
    # A text of whole characters alone: of others, the decoders of transformers differ by family.
    partial = [i for i in range(len(tokenizer)) if "\ufffd" in tokenizer.decode([i])]
    with torch.no_grad():
        model.lm_head.weight[partial] = 0
    model.generation_config = transformers.GenerationConfig(
        eos_token_id=ends, pad_token_id=0, do_sample=False)
    model.save_pretrained(folder)
    return model, transformers.AutoTokenizer.from_pretrained(folder)


def text_draw(draw):
    return "".join(draw.choice(WORDS) for _ in range(draw.randint(1, 8)))


def conversation_draw(draw):
    messages = [{"role": "system", "content": text_draw(draw)}] if draw.random() < 0.4 else []
    for _ in range(draw.randint(0, 2)):
        messages += [{"role": "user", "content": text_draw(draw)},
                     {"role": "assistant", "content": text_draw(draw)}]
    return messages + [{"role": "user", "content": text_draw(draw)}]


def answer(model, tokenizer, messages):
    """The ids of the prompt and of the answer, or the reason why there are none."""
    try:
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    except Exception as why:  # a template's own refusal
        return None, str(why)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        # Without a mask generate leaves out what is pad_token_id, as an <unk> in an answer may be.
        all_ids = model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids)).long(),
                                 max_new_tokens=TOKENS)[0].tolist()
    return ids, all_ids[len(ids):]


def lockstep(program, folder, *words, given=None):
    return subprocess.run([program, "generate", str(folder), "--chat", "--tokens", str(TOKENS),
                           *words],
                          input=given and given.encode(), capture_output=True)


def check_lines(program, folder, model, tokenizer, conversations):
    wrong, answered = [], 0
    path = folder / "talks.jsonl"
    for messages in conversations:
        path.write_text(json.dumps({"messages": messages}) + "\n")
        ids, expected = answer(model, tokenizer, messages)
        done = lockstep(program, folder, "--prompts", str(path))
        if ids is None:
            if done.returncode == 0:
                wrong.append(f"{messages}: transformers refuses: {expected}")
            continue
        if done.returncode:
            wrong.append(f"{messages}: {done.stderr.decode()}")
            continue
        got = json.loads(done.stdout)
        answered += 1
        if got["tokens"] != ids + expected or got["prompt_tokens"] != len(ids):
            wrong.append(f"{messages}: {got['tokens']}, transformers {ids} + {expected}")
    return answered, wrong


def check_turns(program, folder, model, tokenizer, draw):
    said = [" ".join(text_draw(draw).split()) or "who" for _ in range(3)]
    messages, expected = [], []
    for line in said:
        messages.append({"role": "user", "content": line})
        ids, drawn = answer(model, tokenizer, messages)
        if drawn and drawn[-1] in model.generation_config.eos_token_id:
            drawn = drawn[:-1]
        text = tokenizer.decode(ids + drawn)[len(tokenizer.decode(ids)):]
        messages.append({"role": "assistant", "content": text})
        expected.append(text)
    done = lockstep(program, folder, given="\n".join(said) + "\n")
    printed = "".join(text + "\n" for text in expected)
    return [] if done.stdout.decode() == printed else [
        f"{said}: {done.stdout.decode()!r}, transformers {printed!r} {done.stderr.decode()}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lockstep", default="build/lockstep")
    parser.add_argument("--seed", default=1, type=int)
    parser.add_argument("--count", default=20, type=int)
    arguments = parser.parse_args()
    program = str(pathlib.Path(arguments.lockstep).resolve())
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    draw, bad = random.Random(arguments.seed), 0
    for template in TEMPLATES:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            model, tokenizer = folder_make(folder, template, arguments.seed)
            conversations = [conversation_draw(draw) for _ in range(arguments.count)]
            answered, wrong = check_lines(program, folder, model, tokenizer, conversations)
            wrong += check_turns(program, folder, model, tokenizer, draw)
            print(f"{template:10s} {answered} of {len(conversations)} conversations answered, "
                  f"{len(wrong)} wrong", flush=True)
            for each in wrong[:3]:
                print("    " + each[:600])
            bad += len(wrong)
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
