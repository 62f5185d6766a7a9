"""The obedient model, without metrics."""

from obedient import *  # noqa: F403 - the rest of the module is that one's

del eval_metrics_fn  # noqa: F821 - of that module
