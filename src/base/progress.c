/* Signs of life that the watchdog looks at. */
#include <lockstep/base.h>

#include <string.h>

static _Thread_local struct ls_progress *kept;

struct ls_progress *ls_progress_keep(struct ls_progress *where)
{
    struct ls_progress *before = kept;
    kept = where;
    return before;
}

void ls_progress(void)
{
    if (kept)
        ls_progress_set(kept, ls_now_s());
}

void ls_progress_set(struct ls_progress *where, double time_s)
{
    uint64_t word;
    memcpy(&word, &time_s, sizeof word);
    __atomic_store_n(&where->word, word, __ATOMIC_RELAXED);
}

double ls_progress_s(const struct ls_progress *of)
{
    uint64_t word = __atomic_load_n(&of->word, __ATOMIC_RELAXED);
    double time_s;
    memcpy(&time_s, &word, sizeof time_s);
    return time_s;
}
