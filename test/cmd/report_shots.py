#!/usr/bin/env python3
"""Looks at pages of `lockstep report` in headless Chromium: make report-shots

    test/cmd/report_shots.py LOCKSTEP FOLDER

Trains two small runs in FOLDER, makes the page of one and of both, and draws each in light, in
dark, and in windows of 390 to 320 units. Fails where a page is wider than its window, where a row
of a table is a tower of short lines, where column B, a default or a time has to be scrolled to
(from 390 units) or anything of a stack, where a picture is empty, or where dark looks like light.
The pictures stay in FOLDER, to be looked at.
Without Chromium it says so and is skipped (exit code 0): it is a large thing to install for this.
"""

import os
import re
import shutil
import subprocess
import sys
import zlib

# The page that holds the page: it reports widths where the product has no scripts.
WRAPPER = """<!DOCTYPE html><html><body style="margin:0">
<iframe id="f" src="%s" style="width:%dpx;height:%dpx;border:0"></iframe>
<script>document.getElementById('f').onload = function () {
  var d = this.contentDocument, e = d.documentElement, wide = [];
  d.querySelectorAll('body *').forEach(function (x) {
    if (!x.closest('.scroll,pre,svg') && x.getBoundingClientRect().right > e.clientWidth + 1)
      wide.push(x.tagName + '.' + x.className);
  });
  d.querySelectorAll('tbody tr').forEach(function (x) {
    if (getComputedStyle(x).display != 'grid' && x.getBoundingClientRect().height > 120)
      wide.push('a tall row: ' + x.firstChild.textContent.trim());
  });
  d.querySelectorAll('.scroll th').forEach(function (x) {
    if (['B', 'Default', 'Time (UTC)'].includes(x.textContent) && e.clientWidth >= 390 && x.getBoundingClientRect().right >
        x.closest('.scroll').getBoundingClientRect().right + 1)
      wide.push('column ' + x.textContent + ' is cut in ' + x.closest('table').caption.textContent);
  });
  d.querySelectorAll('.stack').forEach(function (x) {
    if (e.clientWidth <= 390 && x.parentNode.scrollWidth > x.parentNode.clientWidth)
      wide.push('scrolls: ' + x.caption.textContent);
  });
  document.title = 'width ' + e.scrollWidth + ' of ' + e.clientWidth + ' wide [' + wide + ']';
};</script></body></html>"""

CONFIG = """model: {preset: gpt2-tiny}
data: {train: corpus_train, valid: corpus_valid}
batch: {global: 8}
parallel: {threads: 1}
optim: {lr: 3e-3, warmup_steps: 10, decay_steps: 120}
train: {steps: 120, save_every: 40}
eval: {every: 20, samples: 8}
log: {hash_every: 40, progress: 'off'}
"""
A, B = "runs_of_a_long_name/a", "runs_of_a_long_name/b"


def chromium():
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if shutil.which(name):
            return name
    return None


def browse(program, page, *options):
    # Root may not use the sandbox.
    command = [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
               "--allow-file-access-from-files", *options, "file://" + os.path.abspath(page)]
    return subprocess.run(command, check=True, timeout=120, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL).stdout.decode()


def pixels(path):
    """Width, and the rows of an 8-bit PNG without interlacing, as bytes of one filter each undone."""
    with open(path, "rb") as file:
        data = file.read()
    width, height = int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
    channels, packed, at = {2: 3, 6: 4}[data[25]], b"", 8
    while at < len(data):
        length = int.from_bytes(data[at:at + 4], "big")
        if data[at + 4:at + 8] == b"IDAT":
            packed += data[at + 8:at + 8 + length]
        at += 12 + length
    raw, stride, before, rows = zlib.decompress(packed), width * channels, None, []
    for y in range(height):
        kind, row = raw[y * (stride + 1)], bytearray(raw[y * (stride + 1) + 1:][:stride])
        before = before or bytes(stride)
        for i in range(stride):
            left = row[i - channels] if i >= channels else 0
            up, corner = before[i], before[i - channels] if i >= channels else 0
            guess = left + up - corner
            near = min((abs(guess - left), 0, left), (abs(guess - up), 1, up),
                       (abs(guess - corner), 2, corner))[2]
            row[i] = (row[i] + (0, left, up, (left + up) // 2, near)[kind]) & 255
        before = row
        rows.append(row)
    return channels, rows


def looks(path):
    """How many colours a picture has, and how light it is on average."""
    channels, rows = pixels(path)
    colours, light, count = set(), 0, 0
    for row in rows[::4]:
        for x in range(0, len(row), channels * 4):
            colours.add(bytes(row[x:x + 3]))
            light += sum(row[x:x + 3])
            count += 3
    return len(colours), light / count


def run(lockstep, folder):
    def call(*arguments):
        subprocess.run([lockstep, *arguments], check=True, cwd=folder, timeout=300)

    with open(os.path.join(folder, "text.txt"), "w", encoding="ascii") as file:
        file.writelines(f"{i % 100} bottles of beer on the wall,\n" for i in range(9000))
    with open(os.path.join(folder, "run.yaml"), "w", encoding="ascii") as file:
        file.write(CONFIG)
    call("data", "prepare", "--input", "text.txt", "--output", "corpus", "--tokenizer", "byte")
    for out, *keys in (A, "parallel.pp=2", "parallel.dp=2", "parallel.tp=2"), (
            B, "parallel.dp=2", "parallel.zero=2", "train.steps=80"), (
            B, "parallel.tp=2", "train.resume=auto"):
        call("train", "run.yaml", "train.out=" + out, *keys)
    call("report", A, "--output", "one.html")
    call("report", A, B, "--output", "two.html")


def check(program, folder, page):
    findings, light = [], {}
    path = os.path.join(folder, page + ".html")
    for name, dark in (("light", 1), ("dark", 0)):
        shot = os.path.join(folder, f"{page}-{name}.png")
        browse(program, path, f"--blink-settings=preferredColorScheme={dark}",
               f"--screenshot={shot}", "--window-size=1280,1400")
        colours, light[name] = looks(shot)
        print(f"{shot}: {colours} colours, lightness {light[name]:.0f} of 255")
        if colours < 50:
            findings.append(f"{shot} is empty")
    if light["light"] < 200 or light["dark"] > 60:
        findings.append(f"{page}: light and dark do not look so: {light}")
    for width in (1280, 768, 390, 360, 320):
        wrapper = os.path.join(folder, f"{page}-{width}.html")
        with open(wrapper, "w", encoding="utf-8") as file:
            file.write(WRAPPER % (page + ".html", width, 5000))
        shot = os.path.join(folder, f"{page}-{width}.png")
        browse(program, wrapper, f"--screenshot={shot}", f"--window-size={max(width, 500)},5000")
        title = re.search(r"<title>(.*?)</title>", browse(program, wrapper, "--dump-dom"))
        told = re.fullmatch(r"width (\d+) of (\d+) wide \[(.*)\]", title.group(1) if title else "")
        print(f"{shot}: {title.group(1) if title else 'no word'}")
        if not told or int(told.group(1)) > int(told.group(2)) or told.group(3):
            findings.append(f"{page} at {width} units is wider than its window, or has tall rows")
    return findings


def main():
    lockstep, folder = os.path.abspath(sys.argv[1]), sys.argv[2]
    program = chromium()
    if not program:
        print("SKIPPED: report-shots needs Chromium: apt-get install chromium")
        return 0
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    run(lockstep, folder)
    findings = check(program, folder, "one") + check(program, folder, "two")
    for finding in findings:
        print("report-shots:", finding)
    print(f"look at the pictures in {folder}; {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
