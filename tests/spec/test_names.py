import pytest

from elastic.spec.values import other_jobs

SEVEN = ["g", "f", "e", "d", "c", "b", "a"]


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        pytest.param("x", [], "known jobs: none", id="none"),
        pytest.param("x", ["b", "a"], "known jobs: b, a", id="few"),
        pytest.param("x", SEVEN, "known jobs: g, f, e, d, c and 2 more", id="newest-five"),
        pytest.param("mnits", ["mnist"], "did you mean mnist?", id="nearest-alone"),
        pytest.param(
            "mnits", [*SEVEN, "mnist"], "did you mean mnist? Others: g, f, e, d, c and 2 more",
            id="nearest-first",
        ),
    ],
)  # fmt: skip
def test_the_nearest_job_and_the_newest_others(name, known, expected):
    assert other_jobs(name, known) == expected
