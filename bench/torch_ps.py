#!/usr/bin/python3
"""A parameter server in PyTorch over Gloo's send and receive: asynchronous SGD with one server and
the given number of workers, MLP 784-512-512-10. Prints a line of JSON with the updates per second.

Written to be fast: parameters and gradients are views of one flat tensor each, so that a pull and a
push are one message, the server updates in place, and no tensor is made after the first step.
"""
import argparse
import json
import time

import torch
import torch.distributed as dist

import torch_ranks

SIZES, LR = (784, 512, 512, 10), 0.05


def make_net():
    layers = []
    for inputs, outputs in zip(SIZES, SIZES[1:]):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


def flatten(net):
    """The parameters and gradients of the net become views of two flat tensors."""
    total = sum(p.numel() for p in net.parameters())
    weights, gradients, at = torch.empty(total), torch.zeros(total), 0
    for p in net.parameters():
        part = slice(at, at + p.numel())
        weights[part].copy_(p.data.view(-1))
        p.data, p.grad = weights[part].view_as(p), gradients[part].view_as(p)
        at += p.numel()
    return weights, gradients


def serve(workers, args):
    """Updates are counted after the first second."""
    weights, gradients = flatten(make_net())
    for worker in range(1, workers + 1):
        dist.send(weights, worker)
    updates, begin = 0, None
    start = time.monotonic()
    left = workers
    while left:
        worker = dist.recv(gradients)
        weights.add_(gradients, alpha=-LR)
        now = time.monotonic()
        if begin is None and now > start + 1:
            begin = now
        elif begin is not None and now <= begin + args.seconds:
            updates += 1
            last = now
        over = begin is not None and now > begin + args.seconds
        # A first element that is no number ends the worker.
        dist.send(torch.full_like(weights, float("nan")) if over else weights, worker)
        left -= over
    print(json.dumps({"updates_per_s": updates / (last - begin)}))


def work(args):
    net, loss = make_net(), torch.nn.CrossEntropyLoss()
    weights, gradients = flatten(net)
    batches = [(torch.rand(args.batch, SIZES[0]), torch.randint(SIZES[-1], (args.batch,)))
               for _ in range(64)]
    step = 0
    while True:
        dist.recv(weights, 0)
        if weights[0].isnan():
            return
        gradients.zero_()
        x, y = batches[step % len(batches)]
        loss(net(x), y).backward()
        dist.send(gradients, 0)
        step += 1


def run(rank, ranks, args):
    torch.set_num_threads(1)
    torch.manual_seed(1)
    if rank == 0:
        serve(ranks - 1, args)
    else:
        work(args)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=32, help="of each worker")
    parser.add_argument("--seconds", type=float, default=5)
    options = parser.parse_args()
    torch_ranks.start(options.workers + 1, run, options)
