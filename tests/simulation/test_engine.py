"""The engine does what policies decide, lets time pass as it should, and refuses what cannot be."""

import pytest
from simulation.toys import ByTable, StartsAtMin, holding, nodes, working

from elastic.policy.cluster import Decision, Group, JobPhase, Note, Share
from elastic.simulation.engine import PlanError, Settings, simulate
from elastic.simulation.workload import Service, Workload


def run(workload, policy, count=1, cpu=4, **settings):
    return simulate(nodes(count, cpu), Workload(tuple(workload)), policy, Settings(**settings))


def set_to(name, size, kind="TrainingJob", **parts):
    return Decision(f"{kind}/d/{name}", size, "because", **parts)


def test_a_job_that_holds_its_room_ends_after_its_time():
    [job] = run([holding("a", 3, hold_s=10)], StartsAtMin()).jobs
    # Submitted at second 3, decided on at 5, the next multiple of the period.
    assert (job.started_s, job.ended_s, job.completion_s) == (5, 15, 12)
    assert job.sizes == ((5, 1), (15, 0))


def test_holding_takes_as_long_at_any_size():
    policy = ByTable({0: [set_to("a", 1)], 5: [set_to("a", 4)]})
    [job] = run([holding("a", high=4)], policy).jobs
    assert (job.ended_s, job.scale_actions) == (10, 1)


def test_work_is_done_faster_by_more_workers():
    policy = ByTable({0: [set_to("a", 1)], 5: [set_to("a", 3)]})
    [job] = run([working("a", work_s=20, high=4, asked=1)], policy).jobs
    # Five seconds with one, and 15 with three.
    assert job.ended_s == pytest.approx(5 + 15 / 3)


def test_work_is_measured_at_the_size_that_was_asked_for():
    policy = ByTable({0: [set_to("a", 1)]})
    [job] = run([working("a", work_s=20, high=4, asked=4)], policy).jobs
    assert job.ended_s == pytest.approx(80)


def test_a_change_of_size_costs_what_it_costs_its_kind():
    policy = ByTable({0: [set_to("a", 1)], 5: [set_to("a", 3)]})
    [job] = run(
        [working("a", work_s=20, high=4, asked=1)], policy, rescale_s={"TrainingJob": 7}
    ).jobs
    assert job.ended_s == pytest.approx(5 + 7 + 15 / 3)


def test_a_job_may_say_its_own_cost_of_a_change():
    policy = ByTable({0: [set_to("a", 1)], 5: [set_to("a", 3)]})
    [job] = run([working("a", work_s=20, high=4, asked=1, rescale_s=2)], policy).jobs
    assert job.ended_s == pytest.approx(5 + 2 + 15 / 3)


def test_a_change_within_the_cost_of_another_begins_it_anew():
    policy = ByTable({0: [set_to("a", 1)], 5: [set_to("a", 3)], 10: [set_to("a", 1)]})
    [job] = run([working("a", work_s=20, high=4, asked=1, rescale_s=7)], policy).jobs
    assert job.ended_s == pytest.approx(10 + 7 + 15)


def test_what_ends_gives_its_room_to_who_waits():
    jobs = run([holding("a"), holding("b")], StartsAtMin(), cpu=1).jobs
    # Both are started at once, optimistically; the second finds a node when the first has ended.
    assert [job.started_s for job in jobs] == [0, 10]
    assert jobs[1].ended_s == 20


def test_policies_see_who_waits_and_since_when():
    policy = ByTable({0: [set_to("a", 1)]})
    run([holding("a"), holding("b", 4)], policy, cpu=1)
    seen = policy.snapshots[1].jobs
    assert [each.phase for each in seen] == [JobPhase.RUNNING, JobPhase.WAITING]
    assert [each.waiting_since_s for each in seen] == [None, 4]
    assert policy.snapshots[1].last_change_s == 0


def test_a_job_that_was_not_started_shows_what_its_user_asked_for():
    policy = ByTable({})
    run([working("a", high=4, asked=3)], policy)
    assert policy.snapshots[0].jobs[0].workers.asked == 3


def test_placements_are_followed():
    policy = ByTable(
        {
            0: [set_to("a", 2, placement={"n1": 2})],
            5: [set_to("a", 2, placement={"n0": 1, "n1": 1})],
        }
    )
    run([working("a", work_s=20, low=1, high=4, asked=2)], policy, count=2)
    seen = policy.snapshots[2].jobs[0]
    assert seen.workers.placement == {"n0": 1, "n1": 1}
    assert seen.workers.first_node == "n1"
    assert seen.last_scaled_s is None, "its size is the same"


def test_parameter_servers_are_started_with_their_job():
    ps = Group(2, 2, 0, {"cpu": 1000}, {"cpu": 1000}, role="ps")
    policy = ByTable({0: [set_to("a", 1)]})
    [job] = run([holding("a", ps=ps)], policy, cpu=3).jobs
    assert job.started_s == 0
    assert policy.snapshots[1:] == [] or policy.snapshots[1].jobs[0].ps.placement == {"n0": 2}


def test_a_job_waits_until_its_parameter_servers_have_nodes_too():
    ps = Group(4, 4, 0, {"cpu": 1000}, {"cpu": 1000}, role="ps")
    [job] = run([holding("a", ps=ps)], StartsAtMin(), cpu=4).jobs
    assert job.started_s is None


def test_a_job_that_loses_all_goes_on_later_where_it_was():
    policy = ByTable({0: [set_to("a", 2)], 5: [set_to("a", 0)], 30: [set_to("a", 2)]})
    [job] = run([working("a", work_s=20, low=2, high=2, asked=2)], policy).jobs
    assert job.ended_s == 30 + 15
    waiting = next(each for each in policy.snapshots if each.now_s == 10).jobs[0]
    assert (waiting.phase, waiting.waiting_since_s) == (JobPhase.WAITING, 5)


def test_pods_of_services_come_and_go_and_take_room():
    service = Service("web", {"cpu": 1000}, {"cpu": 1000}, ((0, 4), (12, 1)))
    workload = Workload((holding("a", 1),), (service,))
    policy = StartsAtMin()
    outcome = simulate(nodes(), workload, policy)
    assert outcome.jobs[0].started_s == 12
    assert [(each.at_s, each.used["cpu"]) for each in outcome.usage] == [
        (0, 4000),
        (1, 4000),
        (12, 2000),
        (22, 1000),
    ]


def test_pods_without_a_node_are_seen():
    service = Service("web", {"cpu": 1000}, {"cpu": 1000}, ((0, 6),))
    policy = ByTable({})
    simulate(nodes(), Workload((holding("a"),), (service,)), policy)
    assert [pod.node for pod in policy.snapshots[0].pods] == ["n0"] * 4 + [None] * 2


def test_parts_of_cards_are_given_out_and_taken_back():
    share = Share(500)
    workload = [
        holding(name, high=1, share=share, hold_s=10 + 10 * index)
        for index, name in enumerate("abc")
    ]
    outcome = simulate(
        nodes(1, 4, **{"nvidia.com/gpu": 2000}), Workload(tuple(workload)), StartsAtMin()
    )
    gpus = [(each.at_s, each.used["nvidia.com/gpu"], each.cards) for each in outcome.usage]
    assert gpus == [(0, 1500, 2), (10, 1000, 2), (20, 500, 1), (30, 0, 0)]


def test_cards_are_those_that_the_policy_names():
    policy = ByTable(
        {0: [set_to("a", 2, placement={"n0": 2}, cards={"worker": {"n0": {"x": 1, "y": 1}}})]}
    )
    [job] = simulate(
        nodes(1, 4, **{"nvidia.com/gpu": 2000}),
        Workload((working("a", low=2, high=2, asked=2, share=Share(500), work_s=20),)),
        policy,
    ).jobs
    assert job.ended_s == 20


@pytest.mark.parametrize(
    ("decision", "expected"),
    [
        (set_to("a", 5, placement={"n0": 5}), "5 worker is outside of 1 to 4"),
        (set_to("a", 3, placement={"n0": 3}), "3 worker on n0: 3 x 1000 cpu is more than the 2000"),
        (set_to("a", 2, placement={"n9": 2}), "2 worker on n9: there is no such node"),
        (set_to("a", 1, placement={"n0": 2}), "2 worker are placed of 1"),
        (set_to("b", 1), "decides on TrainingJob/d/b, which is not there"),
    ],
)
def test_a_plan_that_cannot_be_carried_out_is_an_error(decision, expected):
    with pytest.raises(PlanError) as error:
        run([working("a", high=4)], ByTable({0: [decision]}), cpu=2)
    assert expected in str(error.value)


def test_cards_that_are_given_out_twice_are_an_error():
    decision = set_to("a", 3, placement={"n0": 3}, cards={"worker": {"n0": {"x": 3}}})
    with pytest.raises(PlanError, match=r"card x has no room for 3 x 0\.5"):
        simulate(
            nodes(1, 4, **{"nvidia.com/gpu": 2000}),
            Workload((working("a", high=4, share=Share(500)),)),
            ByTable({0: [decision]}),
        )


def test_it_ends_where_nobody_ever_starts_a_job():
    note = Note("TrainingJob/d/a", "needs 9 CPU")
    outcome = run([working("a")], ByTable({0: [note]}))
    assert outcome.jobs[0].started_s is None
    assert outcome.notes == {"TrainingJob/d/a": "needs 9 CPU"}


def test_the_policy_is_not_asked_while_it_could_change_nothing():
    policy = StartsAtMin()
    outcome = run([holding("a", hold_s=10_000)], policy)
    assert outcome.num_plans <= 3


@pytest.mark.parametrize(("tells", "remaining"), [("nothing", None), ("speed", None), ("all", 500)])
def test_jobs_tell_what_they_are_said_to(tells, remaining):
    policy = ByTable({0: [set_to("a", 1)], 5: [set_to("a", 2)]})
    run([working("a", work_s=10, high=4, asked=1, tells=tells)], policy)
    told = policy.snapshots[1].jobs[0].telling
    assert told.remaining_samples == remaining
    seen = [(each.replicas, each.nodes, each.samples_per_s) for each in told.speeds]
    assert seen == ([] if tells == "nothing" else [(1, 1, 100.0)])
