/* lockstep bench data: how fast samples are loaded, and how soon a run begins at any of them. */
#include "bench.h"

#include <lockstep/base/words.h>
#include <lockstep/config/inputs.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { ROUNDS = 5, DEPTH = 2 };
/* In this order: a start has its first batch, whose blocks a first pass would then find in the
 * cache. */
enum way { WAY_LOADER, WAY_START, WAY_READ, WAYS };

struct bench {
    struct ls_config config;
    const char *blend, *train, *cache;
    int64_t from, batches, rounds;
    struct ls_training_data data;
    int32_t *held; /* [batch, sequence + 1] what is read plainly */
    int fd;        /* of the first store's tokens; -1: they are in no file here */
    int64_t token_bytes, file_tokens;
};

static int loader_new(const struct bench *b, const struct ls_training_data *data,
                      struct ls_loader **loader, struct ls_error *error)
{
    const struct ls_loader_config config = {.blend = data->blend,
                                            .stores =
                                                (const struct ls_token_store *const *)data->stores,
                                            .sequence_tokens = b->config.data.sequence,
                                            .vocabulary = INT32_MAX,
                                            .sequences_max = b->config.batch.global,
                                            .depth = DEPTH};
    return ls_loader_new(&config, loader, error);
}

/* Opens all that a run opens, and has its first batch. */
static int start(const struct bench *b, struct ls_error *error)
{
    struct ls_training_data data;
    struct ls_loader *loader = NULL;
    const int32_t *inputs, *targets;
    int status = ls_training_data_open(&b->config, NULL, &data, error);
    if (!status)
        status = loader_new(b, &data, &loader, error);
    if (!status)
        status = ls_loader_post(loader, b->from, b->config.batch.global);
    if (!status)
        status = ls_loader_take(loader, &inputs, &targets, NULL, error);
    ls_loader_free(loader);
    ls_training_data_close(&data);
    return status;
}

static int load(const struct bench *b, struct ls_error *error)
{
    struct ls_loader *loader;
    const int32_t *inputs, *targets;
    int64_t batch = b->config.batch.global;
    int status = loader_new(b, &b->data, &loader, error);
    for (int64_t i = -1; i < b->batches && !status; i++) {
        if (i + 1 < b->batches)
            status = ls_loader_post(loader, b->from + (i + 1) * batch, batch);
        if (!status && i >= 0)
            status = ls_loader_take(loader, &inputs, &targets, NULL, error);
    }
    ls_loader_free(loader);
    return status;
}

/* As many bytes at the same places, of one file, unread: the machine's own limit. */
static int read_plainly(const struct bench *b, struct ls_error *error)
{
    int64_t tokens = b->config.data.sequence, row = (tokens + 1) * b->token_bytes;
    int64_t samples = ls_max((b->file_tokens - 1) / tokens, 1);
    for (int64_t n = 0; n < b->batches * b->config.batch.global && b->fd >= 0; n++) {
        int64_t sample = ls_blend_at(b->data.blend, b->from + n).sample % samples;
        if (pread(b->fd, b->held, (size_t)row, sample * tokens * b->token_bytes) != row)
            return ls_error_errno(error, errno, "the store cannot be read");
    }
    return LS_OK;
}

static int way_run(void *user, int way, double *seconds, struct ls_error *error)
{
    const struct bench *b = user;
    (void)seconds;
    return way == WAY_START  ? start(b, error)
           : way == WAY_READ ? read_plainly(b, error)
                             : load(b, error);
}

static int bench_open(struct bench *b, struct ls_error *error)
{
    int status = ls_training_data_open(&b->config, NULL, &b->data, error);
    if (status)
        return status;
    const struct ls_token_file file = ls_token_store_file(b->data.stores[0], 0);
    b->token_bytes = (int64_t)ls_dtype_bytes(file.dtype);
    b->file_tokens = file.tokens;
    b->fd = open(file.path, O_RDONLY | O_CLOEXEC);
    b->held = malloc((size_t)(b->config.data.sequence + 1) * 8);
    return b->held ? LS_OK : ls_no_memory(error, "for a sequence");
}

/* That servers sent to the loader. */
static double fetched_bytes(const struct bench *b)
{
    double bytes = 0;
    for (int i = 0; i < b->data.count; i++) {
        struct ls_store_traffic traffic;
        if (ls_token_store_traffic(b->data.stores[i], &traffic))
            bytes += (double)traffic.fetched_bytes;
    }
    return bytes;
}

static void print(const struct bench *b, const struct bench_turns *turns)
{
    double samples = (double)(b->batches * b->config.batch.global);
    double rate = samples / bench_seconds(turns, WAY_LOADER);
    double start_s = bench_seconds(turns, WAY_START);
    int64_t tokens = b->config.data.sequence;
    printf("%s, samples of %s, from sample %lld on, median of %lld\n",
           ls_counted(b->data.count, "source").text, ls_counted(tokens, "token").text,
           (long long)b->from, (long long)b->rounds);
    printf("begin      %8.2f ms to the first batch of %lld\n", 1e3 * start_s,
           (long long)b->config.batch.global);
    printf("loader     %8.0f samples/s, %.1f M tokens/s\n", rate, rate * (double)tokens / 1e6);
    double ratio = b->fd >= 0 ? bench_ratio(turns, WAY_LOADER, WAY_READ) : 0;
    if (b->fd >= 0)
        printf("plain read %8.0f samples/s; the loader takes %.2f times as long\n",
               samples / bench_seconds(turns, WAY_READ), ratio);
    printf("{\"samples_per_s\": %.1f, \"start_s\": %.6f, \"to_plain_read\": %.4f, "
           "\"fetched_bytes\": %.0f}\n",
           rate, start_s, ratio, fetched_bytes(b));
}

static int run(struct bench *b, struct ls_error *error)
{
    struct bench_turns turns = {.ways = WAYS,
                                .rounds = (int)b->rounds,
                                .cold = b->rounds == 1, /* of what is elsewhere, the first pass */
                                .meter = "rounds",
                                .run = way_run,
                                .user = b};
    int status = bench_open(b, error);
    if (!status)
        status = bench_turns(&turns, error);
    if (!status)
        print(b, &turns);
    return status;
}

int cmd_bench_data(const struct cmd_args *args, struct ls_error *error)
{
    static struct bench b;
    struct ls_config *config = &b.config;
    char assignment[LS_CONFIG_BLEND_BYTES];
    b = (struct bench){.batches = 64, .rounds = ROUNDS, .fd = -1};
    ls_config_defaults(config);
    config->data.sequence = 1024;
    config->batch.global = 32;
    config->numerics.leaf_sequences = 1;
    config->train.steps = 0;
    const struct bench_key keys[] = {
        {.name = "data", .text = &b.train},
        {.name = "blend", .text = &b.blend},
        {.name = "sequence", .number = &config->data.sequence, .min = 1, .max = 1 << 24},
        {.name = "batch", .number = &config->batch.global, .min = 1, .max = 1 << 20},
        {.name = "batches", .number = &b.batches, .min = 1, .max = 1 << 20},
        {.name = "cache", .text = &b.cache},
        {.name = "rounds", .number = &b.rounds, .min = 1, .max = BENCH_ROUNDS_MAX},
        {.name = "from", .number = &b.from, .min = 0, .max = INT64_C(1) << 50},
        {0}};
    int status = bench_args(args, keys, error);
    if (!status && !b.train == !b.blend)
        status = ls_error_set(error, LS_ECONFIG, "expected data=STORE or blend=\"0.7 A 0.3 B\"");
    if (!status) {
        snprintf(assignment, sizeof assignment, "%s=%s", b.blend ? "data.blend" : "data.train",
                 b.blend ? b.blend : b.train);
        status = ls_config_set(config, assignment, error);
    }
    if (!status && b.cache) {
        snprintf(assignment, sizeof assignment, "data.cache.dir=%s", b.cache);
        status = ls_config_set(config, assignment, error);
    }
    cmd_progress_begin();
    if (!status)
        status = run(&b, error);
    if (b.fd >= 0)
        close(b.fd);
    free(b.held);
    ls_training_data_close(&b.data);
    return status;
}
