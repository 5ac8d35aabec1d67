/* lockstep bench checkpoint: saving, resuming and resharding of a state, beside plain files of as
 * many bytes on the same disk; a table, and one JSON object on the last line. */
#include "bench.h"
#include "rank_start.h"

#include <lockstep/ckpt.h>
#include <lockstep/state.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

enum { BLOCK = 4 << 20 };
/* Beside each the plain one. */
enum way { SAVE, WRITE, RESUME, READ, RESHARD, COPY, WAYS };

struct bench {
    struct ls_config config; /* train.steps: rounds */
    char work[600], checkpoint[700], resharded[700];
    int64_t bytes; /* of the files of tensors */
    struct bench_turns turns;
};

/* ---- plain files ----------------------------------------------------------------------------- */

/* What each rank writes and reads, in its own file. */
struct plain {
    const struct bench *b;
    bool in, out;
};

static void plain_path(const struct bench *b, int rank, const char *what, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%s/plain-%s-%d", b->work, what, rank);
}

/* Of `bytes`: reads and digests them, or writes and syncs them, or both, without the digest. */
static int plain_pass(int in, int out, int64_t bytes, char *block)
{
    XXH3_state_t *digest = XXH3_createState();
    bool good = digest;
    if (good)
        XXH3_128bits_reset(digest);
    for (int64_t at = 0; at < bytes && good; at += BLOCK) {
        int64_t n = ls_min(BLOCK, bytes - at);
        good = in < 0 || read(in, block, (size_t)n) == n;
        if (out < 0)
            XXH3_128bits_update(digest, block, (size_t)n);
        else
            good = good && write(out, block, (size_t)n) == n;
    }
    good = good && (out < 0 || fsync(out) == 0);
    XXH3_freeState(digest);
    return good ? 0 : errno;
}

static int plain_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    const struct plain *plain = user;
    char from[PATH_MAX], to[PATH_MAX];
    char *block = malloc(BLOCK);
    int rank = ls_comm_rank(world), in = -1, out = -1;
    if (!block)
        return ls_no_memory(error, "for a plain file");
    memset(block, rank + 1, BLOCK);
    plain_path(plain->b, rank, "a", from);
    plain_path(plain->b, rank, plain->in ? "b" : "a", to);
    if (plain->in)
        in = open(from, O_RDONLY | O_CLOEXEC);
    if (plain->out)
        out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int failure = (plain->in && in < 0) || (plain->out && out < 0)
                      ? errno
                      : plain_pass(in, out, plain->b->bytes / ls_comm_size(world), block);
    if (in >= 0)
        close(in);
    if (out >= 0)
        close(out);
    free(block);
    return failure ? ls_error_errno(error, failure, "%s: a plain file", plain->b->work) : LS_OK;
}

/* The files of a folder leave the system's cache: they are on the disk. */
static void evict(const char *folder)
{
    DIR *files = opendir(folder);
    for (struct dirent *entry; files && (entry = readdir(files));) {
        int fd = openat(dirfd(files), entry->d_name, O_RDONLY | O_CLOEXEC);
        if (fd >= 0) {
            posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
            close(fd);
        }
    }
    if (files)
        closedir(files);
}

/* ---- ranks ----------------------------------------------------------------------------------- */

/* Collective. Each way starts on all ranks at once and ends with the last. */
static int way_run(struct bench *b, enum way way, struct ls_trainer *trainer, struct ls_comm *world,
                   double *seconds, struct ls_error *error)
{
    struct plain plain = {b, way == READ, way == WRITE};
    bool resumed;
    if (ls_comm_rank(world) == 0) {
        evict(b->checkpoint);
        evict(b->work);
    }
    int status = ls_barrier(world, error);
    double begin = ls_now_s();
    if (!status)
        status = way == SAVE     ? ls_trainer_save(trainer, error)
                 : way == RESUME ? ls_trainer_resume(trainer, &resumed, error)
                                 : plain_body(world, &plain, error);
    status = ls_comm_agree(world, status, error);
    *seconds = ls_now_s() - begin;
    return status;
}

static int rounds_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct bench *b = user;
    struct ls_trainer *trainer;
    double seconds;
    int status = ls_trainer_new(&b->config, world, NULL, &trainer, error);
    if (status)
        return status;
    /* Once before: pages of memory are touched, and folders are there. */
    status = ls_trainer_save(trainer, error);
    if (!status)
        status = way_run(b, WRITE, trainer, world, &seconds, error);
    for (int round = 0; round < b->turns.rounds && !status; round++)
        for (int i = 0; i < RESHARD && !status; i++) {
            int way = i ^ (round % 2); /* the plain one first in every second round */
            status = way_run(b, (enum way)way, trainer, world, &seconds, error);
            if (ls_comm_rank(world) == 0)
                b->turns.s[way][round] = seconds;
        }
    ls_trainer_free(trainer);
    return status;
}

/* ---- resharding ------------------------------------------------------------------------------ */

/* From data-parallel ranks to tensor-parallel ones: rows become columns. */
static int reshard_run(struct bench *b, double *seconds, struct ls_error *error)
{
    struct ls_config to = b->config;
    struct ls_layout layout;
    struct ls_checkpoint *from = NULL;
    int status = ls_directory_make(b->resharded, NULL, error);
    ls_config_layout_reset(&to);
    if (!status)
        status = ls_config_set(&to, "parallel.tp=2", error);
    if (!status)
        status = ls_config_resolve(&to, 0, error);
    if (!status)
        status = ls_config_layout(&to, 0, &layout, error);
    evict(b->checkpoint);
    double begin = ls_now_s();
    if (!status)
        status = ls_checkpoint_open(&from, b->checkpoint, error);
    if (!status)
        status = ls_state_reshard(from, &to, &layout, b->resharded, NULL, error);
    *seconds = ls_now_s() - begin;
    ls_checkpoint_close(from);
    ls_directory_remove(b->resharded);
    return status;
}

static int copy_run(struct bench *b, double *seconds, struct ls_error *error)
{
    struct plain plain = {b, true, true};
    char path[PATH_MAX];
    int ranks = (int)ls_config_ranks(&b->config);
    evict(b->work);
    double begin = ls_now_s();
    int status = ls_world_run(ranks, plain_body, &plain, error);
    *seconds = ls_now_s() - begin;
    for (int rank = 0; rank < ranks; rank++) {
        plain_path(b, rank, "b", path);
        unlink(path);
    }
    return status;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void print(const struct bench *b)
{
    static const char *const names[] = {"save", "write", "resume", "read", "reshard", "copy"};
    const struct bench_turns *turns = &b->turns;
    printf("%-8s %8s %8s %12s %8s\n", "", "s", "GB/s", "plain GB/s", "ratio");
    for (int way = 0; way < WAYS; way += 2)
        printf("%-8s %8.2f %8.2f %12.2f %8.2f\n", names[way], bench_seconds(turns, way),
               (double)b->bytes / bench_seconds(turns, way) / 1e9,
               (double)b->bytes / bench_seconds(turns, way + 1) / 1e9,
               bench_ratio(turns, way, way + 1));
    printf("{\"bytes\": %lld", (long long)b->bytes);
    for (int way = 0; way < WAYS; way++) {
        printf(", \"%s_s\": [", names[way]);
        for (int round = 0; round < turns->rounds; round++)
            printf("%s%.4f", round ? ", " : "", turns->s[way][round]);
        printf("]");
    }
    printf("}\n");
}

static int places_set(struct bench *b, struct ls_error *error)
{
    char *out = b->config.train.out;
    snprintf(b->work, sizeof b->work, "%.400s/bench-checkpoint-XXXXXX", out);
    if (!mkdtemp(b->work)) {
        b->work[0] = '\0';
        return ls_error_errno(error, errno, "%s: cannot make a folder in it", out);
    }
    snprintf(out, sizeof b->config.train.out, "%.500s/run", b->work);
    snprintf(b->checkpoint, sizeof b->checkpoint, "%s/run/checkpoints/step-00000000", b->work);
    snprintf(b->resharded, sizeof b->resharded, "%s/resharded", b->work);
    return ls_config_set(&b->config, "train.resume=auto", error);
}

int cmd_bench_checkpoint(const struct cmd_args *args, struct ls_error *error)
{
    static const char *const defaults[] = {
        "model.preset=gpt2-124m", "model.vocab=50257", "batch.global=2",
        "train.steps=3",          "parallel.dp=2",     "parallel.zero=1",
        "log.progress=off",       "train.out=.",       NULL};
    static struct bench b;
    char path[BENCH_PATH_BYTES] = "";
    struct ls_state_files files;
    struct ls_layout layout;
    b = (struct bench){.turns = {.ways = WAYS}};
    int status = ranks_config(&b.config, defaults, args->word, args->words, error);
    if (!status)
        status = places_set(&b, error);
    if (!status)
        status = bench_tokens(&b.config, path, error);
    if (!status)
        status = ls_config_layout(&b.config, 0, &layout, error);
    if (!status)
        status = ls_state_file_bytes(&b.config, &layout, &files, error);
    if (!status) {
        b.bytes = files.model + files.optimizer;
        b.turns.rounds = (int)ls_min(b.config.train.steps, BENCH_ROUNDS_MAX);
        status = ranks_run(&b.config, rounds_body, &b, error);
    }
    for (int round = 0; round < b.turns.rounds && !status; round++) {
        status = reshard_run(&b, &b.turns.s[RESHARD][round], error);
        status = status ? status : copy_run(&b, &b.turns.s[COPY][round], error);
    }
    ranks_end(status, error);
    if (!status)
        print(&b);
    bench_tokens_remove(path);
    if (b.work[0])
        ls_directory_remove(b.work);
    return status;
}
