"""Studies of accuracy: many training runs of Shoal, each kept as one line of JSON once it is done. A
study can be stopped at any time and goes on where it stopped; bench/compression and
bench/large-batch say which runs they want and print the tables."""
import json
import os
import statistics
import sys
import tempfile
import time

import common
from common import say

# One evaluation and one checkpoint, at the end. A dead worker is an error, not something to go on
# from: the time would count twice.
ALWAYS = ["--eval-every", "1000000000", "--checkpoint-every", "1000000000", "--restarts", "0"]
DIVERGED = ("the loss is", "not finite")  # in the words of a run whose numbers failed


def metrics(folder):
    """What a finished run says of itself: accuracy of the last test, seconds, bytes of the whole run
    and of the steps between its last two lines."""
    last, before = {}, {}
    with open(os.path.join(folder, "metrics.jsonl")) as file:
        for line in file:
            entry = json.loads(line)
            before[entry["event"]] = last.get(entry["event"], {})
            last[entry["event"]] = entry
    step, end = last["step"], last["end"]
    late = {"late_" + key: step[key] - before["step"].get(key, 0)
            for key in ("sent_bytes", "dense_bytes") if step.get(key) is not None}
    train_s = end["seconds"] - end["eval_s"] - end["checkpoint_s"]
    return {"accuracy": last["eval"]["test_accuracy"],
            "validation": last["eval"].get("validation_accuracy"), "steps": end["step"],
            "train_s": round(train_s, 2), "exposed_s": end.get("exposed_s"),
            "sent_bytes": step.get("sent_bytes"), "dense_bytes": step.get("dense_bytes"), **late}


class Study:
    def __init__(self, name, seeds, epochs):
        self.shoal = common.program()
        if common.mnist_folder(self.shoal) is None:
            sys.exit("bench: this study needs MNIST\n  try: shoal data get mnist")
        self.seeds = common.words("SEEDS", seeds)
        self.epochs = common.number("EPOCHS", epochs, int)
        self.path = os.environ.get("RESULTS") or os.path.join(common.out_folder(), name + ".jsonl")
        self.results = self.read()
        self.end = time.monotonic() + 60 * common.number("MINUTES", "inf", zero=True)

    def read(self):
        """{arguments: result}. A line that was cut off when a study was killed is left out."""
        results = {}
        if os.path.exists(self.path):
            with open(self.path) as file:
                for number, line in enumerate(file, 1):
                    try:
                        result = json.loads(line)
                        results[result["arguments"]] = result
                    except (ValueError, KeyError, TypeError):
                        say(f"bench: {self.path}:{number} is no whole result; left out")
        return results

    def keep(self, result):
        self.results[result["arguments"]] = result
        with open(self.path, "a+b") as file:
            if file.tell() > 0:
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # the line before was cut off
                    file.write(b"\n")
            file.write(json.dumps(result).encode() + b"\n")

    def arguments(self, row, seed):
        """The settings of a run, which are also the name of its result: with other settings it is
        another run."""
        return [*row, "--epochs", str(self.epochs), "--seed", seed]

    def train(self, arguments):
        with common.machine_lock(), tempfile.TemporaryDirectory(prefix="shoal-bench-") as folder:
            command = [self.shoal, "train", *arguments, *ALWAYS, "--quiet", "--out", folder,
                       "--overwrite"]
            try:
                _, wall, steal = common.watched(command, dict(os.environ))
            except common.Failed as why:
                if not any(words in str(why) for words in DIVERGED):
                    raise
                return {"diverged": str(why).splitlines()[1]}
            return dict(metrics(folder), wall_s=round(wall, 2), steal=round(steal, 4))

    def run(self, rows, seeds=None):
        """Makes the runs that are missing, all rows of a seed before the next seed. After MINUTES no
        further one is started; 0 prints what is there. Returns how many failed."""
        wanted = [self.arguments(row, seed) for seed in seeds or self.seeds for row in rows]
        wanted = list({" ".join(arguments): arguments for arguments in wanted}.values())
        missing = [arguments for arguments in wanted if " ".join(arguments) not in self.results]
        say(f"bench: {len(wanted) - len(missing)} of {len(wanted)} runs are in "
            f"{os.path.relpath(self.path)}")
        failed, known = 0, dict(common.header(self.shoal), load=common.note_load())
        for at, arguments in enumerate(missing):
            if time.monotonic() >= self.end:
                say(f"bench: the time is up; {len(missing) - at} runs are missing")
                break
            say(f"bench: {at + 1}/{len(missing)} {' '.join(arguments)}")
            try:
                result = self.train(arguments)
            except common.Failed as why:
                say(f"bench: {why}")
                failed += 1
                continue
            say("bench:   " + (result.get("diverged") or f"{result['accuracy']:.2%} after "
                               f"{result['steps']} steps, {result['train_s']:.1f} s"))
            self.keep(dict(result, arguments=" ".join(arguments), **known))
        return failed

    def of(self, row, seeds=None):
        """The results of a row, one per seed that is there."""
        kept = (self.results.get(" ".join(self.arguments(row, seed)))
                for seed in seeds or self.seeds)
        return [result for result in kept if result]

    def complete(self, rows, print_table, before=None):
        """Runs and prints; also what is there when it is stopped by Ctrl-C. rows() is asked after
        before() has made the runs that decide on them, and returns how many of those failed."""
        failed = 0
        try:
            failed += before() if before else 0
            failed += self.run(rows())
        except KeyboardInterrupt:
            say("bench: stopped; the same command goes on from here")
        print("; ".join(dict.fromkeys(f"{r['machine']}; {r['shoal']}" for row in rows()
                                      for r in self.of(row))) or "nothing measured yet")
        print(f"MNIST, {self.epochs} epochs, test accuracy in per cent: mean and standard deviation "
              f"over seeds\n")
        print_table()
        return 1 if failed else 0


def accuracy(results):
    """"99.12 ± 0.05", in per cent; None where no run ended with finite numbers."""
    values = [100 * result["accuracy"] for result in results if "accuracy" in result]
    if not values:
        return None
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{spread}"


def diverged(results):
    count = sum("diverged" in result for result in results)
    return f"{count} of {len(results)} diverged" if count else None


def outcome(results):
    """Accuracy and failures in one cell."""
    return ", ".join(filter(None, (accuracy(results), diverged(results)))) or "-"


def mean(results, key):
    values = [result[key] for result in results if result.get(key) is not None]
    return statistics.mean(values) if values else None
