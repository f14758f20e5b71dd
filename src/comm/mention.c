#include "comm/mention.h"

#include <stdio.h>

#include "base/text.h"
#include "comm/board.h"

const char *sh_ranks_text(uint64_t ranks, char text_out[SH_RANKS_TEXT]) {
    const char *before = __builtin_popcountll(ranks) > 1 ? "ranks " : "rank ";
    size_t used = 0;
    snprintf(text_out, SH_RANKS_TEXT, "the others");
    for (int i = 0; i < SH_BOARD_WAITS && used + 16 < SH_RANKS_TEXT; i++) {
        if ((ranks >> i & 1) == 0) continue;
        used += (size_t)snprintf(text_out + used, SH_RANKS_TEXT - used, "%s%d", before, i);
        before = ", ";
    }
    return text_out;
}

void sh_mention_wait(const sh_mention *mention, int64_t waited_ns, uint64_t ranks,
                     const char *what) {
    char text[512], names[SH_RANKS_TEXT];
    sh_snprintf(text, sizeof text, "waiting for %s in %s for %.0f s", sh_ranks_text(ranks, names),
                what, (double)waited_ns * 1e-9);
    mention->line(mention->user, text);
}
