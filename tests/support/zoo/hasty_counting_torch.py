"""The held counting model, whose job measures its speeds and its noise in a fraction of the time.

The master imports it too, so that a short job comes to change its batch.
"""

from held_counting_torch import *  # noqa: F403 - the rest of the module is that one's

from elastic.policy import accounts
from elastic.policy.updates import elastic_batch
from elastic.policy.updates import elastic_batch as gradient_noise

accounts.WINDOW_S = 0.2
gradient_noise.MEASURED = 3
elastic_batch.LEAST_GAIN = 0.0
