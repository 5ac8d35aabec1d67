/* Changes because of what is slow, a host or a stage: when one is made, and what it gained. */
#include "launch/launch_private.h"

#include <lockstep/base/words.h>

enum { PAUSES = 10, STEPS = 7 /* of a start: the first ones take longer */ };

bool launch_slow_lasts(const struct ls_launch *launch, double since_s)
{
    const struct ls_config_launch *keys = &launch->config->launch;
    return keys->slow > 0 && ls_now_s() - since_s >= PAUSES * keys->pause_s;
}

void launch_gain_expect(struct launch_gain *gain, const struct launch_watch *watch, double share,
                        struct ls_jsonl *event)
{
    gain->before_s = launch_watch_step_s(watch);
    gain->expected_s = gain->before_s * share;
    ls_jsonl_double(event, "step_s", gain->before_s);
    ls_jsonl_double(event, "expected_s", gain->expected_s);
}

bool launch_gain_fails(struct launch_gain *gain, const char *change,
                       const struct launch_watch *watch, const struct ls_launch *launch,
                       struct launch_events *events)
{
    if (gain->expected_s <= 0 || !watch->stepped || watch->step < watch->from + STEPS)
        return false;
    double step_s = launch_watch_step_s(watch);
    bool fails = step_s >= gain->before_s;
    struct ls_jsonl *m = launch_events_begin(events, "gained", watch->step);
    if (gain->host[0])
        ls_jsonl_string(m, "host", gain->host);
    else
        ls_jsonl_int(m, "stage", gain->stage);
    ls_jsonl_double(m, "step_s", step_s);
    ls_jsonl_double(m, "before_s", gain->before_s);
    ls_jsonl_double(m, "expected_s", gain->expected_s);
    launch_events_end(events);
    ls_log(launch->log, fails ? LS_LOG_WARNING : LS_LOG_INFO,
           "a step takes %s %s: it took %s before, and should take %s", ls_duration(step_s).text,
           change, ls_duration(gain->before_s).text, ls_duration(gain->expected_s).text);
    gain->expected_s = 0;
    return fails;
}
