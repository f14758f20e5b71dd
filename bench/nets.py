"""The nets that Shoal and PyTorch are measured on, and how one measurement is made and interleaved
with the others. bench/run and bench/ddp choose the jobs and print the tables."""
import os
import statistics
import tempfile
import time
from collections import namedtuple

import common
from common import HERE, say

Net = namedtuple("Net", "name title model batch data optimizer lr")
MNIST, SYNTHETIC_MNIST = "mnist", "synthetic:classes=10,shape=1x28x28,count=60000"
NETS = {net.name: net for net in (
    Net("mlp512", "MLP 784-512-512-10, batch 128", "{name: mlp, hidden: [512, 512]}", 128, MNIST,
        "momentum", 0.02),
    Net("mlp200", "MLP 784-200-200-10, batch 10", "{name: mlp, hidden: [200, 200]}", 10, MNIST,
        "momentum", 0.02),
    Net("lenet", "LeNet, batch 128", "lenet", 128, MNIST, "momentum", 0.02),
    Net("alexnet", "AlexNet 224x224, batch 32", "{name: alexnet, dropout: 0}", 32,
        "synthetic:classes=1000,shape=3x224x224,count=1024", "momentum", 0.001),
    Net("resnet18", "ResNet-18 32x32, batch 64", "resnet18", 64,
        "synthetic:classes=10,shape=3x32x32,count=4096", "momentum", 0.001),
    Net("gpt", "GPT 6 layers, 384 wide, context 256, batch 8",
        "{name: gpt, layers: 6, heads: 6, width: 384}", 8,
        "synthetic:tokens=65,context=256,count=4096", "adamw", 3e-4),
    Net("gpt2", "GPT-2 124M, context 64, batch 4", "gpt2", 4,
        "synthetic:tokens=50257,context=64,count=4096", "adamw", 3e-4),
)}

# A job is one measurement. The workers of a job divide the net's batch among themselves.
Job = namedtuple("Job", "net system workers threads rep")
Settings = namedtuple("Settings", "shoal seconds mnist cache")


def choose(measured):
    """The nets of NETS="...", in their usual order, as far as this benchmark measures them."""
    wanted = common.chosen("NETS", NETS)
    return [NETS[name] for name in NETS if name in wanted and name in measured]


def choose_systems():
    wanted = common.chosen("SYSTEMS", ["shoal", "torch"])
    if "torch" not in wanted or common.torch_version() is not None:
        return wanted
    say("bench: PyTorch is not installed, so Shoal is measured alone\n"
        "  try: apt-get install python3-torch libopenblas0-openmp")
    return ["shoal"]


def shoal_command(settings, job, *more):
    net = job.net
    data = SYNTHETIC_MNIST if net.data == MNIST and not settings.mnist else net.data
    command = [settings.shoal, "bench", "train", "--json", "--quiet", "--model", net.model,
               "--data", data, "--batch", str(net.batch), "--optimizer", net.optimizer,
               "--lr", str(net.lr), "--workers", str(job.workers), "--threads", str(job.threads),
               "--seed", "1"]
    if "context=" in data:
        command += ["--context", data.split("context=")[1].split(",")[0]]
    return command + list(more)


def shoal_env(settings):
    """A cache folder of this run's own: kernels are chosen on the machine as it is now."""
    return dict(os.environ, XDG_CACHE_HOME=settings.cache)


def torch_command(settings, job):
    script = "torch_train.py" if job.workers == 1 else "torch_ddp.py"
    command = [common.PYTHON, os.path.join(HERE, script), job.net.name,
               "--threads", str(job.threads), "--seconds", str(settings.seconds)]
    if job.workers > 1:
        command += ["--workers", str(job.workers)]
    return command + (["--data", settings.mnist] if settings.mnist and job.net.data == MNIST
                      else [])


def measure(settings, job):
    if job.system == "shoal":
        command = shoal_command(settings, job, "--seconds", str(settings.seconds))
        env = shoal_env(settings)
    else:
        command, env = torch_command(settings, job), common.torch_env(job.threads)

    def once():
        out, wall, steal = common.watched(command, env)
        return dict(common.last_json(out), wall_s=round(wall, 2), steal=round(steal, 4))

    return dict(common.undisturbed(once), system=job.system, net=job.net.name,
                workers=job.workers, threads=job.threads, rep=job.rep)


def choose_kernels(settings, job):
    """The first run ever of a net measures which kernels are fastest and remembers them. It is kept
    out of the timings; its start is noted as first_cold_s."""
    out, _, _ = common.watched(
        shoal_command(settings, job, "--warmup", "0", "--bench-steps", "1"), shoal_env(settings))
    return common.last_json(out)["cold_s"]


class Progress:
    """One line per measurement, with the time that is left by what alike ones took."""

    def __init__(self, jobs):
        self.jobs, self.took = jobs, {}

    def left_s(self, at):
        mean = statistics.mean(self.took.values()) if self.took else None
        times = [self.took.get(job._replace(rep=0), mean) for job in self.jobs[at:]]
        return None if None in times else sum(times)

    def show(self, at):
        job, left = self.jobs[at], self.left_s(at)
        eta = "" if left is None else f", about {left / 60:.1f} min left"
        workers = f"{job.workers} workers x " if job.workers > 1 else ""
        say(f"bench: {at + 1}/{len(self.jobs)} {job.net.name} {workers}{job.threads} thread"
            f"{'s' if job.threads > 1 else ''} {job.system} (round {job.rep}){eta}")

    def done(self, at, seconds):
        self.took[self.jobs[at]._replace(rep=0)] = seconds


def run_all(settings, jobs):
    """Returns the results of the jobs that did not fail, and the first starts of Shoal."""
    results, first, progress = [], {}, Progress(jobs)
    for at, job in enumerate(jobs):
        progress.show(at)
        begin = time.monotonic()
        try:
            key = "/".join([job.net.name, *([f"{job.workers}x"] if job.workers > 1 else []),
                            str(job.threads)])
            if job.system == "shoal" and key not in first:
                first[key] = choose_kernels(settings, job)
            result = measure(settings, job)
        except common.Failed as why:
            say(f"bench: {why}")
            continue
        results.append(result)
        say(f"bench:   {result['ms']:.3f} ms a step ({result['p10']:.3f} to {result['p90']:.3f}), "
            f"{result['samples_s']:.0f} /s, {result['rss_mib']:.0f} MiB, "
            f"first step after {result['cold_s']:.2f} s, {result['steal']:.1%} stolen")
        progress.done(at, time.monotonic() - begin)
    return results, first


def median(results, system, net, workers, threads, key):
    return common.median(r.get(key) for r in results if (system, net.name, workers, threads)
                         == (r["system"], r["net"], r["workers"], r["threads"]))


def rounds_ratio(results, above, below, key="ms"):
    """The median of a ratio that is taken in each round, where both sides were measured within a
    minute: the machine drifts more between rounds. A side is (system, net, workers, threads)."""
    def by_round(side):
        return {r["rep"]: r.get(key) for r in results
                if side == (r["system"], r["net"], r["workers"], r["threads"])}

    top, bottom = by_round(above), by_round(below)
    return common.median(common.ratio(top[rep], bottom.get(rep)) for rep in top)


def benchmark(shoal, name, jobs, command):
    """Measures all jobs, keeps the measurements, prints the heading of a table; returns results."""
    reps, seconds = max(job.rep for job in jobs), common.number("SECONDS_EACH", 10)
    torch = common.torch_version()
    mnist = common.mnist_folder(shoal) if any(job.net.data == MNIST for job in jobs) else None
    with common.machine_lock(), tempfile.TemporaryDirectory(prefix="shoal-bench-") as cache:
        load = common.note_load()
        results, first = run_all(Settings(shoal, seconds, mnist, cache), jobs)
    header = dict(common.header(shoal), torch=torch, load=load, command=command)
    common.save(name, dict(header, first_cold_s=first, measurements=results))
    print(f"{header['machine']}; {header['shoal']}, PyTorch {torch or '-'}; float32, median of "
          f"{reps} runs of {seconds:g} s; load {load:.1f} before; {header['date']}\n\n"
          f"    {command}\n")
    return results
