import pytest
from cli.test_train_flags import REQUIRED
from support.scripted_platform import ScriptedPlatform

HELP = "\nhelp: elastic train --help"
LONG = "a" * 300


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (("--num_worker=3",), "unknown flag --num_worker: did you mean --num_workers?" + HELP),
        (("--batch-size", "3"), "unknown flag --batch_size: did you mean --minibatch_size?" + HELP),
        (("--feed=3",),
         "unknown flag --feed: name the function with --dataset_fn; it gets no third argument"
         + HELP),
        (("--strategy=ps",), "--strategy ps needs servers: give --num_ps 1 or more"),
        (("--strategy=master", "--num-ps-pods=2"),
         "--strategy master has no parameter servers, and --num_ps=2 asks for some: leave one of "
         "them out"),
        (("--distribution_strategy=AllreduceStrategy",),
         "--distribution_strategy is 'AllreduceStrategy': expected one of master, ps"),
        (("--qqq",), "unknown flag --qqq" + HELP),
        (("zoo", "stray"), "Got unexpected extra argument (stray)" + HELP),
        (("--num_epochs=x",),
         "--num_epochs is 'x': expected a whole number from 1 to 2147483647"),
        (("--num-epochs", "0"),
         "--num-epochs is '0': expected a whole number from 1 to 2147483647"),
        (("--num_epochs=2147483648",),
         "--num_epochs is '2147483648': expected a whole number from 1 to 2147483647"),
        (("--minibatch_size=9999999999",),
         "--minibatch_size is '9999999999': expected a whole number from 1 to 2147483647"),
        (("--num_workers=0",), "--num_workers is 0: allow at least one worker"),
        (("--resume", "--overwrite"),
         "--resume goes on from the job of that name, --overwrite removes it: "
         "leave one of them out"),
        (("--embedding_threshold=64Mb",),
         "--embedding_threshold: '64Mb' is no size like 64MiB or 1000000"),
        (("--workers=8:2",), "--workers: '8:2' has a minimum above its maximum: swap them"),
        (("--start_timeout=inf",), "--start_timeout is 'inf': expected a number above 0"),
        (("--start_timeout=x",), "--start_timeout is 'x': expected a number above 0"),
        (("--max_staleness=-1",), "--max_staleness is '-1': expected a whole number of at least 0"),
        (("--master_port=70000",),
         "--master_port is '70000': expected a whole number from 0 to 65535"),
        (("--log_level=loud",),
         "--log_level is 'loud': expected one of DEBUG, INFO, WARNING, ERROR, CRITICAL"),
        (("--platform=mars",), "--platform is 'mars': expected one of local, kubernetes"),
        (("--use_async=maybe",),
         "--use_async: 'maybe' is not one of true, false, yes, no, 1, 0"),
        (("--resume", "cuts/version-7"),
         "--resume: 'cuts/version-7' is not one of true, false, yes, no, 1, 0: it takes no path, "
         "and goes on from the newest checkpoint of the job that --job_name names; a FOLDER stands "
         "before it, and --init_from PATH begins with the parameters of another checkpoint"),
        (("--use_async", "--no-use-async"),
         "--use_async: --use_async and --no_use_async exclude each other"),
        (("--output", "--resume"),
         "--output needs a value, but --resume follows: write --output=VALUE"),
        (("--model_params=a",), "--model_params: 'a' in 'a' has no '=': write name=value"),
        (("--model_def=CustomModel",),
         "--model_def: 'CustomModel' is not of the form package.module.Symbol"),
        (("--restart_policy=Always",),
         "--restart_policy: 'Always' would restart failed workers in their pods, unseen by the "
         "master, which replaces and counts them: leave it out, and see max_worker_failures"),
        (("--restart_policy=always",),
         "--restart_policy is 'always': expected one of Never, OnFailure, Always"),
        (("--name=Test",),
         "--job_name: 'Test' must be lower-case letters, digits and '-', and begin with a letter"),
        (("--volume=a=b",),
         "--volume: 'a' in 'a=b' is unknown: "
         "use claim_name, host_path, mount_path, sub_path, type, read_only"),
        (("--use_async", "--grads_to_wait=2"),
         "grads_to_wait=2 has no meaning with use_async: leave one of them out"),
    ],
)  # fmt: skip
def test_a_wrong_flag_is_named_with_its_value(run, argv, expected):
    code, out, err = run("train", *REQUIRED, *argv, "--dry_run")
    assert (code, out, err) == (2, "", f"error: {expected}\n")


def test_what_is_missing_is_said_together(run):
    code, _, err = run("train", "--num_epochs=x")
    assert code == 2
    assert err == (
        "error: 5 settings cannot be used:\n"
        "  --model_zoo is missing: folder that holds the model's module\n"
        "  --model_def is missing: package.module.Symbol of the model, below --model_zoo\n"
        "  --training_data_dir is missing: files, folders, globs or addresses of the training "
        "records\n"
        "  --minibatch_size is missing: records of one gradient\n"
        "  --num_epochs is 'x': expected a whole number from 1 to 2147483647\n"
    )


def test_a_wrong_file_is_named_with_its_keys(run, tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(
        "num_epoch: 1\nqqq: 2\nname: a\njob-name: b\nnum_workers: [1]\nshuffle: 3\n"
        "loss: 4\noutput:\nmodel_params: 5\nminibatch_size: 1.5\n"
    )
    code, _, err = run("train", *REQUIRED[:-2], "--config", path)
    assert code == 2
    assert err.splitlines() == [
        "error: 9 settings cannot be used:",
        f"  {path}: unknown key num_epoch: did you mean num_epochs?",
        f"  {path}: unknown key qqq: `elastic train --help` lists the keys",
        f"  {path}: name and job-name are the same setting: leave one out",
        f"  {path}: model_params is 5: expected names with values",
        f"  {path}: loss is 4: expected text, so put it in quotes",
        f"  {path}: minibatch_size is 1.5: expected a whole number from 1 to 2147483647",
        f"  {path}: shuffle is 3: expected one of records, tasks, none",
        f"  {path}: num_workers is [1]: expected a number like 2 or a range like 2:8",
        f"  {path}: output is empty: leave it out, or give it text",
    ]


def test_the_environment_is_named(run, monkeypatch):
    monkeypatch.setenv("ELASTIC_PLATFORM", "mars")
    code, _, err = run("train", *REQUIRED)
    assert code == 2
    assert err == "error: ELASTIC_PLATFORM is 'mars': expected one of local, kubernetes\n"


def test_a_missing_value_is_said(run):
    code, _, err = run("train", "--num_epochs")
    assert code == 2
    assert err.startswith("error: Option '--num_epochs' requires an argument.")


def test_what_is_asked_in_vain_is_said_once(run):
    code, _, err = run(
        "train", *REQUIRED, "--platform=local", "--namespace=a", "--image-base=b",
        "--lr_staleness_modulation", "--dry_run",
    )  # fmt: skip
    assert code == 0
    assert err == (
        "note: unused with --platform local: --image-base, --namespace\n"
        "note: unused without --use_async: --lr_staleness_modulation\n"
    )


@pytest.mark.parametrize(
    ("argv", "notes"),
    [
        pytest.param(
            ("--evaluation_steps=5", "--evaluation_throttle_secs=9"),
            ["unused without --evaluation_data_dir: --evaluation_steps, "
             "--evaluation_throttle_secs"],
            id="nothing-to-evaluate",
        ),
        pytest.param(
            ("--evaluation_data_dir=d", "--evaluation_start_delay_secs=9"),
            ["unused without --evaluation_steps: --evaluation_start_delay_secs"],
            id="evaluated-at-the-end-alone",
        ),
        pytest.param(
            ("--evaluation_data_dir=d", "--evaluation_steps=5", "--evaluation_throttle_secs=9"), [],
            id="evaluated",
        ),
        pytest.param(
            ("--keep_checkpoint_max=3",),
            ["unused without --checkpoint_dir or --checkpoint_steps: --keep_checkpoint_max"],
            id="no-checkpoints",
        ),
        pytest.param(("--keep_checkpoint_max=3", "--checkpoint_steps=9"), [], id="checkpoints"),
        pytest.param(
            ("--platform=kubernetes", "--image=x", "--image_base=y", "--docker_image_prefix=z"),
            ["unused with --image: --docker_image_prefix, --image_base"],
            id="nothing-is-built",
        ),
    ],
)  # fmt: skip
def test_what_has_no_effect_without_something_else_is_said(run, argv, notes):
    code, _, err = run("train", *REQUIRED, "--platform=local", *argv, "--dry_run")
    assert code == 0
    said = [line.removeprefix("note: ") for line in err.splitlines()]
    assert [line for line in said if "volume" not in line] == notes


def test_nothing_is_said_of_defaults(run, zoo):
    code, out, err = run("train", *REQUIRED, "--platform=local", "--dry_run")
    assert (code, err) == (0, "")
    # A whole job as a file names them all.
    (zoo / "job.yaml").write_text(out)
    code, _, err = run("train", "--config=job.yaml", "--job_name=other", "--dry_run")
    assert (code, err) == (0, "")


def test_keys_of_elasticdl_are_answered_like_its_flags(run, zoo):
    (zoo / "job.yaml").write_text("num-minibatches-per-task: 8\n")
    code, _, err = run("train", *REQUIRED, "--config=job.yaml", "--dry_run")
    assert code == 2
    assert err == (
        "error: job.yaml: unknown key num-minibatches-per-task: give --records_per_task instead: "
        "as many minibatches times --minibatch_size\n"
    )


def test_a_minibatch_that_no_task_can_fill_is_said(run):
    argv = (*REQUIRED, "--platform=local", "--dry_run", "--minibatch_size=64")
    _, _, err = run("train", *argv, "--records_per_task=24")
    assert err == (
        "note: minibatch_size=64 is above records_per_task=24, and tasks hold whole "
        "minibatches: each has 64 records\n"
    )
    assert run("train", *argv, "--records_per_task=64")[2] == ""


def test_data_that_is_missing_is_said_before_there_is_a_job(run, zoo):
    platform = ScriptedPlatform()
    argv = (*REQUIRED, "--platform=local", "--training_data_dir=trian.csv")
    code, _, err = run("train", *argv, platform=platform)
    assert (code, platform.jobs()) == (1, [])
    assert err == (
        f"error: {zoo}/trian.csv does not exist: check the path; the replicas of "
        "a job look for it where they run\n"
    )


def test_a_list_of_files_may_be_longer_than_any_name(run, zoo):
    names = [f"part-{number:05}.csv" for number in range(20)]
    platform = ScriptedPlatform()
    argv = (*REQUIRED, "--platform=local", f"--training_data_dir={','.join(names)}")
    code, _, err = run("train", *argv, platform=platform)
    assert (code, platform.jobs()) == (1, [])
    assert err.startswith(f"error: {zoo}/{names[0]} does not exist: check the path")
    for name in names:
        (zoo / name).write_text("1,2\n")
    code, _, err = run("train", *argv, platform=platform)
    assert (code, platform.jobs()) == (0, ["test"]), err


@pytest.mark.parametrize(
    ("flag", "problem"),
    [
        (f"training_data_dir={LONG}", f"{{zoo}}/{LONG} does not exist: check the path"),
        (f"model_zoo={LONG}", f"--model_zoo {{zoo}}/{LONG} is not a folder"),
        (f"output={LONG}", f"--output={{zoo}}/{LONG} cannot be written: File name too long"),
        (
            "training_data_dir=~no-such-user/a",
            "~no-such-user/a begins with a home folder that is not known",
        ),
        ("output=~no-such-user/a", "~no-such-user/a begins with a home folder that is not known"),
    ],
)
def test_a_path_that_no_file_can_have_is_said(run, zoo, flag, problem):
    platform = ScriptedPlatform()
    _, _, err = run("train", *REQUIRED, "--platform=local", f"--{flag}", platform=platform)
    assert platform.jobs() == []
    assert err.startswith(f"error: {problem.format(zoo=zoo)}")


@pytest.mark.parametrize(
    ("flag", "problem"),
    [
        ("output=out", "is a folder: name a file, such as {zoo}/out/NAME"),
        ("commit_log=out", "is a folder: name a file, such as {zoo}/out/NAME"),
        ("output=out/m.savedmodel",
         "holds other files than a SavedModel: name a folder that is not there yet"),
        (f"output={LONG}/m.savedmodel",
         "cannot be written: File name too long: name another path"),
    ],
)  # fmt: skip
def test_what_stands_in_the_way_of_results_is_said_before_there_is_a_job(run, zoo, flag, problem):
    (zoo / "out" / "m.savedmodel").mkdir(parents=True)
    (zoo / "out" / "m.savedmodel" / "mine").touch()
    module = zoo / "zoo" / "mnist.py"
    if flag.endswith("savedmodel"):
        module.write_text(
            module.read_text().replace("torch", "keras").replace("(parameters)", "()")
        )
    platform = ScriptedPlatform()
    code, _, err = run("train", *REQUIRED, "--platform=local", f"--{flag}", platform=platform)
    assert (code, platform.jobs()) == (2, [])
    assert err == f"error: --{flag.replace('=', f'={zoo}/')} {problem.format(zoo=zoo)}\n"
    # In a cluster the path is one of the pods.
    code, _, err = run("train", *REQUIRED, "--platform=kubernetes", f"--{flag}", platform=platform)
    assert (code, platform.jobs()) == (0, ["test"]), err


def test_an_origin_for_the_user_s_own_reader_is_not_looked_for(run, zoo):
    module = zoo / "zoo" / "mnist.py"
    reader = "def custom_data_reader(data_origin, records_per_task):\n    return None\n"
    module.write_text(module.read_text() + reader)
    platform = ScriptedPlatform()
    argv = (*REQUIRED, "--platform=local", "--training_data_dir=table")
    assert run("train", *argv, platform=platform)[0] == 0
    assert platform.jobs() == ["test"]
