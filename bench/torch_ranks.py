"""Processes of this machine that PyTorch joins over Gloo."""
import os
import tempfile

import torch.distributed as dist
import torch.multiprocessing as processes


def join(rank, ranks, meeting, work, args):
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    work(rank, ranks, *args)
    dist.barrier()
    dist.destroy_process_group()


def start(ranks, work, *args):
    """Calls work(rank, ranks, *args) in `ranks` processes and waits; fails when one of them does."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        processes.spawn(join, (ranks, os.path.join(folder, "meeting"), work, args), nprocs=ranks)
