/* Data from elsewhere: what the log says of its files, of their cache, and of how fast it comes. */
#include "train/data_supply.h"

#include <lockstep/base/words.h>

#include <string.h>
#include <sys/stat.h>

enum { SAY_EVERY = 100 }; /* steps */
static const double wait_share = 0.1;

static void files_tell(const char *name, const struct ls_token_store *store,
                       const struct ls_log *log)
{
    int files = ls_token_store_files(store);
    if (files > 1)
        ls_log(log, LS_LOG_INFO, "%.200s: %s of %s, from %.200s to %.200s", name,
               ls_counted(files, "file").text,
               ls_counted(ls_token_store_tokens(store), "token").text,
               ls_token_store_file(store, 0).path, ls_token_store_file(store, files - 1).path);
}

/* Only files of one name are looked at: there may be thousands. */
static bool is_one(const char *a, const char *b)
{
    struct stat first, second;
    const char *of_a = strrchr(a, '/'), *of_b = strrchr(b, '/');
    if (strcmp(of_a ? of_a + 1 : a, of_b ? of_b + 1 : b))
        return false;
    return !strcmp(a, b) || (!stat(a, &first) && !stat(b, &second) &&
                             first.st_dev == second.st_dev && first.st_ino == second.st_ino);
}

/* A folder for data.train that the held-out store lies in too. */
static void overlap_tell(const struct ls_token_store *trained, const struct ls_token_store *valid,
                         const struct ls_log *log)
{
    for (int i = 0; i < ls_token_store_files(trained); i++)
        for (int k = 0; k < ls_token_store_files(valid); k++)
            if (is_one(ls_token_store_file(trained, i).path, ls_token_store_file(valid, k).path)) {
                ls_log(log, LS_LOG_WARNING,
                       "data.train and data.valid both have %.300s, so the run trains on what it "
                       "is evaluated on: name the store of data.train",
                       ls_token_store_file(valid, k).path);
                return;
            }
}

void data_supply_begin(struct data_supply *supply, struct ls_trainer *trainer,
                       const volatile int *stop, const struct ls_log *log)
{
    *supply = (struct data_supply){0};
    for (int i = 0; i < trainer->data.count; i++) {
        files_tell(trainer->data.sources[i].name, trainer->data.stores[i], log);
        ls_token_store_stop_on(trainer->data.stores[i], stop);
        if (trainer->valid_store)
            overlap_tell(trainer->data.stores[i], trainer->valid_store, log);
    }
    if (trainer->valid_store) {
        files_tell("data.valid", trainer->valid_store, log);
        ls_token_store_stop_on(trainer->valid_store, stop);
    }
}

/* Bytes that servers sent for all sources so far; false: none is elsewhere. */
static bool fetched(const struct ls_trainer *trainer, int64_t *bytes)
{
    bool elsewhere = false;
    *bytes = 0;
    for (int i = 0; i < trainer->data.count; i++) {
        struct ls_store_traffic traffic;
        elsewhere |= ls_token_store_traffic(trainer->data.stores[i], &traffic);
        *bytes += traffic.fetched_bytes;
    }
    return elsewhere;
}

static void warnings_tell(const struct ls_trainer *trainer, const struct ls_log *log)
{
    char text[512];
    for (int i = 0; i < trainer->data.count; i++)
        while (ls_token_store_warning(trainer->data.stores[i], text, sizeof text))
            ls_log(log, LS_LOG_WARNING, "%s", text);
    while (trainer->valid_store && ls_token_store_warning(trainer->valid_store, text, sizeof text))
        ls_log(log, LS_LOG_WARNING, "%s", text);
}

void data_supply_step(struct data_supply *supply, const struct ls_trainer *trainer,
                      const struct ls_step_report *report, const struct ls_log *log)
{
    int64_t before = supply->fetched_bytes;
    warnings_tell(trainer, log);
    bool elsewhere = fetched(trainer, &supply->fetched_bytes), first = !supply->begun;
    supply->begun = true;
    if (!elsewhere || first)
        return;
    double bytes = (double)(supply->fetched_bytes - before);
    double wait_s = report->data_wait_s, work_s = report->step_s - wait_s;
    bool said = supply->said_step > 0 && report->step - supply->said_step < SAY_EVERY;
    if (bytes <= 0 || work_s <= 0 || wait_s < wait_share * report->step_s || said)
        return;
    supply->said_step = report->step;
    ls_log(log, LS_LOG_WARNING,
           "step %lld waited %s of %s for data: this rank needs %s/s of its servers, and "
           "%s/s came",
           (long long)report->step, ls_duration(wait_s).text, ls_duration(report->step_s).text,
           ls_bytes(bytes / work_s).text, ls_bytes(bytes / report->step_s).text);
}
