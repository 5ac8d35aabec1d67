#!/usr/bin/env python3
"""Packs the Python package: wheels for pip, and what `pip install .` calls (PEP 517 and 660).

    tools/python_wheel.py wheel FOLDER PACKAGED     `make wheel` calls this
    tools/python_wheel.py contents FILE             what a wheel holds, and checks its RECORD
    tools/python_wheel.py unpack FILE FOLDER        the same, and unpacks it as pip does
    tools/python_wheel.py closed FOLDER             an error if what was unpacked there needs a
                                                    library that is not inside, but MPI

PACKAGED is what `make packaged` built: the library and the program and, below, both with MPI. In a
wheel they are in lockstep/_native. `make wheel` puts beside them every library that they need and
that manylinux does not promise, byte for byte, with its licence; they are found through the run path
$ORIGIN. MPI is never put inside: the machine's own is used. `pip install .` makes a wheel for this
machine alone, with this machine's libraries.

Needs Python's own modules, make, a C compiler and binutils. The same tree, compiler and libraries
give the same bytes; $SOURCE_DATE_EPOCH is the time of files in the wheel, 1980 if it is not set.
"""

import base64
import gzip
import hashlib
import io
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
NATIVE = "lockstep/_native"
LIBRARY = "liblockstep.so.0"
METADATA = """\
Metadata-Version: 2.1
Name: lockstep
Version: {version}
Summary: Trains large language models across many ranks: however the work is cut, the same bits
License: Apache-2.0
Keywords: language models,training,parallelism,determinism
Classifier: Development Status :: 4 - Beta
Classifier: Intended Audience :: Science/Research
Classifier: License :: OSI Approved :: Apache Software License
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: C
Classifier: Programming Language :: Python :: 3
Classifier: Topic :: Scientific/Engineering :: Artificial Intelligence
Classifier: Typing :: Typed
Requires-Python: >=3.9
Provides-Extra: numpy
Requires-Dist: numpy ; extra == "numpy"
Description-Content-Type: text/markdown

{readme}"""
WHEEL = """\
Wheel-Version: 1.0
Generator: lockstep ({version})
Root-Is-Purelib: false
Tag: {tag}
"""
ENTRY_POINTS = "[console_scripts]\nlockstep = lockstep.__main__:main\n"
# What every manylinux platform promises (PEP 600), of what a C or C++ library may need.
PROMISED = re.compile(r"(ld-linux.*|lib(c|m|mvec|dl|rt|pthread|util|resolv|nsl|anl|gcc_s|stdc\+\+|z|"
                      r"expat))\.so(\.\d+)?$")
LOADED = ["libdnnl.so.2"]  # by the library itself, when it measures
MPI = re.compile(r"lib(mpi|pmpi|mpich)\b")
# Headers of libraries without a file of pkg-config.
HEADERS = {"oneapi/dnnl/dnnl.h": "oneDNN", "isa-l.h": "ISA-L"}


class Refused(Exception):
    """What lacks, and what to do."""


# ---- what is built ----------------------------------------------------------------------------------


def run(*command, **keys):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **keys).stdout


def facts():
    """What the Makefile knows: version, compiler, libraries, folder of the parts."""
    if not shutil.which("make"):
        raise Refused("building Lockstep needs make: on Debian, apt-get install make")
    lines = run("make", "-s", "--no-print-directory", "wheel-facts", cwd=ROOT, env=make_environment())
    return dict(line.partition("=")[::2] for line in lines.splitlines())


def make_environment():
    """Of a make that begins anew, also where another make started pip."""
    return {name: value for name, value in os.environ.items()
            if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MAKEOVERRIDES")}


def missing(known):
    """What building needs and this machine lacks."""
    if not sys.platform.startswith("linux"):
        return ["Linux"]
    compiler = known["compiler"].split()
    lacks = [name for name in (compiler[0], "pkg-config") if not shutil.which(name)]
    if lacks:
        return lacks
    lacks = [name for name in known["libraries"].split()
             if subprocess.call(["pkg-config", "--exists", name])]
    return lacks + [what for header, what in HEADERS.items() if subprocess.run(
        [*compiler, "-E", "-x", "c", "-"], input=f"#include <{header}>\n", text=True,
        capture_output=True, check=False).returncode]


def build(target):
    """Runs make; the facts, as facts() gives them."""
    known = facts()
    lacks = missing(known)
    if lacks:
        raise Refused(f"building Lockstep needs {', '.join(lacks)}, which this machine lacks. On Debian 12 "
                      f"and newer {ROOT}/tools/install-deps.sh installs all that is needed (as root)")
    done = subprocess.run(["make", "-s", target], cwd=ROOT, env=make_environment(), check=False,
                          stdout=sys.stderr)
    if done.returncode:
        raise Refused(f"make {target} failed in {ROOT}: the lines above say why")
    return known


# ---- libraries beside ours --------------------------------------------------------------------------


def needed(path):
    """The names of the shared libraries that a file asks for."""
    return re.findall(r"NEEDED +(\S+)", run("objdump", "-p", str(path)))


def places(path, environment=None):
    """name -> path, of all that the loader would load for a file."""
    found = re.findall(r"^\s*(\S+) => (/\S+)", run("ldd", str(path), env=environment), re.MULTILINE)
    return {name: pathlib.Path(where) for name, where in found}


def foreign(packaged, compiler):
    """name -> path of the libraries to put beside ours: all that they need, and these in turn."""
    at = places(packaged / LIBRARY)
    at.update(places(packaged / "lockstep"))
    ours = {path.name for path in packaged.iterdir()}
    for name in LOADED:
        where = pathlib.Path(run(*compiler.split(), f"-print-file-name={name}").strip())
        if where.is_absolute():  # otherwise it was not found
            at.update({name: where, **places(where)})
    found, asked = {}, [*LOADED, *needed(packaged / LIBRARY), *needed(packaged / "lockstep")]
    while asked:
        name = asked.pop()
        if name in found or name in ours or PROMISED.match(name):
            continue
        if MPI.match(name):
            raise Refused(f"{packaged} needs {name}: expected a build without MPI (make wheel)")
        if name not in at:
            raise Refused(f"{name} is needed and was not found: is its package installed?")
        found[name] = at[name].resolve()
        asked += needed(found[name])
    return found


def licence(path):
    """(package, text) of the Debian package that a library came with."""
    for name in (str(path), str(path).removeprefix("/usr"), f"/usr{path}"):
        done = subprocess.run(["dpkg", "-S", name], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            package = done.stdout.split(":")[0]
            return package, pathlib.Path(f"/usr/share/doc/{package}/copyright").read_bytes()
    raise Refused(f"no Debian package owns {path}: its licence, which the wheel must hold, is not known")


# ---- the wheel --------------------------------------------------------------------------------------


def machine(compiler):
    return run(*compiler.split(), "-dumpmachine").split("-")[0]


def glibc():
    return os.confstr("CS_GNU_LIBC_VERSION").split()[1].replace(".", "_")


def python_files():
    """name in the wheel -> bytes, of the package's own files."""
    folder = ROOT / "python"
    return {str(path.relative_to(folder)): path.read_bytes()
            for path in sorted((folder / "lockstep").rglob("*"))
            if path.suffix in (".py", ".pyi") or path.name == "py.typed"}


def stripped(path):
    """The bytes of one of our own files without what a debugger alone reads."""
    with tempfile.TemporaryDirectory() as folder:
        copy = os.path.join(folder, "copy")
        run("strip", "--strip-debug", "-o", copy, str(path))
        return pathlib.Path(copy).read_bytes()


def native_files(packaged):
    return {f"{NATIVE}/{path.relative_to(packaged)}": stripped(path)
            for path in sorted(packaged.rglob("*")) if path.is_file()}


def foreign_files(packaged, compiler, info):
    """The libraries beside ours, and their licences."""
    files = {}
    for name, path in sorted(foreign(packaged, compiler).items()):
        files[f"{NATIVE}/{name}"] = path.read_bytes()
        package, text = licence(path)
        files[f"{info}/licenses/{package}/copyright"] = text
        # Debian names the long ones where its packages share them.
        for common in re.findall(rb"/usr/share/common-licenses/([\w.-]*\w)", text):
            where = pathlib.Path("/usr/share/common-licenses") / common.decode()
            files[f"{info}/licenses/common/{where.name}"] = where.read_bytes()
    return files


def metadata(version):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    return METADATA.format(version=version, readme=readme)


def info_files(info, version, tag):
    return {f"{info}/METADATA": metadata(version).encode(),
            f"{info}/WHEEL": WHEEL.format(version=version, tag=tag).encode(),
            f"{info}/entry_points.txt": ENTRY_POINTS.encode(),
            f"{info}/licenses/LICENSE": (ROOT / "LICENSE").read_bytes()}


def digest(content):
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def record(files, info):
    lines = [f"{name},{digest(content)},{len(content)}" for name, content in sorted(files.items())]
    return "\n".join([*lines, f"{info}/RECORD,,"]) + "\n"


def zip_write(path, files, executables):
    """The files in the order of their names, with one time; renamed when whole."""
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH", 315532800))
    when = time.gmtime(max(epoch, 315532800))[:6]
    beginning = path.with_name(f".{path.name}.{os.getpid()}")
    with zipfile.ZipFile(beginning, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(files.items()):
            entry = zipfile.ZipInfo(name, when)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if name in executables else 0o100644) << 16
            archive.writestr(entry, content)
    os.replace(beginning, path)


def wheel_write(folder, version, tag, files):
    """Adds what a wheel needs and writes it; its name."""
    info = f"lockstep-{version}.dist-info"
    files = {**files, **info_files(info, version, tag)}
    files[f"{info}/RECORD"] = record(files, info).encode()
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    name = f"lockstep-{version}-{tag}.whl"
    zip_write(folder / name, files, {n for n in files if re.search(r"/(lockstep|lib[^/]*\.so[^/]*)$", n)})
    return name


def manylinux_wheel(folder, packaged):
    known = facts()
    packaged = pathlib.Path(packaged)
    version = known["version"]
    tag = f"py3-none-manylinux_{glibc()}_{machine(known['compiler'])}"
    files = {**python_files(), **native_files(packaged)}
    files.update(foreign_files(packaged, known["compiler"], f"lockstep-{version}.dist-info"))
    return wheel_write(folder, version, tag, files)


def read(path):
    """name -> (bytes, whether it is a program); an error if RECORD does not fit."""
    with zipfile.ZipFile(path) as archive:
        found = {entry.filename: (archive.read(entry), bool(entry.external_attr >> 16 & 0o100))
                 for entry in archive.infolist()}
    (listed,) = (name for name in found if name.endswith(".dist-info/RECORD"))
    files = {name: content for name, (content, _) in found.items() if name != listed}
    if found[listed][0].decode() != record(files, listed[:-len("/RECORD")]):
        raise Refused(f"{path}: RECORD does not fit what it lists")
    return found


def contents(path):
    for name, (content, _) in read(path).items():
        print(f"{len(content):12,}  {name}")


def unpack(path, folder):
    for name, (content, program) in read(path).items():
        place = pathlib.Path(folder) / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        place.chmod(0o755 if program else 0o644)


def closed(folder):
    native = (pathlib.Path(folder) / NATIVE).resolve()
    clean = {"PATH": os.environ["PATH"], "LC_ALL": "C"}
    ours = sorted(path for path in native.rglob("*") if path.name in ("lockstep", LIBRARY))
    for path in ours:  # through their run path the others find each other, too
        if path.parent != native and not shutil.which("mpirun"):
            continue
        outside = {name: where for name, where in places(path, clean).items()
                   if native not in where.parents and not PROMISED.match(name)}
        if path.parent != native:  # what MPI brings with it is the machine's
            outside = {name: where for name, where in outside.items() if name in needed(path)
                       and not MPI.match(name)}
        if outside:
            raise Refused(f"{path.relative_to(native)} needs {', '.join(sorted(outside))}: expected it "
                          "inside the wheel")


# ---- what pip calls ---------------------------------------------------------------------------------


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    with refusals():
        version = facts()["version"]
        info = f"lockstep-{version}.dist-info"
        for name, content in info_files(info, version, "py3-none-any").items():
            path = pathlib.Path(metadata_directory) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return info


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    with refusals():
        known = build("packaged")
        files = {**python_files(), **native_files(ROOT / known["packaged"])}
        tag = f"py3-none-linux_{machine(known['compiler'])}"
        return wheel_write(wheel_directory, known["version"], tag, files)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """The package is the clone itself, with what make builds there."""
    with refusals():
        known = build("all")
        files = {"lockstep.pth": f"{ROOT / 'python'}\n".encode()}
        return wheel_write(wheel_directory, known["version"], "py3-none-any", files)


def build_sdist(sdist_directory, config_settings=None):
    with refusals():
        version = facts()["version"]
        name = f"lockstep-{version}"
        tracked = run("git", "ls-files", "-z", cwd=ROOT).split("\0")[:-1]
        raw = io.BytesIO()
        with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for path in sorted(tracked):
                sdist_add(archive, f"{name}/{path}", (ROOT / path).read_bytes(),
                          os.access(ROOT / path, os.X_OK))
            sdist_add(archive, f"{name}/PKG-INFO", metadata(version).encode(), False)
        path = pathlib.Path(sdist_directory) / f"{name}.tar.gz"
        path.write_bytes(gzip.compress(raw.getvalue(), mtime=0))
        return path.name


def sdist_add(archive, name, content, executable):
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    entry.mode = 0o755 if executable else 0o644
    archive.addfile(entry, io.BytesIO(content))


class refusals:
    """Ends the process with the text alone: pip shows it, and a traceback would bury it."""

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if isinstance(error, Refused):
            sys.exit(f"lockstep: {error}")


def main():
    words = sys.argv[1:]
    with refusals():
        if words[:1] == ["wheel"] and len(words) == 3:
            print(f"{words[1]}/{manylinux_wheel(*words[1:])}")
        elif words[:1] == ["contents"] and len(words) == 2:
            contents(words[1])
        elif words[:1] == ["unpack"] and len(words) == 3:
            unpack(*words[1:])
        elif words[:1] == ["closed"] and len(words) == 2:
            closed(words[1])
        else:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
