"""Each benchmark measures what it says, on little work: its figures mean nothing here."""

import json
import os
from functools import partial

import numpy as np
import pytest
from support import warm

from benchmarks import (
    clicks,
    columns,
    controller,
    dispatch,
    epoch_input,
    fractions,
    gpu,
    jobs,
    one_worker,
    plans,
    push,
    reading,
    recovery,
    redis_program,
    report,
    rows,
    run,
    servers,
    shuffling,
    simulated_day,
    startup,
    tabular,
    two_workers,
)
from benchmarks.apply import measure_apply
from benchmarks.jobs import prepared
from benchmarks.measure import Bar, Ratio, Series, take_turns
from benchmarks.redis_program import BareRows
from benchmarks.sizes import FULL, TINY
from elastic.planning.policies import POLICIES, PolicyOptions
from elastic.platforms.local.platform import LocalPlatform
from elastic.policy.cluster import carried_out
from elastic.spec.values import RedisAddress
from model_zoo.clicks.prepare_data import prepare


def _start_warm(directory):
    return warm.start_supervisor(directory.spec(), directory)


@pytest.fixture(autouse=True)
def warm_jobs(monkeypatch):
    """A job of a benchmark is processes with torch; none has to import it anew."""
    platform = partial(LocalPlatform, start_supervisor=_start_warm)
    monkeypatch.setattr(jobs, "LocalPlatform", platform)


def check(ratios, num_rounds):
    for ratio in ratios:
        assert len(ratio.ratios) == num_rounds, ratio
        # Nothing here is a thousand times faster or slower than what it is made of.
        assert all(1e-3 < value < 1e3 for value in ratio.ratios), ratio


@pytest.mark.sampled(3)
def test_dispatch():
    ratios = dispatch.run(TINY)
    assert [ratio.name for ratio in ratios] == [
        "dispatch, 100 tasks queued",
        "dispatch, 1,000 tasks queued",
        "dispatch, flatness",
    ]
    check(ratios, TINY.rounds)


@pytest.mark.sampled(3)
def test_plans():
    ratios = plans.run(TINY)
    assert len(ratios) == 4 * len(POLICIES)
    assert all(len(ratio.ratios) == TINY.plan_rounds for ratio in ratios)
    # Of so little work the time is that of nothing; growth can be any.
    seconds = [ratio for ratio in ratios if "growth" not in ratio.name]
    assert all(value > 0 for ratio in seconds for value in ratio.numerator.values)


@pytest.mark.sampled(3)
def test_a_simulated_day():
    ratios = simulated_day.run(TINY)
    assert [ratio.name.partition(", ")[2] for ratio in ratios] == list(POLICIES)
    assert all(len(ratio.ratios) == 1 and ratio.median > 0 for ratio in ratios)


@pytest.mark.sampled(3)
def test_fractions():
    ratios = fractions.run(TINY)
    assert len(ratios) == 6
    check(ratios, TINY.card_rounds)
    assert all(0 < value <= 100 for ratio in ratios for value in ratio.numerator.values)


def test_plans_are_of_clusters_in_which_jobs_come_and_go():
    new = plans.empty_cluster(40, 1)
    after = carried_out(new, POLICIES["fulfillment"].policy(PolicyOptions()).plan(new))
    later = plans.turned_over(after, 1)
    assert sum(each.is_waiting for each in after.jobs) == 0
    assert sum(each.is_waiting for each in later.jobs) == 2


@pytest.mark.sampled(3)
def test_push():
    ratios = push.run(TINY)
    assert len(ratios) == 12
    check(ratios, TINY.rounds)


@pytest.mark.sampled(3)
def test_servers(monkeypatch):
    monkeypatch.setattr(servers, "NUMBERS", (1,))
    ratios = servers.run(TINY)
    assert len(ratios) == 4
    check(ratios, TINY.rounds)


@pytest.mark.sampled(3)
def test_apply():
    check([measure_apply(TINY, "torch", "sgd", threads=1)], TINY.rounds)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("source", reading.SOURCES, ids=[each.name for each in reading.SOURCES])
def test_reading(source):
    ratio = reading.measure_reading(TINY, source)
    # A file this small is read whole from the processor's cache: far faster than its records.
    assert len(ratio.ratios) == TINY.rounds
    assert all(value > 0 for value in ratio.ratios)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("source", shuffling.SOURCES, ids=lambda source: source.path)
def test_shuffling(source):
    *batches, alone = shuffling.measure(TINY, source)
    assert len(batches) == (1 if source.feed_columns is None else 2)
    check(batches, TINY.rounds // 2 + 1)
    check([alone], TINY.rounds)


@pytest.mark.sampled(3)
def test_tabular(monkeypatch):
    monkeypatch.setattr(tabular, "FORMATS", ("npz",))
    ratios = tabular.run(TINY)
    assert [ratio.name.partition(", ")[2] for ratio in ratios] == [
        "reading by columns",
        "job by columns",
        "job by columns, 2 workers",
        "job by records",
    ]
    check(ratios, TINY.job_rounds)


@pytest.mark.sampled(3)
def test_startup():
    check(startup.run(TINY), TINY.rounds)


@pytest.mark.sampled(3)
def test_one_worker():
    with prepared(TINY.num_records) as folder:
        check([one_worker.measure_job(TINY, folder, "torch", threads=1)], TINY.job_rounds)


@pytest.mark.sampled(3)
def test_gpu():
    """Where there is none the same is measured on the CPU."""
    with prepared(TINY.num_records) as folder:
        check([gpu.measure_job(TINY, folder, "a tiny model")], TINY.job_rounds)


def test_two_workers():
    check(two_workers.run(TINY), TINY.pair_rounds)


@pytest.mark.sampled(3)
def test_recovery():
    check(recovery.run(TINY), TINY.job_rounds)


@pytest.mark.sampled(3)
def test_columns():
    ratios = columns.run(TINY)
    assert len(ratios) == 7
    check(ratios, TINY.rounds)


@pytest.mark.sampled(3)
def test_rows(monkeypatch):
    monkeypatch.setattr(rows, "DIMS", (16,))
    monkeypatch.setattr(redis_program, "find_program", lambda: None)
    ratios = rows.run(TINY)
    assert [ratio.name for ratio in ratios[:3]] == [
        "rows read, 16 float32, uniform ids, memory",
        "rows read, 16 float32, uniform ids, redis",
        "rows read, 16 float32, Zipf ids, memory",
    ]
    assert len(ratios) == 18
    assert "redis-benchmark" in ratios[0].note
    check(ratios, TINY.rounds)


REDIS_BENCHMARK = """#!/bin/sh
echo '"test","rps","avg_latency_ms"'
printf '"%s","250.00","0.1"\\n' "$*"
"""
"""Answers in the words of the real one, which stands the whole command before its figures."""


def test_a_client_in_c_beside_the_rows_of_redis(tmp_path, monkeypatch):
    program = tmp_path / "redis-benchmark"
    program.write_text(REDIS_BENCHMARK)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(redis_program, "PROGRAMS", ("redis-benchmark",))
    at, of = RedisAddress("127.0.0.1", 6379, password="secret"), BareRows("bare:3", 1000, 3)
    found = redis_program.find_program()
    assert found == str(program)
    assert redis_program.rows_read_s(found, at, of, 1) == 250 * 512
    assert redis_program.rows_moved_s(found, at, of, 1) == 250 * 512 / 2
    # As the program makes it of its 12 digits.
    assert of.key(17) == of.key().replace("__rand_int__", "000000000017")


def test_the_ids_of_a_step_are_as_often_as_their_kind_says():
    uniform, zipf = rows._drawn(FULL).values()
    assert all((np.diff(ids) > 0).all() for ids in (*uniform, *zipf))
    assert 6400 < len(uniform[0]) < rows.IDS_A_STEP
    assert len(zipf[0]) < 0.7 * len(uniform[0])


@pytest.mark.sampled(3)
def test_clicks(tmp_path, monkeypatch):
    prepare(tmp_path, TINY.num_clicks, num_test_records=1)
    small, large = clicks.MINIBATCH_SIZE, clicks.LARGE_MINIBATCH_SIZE
    plain_records_s = clicks._plain_records_s(TINY, tmp_path, small)
    monkeypatch.setattr(clicks, "_plain_records_s", lambda *_: plain_records_s)
    for store, minibatch_size in zip(clicks.STORES, (small, large, small), strict=True):
        measured = clicks.measure_job(TINY, tmp_path, store, 1, minibatch_size)
        check([measured], TINY.job_rounds)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("source", epoch_input.INPUTS, ids=lambda source: source.name)
def test_epoch_input(tmp_path, source):
    check([epoch_input._measure(TINY, tmp_path, source)], TINY.rounds)


@pytest.mark.sampled(3)
def test_controller():
    ratios = controller.run(TINY)
    silent = [ratio for ratio in ratios if "unchanged" in ratio.name]
    assert [ratio.ratios for ratio in silent] == [(0.0,)] * len(TINY.job_counts)
    assert [ratio.name for ratio in ratios[-3:]] == [
        "controller, growth of processor time",
        "controller, growth of memory",
        "controller, processor time of an event",
    ]
    check([ratio for ratio in ratios[:-3] if ratio not in silent], TINY.job_rounds)


@pytest.mark.parametrize("exponent", [1.0, 2.0])
def test_exponent_of_growth(exponent):
    counts = (100, 300, 1000)
    of_one = [count ** (exponent - 1) for count in counts]
    assert controller._exponent(counts, of_one) == pytest.approx(exponent)


def test_turns_alternate_and_the_first_does_not_count():
    calls = []

    def measure(name):
        calls.append(name)
        return len(calls)

    columns = take_turns(2, lambda: measure("a"), lambda: measure("b"))
    assert calls == ["a", "b"] * 3
    assert columns == [(3, 5), (4, 6)]


RATIO = Ratio(
    "push",
    Series("above", "s", (1.0, 2.0, 9.0)),
    Series("below", "s", (2.0, 2.0, 2.0)),
    Bar(0.5, 1.0),
)


@pytest.mark.parametrize(
    ("bar", "expected"),
    [
        pytest.param(Bar(0.5, 1.0), "goal", id="floor-goal"),
        pytest.param(Bar(0.5, 1.5), "first", id="floor-first"),
        pytest.param(Bar(1.1, 1.5), "no", id="floor-missed"),
        pytest.param(Bar(1.5, 1.0, is_ceiling=True), "goal", id="ceiling-goal"),
        pytest.param(Bar(1.5, 0.9, is_ceiling=True), "first", id="ceiling-first"),
        pytest.param(Bar(0.9, 0.5, is_ceiling=True), "no", id="ceiling-missed"),
    ],
)
def test_bars_judge_the_median_of_the_rounds(bar, expected):
    assert RATIO.median == 1.0
    assert Ratio("x", RATIO.numerator, RATIO.denominator, bar).verdict == expected


def test_save_appends(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "RESULTS", tmp_path / "RESULTS.md")
    monkeypatch.setattr(report, "JSON_RESULTS", tmp_path / "results.json")
    for command in ("first", "second"):
        report.save([RATIO], report.describe_machine(), command)
    text = (tmp_path / "RESULTS.md").read_text()
    assert "| push | 2 s | 2 s | 1.00 [0.50, 4.50] | ≥ 0.5 | ≥ 1 | goal |" in text
    assert text.index("`first`") < text.index("`second`")
    saved = json.loads((tmp_path / "results.json").read_text())
    assert [each["command"] for each in saved] == ["first", "second"]
    assert saved[0]["ratios"][0]["numerator"]["values"] == [1.0, 2.0, 9.0]


@pytest.mark.parametrize(("strict", "code"), [(["--strict"], 1), ([], 0)])
def test_only_strict_fails_below_a_first_bar(strict, code, monkeypatch, capsys):
    missed = Ratio("x", RATIO.numerator, RATIO.denominator, Bar(2.0, 3.0))
    monkeypatch.setattr(run, "measure", lambda _names, _size: [missed])
    assert run.main(["push", *strict]) == code
    assert "1.00 [0.50, 4.50]" in capsys.readouterr().out


def test_unknown_benchmark_names_those_there_are(capsys):
    with pytest.raises(SystemExit):
        run.main(["pusch"])
    assert "no benchmark pusch: choose from startup" in capsys.readouterr().err
