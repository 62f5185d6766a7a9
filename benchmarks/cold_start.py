"""Import torch, build a model and read its parameters: what a new process cannot do without.

Nothing of `elastic` is used here, as in the plain loops.

    python benchmarks/cold_start.py MODEL_ZOO MODULE PARAMETERS [NAME=VALUE …]

PARAMETERS is a raw file of the parameters, one after the other.
"""

import importlib
import sys
from pathlib import Path

import numpy as np
import torch


def main() -> None:
    model_zoo, module, parameters, *pairs = sys.argv[1:]
    sys.path.insert(0, model_zoo)
    params = {name: int(value) for name, value in (pair.split("=") for pair in pairs)}
    model = importlib.import_module(module).CustomModel(**params)
    pulled = torch.from_numpy(np.frombuffer(bytearray(Path(parameters).read_bytes()), np.float32))
    torch.nn.utils.vector_to_parameters(pulled, model.parameters())
    print("{}")


if __name__ == "__main__":
    main()
