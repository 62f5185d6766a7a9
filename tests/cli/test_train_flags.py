import pytest
import yaml

from elastic.spec.job import JobSpec
from elastic.spec.yaml_text import load_value

REQUIRED = (
    "--model_zoo=zoo",
    "--model_def=mnist.CustomModel",
    "--training_data_dir=data/train",
    "--minibatch_size=10",
    "--job_name=test",
)

CLASSIC = (
    "--model_zoo=model_zoo",
    "--model_def=mnist_subclass.mnist_subclass.CustomModel",
    "--image_base=elasticdl:ci",
    "--training_data_dir=/data/mnist/train",
    "--evaluation_data_dir=/data/mnist/test",
    "--num_epochs=1",
    "--master_resource_request=cpu=1,memory=512Mi",
    "--master_resource_limit=cpu=1,memory=512Mi",
    "--worker_resource_request=cpu=1,memory=1024Mi",
    "--worker_resource_limit=cpu=1,memory=1024Mi",
    "--minibatch_size=10",
    "--records_per_task=100",
    "--num_workers=2",
    "--checkpoint_steps=2",
    "--grads_to_wait=2",
    "--job_name=test",
    "--image_pull_policy=Never",
    "--log_level=INFO",
    "--envs=e1=v1,e2=v2",
)
"""The command of ElasticDL's overview, word for word."""

ELASTICDL_FLAGS = """
    model_zoo job_name model_def minibatch_size records_per_task
    docker_image_repository docker_image_prefix image_base extra_pypi_index docker_base_url
    docker_tlscert docker_tlskey
    num_workers master_resource_request worker_resource_request master_resource_limit
    worker_resource_limit master_pod_priority worker_pod_priority volume image_pull_policy
    restart_policy envs namespace cluster_spec
    dataset_fn eval_metrics_fn loss optimizer callbacks custom_data_reader data_reader_params
    model_params prediction_outputs_processor
    num_epochs grads_to_wait training_data_dir evaluation_data_dir evaluation_steps
    evaluation_throttle_secs evaluation_start_delay_secs checkpoint_steps checkpoint_dir
    keep_checkpoint_max checkpoint_filename_for_init output tensorboard_log_dir use_async
    lr_staleness_modulation get_model_steps log_level
""".split()  # noqa: SIM905 - in the groups of ElasticDL's own documents


@pytest.fixture
def resolved(run):
    """The JobSpec that a command line stands for."""

    def resolve(*argv):
        code, out, err = run("train", *argv, "--dry_run")
        assert code == 0, err
        return JobSpec(**load_value(out))

    return resolve


def test_the_classic_command_runs_as_written(resolved):
    spec = resolved(*CLASSIC)
    assert spec.model_def == "mnist_subclass.mnist_subclass.CustomModel"
    assert spec.envs == {"e1": "v1", "e2": "v2"}
    assert (spec.num_workers.minimum, spec.num_workers.maximum) == (2, 2)
    assert (spec.grads_to_wait, spec.checkpoint_steps, spec.records_per_task) == (2, 2, 100)
    assert spec.worker_resource_limit == "cpu=1,memory=1024Mi"
    assert spec.image_pull_policy == "Never"


@pytest.mark.parametrize("name", ELASTICDL_FLAGS)
def test_every_elasticdl_flag_is_known_in_both_spellings(run, name):
    for flag in (f"--{name}", f"--{name.replace('_', '-')}"):
        # An empty value is wrong for some, and no flag is unknown.
        _, _, err = run("train", f"{flag}=", "--dry_run")
        assert "unknown flag" not in err


@pytest.mark.parametrize(
    "argv",
    [
        ("--num_epochs=3",),
        ("--num-epochs=3",),
        ("--num_epochs", "3"),
        ("--num-epochs", "3"),
        ("--num_epochs=2", "--num_epochs=3"),
    ],
)
def test_values_follow_after_an_equals_sign_or_a_space(resolved, argv):
    assert resolved(*REQUIRED, *argv).num_epochs == 3


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ((), False),
        (("--use_async",), True),
        (("--use-async", "--num_epochs=2"), True),
        *(((f"--use_async={text}",), True) for text in ("true", "True", "1", "yes")),
        *(((f"--use_async={text}",), False) for text in ("false", "False", "0", "no")),
        (("--use_async", "False"), False),
        (("--no-use-async",), False),
        (("--no_use_async",), False),
    ],
)
def test_truth_flags_are_typed(resolved, argv, expected):
    assert resolved(*REQUIRED, *argv).use_async is expected


def test_a_true_default_can_be_turned_off(resolved):
    assert resolved(*REQUIRED, "--shuffle=none").shuffle == "none"


@pytest.mark.parametrize(
    ("flag", "name", "expected"),
    [
        ("--init_from=c", "checkpoint_filename_for_init", "c"),
        ("--workers=1:3", "num_workers", None),
        ("--name=other", "job_name", "other"),
        ("--docker_image_prefix=reg/x", "docker_image_repository", "reg/x"),
        ("--training-data=/d", "training_data_dir", "/d"),
    ],
)
def test_aliases(resolved, flag, name, expected):
    value = getattr(resolved(*REQUIRED, flag), name)
    assert value == expected if expected else str(value) == "1:3"


def test_repeated_mappings_add_up(resolved):
    spec = resolved(*REQUIRED, "--envs=A=1,2", "--envs", "B=3", "--model-params=x=[1,2]")
    assert spec.envs == {"A": "1,2", "B": "3"}
    assert spec.model_params == {"x": [1, 2]}


def test_repeated_names_add_up(resolved, zoo):
    flags = ("--env_secret=keys", "--env-secret", "more,others")
    assert resolved(*REQUIRED, *flags).env_secret == ("keys", "more", "others")
    (zoo / "job.yaml").write_text("env_secret: [keys, more]\n")
    assert resolved(*REQUIRED, "--config=job.yaml").env_secret == ("keys", "more")


def test_a_value_may_begin_with_a_minus(resolved):
    assert resolved(*REQUIRED, "--model_params", "x=-1").model_params == {"x": -1}


def test_flags_win_over_the_file_over_the_defaults(resolved, tmp_path):
    (tmp_path / "job.yaml").write_text(
        "num-epochs: 5\nrecords_per_task: 50\nworkers: 2:8\nmodel_params: {a: 1e-3}\n"
    )
    spec = resolved(*REQUIRED, "--config", tmp_path / "job.yaml", "--records_per_task=70")
    assert (spec.num_epochs, spec.records_per_task, spec.grads_to_wait) == (5, 70, None)
    assert str(spec.num_workers) == "2:8"
    assert spec.model_params == {"a": 0.001}


def test_a_dry_run_can_be_run_again_as_a_job_file(run, zoo):
    argv = ("train", *REQUIRED, "--platform=local", "--workers=1:2", "--envs=A=1,2", "--dry-run")
    _, first, _ = run(*argv)
    (zoo / "again.yaml").write_text(first)
    code, second, _ = run("train", "--config=again.yaml", "--dry_run")
    assert (code, second) == (0, first)
    assert yaml.safe_load(first)["num_workers"] == "1:2"


def test_the_environment_may_name_the_platform(resolved, monkeypatch):
    monkeypatch.setenv("ELASTIC_PLATFORM", "local")
    assert resolved(*REQUIRED).platform == "local"
    assert resolved(*REQUIRED, "--platform=kubernetes").platform == "kubernetes"


def test_local_paths_are_written_from_the_root(resolved, zoo, monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    (zoo / "data").mkdir(exist_ok=True)
    spec = resolved(
        "--platform=local", "--model_zoo=zoo", "--model_def=mnist.CustomModel",
        "--minibatch_size=1", "--training_data_dir=data", "--evaluation_data_dir=later/*.csv",
        "--output=~/model", "--checkpoint_dir=ckpt", "--commit_log=/log", "--init_from=old",
    )  # fmt: skip
    assert str(spec.model_zoo) == f"{zoo}/zoo"
    assert spec.training_data_dir == f"{zoo}/data"
    assert spec.evaluation_data_dir == f"{zoo}/later/*.csv"
    assert spec.output == "/home/me/model"
    assert spec.checkpoint_dir == f"{zoo}/ckpt"
    assert spec.commit_log == "/log"
    assert spec.checkpoint_filename_for_init == f"{zoo}/old"
    assert spec.tensorboard_log_dir == ""


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("later/a.csv,data", "{zoo}/later/a.csv,{zoo}/data"),
        ('"later/a,b.csv", /c.csv', '"{zoo}/later/a,b.csv",/c.csv'),
        ("s3://bucket/a.csv,later/a.csv", "s3://bucket/a.csv,{zoo}/later/a.csv"),
        ("odd,name.csv", "{zoo}/odd,name.csv"),
    ],
)
def test_each_of_several_sources_is_written_from_the_root(resolved, zoo, source, expected):
    for name in ("data", "odd,name.csv"):
        (zoo / name).mkdir(exist_ok=True)
    flags = (*REQUIRED, f"--training_data_dir={source}", "--platform=local")
    assert resolved(*flags).training_data_dir == expected.format(zoo=zoo)


@pytest.mark.parametrize(
    "source", ["synthetic:1000", "table", "odps://project/table", "table, other", "SELECT a,,b"]
)
def test_a_source_that_is_no_path_is_left_alone(resolved, zoo, source):
    flags = (*REQUIRED, f"--training_data_dir={source}", "--platform=local")
    assert resolved(*flags).training_data_dir == source


def test_paths_on_kubernetes_are_those_of_the_image(resolved):
    assert str(resolved(*REQUIRED).model_zoo) == "zoo"


@pytest.mark.parametrize(
    ("model_def", "start"),
    [("a.Mnist_Sub.Model", "mnist-sub-"), ("_9.f", "job-"), ("m" * 60 + ".f", "m" * 35 + "-")],
)
def test_a_job_without_a_name_gets_one(resolved, model_def, start):
    names = {resolved(*REQUIRED[:-1], f"--model_def={model_def}").job_name for _ in range(2)}
    assert all(name.startswith(start) and len(name) == len(start) + 4 for name in names)
    assert len(names) == 2
