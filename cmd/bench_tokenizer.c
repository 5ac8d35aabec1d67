/* lockstep bench tokenizer: how fast a text is encoded, by one thread and by several. */
#include "bench.h"

#include <lockstep/base/file.h>
#include <lockstep/data.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 5, TEXT_BYTES_MAX = 1 << 30 };

struct bench {
    const char *spec, *path;
    int64_t threads;
    struct ls_tokenizer *tokenizer;
    char *text;
    size_t bytes;
    int64_t tokens; /* of the text */
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
    struct worker *workers;
    int64_t threads;
};

/* All encode at once. */
static int encode_all(void *user, int way, double *counts, struct ls_error *error)
{
    struct crew *crew = user;
    struct worker *workers = crew->workers;
    int status = LS_OK;
    (void)way, (void)counts;
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

/* Seconds for `threads` texts at once, with warm caches. */
static int measure(struct bench *b, int64_t threads, double *seconds, struct ls_error *error)
{
    struct crew crew = {calloc((size_t)threads, sizeof *crew.workers), threads};
    struct bench_turns turns = {.ways = 1, .rounds = ROUNDS, .run = encode_all, .user = &crew};
    turns.meter = threads == 1 ? "rounds of one thread" : "rounds of all threads";
    int status = crew.workers ? LS_OK : ls_no_memory(error, "for threads");
    for (int64_t i = 0; i < threads && !status; i++) {
        crew.workers[i].bench = b;
        status = ls_encoder_new(b->tokenizer, &crew.workers[i].encoder, error);
    }
    if (!status)
        status = bench_turns(&turns, error);
    *seconds = bench_seconds(&turns, 0);
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
    if (!status)
        status = measure(b, 1, &one, error);
    if (!status)
        status = measure(b, b->threads, &all, error);
    if (status)
        return status;
    double megabytes = (double)b->bytes / 1e6, rate = megabytes / one;
    double rate_all = megabytes * (double)b->threads / all;
    printf("%s, %.1f MB of text, %.4f tokens per byte, median of %d\n",
           ls_tokenizer_name(b->tokenizer), megabytes, (double)b->tokens / (double)b->bytes,
           ROUNDS);
    printf("1 thread   %8.1f MB/s\n%lld threads  %8.1f MB/s, %.2f of as many times one\n", rate,
           (long long)b->threads, rate_all, rate_all / rate / (double)b->threads);
    printf(
        "{\"tokens\": %lld, \"mb_per_s\": %.3f, \"threads\": %lld, \"mb_per_s_threads\": %.3f}\n",
        (long long)b->tokens, rate, (long long)b->threads, rate_all);
    return LS_OK;
}

int cmd_bench_tokenizer(const struct cmd_args *args, struct ls_error *error)
{
    struct bench b = {.threads = ls_device_cores()};
    const struct bench_key keys[] = {
        {.name = "tokenizer", .text = &b.spec},
        {.name = "text", .text = &b.path},
        {.name = "threads", .number = &b.threads, .min = 1, .max = 1024},
        {0}};
    int status = bench_args(args, keys, error);
    if (!status && (!b.spec || !b.path))
        status = ls_error_set(error, LS_ECONFIG, "expected tokenizer=SPEC and text=FILE");
    cmd_progress_begin();
    if (!status)
        status = run(&b, error);
    free(b.text);
    ls_tokenizer_free(b.tokenizer);
    return status;
}
