/* A run whose folder is moved at any call that opens, makes or renames something in it: nothing is
 * made again under the old name, and the run says where the folder is. */
#include "../../src/train/trainer.h"

#include "../support/config_words.h"
#include "../support/extent.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/wrapped.h"
#include "tokens.h"

#include <lockstep/base/file.h>

#include <fcntl.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- who moves it ---------------------------------------------------------------------------- */

static char out[PATH_MAX], away[PATH_MAX];
static _Atomic int calls; /* in the folder, of all ranks */
static int move_at;       /* of these; counted from 1 */
static bool moved;
static char moved_before[PATH_MAX + 32];

/* Before a call that gets a path. */
static void before(const char *call, const char *path);

WRAPPED(open);
int __wrap_open(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    before("open", path);
    return __real_open(path, flags, mode);
}

WRAPPED(fopen);
FILE *__wrap_fopen(const char *path, const char *mode)
{
    before("fopen", path);
    return __real_fopen(path, mode);
}

WRAPPED(mkdir);
int __wrap_mkdir(const char *path, mode_t mode)
{
    before("mkdir", path);
    return __real_mkdir(path, mode);
}

WRAPPED(rename);
int __wrap_rename(const char *from, const char *to)
{
    before("rename", from);
    return __real_rename(from, to);
}

WRAPPED(renameat2);
int __wrap_renameat2(int from_folder, const char *from, int to_folder, const char *to,
                     unsigned flags)
{
    before("renameat2", from);
    return __real_renameat2(from_folder, from, to_folder, to, flags);
}

/* Nothing here outlasts the machine. */
WRAPPED(fsync);
int __wrap_fsync(int file)
{
    return 0;
}

static void before(const char *call, const char *path)
{
    size_t length = strlen(out);
    if (!length || strncmp(path, out, length) || (path[length] && path[length] != '/') ||
        ++calls != move_at)
        return;
    moved = __real_rename(out, away) == 0;
    snprintf(moved_before, sizeof moved_before, "%s of %s", call, path);
}

/* ---- the run --------------------------------------------------------------------------------- */

static int run_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    return ls_run(user, world, NULL, NULL, error);
}

static int run_to(const char *folder, int ranks, int steps, int move, struct ls_error *error)
{
    struct ls_config config = config_of_words(
        "model.layers=1 model.channels=32 model.heads=2 model.vocab=50 model.context=16 "
        "batch.global=2 parallel.threads=1 log.trace=true train.save_first=true train.resume=auto "
        "optim.decay_steps=2 numerics.arithmetic=fma parallel.dp=%d train.steps=%d "
        "data.train=u16:%s/tokens.bin train.out=%s",
        ranks, steps, folder, out);
    calls = 0;
    move_at = move;
    moved = false;
    *error = (struct ls_error){0};
    return ls_world_run(ranks, run_body, &config, error);
}

static bool exists(const char *folder, const char *name)
{
    return access(scratch_path(folder, name), F_OK) == 0;
}

/* The run ended with this. */
static void check_end(int status, const struct ls_error *error, int steps)
{
    char checkpoint[64];
    snprintf(checkpoint, sizeof checkpoint, "checkpoints/step-%08d/manifest.json", steps);
    if (access(out, F_OK) == 0) { /* moved before it was locked */
        if (status || !exists(out, checkpoint) || exists(away, checkpoint))
            fail_msg("moved before %s: the old name was made again (%s)", moved_before,
                     error->text);
    } else if (status == LS_OK ? !exists(away, checkpoint) : !strstr(error->text, away)) {
        fail_msg("moved before %s: ended with %d: %s", moved_before, status, error->text);
    }
    if (access(out, F_OK) && exists(away, "lock"))
        fail_msg("moved before %s: the lock stays", moved_before);
}

/* From nothing, or on from the first step; at one in `every` of the calls. */
static void check_calls(void **state, int ranks, bool resumed, int every)
{
    int number = 1 - every, moves = 0;
    do {
        struct ls_error error;
        snprintf(out, sizeof out, "%s", scratch_path(*state, ""));
        snprintf(out + strlen(out), 32, "run-%d", number);
        snprintf(away, sizeof away, "%.4000s-away", out);
        if (resumed)
            assert_int_equal(run_to(*state, ranks, 1, 0, &error), LS_OK);
        number += every;
        int status = run_to(*state, ranks, resumed ? 2 : 1, number, &error);
        if (moved)
            check_end(status, &error, resumed ? 2 : 1);
        else if (status)
            fail_msg("not moved: %s", error.text);
        moves += moved;
    } while (calls >= number);
    assert_true(moves > 20 / every);
}

CASE_WITH(test_a_run_that_begins, tokens_setup, scratch_teardown)
{
    check_calls(state, 1, false, check_every(2, 2));
}

CASE_WITH(test_a_run_that_goes_on, tokens_setup, scratch_teardown)
{
    check_calls(state, 1, true, check_every(4, 4));
}

/* Each rank writes its files of a checkpoint. */
CASE_WITH(test_a_run_of_two_ranks, tokens_setup, scratch_teardown)
{
    check_calls(state, 2, true, check_every(4, 6));
}

int main(void)
{
    setenv("LOCKSTEP_PEAK_FLOPS", "1e12", 1);
    return suite_run(NULL, NULL);
}
