#!/usr/bin/python3
"""All-reduce over Gloo, through PyTorch, timed as mpi_allreduce.c times MPI.

gloo_allreduce.py RANKS SECONDS BYTES...      one line of JSON per size
"""
import json
import statistics
import sys
import time

import torch
import torch.distributed as dist

import torch_ranks


def measure(rank, ranks, size, seconds):
    count, calls = size // 4, 20 if size <= 64 << 10 else 1
    x = (torch.arange(count) % 7 + rank).float()
    dist.all_reduce(x)
    wanted = (torch.arange(count) % 7 * ranks + ranks * (ranks - 1) // 2).float()
    if not torch.equal(x, wanted):
        sys.exit("gloo_allreduce: a sum is wrong")
    x.zero_()

    def sample():
        dist.barrier()
        start = time.perf_counter()
        for _ in range(calls):
            dist.all_reduce(x)
        return (time.perf_counter() - start) * 1e6 / calls

    for _ in range(3):
        last = sample()
    samples = torch.tensor([max(5, min(1000, int(seconds * 1e6 / (last * calls))))])
    dist.broadcast(samples, 0)
    us = torch.tensor([sample() for _ in range(int(samples))], dtype=torch.float64)
    dist.all_reduce(us, op=dist.ReduceOp.MAX)
    if rank == 0:
        print(json.dumps({"bytes": size, "us": statistics.median(us.tolist()),
                          "samples": len(us)}), flush=True)


def work(rank, ranks, seconds, sizes):
    torch.set_num_threads(1)
    for size in sizes:
        measure(rank, ranks, size, seconds)


def main():
    ranks, seconds, sizes = int(sys.argv[1]), float(sys.argv[2]), [int(a) for a in sys.argv[3:]]
    torch_ranks.start(ranks, work, seconds, sizes)


if __name__ == "__main__":
    main()
