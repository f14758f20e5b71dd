#include "run/groups.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/memory.h"
#include "comm/engines.h"
#include "sync/list.h"

const char *const group_schemes[] = {"bsp", "ps", "gossip", NULL};

int group_of(int rank) { return sh_mesh_place_of(&(sh_mesh_shape){{2, 1, 2, 1}}, rank).at[2]; }

int group_place_of(int rank) {
    return sh_mesh_place_of(&(sh_mesh_shape){{2, 1, 2, 1}}, rank).at[SH_AXIS_DATA];
}

sh_mesh_shape group_mesh(void) { return (sh_mesh_shape){{GROUP_WORKERS, 1, GROUPS, 1}}; }

static void run_folder(const char *folder, int group, char text_out[4200]) {
    snprintf(text_out, 4200, "%s/run%d", folder, group);
}

static sh_status configure(const group_worker *worker, shoal_config *config) {
    char out[4200], seed[16];
    run_folder(worker->folder, worker->group, out);
    snprintf(seed, sizeof seed, "%d", worker->group + 1);
    const char *settings[][2] = {
        {"model", "mlp"}, {"data", "digits"},    {"data.batch", "32"},
        {"steps", "20"},  {"threads", "1"},      {"kernels", "default"},
        {"workers", "2"}, {"seed", seed},        {"sync", worker->scheme},
        {"out", out},     {"overwrite", "true"}, {"optimizer", "momentum"},
    };
    for (size_t i = 0; i < SH_COUNT(settings); i++)
        SH_TRY((sh_status)shoal_config_set(config, settings[i][0], settings[i][1]));
    return SH_OK;
}

sh_status group_train(const group_worker *worker) {
    shoal_config *config = NULL;
    shoal_run *run = NULL;
    SH_TRY((sh_status)shoal_config_create(&config));
    sh_status status = configure(worker, config);
    sh_worker_env env = worker->env;
    env.slot = worker->place;
    env.slots = GROUP_WORKERS;
    env.threads = 1;
    if (status == SH_OK) status = sh_run_open(&config->config, NULL, &env, &run);
    if (status == SH_OK) status = (sh_status)shoal_run_train(run);
    if (status == SH_OK) shoal_run_close(run);
    shoal_config_destroy(config);
    return status;
}

/* ---- Runs of their own ------------------------------------------------------------------------
 */

typedef struct apart {
    const char *scheme, *folder;
    int group;
    sh_shm *mail;
} apart;

static sh_status open_mail(void *self, int endpoint, sh_transport **mail_out) {
    const apart *a = self;
    return sh_shm_attach(a->mail, endpoint, 1, mail_out);
}

static sh_status train_apart(sh_engine *engine, void *argument) {
    apart *a = argument;
    return group_train(
        &(group_worker){.scheme = a->scheme,
                        .folder = a->folder,
                        .group = a->group,
                        .place = sh_engine_rank(engine),
                        .env = {.engine = engine, .open_mail = open_mail, .self = a}});
}

sh_status groups_apart(const char *scheme, const char *folder) {
    for (int group = 0; group < GROUPS; group++) {
        apart a = {.scheme = scheme, .folder = folder, .group = group};
        SH_TRY(sh_shm_create(GROUP_ENDPOINTS, &a.mail));
        sh_status status = run_engines(GROUP_WORKERS, NULL, train_apart, &a);
        sh_shm_destroy(a.mail);
        SH_TRY(status);
    }
    return SH_OK;
}

/* ---- Comparing --------------------------------------------------------------------------------
 */

static sh_status compare_file(const char *a, const char *b, int group, const char *name) {
    char path[2][4400], folder[4200];
    sh_mapped file[2];
    for (int i = 0; i < 2; i++) {
        run_folder(i == 0 ? a : b, group, folder);
        snprintf(path[i], sizeof path[i], "%s/checkpoints/%s", folder, name);
        SH_TRY(sh_file_map(path[i], &file[i]));
    }
    bool same =
        file[0].bytes == file[1].bytes && memcmp(file[0].data, file[1].data, file[0].bytes) == 0;
    for (int i = 0; i < 2; i++) sh_file_unmap(&file[i]);
    if (same) return SH_OK;
    return SH_FAIL(SH_E_NUMERIC, "'%s' and '%s' differ", path[0], path[1]);
}

sh_status groups_compare(const char *a, const char *b) {
    for (int group = 0; group < GROUPS; group++) {
        SH_TRY(compare_file(a, b, group, "model-00000020.safetensors"));
        SH_TRY(compare_file(a, b, group, "optimizer-00000020.safetensors"));
    }
    return SH_OK;
}
