/* Two sets of parameters with groups of their own: gradients, norm, update, hash and checkpoint
 * have the bits of one rank that has one set of all. */
#include "../support/scratch.h"
#include "../support/suite.h"
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 3, KEYS_MAX = 6, ROOM = 600 };
enum {
    REPLICATE = 1 << LS_AXIS_DP_REPLICATE,
    SHARD = 1 << LS_AXIS_DP_SHARD | 1 << LS_AXIS_CP,
};

/* ---- layouts of two sets --------------------------------------------------------------------- */

/* The second block is set 1. */
static void second_block(struct ls_layout *layout, unsigned shard, unsigned replicate)
{
    layout->set_count = 2;
    layout->layer_set[2] = 1;
    ls_layout_set_init(layout, 1, shard, replicate);
}

/* Set 0 lies over all data-parallel ranks, set 1 over a part of them, of which there are copies. */
static void narrow(struct ls_layout *layout)
{
    second_block(layout, SHARD, REPLICATE);
    ls_layout_set_init(layout, 0, REPLICATE | SHARD, 0);
}

/* The other way round. */
static void wide(struct ls_layout *layout)
{
    second_block(layout, REPLICATE | SHARD, 0);
}

/* Not as struct ls_layout_set asks for: the leaves of a shard group do not follow each other. */
static void crossed(struct ls_layout *layout)
{
    second_block(layout, REPLICATE, SHARD);
}

/* ---- runs ------------------------------------------------------------------------------------ */

enum twin { HONEST, OTHER_SHARD, OTHER_OWNERS };

struct run {
    void (*edit)(struct ls_layout *);
    enum twin twin;
    bool resumes; /* begins with what is in the directory */
    struct ls_config config;
    /* Of rank 0: after each step, and the first one's gradients. */
    char hash[STEPS + 1][33];
    double norm[STEPS];
};

/* The twins: set 1 takes a group of set 0's in the place of its own. */
static struct ls_comm *group_swap(struct seat *seat, enum twin twin, struct ls_comm *own)
{
    enum ls_layout_group group = twin == OTHER_SHARD ? LS_GROUP_SHARD : LS_GROUP_OWNERS;
    struct ls_comm **of_1 = &seat->groups[ls_set_group(1, group)], *before = *of_1;
    if (twin != HONEST)
        *of_1 = own ? own : seat->groups[group];
    return before;
}

static int hash_put(struct unit *unit, char hash[33], struct ls_error *error)
{
    struct ls_digest digest;
    int status = ls_state_hash(&unit->state, &digest, error);
    if (!status && unit->state.rank == 0)
        ls_digest_hex(&digest, hash);
    return status;
}

static int unit_run(struct run *run, struct unit *unit, struct ls_error *error)
{
    bool resumed = false;
    int status = unit_fill(unit, error);
    if (!status && run->resumes)
        status = ls_state_resume(&unit->state, &resumed, error);
    if (!status && resumed != run->resumes)
        status = ls_error_set(error, LS_ECKPT, "there is no checkpoint");
    for (int step = (int)unit->state.step; step < STEPS && !status; step++) {
        status = unit_step(unit, error);
        if (!status)
            status = hash_put(unit, run->hash[step], error);
        if (unit->state.rank == 0)
            run->norm[step] = unit->norm;
        if (!status && step == 0 && !run->resumes)
            status = ls_state_save(&unit->state, NULL, error);
    }
    return status;
}

static int rank_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct run *run = user;
    struct seat seat;
    struct unit unit = {.seed = 0};
    struct ls_arena measure, arena = {0};
    struct ls_config config = run->config;
    struct ls_comm *own = NULL;
    int status = seat_open(&seat, &config, run->edit, world, error);
    if (!status) {
        own = group_swap(&seat, run->twin, NULL);
        unit_init(&unit, &config, 5, &seat);
        ls_arena_measure(&measure);
        status = ls_state_take(&unit.state, &measure, error);
        ls_state_release(&unit.state);
    }
    if (!status)
        status = ls_arena_init(&arena, measure.used, error);
    if (!status)
        status = ls_state_take(&unit.state, &arena, error);
    if (!status && arena.used != measure.used)
        status =
            ls_error_set(error, LS_EINVAL, "planned %zu bytes, took %zu", measure.used, arena.used);
    if (!status)
        status = unit_run(run, &unit, error);
    ls_comm_agree(world, status, &(struct ls_error){0});
    group_swap(&seat, run->twin, own);
    ls_state_release(&unit.state);
    seat_close(&seat);
    ls_arena_release(&arena);
    return status;
}

static int run_try(struct run *run, const char *directory, const char *const *keys,
                   struct ls_error *error)
{
    char command[ROOM];
    snprintf(command, sizeof command, "rm -rf '%s/checkpoints'", directory);
    if (!run->resumes)
        assert_int_equal(system(command), 0);
    *error = (struct ls_error){0};
    run->config = unit_config(keys, directory);
    snprintf(run->config.train.resume, sizeof run->config.train.resume, "%s",
             run->resumes ? "auto" : "never");
    return ls_world_run((int)ls_config_ranks(&run->config), rank_body, run, error);
}

static void run_do(struct run *run, const char *directory, const char *const *keys)
{
    struct ls_error error;
    if (run_try(run, directory, keys, &error))
        fail_msg("%s: %s", keys[0] ? keys[0] : "one rank", error.text);
}

static struct run one_rank(const char *directory, const char *precision)
{
    const char *const keys[] = {precision, NULL};
    struct run run = {.edit = NULL};
    run_do(&run, directory, keys);
    return run;
}

static void check_same(const struct run *got, const struct run *want, int first)
{
    for (int step = first; step < STEPS; step++) {
        assert_memory_equal(&got->norm[step], &want->norm[step], sizeof(double));
        assert_string_equal(got->hash[step], want->hash[step]);
    }
}

/* ---- tests ----------------------------------------------------------------------------------- */

static const struct {
    void (*edit)(struct ls_layout *);
    const char *keys[KEYS_MAX];
} layouts[] = {
    {wide, {"parallel.dp_replicate=2", "parallel.dp_shard=2"}},
    {narrow, {"parallel.dp_replicate=2", "parallel.dp_shard=2", "parallel.zero=1"}},
    {wide, {"parallel.dp_replicate=2", "parallel.dp_shard=2", "parallel.zero=1"}},
    {narrow, {"parallel.dp_replicate=2", "parallel.dp_shard=2", "parallel.zero=2"}},
    {wide, {"parallel.dp_replicate=4", "parallel.dp_shard=2", "parallel.zero=2"}},
    {narrow, {"parallel.dp_replicate=2", "parallel.dp_shard=4", "parallel.zero=3"}},
    {wide,
     {"parallel.dp_replicate=2", "parallel.dp_shard=2", "parallel.zero=3", "parallel.persist=32",
      "parallel.tp=2"}},
    {narrow,
     {"parallel.dp_replicate=2", "parallel.dp_shard=2", "parallel.zero=3", "parallel.pp=2"}},
};

CASE_WITH(test_two_sets_are_one, scratch_setup, scratch_teardown)
{
    const char *const precisions[] = {"numerics.precision=fp32", "numerics.precision=bf16"};
    for (int p = 0; p < 2; p++) {
        const struct run want = one_rank(*state, precisions[p]);
        for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++) {
            const char *keys[KEYS_MAX + 2] = {precisions[p]};
            for (int i = 0; layouts[l].keys[i]; i++)
                keys[i + 1] = layouts[l].keys[i];
            struct run run = {.edit = layouts[l].edit};
            run_do(&run, *state, keys);
            check_same(&run, &want, 0);
            /* What it saved after its first step, for one rank and for itself. */
            struct run again = {.resumes = true};
            run_do(&again, *state, (const char *const[]){precisions[p], NULL});
            check_same(&again, &want, 1);
            again.edit = layouts[l].edit;
            run_do(&again, *state, keys);
            check_same(&again, &want, 1);
        }
    }
}

/* A set that takes the other's group is refused, or has another norm; one whose leaves come in
 * another order has other bits. */
CASE_WITH(test_broken_sets_are_seen, scratch_setup, scratch_teardown)
{
    const char *const keys[] = {"parallel.dp_replicate=2", "parallel.dp_shard=2", "parallel.zero=2",
                                NULL};
    const struct run want = one_rank(*state, NULL);
    struct ls_error error;
    struct run run = {.edit = narrow, .twin = OTHER_SHARD};
    int status = run_try(&run, *state, keys, &error);
    if (status != LS_EINVAL || !strstr(error.text, "are not the groups given"))
        fail_msg("status %d, %s", status, error.text);
    run = (struct run){.edit = narrow, .twin = OTHER_OWNERS};
    run_do(&run, *state, keys);
    assert_memory_not_equal(&run.norm[0], &want.norm[0], sizeof(double));
    assert_string_not_equal(run.hash[0], want.hash[0]);
    run = (struct run){.edit = crossed};
    run_do(&run, *state, keys);
    assert_string_not_equal(run.hash[0], want.hash[0]);
}

SUITE_MAIN(NULL, NULL)
