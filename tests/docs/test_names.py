"""The modules and files that documents name are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    str(path.relative_to(ROOT))
    for pattern in ("README.md", "*/README.md", "docs/*.md")
    for path in sorted(ROOT.glob(pattern))
]
FOLDERS = "benchmarks|docs|elastic|images|manifests|model_zoo|protos|tests"
# Those that name modules of one folder by the end of their paths; in others `model.py` is a user's.
OF_ONE_FOLDER = {
    "benchmarks/README.md": "benchmarks",
    "docs/architecture.md": "elastic",
    "tests/README.md": "tests",
}


def named(document, pattern):
    """The code spans of a document that are of this form."""
    spans = re.findall(r"`([^`\n]+)`", (ROOT / document).read_text())
    return [span for span in spans if re.fullmatch(pattern, span)]


def has_dotted(folder, name):
    """Whether a folder has such a module, or one above that holds the last word."""
    path = ROOT / folder / name.replace(".", "/")
    if path.is_dir() or path.with_suffix(".py").is_file():
        return True
    above = [path.parent.with_suffix(".py"), path.parent / "__init__.py"]
    text = "".join(each.read_text() for each in above if each.is_file())
    return re.search(rf"\b{path.name}\b", text) is not None


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_path_of_the_repository_is_there(document):
    paths = named(document, rf"(?:{FOLDERS})/[\w./-]*")
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize(("document", "folder"), OF_ONE_FOLDER.items())
def test_a_module_is_there_by_the_end_of_its_path(document, folder):
    modules = named(document, r"[\w/]+\.py")
    there = [f"/{path.relative_to(ROOT)}" for path in (ROOT / folder).rglob("*.py")]
    assert modules
    assert [each for each in modules if not any(path.endswith(f"/{each}") for path in there)] == []


@pytest.mark.parametrize("document", ["docs/architecture.md", "tests/README.md"])
def test_a_module_is_there_by_its_dotted_name(document):
    folder = OF_ONE_FOLDER[document]
    packages = "|".join(path.name for path in (ROOT / folder).iterdir() if path.is_dir())
    modules = named(document, rf"(?:{packages})(?:\.[a-z_]+)+")
    assert modules
    assert [each for each in modules if not has_dotted(folder, each)] == []
