#include "run/load.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/text.h"

bool sh_load_advice(double load, long cores, int threads, char text_out[SH_LOAD_TEXT]) {
    if (threads <= 1 || cores <= 0 || !(load > (double)cores)) return false;
    sh_snprintf(text_out, SH_LOAD_TEXT,
                "the machine has load %.1f on %ld core%s, and threads wait for each other: "
                "--threads 1 is likely to be faster",
                load, cores, cores == 1 ? "" : "s");
    return true;
}

/* A system without a load average gets no advice. */
void sh_load_tell(const sh_log *log, int threads) {
    double load;
    char text[SH_LOAD_TEXT];
    if (getloadavg(&load, 1) == 1 &&
        sh_load_advice(load, sysconf(_SC_NPROCESSORS_ONLN), threads, text))
        SH_INFO(log, "%s", text);
}
