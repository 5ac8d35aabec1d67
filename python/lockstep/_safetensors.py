"""Files of safetensors: a header of JSON, then the tensors' bytes."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, Iterator, Tuple

from ._lib import numpy
from .errors import CheckpointError

_TYPES = {"F32": "float32", "F16": "float16", "F64": "float64", "BF16": "uint16", "I64": "int64",
          "I32": "int32", "U8": "uint8"}


def read(path: str) -> Iterator[Tuple[str, Any]]:
    """Name and array of each tensor; bf16 becomes float32."""
    np = numpy()
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            first, end = entry["data_offsets"]
            file.seek(8 + size + first)
            data = np.frombuffer(file.read(end - first), dtype=_TYPES[entry["dtype"]])
            if entry["dtype"] == "BF16":
                data = (data.astype(np.uint32) << 16).view(np.float32)
            yield name, data.reshape(entry["shape"]).copy()


def read_folder(folder: str) -> Dict[str, Any]:
    """All tensors of a folder's files."""
    names = sorted(n for n in os.listdir(folder) if n.endswith(".safetensors"))
    if not names:
        raise CheckpointError(f"{folder}: expected files of safetensors")
    return {name: data for file in names for name, data in read(os.path.join(folder, file))}


def write(path: str, tensors: Dict[str, Any]) -> None:
    """float32 tensors, in the order given."""
    header: Dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, data in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(data.shape),
                        "data_offsets": [at, at + data.nbytes]}
        at += data.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for data in tensors.values():
            file.write(data.tobytes())
