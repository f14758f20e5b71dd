"""The report of a finished run, of a comparison, of a simulated run and of a hostile one, as a browser shows it."""
import json
import pathlib

from browser import Browser, shoal

TRAIN = ["--model", "mlp", "--data", "digits", "--lr", "0.05", "-q"]


def make_runs():
    shoal("train", *TRAIN, "-n", 2, "--epochs", 8, "--trace", "--out", "runs/bsp")
    shoal("train", *TRAIN, "-n", 2, "--epochs", 8, "--sync", "async", "--out", "runs/async")
    shoal("simulate", *TRAIN, "-n", 4, "--epochs", 4, "--sync", "ssp:3", "--straggler", "3:4x", "--out", "runs/simulated")


def sections(browser):
    return [section.get_attribute("aria-label") for section in browser.all("section")]


def check_clean(browser):
    assert browser.errors() == [], browser.errors()
    foreign = [url for url in browser.requests() if not url.startswith(("file:", "data:"))]
    assert foreign == [], foreign


def check_finished():
    shoal("report", "runs/bsp")
    with Browser() as browser:
        browser.open("runs/bsp/report.html")
        shown = sections(browser)
        for title in ("Loss over steps", "Accuracy over time", "Throughput", "Where the time went", "What is taken for what",
                      "The worst mistakes", "Bytes sent", "Settings"):
            assert title in shown, (title, shown)
        assert any(title.startswith("Timeline of steps") for title in shown), shown
        assert "finished" in browser.text("header")
        # The paragraph says what the metrics say.
        end = json.loads(pathlib.Path("runs/bsp/metrics.jsonl").read_text().splitlines()[-1])
        assert f"for {end['step']} steps" in browser.text("p.words"), browser.text("p.words")
        # Every sample of the test part stands in the confusion matrix once.
        cells = browser.run("return [...document.querySelectorAll('table.confusion tbody tr')].map("
                            "row => [...row.querySelectorAll('td')].slice(0, -2).map(c => +c.textContent || 0)).flat()")
        assert sum(cells) == 297, sum(cells)
        # A canvas that is not empty, at its place before and after.
        drawn = browser.run("const c = document.querySelector('canvas'); const p = c.getContext('2d')"
                            ".getImageData(0, 0, c.width, c.height).data; return p.some(v => v !== 0)")
        assert drawn
        check_clean(browser)


def check_keyboard_and_names():
    with Browser() as browser:
        browser.open("runs/bsp/report.html")
        nodes = browser.accessible()
        for role, name in nodes:
            assert role not in ("image", "img", "button", "region", "DisclosureTriangle") or name, f"{role} without a name"
        assert sum(1 for role, name in nodes if role in ("image", "img") and "table below" in name) >= 8
        # Arrow keys show the values of the points.
        canvas = browser.all("canvas")[0]
        browser.run("document.querySelector('canvas').focus()")
        canvas.send_keys("\ue014")  # right arrow
        shown = browser.run("return Chart.getChart(document.querySelector('canvas')).tooltip.opacity")
        assert shown > 0


def check_narrow_and_dark():
    with Browser(width=320, height=900, dark=True) as browser:
        browser.open("runs/bsp/report.html")
        wide = browser.run("return document.documentElement.scrollWidth")
        assert wide <= 320, f"{wide} pixels on a page of 320"
        background = browser.run("return getComputedStyle(document.body).backgroundColor")
        assert background == "rgb(18, 22, 28)", background
        check_clean(browser)


def check_comparison():
    shoal("report", "runs/bsp", "runs/async", "runs/simulated", "-o", "compared.html")
    with Browser() as browser:
        browser.open("compared.html")
        assert sections(browser)[0] == "The runs side by side"
        assert len(browser.all("section[aria-label='The runs side by side'] tbody tr")) == 3
        assert "Staleness of gradients" in sections(browser)
        names = browser.run("return Chart.getChart(document.querySelector('canvas')).data.datasets.map(d => d.label)")
        for run in ("bsp", "async", "simulated"):
            assert f"{run}, training" in names, names
        check_clean(browser)


def check_hostile():
    """Whoever wrote these files wanted the page to run what they hold."""
    evil = "</script><script>window.harmed=1</script><img src=x onerror=window.harmed=1>"
    folder = pathlib.Path("runs/<img src=x onerror=window.harmed=1>")
    folder.mkdir(parents=True)
    lines = [{"event": "step", "step": 1, "epoch": evil, "train_loss": 1.0, "train_s": evil, "lr": None},
             {"event": "step", "step": 2, "train_loss": 1e308, "train_s": 2}, {"event": evil, "step": 2},
             {"event": "eval", "step": evil, "test_loss": evil, "test_accuracy": [1]},
             {"event": "worker", "worker": evil, "data_s": "x", "compute_s": 1},
             {"event": "staleness", "counts": evil},
             {"event": "end", "step": 2, "workers": evil, "seconds": {}, "all_sent_bytes": 7, "regroups": 1}]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "run.yaml").write_text(f"name: {evil}\nmodel: {evil}\n")
    (folder / "log.txt").write_text(f"2026-11-19T21:49:54.892Z warn  {evil}\n")
    events = [{"name": "thread_name", "ph": "M"}, {"name": evil, "cat": evil, "ph": "X", "ts": 1, "dur": 2, "args": {"step": 1}},
              {"name": evil, "cat": 5, "ph": "X", "ts": "x", "dur": -1, "args": {"step": 1}}]
    (folder / "trace.json").write_text("[\n" + ",\n".join(json.dumps(event) for event in events) + "\n")
    shoal("report", folder, "-o", "hostile.html")
    with Browser() as browser:
        browser.open("hostile.html")
        assert browser.run("return window.harmed") is None
        assert browser.all("section"), "the page stopped"
        assert "onerror" in browser.text("h1")
        check_clean(browser)


make_runs()
check_finished()
check_keyboard_and_names()
check_narrow_and_dark()
check_comparison()
check_hostile()
