"""Data that is sorted by class is learnt like any other, and without shuffling it is not."""

from dataclasses import replace

import pytest

from benchmarks.sorted_data import SETS
from benchmarks.sorted_sets import MODES, Bench, Outcome, cells

(TUMOURS,) = (replace(each, num_epochs=5) for each in SETS if each.name == "breast cancer")
(DIABETES,) = (replace(each, num_epochs=2) for each in SETS if each.name == "diabetes")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("framework", ["torch", "keras"])
def test_sorted_tumours_are_learnt_shuffled_only(framework, tmp_path):
    bench = Bench(TUMOURS, framework, tmp_path, num_seeds=1)
    shuffled, in_order = (
        bench.measure(mode, in_processes=False)
        for mode in ("2 workers", "2 workers, --shuffle none")
    )
    assert shuffled.job[0] > shuffled.loop[0] - 0.05
    assert in_order.job[0] < in_order.loop[0] - 0.1


@pytest.mark.sampled(3)
def test_the_loop_of_a_mode_has_gradients_as_late_as_its_own(tmp_path):
    bench = Bench(DIABETES, "torch", tmp_path, num_seeds=1)
    outcomes = [bench.measure(mode, in_processes=False) for mode in MODES if "2 workers, " in mode]
    loops = {each.loop for each in outcomes}
    # In groups of 1, asynchronous, local updates, and unshuffled in groups of 2.
    assert len(loops) == len(outcomes) == 4


@pytest.mark.parametrize(
    ("metric", "job", "verdict"),
    [
        ("accuracy", 0.95, "within"), ("accuracy", 0.7, "worse"), ("accuracy", 1.0, "better"),
        ("mse", 0.7, "better"), ("mse", 1.0, "worse"),
    ],
)  # fmt: skip
def test_the_verdict_is_on_the_side_of_the_metric(metric, job, verdict):
    outcome = Outcome("data", "torch", "1 worker", metric, (job, job), (0.9, 0.97))
    assert outcome.verdict == cells(outcome)[-1] == verdict
