"use strict";
/* The page of a report: reads the runs from the element "data" and builds a section for everything
 * that they tell. All text of a run goes through textContent, never through HTML. The live page
 * (window.shoalLive) hands new runs to show(). */
(() => {
  const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const colour = i => css("--c" + i % 8);
  const isNumber = v => typeof v === "number" && isFinite(v);

  /* ---- elements ---- */

  function el(tag, attributes, ...children) {
    const made = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
    for (const child of children) made.append(child);
    return made;
  }

  function svg(tag, attributes, ...children) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    for (const child of children) made.append(child);
    return made;
  }

  /* ---- numbers as people write them ---- */

  function digits(value) {
    if (!isNumber(value)) return "–";
    if (Number.isInteger(value)) return value.toLocaleString("en");
    const size = Math.abs(value);
    if (size !== 0 && (size < 1e-3 || size >= 1e7)) return value.toExponential(2);
    return value.toLocaleString("en", {maximumSignificantDigits: 4});
  }
  const percent = value => isNumber(value) ? (100 * value).toFixed(2) + " %" : "–";
  const short = text => text.replace(/\.0+(?= |$)/, "");  // of a number at an axis
  function seconds(value) {
    if (!isNumber(value)) return "–";
    if (value < 1e-3) return (1e6 * value).toFixed(1) + " µs";
    if (value < 1) return (1e3 * value).toFixed(1) + " ms";
    if (value < 120) return value.toFixed(1) + " s";
    return value < 7200 ? (value / 60).toFixed(1) + " min" : (value / 3600).toFixed(1) + " h";
  }
  function bytes(value) {
    if (!isNumber(value)) return "–";
    const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let unit = 0;
    for (; value >= 1024 && unit < units.length - 1; unit++) value /= 1024;
    return (unit === 0 ? value : value.toFixed(1)) + " " + units[unit];
  }
  const count = (n, word) => digits(n) + " " + word + (n === 1 ? "" : "s");

  /* ---- tables and sections ---- */

  function table(head, rows, options = {}) {
    const body = el("tbody");
    for (const row of rows) {
      const line = el("tr");
      row.forEach((cell, i) => line.append(el(i === 0 ? "th" : "td", i === 0 ? {scope: "row"} : {}, cell)));
      body.append(line);
    }
    const top = el("tr");
    for (const cell of head) top.append(el("th", {scope: "col"}, cell));
    return el("table", options, el("thead", {}, top), body);
  }

  function folded(words, content) {
    const scroll = el("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": words}, content);
    return el("details", {}, el("summary", {}, words), scroll);
  }

  function section(title, hint, ...content) {
    const made = el("section", {"aria-label": title}, el("h2", {}, title));
    if (hint) made.append(el("p", {class: "hint"}, hint));
    made.append(...content);
    return made;
  }

  /* ---- charts ---- */

  const charts = [];

  /* Arrow keys move from point to point, as the mouse does. */
  function addKeys(canvas, chart) {
    let at = -1;
    canvas.addEventListener("keydown", event => {
      const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
      if (!step) return;
      event.preventDefault();
      const longest = Math.max(...chart.data.datasets.map(set => set.data.length));
      at = Math.min(Math.max(at + step, 0), longest - 1);
      const active = chart.data.datasets
        .map((set, datasetIndex) => ({datasetIndex, index: Math.min(at, set.data.length - 1)}))
        .filter(item => item.index >= 0 && chart.isDatasetVisible(item.datasetIndex));
      chart.setActiveElements(active);
      chart.tooltip.setActiveElements(active, {x: 0, y: 0});
      chart.update("none");
    });
  }

  function draw(canvas, config) {
    const grid = {color: css("--line")}, ticks = {color: css("--quiet"), maxRotation: 0};
    const axis = given => ({grid, ...given, ticks: {...ticks, ...(given.ticks || {})},
                            title: {display: !!given.name, text: given.name, color: css("--quiet")}});
    const chart = new Chart(canvas, {
      type: config.type,
      data: {labels: config.labels, datasets: config.datasets},
      options: {
        animation: false, responsive: true, maintainAspectRatio: false, indexAxis: config.indexAxis || "x",
        interaction: {mode: config.type === "line" ? "nearest" : "index", axis: config.indexAxis || "x", intersect: false},
        elements: {point: {radius: 0, hitRadius: 8, hoverRadius: 4}, line: {borderWidth: 2}},
        scales: {x: axis(config.x), y: axis(config.y)},
        plugins: {
          legend: {labels: {color: css("--text"), boxWidth: 8, boxHeight: 8, usePointStyle: config.type === "line"}},
          tooltip: {callbacks: config.callbacks || {}},
        },
      },
    });
    addKeys(canvas, chart);
    charts.push(chart);
    return chart;
  }

  const plotOf = (title, canvas) => el("div", {class: "plot"}, canvas);
  const canvasFor = title => el("canvas", {role: "img", tabindex: "0", "aria-label": title + "; its numbers are in the table below"});

  /* Lines over steps or time. `series`: {name, points: [{x, y}], dash, colour}; `show` writes a value. */
  function lines(title, hint, xName, showX, yName, show, series, fromZero) {
    series = series.filter(one => one.points.length > 0);
    if (series.length === 0) return null;
    const canvas = canvasFor(title);
    const made = section(title, hint, plotOf(title, canvas));
    made.pending = () => draw(canvas, {
      type: "line",
      datasets: series.map((one, i) => ({
        label: one.name, data: one.points, parsing: false, borderColor: colour(one.colour ?? i), backgroundColor: colour(one.colour ?? i),
        borderDash: one.dash ? [6, 4] : [], pointStyle: one.dash ? "rectRot" : "circle", pointRadius: one.points.length < 30 ? 2.5 : 0, spanGaps: true,
      })),
      x: {type: "linear", name: xName, ticks: {callback: value => short(showX(value))}},
      y: {name: yName, beginAtZero: !!fromZero, ticks: {callback: value => short(show(value))}},
      callbacks: {title: items => xName + " " + showX(items[0].parsed.x), label: item => item.dataset.label + ": " + show(item.parsed.y)},
    });
    const rows = [];
    for (const one of series)
      for (const point of one.points) rows.push([one.name, showX(point.x), show(point.y)]);
    made.append(folded("Table of " + title.toLowerCase(), table(["line", xName, yName || "value"], rows)));
    return made;
  }

  const points = (list, x, y) => list.map(line => ({x: line[x], y: line[y]})).filter(p => isNumber(p.x) && isNumber(p.y));
  const label = (runs, run, what) => runs.length > 1 ? run.name + (what ? ", " + what : "") : what;

  /* Training, test and validation of one quantity, for every run; of several runs each has a colour. */
  function curves(runs, quantity, x) {
    return runs.flatMap((run, i) => [
      {name: label(runs, run, "training"), points: points(run.steps, x, "train_" + quantity), ...(runs.length > 1 && {colour: i})},
      {name: label(runs, run, "test"), points: points(run.evals, x, "test_" + quantity), dash: true, ...(runs.length > 1 && {colour: i})},
      {name: label(runs, run, "validation"), points: points(run.evals, x, "validation_" + quantity), dash: true},
    ]);
  }

  const perRun = (runs, what, x, y, list = "steps") => runs.map(run => ({name: label(runs, run, what), points: points(run[list], x, y)}));

  /* Lines that never change are no picture. */
  const changing = series => series.some(one => one.points.some(p => p.y !== series[0].points[0]?.y)) ? series : [];

  function sentBytes(runs) {
    return runs.flatMap((run, i) => {
      const sent = points(run.steps, "step", "sent_bytes"), dense = points(run.steps, "step", "dense_bytes");
      const differs = dense.some((p, k) => sent[k] && p.y > 1.02 * sent[k].y);
      return [{name: label(runs, run, "sent"), points: changing([{points: sent}]).length ? sent : [], colour: i},
              {name: label(runs, run, "uncompressed"), points: differs ? dense : [], dash: true, colour: i}];
    });
  }

  /* ---- where the time went ---- */

  const spent = [["data_s", "data"], ["compute_s", "forward and backward"], ["update_s", "update"],
                 ["exposed_s", "exposed communication"], ["bubble_s", "pipeline bubble"], ["stall_s", "stall"],
                 ["waiting_s", "waiting for the slowest"]];

  function workersOf(run) {
    if (run.workers.length > 0) return run.workers;
    return run.end ? [{...run.end, worker: 0}] : [];
  }

  function timeSpent(runs) {
    const bars = [];
    for (const run of runs)
      for (const worker of workersOf(run))
        bars.push({name: label(runs, run, "worker " + worker.worker), worker});
    if (bars.length === 0) return null;
    const parts = spent.filter(([key]) => bars.some(bar => isNumber(bar.worker[key])));
    const title = "Where the time went", canvas = canvasFor(title);
    const plot = plotOf(title, canvas);
    plot.style.height = Math.max(8, 4 + 1.6 * Math.min(bars.length, 64)) + "rem";
    const made = section(title, "Per worker. Exposed communication is what computing did not hide.", plot);
    made.pending = () => draw(canvas, {
      type: "bar", indexAxis: "y", labels: bars.map(bar => bar.name),
      datasets: parts.map(([key, name], i) => ({label: name, data: bars.map(bar => bar.worker[key] || 0), backgroundColor: colour(i)})),
      x: {stacked: true, name: "seconds"}, y: {stacked: true, ticks: {autoSkip: bars.length > 64}},
      callbacks: {label: item => item.dataset.label + ": " + seconds(item.parsed.x)},
    });
    made.append(folded("Table of where the time went",
      table(["worker", ...parts.map(part => part[1])], bars.map(bar => [bar.name, ...parts.map(([key]) => seconds(bar.worker[key]))]))));
    return made;
  }

  function staleness(runs) {
    const known = runs.filter(run => run.staleness && Array.isArray(run.staleness.counts));
    if (known.length === 0) return null;
    const most = Math.max(...known.map(run => run.staleness.counts.length));
    const labels = [...Array(most).keys()].map(String);
    const title = "Staleness of gradients", canvas = canvasFor(title);
    const made = section(title, "How many updates came between a worker's look at the weights and its own update.", plotOf(title, canvas));
    made.pending = () => draw(canvas, {
      type: "bar", labels,
      datasets: known.map((run, i) => ({label: run.name, data: labels.map((_, k) => run.staleness.counts[k] || 0), backgroundColor: colour(i)})),
      x: {name: "staleness"}, y: {name: "gradients"},
    });
    made.append(folded("Table of staleness", table(["staleness", ...known.map(run => run.name)],
      labels.map((name, k) => [name, ...known.map(run => digits(run.staleness.counts[k] || 0))]))));
    return made;
  }

  /* ---- timeline ---- */

  const kinds = ["data", "forward", "backward", "comm", "optim", "pipeline", "eval", "checkpoint"];
  const kindColour = category => colour(Math.max(0, kinds.indexOf(category)));

  /* Events of one lane that overlap move to rows of their own. */
  function stack(events) {
    const ends = [];
    for (const event of events) {
      let row = ends.findIndex(end => end <= event.ts + 1e-3);
      if (row < 0) row = ends.length;
      ends[row] = event.ts + event.dur;
      event.row = row;
    }
    return Math.max(1, ends.length);
  }

  function timeline(runs, run) {
    if (!run.timeline) return null;
    const names = new Map(), lanes = new Map();
    for (const event of run.timeline.events) {
      const lane = event.pid + "/" + event.tid;
      if (event.ph === "M" && event.name === "thread_name" && event.args) names.set(lane, event.args.name);
      if (event.ph !== "X" || !isNumber(event.ts) || !isNumber(event.dur)) continue;
      if (!lanes.has(lane)) lanes.set(lane, []);
      lanes.get(lane).push(event);
    }
    const all = [...lanes.values()].flat();
    if (all.length === 0) return null;
    const begin = Math.min(...all.map(event => event.ts)), end = Math.max(...all.map(event => event.ts + event.dur));
    const wide = 1000, left = 110, scale = (wide - left - 10) / Math.max(end - begin, 1e-6);
    let top = 6;
    const picture = svg("svg", {role: "img"});
    for (const [lane, events] of [...lanes].sort()) {
      events.sort((a, b) => a.ts - b.ts);
      const rows = stack(events);
      picture.append(svg("text", {x: 4, y: top + 14}, "rank " + lane.split("/")[0] + ", " + (names.get(lane) || lane.split("/")[1])));
      for (const event of events) {
        const what = event.name + " (" + event.cat + "), step " + (event.args ? event.args.step : "?") + ": " + seconds(event.dur * 1e-6);
        picture.append(svg("rect", {x: left + (event.ts - begin) * scale, y: top + event.row * 20, width: Math.max(event.dur * scale, .5),
                                    height: 17, fill: kindColour(event.cat)}, svg("title", {}, what)));
      }
      top += rows * 20 + 8;
    }
    for (let i = 0; i <= 4; i++) {
      const x = left + (wide - left - 10) * i / 4;
      picture.append(svg("line", {x1: x, x2: x, y1: 0, y2: top, stroke: css("--line")}));
      picture.append(svg("text", {x, y: top + 12, "text-anchor": i === 4 ? "end" : "middle"}, seconds((end - begin) * i / 4 * 1e-6)));
    }
    const {first, last} = run.timeline;
    const title = "Timeline of steps " + first + " to " + last + (runs.length > 1 ? " of " + run.name : "");
    picture.setAttribute("viewBox", "0 0 " + wide + " " + (top + 18));
    picture.setAttribute("aria-label", title + "; its events are in the table below");
    const legend = el("div", {class: "legend"});
    for (const kind of kinds.filter(kind => all.some(event => event.cat === kind))) {
      const mark = el("i");
      mark.style.background = kindColour(kind);
      legend.append(el("span", {}, mark, kind));
    }
    const made = section(title, "What runs at the same time stands one below the other: overlap hides communication.",
      legend, el("div", {class: "lanes", tabindex: "0", role: "region", "aria-label": title}, picture));
    const rows = [...all].sort((a, b) => a.ts - b.ts).slice(0, 500)
      .map(event => [event.name, event.cat, event.pid, seconds((event.ts - begin) * 1e-6), seconds(event.dur * 1e-6)]);
    made.append(folded("Table of the timeline", table(["operation", "kind", "rank", "begins", "takes"], rows)));
    made.classList.add("wide");
    return made;
  }

  /* ---- what a classifier confuses ---- */

  function confusion(runs, run) {
    if (!run.confusion) return null;
    const {names, counts} = run.confusion;
    const body = el("tbody");
    const most = Math.max(1, ...counts.flat());
    counts.forEach((row, truth) => {
      const line = el("tr", {}, el("th", {scope: "row"}, names[truth]));
      row.forEach((n, said) => {
        const cell = el("td", truth === said ? {class: "hit"} : {}, n === 0 ? "·" : digits(n));
        const strength = n === 0 ? 0 : .12 + .5 * Math.sqrt(n / most);
        cell.style.background = "color-mix(in srgb, " + colour(truth === said ? 2 : 1) + " " + 100 * strength + "%, transparent)";
        line.append(cell);
      });
      const all = row.reduce((a, b) => a + b, 0), column = counts.reduce((sum, other) => sum + other[truth], 0);
      line.append(el("td", {}, percent(all ? row[truth] / all : NaN)), el("td", {}, percent(column ? row[truth] / column : NaN)));
      body.append(line);
    });
    const head = el("tr", {}, el("th", {scope: "col"}, "is \\ said"));
    for (const name of names) head.append(el("th", {scope: "col"}, name));
    head.append(el("th", {scope: "col"}, "recall"), el("th", {scope: "col"}, "precision"));
    const grid = el("table", {class: "confusion"}, el("thead", {}, head), body);
    const title = "What is taken for what" + (runs.length > 1 ? ": " + run.name : "");
    const made = section(title, "Rows: the class of a test sample; columns: the class the model gave it.",
      el("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": title}, grid));
    made.classList.add("wide");
    return made;
  }

  function mistakes(runs, run) {
    if (!run.mistakes || run.mistakes.length === 0) return null;
    const faces = el("div", {class: "faces"});
    for (const one of run.mistakes) {
      const words = "sample " + one.index + ": " + one.truth + ", taken for " + one.said + " (" + percent(one.probability) + ")";
      const figure = el("figure");
      if (one.image) figure.append(el("img", {src: one.image, alt: words}));
      figure.append(el("figcaption", {}, words));
      faces.append(figure);
    }
    const made = section("The worst mistakes" + (runs.length > 1 ? ": " + run.name : ""),
      "Wrong test samples of which the model was surest.", faces);
    made.classList.add("wide");
    return made;
  }

  /* ---- words ---- */

  const last = list => list.length > 0 ? list[list.length - 1] : null;
  const setting = (run, key) => (run.settings.match(new RegExp("^" + key + ": *(.+)$", "m")) || [])[1];

  function words(run) {
    const step = last(run.steps), test = last(run.evals), end = run.end;
    const said = [];
    const model = setting(run, "model");
    const reached = end || step;
    let first = (model ? model : "The run") + (run.state === "running" ? " is training" : " trained");
    if (reached) first += " for " + count(reached.step, "step");
    if (step) first += " (" + count(step.epoch, "epoch") + ")";
    if (end) first += " on " + count(end.workers, "worker") + " in " + seconds(end.seconds);
    said.push(first + (run.state === "stopped" ? ", and stopped before its end." : "."));
    if (test && isNumber(test.test_accuracy)) {
      const best = run.evals.reduce((a, b) => (b.test_accuracy > a.test_accuracy ? b : a));
      said.push("Test accuracy is " + percent(test.test_accuracy) +
        (best.test_accuracy > test.test_accuracy ? "; the best was " + percent(best.test_accuracy) + " after step " + digits(best.step) : "") + ".");
    } else if (test && isNumber(test.test_loss)) {
      said.push("Test loss is " + digits(test.test_loss) + ".");
    }
    const rates = run.steps.map(line => line.samples_per_s).filter(isNumber).sort((a, b) => a - b);
    if (rates.length > 0) said.push("It took " + digits(Math.round(rates[rates.length >> 1])) + " samples a second (median).");
    if (run.workers.length > 1) {
      const total = key => run.workers.reduce((sum, worker) => sum + (worker[key] || 0), 0);
      const all = spent.reduce((sum, [key]) => sum + total(key), 0);
      if (all > 0) said.push(percent((total("exposed_s") + total("waiting_s")) / all) + " of the workers' time was communication and waiting that computing did not hide.");
    }
    if (end && end.all_sent_bytes > 0) {
      let sent = "The workers sent " + bytes(end.all_sent_bytes);
      if (end.all_dense_bytes > 1.05 * end.all_sent_bytes) sent += ", " + (end.all_dense_bytes / end.all_sent_bytes).toFixed(1) + " times less than uncompressed";
      said.push(sent + ".");
    }
    if (end && end.regroups > 0) said.push("Workers left or joined " + count(end.regroups, "time") + "; " + count(end.lost_updates, "update") + " were lost.");
    return said.join(" ");
  }

  function heading(run) {
    const made = el("div");
    made.append(el("h1", {}, run.name + " ", el("span", {class: "state " + run.state}, run.state)));
    made.append(el("p", {class: "words"}, words(run)));
    if (run.notices.length > 0) {
      const list = el("ul", {class: "notices"});
      for (const notice of run.notices) list.append(el("li", {}, notice.at.slice(11, 19) + " " + notice.text));
      const shown = el("details", {}, el("summary", {}, count(run.notices.length, "warning") + " in the log"), list);
      if (run.notices.length < 6) shown.open = true;
      made.append(shown);
    }
    return made;
  }

  function overview(runs) {
    if (runs.length < 2) return null;
    const rows = runs.map(run => {
      const test = last(run.evals), end = run.end || {};
      return [run.name, run.state, digits(end.workers), digits((run.end || last(run.steps) || {}).step), seconds(end.train_s),
              percent(test && test.test_accuracy), digits(test && test.test_loss), bytes(end.all_sent_bytes)];
    });
    const made = section("The runs side by side", "", el("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": "The runs side by side"},
      table(["run", "state", "workers", "steps", "training", "test accuracy", "test loss", "sent"], rows)));
    made.classList.add("wide");
    return made;
  }

  function settings(runs, run) {
    if (!run.settings) return null;
    const made = section("Settings" + (runs.length > 1 ? " of " + run.name : ""), "The whole run file; shoal train run.yaml repeats the run.",
      el("details", {}, el("summary", {}, "run.yaml"), el("pre", {tabindex: "0"}, run.settings)));
    return made;
  }

  /* ---- the page ---- */

  function build(runs) {
    const step = ["step", digits], time = ["training time", seconds];
    const thinned = runs.some(run => run.every > 1) ? "Long runs are thinned out to every n-th line of metrics." : "";
    const several = runs.length > 1;
    return [
      overview(runs),
      lines("Loss over steps", thinned, ...step, "loss", digits, curves(runs, "loss", "step")),
      lines("Loss over time", "", ...time, "loss", digits, curves(runs, "loss", "time_s")),
      lines("Accuracy over steps", "", ...step, "", percent, curves(runs, "accuracy", "step")),
      lines("Accuracy over time", "", ...time, "", percent, curves(runs, "accuracy", "time_s")),
      lines("Throughput", "Samples of all workers a second.", ...step, "samples/s", digits, perRun(runs, "samples a second", "step", "samples_per_s"), true),
      timeSpent(runs),
      staleness(runs),
      lines("Bytes sent", "By worker 0; dashed: what it would be without compression.", ...step, "", bytes, sentBytes(runs), true),
      lines("Learning rate", "", ...step, "", digits, changing(perRun(runs, "learning rate", "step", "lr"))),
      lines("Gradient norm", "Before clipping.", ...step, "", digits, perRun(runs, "gradient norm", "step", "grad_norm")),
      ...runs.map(run => timeline(runs, run)),
      ...runs.map(run => confusion(runs, run)),
      ...runs.map(run => mistakes(runs, run)),
      ...runs.map(run => settings(runs, run)),
    ].filter(made => made !== null && (several || made));
  }

  function show(runs) {
    while (charts.length > 0) charts.pop().destroy();
    const open = new Set([...document.querySelectorAll("details[open] > summary")].map(summary => summary.textContent));
    document.title = runs.map(run => run.name).join(", ") + " – Shoal report";
    document.getElementById("top").replaceChildren(...runs.map(heading));
    const cards = el("div", {class: "cards"}), sections = build(runs);
    cards.append(...sections);
    document.getElementById("report").replaceChildren(cards);
    for (const made of sections) if (made.pending) made.pending();
    for (const summary of document.querySelectorAll("details > summary"))
      if (open.has(summary.textContent)) summary.parentElement.open = true;
  }

  let runs = JSON.parse(document.getElementById("data").textContent);
  window.shoalShow = next => show(runs = next);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => show(runs));
  show(runs);
})();
