"""Which of many seeds, or long tests, a run takes: some, drawn by the date, so that every day sees
others."""

import os
import random
from datetime import date

VARIABLE = "ELASTIC_TEST_SEED"
"""What seeds are drawn by where it is set; a run tells its own, so that it can be repeated."""


def drawn_by():
    """What this run draws seeds by; set for all processes of the run by whoever asks first."""
    return os.environ.setdefault(VARIABLE, date.today().isoformat())


def drawn(seeds, count, name):
    """Some of the seeds; `name` tells one draw from the others of a run."""
    return frozenset(random.Random(f"{drawn_by()} {name}").sample(sorted(seeds), count))


def is_drawn(name, every):
    """Whether this run is one of so many that take what has this name."""
    return random.Random(f"{drawn_by()} {name}").randrange(every) == 0
