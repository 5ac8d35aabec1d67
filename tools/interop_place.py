#!/usr/bin/env python3
"""Holds copies of checkpoints in S3 against moto's server and boto3.

    make interop [PYTHON=/path/to/venv/bin/python]
    tools/interop_place.py --lockstep build/lockstep

Needs moto[server] and boto3. A small model is trained by two ranks with checkpoint.also in a bucket
of moto, which checks the name of whoever signs and the signature. Then

    boto3 lists and reads what is there     the bytes of the run's own files, and no open upload
    train.out loses its checkpoints         the run goes on from the bucket, with the hash of a run
                                            that lost nothing
    a wrong secret                          is refused at the start

and a twin, a byte that boto3 changes in the copy, must be found. It ends with 1 where something is
off.
"""
import argparse
import json
import logging
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

# moto reads this when it is imported: so many requests are let through before it checks who asks.
os.environ["INITIAL_NO_AUTH_ACTION_COUNT"] = "3"

import boto3  # noqa: E402
from moto.server import ThreadedMotoServer  # noqa: E402

# Files of more than 16 MiB are uploaded in parts.
KEYS = ("model.layers=2 model.channels=512 model.heads=8 model.context=32 data.tokenizer=byte "
        "batch.global=2 optim.schedule=constant parallel.dp=2 parallel.zero=1 parallel.threads=1 train.save_every=2 "
        "log.tensorboard=false numerics.precision=fp32").split()
REGION = "eu-west-1"
POLICY = {"Version": "2012-10-17",
          "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}


def credentials(url):
    """Makes a user who may do all; from the next request on moto checks who asks."""
    iam = boto3.client("iam", endpoint_url=url, region_name=REGION, aws_access_key_id="first",
                       aws_secret_access_key="first")
    iam.create_user(UserName="trainer")
    iam.put_user_policy(UserName="trainer", PolicyName="all", PolicyDocument=json.dumps(POLICY))
    key = iam.create_access_key(UserName="trainer")["AccessKey"]
    return key["AccessKeyId"], key["SecretAccessKey"]


def train(program, place, environment, *words):
    command = [program, "train", *KEYS, f"data.train=u16:{place}/tokens.bin", *words]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return result.returncode, result.stdout + result.stderr


def hash_of(text):
    found = re.search(r"^hash ([0-9a-f]{32})$", text, re.MULTILINE)
    return found.group(1) if found else None


def check(what, good, detail=""):
    print(f"{what}: {'alike' if good else 'off ' + detail}")
    return not good


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lockstep", required=True, type=pathlib.Path)
    program = str(parser.parse_args().lockstep.resolve())
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server, wrong = ThreadedMotoServer(ip_address="127.0.0.1", port=0), 0
    server.start()
    try:
        host, port = server.get_host_and_port()
        url = f"http://{host}:{port}"
        key, secret = credentials(url)
        s3 = boto3.client("s3", endpoint_url=url, region_name=REGION, aws_access_key_id=key,
                          aws_secret_access_key=secret)
        s3.create_bucket(Bucket="bucket",
                         CreateBucketConfiguration={"LocationConstraint": REGION})
        environment = dict(os.environ, AWS_ENDPOINT_URL=url, AWS_REGION=REGION,
                           AWS_ACCESS_KEY_ID=key, AWS_SECRET_ACCESS_KEY=secret,
                           LOCKSTEP_PEAK_FLOPS="1e12")
        with tempfile.TemporaryDirectory() as place:
            wrong = compare(program, pathlib.Path(place), environment, s3)
    finally:
        server.stop()
    sys.exit(1 if wrong else 0)


def copies(s3):
    """The bucket's objects, by their keys."""
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket="bucket")
    keys = [o["Key"] for page in pages for o in page.get("Contents", [])]
    return {key: s3.get_object(Bucket="bucket", Key=key)["Body"].read() for key in keys}


def compare(program, place, environment, s3):
    (place / "tokens.bin").write_bytes(bytes(b for i in range(6000) for b in (i * 7 % 251, 0)))
    run, also = place / "run", "checkpoint.also=s3://bucket/runs/a"
    wrong = 0
    code, text = train(program, place, environment, f"train.out={place}/whole", "train.steps=8")
    whole = hash_of(text)
    for steps in 4, 6:  # the last checkpoint of a run is never skipped
        code, text = train(program, place, environment, f"train.out={run}", f"train.steps={steps}",
                           "train.resume=auto", also)
        wrong += check(f"{steps} steps with a bucket", code == 0 and "warning" not in text, text)
    own = {f"runs/a/{f.relative_to(run / 'checkpoints')}": f.read_bytes()
           for f in (run / "checkpoints").glob("step-*/*")}
    there = copies(s3)
    wrong += check(f"{len(there)} objects by boto3", own == there, f"{sorted(there)}")
    uploads = s3.list_multipart_uploads(Bucket="bucket").get("Uploads", [])
    wrong += check("uploads in parts that were left", not uploads, str(uploads))
    bad = dict(environment, AWS_SECRET_ACCESS_KEY="wrong")
    code, text = train(program, place, bad, f"train.out={place}/bad", "train.steps=2", also)
    wrong += check("a wrong secret", code != 0 and "SignatureDoesNotMatch" in text, text)
    # The twin: a byte of the newest copy is changed, so the one before is taken.
    name = max(key for key in there if "model" in key)
    data = bytearray(there[name])
    data[-5] ^= 1
    s3.put_object(Bucket="bucket", Key=name, Body=bytes(data))
    shutil.rmtree(run / "checkpoints")
    code, text = train(program, place, environment, f"train.out={run}", "train.steps=8", also,
                       "train.resume=auto")
    wrong += check("a changed byte", "skipping a damaged copy" in text and "(step 4)" in text, text)
    wrong += check("the hash after a lost disk", code == 0 and hash_of(text) == whole,
                   f"{hash_of(text)}, expected {whole}")
    return wrong


if __name__ == "__main__":
    main()
