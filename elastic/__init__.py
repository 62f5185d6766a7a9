"""Deep-learning jobs that survive the loss of any process and resize while they run.

Importing this package loads no framework, no gRPC and no cluster client: `elastic --help` and a
user's model_def both import it.
"""

from elastic.spec.mode import Mode

__all__ = ["Mode", "__version__"]

__version__ = "0.1.0"
