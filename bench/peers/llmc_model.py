#!/usr/bin/env python3
"""Writes what llm.c's CPU trainer reads, so that nothing has to be downloaded to time it.

    llmc_model.py DIRECTORY [--shape LAYERS,HEADS,CHANNELS] [--context N] [--tokens N]

DIRECTORY/gpt2_124M.bin gets a GPT-2 with random weights (model format, magic 20240326, version 3:
float32), and dev/data/tinyshakespeare/tiny_shakespeare_{train,val}.bin random tokens (token format,
magic 20240520, version 1: u16). The time of a step does not depend on their values.
Needs numpy only.
"""
import argparse
import pathlib

import numpy

VOCABULARY, VOCABULARY_PADDED = 50257, 50304


def header(*fields):
    values = numpy.zeros(256, dtype="<i4")
    values[: len(fields)] = fields
    return values.tobytes()


def parameter_shapes(layers, channels, context):
    """(name, shape, kind of values) in file order; those of a block are stacked over the layers."""
    c, matrix, ones, zeros = channels, "matrix", "ones", "zeros"
    per_layer = [
        ("ln1w", (c,), ones), ("ln1b", (c,), zeros), ("qkvw", (3 * c, c), matrix),
        ("qkvb", (3 * c,), zeros), ("attprojw", (c, c), matrix), ("attprojb", (c,), zeros),
        ("ln2w", (c,), ones), ("ln2b", (c,), zeros), ("fcw", (4 * c, c), matrix),
        ("fcb", (4 * c,), zeros), ("fcprojw", (c, 4 * c), matrix), ("fcprojb", (c,), zeros)]
    return ([("wte", (VOCABULARY_PADDED, c), matrix), ("wpe", (context, c), matrix)]
            + [(name, (layers,) + shape, kind) for name, shape, kind in per_layer]
            + [("lnfw", (c,), ones), ("lnfb", (c,), zeros)])


def write_model(path, layers, heads, channels, context, rng):
    with open(path, "wb") as file:
        file.write(header(20240326, 3, context, VOCABULARY, layers, heads, channels,
                          VOCABULARY_PADDED))
        for name, shape, kind in parameter_shapes(layers, channels, context):
            if kind == "matrix":
                values = rng.standard_normal(shape, dtype=numpy.float32) * numpy.float32(0.02)
                if name == "wte":
                    values[VOCABULARY:] = 0
            else:
                values = numpy.full(shape, kind == "ones", dtype="<f4")
            values.tofile(file)


def write_tokens(path, count, rng):
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as file:
        file.write(header(20240520, 1, count))
        rng.integers(VOCABULARY, size=count).astype("<u2").tofile(file)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--shape", default="12,12,768", help="LAYERS,HEADS,CHANNELS")
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--tokens", type=int, default=65536, help="length of each token file")
    options = parser.parse_args()
    layers, heads, channels = (int(n) for n in options.shape.split(","))
    rng = numpy.random.default_rng(1)
    write_model(options.directory / "gpt2_124M.bin", layers, heads, channels, options.context, rng)
    data = options.directory / "dev/data/tinyshakespeare"
    for part in ("train", "val"):
        write_tokens(data / f"tiny_shakespeare_{part}.bin", options.tokens, rng)


if __name__ == "__main__":
    main()
