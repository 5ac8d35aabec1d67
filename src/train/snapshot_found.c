/* Whether a run that was killed left a snapshot. */
#include "train/snapshots.h"

bool ls_run_has_snapshot(const struct ls_config *config, char folder[PATH_MAX])
{
    struct ls_run_token token;
    int count = 0;
    return !ls_run_token_read(config->train.out, &token, NULL) && token.start > 0 &&
           !snapshots_find(config, &token, folder, NULL) && !snapshots_foreign(folder, NULL) &&
           !ls_checkpoint_count(folder, &count, NULL) && count > 0;
}
