/* Checkpoints are whole or absent: every failing call, every interruption, every damage. */
#include <lockstep/base/helper_thread.h>
#include <lockstep/ckpt.h>

#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../support/checkpoints.h"
#include "../support/countdown.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/wrapped.h"

enum { ROWS = 10, COLS = 100, VALUES = ROWS * COLS, RANKS = 3 };
#define MODEL     "wte.weight"
#define OPTIMIZER "exp_avg.wte.weight"
static const char *const names[] = {MODEL, OPTIMIZER};
/* In the files of several ranks. */
#define FQN "model.embed_tokens.weight"
static const char *const fqns[] = {FQN, OPTIMIZER};

/* Element i of the table or of its moment, at a step. */
static float value_of(int part, int64_t step, int64_t i)
{
    return (float)(part == LS_CKPT_MODEL ? step + i : step - i);
}

static struct ls_checkpoint_state state_of(int64_t step)
{
    return (struct ls_checkpoint_state){.step = step,
                                        .samples = 32 * step,
                                        .tokens = 4096 * step,
                                        .loss_scale = 65536,
                                        .good_steps = 77,
                                        .hysteresis = 2,
                                        .recipe_digest = "0123456789abcdef",
                                        .recipe = "model:\n  layers: 4\n",
                                        .fingerprint = "avx512, onednn 2.6.3",
                                        .hash = "00112233445566778899aabbccddeeff"};
}

/* The parts of a matrix that ranks hold: the first has columns, the others rows of the rest; the
 * last has nothing of the optimizer's. */
static const struct box {
    int64_t row, col, rows, cols;
} boxes[2][RANKS] = {{{0, 0, 10, 33}, {0, 33, 7, 67}, {7, 33, 3, 67}},
                     {{0, 0, 10, 1}, {0, 1, 10, 99}, {0, 0, 0, 0}}};
static const struct box whole = {0, 0, ROWS, COLS};

struct saving {
    const char *run;
    int64_t step;
    const struct ls_fault *fault; /* of that rank */
    int rank;
};

/* Collective; comm NULL: one rank. */
static int save_body(struct ls_comm *comm, void *user, struct ls_error *error)
{
    const struct saving *saving = user;
    int rank = comm ? ls_comm_rank(comm) : 0;
    const struct ls_checkpoint_state state = state_of(saving->step);
    struct ls_tensor_entry entries[2];
    struct ls_tensor_box at[2];
    struct checkpoint_tensors parts[2];
    float *values[2];
    for (int p = 0; p < 2; p++) {
        const struct box *box = comm ? &boxes[p][rank] : &whole;
        values[p] = malloc(VALUES * sizeof(float));
        for (int64_t r = 0; r < box->rows; r++)
            for (int64_t c = 0; c < box->cols; c++)
                values[p][r * box->cols + c] =
                    value_of(p, saving->step, (box->row + r) * COLS + box->col + c);
        entries[p] =
            (struct ls_tensor_entry){names[p], LS_F32, 2, {box->rows, box->cols}, values[p]};
        if (comm)
            entries[p].name = fqns[p];
        at[p] = (struct ls_tensor_box){{ROWS, COLS}, {box->row, box->col}, names[p]};
        parts[p] = (struct checkpoint_tensors){&entries[p], comm ? &at[p] : NULL, box->rows > 0};
    }
    int status = checkpoint_write(saving->run, &state, comm, parts,
                                  rank == saving->rank ? saving->fault : NULL, error);
    free(values[0]);
    free(values[1]);
    return status;
}

static int save(const char *run, int64_t step, const struct ls_fault *fault, struct ls_error *error)
{
    return save_body(NULL, &(struct saving){run, step, fault, 0}, error);
}

/* By several ranks, of which one has the fault. */
static int save_together(const char *run, int64_t step, int rank, const struct ls_fault *fault,
                         struct ls_error *error)
{
    return ls_world_run(RANKS, save_body, &(struct saving){run, step, fault, rank}, error);
}

static void save_good(const char *run, int64_t step)
{
    struct ls_error error = {0};
    assert_ok(save(run, step, NULL, &error), error);
}

static void save_good_together(const char *run, int64_t step)
{
    struct ls_error error = {0};
    assert_ok(save_together(run, step, 0, NULL, &error), error);
}

/* Reads all of it: LS_OK if each value is that of the step, and otherwise what the reader says. */
static int verify(void *user, struct ls_checkpoint *checkpoint, struct ls_error *error)
{
    static const int64_t shape[] = {ROWS, COLS};
    float values[VALUES];
    for (int p = 0; p < 2; p++) {
        const struct ls_stored_tensor *tensor;
        int status = ls_checkpoint_require(checkpoint, (enum ls_checkpoint_part)p, names[p], LS_F32,
                                           2, shape, &tensor, error);
        if (!status)
            status = ls_checkpoint_read(checkpoint, tensor, 0, VALUES, values, error);
        if (status)
            return status;
        for (int64_t i = 0; i < VALUES; i++)
            if (values[i] != value_of(p, checkpoint->state.step, i))
                fail_msg("%s: element %ld is %g", names[p], (long)i, (double)values[i]);
    }
    return LS_OK;
}

/* The newest checkpoint's step, -1 for none; its tensors must be that step's. */
static int64_t latest_step(const char *run, const struct ls_log *log)
{
    struct ls_error error = {0};
    struct ls_checkpoint *checkpoint;
    int status = ls_checkpoint_find_latest(&checkpoint, run, log, &error);
    assert_ok(ls_checkpoint_load(&checkpoint, NULL, status, verify, NULL, log, &error), error);
    int64_t step = checkpoint ? checkpoint->state.step : -1;
    ls_checkpoint_close(checkpoint);
    return step;
}

/* Opens and reads it: what is wrong. */
static int try(const char *directory, struct ls_error *error)
{
    struct ls_checkpoint *checkpoint;
    *error = (struct ls_error){0};
    int status = ls_checkpoint_open(&checkpoint, directory, error);
    status = status ? status : verify(NULL, checkpoint, error);
    ls_checkpoint_close(checkpoint);
    return status;
}

CASE_WITH(test_round_trip, scratch_setup, scratch_teardown)
{
    const char *run = scratch_path(*state, "a/new/run");
    struct ls_error error = {0};
    assert_int_equal(latest_step(run, NULL), -1);
    /* The folder of a run is not made again: it may have been moved. */
    assert_int_equal(save(run, 120, NULL, &error), LS_EIO);
    assert_int_equal(access(run, F_OK), -1);
    assert_int_equal(ls_directory_make(run, NULL, &error), LS_OK);
    save_good(run, 120);
    struct ls_checkpoint *checkpoint;
    assert_ok(
        ls_checkpoint_open(&checkpoint, scratch_path(run, "checkpoints/step-00000120"), &error),
        error);
    struct ls_checkpoint_state want = state_of(120), *got = &checkpoint->state;
    assert_int_equal(got->step, want.step);
    assert_int_equal(got->samples, want.samples);
    assert_int_equal(got->tokens, want.tokens);
    assert_true(got->loss_scale == want.loss_scale);
    assert_int_equal(got->good_steps, want.good_steps);
    assert_int_equal(got->hysteresis, want.hysteresis);
    assert_string_equal(got->recipe_digest, want.recipe_digest);
    assert_string_equal(got->recipe, want.recipe);
    assert_string_equal(got->fingerprint, want.fingerprint);
    assert_string_equal(got->hash, want.hash);
    ls_checkpoint_close(checkpoint);
    assert_int_equal(latest_step(run, NULL), 120);
}

CASE_WITH(test_same_step_is_replaced, scratch_setup, scratch_teardown)
{
    save_good(*state, 5);
    save_good(*state, 5);
    assert_int_equal(latest_step(*state, NULL), 5);
    assert_int_equal(scratch_count(scratch_path(*state, "checkpoints")), 1);
    assert_int_equal(scratch_count(scratch_path(*state, "checkpoints/step-00000005")), 3);
}

/* ---- failures while writing ---- */

/* Whichever system call of a rank fails, the one checkpoint that is there stays, and the new one is
 * whole or absent. rank -1: one rank alone. */
static void fail_each_call(const char *run, int64_t step, int rank, int errno_value,
                           int code_expected, int calls)
{
    int64_t before = latest_step(run, NULL);
    int n = 0;
    for (bool failed = true; failed; n++) {
        struct countdown countdown = {.left = n, .errno_value = errno_value};
        struct ls_fault fault = {countdown_before, &countdown};
        struct ls_error error = {0};
        int code = rank < 0 ? save(run, step, &fault, &error)
                            : save_together(run, step, rank, &fault, &error);
        failed = countdown.call[0] != '\0';
        assert_int_equal(code, failed ? code_expected : LS_OK);
        if (failed && (!strstr(error.text, run) || !strstr(error.text, strerror(errno_value))))
            fail_msg("call %d (%s): \"%s\"", n, countdown.call, error.text);
        int64_t latest = latest_step(run, NULL);
        /* Past the rename only the directory's fsync can fail. */
        if (latest != before && !(latest == step && (!failed || !strcmp(countdown.call, "fsync"))))
            fail_msg("call %d (%s) failed: the latest step is %lld", n, countdown.call,
                     (long long)latest);
        int entries = scratch_count(scratch_path(run, "checkpoints"));
        if (entries != 1 + (latest != before))
            fail_msg("call %d (%s) left %d entries", n, countdown.call, entries);
    }
    assert_in_range(n, calls, calls + 40); /* the loop really went through all of them */
}

CASE_WITH(test_every_failing_call, scratch_setup, scratch_teardown)
{
    save_good(*state, 1);
    fail_each_call(*state, 2, -1, ENOSPC, LS_ENOSPC, 18);
    assert_int_equal(ls_checkpoint_prune(*state, 1, -1, NULL), LS_OK);
    fail_each_call(*state, 2, -1, EIO, LS_EIO, 18); /* again, in place of one that is there */
}

/* A rank that fails tells all; the last one writes one file. */
CASE_WITH(test_every_failing_call_of_each_rank, scratch_setup, scratch_teardown)
{
    save_good_together(*state, 1);
    for (int rank = 0; rank < RANKS; rank++) {
        fail_each_call(*state, 2, rank, ENOSPC, LS_ENOSPC, rank == 0 ? 18 : rank == 1 ? 10 : 5);
        assert_int_equal(scratch_count(scratch_path(*state, "checkpoints/step-00000002")), 6);
        char command[PATH_MAX];
        snprintf(command, sizeof command, "rm -r %s",
                 scratch_path(*state, "checkpoints/step-00000002"));
        assert_int_equal(system(command), 0);
    }
}

static int kill_when_zero(void *user, const char *call)
{
    if ((*(int *)user)-- == 0)
        kill(getpid(), SIGKILL);
    return 0;
}

/* Killed before the n-th call of a rank, for all n: the checkpoint of step 1 stays, or that of step
 * 2 is whole; a next save finds nothing in its way. */
CASE_WITH(test_killed_before_every_call, scratch_setup, scratch_teardown)
{
    for (int rank = 0; rank < RANKS; rank++) {
        bool killed = true, renamed = false;
        for (int n = 0; killed; n++) {
            save_good_together(*state, 1);
            pid_t child = fork();
            if (child == 0) {
                int left = n;
                const struct ls_fault fault = {kill_when_zero, &left};
                _exit(save_together(*state, 2, rank, &fault, NULL));
            }
            int status;
            assert_int_equal(waitpid(child, &status, 0), child);
            killed = WIFSIGNALED(status);
            assert_int_equal(status, killed ? SIGKILL : 0);
            int64_t latest = latest_step(*state, NULL);
            assert_true(latest == 2 || (killed && latest == 1));
            renamed |= killed && latest == 2;
            assert_int_equal(ls_checkpoint_prune(*state, 1, -1, NULL), LS_OK);
            assert_int_equal(scratch_count(scratch_path(*state, "checkpoints")), 1);
            assert_int_equal(latest_step(*state, NULL), latest);
            char command[1024];
            snprintf(command, sizeof command, "rm -r %s/checkpoints", (const char *)*state);
            assert_int_equal(system(command), 0);
        }
        assert_int_equal(renamed, rank == 0); /* it alone is at work after the rename */
    }
}

/* The system itself cuts a write short and refuses the rest. */
CASE_WITH(test_file_size_limit, scratch_setup, scratch_teardown)
{
    const char *run = *state;
    save_good(run, 1);
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit before, limit;
    getrlimit(RLIMIT_FSIZE, &before);
    for (rlim_t bytes = 0; bytes < 4 * VALUES; bytes += 333) {
        struct ls_error error = {0};
        limit = (struct rlimit){bytes, before.rlim_max};
        setrlimit(RLIMIT_FSIZE, &limit);
        int code = save(run, 2, NULL, &error);
        setrlimit(RLIMIT_FSIZE, &before);
        assert_int_equal(code, LS_EIO);
        assert_non_null(strstr(error.text, strerror(EFBIG)));
        assert_int_equal(latest_step(run, NULL), 1);
        assert_int_equal(scratch_count(scratch_path(run, "checkpoints")), 1);
    }
    signal(SIGXFSZ, SIG_DFL);
}

CASE_WITH(test_parts_must_be_complete, scratch_setup, scratch_teardown)
{
    struct ls_checkpoint_state of = state_of(3);
    struct ls_checkpoint_writer *writer;
    struct ls_safetensors_writer *tensors;
    struct ls_error error = {0};
    float values[VALUES] = {0};
    const struct ls_tensor_entry model = {MODEL, LS_F32, 2, {ROWS, COLS}, values};
    const struct checkpoint_tensors parts[2] = {{&model, NULL, 1}, {NULL, NULL, 0}};
    assert_int_equal(
        ls_checkpoint_writer_open(&writer, *state, &of, -1, LS_CKPT_SHARED, NULL, NULL, &error),
        LS_OK);
    assert_int_equal(
        ls_checkpoint_writer_begin(writer, LS_CKPT_MODEL, &model, NULL, 1, &tensors, &error),
        LS_OK);
    int status = ls_checkpoint_writer_end(writer, &error);
    assert_int_equal(status, LS_EINVAL);
    assert_int_equal(ls_checkpoint_writer_commit(writer, status, &error), LS_EINVAL);
    of.loss_scale = 1.0 / 0.0;
    assert_int_equal(checkpoint_write(*state, &of, NULL, parts, NULL, &error), LS_EINVAL);
    assert_int_equal(scratch_count(scratch_path(*state, "checkpoints")), 0);
}

/* ---- reading ---- */

/* Any elements, of pieces that are cut on both dims. */
CASE_WITH(test_elements_of_pieces, scratch_setup, scratch_teardown)
{
    save_good_together(*state, 4);
    struct ls_checkpoint *checkpoint =
        checkpoint_open(scratch_path(*state, "checkpoints/step-00000004"));
    for (int p = 0; p < 2; p++) {
        const struct ls_stored_tensor *tensor;
        float values[VALUES + 1];
        free(checkpoint_tensor(checkpoint, (enum ls_checkpoint_part)p, names[p], &tensor));
        for (uint64_t draw = 0; draw < 2000; draw++) {
            uint64_t key = ls_hash64(&draw, sizeof draw, 7);
            int64_t first = (int64_t)(key % VALUES);
            int64_t count = (int64_t)((key >> 32) % (uint64_t)(VALUES - first + 1));
            values[count] = 0.5f;
            assert_int_equal(ls_checkpoint_read(checkpoint, tensor, first, count, values, NULL),
                             LS_OK);
            for (int64_t i = 0; i < count; i++)
                assert_true(values[i] == value_of(p, 4, first + i));
            assert_true(values[count] == 0.5f);
        }
    }
    const struct ls_stored_tensor *tensor;
    struct ls_error error = {0};
    const int64_t turned[] = {COLS, ROWS};
    assert_int_equal(
        ls_checkpoint_require(checkpoint, LS_CKPT_MODEL, MODEL, LS_F32, 2, turned, &tensor, &error),
        LS_ECKPT);
    assert_non_null(strstr(error.text, "is F32 [10, 100], expected F32 [100, 10]"));
    assert_int_equal(ls_checkpoint_require(checkpoint, LS_CKPT_MODEL, OPTIMIZER, LS_F32, 2, turned,
                                           &tensor, &error),
                     LS_ECKPT);
    assert_non_null(strstr(error.text, "is missing"));
    ls_checkpoint_close(checkpoint);
}

/* Files in other folders than the manifest, found by name and size. */
WRAPPED(posix_fadvise);
static int asked; /* how often the system was asked to read ahead */

int __wrap_posix_fadvise(int fd, off_t at, off_t bytes, int advice)
{
    asked += advice == POSIX_FADV_WILLNEED;
    return __real_posix_fadvise(fd, at, bytes, advice);
}

/* Elements [first, first + count) are in pieces of which so many are new to the system, each with
 * the header of its file. */
static void expect_asked(struct ls_checkpoint *checkpoint, const struct ls_stored_tensor *tensor,
                         int64_t first, int64_t count, int pieces)
{
    asked = 0;
    ls_checkpoint_expect(checkpoint, tensor, first, count, false);
    assert_int_equal(asked, 2 * pieces);
}

/* Each piece once, also if its elements alternate with those of another, and none that is read. */
CASE_WITH(test_pieces_that_are_expected, scratch_setup, scratch_teardown)
{
    save_good_together(*state, 4);
    const char *path = scratch_path(*state, "checkpoints/step-00000004");
    static const int64_t shape[] = {ROWS, COLS};
    const struct ls_stored_tensor *tensor;
    struct ls_error error = {0};
    float values[VALUES];
    for (int read = 0; read < 2; read++) {
        struct ls_checkpoint *checkpoint = checkpoint_open(path);
        assert_ok(ls_checkpoint_require(checkpoint, LS_CKPT_MODEL, MODEL, LS_F32, 2, shape, &tensor,
                                        &error),
                  error);
        if (read)
            assert_ok(ls_checkpoint_read(checkpoint, tensor, 40, 10, values, &error), error);
        expect_asked(checkpoint, tensor, 40, 10, !read);
        expect_asked(checkpoint, tensor, 0, VALUES, 2);
        expect_asked(checkpoint, tensor, 0, VALUES, 0);
        assert_ok(ls_checkpoint_read(checkpoint, tensor, 0, VALUES, values, &error), error);
        for (int64_t i = 0; i < VALUES; i++)
            assert_true(values[i] == value_of(LS_CKPT_MODEL, 4, i));
        ls_checkpoint_close(checkpoint);
    }
}

CASE_WITH(test_files_in_several_folders, scratch_setup, scratch_teardown)
{
    char command[4096], directory[600], other[600], third[600];
    struct ls_error error = {0};
    struct ls_checkpoint *checkpoint;
    save_good_together(*state, 4);
    snprintf(directory, sizeof directory, "%s/checkpoints/step-00000004", (const char *)*state);
    snprintf(other, sizeof other, "%s/other", (const char *)*state);
    snprintf(third, sizeof third, "%s/third", (const char *)*state);
    const char *const folders[] = {directory, other, third};
    snprintf(command, sizeof command,
             "mkdir %s %s && cd %s && mv shard-00002* %s && mv *optimizer* %s && "
             "echo stale > %s/shard-00001-optimizer-00001-of-00001.safetensors",
             other, third, directory, other, third, other);
    assert_int_equal(system(command), 0);
    assert_int_equal(try(directory, &error), LS_ECKPT);
    assert_non_null(strstr(error.text, "shard-0000"));
    assert_int_equal(ls_checkpoint_open_among(&checkpoint, directory, folders, 3, &error), LS_OK);
    assert_int_equal(verify(NULL, checkpoint, &error), LS_OK);
    ls_checkpoint_close(checkpoint);
    assert_int_equal(ls_checkpoint_open_among(&checkpoint, directory, folders, 2, &error),
                     LS_ECKPT);
}

CASE_WITH(test_version_1_is_read, scratch_setup, scratch_teardown)
{
    char run[600], directory[700];
    struct ls_error error = {0};
    save_good_together(*state, 6);
    snprintf(run, sizeof run, "%s/old", (const char *)*state);
    snprintf(directory, sizeof directory, "%s/checkpoints/step-00000006", run);
    old_checkpoint_copy(scratch_path(*state, "checkpoints/step-00000006"), run);
    assert_int_equal(latest_step(run, NULL), 6);
    expect_same_checkpoints(scratch_path(*state, "checkpoints/step-00000006"), directory, "old");
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors"};
    for (int i = 0; i < 2; i++) {
        size_t size;
        char *data = scratch_read(scratch_path(directory, files[i]), &size);
        for (size_t at = 0; at < size; at += size / 50) {
            data[at] ^= 1;
            scratch_write(scratch_path(directory, files[i]), data, size);
            if (try(directory, &error) != LS_ECKPT || !strstr(error.text, files[i]))
                fail_msg("%s: byte %zu: \"%s\"", files[i], at, error.text);
            data[at] ^= 1;
        }
        scratch_write(scratch_path(directory, files[i]), data, size);
        assert_int_equal(try(directory, &error), LS_OK);
        free(data);
    }
}

/* ---- crashes and damage ---- */

static void count_warnings(void *user, enum ls_log_level level, const char *line)
{
    if (level == LS_LOG_WARNING && strstr(line, "damaged checkpoint"))
        ++*(int *)user;
}

CASE_WITH(test_interrupted_writes_are_never_taken, scratch_setup, scratch_teardown)
{
    save_good(*state, 1);
    save_good(*state, 2);
    const char *finished = scratch_path(*state, "checkpoints/step-00000002");
    const char *interrupted = scratch_path(*state, "checkpoints/step-00000002.tmp");
    assert_int_equal(rename(finished, interrupted), 0); /* whole, but never given its name */
    assert_int_equal(mkdir(scratch_path(*state, "checkpoints/step-3"), 0777), 0);
    assert_int_equal(latest_step(*state, NULL), 1);
    save_good(*state, 2); /* the leftover is in nobody's way */
    assert_int_equal(latest_step(*state, NULL), 2);
}

/* Changes one byte, or with byte < 0 cuts the last one off. */
static void damage(const char *path, int64_t byte)
{
    size_t size;
    char *data = scratch_read(path, &size);
    if (byte >= 0)
        data[byte] ^= 1;
    scratch_write(path, data, byte < 0 ? size - 1 : size);
    free(data);
}

#define SHARD(rank, part) "shard-0000" #rank "-" #part "-00001-of-00001.safetensors"

static int64_t arrived; /* elements */

static void count_arrived(void *user, int64_t first, int64_t count, void *values)
{
    assert_ptr_equal((float *)user + first, values);
    arrived += count;
}

/* A piece of which all is wanted is read once, and worth nothing if it is damaged; of one of which
 * a part is wanted nothing is given away before it is verified. */
CASE_WITH(test_a_whole_piece_is_verified_on_the_way, scratch_setup, scratch_teardown)
{
    static const int64_t shape[] = {ROWS, COLS};
    const struct ls_stored_tensor *tensor;
    struct ls_error error = {0};
    struct stat about;
    float values[VALUES];
    save_good(*state, 7);
    const char *file = scratch_path(*state, "checkpoints/step-00000007/" SHARD(1, model));
    assert_int_equal(stat(file, &about), 0);
    for (int damaged = 0; damaged < 2; damaged++)
        for (int part = 0; part < 2; part++) {
            const int64_t first = part, count = VALUES - part;
            if (damaged && !part)
                damage(file, about.st_size - 1);
            struct ls_checkpoint *checkpoint =
                checkpoint_open(scratch_path(*state, "checkpoints/step-00000007"));
            assert_ok(ls_checkpoint_require(checkpoint, LS_CKPT_MODEL, MODEL, LS_F32, 2, shape,
                                            &tensor, &error),
                      error);
            arrived = 0;
            int status = ls_checkpoint_take(checkpoint, tensor, first, count, values + first,
                                            count_arrived, values, &error);
            assert_int_equal(status, damaged ? LS_ECKPT : LS_OK);
            assert_int_equal(checkpoint->damaged, damaged);
            assert_int_equal(arrived, damaged && part ? 0 : count);
            for (int64_t i = first; i < VALUES && !damaged; i++)
                assert_true(values[i] == value_of(LS_CKPT_MODEL, 7, i));
            ls_checkpoint_close(checkpoint);
        }
}

CASE_WITH(test_damage_is_found_and_passed_over, scratch_setup, scratch_teardown)
{
    static const struct {
        const char *file;
        int64_t byte;
        const char *expected;
    } cases[] = {
        {SHARD(1, model), 500, "the digest is"},
        {SHARD(2, model), 9, "bytes is"}, /* in its header */
        {SHARD(1, model), -1, "bytes long, manifest.json says"},
        {SHARD(2, optimizer), 4000, "tensor " OPTIMIZER ": the digest is"},
        {SHARD(1, optimizer), -1, "bytes long, manifest.json says"},
        {"manifest.json", 0, "not JSON"},
        {"manifest.json", 4, "expected a string under \"format\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        save_good(*state, 10);
        save_good_together(*state, 20);
        const char *newest = scratch_path(*state, "checkpoints/step-00000020");
        damage(scratch_path(newest, cases[i].file), cases[i].byte);
        struct ls_error error = {0};
        int code = try(newest, &error);
        if (code != LS_ECKPT || !strstr(error.text, cases[i].expected) ||
            !strstr(error.text, cases[i].file))
            fail_msg("case %zu: code %d, \"%s\", expected \"%s\"", i, code, error.text,
                     cases[i].expected);
        int warnings = 0;
        struct ls_log log = {LS_LOG_INFO, count_warnings, &warnings};
        assert_int_equal(latest_step(*state, &log), 10);
        assert_int_equal(warnings, 1);
    }
}

/* A step, a scale or a recipe that changed by one bit must not be resumed from. */
CASE_WITH(test_every_flipped_byte_of_the_manifest, scratch_setup, scratch_teardown)
{
    save_good(*state, 10);
    const char *directory = scratch_path(*state, "checkpoints/step-00000010");
    const char *path = scratch_path(directory, "manifest.json");
    size_t size;
    char *text = scratch_read(path, &size);
    for (size_t i = 0; i + 1 < size; i++) { /* the last newline says nothing */
        struct ls_error error = {0};
        struct ls_checkpoint *checkpoint;
        text[i] ^= 1;
        scratch_write(path, text, size);
        int code = ls_checkpoint_open(&checkpoint, directory, &error);
        if (code != LS_ECKPT || !strstr(error.text, "step-00000010"))
            fail_msg("byte %zu as '%c': code %d, \"%s\"", i, text[i], code, error.text);
        text[i] ^= 1;
    }
    free(text);
}

/* ---- hostile manifests ---- */

static json_t *first_piece(json_t *manifest)
{
    json_t *tensor = json_object_get(json_object_get(manifest, "model"), MODEL);
    return json_array_get(json_object_get(tensor, "pieces"), 0);
}

struct hostile {
    const char *key, *value; /* of the first piece, as JSON */
    const char *expected;
};

static void piece_set(json_t *manifest, void *user)
{
    const struct hostile *hostile = user;
    json_object_set_new(first_piece(manifest), hostile->key,
                        json_loads(hostile->value, JSON_DECODE_ANY, NULL));
}

static void piece_remove(json_t *manifest, void *user)
{
    json_t *tensor = json_object_get(json_object_get(manifest, "model"), MODEL);
    json_array_remove(json_object_get(tensor, "pieces"), 1);
}

/* As many elements, in pieces that their files do not have. */
static void widths_swap(json_t *manifest, void *user)
{
    json_t *tensor = json_object_get(json_object_get(manifest, "model"), MODEL);
    json_t *one = json_array_get(json_object_get(tensor, "pieces"), 0);
    json_t *two = json_array_get(json_object_get(tensor, "pieces"), 1);
    json_t *shape = json_incref(json_object_get(one, "shape"));
    json_object_set(one, "shape", json_object_get(two, "shape"));
    json_object_set_new(two, "shape", shape);
}

static void file_rename(json_t *manifest, void *user)
{
    json_t *files = json_object_get(manifest, "files");
    json_object_set(files, user, json_object_get(files, SHARD(1, model)));
}

CASE_WITH(test_hostile_manifests, scratch_setup, scratch_teardown)
{
    static struct hostile cases[] = {
        {"file", "\"nowhere\"", "piece 0 is no part of it"},
        {"file", "7", "piece 0 is no part of it"},
        {"offsets", "[0]", "piece 0 is no part of it"},
        {"offsets", "[0, 68]", "piece 0 is no part of it"},
        {"offsets", "[0, 9223372036854775807]", "piece 0 is no part of it"},
        {"offsets", "[0, -1]", "piece 0 is no part of it"},
        {"offsets", "[0, 1]", "no piece has its element 0"},
        {"shape", "[10, 9223372036854775807]", "piece 0 is no part of it"},
        {"shape", "[10, 34]", "its pieces have more elements than the tensor"},
        {"shape", "[9, 33]", "its pieces have fewer elements than the tensor"},
        {"xxh3_128", "\"00\"", "expected 00"},
        {"xxh3_128", "null", "piece 0 is no part of it"},
    };
    char directory[PATH_MAX];
    struct ls_error error;
    snprintf(directory, sizeof directory, "%s/checkpoints/step-00000010", (const char *)*state);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        save_good_together(*state, 10);
        manifest_edit(directory, piece_set, &cases[i]);
        if (try(directory, &error) != LS_ECKPT || !strstr(error.text, cases[i].expected))
            fail_msg("%s = %s: \"%s\"", cases[i].key, cases[i].value, error.text);
    }
    save_good_together(*state, 10);
    manifest_edit(directory, piece_remove, NULL);
    assert_int_equal(try(directory, &error), LS_ECKPT);
    assert_non_null(strstr(error.text, "its pieces have fewer elements than the tensor"));
    save_good_together(*state, 10);
    manifest_edit(directory, widths_swap, NULL);
    assert_int_equal(try(directory, &error), LS_ECKPT);
    assert_non_null(strstr(error.text, "is F32 [10, 33], expected F32 [7, 67]"));
    static const char *const outside[] = {"../x.safetensors", "/etc/passwd", "..", ".hidden"};
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) {
        save_good_together(*state, 10);
        manifest_edit(directory, file_rename, (void *)outside[i]);
        assert_int_equal(try(directory, &error), LS_ECKPT);
        assert_non_null(strstr(error.text, "expected a file's name"));
    }
}

CASE_WITH(test_all_damaged_is_an_error, scratch_setup, scratch_teardown)
{
    save_good(*state, 10);
    unlink(scratch_path(*state, "checkpoints/step-00000010/" SHARD(1, model)));
    struct ls_error error = {0};
    struct ls_checkpoint *checkpoint;
    assert_int_equal(ls_checkpoint_find_latest(&checkpoint, *state, NULL, &error), LS_ECKPT);
    assert_non_null(strstr(error.text, "none of 1 checkpoints"));
    assert_non_null(strstr(error.text, SHARD(1, model)));
}

/* Reads while the process may open no file more. */
static int verify_without_files(void *user, struct ls_checkpoint *checkpoint,
                                struct ls_error *error)
{
    struct rlimit before, none;
    getrlimit(RLIMIT_NOFILE, &before);
    none = (struct rlimit){0, before.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
    int status = verify(user, checkpoint, error);
    setrlimit(RLIMIT_NOFILE, &before);
    return status;
}

/* What the system refuses says nothing about the files: no older checkpoint takes its place. */
CASE_WITH(test_a_refusal_is_no_damage, scratch_setup, scratch_teardown)
{
    struct ls_error error = {0};
    struct ls_checkpoint *checkpoint;
    save_good(*state, 10);
    save_good(*state, 20);
    assert_int_equal(ls_checkpoint_find_latest(&checkpoint, *state, NULL, &error), LS_OK);
    int status =
        ls_checkpoint_load(&checkpoint, NULL, LS_OK, verify_without_files, NULL, NULL, &error);
    if (status != LS_EIO || !strstr(error.text, strerror(EMFILE)))
        fail_msg("code %d, \"%s\"", status, error.text);
    assert_int_equal(checkpoint->state.step, 20);
    ls_checkpoint_close(checkpoint);
    /* A folder that this user may not look into; root may, and becomes another. */
    const char *newest = scratch_path(*state, "checkpoints/step-00000020");
    uid_t user = geteuid();
    assert_int_equal(chmod(*state, 0755) || chmod(newest, 0), 0);
    assert_int_equal(user == 0 ? seteuid(65534) : 0, 0);
    status = ls_checkpoint_find_latest(&checkpoint, *state, NULL, &error);
    assert_int_equal(seteuid(user), 0);
    if (status != LS_EIO || checkpoint || !strstr(error.text, strerror(EACCES)) ||
        !strstr(error.text, "step-00000020"))
        fail_msg("code %d, \"%s\"", status, error.text);
    assert_int_equal(chmod(newest, 0755), 0);
    assert_int_equal(latest_step(*state, NULL), 20);
}

CASE_WITH(test_newer_version_is_refused, scratch_setup, scratch_teardown)
{
    save_good(*state, 10);
    const char *path = scratch_path(*state, "checkpoints/step-00000010/manifest.json");
    char *text = scratch_read(path, NULL);
    char *version = strstr(text, "\"version\": 3");
    assert_non_null(version);
    version[strlen("\"version\": ")] = '4';
    scratch_write(path, text, strlen(text));
    free(text);
    struct ls_error error = {0};
    struct ls_checkpoint *checkpoint;
    assert_int_equal(
        ls_checkpoint_open(&checkpoint, scratch_path(*state, "checkpoints/step-00000010"), &error),
        LS_ECKPT);
    assert_non_null(strstr(error.text, "version 4, this program reads up to 3"));
}

static void version_set(json_t *manifest, void *user)
{
    json_object_set_new(manifest, "version", json_integer(*(int *)user));
}

/* Version 2 is 3 without names in the files. */
CASE_WITH(test_version_2_is_read, scratch_setup, scratch_teardown)
{
    struct ls_error error;
    int version = 2;
    const char *directory = scratch_path(*state, "checkpoints/step-00000010");
    save_good(*state, 10);
    manifest_edit(directory, version_set, &version);
    assert_ok(try(directory, &error), error);
    version = 1; /* which has no manifest */
    manifest_edit(directory, version_set, &version);
    assert_int_equal(try(directory, &error), LS_ECKPT);
    assert_non_null(strstr(error.text, "version 1, this program reads up to 3"));
}

static void fqn_set(json_t *manifest, void *user)
{
    json_t *tensor = json_object_get(json_object_get(manifest, "model"), MODEL);
    assert_string_equal(json_string_value(json_object_get(tensor, "fqn")), FQN);
    assert_null(
        json_object_get(json_object_get(json_object_get(manifest, "optimizer"), OPTIMIZER), "fqn"));
    json_object_set_new(tensor, "fqn", json_loads(user, JSON_DECODE_ANY, NULL));
}

CASE_WITH(test_names_in_the_files, scratch_setup, scratch_teardown)
{
    static char *const values[] = {"7", "null", "\"\"", "\"" MODEL "\""};
    static const char *const expected[] = {"if there is an fqn", "if there is an fqn", "is missing",
                                           MODEL " is missing"};
    char directory[PATH_MAX];
    struct ls_error error;
    snprintf(directory, sizeof directory, "%s/checkpoints/step-00000010", (const char *)*state);
    for (int i = 0; i < 4; i++) {
        save_good_together(*state, 10);
        assert_int_equal(try(directory, &error), LS_OK);
        manifest_edit(directory, fqn_set, values[i]);
        if (try(directory, &error) != LS_ECKPT || !strstr(error.text, expected[i]))
            fail_msg("%s: \"%s\"", values[i], error.text);
    }
}

CASE_WITH(test_prune_keeps_the_newest_whole_ones, scratch_setup, scratch_teardown)
{
    const char *parent = scratch_path(*state, "checkpoints");
    struct ls_error error = {0};
    assert_int_equal(ls_checkpoint_prune(*state, 2, -1, &error), LS_OK); /* none yet */
    for (int64_t step = 10; step <= 50; step += 10)
        save_good(*state, step);
    assert_int_equal(ls_checkpoint_prune(*state, 0, -1, &error), LS_OK);
    assert_int_equal(ls_checkpoint_prune(*state, ((int64_t)1 << 32) + 1, -1, &error), LS_OK);
    assert_int_equal(scratch_count(parent), 5);
    damage(scratch_path(*state, "checkpoints/step-00000050/" SHARD(1, model)), -1);
    assert_int_equal(mkdir(scratch_path(*state, "checkpoints/step-00000060.tmp"), 0777), 0);
    assert_int_equal(ls_checkpoint_prune(*state, 2, -1, &error), LS_OK);
    assert_int_equal(scratch_count(parent), 3); /* 30 and 40, and 50 for a person to look at */
    assert_int_equal(access(scratch_path(*state, "checkpoints/step-00000030"), F_OK), 0);
    assert_int_equal(latest_step(*state, NULL), 40);
    save_good(*state, 20); /* a run that went on from an older one */
    assert_int_equal(ls_checkpoint_prune(*state, 1, 20, &error), LS_OK);
    assert_int_equal(access(scratch_path(*state, "checkpoints/step-00000020"), F_OK), 0);
    assert_int_equal(access(scratch_path(*state, "checkpoints/step-00000030"), F_OK), -1);
    assert_int_equal(latest_step(*state, NULL), 40);
    save_good(*state, 25); /* 40 and 50 may be damaged in what is not looked at here */
    assert_int_equal(ls_checkpoint_prune(*state, 2, 25, &error), LS_OK);
    assert_int_equal(access(scratch_path(*state, "checkpoints/step-00000020"), F_OK), 0);
    assert_int_equal(scratch_count(scratch_path(*state, "checkpoints")), 4);
}

WRAPPED(ls_helper_start);
WRAPPED(close);
static bool no_threads; /* there are no more */
static sem_t left;      /* a file without a name is closed by another thread */
static pthread_t pruner;
static int closed; /* by this one */

int __wrap_ls_helper_start(pthread_t *thread, void *(*body)(void *), void *argument)
{
    return no_threads ? EAGAIN : __real_ls_helper_start(thread, body, argument);
}

int __wrap_close(int file)
{
    struct stat about;
    if (!fstat(file, &about) && S_ISREG(about.st_mode) && about.st_nlink == 0) {
        if (pthread_equal(pthread_self(), pruner))
            closed++;
        else
            sem_post(&left);
    }
    return __real_close(file);
}

/* A disk takes its time to get the blocks of large files back. The twin, which gets no thread,
 * waits for it. */
CASE_WITH(test_nobody_waits_for_blocks_of_removed_files, scratch_setup, scratch_teardown)
{
    enum { FILES = 3 };
    struct ls_error error = {0};
    pruner = pthread_self();
    sem_init(&left, 0, 0);
    for (int twin = 0; twin < 2; twin++) {
        save_good(*state, 1);
        save_good(*state, 2);
        closed = 0;
        no_threads = twin;
        assert_ok(ls_checkpoint_prune(*state, 1, -1, &error), error);
        no_threads = false;
        for (int i = 0; i < FILES && !twin; i++)
            sem_wait(&left);
        assert_int_equal(closed, twin ? FILES : 0);
        assert_int_equal(scratch_count(scratch_path(*state, "checkpoints")), 1);
    }
    pruner = 0;
}

SUITE_MAIN(NULL, NULL)
