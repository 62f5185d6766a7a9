"""Images of a real engine, pushed to a real registry."""

import json
import time
import urllib.request

import pytest
from support.docker_doors import DenyingRegistry, http_server, package_index

from elastic.errors import ImageError
from elastic.platforms.images import ImageRequest, build_and_push
from elastic.platforms.images.build import build
from elastic.platforms.images.context import Framework

from .conftest import build as make
from .conftest import gateway, has

pytestmark = pytest.mark.cluster


class Told(list):
    """Collects what is told."""

    def steps(self):
        return [progress.text for progress in self if not progress.is_detail]

    def __call__(self, progress):
        self.append(progress)


def manifest(reference):
    """What the registry holds under a reference."""
    host, _, rest = reference.partition("/")
    name, _, tag = rest.rpartition(":")
    url = f"http://{host}/v2/{name}/manifests/{tag}"
    accept = {"Accept": "application/vnd.docker.distribution.manifest.v2+json"}
    with urllib.request.urlopen(urllib.request.Request(url, headers=accept)) as reply:
        return json.load(reply)


def layers(lab, reference):
    return lab.client.inspect_image(reference)["RootFS"]["Layers"]


def in_container(lab, image, command, **host):
    """Output of a command in a container of the image, which has no network."""
    options = lab.client.create_host_config(network_mode="none", **host)
    container = lab.client.create_container(image, command, host_config=options)["Id"]
    try:
        lab.client.start(container)
        code = lab.client.wait(container, timeout=300)["StatusCode"]
        text = lab.client.logs(container).decode()
    finally:
        lab.client.remove_container(container, force=True)
    assert code == 0, text
    return text


@pytest.fixture(scope="module")
def trained(lab, tmp_path_factory):
    """An image of the recipe that elastic brings, with a model in it."""
    from .conftest import MODEL

    zoo = tmp_path_factory.mktemp("zoo")
    (zoo / "tiny.py").write_text(MODEL)
    (zoo / "private.py").write_text("secret = 1\n")
    (zoo / "private.py").chmod(0o600)
    (zoo / "make_data.py").write_text(
        "import numpy, sys\n"
        "numpy.savez(sys.argv[1], x=numpy.linspace(0, 1, 64, dtype='float32')[:, None])\n"
    )
    return build(ImageRequest(zoo, image_base=lab.base), Told())


def test_the_image_runs_this_elastic_as_nobody(lab, trained):
    config = lab.client.inspect_image(trained)["Config"]
    assert config["User"] == "65532:65532"
    program = "import os, elastic, sys, private; print(os.getuid(), elastic.__version__)"
    environment = {"PYTHONPATH": "/model_zoo"}
    container = ["env", *(f"{k}={v}" for k, v in environment.items()), "python", "-P", "-c"]
    assert in_container(lab, trained, [*container, program]).split() == ["65532", "0.1.0"]


def test_a_job_trains_in_the_image(lab, trained):
    """All that a pod needs is there, for a user who may write nowhere but in /tmp."""
    flags = (
        "--platform local --model_zoo /model_zoo --model_def tiny.CustomModel --num_epochs 2 "
        "--minibatch_size 16 --training_data_dir /tmp/data.npz --job_name inside"
    )
    script = f"python /model_zoo/make_data.py /tmp/data.npz && elastic train {flags}"
    text = in_container(
        lab, trained, ["sh", "-c", script], read_only=True, tmpfs={"/tmp": "mode=1777"}
    )
    assert "job inside: Succeeded" in text
    assert "128 records" in text


def test_unchanged_content_is_neither_built_nor_pushed_again(lab, small_zoo):
    request = ImageRequest(small_zoo, repository=lab.repository, pull_policy="Always")
    first = Told()
    reference = build_and_push(request, first)
    assert reference.startswith(f"{lab.repository}/elastic:")
    assert len(manifest(reference)["layers"]) == 1
    assert [text.split(" ")[0] for text in first.steps()] == [
        "building",
        "built",
        "pushing",
        "pushed",
    ]
    begin_ns = time.time_ns()
    again = Told()
    assert build_and_push(request, again) == reference
    assert again.steps() == [f"{reference} is in its registry already"]
    assert events_of(lab, reference, begin_ns) == []
    # What is looked for is there when something is done.
    (small_zoo / "tiny" / "model.py").write_text("EDIT = 1\n")
    edited = build_and_push(request, Told())
    assert edited != reference
    assert events_of(lab, edited, begin_ns) == ["push", "tag"]


def events_of(lab, reference, begin_ns):
    """What the engine itself says it has done with an image, looking at it left out."""
    until_s = int(time.time()) + 1
    events = lab.client.events(since=begin_ns // 10**9, until=until_s, decode=True)
    return sorted(
        event["Action"]
        for event in events
        if reference in json.dumps(event)
        and event["timeNano"] >= begin_ns
        and event["Action"] != "pull"
    )


def test_an_image_that_only_the_registry_has_is_left_there(lab, small_zoo):
    request = ImageRequest(small_zoo, repository=lab.repository)
    reference = build_and_push(request, Told())
    lab.client.remove_image(reference, force=True)
    assert build_and_push(request, Told()) == reference
    assert not has(lab.client, reference)
    never = ImageRequest(small_zoo, repository=lab.repository, pull_policy="Never")
    told = Told()
    assert build_and_push(never, told) == reference
    assert has(lab.client, reference)
    assert not any(text.startswith("pushing") for text in told.steps())


def test_without_a_repository_nothing_is_pushed(lab, small_zoo):
    told = Told()
    reference = build_and_push(ImageRequest(small_zoo, pull_policy="Never"), told)
    assert reference.startswith("elastic:")
    assert has(lab.client, reference)
    assert not any("push" in text for text in told.steps())
    again = Told()
    assert build_and_push(ImageRequest(small_zoo, pull_policy="Never"), again) == reference
    assert again.steps() == [f"{reference} is built already"]


def test_much_data_in_a_model_zoo_is_told(lab, small_zoo):
    with (small_zoo / "train.npz").open("wb") as file:
        file.truncate(101 * 1024 * 1024)
    told = Told()
    build(ImageRequest(small_zoo), told)
    assert told.steps()[0].endswith(
        ": 3 files, 105.9 MB; the largest is train.npz with 105.9 MB: "
        "name data in .dockerignore and mount it with --volume"
    )


def test_an_edit_of_the_model_makes_one_new_layer(lab, zoo):
    request = ImageRequest(zoo, image_base=lab.base)
    before = build(request, Told())
    (zoo / "tiny" / "model.py").write_text((zoo / "tiny" / "model.py").read_text() + "\nEDIT = 1\n")
    told = Told()
    begin_s = time.monotonic()
    after = build(request, told)
    took_s = time.monotonic() - begin_s
    assert layers(lab, after)[:-1] == layers(lab, before)[:-1]
    assert layers(lab, after)[-1] != layers(lab, before)[-1]
    # No step was run: all but the last come from the engine's cache.
    assert [text.split(" ")[0] for text in told.steps()] == ["building", "built"]
    print(f"rebuilt after an edit in {took_s:.2f} s")
    assert took_s < 10


def test_requirements_of_the_model_are_installed_from_a_further_index(lab, zoo, tmp_path):
    (zoo / "requirements.txt").write_text("elastic_test_extra==7.0\n-c constraints.txt\n")
    (zoo / "constraints.txt").write_text("elastic_test_extra<8\n")
    index = package_index(tmp_path, elastic_test_extra="7.0")
    with http_server(index, gateway(lab.client)) as address:
        request = ImageRequest(zoo, image_base=lab.base, extra_pypi_index=f"http://{address}/")
        image = build(request, Told())
    assert "7.0" in in_container(lab, image, ["python", "-m", "pip", "show", "elastic_test_extra"])


def test_a_framework_that_the_base_lacks_is_installed(lab, zoo, tmp_path):
    module = "elastic_test_framework"
    framework = Framework(module, f"{module}>=2")
    index = package_index(tmp_path, **{module: "2.5"})
    with http_server(index, gateway(lab.client)) as address:
        url = f"http://{address}/"
        request = ImageRequest(zoo, image_base=lab.base, extra_pypi_index=url, framework=framework)
        image = build(request, Told())
    in_container(lab, image, ["python", "-c", f"import {module}"])


def test_a_framework_that_the_base_has_is_left_alone(lab, zoo):
    """`tensorflow-cpu` must not be put on top of a base's `tensorflow`."""
    framework = Framework("torch", "no-such-package-of-elastic")
    build(ImageRequest(zoo, image_base=lab.base, framework=framework), Told())


def test_a_framework_that_cannot_be_had_is_told(lab, zoo):
    framework = Framework("elastic_no_such", "no-such-package-of-elastic")
    with pytest.raises(ImageError) as caught:
        build(ImageRequest(zoo, image_base=lab.base, framework=framework), Told())
    advice = str(caught.value).splitlines()[-1]
    assert advice.startswith("choose an --image_base that has the model's framework, or name it")


def test_a_failed_step_is_told_with_its_last_words(lab, zoo):
    (zoo / "requirements.txt").write_text("no-such-package-of-elastic==1\n")
    with pytest.raises(ImageError) as caught:
        build(ImageRequest(zoo, image_base=lab.base), Told())
    first, instruction, *output, advice = str(caught.value).splitlines()
    assert "cannot be built: step 12 of " in first
    assert first.endswith("ended with exit code 1")
    assert instruction.startswith("  RUN python -m pip install")
    assert any("No matching distribution found for no-such-package" in line for line in output)
    assert advice == "mend requirements.txt in the model_zoo, or pass --extra_pypi_index"


def test_requirements_that_contradict_those_of_elastic_are_refused(lab, zoo):
    (zoo / "requirements.txt").write_text("protobuf<6\n")
    with pytest.raises(ImageError) as caught:
        build(ImageRequest(zoo, image_base=lab.base), Told())
    assert "protobuf" in str(caught.value)
    assert "conflicting" in str(caught.value)


def test_a_base_without_python(lab, zoo):
    bare = f"{lab.base}-bare"
    make(lab.client, f"FROM pause:local\nLABEL {lab.label}\n", bare)
    with pytest.raises(ImageError) as caught:
        build(ImageRequest(zoo, image_base=bare), Told())
    assert "choose an --image_base that has Python 3.11" in str(caught.value)


def test_a_base_that_does_not_exist(lab, zoo):
    base = f"{lab.registry}/no/such:1"
    with pytest.raises(ImageError) as caught:
        build(ImageRequest(zoo, image_base=base), Told())
    assert str(caught.value).startswith(f"{base} cannot be pulled: ")
    assert "check the name and the tag of --image_base" in str(caught.value)


def test_a_base_is_pulled_where_the_engine_lacks_it(lab, small_zoo):
    base = build_and_push(ImageRequest(small_zoo, repository=lab.repository), Told())
    lab.client.remove_image(base, force=True)
    recipe = "ARG IMAGE_BASE\nFROM ${IMAGE_BASE}\nCOPY model_zoo/ /more/\n"
    (small_zoo / "elastic.Dockerfile").write_text(recipe)
    told = Told()
    image = build(ImageRequest(small_zoo, image_base=base), told)
    assert told.steps()[0] == f"pulling {base}"
    assert len(layers(lab, image)) == 2


def test_a_refused_push(lab, small_zoo):
    with http_server(DenyingRegistry) as address:
        request = ImageRequest(small_zoo, repository=f"{address}/team")
        with pytest.raises(ImageError) as caught:
            build_and_push(request, Told())
    image = str(caught.value).partition(" ")[0]
    assert image.startswith(f"{address}/team/elastic:")
    assert f"{image} cannot be pushed: " in str(caught.value)
    assert f"run `docker login {address}`, or choose a --docker_image_repository that you may" in (
        str(caught.value)
    )


def test_a_registry_that_is_not_there(lab, small_zoo):
    request = ImageRequest(small_zoo, repository="127.0.0.1:9/team")
    with pytest.raises(ImageError) as caught:
        build_and_push(request, Told())
    assert "cannot be pushed: " in str(caught.value)
    assert "check that the Docker engine reaches 127.0.0.1:9" in str(caught.value)
