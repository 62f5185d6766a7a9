"""Training curves, read back as TensorBoard reads them."""

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util.tensor_util import make_ndarray


def read(folder):
    """The accumulator of a folder, with all that is in its files."""
    accumulator = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    accumulator.Reload()
    return accumulator


def curve(folder, tag):
    """Pairs of step and value, in the order in which TensorBoard has them."""
    return [(event.step, event.value) for event in read(folder).Scalars(tag)]


def tags(folder):
    return set(read(folder).Tags()["scalars"])


def text(folder, tag="job"):
    event = read(folder).Tensors(tag)[-1]
    return make_ndarray(event.tensor_proto).item().decode()
