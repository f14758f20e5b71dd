"""What the benchmarks share: settings, the machine and its lock, processes, cells of tables."""
import contextlib
import datetime
import fcntl
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = "/usr/bin/python3"  # Debian's own, the one that python3-torch belongs to
STEAL_MOST = 0.02  # a measurement that lost more of the CPU to the hypervisor is repeated
REPEATS_MOST = 2


class Failed(Exception):
    """A process of the benchmark failed; the text says which and why."""


def say(text):
    print(text, file=sys.stderr, flush=True)


def words(name, default):
    """A list from the environment: NETS="mlp512 lenet"."""
    return os.environ.get(name, default).replace(",", " ").split()


def number(name, default, kind=float, zero=False):
    """A positive number from the environment, or zero where that means something."""
    text = os.environ.get(name, str(default))
    try:
        value = kind(text)
    except ValueError:
        value = -1
    if not (value > 0 or zero and value == 0):  # so that NaN is refused
        sys.exit(f"bench: {name}='{text}' is not a positive number")
    return value


def chosen(name, known, default=None):
    """Those of `known` that the environment names, in its order; without it the default, or all."""
    wanted = words(name, " ".join(default or known))
    for word in wanted:
        if word not in known:
            sys.exit(f"bench: {name} has no '{word}'\n  try: {name}=\"{' '.join(known)}\"")
    return list(dict.fromkeys(wanted))


def command_line(settings, command):
    """The command that repeats this benchmark, with the settings it was given."""
    given = [f"{name}=\"{os.environ[name]}\"" for name in settings if name in os.environ]
    return " ".join(given + [command])


def program():
    """The Shoal program named on the command line, checked before anything is measured."""
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} SHOAL      settings are environment variables, "
                 "see bench/README.md")
    shoal = os.path.abspath(sys.argv[1])
    if not os.access(shoal, os.X_OK):
        sys.exit(f"bench: '{sys.argv[1]}' is no program\n  try: make")
    return shoal


@contextlib.contextmanager
def machine_lock():
    """Held while measuring, so that no two benchmarks of this machine overlap."""
    path = os.environ.get("BENCH_LOCK") or os.path.join(tempfile.gettempdir(), "bench.lock")
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"bench: another benchmark holds {path}; waiting for it")
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def cpu_model():
    with open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


def machine_line():
    cores = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{cores} cores {cpu_model()}, {memory:.0f} GiB, Linux {platform.release()}"


def note_load():
    """Returns the load of the last minute; says so where other work will disturb the figures."""
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    if load > 0.3 * cores:
        say(f"bench: the machine is busy (load {load:.1f} on {cores} cores); figures taken now are "
            "not worth keeping")
    return load


def cpu_ticks():
    """Ticks of all CPUs since boot: (stolen by the hypervisor, all together)."""
    with open("/proc/stat") as file:
        ticks = [int(word) for word in file.readline().split()[1:9]]
    return ticks[7], sum(ticks)


def watched(command, env):
    """Runs a process. Returns its standard output, wall seconds and the share of stolen time."""
    before, begin = cpu_ticks(), time.monotonic()
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    wall, after = time.monotonic() - begin, cpu_ticks()
    if done.returncode != 0:
        tail = "\n".join((done.stderr or done.stdout).strip().splitlines()[-4:])
        raise Failed(f"exit {done.returncode} of: {' '.join(command)}\n{tail}")
    steal = (after[0] - before[0]) / max(1, after[1] - before[1])
    return done.stdout, wall, steal


def undisturbed(measure):
    """Calls measure() -> dict with `steal`, again while too much is stolen; the calmest counts."""
    best = None
    for attempt in range(1 + REPEATS_MOST):
        result = measure()
        if best is None or result["steal"] < best["steal"]:
            best = result
        if best["steal"] <= STEAL_MOST:
            break
        say(f"bench:   {result['steal']:.1%} of the CPU was stolen"
            + ("; once more" if attempt < REPEATS_MOST else ""))
    return best


def torch_env(threads):
    """PyTorch at its strongest on a CPU: OpenBLAS on PyTorch's own OpenMP threads (the pthread
    build fights with them), and an allocator that keeps its memory, in huge pages."""
    folder = f"/usr/lib/{platform.machine()}-linux-gnu/openblas-openmp"
    if not os.path.isdir(folder):
        say(f"bench: no {folder}: PyTorch runs with another BLAS, slower with several threads\n"
            "  try: apt-get install libopenblas0-openmp")
    return dict(os.environ, LD_LIBRARY_PATH=folder,
                OMP_NUM_THREADS=str(threads), OPENBLAS_NUM_THREADS=str(threads),
                MALLOC_MMAP_MAX_="0", MALLOC_TRIM_THRESHOLD_=str(32 << 30),
                MALLOC_TOP_PAD_=str(64 << 20), GLIBC_TUNABLES="glibc.malloc.hugetlb=1")


def torch_version():
    """None where PyTorch is not installed."""
    done = subprocess.run([PYTHON, "-c", "import torch; print(torch.__version__)"],
                          capture_output=True, text=True, env=torch_env(1))
    return done.stdout.strip() if done.returncode == 0 else None


def shoal_version(shoal):
    done = subprocess.run([shoal, "--version"], capture_output=True, text=True)
    return (done.stdout.strip().splitlines() or ["shoal"])[0]


def header(shoal):
    """What stands above every table."""
    return {"date": datetime.date.today().isoformat(), "machine": machine_line(),
            "shoal": shoal_version(shoal)}


def mnist_folder(shoal):
    """The folder with MNIST, fetched if need be; None where it cannot be had. What Shoal calls its
    data folder is decided here, for both sides."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = os.environ.get("SHOAL_DATA") or os.path.join(cache, "shoal")
    os.environ["SHOAL_DATA"] = folder
    done = subprocess.run([shoal, "data", "get", "mnist"], capture_output=True, text=True)
    if done.returncode != 0 or not os.path.exists(f"{folder}/train-images-idx3-ubyte"):
        say(f"bench: MNIST is not there: {done.stderr.strip()}")
        return None
    return folder


def last_json(text):
    return json.loads(text.strip().splitlines()[-1])


def out_folder():
    folder = os.path.join(HERE, "out")
    os.makedirs(folder, exist_ok=True)
    return folder


def save(name, measurements):
    """Keeps every measurement of a benchmark in a file of its own."""
    moment = datetime.datetime.now().strftime("%Y-%m-%d-%H%M%S")
    path = os.path.join(out_folder(), f"{name}{moment}.json")
    with open(path, "w") as file:
        json.dump(measurements, file, indent=1)
    say(f"bench: all measurements are in {os.path.relpath(path)}")


def median(values):
    """None where there is nothing, as in the cells below."""
    values = [value for value in values if value is not None]
    return statistics.median(values) if values else None


def ratio(a, b):
    return a / b if a is not None and b else None


def cell(value, form, scale=1):
    return "-" if value is None else format(value * scale, form)
