#!/usr/bin/env python3
"""NF4 files of bitsandbytes, beside bitsandbytes.

    make interop [PYTHON=/path/to/venv/bin/python]
    tools/interop_nf4.py [--lockstep build/lockstep]

transformers loads small models with load_in_4bit, with and without double quantisation, and saves them.
Lockstep imports and exports each; the matrices must be what bitsandbytes dequantises, to the bit. A
run with lora.base=nf4 on the folder must end with the hash of one with lora.base=none. Needs torch,
transformers and bitsandbytes.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers
from bitsandbytes import functional
from safetensors import safe_open

MODELS = {
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=64, hidden_size=128, intermediate_size=192, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64)),
    "gpt2": lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=64, n_embd=128, n_layer=2, n_head=4, n_positions=64)),
}


def model_write(name, folder, double):
    torch.manual_seed(1)
    MODELS[name]().save_pretrained(folder / "plain")
    config = transformers.BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=double,
        bnb_4bit_compute_dtype=torch.float32)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder / "plain", quantization_config=config, dtype=torch.float32, device_map="cpu")
    model.save_pretrained(folder / "nf4")


def values_of(folder):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, device_map="cpu")
    return {name + ".weight": functional.dequantize_4bit(m.weight.data, m.weight.quant_state)
            for name, m in model.named_modules() if type(m).__name__ == "Linear4bit"}


def run(o, *words):
    done = subprocess.run([o.lockstep, *map(str, words)], capture_output=True, text=True,
                          check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}: {done.stdout}{done.stderr}")


def hash_of(folder):
    last = sorted((folder / "checkpoints").iterdir())[-1]
    return json.loads((last / "manifest.json").read_text())["hash"]


def check(o, name, double, folder):
    model_write(name, folder, double)
    run(o, "import", folder / "nf4", "--out", folder / "run")
    run(o, "export", folder / "run", "--out", folder / "back", "--dtype", "fp32")
    values, wrong = values_of(folder / "nf4"), 0
    with safe_open(folder / "back" / "model.safetensors", "pt") as back:
        keys = set(back.keys())
        for key, value in values.items():
            there = back.get_tensor(key if key in keys else key.removeprefix("transformer."))
            if name == "gpt2":  # Conv1D, which bitsandbytes keeps as [out, in]
                there = there.T
            wrong += not torch.equal(there, value.float())
    (folder / "tokens.bin").write_bytes(bytes(i * i % 61 if i % 2 == 0 else 0 for i in range(8000)))
    for base in ("none", "nf4"):
        run(o, "train", f"model.from={folder / 'nf4'}", f"train.out={folder / ('run-' + base)}", "lora.rank=4",
            f"lora.base={base}", "train.steps=3", f"data.train=u16:{folder / 'tokens.bin'}",
            "data.sequence=32", "batch.global=4", "numerics.precision=bf16", "log.progress=off")
    same = hash_of(folder / "run-none") == hash_of(folder / "run-nf4")
    print(f"{name}{', double' if double else ''}: {len(values)} matrices, {wrong} differ; "
          f"hashes {'agree' if same else 'DIFFER'}", flush=True)
    return wrong == 0 and same and len(values) > 0


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lockstep", default="build/lockstep")
    o = parser.parse_args()
    transformers.logging.set_verbosity_error()
    good = True
    for name in MODELS:
        for double in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                good &= check(o, name, double, pathlib.Path(folder))
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
