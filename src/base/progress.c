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

static void time_set(uint64_t *where, double time_s)
{
    uint64_t word;
    memcpy(&word, &time_s, sizeof word);
    __atomic_store_n(where, word, __ATOMIC_RELAXED);
}

static double time_of(const uint64_t *from)
{
    uint64_t word = __atomic_load_n(from, __ATOMIC_RELAXED);
    double time_s;
    memcpy(&time_s, &word, sizeof time_s);
    return time_s;
}

void ls_progress_set(struct ls_progress *where, double time_s)
{
    time_set(&where->word, time_s);
}

double ls_progress_s(const struct ls_progress *of)
{
    return time_of(&of->word);
}

void ls_progress_reads(bool begins)
{
    if (kept)
        ls_progress_reading_set(kept, begins ? ls_now_s() : 0, 0);
}

void ls_progress_read(size_t bytes)
{
    ls_progress();
    if (kept)
        __atomic_fetch_add(&kept->read_bytes, bytes, __ATOMIC_RELAXED);
}

double ls_progress_reading(const struct ls_progress *of, uint64_t *bytes)
{
    *bytes = __atomic_load_n(&of->read_bytes, __ATOMIC_RELAXED);
    return time_of(&of->reads_since);
}

void ls_progress_reading_set(struct ls_progress *where, double since_s, uint64_t bytes)
{
    __atomic_store_n(&where->read_bytes, bytes, __ATOMIC_RELAXED);
    time_set(&where->reads_since, since_s);
}
