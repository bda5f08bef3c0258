"""Packs a program that was built: an archive, a package of Debian, a package of RPM.

    python3 scripts/packages.py PROGRAM OUTPUT FORMAT... [--features F] [--target T] [--runs PROGRAM] [--nfpm nfpm]

FORMAT is `archive`, `deb` or `rpm`. `--features` are those that PROGRAM was built with, for the list of licences. `--runs` is a
build of the same sources for this machine, which writes the man pages and completions, if PROGRAM is for another one. The last
two formats need nFPM. All files have the time SOURCE_DATE_EPOCH (default: that of the last commit): packing twice gives the same
bytes.
"""

import argparse
import gzip
import json
import os
import platform
import re
import shutil
import string
import subprocess
import sys
import tarfile
import tempfile
from datetime import datetime, timezone
from email.utils import format_datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"
FORMATS = ("archive", "deb", "rpm")
# As nFPM names architectures: the names of Go.
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
ZSH = {"deb": "/usr/share/zsh/vendor-completions", "rpm": "/usr/share/zsh/site-functions"}
COMPLETIONS = {"bash": "thalweg.bash", "fish": "thalweg.fish", "zsh": "_thalweg"}
# Which package of Debian has a library. One that is missing here is an error.
DEBIAN_PACKAGES = {"libc.so.6": "libc6", "libm.so.6": "libc6", "ld-linux-x86-64.so.2": "libc6",
                   "ld-linux-aarch64.so.1": "libc6", "libgcc_s.so.1": "libgcc-s1", "libssl.so.3": "libssl3",
                   "libcrypto.so.3": "libssl3", "libz.so.1": "zlib1g"}


def output_of(*command):
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def time_of_sources():
    given = os.environ.get("SOURCE_DATE_EPOCH")
    return int(given or output_of("git", "log", "-1", "--format=%ct"))


def version():
    text = (ROOT / "Cargo.toml").read_text()
    return re.search(r'^\[workspace\.package\]\nversion = "(.*)"', text, re.MULTILINE).group(1)


def compressed(text, path):
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def dependencies(what, options):
    command = [sys.executable, "scripts/dependencies.py", what, "--features", options.features, "--target", options.target]
    return output_of(*command)


def stage(options, folder, time_s):
    """Everything that the formats have in common."""
    runs = str(options.runs or options.program)
    shutil.copy(options.program, folder / "thalweg")
    (folder / "thalweg").chmod(0o755)
    (folder / "completions").mkdir()
    for shell, name in COMPLETIONS.items():
        (folder / "completions" / name).write_text(output_of(runs, "completions", shell))
    with tempfile.TemporaryDirectory() as pages:
        output_of(runs, "man", pages)
        (folder / "man").mkdir()
        for page in sorted(Path(pages).iterdir()):
            compressed(page.read_text(), folder / "man" / f"{page.name}.gz")
    compressed(dependencies("licences", options), folder / "THIRD-PARTY.gz")
    (folder / "sbom.cdx.json").write_text(dependencies("sbom", options))
    date = format_datetime(datetime.fromtimestamp(time_s, timezone.utc))
    compressed(f"thalweg ({version()}-1) stable; urgency=medium\n\n  * What is new: CHANGELOG.md of the sources.\n\n"
               f" -- Thalweg maintainers <thalweg@users.noreply.github.com>  {date}\n", folder / "changelog.Debian.gz")


def archive(options, folder, time_s):
    """thalweg-VERSION-TARGET.tar.gz, with everything in a folder of that name."""
    name = f"thalweg-{version()}-{options.target}"
    path = options.output / f"{name}.tar.gz"

    def plain(entry):
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = "root"
        entry.mtime = time_s
        return entry

    files = {file.name: file for file in folder.iterdir() if file.name != "changelog.Debian.gz"}
    files |= {file: ROOT / file for file in ("CHANGELOG.md", "LICENSE", "README.md")}
    files["thalweg.service"] = DEPLOY / "systemd/thalweg.service"
    files["server.toml"] = DEPLOY / "packages/server.toml"
    with path.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed:
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for file in sorted(files):
                tar.add(files[file], f"{name}/{file}", filter=plain)
    return path


def newest_of(versions):
    return max(versions, key=lambda text: [int(part or 0) for part in text.split(".")], default="")


def needed_libraries(program):
    """The libraries that a program is linked against, and the newest version of each that it asks for."""
    text = output_of("readelf", "--dynamic", "--version-info", "--wide", str(program))
    needed = dict.fromkeys(re.findall(r"\(NEEDED\)\s+Shared library: \[(.+)\]", text), "")
    file = ""
    for line in text.splitlines():
        file = (re.search(r"File: (\S+)", line) or [None, file])[1]
        found = re.search(r"Name: [A-Z_]+?_([\d.]+)\s", line)
        if found and file in needed:
            needed[file] = newest_of([needed[file], found[1]])
    return needed


def debian_depends(libraries):
    glibc = newest_of(needed for library, needed in libraries.items() if DEBIAN_PACKAGES[library] == "libc6")
    names = sorted({DEBIAN_PACKAGES[library] for library in libraries})
    return [f"libc6 (>= {glibc})" if name == "libc6" else name for name in names] + ["passwd"]


def rpm_depends(libraries):
    capabilities = [f"libc.so.6(GLIBC_{needed})(64bit)" if library == "libc.so.6" else f"{library}()(64bit)"
                    for library, needed in sorted(libraries.items()) if not library.startswith("ld-linux")]
    return capabilities + ["shadow-utils"]


def system_package(kind, options, folder, time_s):
    """A package of Debian or of RPM, by nFPM."""
    libraries = needed_libraries(options.program)
    values = {
        "root": ROOT, "deploy": DEPLOY, "stage": folder, "version": version(), "zsh": ZSH[kind],
        "arch": ARCHITECTURES[options.target.split("-")[0]],
        "mtime": datetime.fromtimestamp(time_s, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "deb_depends": json.dumps(debian_depends(libraries)),
        "rpm_depends": json.dumps(rpm_depends(libraries)),
    }
    described = string.Template((DEPLOY / "packages/nfpm.yaml").read_text()).substitute(values)
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(described)
        file.flush()
        command = [options.nfpm, "package", "--config", file.name, "--packager", kind, "--target", str(options.output)]
        said = output_of(*command)
    return Path(re.search(r"created package: (.+)", said)[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("formats", nargs="+", choices=FORMATS)
    parser.add_argument("--features", default="")
    parser.add_argument("--target", default=f"{platform.machine()}-unknown-linux-gnu")
    parser.add_argument("--runs", type=Path)
    parser.add_argument("--nfpm", default=os.environ.get("NFPM", "nfpm"))
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    time_s = time_of_sources()
    os.environ["SOURCE_DATE_EPOCH"] = str(time_s)
    with tempfile.TemporaryDirectory() as staged:
        folder = Path(staged)
        stage(options, folder, time_s)
        print(f"{(folder / 'thalweg').stat().st_size / 1e6:9.1f} MB  the program")
        for kind in dict.fromkeys(options.formats):
            path = archive(options, folder, time_s) if kind == "archive" else \
                system_package(kind, options, folder, time_s)
            print(f"{path.stat().st_size / 1e6:9.1f} MB  {path}")


if __name__ == "__main__":
    main()
