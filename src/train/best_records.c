/* The best evaluation of a run, from its records: a run that was killed between two writes has the
 * same one as a run that was not. */
#include "train/best_records.h"

#include <lockstep/trace.h>

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

bool best_records_take(struct best_records *records, const struct ls_checkpoint_best *now)
{
    const struct ls_checkpoint_best *best = &records->best;
    bool first = best->step < 0 || best->sequences != now->sequences;
    if (!isfinite(now->loss) || (!first && now->loss >= best->loss))
        return false;
    records->best = *now;
    return true;
}

struct reading {
    const char *out;
    struct best_records *records;
};

static void record_visit(void *user, const struct ls_record *record)
{
    const struct reading *reading = user;
    double step, loss, sequences;
    if (!ls_record_number(record, "step", &step))
        return;
    reading->records->recorded = (int64_t)step;
    if (!ls_record_number(record, "validation_loss", &loss) ||
        !ls_record_number(record, "sequences", &sequences))
        return;
    const struct ls_checkpoint_best now = {(int64_t)step, loss, (int64_t)sequences};
    reading->records->last = now.step;
    if (ls_checkpoint_there(reading->out, now.step))
        best_records_take(reading->records, &now);
}

int best_records_read(const char *out, struct best_records *records, struct ls_error *error)
{
    char path[PATH_MAX];
    bool torn;
    struct reading reading = {out, records};
    *records = (struct best_records){.best = {.step = -1}, .last = -1, .recorded = -1};
    snprintf(path, sizeof path, "%s/metrics.jsonl", out);
    return access(path, F_OK) ? LS_OK : ls_jsonl_each(path, record_visit, &reading, &torn, error);
}
