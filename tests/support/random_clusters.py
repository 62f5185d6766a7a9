"""Clusters of any kind for properties of policies, and what has to hold of every plan."""

import random
from collections import Counter
from dataclasses import replace

from hypothesis import strategies as st

from elastic.policy.cluster.amounts import CPU, GPU, MEMORY, MILLI, PODS
from elastic.policy.cluster.rules import Rules, Taint, Toleration
from elastic.policy.cluster.snapshot import JobPhase, Share, Snapshot, Speed, Telling
from support.clusters import amounts, group, job, node, pod

TAINT = Taint("dedicated", "gpu", "NoSchedule")
RULES = (
    Rules(),
    Rules(),
    Rules((Toleration("dedicated", "Exists"),)),
    Rules(node_selector={"zone": "a"}),
    Rules(nodes=frozenset({"n0", "n1"})),
)
KINDS = ("TrainingJob", "ElasticJob", "TFJob")


@st.composite
def clusters(draw, max_nodes=5, max_jobs=6):
    """Snapshots in which everything that has a node has room there."""
    rng = random.Random(draw(st.integers(0, 2**32)))
    return random_cluster(rng, draw(st.integers(1, max_nodes)), draw(st.integers(1, max_jobs)))


def random_cluster(rng, num_nodes, num_jobs):
    nodes = [_node(rng, number) for number in range(num_nodes)]
    packer = _Packer(rng, nodes)
    pods = [packer.pod() for _ in range(rng.randrange(4))]
    jobs = [_job(rng, packer, number) for number in range(num_jobs)]
    last = rng.choice([None, 100.0, 990.0])
    return Snapshot(1000.0, tuple(nodes), tuple(jobs), tuple(pods), last)


def _node(rng, number):
    has_gpus = rng.random() < 0.4
    return node(
        f"n{number}",
        cpu=rng.choice([2, 4, 7, 16]),
        memory=f"{rng.choice([4, 8, 33])}Gi",
        gpu=rng.choice([1, 2, 4]) if has_gpus else None,
        is_ready=rng.random() < 0.95,
        is_unschedulable=rng.random() < 0.05,
        taints=(TAINT,) if has_gpus and rng.random() < 0.5 else (),
        labels={"zone": rng.choice("ab")},
        card_memory_bytes=rng.choice([None, 16 << 30]),
    )


def _job(rng, packer, number):
    low = rng.choice([1, 1, 2, 3])
    high = low + rng.choice([0, 1, 3, 8])
    needs = packer.needs()
    state = rng.choice(["new", "asked", "partly", "running", "running", "running"])
    wanted = rng.randint(low, high)
    placed = {"new": 0, "asked": 0, "partly": rng.randint(0, low)}.get(state, wanted)
    replicas = {"new": 0, "asked": low, "partly": low}.get(state, wanted)
    ps = _servers(rng, packer, state) if rng.random() < 0.4 else None
    is_complete = ps is None or ps.placed >= ps.min
    workers = packer.placed(low, high, placed if is_complete else 0, replicas, needs)
    if state == "running":
        # A job that runs has what it was given.
        workers = replace(workers, replicas=max(workers.placed, workers.min))
    submitted_s = rng.choice([0.0, 500.0, 900.0, 990.0])
    new = job(f"j{number}", low, high, kind=rng.choice(KINDS), submitted_s=submitted_s, ps=ps)
    new = replace(new, workers=workers)
    phase = JobPhase.WAITING if new.is_waiting else JobPhase.RUNNING
    since = submitted_s + rng.choice([0, 5]) if new.is_waiting else None
    return replace(new, phase=phase, waiting_since_s=since, telling=_telling(rng))


def _telling(rng):
    """Of a job that nobody has seen, or was seen at some sizes, with or without its work."""
    if rng.random() < 0.3:
        return Telling()
    rate, grows = rng.choice([1.0, 50.0]), rng.random()
    seen = rng.choice([(1,), (1, 2, 4), (2, 8)])
    return Telling(
        speeds=tuple(Speed(size, -(-size // 4), rate * size**grows, 64) for size in seen),
        remaining_samples=rng.choice([None, 100.0, 1e4, 1e6]),
        trained_samples=rng.choice([None, 100.0, 1e5]),
        rescale_s=rng.choice([None, 0.0, 1.0]),
    )


def _servers(rng, packer, state):
    low = rng.choice([1, 2])
    high = low + rng.choice([0, 0, 2])
    placed = 0 if state in {"new", "asked"} else low
    return replace(packer.placed(low, high, placed, low, packer.needs(gpus=False)), role="ps")


class _Packer:
    """Puts pods where there is room, at random."""

    def __init__(self, rng, nodes):
        self.rng, self.nodes = rng, nodes
        self.free = {each.name: Counter(each.allocatable) for each in nodes}
        self.cards = {each.name: {} for each in nodes}

    def needs(self, gpus=True):
        """Requests, limits, share and rules."""
        rng = self.rng
        gpu, share = None, None
        if gpus and rng.random() < 0.3:
            gpu = rng.choice([1, 2])
        elif gpus and rng.random() < 0.3:
            share = Share(rng.choice([250, 400, 500, 1000]), rng.choice([0, 6 << 30]))
        requests = amounts(rng.choice([1, 2, 3, "500m"]), rng.choice(["1Gi", "3Gi"]), gpu)
        limits = dict(requests)
        if rng.random() < 0.3:
            limits["cpu"] = requests["cpu"] * 2
        return requests, limits, share, rng.choice(RULES)

    def placed(self, low, high, count, replicas, needs):
        requests, limits, share, rules = needs
        placement, cards = Counter(), {}
        for _ in range(count):
            found = self._place(requests, share, rules)
            if found is None:
                break
            name, card = found
            placement[name] += 1
            if card is not None:
                cards.setdefault(name, Counter())[card] += 1
        return replace(
            group(low, high, dict(placement), limits=limits, replicas=replicas),
            requests=requests,
            share=share,
            rules=rules,
            cards={name: dict(users) for name, users in cards.items()},
        )

    def pod(self):
        requests, limits, share, rules = self.needs()
        found = self._place(requests, share, rules) if self.rng.random() < 0.8 else None
        name, card = found or (None, None)
        return replace(
            pod(name), requests=requests, limits=limits, rules=rules, share=share, card=card
        )

    def _place(self, requests, share, rules):
        for each in self.rng.sample(self.nodes, len(self.nodes)):
            free = self.free[each.name]
            if not rules.admit(each.name, each.labels, each.taints):
                continue
            if any(free[name] < need for name, need in requests.items()):
                continue
            card = None
            if share is not None:
                card = self._card(each, share, free[GPU] - requests.get(GPU, 0))
                if card is None:
                    continue
            free.subtract(requests)
            return each.name, card
        return None

    def _card(self, on, share, whole):
        cards = self.cards[on.name]
        most = on.card_memory_bytes
        for name in [*sorted(cards), f"card{len(cards)}"]:
            milli, size = cards.get(name, (0, 0))
            is_new = name not in cards
            if is_new and whole < MILLI:
                return None
            milli, size = milli + share.milli, size + share.memory_bytes
            if milli <= MILLI and (most is None or size <= most):
                cards[name] = (milli, size)
                if is_new:
                    self.free[on.name][GPU] -= MILLI
                return name
        return None


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
    """Decisions beyond what a job may have."""
    jobs = {each.key: each for each in snapshot.jobs}
    return [
        each
        for each in plan.decisions
        if not jobs[each.job].workers.min <= each.replicas <= jobs[each.job].workers.max
        and not (may_stop and each.replicas == 0)
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


def shuffled(snapshot, rng):
    """The same cluster, listed in another order."""

    def mixed(values):
        values = list(values)
        rng.shuffle(values)
        return values

    def turned(held):
        return replace(held, placement=dict(mixed(held.placement.items())))

    jobs = [replace(each, workers=turned(each.workers)) for each in mixed(snapshot.jobs)]
    return replace(
        snapshot,
        nodes=tuple(mixed(snapshot.nodes)),
        jobs=tuple(jobs),
        pods=tuple(mixed(snapshot.pods)),
    )


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
        key = (frozenset(amounts.items()), on.taints, frozenset(on.labels.items()), name if rules.nodes else "")
        if key in seen or not rules.admit(name, on.labels, on.taints):
            continue
        seen.add(key)
        if all(amounts[each] >= need for each, need in needs.items()):
            less = {each: Counter(have) if each == name else have for each, have in free.items()}
            less[name].subtract(needs)
            if _all_fit(less, nodes, rest):
                return True
    return False
