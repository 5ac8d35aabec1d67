/* Two units of state on one rank, which share groups, ops and an arena and take turns: each has the
 * bits that it has alone, on one rank and in any layout; one of them is saved, and a third goes on
 * from there. */
#include "../support/scratch.h"
#include "../support/suite.h"
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 3, UNITS = 2, KEYS_MAX = 5, ROOM = 600 };

typedef const char *keys_t[KEYS_MAX];

static const keys_t layouts[] = {
    {NULL},
    {"parallel.dp=2"},
    {"parallel.dp_shard=4", "parallel.zero=1", "numerics.precision=bf16"},
    {"parallel.dp_shard=2", "parallel.dp_replicate=2", "parallel.zero=2"},
    {"parallel.dp_shard=4", "parallel.zero=3", "parallel.persist=16"},
    {"parallel.pp=2", "parallel.tp=2", "parallel.zero=1", "parallel.dp_shard=2"},
};

/* What differs between the units. */
static const char *const optimizers[UNITS] = {"optim.name=adamw", "optim.name=lion"};

struct job {
    const char *directory;
    const char *const *keys;
    bool has[UNITS];
    bool overlaps; /* the twin: the second lies where the first does */
    struct ls_config config[UNITS];
    /* Of rank 0. */
    char hash[UNITS][STEPS][33];
    double norm[UNITS][STEPS];
};

static struct ls_config config_make(const struct job *job, int unit)
{
    char out[ROOM];
    const char *keys[KEYS_MAX + 2] = {optimizers[unit]};
    for (int i = 0; i < KEYS_MAX && job->keys[i]; i++)
        keys[i + 1] = job->keys[i];
    snprintf(out, sizeof out, "%s/%d", job->directory, unit);
    return unit_config(keys, out);
}

static int units_take(struct unit *units, const struct job *job, struct ls_arena *arena,
                      struct ls_error *error)
{
    int status = LS_OK;
    size_t begin = arena->used;
    for (int u = 0; u < UNITS && !status; u++) {
        if (job->overlaps)
            ls_arena_reset(arena, begin);
        if (job->has[u])
            status = ls_state_take(&units[u].state, arena, error);
    }
    return status;
}

/* The unit goes on from what another one of its recipe saved, and has its bits. */
static int resume(struct unit *from, struct unit *to, struct ls_arena *arena,
                  struct ls_error *error)
{
    struct ls_digest saved, again;
    bool resumed;
    snprintf(to->config.train.resume, sizeof to->config.train.resume, "auto");
    int status = ls_state_save(&from->state, NULL, error);
    if (!status)
        status = ls_state_take(&to->state, arena, error);
    if (!status)
        status = unit_fill(to, error);
    if (!status)
        status = ls_state_resume(&to->state, &resumed, error);
    for (int step = 0; step < 2 && !status; step++) {
        status = ls_state_hash(&from->state, &saved, error);
        if (!status)
            status = ls_state_hash(&to->state, &again, error);
        if (!status && memcmp(&saved, &again, sizeof saved))
            return ls_error_set(error, LS_ECKPT, "%d steps after the save: other bits", step);
        if (!status)
            status = unit_step(from, error);
        if (!status)
            status = unit_step(to, error);
    }
    return status;
}

static int steps_run(struct unit *units, struct job *job, struct ls_error *error)
{
    int status = LS_OK;
    for (int step = 0; step < STEPS; step++)
        for (int u = 0; u < UNITS && !status; u++) {
            struct ls_digest digest;
            if (!job->has[u])
                continue;
            status = step == 0 ? unit_fill(&units[u], error) : LS_OK;
            if (!status)
                status = unit_step(&units[u], error);
            if (!status)
                status = ls_state_hash(&units[u].state, &digest, error);
            if (status || units[u].state.rank > 0)
                continue;
            ls_digest_hex(&digest, job->hash[u][step]);
            job->norm[u][step] = units[u].norm;
        }
    return status;
}

static int rank_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct job *job = user;
    struct seat seat;
    struct unit units[UNITS + 1] = {0};
    struct ls_arena measure, arena = {0};
    struct ls_config config = job->config[0];
    int status = seat_open(&seat, &config, NULL, world, error);
    for (int u = 0; u <= UNITS && !status; u++) {
        struct ls_config own = job->config[u % UNITS];
        own.numerics.arithmetic = config.numerics.arithmetic;
        unit_init(&units[u], &own, (uint64_t)(u % UNITS) + 5, &seat);
    }
    ls_arena_measure(&measure);
    if (!status)
        status = units_take(units, job, &measure, error);
    if (!status)
        status = ls_state_take(&units[UNITS].state, &measure, error);
    for (int u = 0; u <= UNITS; u++)
        ls_state_release(&units[u].state);
    if (!status)
        status = ls_arena_init(&arena, measure.used, error);
    if (!status)
        status = units_take(units, job, &arena, error);
    if (!status)
        status = steps_run(units, job, error);
    if (!status && job->has[0] && job->has[1] && !job->overlaps)
        status = resume(&units[0], &units[UNITS], &arena, error);
    ls_comm_agree(world, status, &(struct ls_error){0});
    for (int u = 0; u <= UNITS; u++)
        ls_state_release(&units[u].state);
    seat_close(&seat);
    ls_arena_release(&arena);
    return status;
}

static void job_run(struct job *job)
{
    struct ls_error error = {0};
    for (int u = 0; u < UNITS; u++)
        job->config[u] = config_make(job, u);
    if (ls_world_run((int)ls_config_ranks(&job->config[0]), rank_body, job, &error))
        fail_msg("%s: %s", job->keys[0] ? job->keys[0] : "one rank", error.text);
}

static int setup(void **state)
{
    if (scratch_setup(state))
        return -1;
    for (int u = 0; u < UNITS; u++) {
        char name[] = {(char)('0' + u), '\0'};
        if (ls_directory_make(scratch_path(*state, name), NULL, NULL))
            return -1;
    }
    return 0;
}

/* Each unit by itself, on one rank. */
static struct job alone(const char *directory, const char *precision)
{
    struct job all = {.directory = directory};
    for (int u = 0; u < UNITS; u++) {
        const keys_t keys = {precision};
        struct job one = {.directory = directory, .keys = keys, .has = {u == 0, u == 1}};
        job_run(&one);
        memcpy(all.hash[u], one.hash[u], sizeof one.hash[u]);
        memcpy(all.norm[u], one.norm[u], sizeof one.norm[u]);
    }
    assert_string_not_equal(all.hash[0][STEPS - 1], all.hash[1][STEPS - 1]);
    return all;
}

CASE_WITH(test_two_units_take_turns, setup, scratch_teardown)
{
    struct job want[2] = {alone(*state, NULL), alone(*state, "numerics.precision=bf16")};
    for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++) {
        struct job both = {.directory = *state, .keys = layouts[l], .has = {true, true}};
        const struct job *one = &want[layouts[l][2] && strstr(layouts[l][2], "bf16")];
        char path[ROOM];
        job_run(&both);
        for (int u = 0; u < UNITS; u++)
            for (int step = 0; step < STEPS; step++) {
                assert_string_equal(both.hash[u][step], one->hash[u][step]);
                assert_memory_equal(&both.norm[u][step], &one->norm[u][step], sizeof(double));
            }
        snprintf(path, sizeof path, "rm -r '%s/0/checkpoints'", (const char *)*state);
        assert_int_equal(system(path), 0);
    }
}

/* The twin: they share memory that each should have for itself. */
CASE_WITH(test_units_that_overlap_are_seen, setup, scratch_teardown)
{
    const struct job want = alone(*state, NULL);
    struct job both = {
        .directory = *state, .keys = layouts[0], .has = {true, true}, .overlaps = true};
    job_run(&both);
    assert_string_not_equal(both.hash[0][STEPS - 1], want.hash[0][STEPS - 1]);
}

SUITE_MAIN(NULL, NULL)
