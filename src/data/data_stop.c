/* What ends everything that this process reads elsewhere: its signals' flag. */
#include "data/data_file.h"

static const volatile int *asked;

void ls_data_stop_on(const volatile int *stop)
{
    __atomic_store_n(&asked, stop, __ATOMIC_RELEASE);
}

bool data_stopped(void)
{
    const volatile int *stop = __atomic_load_n(&asked, __ATOMIC_ACQUIRE);
    return stop && __atomic_load_n(stop, __ATOMIC_RELAXED);
}

static bool ends(void *user)
{
    (void)user;
    return data_stopped();
}

struct ls_net_options data_net(const struct ls_net_options *given)
{
    struct ls_net_options net = given ? *given : (struct ls_net_options){0};
    net.ends = net.ends ? net.ends : ends;
    return net;
}
