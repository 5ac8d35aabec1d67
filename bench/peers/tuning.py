"""A few steps of fine-tuning by each side, for finetune.py and qlora.py: the random tokens, PyTorch's
steps and Lockstep's, and what is told of them: {"step_s": median, "losses": [...], "rss": bytes}."""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time


def parser_make(description, **numbers):
    """With what both ask; numbers: options with their defaults."""
    parser = argparse.ArgumentParser(description=description,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in {"batch": 2, "rounds": 3, "steps": 3, **numbers}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--lockstep", default="build/lockstep")
    for hidden in ("--peer", "--folder", "--data"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    return parser


def data_write(path, o):
    import numpy
    count = o.batch * o.tokens * (o.steps + 1) + 1
    numpy.random.default_rng(1).integers(50000, size=count).astype(numpy.uint16).tofile(path)


def torch_steps(o, lr, model, bf16, compiled=False):
    """Trains what needs a gradient, and prints what is told."""
    import numpy
    import torch
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=lr, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    run = torch.compile(model) if compiled else model
    data = torch.from_numpy(numpy.fromfile(o.data, dtype=numpy.uint16).astype(numpy.int64))
    seconds, losses = [], []
    for step in range(o.steps + 1):
        first = step * o.batch * o.tokens
        ids = data[first:first + o.batch * o.tokens].view(o.batch, o.tokens)
        targets = data[first + 1:first + o.batch * o.tokens + 1]
        begin = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            logits = run(ids).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets)
        del logits
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - begin)
    print(json.dumps({"step_s": statistics.median(seconds[1:]), "losses": losses,
                      "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


def peer_run(o, script, folder, peer, *more):
    """The script as its own peer, in a process of its own."""
    words = [sys.executable, script, "--peer", peer, "--folder", folder / "model", "--data",
             folder / "data.bin", "--batch", o.batch, "--tokens", o.tokens, "--steps", o.steps,
             "--threads", o.threads, *more]
    done = subprocess.run([str(w) for w in words], check=True, stdout=subprocess.PIPE, text=True,
                          env=dict(os.environ, OMP_NUM_THREADS=str(o.threads)))
    return json.loads(done.stdout.splitlines()[-1])


def lockstep_run(o, folder, lr, *keys):
    out, log = folder / "run", folder / "log"
    subprocess.run(["rm", "-rf", str(out)], check=True)
    words = [o.lockstep, "train", f"model.from={folder / 'model'}", f"train.out={out}",
             f"data.train=u16:{folder / 'data.bin'}", f"data.sequence={o.tokens}",
             "data.shuffle=false", f"batch.global={o.batch}", f"numerics.leaf_sequences={o.batch}",
             f"train.steps={o.steps + 1}", f"optim.lr={lr}", "optim.schedule=constant",
             f"parallel.threads={o.threads}", "log.progress=off", "log.tensorboard=false",
             "log.hash_every=1000000", *keys]
    with open(log, "w", encoding="utf-8") as file:
        process = subprocess.Popen(words, stdout=file, stderr=file)
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(log.read_text())
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    steps = [record for record in records if "loss" in record]
    return {"step_s": statistics.median(s["step_s"] for s in steps[1:]),
            "losses": [s["loss"] for s in steps], "rss": usage.ru_maxrss * 1024}
