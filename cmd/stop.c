/* Signals that ask a command to stop and to leave nothing half-written. */
#include "cmd.h"

#include <signal.h>

static volatile int stop_requested;

static void request_stop(int signal_number)
{
    (void)signal_number;
    stop_requested = 1;
}

/* nohup ignores it, and so does who inherits that. */
static void hangup_catch(const struct sigaction *action)
{
    struct sigaction before;
    if (!sigaction(SIGHUP, NULL, &before) && before.sa_handler != SIG_IGN)
        sigaction(SIGHUP, action, NULL);
}

void cmd_signals_catch(void (*handler)(int signal), bool alone)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGUSR1};
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    if (alone)
        sigfillset(&action.sa_mask);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        sigaction(signals[i], &action, NULL);
    hangup_catch(&action);
}

const volatile int *cmd_stop_begin(void)
{
    struct sigaction action = {.sa_handler = request_stop, .sa_flags = SA_RESETHAND};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    action.sa_flags = 0; /* a shell and the system may both send it when a terminal is closed */
    hangup_catch(&action);
    cmd_progress_begin();
    return &stop_requested;
}
