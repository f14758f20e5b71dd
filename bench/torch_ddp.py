#!/usr/bin/python3
"""Trains one net of the benchmark in PyTorch's DistributedDataParallel over Gloo, and prints the
line of JSON that torch_train.py prints for one process.

The workers divide the batch among themselves. The time of a step is that of worker 0, as in Shoal.
Which way of DDP is the fastest depends on the net, so a few steps of each are tried first.
"""
import json
import os
import statistics
import time
from collections import namedtuple

import torch_train as single  # first: it notes the start of the process
import torch
import torch.distributed as dist

import torch_ranks

# views: gradients live in DDP's buckets; fresh: they are made anew in every step instead of zeroed
# and added to; pinned: the worker computes on a core of its own, as Shoal's do.
Way = namedtuple("Way", "name views fresh pinned")
WAYS = [Way("views, fresh gradients", True, True, False),
        Way("views, zeroed gradients", True, False, False),
        Way("copies", False, True, False)]
TRIAL_STEPS = 3


class Worker:
    def __init__(self, rank, ranks, args):
        self.rank, self.args, self.net = rank, args, single.NETS[args.net]
        self.cores = sorted(os.sched_getaffinity(0))
        self.batches = single.make_batches(self.net, (args.batch or self.net.batch) // ranks,
                                           args.data)

    def trainer(self, way):
        """Batch statistics are not sent in every step; neither does Shoal."""
        def wrap(model):
            return torch.nn.parallel.DistributedDataParallel(
                model, gradient_as_bucket_view=way.views, broadcast_buffers=False)

        own = {self.cores[self.rank % len(self.cores)]}
        os.sched_setaffinity(0, own if way.pinned else self.cores)
        return single.Trainer(self.net, wrap, way.fresh)

    def times(self, trainer, steps):
        return [single.timed_step(trainer, self.batches) for _ in range(steps)]

    def trial(self, way):
        """The time of a step in ms, the same number for all workers."""
        trainer = self.trainer(way)
        self.times(trainer, 2)  # after the first backward DDP lays out its buckets anew
        ms = torch.tensor([statistics.median(self.times(trainer, TRIAL_STEPS))])
        dist.broadcast(ms, 0)
        return float(ms)

    def fastest(self):
        """The fastest way and the time of its steps."""
        tried = {way: self.trial(way) for way in WAYS}
        best = min(tried, key=tried.get)
        pinned = best._replace(name=best.name + ", pinned", pinned=True)
        tried[pinned] = self.trial(pinned)
        best = min(tried, key=tried.get)
        return best, tried[best]


def work(rank, ranks, args, start):
    single.set_up(args)
    torch.manual_seed(args.seed + rank)  # samples of its own; the model is worker 0's
    worker = Worker(rank, ranks, args)
    worker.times(worker.trainer(WAYS[0]), 1)
    cold_s = time.time() - start
    way, ms = worker.fastest()
    trainer = worker.trainer(way)
    worker.times(trainer, 1 + args.warmup)
    times = worker.times(trainer, max(10, int(args.seconds * 1e3 / ms)))
    if rank == 0:
        batch = args.batch or worker.net.batch
        result = single.figures(args, worker.net, batch, times, cold_s)
        print(json.dumps(dict(result, workers=ranks, way=way.name)), flush=True)


def main():
    options = single.make_options(__doc__.splitlines()[0])
    options.add_argument("--workers", type=int, default=2)
    args = options.parse_args()
    if (args.batch or single.NETS[args.net].batch) % args.workers:
        options.error("the workers cannot divide the batch evenly")
    torch_ranks.start(args.workers, work, args, single.START)


if __name__ == "__main__":
    main()
