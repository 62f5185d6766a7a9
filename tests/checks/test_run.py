"""`make test`: what fails and what takes too long fails it, and the rest is run all the same."""

import re
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


def test_a_lane_runs_beside_the_parts_before_it(tmp_path, monkeypatch, capfd):
    """Each waits for the other's file, and what the second prints comes whole behind the first.

    A third of the second's lane waits for the second's end.
    """
    meet = (
        "import pathlib, sys, time; mine, other = map(pathlib.Path, sys.argv[1:]); mine.touch()\n"
        "while not other.exists(): time.sleep(0.01)\n"
        "print('met', mine.name)"
    )
    a, b = (str(tmp_path / name) for name in "ab")
    first, second = _part("first", meet), _part("second", meet)
    first.command += [a, b]
    second.command += [b, a]
    last = _part("last", "import pathlib, sys; assert pathlib.Path(sys.argv[1]).exists()")
    second.command[2] += "; mine.with_name('ended').touch()"
    last.command.append(str(tmp_path / "ended"))
    second.lane = last.lane = "lane"
    monkeypatch.setattr(run, "parts", lambda: [first, second, last, _part("third", "")])
    monkeypatch.setattr(sys, "argv", ["run.py"])
    assert run.main() == 0
    out = capfd.readouterr().out
    assert -1 < out.index("met a") < out.index("met b") < out.index("\ntime: ")
    assert all(part.is_good for part in (first, second, last))


def test_lanes_run_beside_each_other_and_what_fails_is_told_at_once(tmp_path, monkeypatch, capfd):
    """The first ends when the second has, and the part behind them begins when all have."""
    wait = (
        "import pathlib, time; path = pathlib.Path({!r}, {!r})\n"
        "while not path.exists(): time.sleep(0.01)\n"
    )
    touch = "import pathlib; pathlib.Path({!r}, {!r}).touch()\n"
    folder = str(tmp_path)
    first = _part("first", wait.format(folder, "b") + "print('first')")
    a = _part("a", touch.format(folder, "a") + wait.format(folder, "b") + "print('good')")
    b = _part("b", wait.format(folder, "a") + "print('bad'); raise SystemExit(1)")
    after_b = _part("after b", touch.format(folder, "b"))
    a.lane, b.lane, after_b.lane = "a", "b", "b"
    seen = "import os; print(*sorted(os.listdir({!r})))"
    behind = _part("behind", seen.format(folder))
    monkeypatch.setattr(run, "parts", lambda: [first, a, b, after_b, behind])
    monkeypatch.setattr(sys, "argv", ["run.py"])
    assert run.main() == 1
    out = capfd.readouterr().out
    assert out.split()[:5] == ["bad", "first", "good", "a", "b"]
    assert [part.is_good for part in (first, a, b, after_b, behind)] == [1, 1, 0, 1, 1]


TESTS = Path(run.__file__).parent


@pytest.fixture(scope="module")
def part_of():
    """By the marks and the file of a test: the parts that run it."""
    parts = {part.name: part.command for part in run.parts() if "-m" in part.command}

    def find(names, path):
        for name, command in parts.items():
            mark = command[command.index("-m") + 1]
            folders = [TESTS.parent / each for each in command if each.startswith("tests/")]
            is_below = any(path.is_relative_to(folder) for folder in folders or [TESTS])
            if is_below and eval(mark, {}, names):
                yield name

    return find


def test_every_test_belongs_to_one_part(part_of):
    """By its marks; those of soak to none."""
    kinds = [(c, a, s) for c in (0, 1) for a in (0, 1) for s in (0, 1) if c or not a]
    for cluster, alone, soak in kinds:
        names = {"cluster": bool(cluster), "alone": bool(alone), "soak": bool(soak)}
        found = list(part_of(names, TESTS / "cluster" / "test_any.py"))
        assert len(found) == (not soak), names


def test_every_module_that_needs_the_cluster_is_where_one_part_looks(part_of):
    # The samples of this folder have such marks as well.
    modules = [path for path in TESTS.rglob("test_*.py") if path.parent != Path(__file__).parent]
    of_cluster = {"cluster": True, "alone": False, "soak": False}
    for path in modules:
        text = path.read_text()
        if re.search(r"\b(needs_cluster|needs_custom_resources|mark\.cluster)\b", text):
            assert len(list(part_of(of_cluster, path))) == 1, path
        if re.search(r"\b(needs_whole_cluster|mark\.alone)\b", text):
            assert len(list(part_of(of_cluster | {"alone": True}, path))) == 1, path


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
