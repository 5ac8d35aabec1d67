#!/usr/bin/env python3
"""Holds checkpoints of several ranks against other readers of the format.

    make interop [PYTHON=/path/to/venv/bin/python]
    tools/interop_checkpoint.py --lockstep build/lockstep --library build/liblockstep.so

Needs torch, numpy and xxhash. A small Llama whose rows the ranks do not divide is trained for two
steps by 4 ranks in several layouts. Every tensor of its last checkpoint is read

    by Lockstep        ls_checkpoint_read of the library
    by Python          tools/read_checkpoint.py, which was written from doc/checkpoint-format.md
    by PyTorch         torch.distributed.checkpoint with HuggingFaceStorageReader, which takes the
                       folder as it is
    consolidated       by PyTorch's consolidate_safetensors_files, into one file

and must have the same bits each time, and in each layout. It ends with 1 where something is off.
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

KEYS = ("model.arch=llama model.tied=true model.vocab_multiple=8 model.layers=2 model.channels=32 "
        "model.heads=4 model.kv_heads=2 model.ffn=56 model.context=64 data.sequence=64 "
        "numerics.tp_tiles=4 batch.global=8 train.steps=2 log.tensorboard=false "
        "parallel.threads=1 numerics.precision=fp32").split()
LAYOUTS = ["parallel.dp=1", "parallel.dp_shard=2 parallel.tp=2 parallel.zero=3",
           "parallel.dp=4", "parallel.dp_shard=4 parallel.zero=1",
           "parallel.dp_replicate=2 parallel.tp=2", "parallel.pp=2 parallel.tp=2",
           "parallel.dp_shard=2 parallel.tp=2 parallel.zero=3 optim.moments=bf16"]
PARTS = "model", "optimizer"


class Stored(ctypes.Structure):
    """struct ls_stored_tensor"""
    _fields_ = [("name", ctypes.c_char_p), ("dtype", ctypes.c_int), ("dims", ctypes.c_int),
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


def by_pytorch(folder):
    reader = dcp.HuggingFaceStorageReader(str(folder))
    metadata = reader.read_metadata().state_dict_metadata
    state = {name: torch.empty(about.size, dtype=about.properties.dtype)
             for name, about in metadata.items()}
    dcp.load(state, storage_reader=dcp.HuggingFaceStorageReader(str(folder)), no_dist=True)
    return {name: bits(tensor) for name, tensor in state.items()}


def consolidated(folder, out):
    out.mkdir()
    names = {name for part in PARTS for name in read_checkpoint.Checkpoint(folder).manifest[part]}
    consolidate_safetensors_files(str(folder), str(out), dict.fromkeys(names, 1))
    return {name: bits(tensor) for path in out.glob("*.safetensors")
            for name, tensor in safetensors.torch.load_file(path).items()}


def differences(want, got, what):
    """How many tensors are other than wanted, each named."""
    wrong = sorted(name for name in want.keys() | got.keys()
                   if name not in got or name not in want or want[name].shape != got[name].shape
                   or want[name].tobytes() != got[name].tobytes())
    for name in wrong:
        print(f"{what}: {name} differs")
    return len(wrong)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lockstep", required=True)
    parser.add_argument("--library", required=True)
    arguments = parser.parse_args()
    library, wrong, first = pathlib.Path(arguments.library).resolve(), 0, None
    with tempfile.TemporaryDirectory() as name:
        place = pathlib.Path(name)
        numpy.arange(4000, dtype="<u2").__mod__(97).tofile(place / "tokens.bin")
        for number, layout in enumerate(LAYOUTS):
            run = place / f"run{number}"
            words = [f"data.train=u16:{place}/tokens.bin", "data.tokenizer=byte", f"train.out={run}"]
            subprocess.run([arguments.lockstep, "train", *KEYS, *layout.split(), *words],
                           check=True, stdout=subprocess.DEVNULL)
            folder = run / "checkpoints" / "step-00000002"
            ours = by_lockstep(library, folder)
            first = first or ours
            before = wrong
            wrong += differences(ours, by_python(folder), f"{layout}: by Python")
            wrong += differences(ours, by_pytorch(folder), f"{layout}: by PyTorch")
            wrong += differences(ours, consolidated(folder, place / f"one{number}"),
                                 f"{layout}: consolidated")
            if "moments" not in layout:
                wrong += differences(first, ours, f"{layout}: beside one rank")
            files = len(list(folder.glob("*.safetensors")))
            print(f"{layout}: {len(ours)} tensors in {files} files: "
                  f"{'alike' if wrong == before else 'off'}")
        # The twin: a bit that was flipped is seen by whoever compares.
        broken = {name: values.copy() for name, values in first.items()}
        next(iter(broken.values())).reshape(-1).view("<u4")[3] ^= 1
        print("twin follows:")
        if differences(first, broken, "twin") != 1:
            sys.exit("the twin passes")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
