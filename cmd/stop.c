/* Signals that ask a command to stop and to leave nothing half-written. */
#include "cmd.h"

#include <signal.h>

static volatile int stop_requested;

static void request_stop(int signal_number)
{
    (void)signal_number;
    stop_requested = 1;
}

const volatile int *cmd_stop_begin(void)
{
    struct sigaction action = {.sa_handler = request_stop, .sa_flags = SA_RESETHAND};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    return &stop_requested;
}
