"""What the program `thalweg` is made of: `licences` (a text) or `sbom` (CycloneDX 1.6, JSON), on standard output.

    python3 scripts/dependencies.py licences|sbom [--features A,B] [--no-default-features] [--target TRIPLE]

`cargo tree` says which crates are part of the program and of its build, `cargo metadata` where they are, Cargo.lock their
checksums. A licence that deny.toml does not allow is an error. Nothing is fetched (`cargo fetch --locked` does that), and the
output depends on nothing but the sources.
"""

import argparse
import json
import re
import subprocess
import sys
import tomllib
import uuid
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = "thalweg"
LICENCE_FILE = re.compile(r"^(licen[cs]e|copying|copyright|notice|unlicense)", re.IGNORECASE)


def cargo(*arguments):
    command = ["cargo", *arguments, "--locked", "--offline"]
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def members(options):
    """Names and versions of the crates that are part of the program or of its build."""
    arguments = ["tree", "--package", PROGRAM, "--edges", "normal,build", "--prefix", "none", "--format", "{p}"]
    arguments += ["--target", options.target] if options.target else []
    arguments += ["--features", options.features] if options.features else []
    arguments += ["--no-default-features"] if options.no_default_features else []
    lines = (line.split() for line in cargo(*arguments).splitlines() if line.strip())
    return {(name, version.removeprefix("v")) for name, version, *_ in lines}


def packages(options):
    """The crates' metadata, the program first, then by name and version."""
    platform = ["--filter-platform", options.target] if options.target else []
    metadata = json.loads(cargo("metadata", "--format-version", "1", "--all-features", *platform))
    wanted = members(options)
    found = [package for package in metadata["packages"] if (package["name"], package["version"]) in wanted]
    edges = {node["id"]: node["dependencies"] for node in metadata["resolve"]["nodes"]}
    missing = wanted - {(package["name"], package["version"]) for package in found}
    if missing:
        sys.exit(f"cargo metadata does not know {sorted(missing)}")
    found.sort(key=lambda package: (package["name"] != PROGRAM, package["name"], package["version"]))
    return found, edges


def expression(package):
    """The licence as an SPDX expression; `/` is how it was written before there were any."""
    return re.sub(r"\s*/\s*", " OR ", package["license"] or "")


def is_allowed(text, allowed):
    """Whether an SPDX expression can be met with the allowed licences. Brackets bind most, then AND, then OR."""
    tokens = re.findall(r"\(|\)|[^\s()]+", text)

    def alternatives():
        result = conjunction()
        while tokens and tokens[0] == "OR":
            tokens.pop(0)
            result |= conjunction()
        return result

    def conjunction():
        result = single()
        while tokens and tokens[0] == "AND":
            tokens.pop(0)
            result &= single()
        return result

    def single():
        token = tokens.pop(0) if tokens else ""
        if token == "(":
            result = alternatives()
            return result and tokens and tokens.pop(0) == ")"
        if tokens[:1] == ["WITH"]:
            token = " ".join([token, tokens.pop(0), tokens.pop(0) if tokens else ""])
        return token in allowed

    return bool(alternatives()) and not tokens


def check(found):
    """Ends the program if a crate has a licence that deny.toml does not allow."""
    allowed = set(tomllib.loads((ROOT / "deny.toml").read_text())["licenses"]["allow"])
    wrong = [f"{package['name']} {package['version']}: {expression(package) or 'no licence'}"
             for package in found if not is_allowed(expression(package), allowed)]
    if wrong:
        sys.exit("deny.toml does not allow:\n" + "\n".join(wrong))


def licence_texts(package):
    folder = Path(package["manifest_path"]).parent
    # A crate that links something brings its sources along, and their licences.
    inside = folder.rglob("*") if package["links"] else folder.iterdir()
    files = [path for path in sorted(inside) if path.is_file() and LICENCE_FILE.match(path.name)]
    return [path.read_text(encoding="utf-8", errors="replace").strip() for path in files]


def is_ours(package):
    return package["source"] is None


def licences(found):
    """Which crates there are, and each text of a licence once, with the crates that it comes with."""
    others = [package for package in found if not is_ours(package)]
    lines = ["Thalweg is licensed under the Apache License, version 2.0. It contains these works of others.", ""]
    users = {}
    for package in others:
        name = f"{package['name']} {package['version']}"
        lines.append(f"{name}: {expression(package)} <{package['repository'] or package['homepage'] or ''}>")
        for text in licence_texts(package):
            users.setdefault(" ".join(text.split()), (text, []))[1].append(name)
    for text, names in users.values():
        lines += ["", "=" * 80, "Comes with " + ", ".join(names) + ":", "", text]
    return "\n".join(lines) + "\n"


def purl(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(package, checksums):
    key = (package["name"], package["version"])
    entry = {
        "type": "application" if package["name"] == PROGRAM else "library",
        "bom-ref": purl(package),
        "name": package["name"],
        "version": package["version"],
        "description": package["description"] or "",
        "licenses": [{"expression": expression(package)}],
        "purl": purl(package),
    }
    if key in checksums:
        entry["hashes"] = [{"alg": "SHA-256", "content": checksums[key]}]
    if package["repository"]:
        entry["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return entry


def sbom(found, edges):
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
    checksums = {(entry["name"], entry["version"]): entry["checksum"]
                 for entry in lock["package"] if "checksum" in entry}
    by_id = {package["id"]: purl(package) for package in found}
    components = [component(package, checksums) for package in found]
    dependencies = [{"ref": by_id[package["id"]],
                     "dependsOn": sorted({by_id[other] for other in edges[package["id"]] if other in by_id}
                                         - {by_id[package["id"]]})}
                    for package in found]
    content = json.dumps([components, dependencies], sort_keys=True)
    return json.dumps({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, content)}",
        "version": 1,
        "metadata": {"component": components[0]},
        "components": components[1:],
        "dependencies": dependencies,
    }, indent=1) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["licences", "sbom"])
    parser.add_argument("--features", default="")
    parser.add_argument("--no-default-features", action="store_true")
    parser.add_argument("--target", default="")
    options = parser.parse_args()
    found, edges = packages(options)
    check(found)
    sys.stdout.write(licences(found) if options.what == "licences" else sbom(found, edges))


if __name__ == "__main__":
    main()
