/* Why one plan is slower than another. */
#include <lockstep/planner/search.h>

#include <lockstep/base/words.h>

#include <stdio.h>

enum { OWN = 4 }; /* reasons that are no account */

struct ls_reason ls_search_reason(const struct ls_forecast *best, const struct ls_forecast *other)
{
    struct ls_reason reason;
    double slower = other->step_s / best->step_s - 1;
    struct {
        const char *what;
        double s;
    } parts[LS_ACCOUNTS + OWN] = {
        {"computing", other->compute_s - best->compute_s},
        {"idle at the end", other->idle_s - best->idle_s},
        {"memory tiers", other->offload_exposed_s - best->offload_exposed_s},
        {"samples", other->samples_exposed_s - best->samples_exposed_s}};
    for (int a = 0; a < LS_ACCOUNTS; a++) {
        parts[a + OWN].what =
            a == LS_ACCOUNT_PP ? "other stages (bubble)" : ls_account_name((enum ls_account)a);
        parts[a + OWN].s = other->exposed_s[a] - best->exposed_s[a];
    }
    snprintf(reason.text, sizeof reason.text, "%.1f %% slower", 100 * slower);
    for (int shown = 0; shown < 2; shown++) {
        int most = 0;
        for (int i = 1; i < LS_ACCOUNTS + OWN; i++)
            if (parts[i].s > parts[most].s)
                most = i;
        if (parts[most].s < 0.1 * slower * best->step_s || parts[most].s <= 0)
            break;
        ls_string_add(reason.text, sizeof reason.text, shown ? ", " : ": ", "%s more %s%s",
                      ls_duration(parts[most].s).text, most < OWN - 2 ? "" : "waiting for ",
                      parts[most].what);
        parts[most].s = 0;
    }
    return reason;
}
