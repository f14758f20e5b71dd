/* Reports: what a run's folder tells, as one JSON object, and a page of HTML that shows one or
 * several of them. The page holds everything it needs (style, script, charts, data): it opens
 * offline, and asks no other host for anything.
 *
 *   report_read.c   the folder's metrics, log, trace and settings -> JSON
 *   report_write.c  JSON and the files of page/ -> HTML */
#ifndef SH_OBS_REPORT_H
#define SH_OBS_REPORT_H

#include <jansson.h>

#include "base/status.h"

/* A run's folder as
 *
 *   name, folder, state        state: "finished", "running", or "stopped" (without an end)
 *   settings                   the text of run.yaml; "" where there is none
 *   steps, evals, workers      lists of the lines of metrics.jsonl of these events, each with
 *                              "time_s": seconds of training since the run began, restarts included
 *   every                      one of so many lines of steps is in `steps`
 *   end, staleness, links      the last such line; null: none
 *   notices                    warnings of the log: {"at", "text"}
 *   timeline                   some steps of trace.json: {"first", "last", "events": [...]}; null
 *
 * A folder without metrics.jsonl is refused; a log or a trace that cannot be read is left out.
 * Caller gives the reference up. */
sh_status sh_report_read(const char *folder, json_t **run_out);

/* Writes the page of the objects of `runs`, a list, to `path` as one whole file. */
sh_status sh_report_write(const json_t *runs, const char *path);

/* A file of page/, as the program holds it: "report.css", "report.js", "chart.js". NULL: unknown.
 */
const char *sh_page_file(const char *name);

#endif
