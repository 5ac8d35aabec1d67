#!/usr/bin/env python3
"""Makes the golden files of the model parity tests: test/golden/*.safetensors.

    python3 tools/golden_model.py [--out test/golden] [--check] [NAME ...]

Needs torch, transformers, numpy and safetensors; the tests that read the files need none of them.
The models are Hugging Face's own (GPT2LMHeadModel, LlamaForCausalLM, ...) in float32 on one thread.
Beside them runs a plain float64 version, written here straight from the formulas. It has two uses:
it proves that the golden values mean what we think (both must agree), and it tells how far float32
alone takes PyTorch from the true value. That distance is stored in the metadata under "noise", so
that a test can choose a tolerance from it. --check recomputes everything, compares with the files
that are there, and writes nothing.

A model file <name>.safetensors holds, with <p> the names of published checkpoints (such as
"h.0.ln_1.weight", "model.layers.0.mlp.up_proj.weight"; a tied head has no entry of its own):

    param.<p>              initial parameters
    input_ids, targets     [4, 16] I32
    logits                 [4, 16, V]
    loss                   [] mean cross-entropy over all 64 tokens, in nats
    grad.<p>               gradients of loss
    losses, grad_norms     [10] loss and global gradient norm before clipping at each of 10 steps
    final.<p>              parameters after those 10 steps
    generate.prompt        [8] I32   (GPT-2 only) and
    generate.tokens        [8] I32   its greedy continuation by the initial parameters

The steps: AdamW, lr 1e-3, betas 0.9 and 0.95, eps 1e-8, weight decay 0.1 on matrices only
(embeddings included), gradients scaled by min(1, 1 / (norm + 1e-6)), the same batch each step.

One thing no program can match: the bias of GPT-2's keys (c_attn.bias, channels C to 2C) adds the
same number to all scores of a row: its true gradient is zero, what float32 leaves is rounding.
AdamW makes steps of about lr from any gradient, however small. So "final.h.*.attn.c_attn.bias" is
undetermined there, by at most steps * lr, and a test leaves those channels out. Nothing else
depends on them.

A block file holds one Transformer block on its own: x [2, 16, 32], y = block(x), dy, dx, and
param.<q>, grad.<q> for its weights, with <q> the name inside the block.

Metadata: "config" (Hugging Face config.json text), "keys" (the same model in ours), "noise" (JSON: the worst relative L2 distance
between float32 and float64 by kind of value), "versions", "recipe".
"""
import argparse
import json
import math
import pathlib
import sys

import numpy
import safetensors
import safetensors.numpy
import torch
import transformers
from transformers.models.gpt2.modeling_gpt2 import GPT2Block
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

BATCH, TOKENS, CHANNELS, HEADS, KV_HEADS, LAYERS = 4, 16, 32, 4, 2, 2
STEPS, LR, BETAS, EPS, DECAY, CLIP = 10, 1e-3, (0.9, 0.95), 1e-8, 0.1, 1.0


# ---- configurations ----------------------------------------------------------------------------

def gpt2_config():
    return transformers.GPT2Config(
        vocab_size=61, n_positions=TOKENS, n_embd=CHANNELS, n_layer=LAYERS, n_head=HEADS,
        activation_function="gelu_new", layer_norm_epsilon=1e-5, resid_pdrop=0.0, embd_pdrop=0.0,
        attn_pdrop=0.0, bos_token_id=None, eos_token_id=None, attn_implementation="sdpa")


def llama_config(tied, ffn, rope):
    return transformers.LlamaConfig(
        vocab_size=64, hidden_size=CHANNELS, intermediate_size=ffn, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, head_dim=CHANNELS // HEADS,
        rms_norm_eps=1e-5, hidden_act="silu", max_position_embeddings=1024,
        tie_word_embeddings=tied, attention_bias=False, mlp_bias=False, rope_parameters=rope,
        bos_token_id=None, eos_token_id=None, attn_implementation="sdpa")


ROPE_PLAIN = {"rope_type": "default", "rope_theta": 10000.0}
# With head_dim 8 the wavelengths are 6, 63, 628 and 6283 tokens: one below 128 / 4 (kept), one
# between (blended), two above 128 / 1 (divided by 8). Each branch of the formula is used.
ROPE_LLAMA3 = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0, "original_max_position_embeddings": 128}


def randomise(module, seed):
    """Large enough that each weight matters: a wrong transpose or a lost bias must show."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim >= 2:
                parameter.copy_(0.15 * noise)
            elif name.endswith("bias"):
                parameter.copy_(0.10 * noise)
            else:
                parameter.copy_(1.0 + 0.2 * noise)


def short_name(name):
    return name.removeprefix("transformer.")


# ---- the float64 reference, straight from the formulas -----------------------------------------

def layer_norm(x, weight, bias, eps):
    centred = x - x.mean(-1, keepdim=True)
    return centred / torch.sqrt((centred ** 2).mean(-1, keepdim=True) + eps) * weight + bias


def rms_norm(x, weight, eps):
    return x / torch.sqrt((x ** 2).mean(-1, keepdim=True) + eps) * weight


def gelu_tanh(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def causal_attention(q, k, v, scale=None, window=None, cap=None):
    """q [B, T, H, D]; k, v [B, T, G, D]; query head h reads key head h / (H / G)."""
    group = q.shape[2] // k.shape[2]
    k, v = (t.repeat_interleave(group, dim=2) for t in (k, v))
    scores = torch.einsum("bthd,bshd->bhts", q, k) / math.sqrt(scale or q.shape[-1])
    if cap:
        scores = cap * torch.tanh(scores / cap)
    tokens = q.shape[1]
    hidden = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
    if window:
        hidden |= torch.ones(tokens, tokens, dtype=torch.bool).tril(-window)
    return torch.einsum("bhts,bshd->bthd", scores.masked_fill(hidden, -math.inf).softmax(-1),
                        v).flatten(2)


def rope_angles(config, tokens, windowed):
    rope = config.rope_parameters
    rope = rope.get("sliding_attention" if windowed else "full_attention", rope)
    half = config.head_dim // 2
    frequency = rope["rope_theta"] ** (-torch.arange(half, dtype=torch.float64) / half)
    if rope["rope_type"] == "llama3":
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        turns = rope["original_max_position_embeddings"] * frequency / (2 * math.pi)
        keep = ((turns - low) / (high - low)).clamp(0, 1)
        frequency = keep * frequency + (1 - keep) * frequency / rope["factor"]
    if rope["rope_type"] == "linear":
        frequency = frequency / rope["factor"]
    return torch.arange(tokens, dtype=torch.float64)[:, None] * frequency


def rotate(x, angles):
    """Half-split: channel i turns with channel i + D/2. x [B, T, H, D]; angles [T, D/2]."""
    first, second = x.chunk(2, dim=-1)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def gpt2_block(w, prefix, x, config):
    p = lambda name: w[prefix + name]
    heads = lambda t: t.unflatten(-1, (config.n_head, -1))
    eps = config.layer_norm_epsilon
    h = layer_norm(x, p("ln_1.weight"), p("ln_1.bias"), eps)
    q, k, v = (h @ p("attn.c_attn.weight") + p("attn.c_attn.bias")).chunk(3, dim=-1)
    x = x + causal_attention(heads(q), heads(k), heads(v)) @ p("attn.c_proj.weight") \
        + p("attn.c_proj.bias")
    h = layer_norm(x, p("ln_2.weight"), p("ln_2.bias"), eps)
    h = gelu_tanh(h @ p("mlp.c_fc.weight") + p("mlp.c_fc.bias"))
    return x + h @ p("mlp.c_proj.weight") + p("mlp.c_proj.bias")


def gpt2_logits(w, ids, config):
    x = w["wte.weight"][ids] + w["wpe.weight"][: ids.shape[1]]
    for layer in range(config.n_layer):
        x = gpt2_block(w, f"h.{layer}.", x, config)
    return layer_norm(x, w["ln_f.weight"], w["ln_f.bias"],
                      config.layer_norm_epsilon) @ w["wte.weight"].T


def llama_block(w, prefix, x, config):
    """Of Llama and its descendants: what a block has besides, its weights tell."""
    p = lambda name: w.get(prefix + name)
    gemma = config.model_type.startswith("gemma")
    norm = lambda t, name: rms_norm(t, gemma + p(name + ".weight"), config.rms_norm_eps)
    window = getattr(config, "sliding_window", None)
    layer = int(prefix.split(".")[-2])
    types = getattr(config, "layer_types", None)
    if types and types[layer] == "full_attention":
        window = None
    turned = getattr(config, "no_rope_layers", None)
    heads = lambda t: t.unflatten(-1, (-1, config.hidden_size // config.num_attention_heads
                                       if getattr(config, "head_dim", None) is None
                                       else config.head_dim))
    angles = rope_angles(config, x.shape[1], window is not None)
    angles = angles if not turned or turned[layer] else 0 * angles

    behind = p("post_feedforward_layernorm.weight") is not None

    def matrix(name):
        """A matrix, or the part of a fused one that has its place (Phi-3)."""
        for fused, parts in (("self_attn.qkv_proj", "qkv"), ("mlp.gate_up_proj", ("gate", "up"))):
            part = name.split(".")[1].removesuffix("_proj")
            if part in parts and p(fused + ".weight") is not None:
                kv = config.num_key_value_heads * x.shape[-1] // config.num_attention_heads
                sizes = [x.shape[-1], kv, kv] if parts == "qkv" else [config.intermediate_size] * 2
                return p(fused + ".weight").split(sizes)[parts.index(part)]
        return p(name + ".weight")

    def projected(h, name):
        y = h @ matrix(f"self_attn.{name}_proj").T
        y = y if p(f"self_attn.{name}_proj.bias") is None else y + p(f"self_attn.{name}_proj.bias")
        weight = p(f"self_attn.{name}_norm.weight")
        if weight is None:
            return heads(y)
        whole = weight.shape[0] == y.shape[-1]  # over all heads together
        return heads(norm(y, f"self_attn.{name}_norm")) if whole else norm(
            heads(y), f"self_attn.{name}_norm")

    h = x if p("input_layernorm.weight") is None else norm(x, "input_layernorm")
    q, k, v = (projected(h, name) for name in "qkv")
    o = causal_attention(rotate(q, angles), rotate(k, angles), v,
                         getattr(config, "query_pre_attn_scalar", None), window,
                         getattr(config, "attn_logit_softcapping", None))
    o = o @ p("self_attn.o_proj.weight").T
    x = x + (norm(o, "post_attention_layernorm") if behind else o)
    if p("pre_feedforward_layernorm.weight") is not None:
        h = norm(x, "pre_feedforward_layernorm")
    else:
        h = x if behind else norm(x, "post_attention_layernorm")
    gate, up = h @ matrix("mlp.gate_proj").T, h @ matrix("mlp.up_proj").T
    gate = gelu_tanh(gate) if gemma else gate * torch.sigmoid(gate)
    y = (gate * up) @ p("mlp.down_proj.weight").T
    return x + (norm(y, "post_feedforward_layernorm") if behind else y)


def llama_logits(w, ids, config):
    gemma = config.model_type.startswith("gemma")
    x = w["model.embed_tokens.weight"][ids] * (math.sqrt(config.hidden_size) if gemma else 1)
    for layer in range(config.num_hidden_layers):
        x = llama_block(w, f"model.layers.{layer}.", x, config)
    head = w["model.embed_tokens.weight" if config.tie_word_embeddings else "lm_head.weight"]
    logits = rms_norm(x, gemma + w["model.norm.weight"], config.rms_norm_eps) @ head.T
    cap = getattr(config, "final_logit_softcapping", None)
    return cap * torch.tanh(logits / cap) if cap else logits


# ---- a run: one gradient, then ten steps --------------------------------------------------------

def run(parameters, logits_of, ids, targets):
    """The same sequence for the model and the reference. parameters: name to leaf."""
    out = {f"param.{n}": p.detach().clone() for n, p in parameters.items()}
    decayed = [p for p in parameters.values() if p.ndim >= 2]
    plain = [p for p in parameters.values() if p.ndim < 2]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": DECAY},
                                   {"params": plain, "weight_decay": 0.0}],
                                  lr=LR, betas=BETAS, eps=EPS, foreach=False)
    losses, norms = [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        logits = logits_of(ids)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss.backward()
        if step == 0:
            out["logits"], out["loss"] = logits.detach().clone(), loss.detach().clone()
            out |= {f"grad.{n}": p.grad.clone() for n, p in parameters.items()}
        losses.append(loss.detach().clone())
        norms.append(torch.nn.utils.clip_grad_norm_(parameters.values(), CLIP, foreach=False))
        optimizer.step()
    out["losses"], out["grad_norms"] = torch.stack(losses), torch.stack(norms)
    return out | {f"final.{n}": p.detach().clone() for n, p in parameters.items()}


def run_reference(parameters, logits_of, config, ids, targets):
    leaves = {n: p.detach().double().requires_grad_() for n, p in parameters.items()}
    return run(leaves, lambda i: logits_of(leaves, i, config), ids, targets)


def determined(name, value):
    """Without the key bias after training: see the top."""
    if name.startswith("final.") and name.endswith("c_attn.bias"):
        return torch.cat([value[:CHANNELS], value[2 * CHANNELS:]])
    return value


def noise(values, truth, limit=1e-4):
    """Worst relative L2 distance by kind ("grad.h.0..." is of kind grad); proof of agreement."""
    worst = {}
    for name, value in values.items():
        value, true = determined(name, value.double()), determined(name, truth[name])
        distance = (value - true).norm() / (true.norm() + 1e-30)
        if not distance < limit:
            sys.exit(f"golden_model: {name}: PyTorch and the float64 reference differ by "
                     f"{distance:.3g} (relative L2), more than {limit:g}: one of them is wrong")
        kind = name.split(".")[0]
        worst[kind] = max(worst.get(kind, 0.0), float(distance))
    return {kind: float(f"{distance:.2g}") for kind, distance in sorted(worst.items())}


# ---- the files ----------------------------------------------------------------------------------

def golden_model(model, logits_of, seed, generate=False):
    config = model.config
    randomise(model, seed)
    stream = torch.randint(config.vocab_size, (BATCH, TOKENS + 1),
                           generator=torch.Generator().manual_seed(seed + 1))
    ids, targets = stream[:, :-1].contiguous(), stream[:, 1:].contiguous()
    parameters = {short_name(n): p for n, p in model.named_parameters()}
    tensors = {}
    if generate:
        tensors = greedy(model, seed + 2)
    truth = run_reference(parameters, logits_of, config, ids, targets)
    values = run(parameters, lambda i: model(input_ids=i, use_cache=False).logits, ids, targets)
    distance = noise(values, truth)
    return values | tensors | {"input_ids": ids, "targets": targets}, config, distance


def greedy(model, seed):
    """A continuation that says something: no near ties, and not one token over and over."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(1000):
        prompt = torch.randint(model.config.vocab_size, (1, TOKENS // 2), generator=generator)
        with torch.no_grad():
            tokens = model.generate(prompt, attention_mask=torch.ones_like(prompt),
                                    do_sample=False, max_new_tokens=TOKENS - prompt.shape[1],
                                    pad_token_id=0)
            best = model(tokens).logits[0, prompt.shape[1] - 1: -1].topk(2).values
        new = tokens[0, prompt.shape[1]:]
        if (best[:, 0] - best[:, 1]).min() > 0.02 and len(new.unique()) >= 4:
            return {"generate.prompt": prompt[0], "generate.tokens": new}
    sys.exit("golden_model: no prompt has a clear and varied continuation: change the seed")


def golden_block(block, call, reference, config, seed):
    randomise(block, seed)
    generator = torch.Generator().manual_seed(seed + 1)
    x, dy = (torch.randn(2, TOKENS, CHANNELS, generator=generator) for _ in range(2))

    def differentiate(parameters, function, x, dy):
        x = x.clone().requires_grad_()
        y = function(x)
        y.backward(dy)
        return ({"x": x.detach(), "y": y.detach(), "dy": dy, "dx": x.grad}
                | {f"param.{n}": p.detach().clone() for n, p in parameters.items()}
                | {f"grad.{n}": p.grad for n, p in parameters.items()})

    leaves = {n: p.detach().double().requires_grad_() for n, p in block.named_parameters()}
    truth = differentiate(leaves, lambda t: reference(leaves, "", t, config), x.double(),
                          dy.double())
    values = differentiate(dict(block.named_parameters()), call, x, dy)
    return values, config, noise(values, truth)


def make_gpt2_block():
    config = gpt2_config()
    block = GPT2Block(config, layer_idx=0).eval()
    first = lambda out: out[0] if isinstance(out, tuple) else out
    return golden_block(block, lambda x: first(block(x)), gpt2_block, config, 301)


def make_llama_block():
    config = llama_config(False, 48, ROPE_PLAIN)
    block = LlamaDecoderLayer(config, layer_idx=0).eval()
    tables = LlamaRotaryEmbedding(config)

    def call(x):
        positions = torch.arange(x.shape[1])[None]
        out = block(x, position_ids=positions, position_embeddings=tables(x, positions))
        return out[0] if isinstance(out, tuple) else out
    return golden_block(block, call, llama_block, config, 401)


def make_llama(tied, ffn, rope, seed):
    model = transformers.LlamaForCausalLM(llama_config(tied, ffn, rope)).eval()
    return golden_model(model, llama_logits, seed)


def make_descendant(family, seed, config="Config", **more):
    """A model of a family that descends from Llama, by the name of its classes."""
    options = dict(
        vocab_size=64, hidden_size=CHANNELS, intermediate_size=48, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, head_dim=CHANNELS // HEADS,
        rms_norm_eps=1e-6, max_position_embeddings=1024, tie_word_embeddings=False,
        rope_parameters=ROPE_PLAIN, bos_token_id=None, eos_token_id=None, pad_token_id=None,
        attn_implementation="sdpa")
    config = getattr(transformers, family + config)(**options | more)
    model = getattr(transformers, family + "ForCausalLM")(config).eval()
    return golden_model(model, llama_logits, seed)


# Each file's maker, and the model in our keys (of the configuration's group `model`), which the
# metadata holds as "keys".
GPT2_KEYS = "arch=gpt2 vocab=61 vocab_multiple=64 channels=32 heads=4 ffn=128 context=16"
SHAPE_KEYS = "vocab=64 vocab_multiple=64 channels=32 heads=4 kv_heads=2 context=1024"
LLAMA_KEYS = f"arch=llama {SHAPE_KEYS}"
DESCENDANT_KEYS = f"{SHAPE_KEYS} ffn=48 layers=2 norm_epsilon=1e-6"

FILES = {
    "gpt2_tiny": (lambda: golden_model(transformers.GPT2LMHeadModel(gpt2_config()).eval(),
                                       gpt2_logits, 101, generate=True), GPT2_KEYS + " layers=2"),
    "llama_tiny": (lambda: make_llama(False, 48, ROPE_PLAIN, 201), LLAMA_KEYS + " layers=2 ffn=48"),
    "llama3_tiny": (lambda: make_llama(True, 64, ROPE_LLAMA3, 251),
                    LLAMA_KEYS + " layers=2 ffn=64 tied=true rope_factor=8 "
                    "rope_original_context=128"),
    "gpt2_block": (make_gpt2_block, GPT2_KEYS + " layers=1"),
    "llama_block": (make_llama_block, LLAMA_KEYS + " layers=1 ffn=48"),
    "qwen2_tiny": (lambda: make_descendant("Qwen2", 501), f"arch=qwen2 {DESCENDANT_KEYS}"),
    "qwen3_tiny": (lambda: make_descendant("Qwen3", 551, head_dim=16),
                   f"arch=qwen3 {DESCENDANT_KEYS} head_dim=16"),
    "olmo2_tiny": (lambda: make_descendant("Olmo2", 601), f"arch=olmo2 {DESCENDANT_KEYS}"),
    "mistral_tiny": (lambda: make_descendant("Mistral", 651, sliding_window=5),
                     f"arch=mistral {DESCENDANT_KEYS} window=5"),
    # Caps so low that they bend what they cap; three layers, so that one slides again.
    "gemma2_tiny": (lambda: make_descendant(
        "Gemma2", 701, head_dim=16, num_hidden_layers=3, tie_word_embeddings=True, sliding_window=5,
        query_pre_attn_scalar=24, attn_logit_softcapping=2.0, final_logit_softcapping=3.0,
        attn_implementation="eager"), f"arch=gemma2 {SHAPE_KEYS} ffn=48 layers=3 norm_epsilon=1e-6 "
        "head_dim=16 window=5 query_scale=24 attention_softcap=2 logit_softcap=3"),
    "gemma_tiny": (lambda: make_descendant("Gemma", 751, head_dim=24, tie_word_embeddings=True,
                                           hidden_act="gelu_pytorch_tanh"),
                   f"arch=gemma {DESCENDANT_KEYS} head_dim=24"),
    # Six layers, so that one does not slide; bases so low that they differ.
    "gemma3_tiny": (lambda: make_descendant(
        "Gemma3", 851, "TextConfig", head_dim=16, num_hidden_layers=6, tie_word_embeddings=True,
        sliding_window=5, query_pre_attn_scalar=144, rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 500.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 20.0}}),
        f"arch=gemma3 {SHAPE_KEYS} ffn=48 layers=6 norm_epsilon=1e-6 head_dim=16 window=5 "
        "query_scale=144 rope_theta=500 rope_scaling=linear rope_factor=4 rope_local_theta=20"),
    # Four layers, so that one does not slide or turn.
    "olmo3_tiny": (lambda: make_descendant(
        "Olmo3", 911, num_hidden_layers=4, sliding_window=5, rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 500.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 20.0}}),
        f"arch=olmo3 {DESCENDANT_KEYS} layers=4 window=5 "
        "rope_theta=500 rope_scaling=linear rope_factor=4 rope_local_theta=20"),
    "smollm3_tiny": (lambda: make_descendant("SmolLM3", 951, num_hidden_layers=4,
                                             rope_parameters={**ROPE_PLAIN, "rope_theta": 50.0}),
                     f"arch=smollm3 {DESCENDANT_KEYS} layers=4 tied=false rope_theta=50"),
    "phi3_tiny": (lambda: make_descendant("Phi3", 801, sliding_window=6),
                  f"arch=phi3 {DESCENDANT_KEYS} window=6"),
}


def to_file_types(tensors):
    narrow = lambda t: t.to(torch.int32 if not t.is_floating_point() else torch.float32)
    return {n: numpy.ascontiguousarray(narrow(t).numpy()).reshape(t.shape)
            for n, t in tensors.items()}


def write(path, tensors, config, distance, keys):
    versions = {"torch": torch.__version__, "transformers": transformers.__version__,
                "numpy": numpy.__version__, "safetensors": safetensors.__version__}
    recipe = {"steps": STEPS, "lr": LR, "betas": BETAS, "eps": EPS, "weight_decay": DECAY,
              "clip_grad_norm": CLIP}
    text = lambda value: json.dumps(value, sort_keys=True)
    metadata = {"format": "pt", "made_by": "tools/golden_model.py", "keys": keys,
                "versions": text(versions),
                "recipe": text(recipe), "noise": text(distance),
                "config": config.to_json_string(use_diff=False)}
    blob = safetensors.numpy.save(tensors, metadata)
    path.write_bytes(with_sorted_metadata(blob))


def with_sorted_metadata(blob):
    """The library writes metadata in a random order; the same numbers should be the same file."""
    end = 8 + int.from_bytes(blob[:8], "little")
    header = json.loads(blob[8:end])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + blob[end:]


def compare(path, tensors):
    """Another PyTorch may round otherwise; what is in the file must still be the same numbers."""
    there = safetensors.numpy.load_file(path)
    if there.keys() != tensors.keys():
        sys.exit(f"golden_model: {path}: holds other tensors: {there.keys() ^ tensors.keys()}")
    for name, value in tensors.items():
        pair = [determined(name, torch.from_numpy(v)) for v in (value, there[name])]
        if not torch.allclose(*pair, rtol=1e-3, atol=1e-4):
            sys.exit(f"golden_model: {path}: {name} differs from what this script computes")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("test/golden"))
    parser.add_argument("--check", action="store_true", help="compare only, write nothing")
    parser.add_argument("names", nargs="*", metavar="NAME", help="these files only")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for name in arguments.names or FILES:
        make, keys = FILES[name]
        path = arguments.out / f"{name}.safetensors"
        tensors, config, distance = make()
        tensors = to_file_types(tensors)
        if arguments.check:
            compare(path, tensors)
        else:
            write(path, tensors, config, distance, keys)
        print(path, path.stat().st_size, "bytes, noise", distance)
        if "losses" in tensors:
            print("    losses", tensors["losses"], "norms", tensors["grad_norms"])


if __name__ == "__main__":
    main()
