#!/usr/bin/env python3
"""LoRA over a base in few bits (lora.base), beside peft with bitsandbytes.

    bench/peers/qlora.py [--bases none,int8,nf4] [--rank 16] [--batch 2] [--tokens 256] [--rounds 3]
                         [--steps 3] [--layers 12] [--alone] [--lockstep build/lockstep]

A Llama of 124 million parameters (the shape of GPT-2's smallest) with random weights is written as a
folder. Lockstep trains adapters on it with each base, and peft with each of bitsandbytes
(load_in_8bit, load_in_4bit with NF4 and bf16): the same random tokens, batch, AdamW, clipping, two
threads. All of them run in turns, round by round. Printed are, for each, the median of tokens a
second, its ratio to Lockstep's first base in the same round, and the largest resident set. --alone
leaves peft out. Needs torch, transformers, peft and numpy; bitsandbytes for int8 and nf4.
"""
import pathlib
import statistics
import subprocess
import sys
import tempfile

import tuning

SHAPE = dict(vocab_size=50304, hidden_size=768, intermediate_size=2048, num_attention_heads=12,
             num_key_value_heads=12, max_position_embeddings=1024, tie_word_embeddings=True)
LR = 1e-4


def folder_write(folder, o):
    import torch
    import transformers
    torch.manual_seed(1)
    config = transformers.LlamaConfig(**SHAPE, num_hidden_layers=o.layers, bos_token_id=None,
                                      eos_token_id=None)
    transformers.LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)


def peer(o):
    import peft
    import torch
    import transformers
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(o.threads)
    more = {}
    if o.peer == "int8":
        more["quantization_config"] = transformers.BitsAndBytesConfig(load_in_8bit=True)
    if o.peer == "nf4":
        more["quantization_config"] = transformers.BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        o.folder, dtype=torch.bfloat16, attn_implementation="sdpa", use_cache=False, **more)
    model = peft.get_peft_model(model, peft.LoraConfig(
        r=o.rank, lora_alpha=o.rank, target_modules="all-linear", task_type="CAUSAL_LM"))
    tuning.torch_steps(o, LR, model, bf16=True)


def peer_run(o, folder, base):
    return tuning.peer_run(o, __file__, folder, base, "--rank", o.rank)


def ours(o, folder, base):
    return tuning.lockstep_run(o, folder, LR, f"lora.rank={o.rank}", f"lora.base={base}",
                               "numerics.precision=bf16", "train.save_every=0")


def main():
    parser = tuning.parser_make(__doc__, rank=16, tokens=256, layers=12)
    parser.add_argument("--bases", default="none,int8,nf4")
    parser.add_argument("--alone", action="store_true")
    o = parser.parse_args()
    if o.peer == "write":
        folder_write(pathlib.Path(o.folder), o)
        return
    if o.peer:
        peer(o)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        # In a process of its own: what this one has had in memory counts as its children's peak.
        subprocess.run([sys.executable, __file__, "--peer", "write", "--folder",
                        str(folder / "model"), "--layers", str(o.layers)], check=True)
        tuning.data_write(folder / "data.bin", o)
        programs = {f"lora.base={base}": (ours, base) for base in o.bases.split(",")}
        if not o.alone:
            programs |= {f"peft, {base}": (peer_run, base) for base in o.bases.split(",")}
        rounds = []
        for number in range(o.rounds):
            rounds.append({p: run(o, folder, base) for p, (run, base) in programs.items()})
            print(f"  round {number + 1}: " + ", ".join(
                f"{p} {o.batch * o.tokens / r['step_s']:.1f}" for p, r in rounds[-1].items()),
                flush=True)
        first = next(iter(programs))
        for p in programs:
            rate = statistics.median(o.batch * o.tokens / r[p]["step_s"] for r in rounds)
            ratio = statistics.median(r[first]["step_s"] / r[p]["step_s"] for r in rounds)
            rss = max(r[p]["rss"] for r in rounds) / 2**20
            print(f"{p:16} {rate:8.1f} tokens/s, {ratio:.2f} times {first}, {rss:.0f} MiB")


if __name__ == "__main__":
    main()
