/* Disks that fail in the middle of a run, on one rank of several: every rank is told and none
 * hangs, no wrong number gets out, and the last checkpoint is whole. And broken twins of offload,
 * each of which shows in the hash. */
/* check: disk */
#include "../support/extent.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/wrapped.h"
#include "offload.h"
#include "tokens.h"

#include "device/tier_private.h"

#include <lockstep/compare.h>
#include <lockstep/optim.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS_MAX = 2, STEPS = 3, SMALL_WORDS = 700 };

/* ---- faults of the disk --------------------------------------------------------------------- */

/* Of one rank's tier, whose threads call one at a time. */
static struct {
    int rank; /* -1: nobody's */
    const char *call;
    int64_t first, count;
    int errno_value;
    bool armed, cut; /* cut: transfers move less than they should */
    int64_t seen;
} failing = {.rank = -1};

static int fail_before(void *user, const char *call)
{
    if (!__atomic_load_n(&failing.armed, __ATOMIC_ACQUIRE) || strcmp(call, failing.call) != 0)
        return 0;
    int64_t at = failing.seen++;
    return at >= failing.first && at < failing.first + failing.count ? failing.errno_value : 0;
}

/* The linker puts these in place of the library's (Makefile). */
WRAPPED(ls_tier_new);
int __wrap_ls_tier_new(const struct ls_tier_options *options, struct ls_tier **out,
                       struct ls_error *error)
{
    static const struct ls_fault fault = {.before = fail_before};
    struct ls_tier_options faulty = *options;
    if (options->rank == failing.rank)
        faulty.fault = &fault;
    return __real_ls_tier_new(&faulty, out, error);
}

WRAPPED(tier_settle);
bool __wrap_tier_settle(struct ls_tier *tier, struct tier_piece *piece, int64_t result)
{
    if (failing.cut && result > LS_TIER_ALIGN) /* what moved may not be relied on */
        result = LS_TIER_ALIGN + 1;
    return __real_tier_settle(tier, piece, result);
}

/* ---- faults of the program ------------------------------------------------------------------ */

enum twin { NO_TWIN, WRITE_FORGOTTEN, READ_FORGOTTEN, PLACE_SHARED };
static struct {
    enum twin twin;
    int from; /* the call that is the first to be forgotten, in updates where in_update */
    bool in_update, now; /* now: this is one */
    int calls;
} broken;

static bool forgets(enum twin twin)
{
    if (broken.twin != twin || (broken.in_update && !broken.now))
        return false;
    return ++broken.calls == broken.from;
}

WRAPPED(ls_tier_write);
int __wrap_ls_tier_write(struct ls_tier *tier, size_t offset, const void *device, size_t bytes,
                         struct ls_transfer *transfer, struct ls_error *error)
{
    if (forgets(WRITE_FORGOTTEN))
        return LS_OK;
    return __real_ls_tier_write(tier, offset, device, bytes, transfer, error);
}

WRAPPED(ls_tier_read);
int __wrap_ls_tier_read(struct ls_tier *tier, size_t offset, void *device, size_t bytes,
                        struct ls_transfer *transfer, struct ls_error *error)
{
    if (forgets(READ_FORGOTTEN)) /* its wait is over before anything came */
        return LS_OK;
    return __real_ls_tier_read(tier, offset, device, bytes, transfer, error);
}

/* The second of each two pieces of one size lies where the first does. */
WRAPPED(ls_tier_room_take);
size_t __wrap_ls_tier_room_take(struct ls_tier_room *room, size_t bytes)
{
    static __thread size_t last_bytes, last_offset;
    size_t offset = __real_ls_tier_room_take(room, bytes);
    if (broken.twin == PLACE_SHARED && bytes == last_bytes && offset > last_offset) {
        last_bytes = 0;
        return last_offset;
    }
    last_bytes = bytes;
    last_offset = offset;
    return offset;
}

WRAPPED(ls_optimizer_step);
int __wrap_ls_optimizer_step(struct ls_optimizer *optimizer, struct ls_ops *ops,
                             const struct ls_slice *slices, int count,
                             const struct ls_optim_step *step, struct ls_error *error)
{
    if (broken.twin == NO_TWIN)
        return __real_ls_optimizer_step(optimizer, ops, slices, count, step, error);
    broken.now = true;
    int status = __real_ls_optimizer_step(optimizer, ops, slices, count, step, error);
    broken.now = false;
    return status;
}

/* ---- runs ----------------------------------------------------------------------------------- */

static struct ls_config config_of(const char *directory, const char *layout, int way)
{
    char words[SMALL_WORDS];
    offload_words(way, 1, words, sizeof words);
    size_t used = strlen(words);
    snprintf(words + used, sizeof words - used,
             "batch.global=4 batch.micro=1 comm.timeout_s=20 train.resume=auto");
    return offload_config(directory, GPT2_BF16, layout, words);
}

struct run {
    struct ls_config config;
    bool resume;
    int code[RANKS_MAX]; /* what each rank got */
    char text[RANKS_MAX][sizeof((struct ls_error *)0)->text];
    struct ls_error error; /* of the run as a whole */
    struct ls_digest hash; /* after STEPS */
};

/* A step, a checkpoint, then the disk may fail; then two more steps. */
static int run_steps(struct run *run, struct ls_trainer *t, int rank, struct ls_error *error)
{
    struct ls_step_report report;
    bool resumed = false;
    int status =
        run->resume ? ls_trainer_resume(t, &resumed, error) : ls_trainer_step(t, &report, error);
    if (!status && run->resume && !resumed)
        return ls_error_set(error, LS_ECKPT, "nothing to go on from");
    if (!status && !run->resume)
        status = ls_trainer_save(t, error);
    if (rank == failing.rank)
        __atomic_store_n(&failing.armed, true, __ATOMIC_RELEASE);
    while (!status && ls_trainer_steps(t) < STEPS)
        status = ls_trainer_step(t, &report, error);
    if (rank == failing.rank)
        __atomic_store_n(&failing.armed, false, __ATOMIC_RELEASE);
    struct ls_digest hash;
    if (!status)
        status = ls_trainer_hash(t, &hash, error);
    if (!status && rank == 0)
        run->hash = hash;
    return status;
}

static int run_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct run *run = user;
    struct ls_trainer *t = NULL;
    int rank = ls_comm_rank(world);
    int status = ls_trainer_new(&run->config, world, NULL, &t, error);
    if (!status)
        status = run_steps(run, t, rank, error);
    run->code[rank] = status;
    snprintf(run->text[rank], sizeof run->text[rank], "%s", status ? error->text : "");
    ls_trainer_free(t);
    return status;
}

static void run(struct run *run)
{
    ls_world_run((int)ls_config_ranks(&run->config), run_body, run, &run->error);
}

static struct ls_digest hash_of(const struct run *r)
{
    for (int64_t rank = 0; rank < ls_config_ranks(&r->config); rank++)
        if (r->code[rank])
            fail_msg("rank %ld: %s", (long)rank, r->text[rank]);
    return r->hash;
}

/* ---- the n-th transfer fails ----------------------------------------------------------------- */

static int64_t told, harmless;

/* Every rank got an error, whose text names the file; or none did, and the numbers are right. */
static void outcome_check(const struct run *r, const struct ls_digest *expected, int code)
{
    char file[64];
    int ranks = (int)ls_config_ranks(&r->config), failed = 0;
    snprintf(file, sizeof file, "rank-%05d.offload/data", failing.rank);
    for (int rank = 0; rank < ranks; rank++)
        failed += r->code[rank] != LS_OK;
    if (failed == 0) {
        if (memcmp(&r->hash, expected, sizeof *expected) != 0)
            fail_msg("%s %ld of rank %d failed, nobody was told, and the hash is another",
                     failing.call, (long)failing.first, failing.rank);
        harmless++;
        return;
    }
    told++;
    assert_int_equal(failed, ranks);
    assert_int_equal(r->error.code, code);
    if (!strstr(r->error.text, file))
        fail_msg("%s %ld of rank %d: %s", failing.call, (long)failing.first, failing.rank,
                 r->error.text);
    for (int rank = 0; rank < ranks; rank++)
        if (r->code[rank] != code || !strstr(r->text[rank], file))
            fail_msg("rank %d, of %s %ld of rank %d: %s", rank, failing.call, (long)failing.first,
                     failing.rank, r->text[rank]);
}

static void resumed_check(const struct ls_config *config, const struct ls_digest *expected)
{
    struct run again = {.config = *config, .resume = true};
    failing.rank = -1;
    run(&again);
    struct ls_digest hash = hash_of(&again);
    assert_memory_equal(&hash, expected, sizeof hash);
}

/* The call that should have failed did not come: a busy disk had some tried again in the run that
 * counted them, and not in this one. Then nothing failed. */
static bool came(const struct run *r, const struct ls_digest *expected)
{
    if (failing.seen > failing.first)
        return true;
    struct ls_digest hash = hash_of(r);
    assert_memory_equal(&hash, expected, sizeof hash);
    harmless++;
    return false;
}

/* Transfers of one rank that fail, one of them in each run: the first one, the last one, and some
 * between. */
static void fail_some(struct ls_config *config, int rank, const char *call)
{
    struct run good = {.config = *config};
    failing.rank = rank;
    failing.call = call;
    failing.first = failing.seen = 0;
    failing.count = 0;
    run(&good);
    struct ls_digest hash = hash_of(&good), *expected = &hash;
    int64_t all = failing.seen;
    const int64_t at[] = {0, all - 1, all / 2, all / 3, all * 2 / 3};
    const int runs = check_all() ? 5 : 3;
    assert_true(all > 5);
    for (int i = 0; i < runs; i++) {
        struct run bad = {.config = *config};
        failing.rank = rank;
        failing.seen = 0;
        failing.first = at[i];
        failing.count = 1;
        failing.errno_value = i % 2 ? EIO : ENOSPC;
        run(&bad);
        if (came(&bad, expected))
            outcome_check(&bad, expected, i % 2 ? LS_EIO : LS_ENOSPC);
        if (i == runs - 1)
            resumed_check(config, expected);
    }
}

CASE_WITH(test_a_disk_that_fails_ends_the_run, tokens_setup, scratch_teardown)
{
    static const char *const layouts[] = {"parallel.dp_shard=2 parallel.zero=1", "parallel.pp=2",
                                          ""};
    static const int ways[OFFLOAD_KEYS] = {2, 2 * 3, 2 * 9, 2 * 27};
    for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++)
        for (int k = 0; k < OFFLOAD_KEYS; k++) {
            if (!check_pair((int)l, k, 3))
                continue;
            /* Whole parameters that ranks share stay. */
            const char *layout =
                k == 3 && l == 0 ? "parallel.dp_shard=2 parallel.zero=3" : layouts[l];
            /* Half as deep where a stage still has transfers enough. */
            char words[128];
            snprintf(words, sizeof words, "%s%s", layout,
                     check_all() || l == 1 ? "" : " model.layers=6");
            struct ls_config config = config_of(*state, words, ways[k]);
            told = harmless = 0;
            int rank = ls_config_ranks(&config) > 1 ? ((int)l + k) % 2 : 0;
            if (check_all() || k % 2 == 0)
                fail_some(&config, rank, "read");
            if (check_all() || k % 2 == 1)
                fail_some(&config, rank, "write");
            print_message("%s of rank %d, %s: %ld told, %ld harmless\n", offload_keys[k], rank,
                          layout, (long)told, (long)harmless);
            assert_true(told >= (check_all() ? 7 : 2));
        }
    failing.rank = -1;
}

/* Nothing moves any more: the run ends. */
CASE_WITH(test_a_disk_that_is_stuck_ends_the_run, tokens_setup, scratch_teardown)
{
    struct ls_config config = config_of(*state, "parallel.dp_shard=2 parallel.zero=1", 2);
    struct run good = {.config = config}, bad = {.config = config};
    run(&good);
    struct ls_digest expected = hash_of(&good);
    failing.rank = 1;
    failing.call = "write";
    failing.first = 20;
    failing.count = INT32_MAX;
    failing.errno_value = EAGAIN;
    failing.seen = 0;
    run(&bad);
    outcome_check(&bad, &expected, LS_EIO);
    assert_int_equal(bad.code[1], LS_EIO);
    resumed_check(&config, &expected);
}

/* Transfers that move less than they were asked for go on. */
CASE_WITH(test_short_transfers_change_nothing, tokens_setup, scratch_teardown)
{
    struct ls_config config = config_of(*state, "parallel.dp_shard=2 parallel.zero=1", 0);
    struct run good = {.config = config};
    run(&good);
    struct ls_digest expected = hash_of(&good);
    for (int file = 1; file <= 2; file++) {
        struct run cut = {.config =
                              config_of(*state, "parallel.dp_shard=2 parallel.zero=1", file * 13)};
        failing.cut = true;
        run(&cut);
        failing.cut = false;
        struct ls_digest hash = hash_of(&cut);
        assert_memory_equal(&hash, &expected, sizeof hash);
    }
}

/* Each call of a start fails on one rank: both are refused, with the key, and nothing stays. */
CASE_WITH(test_a_start_that_fails, tokens_setup, scratch_teardown)
{
    static const struct {
        const char *call;
        int errno_value, code;
    } cases[] = {
        {"mkdir", EROFS, LS_EIO},
        {"open", EACCES, LS_EIO},
        {"flock", EIO, LS_EIO},
        {"fallocate", ENOSPC, LS_ENOSPC},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct run bad = {.config = config_of(*state, "parallel.dp_shard=2 parallel.zero=1", 2)};
        failing.rank = 1;
        failing.call = cases[i].call;
        failing.errno_value = cases[i].errno_value;
        failing.first = failing.seen = 0;
        failing.count = 1;
        failing.armed = true;
        run(&bad);
        failing.armed = false;
        failing.rank = -1;
        assert_true(failing.seen > 0);
        for (int rank = 0; rank < 2; rank++) {
            assert_int_equal(bad.code[rank], cases[i].code);
            if (!strstr(bad.text[rank], "memory.file") ||
                !strstr(bad.text[rank], strerror(cases[i].errno_value)))
                fail_msg("rank %d: %s", rank, bad.text[rank]);
        }
        const char *folder = bad.config.memory.file;
        assert_true(access(folder, F_OK) || scratch_count(folder) == 0);
    }
}

/* ---- broken twins --------------------------------------------------------------------------- */

CASE_WITH(test_broken_twins, tokens_setup, scratch_teardown)
{
    static const struct {
        const char *name;
        enum twin twin;
        int way, from;
        bool in_update;
    } twins[] = {
        {"a moment one step stale", WRITE_FORGOTTEN, 1, 2, true},
        {"a master one step stale", WRITE_FORGOTTEN, 1, 1, true},
        {"a gradient without its last leaf", WRITE_FORGOTTEN, 3, 10, false},
        {"activations of another micro-batch", WRITE_FORGOTTEN, 9, 15, false},
        {"parameters one step stale", WRITE_FORGOTTEN, 27, 3, true},
        {"a moment that has not come", READ_FORGOTTEN, 1, 224, true}, /* of the second update */
        {"a sum that has not come", READ_FORGOTTEN, 3, 5, false},
        {"activations that have not come", READ_FORGOTTEN, 9, 5, false},
        {"parameters that have not come", READ_FORGOTTEN, 27, 5, false},
        {"a master and a moment in one place", PLACE_SHARED, 1, 0, false},
        {"two gradients in one place", PLACE_SHARED, 3, 0, false},
        {"activations of two layers in one place", PLACE_SHARED, 9, 0, false},
        {"parameters of two layers in one place", PLACE_SHARED, 27, 0, false},
    };
    struct ls_proof right[2], wrong[2];
    struct ls_error error = {0};
    struct ls_config none = config_of(*state, "", 0);
    assert_ok(ls_proof_threads(&none, 2, right, &error), error);
    for (size_t i = 0; i < sizeof twins / sizeof *twins; i++) {
        struct ls_config config = config_of(*state, "", twins[i].way);
        memset(&broken, 0, sizeof broken);
        broken.twin = twins[i].twin;
        broken.from = twins[i].from;
        broken.in_update = twins[i].in_update;
        int status = ls_proof_threads(&config, 2, wrong, &error);
        broken.twin = NO_TWIN;
        bool caught = status ? status == LS_ENUMERIC : ls_proof_differs(right, wrong, 2) > 0;
        print_message("broken twin (%s): %s\n", twins[i].name, caught ? "caught" : "MISSED");
        assert_true(caught);
    }
}

SUITE_MAIN(NULL, NULL)
