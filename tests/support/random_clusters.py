"""Clusters of any kind for properties of policies."""

import random
from collections import Counter
from dataclasses import replace

from hypothesis import strategies as st

from elastic.policy.cluster import (
    GPU,
    MILLI,
    JobPhase,
    Rules,
    Share,
    Snapshot,
    Speed,
    Taint,
    Telling,
    Toleration,
)
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


def crowded(snapshot, times):
    """So many of the same cluster beside each other, with as many jobs that need the same.

    Of the later half the limits are higher, and what is requested the same.
    """

    def there(of, number):
        return {f"{name}-{number}": each for name, each in of.items()}

    def beside(group, number):
        if group is None:
            return None
        limits = dict(group.limits)
        limits["cpu"] *= 1 if 2 * number < times else 2
        placement, cards = there(group.placement, number), there(group.cards, number)
        return replace(group, placement=placement, cards=cards, limits=limits)

    def named(each, number, **more):
        return replace(each, name=f"{each.name}-{number}", **more)

    numbers = range(times)
    nodes = tuple(named(each, number) for number in numbers for each in snapshot.nodes)
    jobs = tuple(
        named(each, number, workers=beside(each.workers, number), ps=beside(each.ps, number))
        for number in numbers
        for each in snapshot.jobs
    )
    pods = tuple(
        replace(each, node=each.node and f"{each.node}-{number}")
        for number in numbers
        for each in snapshot.pods
    )
    return replace(snapshot, nodes=nodes, jobs=jobs, pods=pods)


def without_parts(snapshot):
    """The same cluster, in which nobody has a part of a GPU."""

    def whole(held):
        return held and replace(held, share=None, cards={})

    jobs = (replace(each, workers=whole(each.workers), ps=whole(each.ps)) for each in snapshot.jobs)
    pods = (replace(each, share=None, card=None) for each in snapshot.pods)
    return replace(snapshot, jobs=tuple(jobs), pods=tuple(pods))
