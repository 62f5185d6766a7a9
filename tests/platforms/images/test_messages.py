"""What an engine says, word for word as engines say it."""

import pytest

from elastic.errors import ImageError
from elastic.platforms.images.build import KEPT_LINES, BuildOutput, TransferOutput, size_text
from elastic.spec.status import ImageProgress


def told(output, *messages):
    return [progress for message in messages for progress in output.read(message)]


def stream(text):
    return {"stream": text}


def test_a_build_tells_steps_that_run_and_hides_those_that_are_cached():
    found = told(
        BuildOutput("x:1"),
        stream("Step 1/2 : FROM a\n"),
        stream(" ---> 7506a6ab7839\n"),
        stream("Step 2/2 : RUN pip install     six\n"),
        stream(" ---> Running in 14fb245ac0be\n"),
        stream("\x1b[91mCollecting six\x1b[0m\n"),
        stream("Removing intermediate container 14fb245ac0be\n"),
        {"aux": {"ID": "sha256:0ff98859774b"}},
        stream("Successfully built 0ff98859774b\n"),
    )
    assert found == [
        ImageProgress("FROM a", 0.0, is_detail=True),
        ImageProgress("RUN pip install six", 0.5, is_detail=True),
        ImageProgress("step 2 of 2: RUN pip install six", 0.5),
        ImageProgress("Collecting six", 0.5, is_detail=True),
    ]


def failure(output):
    error = "The command '/bin/sh -c x' returned a non-zero code: 2"
    with pytest.raises(ImageError) as caught:
        output.read({"errorDetail": {"code": 2, "message": error}, "error": error})
    return str(caught.value).splitlines()


def test_a_failed_step_keeps_its_last_lines_only():
    output = BuildOutput("x:1")
    told(output, stream("Step 1/2 : RUN before\n"), stream("of another step\n"))
    told(output, stream("Step 2/2 : RUN python -m pip install -r a\n"))
    assert failure(output)[2:-1] == []
    told(output, *(stream(f"line {number}\n") for number in range(KEPT_LINES + 5)))
    lines = failure(output)
    assert lines[0] == "x:1 cannot be built: step 2 of 2 ended with exit code 2"
    assert lines[1] == "  RUN python -m pip install -r a"
    assert lines[2:-1] == [f"  | line {number}" for number in range(5, KEPT_LINES + 5)]
    assert lines[-1].startswith("choose an --image_base that has Python 3.11 or later")


@pytest.mark.parametrize(
    ("cause", "advice"),
    [
        ("dockerfile parse error line 3", "x:1 cannot be built: dockerfile parse error line 3"),
        ("write /a: no space left on device", "docker image prune"),
        ("COPY failed: no source files were specified", "mend the step, or choose another --image"),
    ],
)
def test_other_ways_to_fail(cause, advice):
    output = BuildOutput("x:1")
    if "parse" not in cause:
        told(output, stream("Step 3/9 : COPY a b\n"))
    with pytest.raises(ImageError) as caught:
        output.read({"error": cause})
    assert cause in str(caught.value)
    assert advice in str(caught.value).splitlines()[-1]


def test_a_transfer_adds_its_layers_up():
    def layer(name, **detail):
        return {"status": "Pushing", "id": name, "progressDetail": detail}

    output = TransferOutput("pushing", "r/x:1")
    found = told(
        output,
        {"status": "The push refers to repository [r/x]"},
        {"status": "Preparing", "id": "a", "progressDetail": {}},
        layer("a", current=500_000, total=2_000_000),
        layer("b", current=1_000_000, total=1_000_000),
        # More than was thought: layers are measured before they are packed.
        layer("a", current=3_000_000, total=2_000_000),
        {"status": "Layer already exists", "progressDetail": {}, "id": "c"},
        {"aux": {"Tag": "1", "Digest": "sha256:0", "Size": 1}},
    )
    assert [progress.text for progress in found] == [
        "pushing r/x:1: 500.0 kB of 2.0 MB",
        "pushing r/x:1: 1.5 MB of 3.0 MB",
        "pushing r/x:1: 4.0 MB of 4.0 MB",
    ]
    assert [progress.fraction for progress in found] == [0.25, 0.5, 1.0]


@pytest.mark.parametrize(
    ("verb", "image", "cause", "advice"),
    [
        ("pushing", "r.io/x:1", "denied: requested access to the resource is denied",
         "run `docker login r.io`, or choose a --docker_image_repository that you may use"),
        ("pushing", "user/x:1", "denied: requested access to the resource is denied",
         "run `docker login docker.io`, or choose a --docker_image_repository that you may use"),
        ("pushing", "index.docker.io/user/x:1", "unauthorized: incorrect username or password",
         "run `docker login docker.io`, or choose a --docker_image_repository that you may use"),
        ("pulling", "user/x", "dial tcp: i/o timeout",
         "check that the Docker engine reaches docker.io, or choose another --image_base"),
        ("pushing", "localhost/a/x:1", "unauthorized",
         "run `docker login localhost`, or choose a --docker_image_repository that you may use"),
        ("pulling", "x:1", "pull access denied for x, repository does not exist or may require",
         "run `docker login docker.io`, or choose a --image_base that you may use; a private "
         "registry says the same of an image that does not exist"),
        ("pulling", "r.io/x:1", "manifest for r.io/x:1 not found: manifest unknown",
         "check the name and the tag of --image_base"),
        ("pushing", "r:80/x:1", "http: server gave HTTP response to HTTPS client",
         "the registry speaks no TLS: add r:80 to the engine's insecure-registries"),
        ("pushing", "r:80/x:1", "dial tcp: lookup r: no such host",
         "check that the Docker engine reaches r:80, or choose another --docker_image_repository"),
    ],
)  # fmt: skip
def test_what_a_refusal_means(verb, image, cause, advice):
    with pytest.raises(ImageError) as caught:
        TransferOutput(verb, image).read({"errorDetail": {"message": cause}, "error": cause})
    what = "pushed" if verb == "pushing" else "pulled"
    assert str(caught.value) == f"{image} cannot be {what}: {cause}\n{advice}"


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 bytes"), (999, "999 bytes"), (1000, "1.0 kB"), (3.2e9, "3.2 GB")]
)
def test_sizes(size, text):
    assert size_text(size) == text
