import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from elastic.policy.fleet import desired_replicas
from elastic.spec.job import JobSpec, WorkerRange
from elastic.spec.model_def import SymbolNames
from elastic.spec.values import BatchRange

REQUIRED = {
    "model_zoo": "zoo",
    "model_def": "mnist.CustomModel",
    "training_data_dir": "train",
    "minibatch_size": 10,
}


def spec(**settings):
    return JobSpec(**REQUIRED | settings)


def problems(**settings):
    with pytest.raises(ValidationError) as caught:
        spec(**settings)
    return [str(item.get("ctx", {}).get("error", item["msg"])) for item in caught.value.errors()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("2", (2, 2)), (3, (3, 3)), ("2:8", (2, 8)), (" 0 : 4 ", (0, 4))],
)
def test_workers_are_a_number_or_a_range(text, expected):
    assert spec(num_workers=text).num_workers == WorkerRange(
        minimum=expected[0], maximum=expected[1]
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8:2", "'8:2' has a minimum above its maximum: swap them"),
        ("many", "'many' is neither a number like 2 nor a range like 2:8"),
        (-1, "-1 is neither a number like 2 nor a range like 2:8"),
        ("0", "--num_workers is 0: allow at least one worker"),
    ],
)
def test_unusable_workers_are_refused(text, expected):
    assert problems(num_workers=text) == [expected]


@pytest.mark.parametrize("value", [True, "true", "True", "YES", "1", 1])
def test_true_has_six_spellings(value):
    assert spec(use_async=value).use_async is True


@pytest.mark.parametrize("value", [False, "false", "False", "no", "0", 0])
def test_false_has_six_spellings(value):
    assert spec(use_async=value).use_async is False


@pytest.mark.parametrize("value", ["", "maybe", "on", 2, None, 1.0])
def test_nothing_else_is_true_or_false(value):
    assert problems(use_async=value) == [f"{value!r} is not one of true, false, yes, no, 1, 0"]


def test_true_is_no_number():
    assert problems(num_epochs=True) == ["true is not a number"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1,b=two", {"a": 1, "b": "two"}),
        ("a=1;b=2.5;", {"a": 1, "b": 2.5}),
        ("lr=1e-3", {"lr": 0.001}),
        ("sizes=[1,2],options={x: 1, y: [2]},z=true", {
            "sizes": [1, 2], "options": {"x": 1, "y": [2]}, "z": True,
        }),
        ("text='a,b;c',n=null", {"text": "a,b;c", "n": None}),
        ("text=don't,n=1", {"text": "don't", "n": 1}),
        ("when=2020-01-01,zone=2:8,zip=00501", {"when": "2020-01-01", "zone": "2:8", "zip": 501}),
        ("f=__import__('os')", {"f": "__import__('os')"}),
        ("url=http://h/p?a=b", {"url": "http://h/p?a=b"}),
        ("", {}),
    ],
)  # fmt: skip
def test_params_are_yaml_values_by_name(text, expected):
    assert spec(model_params=text).model_params == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1,b", "'b' in 'a=1,b' has no '=': write name=value"),
        ("1a=1", "'1a' in '1a=1' is not the name of an argument"),
        ("a=1,a=2", "'a' comes twice in 'a=1,a=2': leave one out"),
        ("a=[1,2", "'a=[1,2' has no closing ]"),
        ("a='x", "\"a='x\" has no closing '"),
        ("a=[}]", "a='[}]' is not a YAML value: close or quote it"),
        ({"a": {1: 2}}, "a has the key 1: keys must be text, so quote it"),
        ("a={1: 2}", "a has the key 1: keys must be text, so quote it"),
        ({"a": [{1}]}, "a is a set: only text, numbers, true, false, null, lists and mappings "
                       "can be passed on"),
    ],
)  # fmt: skip
def test_unusable_params_are_refused(text, expected):
    assert problems(model_params=text) == [expected]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("e1=v1,e2=v2", {"e1": "v1", "e2": "v2"}),
        ("e1=a,b,e2=c", {"e1": "a,b", "e2": "c"}),
        ("e1=a;b;e2=c", {"e1": "a;b", "e2": "c"}),
        ("N=4,FLAG=true,EMPTY=", {"N": "4", "FLAG": "true", "EMPTY": ""}),
        ("OPTS=--x --y=1", {"OPTS": "--x --y=1"}),
        ("", {}),
    ],
)
def test_envs_are_text_and_may_hold_commas(text, expected):
    assert spec(envs=text).envs == expected


def test_scalars_of_a_job_file_are_the_text_that_yaml_writes_for_them():
    given = {"N": 1, "RATE": 0.5, "FLAG": True, "TEXT": "a"}
    assert spec(envs=given).envs == {"N": "1", "RATE": "0.5", "FLAG": "true", "TEXT": "a"}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("novalue", "'novalue' in 'novalue' does not begin with NAME="),
        ("A=1,A=2", "'A' comes twice in 'A=1,A=2': leave one out"),
        ({"A": None}, "A is None, which is not text: put it in quotes"),
        ({"A": [1]}, "A is [1], which is not text: put it in quotes"),
    ],
)
def test_unusable_envs_are_refused(value, expected):
    assert problems(envs=value) == [expected]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("master_resource_request", "cpu=0.1,memory=1024Mi"),
        ("worker_resource_limit", "cpu=500m, memory=4G, gpu=1, nvidia.com/gpu=2, disk=1Gi"),
        ("volume", "claim_name=c,mount_path=/data;host_path=/d,mount_path=/e,sub_path=f"),
        ("worker_pod_priority", "high"),
        ("worker_pod_priority", "0.5"),
        ("worker_pod_priority", 0.5),
        ("namespace", "team-a"),
    ],
)
def test_cluster_forms_are_kept_as_text(name, value):
    assert getattr(spec(**{name: value}), name) == str(value)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("worker_resource_request", "cpu=lots", "cpu=lots is no amount of cpu: write 0.5 or 500m"),
        ("worker_resource_request", "memory=4 apples",
         "memory=4 apples is no amount of memory: write 512Mi or 4Gi"),
        ("worker_resource_request", "gpu=0.5", "gpu=0.5 is no amount of gpu: write 1"),
        ("worker_resource_request", "cpu", "'cpu' in 'cpu' is not of the form name=value"),
        ("worker_resource_request", "cpu=1,cpu=2",
         "'cpu' comes twice in 'cpu=1,cpu=2': leave one out"),
        ("worker_resource_request", "ram=1Gi",
         "'ram' in 'ram=1Gi' is no resource: use cpu, memory, disk, ephemeral-storage, gpu or a "
         "name like nvidia.com/gpu"),
        ("volume", "mount_path=/d", "'mount_path=/d' needs one of claim_name and host_path"),
        ("volume", "claim_name=c", "'claim_name=c' needs a mount_path that begins with '/'"),
        ("worker_pod_priority", "1.5",
         "1.5 is no fraction of the workers: write a number from 0 to 1"),
        ("master_pod_priority", "High!",
         "'High!' is no name of a priority class: use lower-case letters, digits, '-' and '.'"),
        ("namespace", "Team", "'Team' is no name of a namespace: use at most 63 lower-case "
         "letters, digits and '-'"),
    ],
)  # fmt: skip
def test_mistyped_cluster_forms_are_refused(name, value, expected):
    assert problems(**{name: value}) == [expected]


@pytest.mark.parametrize("value", ["keys, more", ["keys", "more"], "keys,more,keys"])
def test_secrets_are_named_by_text_or_by_a_list(value):
    assert spec(env_secret=value).env_secret == ("keys", "more")


@pytest.mark.parametrize("value", ["A_b", ["a,b"], [""]])
def test_mistyped_names_of_secrets_are_refused(value):
    [problem] = problems(env_secret=value)
    assert "is no name of a" in problem


def test_secrets_of_a_cluster_mean_nothing_on_one_machine():
    [problem] = problems(env_secret="keys", platform="local")
    assert problem.startswith("--env_secret=keys names Secrets of a cluster, and on this machine")
    assert problem.endswith("leave it out, and export the variables")


@pytest.mark.parametrize("mode", [{"use_async": True}, {"get_model_steps": 4}])
def test_a_sync_only_setting_is_refused_in_an_asynchronous_job(mode):
    name, value = next(iter(mode.items()))
    cause = name if value is True else f"{name}={value}"
    assert problems(grads_to_wait=2, **mode) == [
        f"grads_to_wait=2 has no meaning with {cause}: leave one of them out"
    ]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        pytest.param({}, 8, id="as-many-as-there-can-be-workers"),
        pytest.param({"grads_to_wait": 1}, 1, id="as-said"),
        pytest.param({"use_async": True}, 1, id="each-as-it-comes"),
        pytest.param({"get_model_steps": 4}, 1, id="local-updates"),
    ],
)
def test_gradients_of_an_update(mode, expected):
    assert spec(num_workers="2:8", **mode).gradients_per_update == expected


@pytest.mark.parametrize(
    ("num_workers", "grads_to_wait", "expected"),
    [(1, 1, 0), (2, 1, 1), (2, 2, 0), (4, 2, 2), (2, 4, 0)],
)
def test_workers_whose_gradients_make_the_update_do_not_compute(
    num_workers, grads_to_wait, expected
):
    job = spec(num_workers=str(num_workers), grads_to_wait=grads_to_wait)
    assert job.workers_beside_update == expected


NO_MINIBATCHES = (
    "--elastic_batch=16:64 has to be in whole minibatches, and in two or more, since the noise of "
    "gradients shows between those of one update: give multiples of minibatch_size={size} from "
    "{low} on, or a smaller minibatch_size"
)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        pytest.param(
            {"use_async": True},
            "--elastic_batch=16:64 has no meaning with use_async: leave one of them out",
            id="asynchronous",
        ),
        pytest.param(
            {"grads_to_wait": 2},
            "--elastic_batch=16:64 and grads_to_wait=2 both say how many gradients make an update: "
            "leave one of them out",
            id="both-say-how-many",
        ),
        pytest.param(
            {"num_ps": 2},
            "--elastic_batch=16:64 needs the parameters in the master, which measures the noise of "
            "the gradients there, and num_ps=2 asks for servers: leave one of them out",
            id="servers",
        ),
        pytest.param(
            {"shrink_minibatches": True},
            "--elastic_batch=16:64 is made of minibatches of one size, and shrink_minibatches may "
            "change it: leave one of them out",
            id="shrinks",
        ),
        pytest.param(
            {"minibatch_size": 6},
            NO_MINIBATCHES.format(size=6, low=12),
            id="no-multiple",
        ),
        pytest.param(
            {"minibatch_size": 16},
            NO_MINIBATCHES.format(size=16, low=32),
            id="one-minibatch",
        ),
        pytest.param({"minibatch_size": 24}, NO_MINIBATCHES.format(size=24, low=48), id="neither"),
        pytest.param(
            {"num_workers": "9:12"},
            "--elastic_batch=16:64 has at most 8 minibatches in an update, and num_workers=9 "
            "compute one each, so that some would always come too late: give a maximum of 72 or "
            "more, a smaller minibatch_size, or fewer workers",
            id="less-than-one-each",
        ),
        pytest.param(
            {"minibatch_size": 24, "num_ps": 2},
            "--elastic_batch=16:64 needs the parameters in the master, which measures the noise of "
            "the gradients there, and num_ps=2 asks for servers: leave one of them out",
            id="its-size-is-of-no-matter-then",
        ),
    ],
)
def test_the_master_chooses_no_batch_that_it_cannot(more, told):
    assert problems(**{"minibatch_size": 8, "elastic_batch": "16:64", **more}) == [told]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("64", "'64' is no range of records like 64:512"),
        ("64:32", "'64:32' has a minimum above its maximum: swap them"),
    ],
)
def test_a_batch_to_choose_is_a_range(text, told):
    [problem] = problems(elastic_batch=text)
    assert told in problem


def test_a_job_whose_batch_is_chosen_begins_with_the_smallest():
    job = spec(num_workers="2:8", minibatch_size=8, elastic_batch=" 32 : 256 ")
    assert (job.gradients_per_update, job.batch_range) == (4, BatchRange(32, 256))


def test_symbol_names_follow_the_flags():
    assert spec().symbol_names() == SymbolNames()
    assert spec(loss="my_loss").symbol_names() == SymbolNames(loss="my_loss")


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@settings(deadline=None)
@given(st.dictionaries(st.from_regex(r"[a-z_]\w{0,5}", fullmatch=True), PLAIN, max_size=3))
def test_replicas_receive_the_very_same_job(params):
    sent = spec(model_params=params, num_workers="2:8", max_staleness=3)
    assert JobSpec.model_validate_json(sent.model_dump_json()) == sent


@pytest.mark.parametrize(
    ("settings", "first"),
    [
        ({"num_workers": "2:8", "autoscale": True, "platform": "kubernetes"}, 2),
        ({"num_workers": "0:8", "autoscale": True, "platform": "kubernetes"}, 1),
        ({"num_workers": "2:8", "platform": "kubernetes"}, None),
        # One machine has nobody who would give it more.
        ({"num_workers": "2:8", "autoscale": True, "platform": "local"}, None),
    ],
)
def test_a_job_that_is_autoscaled_begins_with_its_fewest_workers(settings, first):
    job = spec(**settings)
    assert job.workers_at_first == first
    assert desired_replicas(job, None, None)["worker"] == (first or 8)
    assert desired_replicas(job, 5, None)["worker"] == 5


def test_what_an_autoscaler_cannot_decide_is_refused():
    assert problems(num_workers="2", autoscale=True) == [
        "--autoscale has nothing to choose from with --num_workers=2: give a range such as 2:8, or "
        "leave it out"
    ]
    assert problems(num_workers="2:8", autoscale=True, queue="team-a") == [
        "--autoscale and --queue=team-a would both decide when there are more workers: leave one "
        "of them out"
    ]


def test_a_job_brings_a_redis_along_where_its_user_names_none():
    url = "redis://me@db.example.com:7000/3"
    assert spec().num_redis == 0
    assert spec(embedding_store="redis").num_redis == 1
    assert spec(embedding_store="redis", embedding_redis_url=url).num_redis == 0
    assert desired_replicas(spec(embedding_store="redis"), None, None)["redis"] == 1


def test_a_redis_without_a_use_is_refused():
    [problem] = problems(embedding_redis_url="redis://db")
    assert "--embedding_redis_url=redis://db has no meaning" in problem


def test_rows_on_servers_need_servers():
    [problem] = problems(embedding_store="ps")
    assert "give --num_ps 1 or more" in problem


def test_a_password_in_an_address_is_refused_and_not_repeated():
    [problem] = problems(embedding_store="redis", embedding_redis_url="redis://me:geheim@db")
    assert "ELASTIC_REDIS_PASSWORD" in problem
    assert "geheim" not in problem
