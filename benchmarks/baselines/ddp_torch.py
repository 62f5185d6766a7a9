"""Train a torch model with DistributedDataParallel over gloo and print its speed as JSON.

Start it with two processes that compute with one thread each:

    OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node 2 \\
        benchmarks/baselines/ddp_torch.py --model_zoo model_zoo …

Each process works through its own part of the records; speed counts the records of all.
"""

import os
import sys
from collections.abc import Iterator

import torch
import torch.distributed as dist
from baseline import (
    import_model,
    parse_arguments,
    parse_model_params,
    print_result,
    read_epoch,
    records,
    run,
)
from batching import minibatches
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    arguments = parse_arguments(__doc__)
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    module, build = import_model(arguments.model_zoo, arguments.model_def)
    model = DistributedDataParallel(build(**parse_model_params(arguments.model_params)).train())
    optimizer = module.optimizer(model.parameters())

    def run_epoch(epoch: int) -> Iterator[tuple[int, float]]:
        # An epoch ends when the slowest rank has ended the one before.
        dist.barrier()
        arrays, order = read_epoch(arguments.data, arguments.seed + epoch, rank, world_size)
        examples = module.dataset_fn(records(arrays, order), "training")
        for features, labels, n in minibatches(examples, arguments.minibatch_size):
            optimizer.zero_grad()
            loss = module.loss(labels, model(features))
            loss.backward()
            optimizer.step()
            yield n * world_size, loss.item()

    result = run(run_epoch, arguments.epochs, arguments.steps)
    if rank == 0:
        print_result({"world_size": world_size, **result})
    # Every rank is done here, and none may tear down: a thread of gloo may still hold a tensor, and
    # one that gives it back while the interpreter ends takes the process with it (SIGABRT).
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
