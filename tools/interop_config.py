#!/usr/bin/env python3
"""Reads config.json as transformers does, key by key, beside transformers.

    tools/interop.sh interop_config.py --library build/liblockstep.so [--family NAME] [--verbose]

For every family one small random model is saved. Then its config.json is changed: each key that the
family's class knows, or that published files hold, is absent, null, at the class's default and at
other values, and so is each pair of keys that speak of the same thing. Each time the folder is
loaded by transformers and by Lockstep. Right is: the same logits (at most 1e-5 of the largest apart),
or an error of Lockstep's that names the key. A folder that transformers cannot load may do
anything but crash. Prints the cases that are not right, and counts; ends with 1 if there are any.
"""
import argparse
import itertools
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import torch
import transformers

import interop_library

ABSENT = object()
LIMIT = 1e-5
WEIGHTS_MAX = 5_000_000  # a family's defaults would take all memory
TOKENS = [(7 * i * i + 3 * i) % 200 for i in range(70)]

SHAPE = dict(vocab_size=200, hidden_size=64, intermediate_size=96, num_hidden_layers=3,
             num_attention_heads=8, num_key_value_heads=4, max_position_embeddings=256,
             bos_token_id=None, eos_token_id=None, pad_token_id=None)
BASES = {
    "gpt2": transformers.GPT2Config(vocab_size=200, n_positions=128, n_embd=64, n_layer=2, n_head=4,
                                    bos_token_id=None, eos_token_id=None),
    "llama": transformers.LlamaConfig(**SHAPE),
    "mistral": transformers.MistralConfig(**SHAPE, sliding_window=None),
    "qwen2": transformers.Qwen2Config(**SHAPE),
    "qwen3": transformers.Qwen3Config(**SHAPE, head_dim=16),
    "gemma2": transformers.Gemma2Config(**SHAPE, head_dim=16, sliding_window=40,
                                        query_pre_attn_scalar=24),
    "gemma": transformers.GemmaConfig(**SHAPE, head_dim=16),
    "gemma3": transformers.Gemma3TextConfig(**{**SHAPE, "num_hidden_layers": 7}, head_dim=16,
                                            sliding_window=40, query_pre_attn_scalar=24),
    "olmo2": transformers.Olmo2Config(**SHAPE),
    "olmo3": transformers.Olmo3Config(**{**SHAPE, "num_hidden_layers": 5}, sliding_window=40),
    "smollm3": transformers.SmolLM3Config(**{**SHAPE, "num_hidden_layers": 5}),
    "phi3": transformers.Phi3Config(**SHAPE),
}

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
LINEAR = {"rope_type": "linear", "factor": 2.0}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}
ROPES = [LINEAR, LLAMA3, YARN, {**YARN, "rope_theta": 5e5}, {"type": "linear", "factor": 4.0},
         {"rope_type": "default", "rope_theta": 1e6}, {**LINEAR, "rope_theta": 5e5},
         {**YARN, "attention_factor": 1.5}, {**YARN, "beta_fast": 16, "beta_slow": 2},
         {**YARN, "mscale": 1.0, "mscale_all_dim": 0.8}, {**YARN, "truncate": False},
         {"rope_type": "yarn", "factor": 4.0}, {"rope_type": "dynamic", "factor": 2.0},
         {"rope_type": "default", "partial_rotary_factor": 0.5}, {},
         {"rope_type": "linear", "factor": 1.0}, {"rope_type": "default", "factor": 2.0}]
FULL, SLIDING = "full_attention", "sliding_attention"


def some(layers, period, value, other):
    """A list for all layers, of which the last of every so many is another one."""
    return [other if (layer + 1) % period == 0 else value for layer in range(layers)]


BY_BLOCK = [{FULL: {**LINEAR, "rope_theta": 5e5}, SLIDING: {"rope_type": "default", "rope_theta": 30.0}},
            {FULL: {**YARN, "rope_theta": 5e5}}, {SLIDING: {"rope_type": "default"}},
            {FULL: {"rope_type": "default"}, SLIDING: LINEAR}]
FEWER = {"rope_parameters": [{}, LINEAR, {**YARN, "rope_theta": 5e5}, BY_BLOCK[0]],
         "rope_scaling": [{}, LLAMA3, {**LINEAR, "factor": 4.0, "rope_theta": 2e4}]}  # in pairs
# Values beside absent, null and the default. Keys of all families, and what old files hold.
OTHERS = {
    "rope_parameters": ROPES + BY_BLOCK, "rope_local_base_freq": [30.0],
    "sliding_window_pattern": [6, 4, 3, 2], "rope_scaling": ROPES, "rope_theta": [5e5, 20000],
    "partial_rotary_factor": [1.0, 0.5],
    "original_max_position_embeddings": [64, 8], "is_causal": [True, False],
    "per_layer_config": [{}, {"1": {"sliding_window": 5}}], "max_position_embeddings": [128],
    "sliding_window": [5, 40, 1000], "use_sliding_window": [True, False],
    "max_window_layers": [0, 1, 2, 100],
    "layer_types": [[FULL] * 3, [SLIDING] * 3, [SLIDING, FULL, SLIDING], [FULL, SLIDING, FULL],
                    [FULL] * 2] + [some(layers, period, SLIDING, FULL)
                                   for layers in (5, 7) for period in (2, 3, 4, 6, 100)],
    "num_key_value_heads": [8, 2], "head_dim": [8, 16], "rms_norm_eps": [1e-5, 1e-2],
    "norm_eps": [1e-2], "layer_norm_eps": [1e-2], "layer_norm_epsilon": [1e-2],
    "hidden_act": ["silu", "gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "swish"],
    "hidden_activation": ["silu", "gelu", "gelu_pytorch_tanh"],
    "activation_function": ["gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_fast", "relu"],
    "attention_bias": [True, False], "mlp_bias": [True, False], "qkv_bias": [True, False],
    "tie_word_embeddings": [True, False], "attention_dropout": [0.1],
    "resid_pdrop": [0.5], "embd_pdrop": [0.5], "attn_pdrop": [0.5], "hidden_dropout": [0.5],
    "initializer_range": [0.5], "vocab_size": [200],
    "query_pre_attn_scalar": [16, 64], "attn_logit_softcapping": [3.0, 30.0],
    "final_logit_softcapping": [3.0, 30.0], "use_bidirectional_attention": [True, False],
    "logit_scale": [0.5, 1.0], "logits_scaling": [2.0], "embedding_multiplier": [2.0],
    "residual_multiplier": [2.0], "attention_multiplier": [0.5], "clip_qkv": [0.01, 8.0],
    "use_qk_norm": [True, False], "no_rope_layers": [[0, 1, 1]] +
    [some(5, period, 1, 0) for period in (2, 3, 4, 100)] + [some(9, 4, 1, 0)],
    "no_rope_layer_interval": [2, 3, 4, 6], "pretraining_tp": [1, 2],
    "scale_attn_weights": [True, False], "scale_attn_by_inverse_layer_idx": [True, False],
    "reorder_and_upcast_attn": [True, False], "add_cross_attention": [True, False],
    "is_decoder": [True, False], "n_ctx": [64, 128], "n_inner": [96, 256], "dtype": ["float32"],
    "torch_dtype": ["float16", "bfloat16", "float32"], "use_cache": [False], "use_mrope": [True],
    "auto_map": [{"AutoConfig": "configuration_x.X", "AutoModelForCausalLM": "modeling_x.X"}],
    "quantization_config": [{"quant_method": "gptq", "bits": 4}], "architectures": [["Other"], []],
    "model_type": ["mixtral", "phi"], "num_local_experts": [4], "num_experts": [4],
    "hidden_size": [64], "n_embd": [64], "num_attention_heads": [8], "n_head": [4],
}
PAIRS = [("rope_parameters", "rope_local_base_freq"), ("rope_parameters", "rope_scaling"),
         ("rope_parameters", "rope_theta"),
         ("rope_scaling", "rope_theta"), ("rope_parameters", "partial_rotary_factor"),
         ("rope_scaling", "original_max_position_embeddings"),
         ("rope_parameters", "original_max_position_embeddings"),
         ("rope_scaling", "max_position_embeddings"),
         ("no_rope_layers", "no_rope_layer_interval"), ("layer_types", "sliding_window_pattern"),
         ("sliding_window", "use_sliding_window"), ("sliding_window", "layer_types"),
         ("use_sliding_window", "layer_types"), ("max_window_layers", "use_sliding_window"),
         ("hidden_act", "hidden_activation"), ("n_ctx", "n_positions"), ("dtype", "torch_dtype"),
         ("head_dim", "num_key_value_heads"), ("hidden_size", "n_embd"),
         ("num_attention_heads", "n_head"), ("activation_function", "hidden_act")]


def cases(description, default):
    """(keys, changed config.json), each once."""
    known = {*description, *default, *OTHERS} - {"transformers_version"}

    def values(key, others):
        found = [ABSENT, None, *others.get(key, ())]
        return found + [default[key]] if key in default else found

    seen = set()
    singles = [(key,) for key in sorted(known)]
    for keys in [*singles, *PAIRS]:
        others = OTHERS if len(keys) == 1 else {**OTHERS, **FEWER}
        for chosen in itertools.product(*(values(key, others) for key in keys)):
            changed = dict(description)
            for key, value in zip(keys, chosen):
                changed.pop(key, None)
                if value is not ABSENT:
                    changed[key] = value
            text = json.dumps(changed, sort_keys=True)
            if text not in seen:
                seen.add(text)
                yield keys, chosen, changed


def there(folder, vocabulary):
    """Logits of transformers, or why there are none."""
    try:
        config = transformers.AutoConfig.from_pretrained(folder)
        with torch.device("meta"):
            shape = transformers.AutoModelForCausalLM.from_config(config)
        if sum(value.numel() for value in shape.parameters()) > WEIGHTS_MAX:
            return None, "weights of another size"
        model, told = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
        if told["missing_keys"] or told["unexpected_keys"] or told["mismatched_keys"]:
            return None, "weights do not fit"
        with torch.no_grad():
            return model.eval()(torch.tensor([TOKENS])).logits[0].numpy(), None
    except Exception as why:  # whatever its classes raise
        return None, f"{type(why).__name__}: {str(why).splitlines()[0] if str(why) else ''}"


def judge(library, folder, keys):
    wanted, refused = there(folder, 200)
    try:
        found = library.logits(folder, TOKENS, 200)
    except SystemExit as why:
        named = any(key in str(why) for key in keys)
        if refused or named:
            return "refused", str(why)
        return "WRONG", f"refused without the key's name: {why}"
    if refused:
        return "ours alone", refused
    off = float(abs(found - wanted).max() / abs(wanted).max())
    return ("equal", "") if off <= LIMIT else ("WRONG", f"logits are {off:.1e} apart")


def shown(keys, chosen):
    return ", ".join(f"{key} {'absent' if value is ABSENT else json.dumps(value)}"
                     for key, value in zip(keys, chosen))


def family(name, library, place, verbose):
    torch.manual_seed(1)
    config = BASES[name]
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    interop_library.randomise(model, 2)
    folder = place / name
    model.save_pretrained(folder)
    path = folder / "config.json"
    description = json.loads(path.read_text())
    default = json.loads(type(config)().to_json_string(use_diff=False))
    count = {}
    for keys, chosen, changed in cases(description, default):
        path.write_text(json.dumps(changed))
        result, why = judge(library, folder, keys)
        count[result] = count.get(result, 0) + 1
        if verbose or result == "WRONG":
            print(f"{name}: {shown(keys, chosen)}: {result} {why}", flush=True)
    print(f"{name}: " + ", ".join(f"{n} {what}" for what, n in sorted(count.items())), flush=True)
    shutil.rmtree(folder)
    return count.get("WRONG", 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--library", type=pathlib.Path, default="build/liblockstep.so")
    parser.add_argument("--family", choices=BASES, action="append")
    parser.add_argument("--verbose", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    families = arguments.family or list(BASES)
    if len(families) > 1:  # a process for each: its memory ends with it
        words = [sys.executable, __file__, "--library", arguments.library,
                 *["--verbose"] * arguments.verbose]
        sys.exit(sum(subprocess.run([*words, "--family", name]).returncode for name in families) > 0)
    library = interop_library.Library(arguments.library)
    with tempfile.TemporaryDirectory() as place:
        sys.exit(family(families[0], library, pathlib.Path(place), arguments.verbose) > 0)


if __name__ == "__main__":
    main()
