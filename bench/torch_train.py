#!/usr/bin/python3
"""Trains one net of the benchmark in PyTorch and prints one line of JSON, as `shoal bench train
--json` does. bench/run starts it in the right environment (common.torch_env).

A step takes a batch that is in memory, goes forward and backward, and updates the parameters.
With --accuracy it trains LeNet on MNIST until the test accuracy is reached.
"""
import argparse
import json
import os
import resource
import statistics
import time
from collections import namedtuple


def process_start():
    """The wall-clock time at which the kernel started this process."""
    with open("/proc/self/stat") as file:
        ticks = int(file.read().rsplit(")", 1)[1].split()[19])
    with open("/proc/uptime") as file:
        boot = time.time() - float(file.read().split()[0])
    return boot + ticks / os.sysconf("SC_CLK_TCK")


START = process_start()  # before the import of torch, which is part of a cold start

import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

import torch_nets as nets  # noqa: E402

# data: mnist (as shape says), random images, or random text; shape: of one sample; classes: those
# of the images, or the tokens of the text. The layout is the fastest of nchw, channels-last and
# oneDNN's own (which ResNet18 sets up itself).
Net = namedtuple("Net", "build batch data shape classes optimizer lr channels_last")
NETS = {
    "mlp512": Net(lambda: nets.mlp(784, 512, 512, 10), 128, "mnist", (784,), 10, "sgd", 0.02,
                  False),
    "mlp200": Net(lambda: nets.mlp(784, 200, 200, 10), 10, "mnist", (784,), 10, "sgd", 0.02, False),
    "lenet": Net(nets.lenet, 128, "mnist", (1, 28, 28), 10, "sgd", 0.02, True),
    "alexnet": Net(nets.alexnet, 32, "images", (3, 224, 224), 1000, "sgd", 0.001, True),
    "resnet18": Net(nets.ResNet18, 64, "images", (3, 32, 32), 10, "sgd", 0.001, False),
    "gpt": Net(lambda: nets.GPT(6, 6, 384, 256, 65, "none"), 8, "text", (256,), 65, "adamw", 3e-4,
               False),
    "gpt2": Net(lambda: nets.GPT(12, 12, 768, 64, 50257, "tanh"), 4, "text", (64,), 50257, "adamw",
                3e-4, False),
}


def read_idx(path):
    raw = np.fromfile(path, dtype=np.uint8)
    rank = int(raw[3])
    shape = raw[4:4 + 4 * rank].view(">u4").astype(int)
    return raw[4 + 4 * rank:].reshape(shape)


def read_mnist(folder, part, shape):
    images = torch.from_numpy(read_idx(f"{folder}/{part}-images-idx3-ubyte"))
    labels = torch.from_numpy(read_idx(f"{folder}/{part}-labels-idx1-ubyte").astype(np.int64))
    images = images.float().div_(255).sub_(0.1307).div_(0.3081)
    return images.view(-1, *shape), labels


def shuffled_batches(x, y, batch):
    while True:
        order = torch.randperm(len(x))
        for at in range(0, len(x) - batch + 1, batch):
            chosen = order[at:at + batch]
            yield x[chosen], y[chosen]


def token_batches(batch, context, vocabulary):
    while True:
        window = torch.randint(vocabulary, (batch, context + 1))
        yield window[:, :-1], window[:, 1:].reshape(-1)


def pooled_batches(batch, shape, classes):
    pool = [(torch.randn(batch, *shape), torch.randint(classes, (batch,))) for _ in range(4)]
    while True:
        yield from pool


def make_batches(net, batch, data):
    if net.data == "text":
        return token_batches(batch, net.shape[0], net.classes)
    if net.data == "mnist" and data:
        return shuffled_batches(*read_mnist(data, "train", net.shape), batch)
    return pooled_batches(batch, net.shape, net.classes)


class Trainer:
    def __init__(self, net, wrap=lambda model: model, fresh_gradients=True):
        self.channels_last, self.fresh_gradients = net.channels_last, fresh_gradients
        model = net.build()
        if self.channels_last:
            model = model.to(memory_format=torch.channels_last)
        self.model = wrap(model)
        parameters = list(self.model.parameters())
        if net.optimizer == "adamw":
            self.optimizer = torch.optim.AdamW(parameters, lr=net.lr, foreach=True)
        else:
            self.optimizer = torch.optim.SGD(parameters, lr=net.lr, momentum=0.9, foreach=True)

    def step(self, x, y):
        if self.channels_last:
            x = x.contiguous(memory_format=torch.channels_last)
        loss = F.cross_entropy(self.model(x), y)
        self.optimizer.zero_grad(set_to_none=self.fresh_gradients)
        loss.backward()
        self.optimizer.step()
        return loss

    def accuracy(self, x, y):
        with torch.no_grad():
            right = sum((self.model(part).argmax(1) == wanted).sum().item()
                        for part, wanted in zip(x.split(1000), y.split(1000)))
        return right / len(y)


def figures(args, net, batch, times, cold_s):
    times = sorted(times)
    median = statistics.median(times)
    per_sample = net.shape[0] if net.data == "text" else 1
    return {"net": args.net, "ms": round(median, 4), "p10": round(times[len(times) // 10], 4),
            "p90": round(times[len(times) * 9 // 10], 4),
            "samples_s": round(batch * per_sample / median * 1e3, 1),
            "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            "cold_s": round(cold_s, 3), "threads": args.threads, "batch": batch,
            "steps": len(times)}


def timed_step(trainer, batches):
    begin = time.perf_counter()
    trainer.step(*next(batches))
    return (time.perf_counter() - begin) * 1e3


def measure(trainer, batches, args, net, batch):
    trainer.step(*next(batches)).item()
    cold_s = time.time() - START
    for _ in range(args.warmup):
        trainer.step(*next(batches))
    times, spent = [], 0
    while len(times) < 10 or spent < args.seconds * 1e3:
        times.append(timed_step(trainer, batches))
        spent += times[-1]
    return figures(args, net, batch, times, cold_s)


def train_to(trainer, args, net, batch):
    x, y = read_mnist(args.data, "train", net.shape)
    x_test, y_test = read_mnist(args.data, "t10k", net.shape)
    batches, accuracy = shuffled_batches(x, y, batch), 0.0
    for epoch in range(1, args.epochs + 1):
        for _ in range(len(x) // batch):
            trainer.step(*next(batches))
        accuracy = trainer.accuracy(x_test, y_test)
        if accuracy >= args.accuracy:
            break
    return {"net": args.net, "accuracy": accuracy, "epochs": epoch,
            "wall_s": round(time.time() - START, 2)}


def make_options(description):
    options = argparse.ArgumentParser(description=description)
    options.add_argument("net", choices=NETS)
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--batch", type=int, default=0, help="0: the net's own")
    options.add_argument("--seconds", type=float, default=5, help="measured time")
    options.add_argument("--warmup", type=int, default=5, help="steps before the measured ones")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--data", default="", help="folder with MNIST; without: random images")
    return options


def set_up(args):
    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(args.seed)


def main():
    options = make_options(__doc__.splitlines()[0])
    options.add_argument("--accuracy", type=float, default=0, help="train until it is reached")
    options.add_argument("--epochs", type=int, default=20, help="with --accuracy: at most")
    args = options.parse_args()
    net = NETS[args.net]
    if args.accuracy and (args.net != "lenet" or not args.data):
        options.error("--accuracy is for lenet, with --data")

    set_up(args)
    batch = args.batch or net.batch
    trainer = Trainer(net)
    if args.accuracy:
        result = train_to(trainer, args, net, batch)
    else:
        result = measure(trainer, make_batches(net, batch, args.data), args, net, batch)
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
