/* The figures of a forecast by name, as JSON. */
#include <lockstep/planner/forecast.h>

#include <jansson.h>
#include <math.h>

/* NaN and infinity are null. */
static json_t *real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *accounts(const double seconds[LS_ACCOUNTS])
{
    json_t *json = json_object();
    for (int a = 0; a < LS_ACCOUNTS; a++)
        json_object_set_new(json, ls_account_name((enum ls_account)a), real(seconds[a]));
    return json;
}

json_t *ls_forecast_json(const struct ls_forecast *f)
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
                   {"slowest", f->slowest},
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
    json_t *json = json_object(), *work = json_object();
    json_object_set_new(json, "ranks", json_integer(f->ranks));
    json_object_set_new(json, "accelerators", json_integer(f->ranks * f->accelerators));
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        json_object_set_new(json, figures[i].name, real(figures[i].value));
    for (int kind = 0; kind < LS_WORK_KINDS; kind++)
        json_object_set_new(work, ls_work_name((enum ls_work_kind)kind), real(f->work_s[kind]));
    json_object_set_new(json, "fits", json_boolean(f->fits));
    json_object_set_new(json, "price", real(f->run.price));
    json_object_set_new(json, "exposed_s", accounts(f->exposed_s));
    json_object_set_new(json, "moving_s", accounts(f->moving_s));
    json_object_set_new(json, "work_s", work);
    return json;
}
