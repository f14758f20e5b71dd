/* A target with a fault behind two conditions, to show that the driver finds one and keeps the
 * input. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    if (bytes > 4 && data[0] == 'S' && data[2] > 200) abort();
    return 0;
}
