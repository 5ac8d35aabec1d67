/* Data from elsewhere: which samples a trainer asks for ahead of their step, and what the log says
 * of data that comes too slowly, of reports whose seconds are given, so that no clock is asked. */
#include "../support/config_words.h"
#include "../support/s3_server.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/wrapped.h"
#include "tokens.h"
#include "train/data_supply.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

enum { TOKENS = 1 << 14, SOURCES = 4 }; /* of each, which fit one piece: nothing is read ahead */

static struct s3_server *server;
static char last[1024];
static int lines;

static void hear(void *user, enum ls_log_level level, const char *line)
{
    assert_int_equal(level, LS_LOG_WARNING);
    snprintf(last, sizeof last, "%s", line);
    lines++;
}

static const struct ls_log log_of = {LS_LOG_WARNING, hear, NULL};

/* Reads the source, of which 32 KiB come of the server. */
static void fetch(const struct ls_trainer *trainer, int source)
{
    static int32_t ids[TOKENS];
    struct ls_error error = {0};
    assert_ok(ls_token_store_read(trainer->data.stores[source], 0, TOKENS, INT32_MAX, ids, &error),
              error);
}

/* A step of so many seconds: how many lines there are after it. */
static int lines_after(struct data_supply *supply, const struct ls_trainer *trainer, int64_t step,
                       double step_s, double wait_s)
{
    const struct ls_step_report report = {.step = step, .step_s = step_s, .data_wait_s = wait_s};
    data_supply_step(supply, trainer, &report, &log_of);
    return lines;
}

static struct ls_token_store *open_store(const char *spec)
{
    struct ls_error error = {0};
    struct ls_token_store *store;
    assert_ok(ls_token_store_open(spec, &store, &error), error);
    return store;
}

/* ---- ahead of use ---------------------------------------------------------------------------- */

enum { RANKS = 2, STEPS = 6, BATCH = 4, AHEAD = 4, ASKED_MAX = 64 };

/* How often each sample of the run was asked for, of all ranks. */
static _Atomic int asked[ASKED_MAX];

WRAPPED(ls_loader_prefetch);
void __wrap_ls_loader_prefetch(struct ls_loader *loader, const struct ls_sample_run *runs,
                               int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        for (int64_t k = runs[i].first; k < runs[i].first + runs[i].count; k++) {
            assert_in_range(k, 0, ASKED_MAX - 1);
            asked[k]++;
        }
    __real_ls_loader_prefetch(loader, runs, count);
}

static int steps_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct ls_trainer *t = NULL;
    struct ls_step_report report;
    int status = ls_trainer_new(user, world, NULL, &t, error);
    for (int step = 1; step <= STEPS && !status; step++) {
        status = ls_trainer_step(t, &report, error);
        status = ls_comm_agree(world, status, error);
        for (int k = 0; k < ASKED_MAX && !status; k++) /* the loader takes the first batch itself */
            if (asked[k] != (k >= BATCH && k < (step + AHEAD) * BATCH))
                status = ls_error_set(error, LS_EDATA, "behind step %d: sample %d asked %d times",
                                      step, k, (int)asked[k]);
        status = ls_comm_agree(world, status, error);
    }
    ls_trainer_free(t);
    return status;
}

/* In each step the samples of the four behind it are on their way, each asked for once, by one of
 * the ranks. */
CASE(test_four_steps_are_asked_for_ahead)
{
    struct ls_error error = {0};
    struct ls_config config = config_of_words(
        "model.layers=1 model.channels=32 model.heads=2 model.vocab=50 model.context=16 "
        "batch.global=%d parallel.threads=1 numerics.arithmetic=fma parallel.dp=%d train.steps=%d "
        "data.train=u16:%s/tokens.bin train.out=%s/run",
        BATCH, RANKS, STEPS, (char *)*state, (char *)*state);
    assert_ok(ls_world_run(RANKS, steps_body, &config, &error), error);
}

/* ---- too slowly ------------------------------------------------------------------------------ */

CASE(test_a_step_that_waits_for_a_server_is_told)
{
    char spec[256];
    struct ls_training_source sources[SOURCES] = {0};
    struct ls_token_store *stores[SOURCES];
    struct data_supply supply;
    struct ls_trainer *trainer = calloc(1, sizeof *trainer);
    assert_non_null(trainer);
    snprintf(spec, sizeof spec, "u16:%s", s3_server_url(server, "data/bare"));
    for (int i = 0; i < SOURCES; i++)
        stores[i] = open_store(spec);
    trainer->data =
        (struct ls_training_data){.count = SOURCES, .sources = sources, .stores = stores};
    data_supply_begin(&supply, trainer, NULL, &log_of);
    assert_int_equal(lines, 0);
    fetch(trainer, 0);
    assert_int_equal(lines_after(&supply, trainer, 1, 4, 0.3), 0); /* less than a tenth */
    assert_int_equal(lines_after(&supply, trainer, 2, 4, 2), 0);   /* and nothing came */
    fetch(trainer, 1);
    assert_int_equal(lines_after(&supply, trainer, 3, 4, 2), 1);
    assert_string_equal(last,
                        "step 3 waited 2 s of 4 s for data: this rank needs 16.0 KiB/s of its "
                        "servers, and 8.0 KiB/s came");
    fetch(trainer, 2);
    assert_int_equal(lines_after(&supply, trainer, 102, 4, 2), 1); /* it was said 99 steps ago */
    fetch(trainer, 3);
    assert_int_equal(lines_after(&supply, trainer, 103, 8, 6), 2);
    assert_string_equal(last, "step 103 waited 6 s of 8 s for data: this rank needs 16.0 KiB/s of "
                              "its servers, and 4.0 KiB/s came");
    for (int i = 0; i < SOURCES; i++)
        ls_token_store_close(stores[i]);
    free(trainer);
}

/* Local data are read as fast as the disk is: nothing is said of servers. */
CASE(test_of_local_data_nothing_is_told)
{
    struct ls_training_source source = {.name = "data.train"};
    struct ls_token_store *store;
    struct data_supply supply;
    struct ls_trainer *trainer = calloc(1, sizeof *trainer);
    char spec[PATH_MAX];
    assert_non_null(trainer);
    snprintf(spec, sizeof spec, "u16:%s/tokens.bin", (const char *)*state);
    store = open_store(spec);
    trainer->data = (struct ls_training_data){.count = 1, .sources = &source, .stores = &store};
    data_supply_begin(&supply, trainer, NULL, &log_of);
    int before = lines;
    assert_int_equal(lines_after(&supply, trainer, 1, 4, 3), before);
    ls_token_store_close(store);
    free(trainer);
}

static int setup(void **state)
{
    static const uint16_t tokens[TOKENS];
    server = s3_server_start();
    s3_server_place_bytes(server, "data/bare", tokens, sizeof tokens);
    return tokens_setup(state);
}

static int teardown(void **state)
{
    s3_server_stop(server);
    return scratch_teardown(state);
}

SUITE_MAIN(setup, teardown)
