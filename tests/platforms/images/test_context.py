import io
import os
import shutil
import stat
import tarfile
from contextlib import closing
from pathlib import Path

import pytest

from elastic.errors import JobSpecError
from elastic.platforms.images.context import Wheel, pack

WHEEL = Wheel("elastic-1-py3-none-any.whl", b"code", ("click>=8", "numpy"))


def packed(zoo):
    """The archive of a model_zoo, and its entries by name."""
    with closing(pack("FROM scratch\n", zoo, WHEEL)) as context:
        content = context.file.read()
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        return content, {entry.name: entry for entry in tar}


def zoo_names(zoo):
    """What of a model_zoo is packed, folders left out."""
    entries = packed(zoo)[1].values()
    return {e.name.removeprefix("model_zoo/") for e in entries if not e.isdir()} - {
        "Dockerfile",
        "elastic/requirements.txt",
        f"elastic/{WHEEL.name}",
        "requirements/requirements.txt",
    }


def test_what_the_engine_gets(zoo):
    (zoo / "requirements.txt").write_text("-r requirements-more.txt\n")
    (zoo / "requirements-more.txt").write_text("six\n")
    (zoo / "constraints.txt").write_text("six<2\n")
    content, entries = packed(zoo)
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        texts = {name: tar.extractfile(e).read() for name, e in entries.items() if e.isfile()}
    assert texts["Dockerfile"] == b"FROM scratch\n"
    assert texts["elastic/requirements.txt"] == b"click>=8\nnumpy\n"
    assert texts[f"elastic/{WHEEL.name}"] == b"code"
    assert texts["requirements/requirements.txt"] == b"-r requirements-more.txt\n"
    assert texts["requirements/requirements-more.txt"] == b"six\n"
    assert texts["requirements/constraints.txt"] == b"six<2\n"
    assert texts["model_zoo/tiny/model.py"] == (zoo / "tiny" / "model.py").read_bytes()


def test_equal_content_makes_equal_bytes(zoo, tmp_path):
    """Times, modes and what running the model leaves behind are not content."""
    other = tmp_path / "other"
    shutil.copytree(zoo, other)
    os.utime(other / "tiny" / "model.py", (1, 1))
    (other / "tiny" / "model.py").chmod(0o600)
    (other / "tiny" / "__pycache__").mkdir()
    (other / "tiny" / "__pycache__" / "model.cpython-311.pyc").write_bytes(b"compiled")
    (other / ".git").mkdir()
    (other / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    assert packed(zoo)[0] == packed(other)[0]
    (other / "tiny" / "model.py").chmod(0o700)
    assert packed(zoo)[0] != packed(other)[0]


def test_every_pod_can_read_what_only_its_author_could(zoo):
    (zoo / "tiny").chmod(0o700)
    (zoo / "tiny" / "model.py").chmod(0o600)
    (zoo / "tool.sh").touch(0o700)
    _, entries = packed(zoo)
    assert entries["model_zoo/tiny"].mode == 0o755
    assert entries["model_zoo/tiny/model.py"].mode == 0o644
    assert entries["model_zoo/tool.sh"].mode == 0o755
    assert {(e.uid, e.gid, e.uname) for e in entries.values()} == {(0, 0, "")}


def test_dockerignore_is_honoured(zoo):
    (zoo / "data").mkdir()
    (zoo / "data" / "train.npz").write_bytes(b"much")
    (zoo / "data" / "vocabulary.txt").write_text("words")
    (zoo / "notes.md").write_text("")
    (zoo / "tiny" / "cache.npz").write_bytes(b"")
    (zoo / ".dockerignore").write_text("# data\n\ndata\n**/*.npz\n*.md\n!data/vocabulary.txt\n")
    assert zoo_names(zoo) == {"tiny/__init__.py", "tiny/model.py", "data/vocabulary.txt"}
    assert "model_zoo/data" in packed(zoo)[1]


def test_what_is_always_left_out_can_be_asked_for(zoo):
    (zoo / "tiny" / "model.pyc").write_bytes(b"")
    (zoo / "elastic.Dockerfile").write_text("FROM scratch\n")
    assert zoo_names(zoo) == {"tiny/__init__.py", "tiny/model.py"}
    (zoo / ".dockerignore").write_text("!tiny/model.pyc\n")
    assert zoo_names(zoo) == {"tiny/__init__.py", "tiny/model.py", "tiny/model.pyc"}


def test_links_inside_are_kept(zoo):
    (zoo / "alias.py").symlink_to("tiny/model.py")
    entry = packed(zoo)[1]["model_zoo/alias.py"]
    assert entry.issym()
    assert entry.linkname == "tiny/model.py"


@pytest.mark.parametrize("target", ["../outside.py", "/etc/hostname", "tiny/../../outside.py"])
def test_links_that_lead_outside_are_refused(zoo, target):
    (zoo.parent / "outside.py").write_text("")
    (zoo / "alias.py").symlink_to(target)
    with pytest.raises(JobSpecError, match=f"{zoo}/alias.py is a link to {target}, which is not"):
        packed(zoo)
    (zoo / ".dockerignore").write_text("alias.py\n")
    assert zoo_names(zoo) == {"tiny/__init__.py", "tiny/model.py"}


def test_a_link_to_itself_is_kept_as_it_is(zoo):
    (zoo / "alias.py").symlink_to("alias.py")
    assert packed(zoo)[1]["model_zoo/alias.py"].linkname == "alias.py"


@pytest.mark.parametrize(
    ("name", "mode", "told"),
    [
        ("tiny", 0, "zoo/tiny"),
        # Its files can be listed, and not be looked at.
        ("tiny", 0o644, "zoo/tiny/__init__.py"),
        ("tiny/model.py", 0, "zoo/tiny/model.py"),
    ],
)
def test_what_cannot_be_read_is_named_and_may_be_ignored(zoo, as_nobody, name, mode, told):
    (zoo / name).chmod(mode)
    with as_nobody(zoo.parent), pytest.raises(JobSpecError) as caught:
        packed(Path("zoo"))
    assert str(caught.value) == (
        f"{told} cannot be read for the image (Permission denied): make it readable and keep it as "
        "it is while the job is submitted, or name it in .dockerignore"
    )
    (zoo / ".dockerignore").write_text(f"{name}\n")
    with as_nobody(zoo.parent):
        assert told.removeprefix("zoo/") not in zoo_names(Path("zoo"))


@pytest.mark.parametrize("name", [".dockerignore", "requirements.txt", "constraints-a.txt"])
def test_a_list_that_cannot_be_read_is_named_and_cannot_be_ignored(zoo, as_nobody, name):
    (zoo / name).touch(0)
    with as_nobody(zoo.parent), pytest.raises(JobSpecError) as caught:
        packed(Path("zoo"))
    assert str(caught.value).startswith(f"zoo/{name} cannot be read for the image (Permission den")
    assert ".dockerignore" not in str(caught.value).removeprefix("zoo/.dockerignore")


def test_what_is_no_file_is_refused(zoo):
    os.mkfifo(zoo / "pipe")
    assert stat.S_ISFIFO((zoo / "pipe").stat().st_mode)
    with pytest.raises(JobSpecError, match=f"{zoo}/pipe is neither a file nor a folder"):
        packed(zoo)


def test_the_largest_file_is_known(zoo):
    (zoo / "big.npz").write_bytes(b"x" * 5000)
    with closing(pack("FROM scratch\n", zoo, WHEEL)) as context:
        size = sum(p.stat().st_size for p in zoo.rglob("*") if p.is_file())
        assert (context.num_files, context.size_bytes) == (3, size)
        assert context.largest == ("big.npz", 5000)


@pytest.mark.parametrize(
    "line",
    ["elastic", "elastic[parquet]>=0.1", "Elastic_Jobs", " elastic-jobs ;os_name>'3'"],
)
def test_no_index_is_asked_for_elastic(zoo, line):
    (zoo / "requirements.txt").write_text("-r requirements-more.txt\n")
    (zoo / "requirements-more.txt").write_text(f"\n# not elastic\n{line}\nsix\n")
    with pytest.raises(JobSpecError) as raised:
        packed(zoo)
    assert str(raised.value).startswith(
        f"{zoo}/requirements-more.txt:3 asks for {line.strip()}, and a package index has another"
    )


def test_other_names_that_begin_so_are_not_elastic(zoo):
    (zoo / "requirements.txt").write_text("elasticsearch\nelastic-transport\nelastic-apm==6\n")
    packed(zoo)
