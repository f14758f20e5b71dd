/* A pipeline schedule as a chart and tables for people. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "explain/pipeline.h"

/* Width of the chart, columns of its shortest part at most, and rows of the rank table. */
enum { CHART_COLUMNS = 120, CELL_COLUMNS = 3, ROWS_MOST = 16 };

/* Plural ending of a count: "1 rank", "2 ranks". */
static const char *plural(int count) { return count == 1 ? "" : "s"; }

/* Prints schedule, sizes, the assumed times and the assumed link. */
static void print_head(const sh_pipe_question *q, FILE *file) {
    char name[SH_PIPE_TEXT], f[SH_UNIT_TEXT], b[SH_UNIT_TEXT], w[SH_UNIT_TEXT];
    const sh_pipeline *pipeline = &q->pipeline;
    fprintf(file, "pipeline by %s, %d rank%s, %d micro-batch%s\n", sh_pipeline_text(pipeline, name),
            pipeline->ranks, plural(pipeline->ranks), pipeline->micros,
            pipeline->micros == 1 ? "" : "es");
    fprintf(file, "%s: %s\n", pipeline->schedule->name, pipeline->schedule->help);
    fprintf(file,
            "a rank and micro-batch: forward F %s, backward %s for the data part B, %s for the "
            "weight part W\n",
            sh_pipe_time_text(q, q->times.forward_s, f), sh_pipe_time_text(q, q->times.data_s, b),
            sh_pipe_time_text(q, q->times.weight_s, w));
    if (!q->linked) {
        fprintf(file, "messages take no time (--link RATE,LATENCY gives them some)\n");
        return;
    }
    char link[3 * SH_UNIT_TEXT], size[SH_UNIT_TEXT];
    fprintf(file, "link: %s; messages of %s\n", sh_link_text(&q->link, link),
            sh_bytes_text(q->value_bytes, size));
}

/* ---- Chart ----------------------------------------------------------------------------------- */

/* Columns per unit of time, so that the shortest part takes a whole number of columns and equal
 * parts look equal. 0: the chart would be too wide. */
static double scale_of(const sh_pipe_answer *answer) {
    double shortest_s = INFINITY;
    for (size_t i = 0; i < answer->event_count; i++) {
        const sh_pipe_event *e = &answer->events[i];
        double length_s = e->end_s - e->start_s;
        if (e->action.kind <= SH_PIPE_BACKWARD_WEIGHT && length_s > 0)
            shortest_s = fmin(shortest_s, length_s);
    }
    // The small addend keeps an exact quotient from being rounded down.
    double cells = floor(CHART_COLUMNS * shortest_s / answer->makespan_s + 1e-9);
    if (!(cells >= 1)) return 0;
    return fmin(cells, CELL_COLUMNS) / shortest_s;
}

/* Paints one event into its rank's line: "3>>", "3<<<<<": the micro-batch, a letter for chunks
 * after the first, then the kind of work. */
static void paint(const sh_pipe_event *e, double scale, char *line) {
    static const char fills[] = {'>', '<', '<', '='};
    int first = (int)lround(e->start_s * scale), end = (int)lround(e->end_s * scale);
    if (first < 0 || end > CHART_COLUMNS || end <= first) return;
    memset(line + first, fills[e->action.kind], (size_t)(end - first));
    char label[16];
    int length = snprintf(label, sizeof label, "%d", e->action.micro);
    if (length > end - first) return;
    if (e->action.chunk > 0 && e->action.chunk < 26 && length < end - first)
        label[length++] = (char)('a' + e->action.chunk);
    memcpy(line + first, label, (size_t)length);
}

/* Prints one line per rank; what stays '.' is idle. Events lie rank by rank. */
static void print_chart(const sh_pipe_question *q, const sh_pipe_answer *answer, FILE *file) {
    // The chart needs all events and a whole column for the shortest part.
    bool shown = answer->events != NULL && q->pipeline.ranks <= SH_PIPE_SHOWN_RANKS;
    double scale = shown ? scale_of(answer) : 0;
    if (!shown || scale <= 0) {
        fprintf(file, "too long for a chart in text: --svg FILE draws it, --json lists it\n\n");
        return;
    }
    size_t i = 0;  // next event; they lie rank by rank
    for (int rank = 0; rank < q->pipeline.ranks; rank++) {
        char line[CHART_COLUMNS + 1];
        memset(line, '.', sizeof line);  // idle, until a part is painted over it
        for (; i < answer->event_count && answer->events[i].rank == rank; i++)
            if (answer->events[i].action.kind <= SH_PIPE_BACKWARD_WEIGHT)
                paint(&answer->events[i], scale, line);
        int columns = (int)lround(answer->makespan_s * scale);
        fprintf(file, "rank %2d  %.*s\n", rank, columns, line);
    }
    fprintf(file, "         3>> forward of micro-batch 3  3<< backward%s  ... idle%s\n\n",
            q->pipeline.schedule->splits ? " (data)  3== backward (weight)" : "",
            q->pipeline.chunks > 1 ? "  3b> chunk b, the second of the rank" : "");
}

/* ---- Tables ---------------------------------------------------------------------------------- */

/* Prints one row of the rank table: live activations decide the memory, idle time the speed. */
static void print_rank(const sh_pipe_question *q, const sh_pipe_answer *answer, int rank,
                       FILE *file) {
    const sh_pipe_rank_result *result = &answer->ranks[rank];
    char size[SH_UNIT_TEXT];
    sh_fprintf(file, "%4d  %6d  %9.4g", rank, result->live_most,
               (double)result->live_most / q->pipeline.chunks);
    if (q->pipeline.schedule->splits) fprintf(file, "  %12d", result->late_most);
    sh_fprintf(file, "  %5.1f %%  %8d  %10s\n", 100 * (1 - result->busy_s / answer->makespan_s),
               result->messages, sh_bytes_text(result->sent_bytes, size));
}

/* Prints the rank table. Of many ranks only the first and last rows: the ends of a pipeline differ
 * most. */
static void print_ranks(const sh_pipe_question *q, const sh_pipe_answer *answer, FILE *file) {
    bool splits = q->pipeline.schedule->splits;
    fprintf(file, "rank    live  in stages%s     idle  messages        sent\n",
            splits ? "  weight parts" : "");
    int ranks = q->pipeline.ranks;
    for (int r = 0; r < ranks; r++) {
        // Skips from the first half of the rows to the last.
        if (ranks > ROWS_MOST && r == ROWS_MOST / 2) {
            fprintf(file, "  ..\n");
            r = ranks - ROWS_MOST / 2;
        }
        print_rank(q, answer, r, file);
    }
    fprintf(file, "live: micro-batches%s whose activations wait for their backward\n",
            q->pipeline.chunks > 1 ? " and chunks" : "");
    if (splits)
        fprintf(file, "weight parts: micro-batches whose inputs and gradients wait for W\n");
}

/* Prints makespan and period, with the closed form beside the timeline's value as a check. */
static void print_times(const sh_pipe_question *q, const sh_pipe_answer *answer, FILE *file) {
    char makespan[SH_UNIT_TEXT], period[SH_UNIT_TEXT], closed[SH_UNIT_TEXT];
    sh_fprintf(file, "\none step: makespan %s, idle %.2f %% of it\n",
               sh_pipe_time_text(q, answer->makespan_s, makespan), 100 * answer->idle_share);
    if (isnan(answer->closed_s))
        fprintf(file, "closed form: %s: does not hold here\n", q->pipeline.schedule->formula);
    else
        fprintf(file, "closed form: %s = %s\n", sh_pipe_time_text(q, answer->closed_s, closed),
                q->pipeline.schedule->formula);
    sh_fprintf(file, "many steps without a barrier between them: one every %s, idle %.2f %%\n",
               sh_pipe_time_text(q, answer->period_s, period), 100 * answer->period_idle_share);
}

/* Prints another schedule under the same times. A chunked schedule gets at least two chunks, since
 * with one it would be its plain form. */
static sh_status print_row(const sh_pipe_question *q, const sh_pipe_schedule *row, FILE *file) {
    sh_pipe_question other = *q;
    other.pipeline.schedule = row;
    other.pipeline.chunks = !row->chunked ? 1 : q->pipeline.chunks > 1 ? q->pipeline.chunks : 2;
    sh_pipe_answer answer;
    sh_status status = sh_pipe_answer_init(&answer, &other);
    if (status == SH_OK) {
        char name[SH_PIPE_TEXT], makespan[SH_UNIT_TEXT], period[SH_UNIT_TEXT], size[SH_UNIT_TEXT];
        double sent = 0;
        for (int r = 0; r < other.pipeline.ranks; r++)
            sent = fmax(sent, answer.ranks[r].sent_bytes);
        sh_fprintf(file, "%-14s  %9s  %6.2f %%  %9s  %6.2f %%  %4.4g  %10s\n",
                   sh_pipeline_text(&other.pipeline, name),
                   sh_pipe_time_text(q, answer.makespan_s, makespan), 100 * answer.idle_share,
                   sh_pipe_time_text(q, answer.period_s, period), 100 * answer.period_idle_share,
                   (double)answer.ranks[0].live_most / other.pipeline.chunks,
                   sh_bytes_text(sent, size));
    }
    sh_pipe_answer_fini(&answer);
    return status;
}

/* Prints all schedules side by side. */
static sh_status print_all(const sh_pipe_question *q, FILE *file) {
    fprintf(file,
            "\nschedule         makespan      idle     period      idle  live  sent (most)\n");
    const sh_pipe_schedule *row;
    for (size_t i = 0; (row = sh_pipe_schedule_at(i)) != NULL; i++) SH_TRY(print_row(q, row, file));
    fprintf(file, "live: stages' activations on rank 0; sent: by the rank that sends most\n");
    return SH_OK;
}

sh_status sh_pipeline_text_page(const sh_pipe_question *question, FILE *file) {
    sh_pipe_answer answer;
    sh_status status = sh_pipe_answer_init(&answer, question);
    if (status == SH_OK) {
        print_head(question, file);
        fputc('\n', file);
        print_chart(question, &answer, file);
        print_ranks(question, &answer, file);
        print_times(question, &answer, file);
        status = print_all(question, file);
    }
    sh_pipe_answer_fini(&answer);
    return status;
}
