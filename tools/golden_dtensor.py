#!/usr/bin/env python3
"""Writes test/golden/dtensor.txt: what PyTorch's DTensor does with shapes, meshes and placements.

    tools/golden_dtensor.py [OUT]

Needs PyTorch; the tests read the file without it. Lines that begin with # are comments; the others:

    layout SHAPE MESH PLACEMENTS RANK...
        a rank is SHAPE@OFFSET of what it holds, in order of mesh ranks
        (compute_local_shape_and_global_offset)
    move SHAPE MESH FROM TO RANK...
        a rank is the values it holds after redistribute, row-major. The tensor's element i is i;
        where FROM is Partial on an axis, a coordinate c brings it times c + 1. Where TO is Partial
        it is the values of full_tensor().

SHAPE and MESH are 5x3, an empty list -. Placements: R, S0 (Shard), S0/2 (_StridedShard, split factor
2), P (Partial sum), Pavg, Pmax, Pmin; one for each axis, joined by commas.
"""

import itertools
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor._utils import _compute_local_shape_and_global_offset
from torch.distributed.tensor.placement_types import _StridedShard

SHAPES = [(888, 12), (7,), (5, 3), (1, 1), (3, 2), (11, 12, 13), (4, 1, 6, 5), (0, 4)]
LINES = [(n,) for n in (1, 2, 3, 4, 5, 6, 7, 11, 12)]
GRIDS = [(2, 2), (2, 3), (3, 2), (4, 3), (2, 3, 2)]
WORLD = 12


def placement(text):
    if text == "R":
        return Replicate()
    if text[0] == "P":
        return Partial(text[1:] or "sum")
    dim, _, factor = text[1:].partition("/")
    return _StridedShard(int(dim), split_factor=int(factor)) if factor else Shard(int(dim))


def placements(text):
    return [placement(t) for t in text.split(",")]


def joined(numbers, by="x"):
    return by.join(str(int(n)) for n in numbers) or "-"


def coordinates(mesh):
    return itertools.product(*[range(n) for n in mesh])


def layouts(dims, mesh):
    """The placements of a tensor of so many dims that are worth a line."""
    last = dims - 1
    if len(mesh) == 1:
        one = ["R", "S0", "S0/2", "S0/3"] + ([f"S{last}", f"S{last}/5"] if dims > 1 else [])
        return one + (["S1"] if dims > 2 else [])
    if len(mesh) == 2:
        tp = mesh[1]
        two = ["S0,R", "R,S0", "S0,S0", f"S0/{tp},S0", "S0,S0/2", "P,S0", "S0/3,S0/2"]
        return two + ([f"S0,S{last}", f"S{last},S0", f"S{last},S{last}"] if dims > 1 else [])
    three = ["S0,S0,S0", "S0/6,S0/2,S0", "R,S0,R"]
    return three + ([f"S0,S{last},S0", f"S0/2,S{last},S0"] if dims > 1 else [])


def layout_lines():
    for shape in SHAPES:
        for mesh in LINES + GRIDS:
            for text in layouts(len(shape), mesh):
                ranks = []
                for coordinate in coordinates(mesh):
                    local, offset = _compute_local_shape_and_global_offset(
                        shape, mesh, list(coordinate), placements(text)
                    )
                    ranks.append(f"{joined(local)}@{joined(offset)}")
                yield f"layout {joined(shape)} {joined(mesh)} {text} {' '.join(ranks)}"


def moves():
    """(shape, mesh, from, to): pairs that PyTorch supports."""
    ones = ["R", "S0", "S1", "S0/2", "P", "Pavg", "Pmax", "Pmin"]
    for shape, mesh in (((7, 5), (3,)), ((6, 4), (2,)), ((5, 7), (4,)), ((3, 2), (5,))):
        for a, b in itertools.product(ones, ones):
            refused = b[0] == "P" and (a[0] != "S" or "/" in a or b != "P")
            if a != b and not refused:
                yield shape, mesh, a, b
    pairs = """
        S0,S1>R,R  R,R>S0,S1  S0,S0>R,R  R,R>S0,S0  S0,S0>R,S0  R,S0>S0,S0  S0,R>R,S0  S0,S1>S1,S0
        S1,S1>S0,S0  P,P>R,R  P,P>S0,S0  P,P>S1,R  P,S0>S0,R  P,S0>R,S0  P,S1>S0,S1  S0,P>R,S0
        P,R>S1,S0  S0,S0>S1,R  S1,S0>S0,R  Pmax,Pmax>S0,R  P,Pavg>R,R  S0,S1>P,S1  S1,R>S1,S0
    """.split()
    for shape, mesh in (((7, 5), (2, 2)), ((5, 6), (3, 2)), ((4, 3), (2, 3))):
        for pair in pairs:
            a, _, b = pair.partition(">")
            yield shape, mesh, a, b


def brought(shape, mesh, text):
    """The part that this rank brings, as a DTensor."""
    whole = torch.arange(int(torch.tensor(shape).prod()), dtype=torch.float32).view(shape)
    coordinate = mesh.get_coordinate()
    for axis, p in enumerate(placements(text)):
        if isinstance(p, Partial):
            whole = whole * (coordinate[axis] + 1)
    for axis, p in enumerate(placements(text)):
        if not isinstance(p, (Replicate, Partial)):
            shards, _ = p._split_tensor(whole, mesh.size(axis), with_padding=False)
            whole = shards[coordinate[axis]]
    stride = torch.empty(shape).stride()
    return DTensor.from_local(
        whole.contiguous(), mesh, placements(text), run_check=False, shape=shape, stride=stride
    )


def values(tensor):
    return joined(tensor.contiguous().view(-1).tolist(), ",")


def move_lines(rank):
    meshes = {}
    for shape, mesh_shape, a, b in moves():
        if mesh_shape not in meshes:
            ranks = torch.arange(int(torch.tensor(mesh_shape).prod())).view(mesh_shape)
            meshes[mesh_shape] = DeviceMesh("cpu", ranks)
        mesh, line = meshes[mesh_shape], None
        if mesh.get_coordinate() is not None:
            moved = brought(shape, mesh, a).redistribute(mesh, placements(b))
            partial = any(isinstance(p, Partial) for p in placements(b))
            line = values(moved.full_tensor() if partial else moved.to_local())
        lines = [None] * WORLD
        dist.all_gather_object(lines, line)
        if rank == 0:
            ranks = " ".join(text for text in lines if text is not None)
            yield f"move {joined(shape)} {joined(mesh_shape)} {a} {b} {ranks}"
        else:
            yield None


def worker(rank, out):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    lines = list(move_lines(rank))
    if rank == 0:
        with open(out, "w", encoding="utf-8") as file:
            file.write(f"# By tools/golden_dtensor.py with PyTorch {torch.__version__}.\n")
            file.writelines(f"{line}\n" for line in itertools.chain(layout_lines(), lines))
    dist.destroy_process_group()


def main():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(root, "test/golden/dtensor.txt")
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29651")
    mp.start_processes(worker, args=(out,), nprocs=WORLD, start_method="fork")


if __name__ == "__main__":
    main()
