#!/usr/bin/env python3
"""Fine-tuning of a model of Hugging Face's, beside PyTorch with transformers (and peft).

    bench/peers/finetune.py [--precision fp32,bf16] [--lora RANK] [--batch 2] [--tokens 512]
                            [--rounds 3] [--steps 3] [--keys "KEY=VALUE ..."]
                            [--lockstep build/lockstep]

A Qwen2.5 of the shape of its 0.5B, with random weights, is written as a folder. Both programs start
from it and train on the same random tokens with the same batch: AdamW, gradients clipped to norm 1,
two threads. PyTorch runs as its users would have it: transformers' model with
scaled_dot_product_attention, torch.compile and, where that is faster, without it; bf16 is autocast
over float32 weights; fused AdamW. With --lora peft's adapters on every linear layer take the place of
the whole model. --keys are for Lockstep, beside those of the recipe: what takes less memory, such as
"optim.moments=bf16 memory.recompute=selective batch.micro=1".

The programs run in turns, round by round. Printed are the median of the rounds' ratios of tokens a
second, and the largest resident sets. Needs torch, transformers, peft and numpy.
"""
import pathlib
import statistics
import tempfile

import tuning

SHAPE = dict(vocab_size=151936, hidden_size=896, intermediate_size=4864, num_hidden_layers=24,
             num_attention_heads=14, num_key_value_heads=2, max_position_embeddings=4096,
             tie_word_embeddings=True, rope_theta=1000000.0, rms_norm_eps=1e-6)
LR = 1e-5


def folder_write(folder, o):
    import torch
    import transformers
    shape = dict(SHAPE, num_hidden_layers=o.layers)
    torch.manual_seed(1)
    config = transformers.Qwen2Config(**shape, bos_token_id=None, eos_token_id=None)
    transformers.Qwen2ForCausalLM(config).save_pretrained(folder)


def peer(o):
    import torch
    import transformers
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(o.threads)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        o.folder, dtype=torch.float32, attn_implementation="sdpa", use_cache=False)
    if o.lora:
        import peft
        model = peft.get_peft_model(model, peft.LoraConfig(
            r=o.lora, lora_alpha=2 * o.lora, target_modules="all-linear", task_type="CAUSAL_LM"))
    tuning.torch_steps(o, LR, model, bf16=o.precision == "bf16", compiled=o.peer == "compile")


def ours(o, folder, precision):
    lora = [f"lora.rank={o.lora}", f"lora.alpha={2 * o.lora}"] if o.lora else []
    return tuning.lockstep_run(o, folder, LR, f"numerics.precision={precision}", *lora,
                               *o.keys.split())


# ---- the race -----------------------------------------------------------------------------------

def race(o, folder, precision):
    modes, rounds = ["compile", "eager"], []
    for number in range(o.rounds):
        row = {"Lockstep": ours(o, folder, precision)}
        row |= {mode: tuning.peer_run(o, __file__, folder, mode, "--precision", precision,
                                      "--lora", o.lora) for mode in modes}
        best = min(modes, key=lambda mode: row[mode]["step_s"])
        rounds.append(row)
        apart = max(abs(a - b) / b for a, b in zip(row["Lockstep"]["losses"], row[best]["losses"]))
        shown = ", ".join(f"{name} {o.batch * o.tokens / r['step_s']:.1f} tokens/s "
                          f"{r['rss'] / 2**30:.2f} GiB" for name, r in row.items())
        print(f"  round {number + 1}: {shown}; losses at most {apart:.1e} apart", flush=True)
        if row[best]["step_s"] < 0.9 * max(row[mode]["step_s"] for mode in modes):
            modes = [best]
    best = modes[0]
    speed = statistics.median(r[best]["step_s"] / r["Lockstep"]["step_s"] for r in rounds)
    memory = max(r["Lockstep"]["rss"] for r in rounds) / min(r[best]["rss"] for r in rounds)
    print(f"{precision}{f', LoRA of rank {o.lora}' if o.lora else ''}"
          f"{f', {o.keys}' if o.keys else ''}: {speed:.2f} times PyTorch "
          f"({best}), with {memory:.2f} of its memory", flush=True)


def main():
    parser = tuning.parser_make(__doc__, lora=0, tokens=512, layers=SHAPE["num_hidden_layers"])
    parser.add_argument("--precision", default="fp32,bf16")
    parser.add_argument("--keys", default="")
    o = parser.parse_args()
    if o.peer:
        peer(o)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        folder_write(folder / "model", o)
        tuning.data_write(folder / "data.bin", o)
        for precision in o.precision.split(","):
            race(o, folder, precision)


if __name__ == "__main__":
    main()
