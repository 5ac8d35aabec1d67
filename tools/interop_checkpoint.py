#!/usr/bin/env python3
"""Holds checkpoints of several ranks against other readers of the format.

    make interop [PYTHON=/path/to/venv/bin/python]
    tools/interop_checkpoint.py --lockstep build/lockstep --library build/liblockstep.so

Needs torch, safetensors, numpy and xxhash. A small Llama whose rows the ranks do not divide is
trained for two steps by 4 ranks in several layouts, and a small model of every family in one. Every
tensor of the last checkpoint is read

    by Lockstep        ls_checkpoint_read of the library
    by Python          tools/read_checkpoint.py, which was written from doc/checkpoint-format.md
    by PyTorch         torch.distributed.checkpoint with HuggingFaceStorageReader, which takes the
                       folder as it is
    consolidated       by PyTorch's consolidate_safetensors_files, into one file

and must have the same bits each time, and in each layout. If tensors have the names of transformers
in the files, PyTorch reads by these names what `lockstep export` writes. It ends with 1 where
something is off.
"""
import argparse
import ctypes
import pathlib
import subprocess
import sys
import tempfile

import numpy
import safetensors.torch
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint._consolidate_hf_safetensors import consolidate_safetensors_files

import read_checkpoint

KEYS = ("model.vocab=264 model.vocab_multiple=8 model.context=64 data.sequence=64 "
        "numerics.tp_tiles=4 batch.global=8 train.steps=2 log.tensorboard=false "
        "parallel.threads=1 numerics.precision=fp32").split()
LLAMA = ("model.arch=llama model.tied=true model.layers=2 model.channels=32 model.heads=4 "
         "model.kv_heads=2 model.ffn=56")
LAYOUTS = ["parallel.dp=1", "parallel.dp_shard=2 parallel.tp=2 parallel.zero=3",
           "parallel.dp=4", "parallel.dp_shard=4 parallel.zero=1",
           "parallel.dp_replicate=2 parallel.tp=2", "parallel.pp=2 parallel.tp=2",
           "parallel.dp_shard=2 parallel.tp=2 parallel.zero=3 optim.moments=bf16"]
OWN_NAMES = "gpt2", "phi3"  # their tensors are not those of transformers
FAMILIES = *OWN_NAMES, "llama", "qwen2", "qwen3", "mistral", "gemma", "gemma2", "olmo2"
PARTS = "model", "optimizer"


class Stored(ctypes.Structure):
    """struct ls_stored_tensor"""
    _fields_ = [("name", ctypes.c_char_p), ("fqn", ctypes.c_char_p), ("dtype", ctypes.c_int), ("dims", ctypes.c_int),
                ("shape", ctypes.c_int64 * 8), ("count", ctypes.c_size_t),
                ("pieces", ctypes.c_void_p)]


def by_lockstep(library, folder):
    """All tensors of both parts, bf16 as its bits."""
    c, error, checkpoint = ctypes.CDLL(str(library)), ctypes.create_string_buffer(2048), \
        ctypes.c_void_p()
    c.ls_checkpoint_tensors.restype = ctypes.c_size_t
    c.ls_checkpoint_read.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64,
                                     ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p]

    def check(status):
        if status:
            sys.exit("the library: " + error.raw[4:].split(b"\0")[0].decode())

    check(c.ls_checkpoint_open(ctypes.byref(checkpoint), str(folder).encode(), error))
    tensors = {}
    for part in range(2):
        listed = ctypes.POINTER(Stored)()
        count = c.ls_checkpoint_tensors(checkpoint, part, ctypes.byref(listed))
        for i in range(count):
            one = listed[i]
            values = numpy.empty(list(one.shape[:one.dims]), ["<f4", "<u2"][one.dtype])
            check(c.ls_checkpoint_read(checkpoint, ctypes.addressof(one), 0, values.size,
                                       values.ctypes.data, error))
            tensors[one.name.decode()] = values
    c.ls_checkpoint_close(checkpoint)
    return tensors


def bits(tensor):
    return tensor.view(torch.int16).numpy().view("<u2") if tensor.dtype == torch.bfloat16 \
        else tensor.numpy()


def by_python(folder):
    checkpoint = read_checkpoint.Checkpoint(folder)
    return {name: checkpoint.tensor(part, name) for part in PARTS
            for name in checkpoint.manifest[part]}


def names_in_files(folder):
    """By the manifest's names."""
    manifest = read_checkpoint.Checkpoint(folder).manifest
    return {name: about.get("fqn", name) for part in PARTS
            for name, about in manifest[part].items()}


def by_pytorch(folder):
    reader = dcp.HuggingFaceStorageReader(str(folder))
    metadata = reader.read_metadata().state_dict_metadata
    state = {name: torch.empty(about.size, dtype=about.properties.dtype)
             for name, about in metadata.items()}
    dcp.load(state, storage_reader=dcp.HuggingFaceStorageReader(str(folder)), no_dist=True)
    return {name: bits(tensor) for name, tensor in state.items()}


def consolidated(folder, out):
    out.mkdir()
    names = names_in_files(folder).values()
    consolidate_safetensors_files(str(folder), str(out), dict.fromkeys(names, 1))
    return loaded(out)


def loaded(folder):
    return {name: bits(tensor) for path in folder.glob("*.safetensors")
            for name, tensor in safetensors.torch.load_file(path).items()}


def differences(want, got, what):
    """How many tensors are other than wanted, each named."""
    wrong = sorted(name for name in want.keys() | got.keys()
                   if name not in got or name not in want or want[name].shape != got[name].shape
                   or want[name].tobytes() != got[name].tobytes())
    for name in wrong:
        print(f"{what}: {name} differs")
    return len(wrong)


class Comparison:
    """Runs in `place`, and how many tensors were off."""
    def __init__(self, place, lockstep, library):
        self.place, self.lockstep, self.library, self.wrong = place, lockstep, library, 0
        numpy.arange(4000, dtype="<u2").__mod__(97).tofile(place / "tokens.bin")

    def command(self, *words):
        subprocess.run([self.lockstep, *words], check=True, stdout=subprocess.DEVNULL)

    def compare(self, name, label, keys, first=None):
        """Trains, and compares all readers; returns the tensors."""
        run, before = self.place / name, self.wrong
        self.command("train", *KEYS, *keys.split(), f"data.train=u16:{self.place}/tokens.bin",
                     "data.tokenizer=byte", f"train.out={run}")
        folder = run / "checkpoints" / "step-00000002"
        ours, fqns = by_lockstep(self.library, folder), names_in_files(folder)
        there = {fqns[name]: values for name, values in ours.items()}
        theirs = by_pytorch(folder)
        self.wrong += differences(ours, by_python(folder), f"{label}: by Python")
        self.wrong += differences(there, theirs, f"{label}: by PyTorch")
        self.wrong += differences(there, consolidated(folder, self.place / f"{name}-one"),
                                  f"{label}: consolidated")
        if first:
            self.wrong += differences(first, ours, f"{label}: beside one rank")
        renamed = sum(name != fqn for name, fqn in fqns.items())
        if renamed:
            self.command("export", run, "--dtype", "fp32", "--out", self.place / f"{name}-out")
            model = {name: values for name, values in theirs.items() if name in fqns.values()
                     and name not in fqns}
            self.wrong += differences(loaded(self.place / f"{name}-out"), model,
                                      f"{label}: beside an export")
        if bool(renamed) == (name in OWN_NAMES):
            print(f"{label}: {renamed} tensors have names of transformers in the files")
            self.wrong += 1
        files = len(list(folder.glob("*.safetensors")))
        print(f"{label}: {len(ours)} tensors in {files} files, {renamed} of them by the names of "
              f"transformers: {'alike' if self.wrong == before else 'off'}")
        return ours


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lockstep", required=True)
    parser.add_argument("--library", required=True)
    arguments = parser.parse_args()
    library, first = pathlib.Path(arguments.library).resolve(), None
    with tempfile.TemporaryDirectory() as name:
        to = Comparison(pathlib.Path(name), arguments.lockstep, library)
        for number, layout in enumerate(LAYOUTS):
            bf16 = "moments" in layout
            tensors = to.compare(f"run{number}", layout, f"{LLAMA} {layout}",
                                 None if bf16 else first)
            first = first or tensors
        for family in FAMILIES:
            to.compare(family, family, f"model.preset={family}-tiny {LAYOUTS[1]}")
        # The twin: a bit that was flipped is seen by whoever compares.
        broken = {name: values.copy() for name, values in first.items()}
        next(iter(broken.values())).reshape(-1).view("<u4")[3] ^= 1
        print("twin follows:")
        if differences(first, broken, "twin") != 1:
            sys.exit("the twin passes")
    sys.exit(1 if to.wrong else 0)


if __name__ == "__main__":
    main()
