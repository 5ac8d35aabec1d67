#!/usr/bin/env python3
"""Holds Lockstep against transformers, on small random models that are drawn afresh.

    make interop [PYTHON=/path/to/venv/bin/python] [SEED=1] [COUNT=3]
    tools/interop.py --lockstep build/lockstep --library build/liblockstep.so [--seed 1] [--count 3]

Needs torch, transformers, peft, safetensors, numpy and gguf (tools/interop.sh installs them), none of
which `make check` needs. For each family that `model.arch` names, and each of `count` draws:

    import     save_pretrained's folder (float32, bf16 or float16; one file or shards; rotary
               positions of every kind) becomes a run
    logits     of a text, by the run, beside PyTorch's in float32: the largest difference over the
               largest logit, at most 1e-5
    losses     of 10 fine-tuning steps from model.from, beside PyTorch's AdamW in float32: at most
               1e-5 apart at each step, relatively
    export     from_pretrained takes the exported folders as they are; every weight has its bits, or
               those of its rounding, and the logits are equal
    lora       adapters that peft wrote, of a random rank beside random matrices: the losses of 10
               steps from lora.from beside peft's, peft takes the exported adapters (every bit), and
               the exported model has the logits of peft's merge_and_unload
    gguf       the gguf package reads what is exported: names, shapes, values, metadata, and a
               tokenizer that is trained on the spot; of --quantize int8, every byte is what its
               own quantize makes, and what its dequantize gives is at most 0.6 of 1/127 of a
               block's largest value off
    llama.cpp  with --llama PROGRAM, or LLAMA_LOGITS in the environment, which is what
               bench/peers/llama_logits.cpp becomes beside a build of llama.cpp: its logits of the
               exported file in F32 beside ours, at most 1e-5 of the largest apart (1e-3 in
               gpt2 and the gemmas, whose GELU there comes from a table in fp16), and in Q8_0, 0.1

It prints what it measured, and ends with 1 where something is off.
"""
import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

import gguf
import numpy
import peft
import tokenizers
import torch
import transformers

import interop_library

LOGITS_LIMIT, LOSS_LIMIT = 1e-5, 1e-5
# llama.cpp takes GELU from a table in fp16 (GGML_GELU_FP16).
LLAMA_LIMIT, LLAMA_GELU_LIMIT, LLAMA_INT8_LIMIT = 1e-5, 1e-3, 0.1
STEPS, BATCH, TOKENS, LR, DECAY = 10, 4, 32, 1e-3, 0.1


# ---- models that are drawn ------------------------------------------------------------------------

def rope_of(draw, context):
    kind = draw.choice(["default", "linear", "llama3", "yarn"])
    rope = {"rope_type": kind, "rope_theta": draw.choice([10000.0, 500000.0])}
    if kind != "default":
        rope["factor"] = draw.choice([2.0, 4.0, 8.0])
    if kind == "llama3":
        rope.update(low_freq_factor=1.0, high_freq_factor=4.0,
                    original_max_position_embeddings=context // 4)
    if kind == "yarn":
        rope["original_max_position_embeddings"] = context // 4
    return rope


def gpt2_config(draw):
    heads = draw.choice([2, 4])
    return transformers.GPT2Config(
        vocab_size=draw.randrange(200, 400), n_positions=128, n_embd=16 * heads,
        n_layer=draw.choice([1, 2, 3]), n_head=heads, n_inner=draw.choice([None, 40]),
        activation_function=draw.choice(["gelu_new", "gelu"]), resid_pdrop=0.0, embd_pdrop=0.0,
        attn_pdrop=0.0, bos_token_id=None, eos_token_id=None)


def llama_shape(draw):
    heads, share = draw.choice([4, 8]), draw.choice([1, 2])
    return dict(vocab_size=draw.randrange(200, 400), hidden_size=64,
                intermediate_size=8 * draw.randrange(8, 24),
                num_hidden_layers=draw.choice([1, 2, 3]), num_attention_heads=heads,
                num_key_value_heads=heads // share, max_position_embeddings=256,
                tie_word_embeddings=draw.choice([True, False]), bos_token_id=None,
                eos_token_id=None, pad_token_id=None)


def llama_config(draw):
    return transformers.LlamaConfig(**llama_shape(draw), head_dim=draw.choice([8, 16]),
                                    rope_parameters=rope_of(draw, 256))


def qwen2_config(draw):
    return transformers.Qwen2Config(**llama_shape(draw), rope_parameters=rope_of(draw, 256))


def qwen3_config(draw):
    return transformers.Qwen3Config(**llama_shape(draw), head_dim=draw.choice([8, 16]),
                                    rope_parameters=rope_of(draw, 256))


def olmo2_config(draw):
    return transformers.Olmo2Config(**llama_shape(draw), rope_parameters=rope_of(draw, 256))


def mistral_config(draw):
    return transformers.MistralConfig(**llama_shape(draw), head_dim=draw.choice([8, 16]),
                                      sliding_window=draw.choice([None, 5, 40]),
                                      rope_parameters=rope_of(draw, 256))


def phi3_config(draw):
    return transformers.Phi3Config(**llama_shape(draw), sliding_window=draw.choice([None, 5, 40]))


def gemma_config(draw):
    shape = dict(llama_shape(draw), tie_word_embeddings=True)
    return transformers.GemmaConfig(**shape, head_dim=draw.choice([8, 16]),
                                    hidden_act=draw.choice(["gelu", "gelu_pytorch_tanh"]),
                                    rope_parameters=rope_of(draw, 256))


def gemma2_config(draw):
    shape = dict(llama_shape(draw), tie_word_embeddings=True)
    return transformers.Gemma2Config(**shape, head_dim=16, sliding_window=draw.choice([5, 40]),
                                     query_pre_attn_scalar=draw.choice([16, 24]),
                                     attn_logit_softcapping=draw.choice([5.0, 50.0]),
                                     final_logit_softcapping=draw.choice([3.0, 30.0]))


def gemma3_config(draw):
    shape = dict(llama_shape(draw), tie_word_embeddings=True, num_hidden_layers=7)
    full = draw.choice([{"rope_type": "default"}, {"rope_type": "linear", "factor": 8.0}])
    return transformers.Gemma3TextConfig(
        **shape, head_dim=16, sliding_window=draw.choice([5, 40]),
        query_pre_attn_scalar=draw.choice([16, 24]),
        rope_parameters={"full_attention": {**full, "rope_theta": draw.choice([500.0, 1e6])},
                         "sliding_attention": {"rope_type": "default",
                                               "rope_theta": draw.choice([30.0, 1e4])}})


def olmo3_config(draw):
    full = rope_of(draw, 256)
    local = {"rope_type": "default", "rope_theta": draw.choice([30.0, full["rope_theta"]])}
    return transformers.Olmo3Config(
        **dict(llama_shape(draw), num_hidden_layers=5), sliding_window=draw.choice([5, 40]),
        rope_parameters={"full_attention": full, "sliding_attention": local})


def smollm3_config(draw):
    period = draw.choice([2, 4])
    return transformers.SmolLM3Config(
        **dict(llama_shape(draw), num_hidden_layers=5), rope_parameters=rope_of(draw, 256),
        no_rope_layers=[int((layer + 1) % period != 0) for layer in range(5)])


FAMILIES = {"gpt2": gpt2_config, "llama": llama_config, "qwen2": qwen2_config,
            "qwen3": qwen3_config, "gemma2": gemma2_config, "mistral": mistral_config,
            "olmo2": olmo2_config, "olmo3": olmo3_config, "smollm3": smollm3_config,
            "gemma": gemma_config, "gemma3": gemma3_config, "phi3": phi3_config}
GGUF_NAMES = {"mistral": "llama", "olmo3": "olmo2"}  # where llama.cpp has another family's


# ---- the comparisons ------------------------------------------------------------------------------

class Check:
    def __init__(self, arguments, family, number, folder):
        self.arguments, self.family, self.folder = arguments, family, folder
        self.seed = f"{arguments.seed}/{family}/{number}"
        self.draw = random.Random(self.seed)
        self.bad = []

    def say(self, what, value, limit=None):
        off = limit is not None and not value <= limit
        shown = f"{value:.2e}" if isinstance(value, float) else value
        print(f"  {what:<28} {shown}" + (f"  (at most {limit:.0e})" if limit else "") +
              ("  OFF" if off else ""))
        if off:
            self.bad.append(what)

    def expect(self, what, good):
        self.say(what, "equal" if good else "DIFFERENT")
        if not good:
            self.bad.append(what)

    def run(self, *words):
        done = subprocess.run([self.arguments.lockstep, *map(str, words)], text=True,
                              capture_output=True)
        if done.returncode:
            sys.exit(f"lockstep {' '.join(map(str, words))}: {done.stderr}")
        return done.stdout

    def model(self):
        config = FAMILIES[self.family](self.draw)
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
        interop_library.randomise(model, self.draw.randrange(1 << 30))
        dtype = self.draw.choice([torch.float32, torch.bfloat16, torch.float16])
        model = model.to(dtype)
        shards = self.draw.choice(["1GB", "100KB"])
        model.save_pretrained(self.folder / "there", max_shard_size=shards)
        if self.draw.random() < 0.5:
            older(self.folder / "there" / "config.json")
        rope = getattr(config, "rope_parameters", None)
        rope = rope and rope.get("full_attention", rope)
        print(f"{self.seed}: {str(dtype)[6:]}, shards of {shards}" +
              (f", positions {rope['rope_type']}" if rope else ""))
        return self.load(self.folder / "there")

    def load(self, folder):
        """In float32, attention written out: not a part of the model goes through a lesser type."""
        return transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager").eval()

    def logits(self, model):
        tokens = [self.draw.randrange(model.config.vocab_size) for _ in range(100)]
        with torch.no_grad():
            wanted = model(torch.tensor([tokens])).logits[0].numpy()
        found = self.arguments.c.logits(self.folder / "run", tokens, model.config.vocab_size)
        self.say("logits", float(abs(found - wanted).max() / abs(wanted).max()), LOGITS_LIMIT)

    def losses(self, model, what="losses of 10 steps", name="tuned", *words):
        count = STEPS * BATCH * TOKENS + 1
        data = numpy.array([self.draw.randrange(model.config.vocab_size) for _ in range(count)],
                           dtype=numpy.uint16)
        data.tofile(self.folder / "data.bin")
        out = self.folder / name
        self.run("train", f"model.from={self.folder / 'there'}", f"train.out={out}",
                 f"data.train=u16:{self.folder / 'data.bin'}", f"data.sequence={TOKENS}",
                 "data.shuffle=false", f"batch.global={BATCH}", f"train.steps={STEPS}",
                 f"optim.lr={LR}", "optim.schedule=constant", f"optim.weight_decay={DECAY}",
                 "numerics.precision=fp32", "log.progress=off", *words)
        records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        found = [record["loss"] for record in records if "loss" in record]
        wanted = tune(model, torch.from_numpy(data.astype(numpy.int64)))
        self.say(what, max(abs(a - b) / b for a, b in zip(found, wanted)), LOSS_LIMIT)

    def lora(self):
        """Adapters in, trained, out alone and merged. Their Bs begin at zero: here they do not."""
        there = self.folder / "there"
        matrices = {"gpt2": ["c_attn", "c_proj", "c_fc"],
                    "phi3": ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]}.get(
                        self.family, ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj",
                                      "up_proj", "down_proj"])
        targets = self.draw.sample(matrices, self.draw.randrange(1, len(matrices) + 1))
        model = peft.get_peft_model(self.load(there), peft.LoraConfig(
            r=self.draw.choice([1, 3, 8]), lora_alpha=self.draw.choice([1, 6, 16]),
            use_rslora=self.draw.random() < 0.3, target_modules=targets, lora_dropout=0.0,
            fan_in_fan_out=self.family == "gpt2", task_type="CAUSAL_LM"))
        with torch.no_grad():
            for name, value in model.named_parameters():
                if "lora_B" in name:
                    value.copy_(0.05 * torch.randn_like(value))
        model.save_pretrained(self.folder / "adapter")
        self.losses(model, f"losses with {len(targets)} adapters", "adapted",
                    f"lora.from={self.folder / 'adapter'}")
        self.run("export", self.folder / "adapted", "--format", "peft", "--out",
                 self.folder / "adapter-out")
        again = peft.PeftModel.from_pretrained(self.load(there), self.folder / "adapter-out").eval()
        self.run("export", self.folder / "adapted", "--out", self.folder / "merged")
        merged = self.load(self.folder / "merged")
        tokens = [self.draw.randrange(model.config.vocab_size) for _ in range(60)]
        found = self.arguments.c.logits(self.folder / "adapted", tokens, model.config.vocab_size)
        with torch.no_grad():
            apart = again(torch.tensor([tokens])).logits[0].numpy()
            peft_merged = again.merge_and_unload()(torch.tensor([tokens])).logits[0].numpy()
            ours_merged = merged(torch.tensor([tokens])).logits[0].numpy()
        scale = abs(apart).max()
        self.say("logits of exported adapters", float(abs(found - apart).max() / scale),
                 LOGITS_LIMIT)
        self.say("logits of the merged model",
                 float(abs(ours_merged - peft_merged).max() / scale), LOGITS_LIMIT)

    def export(self, model):
        """Out in float32 is what came in, as it is loaded; out in bf16 is that, rounded."""
        for dtype, shards in (("fp32", "5000"), ("bf16", "1"), ("fp16", "5000")):
            out = self.folder / f"out-{dtype}"
            self.run("export", self.folder / "run", "--dtype", dtype, "--out", out, "--shard-mb",
                     shards)
            loaded = transformers.AutoModelForCausalLM.from_pretrained(out, dtype="auto")
            wanted = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[dtype]
            there, here = model.state_dict(), loaded.state_dict()
            good = there.keys() == here.keys() and all(
                value.dtype == wanted and torch.equal(there[name].to(wanted), value)
                for name, value in here.items())
            self.expect(f"from_pretrained, {dtype}", good)
        again = self.load(self.folder / "out-fp32")
        tokens = torch.tensor([[self.draw.randrange(model.config.vocab_size) for _ in range(60)]])
        with torch.no_grad():
            self.expect("its logits", torch.equal(model(tokens).logits, again(tokens).logits))

    def gguf_refused(self, model):
        """What llama.cpp computes whatever the file says is refused where the model differs."""
        config = model.config
        rope = getattr(config, "rope_parameters", None) or {}
        kind = rope.get("full_attention", rope).get("rope_type")
        local = rope.get("sliding_attention", rope)
        turned = getattr(config, "no_rope_layers", None)
        key = None
        if kind == "llama3" and self.family not in ("llama", "mistral"):
            key = "model.rope_scaling"
        elif getattr(config, "activation_function", "gelu_new") == "gelu":
            key = "model.activation"
        elif self.family in ("gemma2", "gemma3") and config.query_pre_attn_scalar != config.head_dim:
            key = "model.query_scale"
        elif self.family == "olmo3" and local["rope_theta"] != rope["full_attention"]["rope_theta"]:
            key = "model.rope_local_theta"
        elif turned and turned[1] == 0:  # and not every fourth
            key = "model.rope_layers"
        if key:
            done = subprocess.run([self.arguments.lockstep, "export", self.folder / "run",
                                   "--format", "gguf", "--out", self.folder / "no.gguf"],
                                  text=True, capture_output=True)
            self.expect(f"gguf: refused for {key}", done.returncode == 2 and key in done.stderr)
        return key

    def gguf(self, model):
        """The gguf package reads what llama.cpp would: names, shapes, every value, metadata."""
        out = self.folder / "out.gguf"
        self.run("export", self.folder / "run", "--format", "gguf", "--out", out)
        reader = gguf.GGUFReader(out)
        here = {tensor.name: tensor.data for tensor in reader.tensors}
        named = GGUF_NAMES.get(self.family, self.family)
        arch = gguf.MODEL_ARCH[named.upper()]
        names = gguf.get_tensor_name_map(arch, model.config.num_hidden_layers)
        wanted = gguf_tensors(self.family, model, names)
        self.expect("gguf: tensors", here.keys() == wanted.keys() and all(
            numpy.array_equal(here[name], value) or
            (name == "rope_freqs.weight" and numpy.allclose(here[name], value, rtol=1e-6))
            for name, value in wanted.items()))
        fields = {name: field.contents() for name, field in reader.fields.items()}
        shape = {"block_count": model.config.num_hidden_layers,
                 "embedding_length": model.config.hidden_size,
                 "attention.head_count": model.config.num_attention_heads,
                 "context_length": model.config.max_position_embeddings}
        self.expect("gguf: metadata", fields["general.architecture"] == named and all(
            fields[f"{named}.{key}"] == value for key, value in shape.items()))

    def llama(self, model):
        """llama.cpp runs the file: the same logits; Mistral there has no window."""
        count = min(100, getattr(model.config, "sliding_window", None) or 100) \
            if self.family == "mistral" else 100
        ids = numpy.array([self.draw.randrange(model.config.vocab_size) for _ in range(count)],
                          dtype=numpy.int32)
        ids.tofile(self.folder / "ids.bin")
        wanted = self.arguments.c.logits(self.folder / "run", ids, model.config.vocab_size)
        geglu = self.family == "gpt2" or self.family.startswith("gemma")
        exact = LLAMA_GELU_LIMIT if geglu else LLAMA_LIMIT
        for name, limit in (("out", exact), ("int8", LLAMA_INT8_LIMIT)):
            done = subprocess.run([self.arguments.llama, self.folder / f"{name}.gguf",
                                   self.folder / "ids.bin", self.folder / "logits.bin"],
                                  text=True, capture_output=True)
            if done.returncode:
                print(done.stderr)
                self.expect(f"llama.cpp: {name}", False)
                continue
            found = numpy.fromfile(self.folder / "logits.bin", numpy.float32).reshape(count, -1)
            self.say(f"llama.cpp: {'F32' if name == 'out' else 'Q8_0'}",
                     float(abs(found - wanted).max() / abs(wanted).max()), limit)

    def gguf_int8(self, model):
        out = self.folder / "int8.gguf"
        self.run("export", self.folder / "run", "--format", "gguf", "--quantize", "int8", "--out",
                 out)
        reader = gguf.GGUFReader(out)
        named = GGUF_NAMES.get(self.family, self.family)
        names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[named.upper()],
                                         model.config.num_hidden_layers)
        wanted = gguf_tensors(self.family, model, names)
        good, worst, kinds = reader.fields["general.file_type"].contents() == 7, 0.0, {}
        for tensor in reader.tensors:
            value = wanted[tensor.name]
            kind = int8_kind(tensor.name, value)
            kinds[kind.name] = kinds.get(kind.name, 0) + 1
            if tensor.tensor_type != kind or list(tensor.shape[::-1]) != list(value.shape):
                good = False
            elif kind != gguf.GGMLQuantizationType.Q8_0:
                good = good and (tensor.name == "rope_freqs.weight" or numpy.array_equal(
                    tensor.data, value.astype(tensor.data.dtype)))
            else:
                good = good and numpy.array_equal(tensor.data, gguf.quants.quantize(value, kind))
                back = gguf.quants.dequantize(tensor.data, kind).reshape(-1, 32)
                blocks = value.reshape(-1, 32)
                step = abs(blocks).max(axis=1, keepdims=True) / 127
                worst = max(worst, float((abs(back - blocks) / step).max()))
        self.expect("gguf int8: " + ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items())),
                    good and len(reader.tensors) == len(wanted))
        self.say("gguf int8: steps off", worst, 0.6)

    def tokenizer(self):
        """A tokenizer that is trained here comes through: ids, merges, special tokens."""
        folder = self.folder / "there"
        inner = tokenizers.Tokenizer(tokenizers.models.BPE())
        inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        inner.train_from_iterator(
            [__doc__], tokenizers.trainers.BpeTrainer(
                vocab_size=180, show_progress=False, special_tokens=["<end>"],
                initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()[:100]))
        inner.save(str(folder / "tokenizer.json"))
        out = self.folder / "words.gguf"
        self.run("export", folder, "--format", "gguf", "--out", out)
        fields = {name: field.contents() for name, field in gguf.GGUFReader(out).fields.items()}
        tokens, kinds = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
        vocabulary = inner.get_vocab()
        merges = json.loads(inner.to_str())["model"]["merges"]
        self.expect("gguf: tokenizer",
                    fields["tokenizer.ggml.model"] == "gpt2" and
                    fields["tokenizer.ggml.pre"] == "gpt-2" and
                    all(tokens[i] == token for token, i in vocabulary.items()) and
                    kinds[vocabulary["<end>"]] == gguf.TokenType.CONTROL and
                    kinds[-1] == gguf.TokenType.UNUSED and
                    fields["tokenizer.ggml.merges"] == [" ".join(pair) for pair in merges])


def int8_kind(name, value):
    """What llama.cpp makes of a tensor in a file of Q8_0."""
    kinds = gguf.GGMLQuantizationType
    if value.ndim < 2 or name.startswith("position_embd."):
        return kinds.F32
    return kinds.F16 if value.shape[-1] % 32 else kinds.Q8_0


def gguf_tensors(family, model, names):
    """A model's tensors as llama.cpp's converter has them."""
    tensors, config = {}, model.config
    for name, value in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings and family not in ("olmo2", "olmo3"):
            continue
        stem, kind = name.rsplit(".", 1)
        value = value.float()
        if family == "gpt2" and value.dim() == 2 and ".h." in name:
            value = value.T
        if family in ("llama", "mistral", "smollm3") and (".q_proj" in name or ".k_proj" in name):
            heads = config.num_attention_heads if ".q_proj" in name else config.num_key_value_heads
            half = value.shape[0] // heads // 2
            value = value.view(heads, 2, half, *value.shape[1:]).transpose(1, 2).reshape(
                value.shape)
        if family.startswith("gemma") and "norm" in name:
            value = value + 1
        tensors[f"{names.get_name(stem)}.{kind}"] = value.contiguous().numpy()
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") == "llama3":
        plain = dict(rope, rope_type="default")
        bare = type(config)(**{**config.to_dict(), "rope_parameters": plain})
        rotary = type(model.model.rotary_emb)
        tensors["rope_freqs.weight"] = (rotary(bare).inv_freq /
                                        rotary(config).inv_freq).float().numpy()
    return tensors


def older(path):
    """config.json as transformers 4 wrote it."""
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters", None)
    if config["model_type"] == "olmo3":  # there all blocks have one base
        config["rope_parameters"] = rope
        rope = None
    if rope and "full_attention" in rope:
        config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = rope["full_attention"]
    if rope:
        config["rope_theta"] = rope.pop("rope_theta")
        config["rope_scaling"] = rope if rope["rope_type"] != "default" else None
    config["torch_dtype"] = config.pop("dtype")
    path.write_text(json.dumps(config))


def tune(model, data):
    model.train()
    trained = [p for p in model.parameters() if p.requires_grad]
    decayed = [p for p in trained if p.dim() > 1]
    others = [p for p in trained if p.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": DECAY},
                                   {"params": others, "weight_decay": 0.0}],
                                  lr=LR, betas=(0.9, 0.95), eps=1e-8)
    losses = []
    for step in range(STEPS):
        first = step * BATCH * TOKENS
        inputs = data[first:first + BATCH * TOKENS].view(BATCH, TOKENS)
        targets = data[first + 1:first + BATCH * TOKENS + 1].view(BATCH, TOKENS)
        logits = model(inputs).logits
        loss = torch.nn.functional.cross_entropy(logits.view(-1, logits.shape[-1]),
                                                 targets.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def check_all(arguments):
    arguments.c = interop_library.Library(arguments.library)
    bad = []
    for family in arguments.families or FAMILIES:
        for number in range(arguments.count):
            with tempfile.TemporaryDirectory() as folder:
                check = Check(arguments, family, number, pathlib.Path(folder))
                model = check.model()
                print(" ", check.run("import", check.folder / "there", "--out",
                                     check.folder / "run", "numerics.precision=fp32").strip())
                check.logits(model)
                check.export(model)
                if not check.gguf_refused(model):
                    check.gguf(model)
                    check.gguf_int8(model)
                    check.tokenizer()
                    if arguments.llama:
                        check.llama(model)
                check.losses(model)
                check.lora()
                bad += [f"{check.seed}: {what}" for what in check.bad]
    return bad


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lockstep", default="build/lockstep")
    parser.add_argument("--library", default="build/liblockstep.so", type=pathlib.Path)
    parser.add_argument("--seed", default=1, type=int)
    parser.add_argument("--count", default=3, type=int)
    parser.add_argument("--families", nargs="*", choices=FAMILIES)
    parser.add_argument("--llama", default=os.environ.get("LLAMA_LOGITS"), metavar="PROGRAM")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    bad = check_all(arguments)
    print("\n".join(["off:"] + bad) if bad else "all as it should be")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
