#include "sync/ledger.h"

static sh_status expect(sh_ledger *ledger, sh_service *service) {
    ledger->request = (sh_message){.peer = SH_ANY_RANK,
                                   .tag = SH_TAG_MAY_I,
                                   .data = &ledger->goal,
                                   .bytes = sizeof ledger->goal};
    return sh_mail_receive(&service->mail, &ledger->request);
}

sh_status sh_ledger_begin(sh_ledger *ledger, sh_service *service) {
    *ledger = (sh_ledger){.granted = service->step * service->workers};
    return expect(ledger, service);
}

static sh_grant grant(sh_ledger *ledger, sh_service *service) {
    if (service->stops != NULL && service->stops(service->user)) ledger->stopped = true;
    if (ledger->stopped || ledger->granted >= ledger->goal)
        return (sh_grant){.go = 0, .done = ledger->granted};
    return (sh_grant){.go = 1, .done = ledger->granted++};
}

sh_status sh_ledger_serve(sh_ledger *ledger, sh_service *service, bool *answered_out) {
    *answered_out = sh_mail_test(&service->mail, &ledger->request);
    if (!*answered_out) return SH_OK;
    SH_TRY(sh_mail_wait(&service->mail, &ledger->request, "ledger"));
    int worker = ledger->request.peer;
    sh_grant answer = grant(ledger, service);
    SH_TRY(expect(ledger, service));
    return sh_mail_put(&service->mail, worker, SH_TAG_GRANT, &answer, sizeof answer, "grant");
}

void sh_ledger_end(sh_ledger *ledger, sh_service *service) {
    sh_cancel(service->mail.transport, &ledger->request);
}

static sh_status ask(sh_ticket *ticket, sh_replica *replica, int endpoint) {
    ticket->goal = replica->all.goal;
    ticket->answer = (sh_message){.peer = endpoint,
                                  .tag = SH_TAG_GRANT,
                                  .data = &ticket->grant,
                                  .bytes = sizeof ticket->grant};
    ticket->request = (sh_message){
        .peer = endpoint, .tag = SH_TAG_MAY_I, .data = &ticket->goal, .bytes = sizeof ticket->goal};
    ticket->asked = true;
    SH_TRY(sh_mail_receive(&replica->mail, &ticket->answer));
    return sh_mail_send(&replica->mail, &ticket->request);
}

sh_status sh_ticket_take(sh_ticket *ticket, sh_replica *replica, int endpoint, bool *meets_out) {
    int64_t begin = sh_clock_now_ns(replica->clock);
    if (!ticket->asked) SH_TRY(ask(ticket, replica, endpoint));
    SH_TRY(sh_mail_wait(&replica->mail, &ticket->request, "ledger"));
    SH_TRY(sh_mail_wait(&replica->mail, &ticket->answer, "grant"));
    replica->counts.waited_ns += sh_clock_now_ns(replica->clock) - begin;
    ticket->asked = false;
    replica->all.done = ticket->grant.done;
    *meets_out = ticket->grant.go == 0;
    return *meets_out ? SH_OK : ask(ticket, replica, endpoint);
}

void sh_ticket_drop(sh_ticket *ticket, sh_replica *replica) {
    if (!ticket->asked) return;
    sh_cancel(replica->mail.transport, &ticket->request);
    sh_cancel(replica->mail.transport, &ticket->answer);
}
