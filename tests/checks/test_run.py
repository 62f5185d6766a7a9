"""`make test`: what fails and what takes too long fails it, and the rest is run all the same."""

import sys
from pathlib import Path

import pytest
import run


def _part(name, program):
    return run.Part(name, [sys.executable, "-c", program])


@pytest.mark.parametrize(
    ("programs", "limit", "code", "words"),
    [
        pytest.param(
            {"a": "", "b": ""}, "1", 0, "time: 0.0 min (a 0.0, b 0.0), 0 tests", id="good"
        ),
        pytest.param(
            {"a": "raise SystemExit(1)", "b": "print('ran')"}, "1", 1, "failed: a", id="bad"
        ),
        pytest.param({"a": "", "b": ""}, "0", 1, "0 are allowed: see the table", id="late"),
    ],
)
def test_the_end_of_a_run(programs, limit, code, words, monkeypatch, capfd):
    parts = [_part(name, program) for name, program in programs.items()]
    monkeypatch.setattr(run, "parts", lambda: parts)
    monkeypatch.setattr(sys, "argv", ["run.py", "--limit_minutes", limit])
    assert run.main() == code
    out = capfd.readouterr().out
    assert words in out
    assert ("ran" in out) is (code == 1 and limit == "1")
    assert "ELASTIC_TEST_SEED=" in out


def test_what_waits_runs_beside_the_part_before_it(tmp_path, monkeypatch, capfd):
    """Each waits for the other's file, and what the second prints comes whole behind the first."""
    meet = (
        "import pathlib, sys, time; mine, other = map(pathlib.Path, sys.argv[1:]); mine.touch()\n"
        "while not other.exists(): time.sleep(0.01)\n"
        "print('met', mine.name)"
    )
    a, b = (str(tmp_path / name) for name in "ab")
    first, second = _part("first", meet), _part("second", meet)
    first.command += [a, b]
    second.command += [b, a]
    second.is_beside = True
    monkeypatch.setattr(run, "parts", lambda: [first, second, _part("third", "")])
    monkeypatch.setattr(sys, "argv", ["run.py"])
    assert run.main() == 0
    out = capfd.readouterr().out
    assert -1 < out.index("met a") < out.index("met b") < out.index("time: 0.0 min")
    assert all(part.is_good for part in (first, second))


def test_every_test_belongs_to_one_part():
    """By its marks; those of soak to none."""
    marks = [part.command[part.command.index("-m") + 1] for part in run.parts()[1:]]
    kinds = [(c, a, s) for c in (0, 1) for a in (0, 1) for s in (0, 1) if c or not a]
    for cluster, alone, soak in kinds:
        names = {"cluster": bool(cluster), "alone": bool(alone), "soak": bool(soak)}
        assert sum(bool(eval(mark, {}, names)) for mark in marks) == (not soak)


SAMPLE = """
from pathlib import Path

def test_fails_{first}_times():
    seen = Path(__file__).with_name("seen")
    num_seen = len(seen.read_text()) if seen.exists() else 0
    seen.write_text("x" * (num_seen + 1))
    assert num_seen >= {first}
"""


def _run_sample(folder, first, monkeypatch):
    """A whole run of one part, whose test fails so often at first; its exit code."""
    folder.mkdir(parents=True)
    sample = folder / "test_sample.py"
    sample.write_text(SAMPLE.format(first=first))
    (folder.parent / "conftest.py").write_text("pytest_plugins = ['support.time_by_cause']")
    (folder.parent / "pytest.ini").write_text("[pytest]")
    command = [str(run.BIN / "pytest"), str(sample), "--rootdir", str(folder.parents[1])]
    monkeypatch.setattr(run, "parts", lambda: [run.Part("a", command)])
    monkeypatch.setattr(sys, "argv", ["run.py"])
    monkeypatch.setenv("PYTHONPATH", str(Path(run.__file__).parent))
    monkeypatch.chdir(folder.parents[1])
    return run.main()


@pytest.mark.parametrize(
    ("first", "folder", "code", "num_runs", "words"),
    [
        pytest.param(1, "jobs", 0, 3, "unsteady: tests/jobs/test_sample.py::", id="unsteady"),
        pytest.param(2, "jobs", 1, 2, "failed: a", id="fails again"),
        pytest.param(1, "chaos", 1, 1, "failed: a", id="counts records"),
    ],
)
def test_what_fails_is_looked_at_again_alone(
    first, folder, code, num_runs, words, tmp_path, monkeypatch, capfd
):
    folder = tmp_path / "tests" / folder
    assert _run_sample(folder, first, monkeypatch) == code
    assert len((folder / "seen").read_text()) == num_runs
    assert words in capfd.readouterr().out


def test_a_part_that_fails_by_more_than_tests_is_not_excused(monkeypatch):
    unsteady = run.Part("a", [], failed=["tests/jobs/test_a.py::test_a"])
    broken = run.Part("lint", [])
    monkeypatch.setattr(run, "_passes", lambda _: pytest.fail("there is nothing to look at again"))
    assert run.look_again([unsteady, broken]) == []
    many = run.Part("b", [], failed=[f"tests/jobs/test_a.py::test_{i}" for i in range(4)])
    assert run.look_again([many]) == []
    assert not unsteady.is_good
    assert not many.is_good
