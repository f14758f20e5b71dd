#include "sync/step_counter.h"

static sh_status expect(sh_step_counter *counter, sh_service *service) {
    counter->request = (sh_message){.peer = SH_ANY_RANK,
                                    .tag = SH_TAG_STEP_REQUEST,
                                    .data = &counter->goal,
                                    .bytes = sizeof counter->goal};
    return sh_mail_receive(&service->mail, &counter->request);
}

sh_status sh_step_counter_begin(sh_step_counter *counter, sh_service *service) {
    *counter = (sh_step_counter){.granted = service->step * service->workers};
    return expect(counter, service);
}

static sh_grant grant(sh_step_counter *counter, sh_service *service) {
    if (service->stops != NULL && service->stops(service->user)) counter->stopped = true;
    if (counter->stopped || counter->granted >= counter->goal)
        return (sh_grant){.go = 0, .done = counter->granted};
    return (sh_grant){.go = 1, .done = counter->granted++};
}

sh_status sh_step_counter_serve(sh_step_counter *counter, sh_service *service, bool *answered_out) {
    *answered_out = sh_mail_test(&service->mail, &counter->request);
    if (!*answered_out) return SH_OK;
    SH_TRY(sh_mail_wait(&service->mail, &counter->request, "permit"));
    int worker = counter->request.peer;
    sh_grant answer = grant(counter, service);
    SH_TRY(expect(counter, service));
    return sh_mail_put(&service->mail, worker, SH_TAG_GRANT, &answer, sizeof answer, "grant");
}

void sh_step_counter_end(sh_step_counter *counter, sh_service *service) {
    sh_cancel(service->mail.transport, &counter->request);
}

static sh_status ask(sh_permit *permit, sh_replica *replica, int endpoint) {
    permit->goal = replica->all.goal;
    permit->answer = (sh_message){.peer = endpoint,
                                  .tag = SH_TAG_GRANT,
                                  .data = &permit->grant,
                                  .bytes = sizeof permit->grant};
    permit->request = (sh_message){.peer = endpoint,
                                   .tag = SH_TAG_STEP_REQUEST,
                                   .data = &permit->goal,
                                   .bytes = sizeof permit->goal};
    permit->asked = true;
    SH_TRY(sh_mail_receive(&replica->mail, &permit->answer));
    return sh_mail_send(&replica->mail, &permit->request);
}

sh_status sh_permit_take(sh_permit *permit, sh_replica *replica, int endpoint, bool *meets_out) {
    int64_t begin = sh_clock_now_ns(replica->clock);
    if (!permit->asked) SH_TRY(ask(permit, replica, endpoint));
    SH_TRY(sh_mail_wait(&replica->mail, &permit->request, "permit"));
    SH_TRY(sh_mail_wait(&replica->mail, &permit->answer, "grant"));
    replica->counts.waited_ns += sh_clock_now_ns(replica->clock) - begin;
    permit->asked = false;
    replica->all.done = permit->grant.done;
    *meets_out = permit->grant.go == 0;
    return *meets_out ? SH_OK : ask(permit, replica, endpoint);
}

void sh_permit_drop(sh_permit *permit, sh_replica *replica) {
    if (!permit->asked) return;
    sh_cancel(replica->mail.transport, &permit->request);
    sh_cancel(replica->mail.transport, &permit->answer);
}
