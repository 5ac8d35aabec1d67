#!/usr/bin/env python3
"""DeepSpeed's training step of GPT-2 on the CPU, with and without offload of the optimizer.

    deepspeed_gpt2.py --stage 2 --offload cpu --batch 4 --tokens 1024 --threads 2 --steps 3

The model, the tokens and the options are those of pytorch_gpt2.py. DeepSpeed keeps weights in bf16
and masters in float32, clips to norm 1, and runs AdamW: its FusedAdam, or with --offload its
DeepSpeedCPUAdam. On the CPU device memory and host memory are the same memory; DeepSpeed moves
gradients and weights between its two sets of buffers all the same, as Lockstep does.

The last line on stdout is one JSON object as that of pytorch_gpt2.py, and

    optimizer_s            median of engine.step(): the norm, the update, what is waited for

Needs torch, deepspeed and a C++ compiler, which builds DeepSpeed's kernels at the first run;
--offload nvme also needs libaio's header and library.
"""
import contextlib
import json
import os
import resource
import statistics
import sys
import tempfile
import time

import torch

import pytorch_gpt2


def settings(options, folder):
    zero = {"stage": options.stage}
    if options.offload != "none":
        zero["offload_optimizer"] = {"device": options.offload} | (
            {"nvme_path": folder} if options.offload == "nvme" else {})
    return {"train_micro_batch_size_per_gpu": options.batch, "gradient_clipping": 1.0,
            "bf16": {"enabled": True}, "zero_optimization": zero, "steps_per_print": 2 ** 30,
            "optimizer": {"type": "AdamW", "params": {
                "lr": 3e-4, "betas": [0.9, 0.95], "weight_decay": 0.1}}}


def engine_of(options, folder):
    # It reads these when it is imported. One process needs no launcher.
    os.environ.update(DS_ACCELERATOR="cpu", RANK="0", LOCAL_RANK="0", WORLD_SIZE="1",
                      LOCAL_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(pytorch_gpt2.port_find()))
    import deepspeed  # pylint: disable=import-outside-toplevel
    torch.manual_seed(options.seed)
    layers, heads, channels, vocabulary = options.shape
    model = pytorch_gpt2.GPT2(layers, heads, channels, vocabulary, options.tokens, "full")
    engine = deepspeed.initialize(model=model, model_parameters=model.parameters(),
                                  config=settings(options, folder))[0]
    return engine, deepspeed.__version__


def train(options, folder):
    torch.set_num_threads(options.threads)
    engine, version = engine_of(options, folder)
    stream = torch.from_numpy(pytorch_gpt2.token_stream(options, options.shape[3]))
    result = {"losses": [], "step_s_all": [], "optimizer_s_all": [], "gemm_all": []}
    count = options.batch * options.tokens
    for step in range(options.warmup + options.steps):
        window = stream[step * count: (step + 1) * count + 1]
        ids, targets = (t.reshape(options.batch, -1) for t in (window[:-1], window[1:]))
        start = time.perf_counter()
        loss = engine(ids, targets)
        engine.backward(loss)
        update = time.perf_counter()
        engine.step()
        end = time.perf_counter()
        result["losses"].append(loss.item())
        if step >= options.warmup:
            result["step_s_all"].append(end - start)
            result["optimizer_s_all"].append(end - update)
            result["gemm_all"].append(pytorch_gpt2.gemm_rate(torch.bfloat16))
    result["peak_rss_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    result["versions"] = {"torch": torch.__version__, "deepspeed": version,
                          "isa": pytorch_gpt2.cpu_capability()}
    return result


def report(options, result):
    step_s = statistics.median(result["step_s_all"])
    result |= {"step_s": step_s, "tokens_per_s": options.batch * options.tokens / step_s,
               "optimizer_s": statistics.median(result["optimizer_s_all"]),
               "loss": result["losses"][-1],
               "gemm_flops_per_s": statistics.median(result.pop("gemm_all")),
               "options": vars(options)}
    print(json.dumps(result), flush=True)


def parse():
    parser = pytorch_gpt2.parser_make(__doc__, threads=2, steps=3, warmup=2)
    add = parser.add_argument
    add("--stage", type=int, choices=(2, 3), default=2, help="of ZeRO")
    add("--offload", choices=("none", "cpu", "nvme"), default="none", help="of the optimizer")
    add("--folder", default=".", help="where the files of --offload nvme go")
    return pytorch_gpt2.parsed(parser)


def main():
    options = parse()
    pytorch_gpt2.malloc_keep(OMP_NUM_THREADS=str(options.threads))  # as --malloc keep there
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        with contextlib.redirect_stdout(sys.stderr):  # DeepSpeed prints what it builds
            result = train(options, folder)
        report(options, result)


if __name__ == "__main__":
    main()
