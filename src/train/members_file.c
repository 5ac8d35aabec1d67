/* RUN/members, and the texts in it. */
#include <lockstep/train/members.h>

#include <lockstep/base/file.h>
#include <lockstep/trace.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A number, or two with a dash between, at *text, which moves behind it and a comma. */
static bool range_read(const char **text, int workers, long *first, long *last)
{
    char *end;
    if (**text < '0' || **text > '9')
        return false;
    *first = *last = strtol(*text, &end, 10);
    if (*end == '-' && (end[1] < '0' || end[1] > '9'))
        return false;
    if (*end == '-')
        *last = strtol(end + 1, &end, 10);
    bool more = *end == ',';
    *text = end + more;
    return *first <= *last && *last < workers && more == (**text != '\0');
}

bool ls_members_parse(const char *text, int workers, bool *in)
{
    bool all = !strcmp(text, "all");
    for (int i = 0; i < workers; i++)
        in[i] = all;
    if (all)
        return true;
    do {
        long first, last;
        if (!range_read(&text, workers, &first, &last))
            return false;
        for (long i = first; i <= last; i++)
            in[i] = true;
    } while (*text);
    return true;
}

void ls_members_text(const bool *in, int workers, char *text, size_t bytes)
{
    *text = '\0';
    for (int i = 0, end; i < workers; i = end) {
        for (end = i + 1; end < workers && in[end] == in[i]; end++)
            ;
        if (in[i])
            ls_string_add(text, bytes, ",", end - i > 1 ? "%d-%d" : "%d", i, end - 1);
    }
}

struct reading {
    int workers;
    ls_members_visitor *visit;
    void *user;
    long entries;
    int64_t last;
    struct ls_error damage;
};

/* Of the workers that take part, those that the record names under that key; false: it names
 * others, or no workers. */
static bool some_read(const struct ls_record *record, const char *key, const bool *in, int workers,
                      const char **text, int *count)
{
    bool named[LS_MEMBERS_MAX], sound = true;
    const char *given = ls_record_text(record, key);
    *text = given ? given : "";
    *count = 0;
    if (!given)
        return true;
    if (!ls_members_parse(given, workers, named))
        return false;
    for (int i = 0; i < workers; i++) {
        *count += named[i];
        sound = sound && (in[i] || !named[i]);
    }
    return sound;
}

static void line_read(void *user, const struct ls_record *record)
{
    struct reading *r = user;
    const char *text = ls_record_text(record, "workers");
    struct ls_members_change change = {.workers = text};
    bool in[LS_MEMBERS_MAX];
    int members = 0, lost = 0, renewed = 0;
    double step;
    if (r->damage.code)
        return;
    r->entries++;
    if (!text || !ls_members_parse(text, r->workers, in) ||
        !ls_record_number(record, "outer_step", &step) ||
        !(step > (double)r->last && step < 0x1p53) || step != (double)(int64_t)step) {
        ls_error_set(&r->damage, LS_EDATA,
                     "entry %ld: expected an outer_step that is larger than the one before, and "
                     "workers such as 0-2,5 of %d",
                     r->entries, r->workers);
        return;
    }
    for (int i = 0; i < r->workers; i++)
        members += in[i];
    if (!some_read(record, "lost", in, r->workers, &change.lost, &lost) ||
        !some_read(record, "renewed", in, r->workers, &change.renewed, &renewed) ||
        lost == members) {
        ls_error_set(&r->damage, LS_EDATA,
                     "entry %ld: expected under lost and renewed some of the workers %s, and not "
                     "all of them lost",
                     r->entries, text);
        return;
    }
    r->last = change.outer_step = (int64_t)step;
    r->visit(r->user, &change);
}

int ls_members_each(const char *run, int workers, ls_members_visitor *visit, void *user,
                    struct ls_error *error)
{
    struct reading r = {.workers = workers, .visit = visit, .user = user};
    char path[PATH_MAX];
    bool torn;
    int status = ls_path_join(path, run, LS_MEMBERS_FILE, error);
    if (status || access(path, F_OK) != 0)
        return status;
    status = ls_jsonl_each(path, line_read, &r, &torn, error);
    if (!status && r.damage.code)
        status = ls_error_set(error, r.damage.code, "%.300s: %s", path, r.damage.text);
    return status;
}
