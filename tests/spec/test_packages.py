"""What is told to be installed is never another project's `elastic`."""

import re
import shlex
import tomllib
from itertools import chain
from pathlib import Path

import pytest
import yaml
from hints import PROJECTS, hints

from elastic.spec.values import (
    DISTRIBUTION,
    FORMER_DISTRIBUTION,
    install_this,
    pip_install,
)

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PLACES = ("elastic", "docs", "images", "manifests", "model_zoo", "benchmarks")
TEXTS = [
    ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "Makefile",
    *(
        path
        for place in PLACES
        for path in sorted((ROOT / place).rglob("*"))
        if path.is_file() and path.suffix in {".py", ".md", ".yaml", ".Dockerfile", ".sh"}
    ),
]  # fmt: skip
HINT = re.compile(r"(?:pip|uv pip|pipx)3? install\s+((?:[^`\n]|\n(?=[^\n]*`))*)")
OURS = {DISTRIBUTION, FORMER_DISTRIBUTION}


def name_of(requirement):
    """The distribution that a requirement asks an index for, in its plain form; None for a path."""
    if requirement.startswith(("-", ".", "/", "$", "{")) or requirement.endswith(".whl"):
        return None
    found = re.match(r"[A-Za-z0-9][\w.-]*", requirement)
    return re.sub(r"[-_.]+", "-", found[0]).lower() if found else None


def names_in(text):
    """The distributions that the hints in a text ask an index for."""
    # What a program fills in is named where it comes from.
    for hint in HINT.findall(re.sub(r"\{[^{}\n]*\}", "{}", text)):
        hint = re.sub(r"-[rc]\s+\S+", "", hint.partition(" && ")[0])
        words = re.findall(r"[^\s,;()\"']+", hint)
        yield from filter(None, map(name_of, words))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("`pip install 'elastic[images]'`", ["elastic"]),
        ("needs `pip install\n'elastic_jobs>=1'`, too", ["elastic-jobs"]),
        ("python -m pip install -e . pyarrow", ["pyarrow"]),
        ("pip install /opt/elastic/*.whl", []),
    ],
)
def test_a_hint_is_read(text, names):
    assert list(names_in(text)) == names


def test_no_hint_asks_an_index_for_elastic():
    hints = {path: list(names_in(path.read_text())) for path in TEXTS}
    # That the changelog tells what was wrong is no advice.
    told = hints.pop(ROOT / "CHANGELOG.md")
    assert "tensorboard" in told
    assert sum(map(len, hints.values())) >= 10
    wrong = {path: OURS.intersection(names) for path, names in hints.items()}
    assert {path: names for path, names in wrong.items() if names} == {}


def test_a_hint_names_only_what_elastic_or_a_model_of_the_zoo_needs():
    """Typed as it stands, another word would be another project at the index."""
    lines = [*PROJECT["dependencies"], *chain(*PROJECT["optional-dependencies"].values())]
    entries = [yaml.safe_load(path.read_text()) for path in (ROOT / "model_zoo").glob("*/zoo.yaml")]
    needed = {name_of(line) for line in lines} | set(chain(*(e.get("needs", []) for e in entries)))
    # With the libraries of GPUs; and what an extra stands for.
    needed |= {"tensorflow"}
    # The changelog tells what was wrong, and developers have tools of their own.
    read = [path for path in TEXTS if path.name not in ("CHANGELOG.md", "Makefile")]
    unknown = {path: set(names_in(path.read_text())) - needed for path in read}
    assert {path: names for path, names in unknown.items() if names} == {}


def test_no_text_names_an_extra_of_elastic():
    naming = re.compile(r"\belastic(?:[-_]jobs)?\[\w")
    assert [p for p in TEXTS if p.name != "CHANGELOG.md" and naming.search(p.read_text())] == []


@pytest.mark.parametrize("extra", sorted(set(PROJECT["optional-dependencies"]) - {"dev"}))
def test_a_hint_brings_what_the_extra_brings(extra):
    words = shlex.split(pip_install(extra))
    assert words[:2] == ["pip", "install"]
    needed = {name_of(line) for line in PROJECT["optional-dependencies"][extra]}
    # The same package with the libraries of GPUs.
    needed = {name.replace("tensorflow-cpu", "tensorflow") for name in needed}
    assert needed <= {name_of(word) for word in words[2:]}
    # Where a version is named, it is the project's.
    every = [*PROJECT["optional-dependencies"][extra], *PROJECT["dependencies"]]
    assert [word for word in words[2:] if "<" in word and word not in every] == []


def test_the_project_behind_each_printed_name_is_known():
    """`python tests/hints.py` compares it with what an index gives for the name."""
    words = chain(*(shlex.split(hint)[2:] for hint in hints()))
    assert set(filter(None, map(name_of, words))) | {DISTRIBUTION} == set(PROJECTS)


def test_this_one_is_installed_from_where_it_lies(monkeypatch, tmp_path):
    assert shlex.split(install_this()) == ["pip", "install", "-e", str(ROOT)]
    monkeypatch.setattr("elastic.__file__", str(tmp_path / "elastic" / "__init__.py"))
    assert install_this() == "install it from its wheel"


def test_the_project_has_the_name_that_it_looks_for():
    assert PROJECT["name"] == DISTRIBUTION
    assert PROJECT["scripts"] == {"elastic": "elastic.__main__:main"}
