"""The loop of `plain_table` with minibatches as a worker has them: shuffled in chunks, by columns.

Prints its speed as JSON. What a job adds to this is the exchange of parameters and gradients.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import torch

from benchmarks.processes import ROOT
from elastic.data import open_reader
from elastic.frameworks import load_framework
from elastic.frameworks.base import Batch
from elastic.policy.tasks.epochs import OrderForm, RecordOrder, Shuffle
from elastic.policy.tasks.records import Places, RecordRange, Task, TaskKind
from elastic.spec.model_def import ModelDef, SymbolNames, load_model_def
from elastic.worker.batches import BatchStream

MINIBATCHES_PER_TASK: Final = 25


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model_def", required=True, help="module.Symbol in benchmarks/models")
    parser.add_argument("--data", required=True, type=Path, help="file of the records")
    parser.add_argument("--minibatch_size", required=True, type=int, help="records of one step")
    parser.add_argument("--epochs", required=True, type=int, help="epochs to time, after one more")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    model_def = load_model_def(ROOT / "benchmarks" / "models", arguments.model_def, SymbolNames())
    model = model_def.model().train()
    optimizer = model_def.optimizer(model.parameters())
    batches = _Batches(model_def, arguments.data, arguments.minibatch_size)
    seconds = []
    for epoch in range(1 + arguments.epochs):
        begin_s = time.perf_counter()
        for batch in batches.epoch(epoch):
            optimizer.zero_grad()
            loss = model_def.loss(batch.labels, model(batch.features))
            loss.backward()
            optimizer.step()
            loss.item()
        seconds.append(time.perf_counter() - begin_s)
    result = {"seconds_per_epoch": sum(seconds[1:]) / arguments.epochs}
    sys.stdout.write(f"{json.dumps(result)}\n")


class _Batches:
    """The minibatches of epochs, in the order that a job has them in."""

    def __init__(self, model_def: ModelDef, data: Path, minibatch_size: int) -> None:
        reader = open_reader(str(data), minibatch_size, {}, None)
        chunks = reader.create_chunks()
        self._places = Places(chunks.shards)
        form = OrderForm(Shuffle.RECORDS, mixed=chunks.mixed or 1)
        firsts = () if chunks.mixed is None else self._places.firsts
        self._order = RecordOrder(self._places.num_records, 0, form, firsts)
        self._task_size = minibatch_size * MINIBATCHES_PER_TASK
        self._stream = BatchStream(
            load_framework("torch"), model_def, minibatch_size, {TaskKind.TRAINING: reader}
        )

    def epoch(self, epoch: int) -> Iterator[Batch]:
        num_records = self._places.num_records
        for start in range(0, num_records, self._task_size):
            end = min(start + self._task_size, num_records)
            picks = self._places.pick(self._order.records(epoch, start, end))
            records = RecordRange(0, start, end)
            task = Task(0, 0, TaskKind.TRAINING, epoch, records, picks.shards[0], picks=picks)
            with closing(self._stream.open(task)) as minibatches:
                for loaded in minibatches:
                    batch = loaded.result()
                    minibatches.read_ahead()
                    yield batch


if __name__ == "__main__":
    main()
