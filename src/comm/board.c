/* The board in words: entries of the flight recorder, and one line per rank for the watchdog.
 * Readers may meet an entry that is being written, so every text is read with a bound. */
#include "comm/board.h"

#include <inttypes.h>
#include <string.h>

#include "base/text.h"

static const char *const phase_names[] = {"start", "step", "evaluation", "checkpoint", "end"};

const char *sh_phase_name(int phase) {
    bool known = phase >= 0 && phase < (int)(sizeof phase_names / sizeof *phase_names);
    return known ? phase_names[phase] : "?";
}

const char *sh_board_name(const sh_status_board *board, int rank, char text_out[SH_BOARD_NAME]) {
    int workers = board->ranks - board->servers;
    bool works = rank < workers;
    snprintf(text_out, SH_BOARD_NAME, "%s %d", works ? "worker" : "server",
             works ? rank : rank - workers);
    return text_out;
}

void sh_board_phase(sh_rank_status *board, sh_phase phase, int64_t now_ns) {
    atomic_store_explicit(&board->phase, (int)phase, memory_order_relaxed);
    atomic_store_explicit(&board->beat_ns, now_ns, memory_order_relaxed);
}

sh_operation *sh_board_begin(sh_rank_status *board, int64_t now_ns, const char *what, int64_t step,
                             int bucket, int peer, int64_t bytes) {
    // Under MPI two tasks of a rank write, the comm task and one that waits for mail: each its
    // entry.
    uint64_t count = atomic_fetch_add_explicit(&board->count, 1, memory_order_relaxed);
    sh_operation *operation = &board->operations[count % SH_BOARD_OPERATIONS];
    *operation = (sh_operation){.step = step,
                                .bucket = bucket,
                                .peer = peer,
                                .sequence = count,
                                .bytes = bytes,
                                .start_ns = now_ns};
    // Not snprintf: a small all-reduce takes a quarter of a microsecond in all.
    size_t length = strnlen(what, sizeof operation->what - 1);
    memcpy(operation->what, what, length);
    atomic_store_explicit(&board->beat_ns, now_ns, memory_order_relaxed);
    return operation;
}

void sh_board_end(sh_rank_status *board, sh_operation *operation, int64_t now_ns) {
    operation->end_ns = now_ns;
    atomic_store_explicit(&board->beat_ns, now_ns, memory_order_relaxed);
}

static void append(char *text, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void append(char *text, size_t size, const char *format, ...) {
    size_t used = strlen(text);
    __builtin_va_list arguments;
    __builtin_va_start(arguments, format);
    sh_vsnprintf(text + used, size - used, format, arguments);
    __builtin_va_end(arguments);
}

static void append_operation(const sh_operation *o, int64_t now_ns, char *text, size_t size) {
    // The entry may be half written: its text is copied with a bound.
    append(text, size, "%.*s", (int)sizeof o->what, o->what);
    if (o->bucket >= 0) append(text, size, " of bucket %d", o->bucket);
    if (o->peer >= 0) append(text, size, " with rank %d", o->peer);
    if (o->bytes > 0) append(text, size, ", %" PRId64 " bytes", o->bytes);
    if (o->end_ns == 0)
        append(text, size, ", under way for %.1f s", (double)(now_ns - o->start_ns) * 1e-9);
    else
        append(text, size, ", took %.3f ms, ended %.1f s ago",
               (double)(o->end_ns - o->start_ns) * 1e-6, (double)(now_ns - o->end_ns) * 1e-9);
}

void sh_board_line(const sh_rank_status *board, int rank, int64_t now_ns, char *text_out,
                   size_t size) {
    uint64_t count = atomic_load_explicit(&board->count, memory_order_acquire);
    uint64_t waits = sh_board_waits(board);
    int phase = atomic_load_explicit(&board->phase, memory_order_relaxed);
    snprintf(text_out, size, "rank %d: %s %" PRId64, rank, sh_phase_name(phase),
             atomic_load_explicit(&board->step, memory_order_relaxed));
    const char *before = ", waits for rank ";
    for (int peer = 0; peer < SH_BOARD_WAITS; peer++) {
        if ((waits >> peer & 1) == 0) continue;
        append(text_out, size, "%s%d", before, peer);
        before = ", ";
    }
    if (count == 0) return;
    append(text_out, size, "; %s ", waits != 0 ? "in" : "last");
    append_operation(&board->operations[(count - 1) % SH_BOARD_OPERATIONS], now_ns, text_out, size);
}

/* Also of a dead rank: the board lies in shared memory and outlives it. */
void sh_board_print(const sh_rank_status *board, int rank, int64_t now_ns, FILE *file) {
    uint64_t count = atomic_load_explicit(&board->count, memory_order_acquire);
    uint64_t first = count > SH_BOARD_OPERATIONS ? count - SH_BOARD_OPERATIONS : 0;
    char text[SH_BOARD_TEXT];
    sh_board_line(board, rank, now_ns, text, sizeof text);
    fprintf(file, "%s\n", text);
    for (uint64_t i = first; i < count; i++) {
        const sh_operation *operation = &board->operations[i % SH_BOARD_OPERATIONS];
        text[0] = '\0';
        append_operation(operation, now_ns, text, sizeof text);
        fprintf(file, "  %8" PRIu64 "  step %-6" PRId64 "  %s\n", i, operation->step, text);
    }
}
