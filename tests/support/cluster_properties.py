"""What has to hold of every plan, looked at without the policies' own means."""

from collections import Counter
from dataclasses import replace

from elastic.policy.cluster import CPU, GPU, MEMORY, MILLI, PODS, JobPhase, carried_out
from support.random_clusters import RULES


def overfull(snapshot):
    """What is given out beyond what there is, on each node that takes pods."""
    used, cards = _use(snapshot)
    found = []
    for each in snapshot.nodes:
        if not each.is_ready or each.is_unschedulable:
            continue
        asked = used[each.name]
        asked[GPU] += MILLI * len(cards[each.name])
        for name, amount in asked.items():
            if name != PODS and amount > each.allocatable.get(name, 0):
                found.append((each.name, name, amount))
        for card, (milli, size) in cards[each.name].items():
            if milli > MILLI or size > (each.card_memory_bytes or size):
                found.append((each.name, card, milli, size))
    return found


def _use(snapshot):
    used = {each.name: Counter() for each in snapshot.nodes}
    cards = {each.name: {} for each in snapshot.nodes}
    for each in snapshot.pods:
        if each.node is not None:
            used[each.node].update(each.requests)
            if each.share is not None:
                _count_card(cards[each.node], each.card, each.share, 1)
    for held in (held for each in snapshot.jobs for held in each.groups):
        for name, count in held.placement.items():
            used[name].update({key: need * count for key, need in held.requests.items()})
        for name, users in held.cards.items():
            assert sum(users.values()) == held.placement.get(name, 0)
            for card, count in users.items():
                _count_card(cards[name], card, held.share, count)
    return used, cards


def _count_card(cards, name, share, count):
    milli, size = cards.get(name, (0, 0))
    cards[name] = (milli + share.milli * count, size + share.memory_bytes * count)


def forbidden(before, after):
    """Replicas that came to nodes where their rules, or the nodes, do not let them run."""
    nodes = {each.name: each for each in after.nodes}
    found = []
    for old, new in zip(before.jobs, after.jobs, strict=True):
        for was, now in zip(old.groups, new.groups, strict=True):
            for name, count in now.placement.items():
                if count > was.placement.get(name, 0):
                    on = nodes[name]
                    is_open = on.is_ready and not on.is_unschedulable
                    if not is_open or not now.rules.admit(name, on.labels, on.taints):
                        found.append((new.name, now.role, name))
    return found


def out_of_range(snapshot, plan, *, may_stop=False):
    """Decisions beyond what a job may have, of workers or of parameter servers."""
    jobs = {each.key: each for each in snapshot.jobs}

    def is_beyond(size, group):
        is_stopped = may_stop and size == 0
        return size is not None and not is_stopped and not group.min <= size <= group.max

    return [
        each
        for each in plan.decisions
        if is_beyond(each.replicas, jobs[each.job].workers)
        or is_beyond(each.ps_replicas, jobs[each.job].ps)
    ]


def could_stay(before, after, max_load=None):
    """Jobs that gave workers, and could have kept one of them where it was, all else the same.

    Args:
        max_load: The part of CPU and memory, by limits, that may be given out.
    """
    return [
        (was.name, name)
        for was, now in zip(before.jobs, after.jobs, strict=True)
        for name, count in was.workers.placement.items()
        if now.workers.placed < min(was.workers.placed, was.workers.max)
        and now.workers.placement.get(name, 0) < count
        and any(
            not overfull(each) and (max_load is None or not _overloaded(each, name, max_load))
            for each in _with_one_more(after, was, now, name)
        )
    ]


def _with_one_more(snapshot, was, now, name):
    """On each card that it has left, where it has parts of cards; who was stopped, whole."""
    workers = now.workers
    if not workers.placed:
        same = replace(workers, placement=was.workers.placement, cards=was.workers.cards)
        jobs = (replace(each, workers=same) if each is now else each for each in snapshot.jobs)
        yield replace(snapshot, jobs=tuple(jobs))
        return
    more = {**workers.placement, name: workers.placement.get(name, 0) + 1}
    cards = workers.cards.get(name, {})
    for card in was.workers.cards.get(name, {None: 1}):
        own = dict(workers.cards)
        if card is not None:
            own[name] = {**cards, card: cards.get(card, 0) + 1}
        grown = replace(workers, placement=more, cards=own)
        jobs = (replace(each, workers=grown) if each is now else each for each in snapshot.jobs)
        yield replace(snapshot, jobs=tuple(jobs))


def _overloaded(snapshot, name, max_load):
    """Whether too much is given out of the nodes of any rules that admit this one."""
    nodes = {each.name: each for each in snapshot.nodes if each.is_ready}
    nodes = {key: each for key, each in nodes.items() if not each.is_unschedulable}
    held = [
        (node, each.limits, count)
        for job in snapshot.jobs
        for each in job.groups
        for node, count in each.placement.items()
    ]
    held += [(each.node, each.limits, 1) for each in snapshot.pods]
    for rules in RULES:
        admitted = {
            key for key, each in nodes.items() if rules.admit(key, each.labels, each.taints)
        }
        for resource in (CPU, MEMORY):
            load = sum(
                lim.get(resource, 0) * count for node, lim, count in held if node in admitted
            )
            most = sum(nodes[each].allocatable.get(resource, 0) for each in admitted)
            if name in admitted and load > max_load * most:
                return True
    return False


def can_be_made_room_for(snapshot, waiting):
    """Whether a job's smallest size would fit if others had theirs: all ways are tried.

    No parameter server leaves, nor worker 0, and nobody goes below the minimum. Jobs have no parts
    of cards.
    """
    free = {
        each.name: Counter(each.allocatable)
        for each in snapshot.nodes
        if each.is_ready and not each.is_unschedulable
    }
    for node, needs, count in _held(snapshot):
        if node in free:
            free[node].subtract({name: need * count for name, need in needs.items()})
    nodes = {each.name: each for each in snapshot.nodes}
    missing = [
        (each.requests, each.rules)
        for each in waiting.groups
        for _ in range(each.min - each.placed)
    ]
    givers = [each.workers for each in snapshot.jobs if each.workers.placed > each.workers.min]
    return _any_way(free, nodes, givers, missing)


def _held(snapshot):
    for each in snapshot.pods:
        if each.node is not None:
            yield each.node, each.requests, 1
    for each in (held for job in snapshot.jobs for held in job.groups):
        for node, count in each.placement.items():
            yield node, each.requests, count


def _any_way(free, nodes, givers, missing):
    if not givers:
        return _all_fit(free, nodes, missing)
    workers, rest = givers[0], givers[1:]
    for leaving in _leavings(workers, sorted(workers.placement), workers.placed - workers.min):
        less = {name: Counter(amounts) for name, amounts in free.items()}
        for node, count in leaving.items():
            if node in less:
                less[node].update({key: need * count for key, need in workers.requests.items()})
        if _any_way(less, nodes, rest, missing):
            return True
    return False


def _leavings(workers, names, count):
    """All ways in which so many leave these nodes, or as many as can."""
    if not names:
        yield {}
        return
    first, *others = names
    most = min(count, workers.placement[first] - (workers.first_node == first))
    able = sum(workers.placement[each] - (workers.first_node == each) for each in others)
    for here in range(max(0, count - able), most + 1) if count <= most + able else [most]:
        for elsewhere in _leavings(workers, others, count - here):
            yield {first: here, **elsewhere}


def _all_fit(free, nodes, missing):
    if not missing:
        return True
    (needs, rules), rest = missing[0], missing[1:]
    seen = set()
    for name, amounts in free.items():
        on = nodes[name]
        key = (
            frozenset(amounts.items()),
            on.taints,
            frozenset(on.labels.items()),
            name if rules.nodes else "",
        )
        if key in seen or not rules.admit(name, on.labels, on.taints):
            continue
        seen.add(key)
        if all(amounts[each] >= need for each, need in needs.items()):
            less = {each: Counter(have) if each == name else have for each, have in free.items()}
            less[name].subtract(needs)
            if _all_fit(less, nodes, rest):
                return True
    return False


HOLD_TICKS = 3
"""For how many plans a job runs."""


def never_started(policy, before, tick_s, ticks=100):
    """Jobs that could have run alone and never did, while each that ended was followed by another.

    Args:
        policy: To be asked.
        before: The cluster at first.
        tick_s: Time between two plans.
        ticks: How many plans.
    """
    # One that holds a part of what it needs could be in the way for ever.
    begun = (
        _following(each, each.submitted_s) if each.is_waiting else each for each in before.jobs
    )
    before = replace(before, jobs=tuple(begun))
    waiting = {
        each.key for each in before.jobs if each.is_waiting and _runs_alone(policy, before, each)
    }
    now, ran = before, Counter()
    for tick in range(ticks):
        now = carried_out(now, policy.plan(replace(now, now_s=before.now_s + tick * tick_s)))
        running = {each.key for each in now.jobs if not each.is_waiting}
        waiting -= running
        if not waiting:
            break
        ran.update(running)
        now_s = before.now_s + (tick + 0.5) * tick_s
        jobs = (
            _following(each, now_s) if ran[each.key] >= HOLD_TICKS else each for each in now.jobs
        )
        now = replace(now, jobs=tuple(jobs))
    return waiting


def _runs_alone(policy, before, waiting):
    alone = replace(before, jobs=(_following(waiting, before.now_s),))
    return not carried_out(alone, policy.plan(alone)).jobs[0].is_waiting


def _following(ended, now_s):
    """Another job that needs the same, and has nothing yet."""

    def new(held):
        return held and replace(held, replicas=0, placement={}, cards={}, first_node=None)

    return replace(
        ended,
        name=f"{ended.name}+",
        workers=new(ended.workers),
        ps=new(ended.ps),
        others=tuple(map(new, ended.others)),
        submitted_s=now_s,
        phase=JobPhase.WAITING,
        last_scaled_s=None,
        waiting_since_s=now_s,
    )
