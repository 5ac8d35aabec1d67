#!/usr/bin/env python3
"""Writes test/ckpt/golden_safetensors.h: a file made by the safetensors package, as C bytes.

Needs the Python packages torch and safetensors. Run from the repository's root.
"""
import torch
from safetensors.torch import save

tensors = {
    "wte.weight": torch.arange(6, dtype=torch.float32).reshape(2, 3) / 4,
    "h.0.bias": torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.bfloat16),
    "step": torch.tensor(1234567890123, dtype=torch.int64),
    "empty": torch.zeros((3, 0), dtype=torch.uint8),
    "mask": torch.tensor([[True, False], [True, True]]),
    'na"me\\\u00e9': torch.tensor([0.1], dtype=torch.float32),
}
data = save(tensors, {"format": "pt"})
with open("test/ckpt/golden_safetensors.h", "w") as out:
    out.write("/* Written by tools/golden_safetensors.py. */\n")
    out.write("static const unsigned char golden_safetensors[] = {\n")
    for i in range(0, len(data), 16):
        out.write("    " + ", ".join(f"0x{b:02x}" for b in data[i : i + 16]) + ",\n")
    out.write("};\n")
