/* MPI_Allreduce of floats, in place, timed as `shoal bench allreduce` times its own: every sample
 * starts after a barrier and counts the slowest rank, buffers up to 64 KiB are summed 20 times per
 * sample, and the sum is verified first.
 *
 *   mpirun -n 2 mpi_allreduce SECONDS BYTES...      one line of JSON per size
 *
 * Builds with any MPI: mpicc -O2 mpi_allreduce.c */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES_MAX = 1000, SAMPLES_LEAST = 5, WARM = 3, AT_ONCE = 20, AT_ONCE_BYTES = 64 << 10 };

static int rank, ranks;

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void verify(float *x, int count) {
    for (int i = 0; i < count; i++) x[i] = (float)(rank + i % 7);
    MPI_Allreduce(MPI_IN_PLACE, x, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < count; i++)
        if (x[i] != (float)(ranks * (ranks - 1) / 2 + ranks * (i % 7))) {
            fprintf(stderr, "element %d of %d is wrong\n", i, count);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    memset(x, 0, (size_t)count * sizeof *x);
}

/* Microseconds per call. */
static double sample(float *x, int count, int calls) {
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (int i = 0; i < calls; i++)
        MPI_Allreduce(MPI_IN_PLACE, x, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    return (MPI_Wtime() - start) * 1e6 / calls;
}

static void measure(long bytes, double seconds) {
    int count = (int)(bytes / 4), calls = bytes <= AT_ONCE_BYTES ? AT_ONCE : 1;
    static double us[SAMPLES_MAX], slowest[SAMPLES_MAX];
    float *x = aligned_alloc(4096, ((size_t)bytes + 4095) / 4096 * 4096);
    if (x == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
    verify(x, count);
    double last = 0;
    for (int i = 0; i < WARM; i++) last = sample(x, count, calls);
    double fit = seconds * 1e6 / (last * calls + 0.1);
    int samples = fit > SAMPLES_MAX ? SAMPLES_MAX : fit < SAMPLES_LEAST ? SAMPLES_LEAST : (int)fit;
    MPI_Bcast(&samples, 1, MPI_INT, 0, MPI_COMM_WORLD);
    for (int i = 0; i < samples; i++) us[i] = sample(x, count, calls);
    MPI_Reduce(us, slowest, samples, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    free(x);
    if (rank != 0) return;
    qsort(slowest, (size_t)samples, sizeof *slowest, compare);
    printf("{\"bytes\":%ld,\"us\":%.4f,\"samples\":%d}\n", bytes, slowest[samples / 2], samples);
    fflush(stdout);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int i = 2; i < argc; i++) measure(atol(argv[i]), atof(argv[1]));
    MPI_Finalize();
    return 0;
}
