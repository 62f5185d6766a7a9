import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from spec.test_job import PLAIN, spec

from elastic.errors import JobSpecError
from elastic.spec.job import JobSpec, known_name, nearest_setting, read_job_file, write_job_file
from elastic.spec.yaml_text import dump_value, load_value


@settings(deadline=None)
@given(
    st.dictionaries(st.from_regex(r"[a-z_]\w{0,5}", fullmatch=True), PLAIN, max_size=3),
    st.sampled_from(["1", "2:8", "2:59"]),
    st.text(),
)
def test_a_written_job_is_read_back_as_it_was(params, workers, output):
    written = spec(model_params=params, num_workers=workers, output=output)
    assert JobSpec(**load_value(write_job_file(written))) == written


@pytest.mark.parametrize(
    ("text", "expected"),
    [("2:8", "2:8"), ("1e-3", 0.001), ("2020-01-01", "2020-01-01"), ("010", 10), ("0x10", 16),
     ("yes", True), ("~", None), (".5", 0.5), ("-3", -3), ("1_000", "1_000")],
)  # fmt: skip
def test_yaml_has_no_surprises(text, expected):
    assert load_value(text) == expected
    assert load_value(dump_value(expected)) == expected


def test_yaml_makes_no_objects(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text("model_params: !!python/object/apply:os.getcwd []\n")
    with pytest.raises(JobSpecError, match="could not determine a constructor"):
        read_job_file(path)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"num_epochs: 1\nnum_epochs: 2\n",
         "{path} is not YAML: line 2: the key 'num_epochs' comes twice"),
        (b"a: [1\n", "{path} is not YAML: line 2: expected ',' or ']', but got '<stream end>'"),
        (b"- a\n", "{path} holds a list: write one `setting: value` a line"),
    ],
)  # fmt: skip
def test_an_unreadable_file_is_named(tmp_path, content, expected):
    path = tmp_path / "job.yaml"
    path.write_bytes(content)
    with pytest.raises(JobSpecError) as caught:
        read_job_file(path)
    assert str(caught.value) == expected.format(path=path)


def test_a_missing_file_is_named(tmp_path):
    path = tmp_path / "none.yaml"
    with pytest.raises(JobSpecError) as caught:
        read_job_file(path)
    assert str(caught.value) == f"--config {path} cannot be read: No such file or directory"


def test_an_empty_file_says_nothing(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text("# nothing yet\n")
    assert read_job_file(path) == {}


def test_names_are_known_in_either_spelling_and_by_alias():
    assert known_name("num-epochs") == "num_epochs"
    assert known_name("init-from") == "checkpoint_filename_for_init"
    assert known_name("epochs") is None
    assert nearest_setting("num-epoch") == "num_epochs"
    assert nearest_setting("zzz") is None


@pytest.mark.parametrize(
    "text", ["1e-3", "2:8", "0o17", "010", "2020-01-01", "yes", "null", "", "a\nb", "\x85", " a "]
)
def test_text_that_looks_like_something_else_stays_text(text):
    written = dump_value({"value": text})
    assert load_value(written) == yaml.safe_load(written) == {"value": text}
