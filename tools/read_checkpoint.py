#!/usr/bin/env python3
"""Lists the tensors of a Lockstep checkpoint. Written from doc/checkpoint-format.md; verifies every
byte: tools/read_checkpoint.py RUN/checkpoints/step-00000300. Needs numpy and xxhash."""
import json
import math
import pathlib
import re
import sys

import numpy
from xxhash import xxh3_128_hexdigest as digest

TYPES = {"F32": "<f4", "F64": "<f8", "F16": "<f2", "BF16": "<u2"}  # BF16 as its bits


def expect(good, what):
    if not good:
        raise ValueError(what)


class Checkpoint:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        raw = (self.folder / "manifest.json").read_bytes()
        self.manifest = json.loads(raw)
        rest = json.loads(raw, parse_float="\0{}\0".format)  # a real number keeps its digits
        del rest["manifest_xxh3_128"]
        text = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        text = re.sub(r'"\\u0000(.*?)\\u0000"', r"\1", text)
        expect(self.manifest["format"] == "lockstep checkpoint", "another format")
        expect(self.manifest["version"] in (2, 3), "another version")
        expect(digest(text.encode()) == self.manifest["manifest_xxh3_128"], "manifest damaged")
        self.headers = {}

    def header(self, name):
        if name not in self.headers:
            about, path = self.manifest["files"][name], self.folder / name
            expect(path.stat().st_size == about["size"], f"{name}: another size")
            with path.open("rb") as file:
                data = file.read(about["header_bytes"])
            expect(digest(data) == about["header_xxh3_128"], f"{name}: header damaged")
            self.headers[name] = json.loads(data[8:])
        return self.headers[name]

    def tensor(self, part, name):
        about = self.manifest[part][name]
        fqn = about.get("fqn", name)  # its name in the files
        whole, missing = numpy.empty(about["shape"], TYPES[about["dtype"]]), math.prod(about["shape"])
        for piece in about["pieces"]:
            begin, end = self.header(piece["file"])[fqn]["data_offsets"]
            with (self.folder / piece["file"]).open("rb") as file:
                file.seek(self.manifest["files"][piece["file"]]["header_bytes"] + begin)
                data = file.read(end - begin)
            expect(digest(data) == piece["xxh3_128"], f"{piece['file']}: {fqn} damaged")
            box = tuple(slice(o, o + n) for o, n in zip(piece["offsets"], piece["shape"]))
            whole[box] = numpy.frombuffer(data, whole.dtype).reshape(piece["shape"])
            missing -= math.prod(piece["shape"])
        expect(missing == 0, f"{name}: not every element is in one piece")
        return whole


if __name__ == "__main__":
    checkpoint = Checkpoint(sys.argv[1])
    for part in "model", "optimizer":
        for name in checkpoint.manifest[part]:
            values = checkpoint.tensor(part, name)
            print(part, name, values.dtype.str, list(values.shape))
