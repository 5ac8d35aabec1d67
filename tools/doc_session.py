#!/usr/bin/env python3
"""One Python session for all the `>>>` blocks of a page; tools/check-pages.py starts it.

Reads blocks, JSON objects {"name", "line", "text"}, a line each, and answers each with a line:
{"tried": examples, "failed": [text of each that printed something else]}. What a block defines the
next ones see. "..." in what is expected stands for anything, and white space for white space.
"""

import doctest
import json
import sys

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def main():
    names = {"__name__": "__main__"}
    for line in sys.stdin:
        block = json.loads(line)
        test = doctest.DocTestParser().get_doctest(block["text"], names, block["name"], block["name"],
                                                   block["line"])
        runner, failed = doctest.DocTestRunner(verbose=False, optionflags=FLAGS), []
        runner.run(test, out=failed.append, clear_globs=False)
        names = test.globs
        print(json.dumps({"tried": runner.tries, "failed": failed}), flush=True)


if __name__ == "__main__":
    main()
