/* Signals that ask a command to stop and to leave nothing half-written. */
#include "cmd.h"

#include <signal.h>

static volatile int stop_requested;

static void request_stop(int signal_number)
{
    (void)signal_number;
    stop_requested = 1;
}

void cmd_signals_catch(void (*handler)(int signal), bool alone)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGUSR1, SIGHUP};
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART}, before;
    if (alone)
        sigfillset(&action.sa_mask);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        if (signals[i] != SIGHUP ||
            (!sigaction(SIGHUP, NULL, &before) && before.sa_handler != SIG_IGN))
            sigaction(signals[i], &action, NULL);
}

const volatile int *cmd_stop_begin(void)
{
    struct sigaction action = {.sa_handler = request_stop, .sa_flags = SA_RESETHAND};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    return &stop_requested;
}
