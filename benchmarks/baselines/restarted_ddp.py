"""Train with DistributedDataParallel as torchrun's elastic restarts want it: from checkpoints.

    torchrun --standalone --nproc_per_node 3 --max_restarts 100 \\
        benchmarks/baselines/restarted_ddp.py --checkpoint FILE --checkpoint_s 5 …

Each rank works through its part of a seeded order; rank 0 keeps a checkpoint every so many seconds,
and every start goes on from the last one, in the middle of an epoch too.
"""

import argparse
import os
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from baseline import import_model, parse_model_params
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--model_zoo", "--model_def", "--model_params"):
        parser.add_argument(name, required=True)
    for name in ("--data", "--checkpoint"):
        parser.add_argument(name, required=True, type=Path)
    parser.add_argument("--minibatch_size", required=True, type=int)
    parser.add_argument("--epochs", required=True, type=int)
    parser.add_argument("--checkpoint_s", required=True, type=float)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    module, build = import_model(arguments.model_zoo, arguments.model_def)
    model = build(**parse_model_params(arguments.model_params)).train()
    optimizer = module.optimizer(model.parameters())
    first_step = 0
    if arguments.checkpoint.exists():
        kept = torch.load(arguments.checkpoint)
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        first_step = kept["step"]
    replicated = DistributedDataParallel(model)
    with np.load(arguments.data) as file:
        x, y = torch.from_numpy(file["x"]), torch.from_numpy(file["y"])
    per_epoch = len(x) // (arguments.minibatch_size * world_size)
    kept_s = time.monotonic()
    for step in range(first_step, per_epoch * arguments.epochs):
        epoch, place = divmod(step, per_epoch)
        order = np.random.default_rng(epoch).permutation(len(x))
        begin = (place * world_size + rank) * arguments.minibatch_size
        rows = order[begin : begin + arguments.minibatch_size]
        optimizer.zero_grad()
        module.loss(y[rows], replicated(x[rows])).backward()
        optimizer.step()
        if rank == 0 and time.monotonic() - kept_s >= arguments.checkpoint_s:
            kept_s = time.monotonic()
            _keep(arguments.checkpoint, model, optimizer, step + 1)
    dist.barrier()
    # As in `ddp_torch.py`: a thread of gloo may abort a process that tears down.
    os._exit(0)


def _keep(path: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
    unfinished = path.with_suffix(".new")
    torch.save(state, unfinished)
    unfinished.replace(path)


if __name__ == "__main__":
    main()
