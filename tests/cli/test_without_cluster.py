"""Commands on a cluster, where there is none, or what they are to write cannot be written."""

import pytest

from elastic.cli.main import main

JOBS = ["--generate=equal_jobs", "--jobs=2"]


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("KUBECONFIG", raising=False)


@pytest.mark.parametrize(
    "argv",
    [
        ["install", "--apply"],
        ["install", "-n", "team", "--apply"],
        ["install", "-n", "team", "--controller"],
        ["plan", "--policy=fulfillment"],
        ["simulate", "--policy=fulfillment", "--from_cluster"],
    ],
)
def test_what_needs_a_cluster_says_how_to_name_one(argv, capsys):
    assert main(argv) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        "error: no Kubernetes cluster is configured (no file in $KUBECONFIG, no ~/.kube/config, "
        "no service account): name a --kubeconfig\n"
    )


def test_plots_into_what_is_no_folder_are_refused(tmp_path, capsys):
    file = tmp_path / "file"
    file.write_text("mine")
    assert main(["simulate", "--policy=fulfillment", *JOBS, f"--plots={file}"]) == 2
    assert "file' is a file" in capsys.readouterr().err
    assert main(["simulate", "--policy=fulfillment", *JOBS, f"--plots={file / 'plots'}"]) == 1
    assert (
        capsys.readouterr().err
        == f"error: --plots {file / 'plots'} cannot be made: Not a directory\n"
    )
    assert file.read_text() == "mine"
