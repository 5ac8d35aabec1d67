/* The figures of a forecast by name: for JSON, and for tables of other programs. */
#include <lockstep/planner/forecast.h>

const char *ls_forecast_figure(const struct ls_forecast *f, int i, double *value)
{
    const struct {
        const char *name;
        double value;
    } figures[] = {{"step_s", f->step_s},
                   {"tokens_per_s", f->tokens_per_s},
                   {"mfu", f->mfu},
                   {"hfu", f->hfu},
                   {"bubble", f->bubble},
                   {"compute_s", f->compute_s},
                   {"contended_s", f->contended_s},
                   {"offload_exposed_s", f->offload_exposed_s},
                   {"samples_s", f->samples.seconds},
                   {"samples_exposed_s", f->samples_exposed_s},
                   {"samples_bytes", f->samples.bytes},
                   {"samples_elsewhere_bytes", f->samples.elsewhere},
                   {"samples_elsewhere_hosts", f->samples.hosts},
                   {"samples_cold_bytes", f->samples.cold_bytes},
                   {"idle_s", f->idle_s},
                   {"device_bytes", f->device_bytes},
                   {"host_bytes", f->tier_bytes[LS_TIER_HOST]},
                   {"file_bytes", f->tier_bytes[LS_TIER_FILE]},
                   {"capacity_bytes", f->capacity_bytes},
                   {"checkpoint_bytes", f->run.save.bytes},
                   {"checkpoint_s", f->run.save.seconds},
                   {"checkpoint_hash_s", f->run.save.hash_s},
                   {"checkpoint_copy_s", f->run.save.copy_s},
                   {"checkpoint_write_s", f->run.save.write_s},
                   {"checkpoint_every_s", f->run.save_every_s},
                   {"checkpoint_best_every_s", f->run.best_every_s},
                   {"snapshot_s", f->run.snapshot.seconds},
                   {"snapshot_every_s", f->run.snapshot_every_s},
                   {"goodput", f->run.goodput},
                   {"days", f->run.days}};
    if (i < 0 || i >= (int)(sizeof figures / sizeof *figures))
        return NULL;
    *value = figures[i].value;
    return figures[i].name;
}
