/* The best evaluation of a run, from its records: a run that was killed between two writes has the
 * same one as a run that was not. */
#include "train/best_records.h"

#include <math.h>

bool best_records_take(struct best_records *records, const struct ls_checkpoint_best *now)
{
    const struct ls_checkpoint_best *best = &records->best;
    bool first = best->step < 0 || best->sequences != now->sequences;
    if (!isfinite(now->loss) || (!first && now->loss >= best->loss))
        return false;
    records->best = *now;
    return true;
}

void best_records_see(struct best_records *records, const char *out, const struct ls_record *record)
{
    double step, loss, sequences;
    if (!ls_record_number(record, "step", &step))
        return;
    records->recorded = (int64_t)step;
    if (!ls_record_number(record, "validation_loss", &loss) ||
        !ls_record_number(record, "sequences", &sequences))
        return;
    const struct ls_checkpoint_best now = {(int64_t)step, loss, (int64_t)sequences};
    records->last = now.step;
    if (ls_checkpoint_there(out, now.step))
        best_records_take(records, &now);
}
