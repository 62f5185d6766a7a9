import io
import re
import subprocess
import sys
from pathlib import Path

import pytest

from elastic.errors import JobSpecError
from elastic.platforms.images.context import (
    Framework,
    ImageRequest,
    base_images,
    content_tag,
    dockerfile_of,
)
from elastic.spec.job import JobSpec


@pytest.mark.parametrize(
    ("dockerfile", "expected"),
    [
        ("FROM a:1", ["a:1"]),
        ("ARG B=x:1\nFROM $B", ["x:1"]),
        ("ARG IMAGE_BASE=x:1\nFROM ${IMAGE_BASE}\nARG IMAGE_BASE=y", ["given:2"]),
        ("ARG B\nFROM ${B:-z:3}", ["z:3"]),
        ("ARG B=\"q:1\"\nfrom '${B}' as one\nFROM one\nFROM scratch", ["q:1"]),
        ("FROM --platform=linux/amd64 a AS b\nFROM c\nCOPY --from=b / /\nFROM a", ["a", "c"]),
        ("FROM scratch\nCOPY x /", []),
        ("ARG T=3.11\nARG B=python:${T}-slim\nFROM ${B}", ["python:3.11-slim"]),
        ("ARG B='a:1'\nARG C=$B\nFROM $C", ["a:1"]),
        ("ARG T=1\nARG IMAGE_BASE=x:$T\nFROM ${IMAGE_BASE}", ["given:2"]),
        ("FROM a\nRUN python -c '\\\nfrom b import c; \\\narg d'", ["a"]),
        ("FROM a\nRUN x \\  \n# from b\n\n  # from c\nfrom d\nFROM e", ["a", "e"]),
        ("FROM \\\n  --platform=linux/amd64 \\\n  a AS b\nFROM b", ["a"]),
        # Escaped itself, it escapes no end of a line.
        ("FROM a\nRUN echo \\\\\nFROM b", ["a", "b"]),
        ("# syntax=x/y:1\n# Escape = `\nFROM a\nCOPY . C:\\\nRUN x `\nfrom c\nFROM b", ["a", "b"]),
        ("# By hand.\n# escape=`\nFROM a\nRUN x \\\nfrom b", ["a"]),
    ],
)
def test_the_images_that_a_recipe_begins_from(dockerfile, expected):
    assert base_images(dockerfile, {"IMAGE_BASE": "given:2"}) == expected


@pytest.mark.parametrize(
    "run",
    [
        "RUN <<EOF\nfrom b import c\nEOF",
        "run python3 <<'EOF' > /x\n# here\n\nfrom b import c \\\nEOF",
        'RUN <<"E F" sh\nfrom b\nE F',
        "RUN <<\\EOF\nfrom b\nEOF",
        "RUN <<-EOF\n\tfrom b\n\tEOF",
        "RUN <<EOF\n\tEOF\nfrom b\nEOF",
        "RUN 3<<ONE \\\n  <<-TWO cat\nfrom b\nTWO\nfrom b\nONE\nfrom b\n\tTWO",
        "COPY --chmod=755 <<EOF /x\nfrom b\nEOF",
        "ONBUILD ADD <<EOF /x\nfrom b\nEOF",
        "RUN <<EOF\r\nfrom b\r\nEOF\r",
        # None of these begins one.
        "RUN echo '<<EOF'",
        "RUN echo $((1<<2)) 1 << 2",
        "RUN cat <<<EOF",
        'RUN ["cat", "<<EOF"]',
        "ENV X <<EOF",
    ],
)
def test_the_lines_of_a_here_document_are_no_instructions(run):
    assert base_images(f"FROM a\n{run}\nFROM d", {}) == ["a", "d"]


def test_a_from_without_an_image_is_refused():
    with pytest.raises(JobSpecError, match=r"FROM \$B in elastic.Dockerfile names no image"):
        base_images("ARG B\nFROM $B", {})


def test_the_recipe_of_elastic_begins_from_the_image_that_is_asked_for(tmp_path):
    recipe = dockerfile_of(tmp_path)
    assert base_images(recipe, {}) == ["python:3.11-slim"]
    assert base_images(recipe, {"IMAGE_BASE": "mine:1"}) == ["mine:1"]
    (tmp_path / "elastic.Dockerfile").write_text("FROM other")
    assert base_images(dockerfile_of(tmp_path), {}) == ["other"]


def test_a_base_without_elastic_is_no_reason_to_warn(tmp_path):
    [command] = re.findall(r"python -m (pip uninstall .*) elastic ", dockerfile_of(tmp_path))
    argv = [sys.executable, "-m", *command.split(), "elastic-that-nobody-has"]
    said = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert (said.stdout, said.stderr) == ("", "")


def test_a_recipe_that_cannot_be_read_is_named(zoo, as_nobody):
    recipe = zoo / "elastic.Dockerfile"
    recipe.write_bytes("# Für alle\nFROM a\n".encode("latin-1"))
    with pytest.raises(JobSpecError, match=r"zoo/elastic.Dockerfile is not UTF-8: .*: save it as"):
        dockerfile_of(zoo)
    recipe.chmod(0)
    words = r"^zoo/elastic.Dockerfile cannot be read for the image \(Permission denied\): make it"
    with as_nobody(zoo.parent), pytest.raises(JobSpecError, match=words):
        dockerfile_of(Path("zoo"))


def test_everything_that_makes_an_image_is_in_its_tag():
    def tag(content=b"files", args=None, bases=("id",)):
        file = io.BytesIO(content)
        found = content_tag(file, args or {"A": "1", "B": "2"}, bases)
        assert file.tell() == 0
        return found

    assert tag() == tag(args={"B": "2", "A": "1"})
    others = [tag(b"file"), tag(args={"A": "1"}), tag(args={"A": "1", "B": "3"}), tag(bases=())]
    assert len({tag(), *others}) == 5


def test_names_of_images():
    def reference(repository):
        return ImageRequest(Path(), repository=repository).reference("abc")

    assert reference("") == "elastic:abc"
    assert reference("127.0.0.1:5000") == "127.0.0.1:5000/elastic:abc"
    assert reference("registry.example.com/team/") == "registry.example.com/team/elastic:abc"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"model_zoo": Path("/no/such")}, "--model_zoo /no/such is no folder"),
        ({"repository": "https://r.example.com/x"}, "is 'https://r.example.com/x': write HOST/P"),
        ({"repository": "r.example.com/Team"}, "is 'r.example.com/Team': write HOST/PATH"),
        ({"repository": "r.example.com/x:tag"}, "is 'r.example.com/x:tag': write HOST/PATH"),
        ({"pull_policy": "Always"}, "nodes pull it from a registry: name a repository, or"),
    ],
)
def test_what_could_not_run_is_refused(tmp_path, settings, expected):
    with pytest.raises(JobSpecError) as caught:
        ImageRequest(**{"model_zoo": tmp_path} | settings).check()
    assert expected in str(caught.value)


@pytest.mark.parametrize("repository", ["127.0.0.1:5000", "R.example.com/a/b_c", "user", "r:5/x"])
def test_repositories_that_can_be_used(tmp_path, repository):
    ImageRequest(tmp_path, repository=repository, pull_policy="Always").check()


def test_a_job_says_what_image_it_wants(zoo):
    spec = JobSpec(
        model_zoo=zoo, model_def="tiny.model.CustomModel", training_data_dir="d",
        minibatch_size=1, image_base="b:1",
        docker_image_repository="r:5000/team", extra_pypi_index="https://index.example.com",
        docker_base_url="tcp://e:2376", docker_tlscacert="ca", docker_tlscert="c",
        docker_tlskey="k", image_pull_policy="Never",
    )  # fmt: skip
    request = ImageRequest.of(spec)
    assert request == ImageRequest(
        zoo, "b:1", "r:5000/team", "https://index.example.com", "tcp://e:2376", "ca", "c", "k",
        "Never", Framework("torch", "torch>=2.4"),
    )  # fmt: skip
    assert request.args == {
        "IMAGE_BASE": "b:1",
        "EXTRA_PYPI_INDEX": "https://index.example.com",
        "FRAMEWORK": "torch",
        "FRAMEWORK_REQUIREMENT": "torch>=2.4",
    }
