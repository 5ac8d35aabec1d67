#!/usr/bin/env python3
"""Writes rows of Parquet files as JSON lines to standard output, row group by row group.

    tools/parquet_to_jsonl.py FILE... [--columns NAME,NAME...]

    tools/parquet_to_jsonl.py data/*.parquet --columns text | \\
        lockstep data prepare --input jsonl:- --output corpus --tokenizer gpt2/

Columns keep their names and their order in the file; without --columns all are written. A value that
is null is left out. Values that JSON does not have (bytes, times) are an error that names the file.
After an error the last line is no JSON, so that who reads the pipe does not take what came for all.
Needs pyarrow. Exit code 0; 1 if a file cannot be read or the reader of the pipe has gone; 2 if the
command line is wrong.
"""

import argparse
import json
import os
import sys

ROWS = 1024  # in memory at a time


def fail(text):
    print(f"parquet_to_jsonl.py: {text}", file=sys.stderr)
    raise SystemExit(1)


def columns_of(schema, names, path):
    """The names that are asked for, which the file must have."""
    if names is None:
        return list(schema.names)
    for name in names:
        if name not in schema.names:
            fail(f"{path}: no column {name}; it has {', '.join(schema.names)}")
    return names


def write_file(parquet, path, names, out):
    file = parquet.ParquetFile(path)
    columns = columns_of(file.schema_arrow, names, path)
    for batch in file.iter_batches(batch_size=ROWS, columns=columns):
        for row in batch.to_pylist():
            record = {name: row[name] for name in columns if row[name] is not None}
            try:
                line = json.dumps(record, ensure_ascii=False, allow_nan=False)
                out.write(line.encode() + b"\n")
            except (TypeError, ValueError) as error:
                fail(f"{path}: a row that JSON cannot hold ({error}): name other --columns")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--columns", help="names of columns, with commas (default: all)")
    arguments = parser.parse_args()
    names = arguments.columns.split(",") if arguments.columns else None
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        fail("needs pyarrow: pip install pyarrow")
    try:
        for path in arguments.files:
            try:
                write_file(pyarrow.parquet, path, names, sys.stdout.buffer)
            except BrokenPipeError:
                raise
            except BaseException as error:  # such as UnicodeDecodeError, of to_pylist
                sys.stdout.buffer.write(b"parquet_to_jsonl.py failed here\n")
                sys.stdout.buffer.flush()
                if not isinstance(error, Exception):
                    raise
                fail(f"{path}: {error}")
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        fail("the reader of the pipe has gone")


if __name__ == "__main__":
    main()
