/* lockstep bench tokenizer: how fast a text is encoded, by one thread and by several, and how fast
 * `data prepare` makes a store of it. */
#include "bench.h"

#include <lockstep/base/file.h>
#include <lockstep/data.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 5, TEXT_BYTES_MAX = 1 << 30 };
enum { WAY_ENCODE, WAY_PREPARE }; /* the latter beside one thread alone */

struct bench {
    const char *spec, *path;
    int64_t threads;
    struct ls_tokenizer *tokenizer;
    char *text;
    size_t bytes;
    int64_t tokens; /* of the text */
    const char *folder;
    char work[4096];      /* in it, for the stores; "" until it is made */
    double prepare_share; /* of the rate of encoding */
};

/* A thread encodes the whole text, so that every one has the same work. */
struct worker {
    const struct bench *bench;
    struct ls_encoder *encoder;
    struct ls_token_list ids;
    struct ls_error error;
    pthread_t thread;
    bool started;
};

static void *work(void *user)
{
    struct worker *worker = user;
    const struct bench *b = worker->bench;
    worker->ids.count = 0;
    ls_encode(worker->encoder, b->text, b->bytes, &worker->ids, &worker->error);
    return NULL;
}

struct crew {
    const struct bench *bench;
    struct worker *workers;
    int64_t threads;
};

/* The whole of it: reads the text, encodes with one thread, writes a store. */
static int prepare(const struct bench *b, struct ls_error *error)
{
    char input[4200], output[4200];
    const char *const inputs[] = {input};
    struct ls_prepare_report report;
    struct ls_prepare_config config = {
        .inputs = inputs, .inputs_count = 1, .output = output, .tokenizer = b->spec, .workers = 1};
    snprintf(input, sizeof input, "text:%.4000s", b->path);
    snprintf(output, sizeof output, "%.4000s/store", b->work);
    return ls_data_prepare(&config, &report, error);
}

/* All encode at once. */
static int encode_all(void *user, int way, double *counts, struct ls_error *error)
{
    struct crew *crew = user;
    struct worker *workers = crew->workers;
    int status = LS_OK;
    (void)counts;
    if (way == WAY_PREPARE)
        return prepare(crew->bench, error);
    for (int64_t i = 0; i < crew->threads; i++)
        workers[i].started = pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0;
    for (int64_t i = 0; i < crew->threads; i++) {
        if (workers[i].started)
            pthread_join(workers[i].thread, NULL);
        else
            status = ls_error_set(error, LS_ENOMEM, "thread %d cannot be started", (int)i);
        if (workers[i].error.code)
            status = ls_error_set(error, workers[i].error.code, "%s", workers[i].error.text);
    }
    return status;
}

/* Seconds for `threads` texts at once, with warm caches; beside: `data prepare` in turns with it.
 */
static int measure(struct bench *b, int64_t threads, bool beside, double *seconds,
                   struct ls_error *error)
{
    struct crew crew = {b, calloc((size_t)threads, sizeof *crew.workers), threads};
    struct bench_turns turns = {.rounds = ROUNDS, .run = encode_all, .user = &crew};
    turns.ways = beside ? 2 : 1;
    turns.meter = threads == 1 ? "rounds of one thread" : "rounds of all threads";
    int status = crew.workers ? LS_OK : ls_no_memory(error, "for threads");
    for (int64_t i = 0; i < threads && !status; i++) {
        crew.workers[i].bench = b;
        status = ls_encoder_new(b->tokenizer, &crew.workers[i].encoder, error);
    }
    if (!status)
        status = bench_turns(&turns, error);
    *seconds = bench_seconds(&turns, WAY_ENCODE);
    if (beside && !status)
        b->prepare_share = bench_ratio(&turns, WAY_ENCODE, WAY_PREPARE);
    for (int64_t i = 0; crew.workers && i < threads; i++) {
        b->tokens = crew.workers[i].ids.count;
        ls_token_list_release(&crew.workers[i].ids);
        ls_encoder_free(crew.workers[i].encoder);
    }
    free(crew.workers);
    return status;
}

static int run(struct bench *b, struct ls_error *error)
{
    double one = 0, all = 0;
    int status = ls_tokenizer_new(b->spec, &b->tokenizer, error);
    if (!status)
        status = ls_file_read(b->path, TEXT_BYTES_MAX, LS_EDATA, &b->text, &b->bytes, error);
    if (!status && b->bytes == 0)
        status = ls_error_set(error, LS_EDATA, "%s is empty", b->path);
    if (!status &&
        (snprintf(b->work, sizeof b->work, "%.4000s/bench-tokenizer-XXXXXX", b->folder) < 0 ||
         !mkdtemp(b->work))) {
        *b->work = 0;
        status = ls_error_errno(error, errno, "%s: cannot make a folder in it", b->folder);
    }
    if (!status)
        status = measure(b, 1, true, &one, error);
    if (!status)
        status = measure(b, b->threads, false, &all, error);
    if (status)
        return status;
    double megabytes = (double)b->bytes / 1e6, rate = megabytes / one;
    double rate_all = megabytes * (double)b->threads / all;
    printf("%s, %.1f MB of text, %.4f tokens per byte, median of %d\n",
           ls_tokenizer_name(b->tokenizer), megabytes, (double)b->tokens / (double)b->bytes,
           ROUNDS);
    printf("1 thread   %8.1f MB/s\n%lld threads  %8.1f MB/s, %.2f of as many times one\n", rate,
           (long long)b->threads, rate_all, rate_all / rate / (double)b->threads);
    printf("prepare    %8.1f MB/s with 1 thread, %.2f of encoding\n", rate * b->prepare_share,
           b->prepare_share);
    printf("{\"tokens\": %lld, \"mb_per_s\": %.3f, \"threads\": %lld, \"mb_per_s_threads\": %.3f, "
           "\"prepare_share\": %.3f}\n",
           (long long)b->tokens, rate, (long long)b->threads, rate_all, b->prepare_share);
    return LS_OK;
}

int cmd_bench_tokenizer(const struct cmd_args *args, struct ls_error *error)
{
    static struct bench b;
    b = (struct bench){.threads = ls_device_cores(), .folder = "."};
    const struct bench_key keys[] = {
        {.name = "tokenizer", .text = &b.spec},
        {.name = "text", .text = &b.path},
        {.name = "folder", .text = &b.folder},
        {.name = "threads", .number = &b.threads, .min = 1, .max = 1024},
        {0}};
    int status = bench_args(args, keys, error);
    if (!status && (!b.spec || !b.path))
        status = ls_error_set(error, LS_ECONFIG, "expected tokenizer=SPEC and text=FILE");
    cmd_progress_begin();
    if (!status)
        status = run(&b, error);
    if (*b.work)
        ls_directory_remove(b.work);
    free(b.text);
    ls_tokenizer_free(b.tokenizer);
    return status;
}
