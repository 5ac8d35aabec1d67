"""Logits of a model's folder by liblockstep, and weights whose places show: what the programs that
compare models with transformers share."""
import ctypes
import sys

import numpy
import torch


def randomise(model, seed):
    """Norms and biases begin as ones and zeros: their places would not show."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if value.dim() == 1:
                value.add_(0.1 * torch.randn_like(value))
            else:
                value.mul_(2)


class Library:
    """What of liblockstep gives logits; structs are memory that only the library reads."""

    def __init__(self, path):
        self.c = ctypes.CDLL(str(path.resolve()))
        self.c.ls_finished_runner.restype = ctypes.c_void_p
        self.c.ls_finished_runner.argtypes = [ctypes.c_void_p]
        self.c.ls_runner_next.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p,
                                          ctypes.c_void_p]
        self.c.ls_runner_restart.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        self.c.ls_finished_free.argtypes = [ctypes.c_void_p]
        self.c.ls_comm_free.argtypes = [ctypes.c_void_p]
        self.error = ctypes.create_string_buffer(1 << 16)

    def check(self, status):
        if status:
            sys.exit("the library: " + self.error.raw[4:].split(b"\0")[0].decode())

    def logits(self, path, tokens, vocabulary):
        config, world, finished = ctypes.create_string_buffer(1 << 20), ctypes.c_void_p(), \
            ctypes.c_void_p()
        where = str(path).encode()
        words = (ctypes.c_char_p * 1)(b"parallel.threads=1")  # of models this small
        rows, row = [], ctypes.POINTER(ctypes.c_float)()
        try:
            self.check(self.c.ls_finished_configure(where, 1, words, len(words), config, self.error))
            self.check(self.c.ls_comm_self_new(ctypes.byref(world), self.error))
            self.check(self.c.ls_finished_new(config, where, None, world, None,
                                              ctypes.byref(finished), self.error))
            runner = self.c.ls_finished_runner(finished)
            self.check(self.c.ls_runner_restart(runner, self.error))
            for token in tokens:
                self.check(self.c.ls_runner_next(runner, int(token), ctypes.byref(row), self.error))
                rows.append(numpy.ctypeslib.as_array(row, (vocabulary,)).copy())
        finally:
            self.c.ls_finished_free(finished)
            self.c.ls_comm_free(world)
        return numpy.stack(rows)
