"""Objects of which parts are anything at all, made of ones with which nothing is wrong."""

import copy

SCALARS = (
    None, True, False, 0, 1, 2, 3, -1, 7164, 65535, 2**31, 2**63, 10**30, 0.5, -0.0, 1e300, "", " ",
    "1", "4", "-1", "8Gi", "1e999999", "0.5", "All", "None", "Never", "ExitCode", "tensorflow",
    "spec", "a:b", "/", "x" * 300, "\u00fc\u0000\u2028", "{}", "%s {0} {text}",
)  # fmt: skip
"""None is a number of replicas that a test could wait for."""

KEYS = (
    "spec", "metadata", "labels", "annotations", "name", "containers", "initContainers",
    "resources", "limits", "requests", "cpu", "env", "ports", "containerPort", "replicas",
    "template", "Worker", "PS", "Chief", "Master", "min-instance", "max-instance",
    "min-instances", "tolerations", "affinity", "nodeAffinity", "nodeSelector",
    "schedulingGates", "kubeshare/gpu_request", "unknown", "", "a.b",
)  # fmt: skip


def junk(rng, depth=3):
    """Any value that JSON has."""
    match rng.randrange(6 if depth else 4):
        case 4:
            return [junk(rng, depth - 1) for _ in range(rng.randrange(4))]
        case 5:
            return {rng.choice(KEYS): junk(rng, depth - 1) for _ in range(rng.randrange(5))}
    return rng.choice(SCALARS)


def random_object(valid, name, rng):
    """An object in whose spec up to four things are otherwise."""
    made = copy.deepcopy(valid)
    made["metadata"] = {"name": name, "namespace": "team"}
    if rng.random() < 0.05:
        made["spec"] = junk(rng)
        return made
    for _ in range(rng.randint(1, 4)):
        _change(made, rng)
    return made


def _change(made, rng):
    holder, key = rng.choice([(made, "spec"), *_places(made["spec"])])
    what = "junk" if holder is made else rng.choice(["junk", "junk", "add", "remove", "copy"])
    match what:
        case "add" if isinstance(holder, dict):
            # A field that is unknown, or was left out.
            holder[rng.choice(KEYS)] = junk(rng)
        case "remove":
            del holder[key]
        case "copy":
            donor, other = rng.choice(list(_places(made["spec"])))
            holder[key] = copy.deepcopy(donor[other])
        case _:
            holder[key] = junk(rng)


def _places(value):
    """Each container within a value, with each of its keys."""
    items = list(value.items()) if isinstance(value, dict) else []
    items = list(enumerate(value)) if isinstance(value, list) else items
    for key, within in items:
        yield value, key
        yield from _places(within)
