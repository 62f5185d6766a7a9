"""What TensorFlow says of a failed kernel, without the graph around it."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import tensorflow as tf

from elastic.errors import ModelDefError
from elastic.frameworks.user_code import named, user_code

_NOISE: Final = re.compile(
    r"^Graph execution error:\s*|^<stack traces unavailable>\n?"
    r"|^Detected at node .*\n(?:\s*File .*\n|\s{4}.*\n|\s*\n)*"
    r"|\{\{function_node \S+\}\} ?|\s*\[\[\{?\{?.*\]\]|\s*\[Op:[^]]*\]( name:.*)?",
    re.MULTILINE,
)


@contextmanager
def keras_code(what: str | Callable[[], str]) -> Iterator[None]:
    """`user_code` for functions that run in TensorFlow.

    Raises:
        MemoryError: TensorFlow could not allocate a tensor.
    """
    with user_code(what):
        try:
            yield
        except tf.errors.ResourceExhaustedError as error:
            raise MemoryError(f"{named(what)} ran out of memory: {_plain(error)}") from error
        except tf.errors.OpError as error:
            text = f"{named(what)} failed: {type(error).__name__}: {_plain(error)}"
            raise ModelDefError(text) from error


def _plain(error: tf.errors.OpError) -> str:
    return " ".join(_NOISE.sub("", str(error.message)).split())
