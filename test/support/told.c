/* How far works told that they are. */
#include "told.h"
#include "testing.h"

#include <lockstep/base/meter.h>

#include <pthread.h>
#include <string.h>

#include "wrapped.h"

enum { WORKS_MAX = 8 };

static struct {
    const char *what; /* a literal */
    int64_t done, all;
    int backwards;
} works[WORKS_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void (*told_also)(const char *what, int64_t done, int64_t all);

WRAPPED(ls_meter);
void __wrap_ls_meter(const char *what, int64_t done, int64_t all)
{
    int i = 0;
    ls_progress();
    pthread_mutex_lock(&lock);
    while (i < WORKS_MAX - 1 && works[i].what && strcmp(works[i].what, what) != 0)
        i++;
    works[i].what = what;
    works[i].backwards += done < works[i].done && works[i].done < works[i].all;
    works[i].done = done;
    works[i].all = all;
    pthread_mutex_unlock(&lock);
    if (told_also)
        told_also(what, done, all);
}

void told_clear(void)
{
    memset(works, 0, sizeof works);
}

void told_expect(const char *what, int64_t all)
{
    for (int i = 0; i < WORKS_MAX && works[i].what; i++) {
        if (strcmp(works[i].what, what) != 0)
            continue;
        bool right = all == TOLD_SOME ? works[i].all > 0 : works[i].all == all;
        if (works[i].backwards || !right || (all && works[i].done != works[i].all))
            fail_msg("%s: told of %lld of %lld in the end, expected %lld; %d times of less than "
                     "before",
                     what, (long long)works[i].done, (long long)works[i].all, (long long)all,
                     works[i].backwards);
        return;
    }
    fail_msg("nobody told of %s", what);
}
