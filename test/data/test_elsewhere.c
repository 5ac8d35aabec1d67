/* Stores on a web server and in S3: the tokens of the local store, whatever server, cache and disk
 * do; or an error that names the file. */
#include "../support/await.h"
#include "../support/countdown.h"
#include "../support/extent.h"
#include "../support/s3_server.h"
#include "support.h"

#include "data/block_cache.h"

#include <lockstep/data/pack.h>

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TEXT = 300000, BLOCK = 1 << 16, BLOCKS = 10, TRIES = 3, LIMIT = 1 << 30 };

static struct s3_server *server;
static int32_t *expected; /* [tokens] of the store */
static int64_t tokens;
static int ends;

static bool ends_now(void *user)
{
    (void)user;
    return __atomic_load_n(&ends, __ATOMIC_RELAXED);
}

/* Nothing is late on a busy machine. */
static const struct ls_net_options quick = {
    .tries = TRIES, .pause_s = 1e-3, .slow_s = 1000, .ends = ends_now};

static void upload(const char *name, const char *key)
{
    char line[64];
    FILE *file = fopen(support_path(name), "re");
    static char bytes[1 << 20];
    assert_non_null(file);
    size_t count = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    snprintf(line, sizeof line, "data/%s", key);
    s3_server_place_bytes(server, line, bytes, count);
}

static void upload_all(void)
{
    upload("c_train.bin", "c_train.bin");
    upload("c_train.idx", "c_train.idx");
    upload("c_train.sums", "c_train.sums");
    upload("c.tokenizer", "c.tokenizer");
}

static void expected_read(const char *local)
{
    struct ls_error error = {0};
    struct ls_token_store *store;
    assert_ok(ls_token_store_open(local, &store, &error), error);
    tokens = ls_token_store_tokens(store);
    expected = malloc((size_t)tokens * sizeof *expected);
    assert_non_null(expected);
    assert_ok(ls_token_store_read(store, 0, tokens, 257, expected, &error), error);
    ls_token_store_close(store);
}

/* A store of a little more than nine blocks, in 100 documents. */
static void store_make(void)
{
    static char text[TEXT + 1];
    char input[300], output[300];
    struct ls_error error = {0};
    struct ls_prepare_report report;
    FILE *file = fopen(support_path("c.jsonl"), "we");
    assert_non_null(file);
    for (int i = 0; i < TEXT; i++)
        text[i] = (char)('a' + (i * 31 + i / 7 * 13 + i / 1000) % 26);
    for (int i = 0; i < 100; i++)
        fprintf(file, "{\"text\": \"%.*s\"}\n", TEXT / 100, text + i * (TEXT / 100));
    fclose(file);
    snprintf(input, sizeof input, "%s", support_path("c.jsonl"));
    snprintf(output, sizeof output, "%s", support_path("c"));
    const char *inputs[] = {input};
    struct ls_prepare_config config = {.inputs = inputs,
                                       .inputs_count = 1,
                                       .output = output,
                                       .tokenizer = "byte",
                                       .json_key = "text",
                                       .append_eod = true,
                                       .workers = 1};
    assert_ok(ls_data_prepare(&config, &report, &error), error);
    expected_read(support_path("c_train"));
}

static const char *web(void)
{
    return s3_server_url(server, "data/c_train");
}

static const char s3_name[] = "s3://bucket/data/c_train";

static struct ls_store_options options_of(const char *cache)
{
    return (struct ls_store_options){
        .cache = cache, .cache_bytes = LIMIT, .block_bytes = BLOCK, .requests = 4, .net = quick};
}

static int open_with(const char *spec, const struct ls_store_options *options,
                     struct ls_token_store **out, struct ls_error *error)
{
    return ls_token_store_open_with(spec, options, out, error);
}

static struct ls_token_store *open_good(const char *spec, const struct ls_store_options *options)
{
    struct ls_error error = {0};
    struct ls_token_store *store;
    assert_ok(open_with(spec, options, &store, &error), error);
    assert_int_equal(ls_token_store_tokens(store), tokens);
    return store;
}

/* Reads all of it in parts, every `step`-th first: 7 is another order than 1. */
static int read_all(const struct ls_token_store *store, int step, struct ls_error *error)
{
    enum { PART = 1000 };
    int32_t ids[PART];
    int64_t parts = ls_ceil_div(tokens, PART);
    int status = LS_OK;
    for (int from = 0; from < step && !status; from++)
        for (int64_t i = from; i < parts && !status; i += step) {
            int64_t count = ls_min(PART, tokens - i * PART);
            status = ls_token_store_read(store, i * PART, count, 257, ids, error);
            if (!status && memcmp(ids, expected + i * PART, (size_t)count * sizeof *ids) != 0)
                return LS_EINVAL; /* never an error of the store's own */
        }
    return status;
}

static void expect_all(const char *spec, const struct ls_store_options *options)
{
    struct ls_error error = {0};
    struct ls_token_store *store = open_good(spec, options);
    assert_ok(read_all(store, 7, &error), error);
    ls_token_store_close(store);
}

static int files_of(const char *cache, const char *ending, int64_t *bytes)
{
    DIR *stream = opendir(cache);
    int count = 0;
    *bytes = 0;
    assert_non_null(stream);
    for (struct dirent *entry; (entry = readdir(stream));) {
        struct stat file;
        if (!ls_path_ends(entry->d_name, ending) || fstatat(dirfd(stream), entry->d_name, &file, 0))
            continue; /* or it has just gone */
        *bytes += file.st_size;
        count++;
    }
    closedir(stream);
    return count;
}

/* ---- the same tokens ------------------------------------------------------------------------- */

static int setup(void **state)
{
    support_setup(state);
    server = s3_server_start();
    store_make();
    upload_all();
    return 0;
}

static int teardown(void **state)
{
    assert_int_equal(s3_server_faults(server), 0);
    s3_server_stop(server);
    support_teardown(state);
    free(expected);
    return 0;
}

CASE_WITH(test_tokens_are_those_of_the_local_store, setup, teardown)
{
    const struct ls_store_options memory = options_of(NULL),
                                  disk = options_of(support_path("cache"));
    char digest[33], own[33];
    struct ls_error error = {0};
    struct ls_token_store *store = open_good(support_path("c_train"), NULL);
    assert_ok(ls_token_store_digest(store, own, &error), error);
    ls_token_store_close(store);
    const char *names[] = {web(), s3_name, s3_server_url(server, "data/c_train.bin"),
                           "s3://bucket/data/c_train.idx"};
    for (int i = 0; i < 4; i++) {
        expect_all(names[i], &memory);
        expect_all(names[i], &disk);
        store = open_good(names[i], &disk);
        assert_ok(ls_token_store_digest(store, digest, &error), error);
        assert_string_equal(digest, own);
        ls_token_store_close(store);
    }
    upload("c_train.bin", "bare");
    char spec[600];
    snprintf(spec, sizeof spec, "u16:%s", s3_server_url(server, "data/bare"));
    expect_all(spec, &memory);
}

/* Weights that were written beside the store later, which its sums do not know. */
CASE_WITH(test_weights_elsewhere, setup, teardown)
{
    enum { PART = 1000 };
    const struct ls_store_options memory = options_of(NULL);
    struct ls_error error = {0};
    float *weights = calloc((size_t)tokens, sizeof *weights), part[PART];
    assert_non_null(weights);
    for (int64_t i = 0; i < tokens; i++)
        weights[i] = (float)(i % 1000) / 8 - 3;
    weights[tokens - 1] = 1.0f / 0.0f;
    s3_server_place_bytes(server, "data/c_train.weights", (const char *)weights,
                          (size_t)tokens * sizeof *weights);
    const char *names[] = {web(), s3_name};
    for (int i = 0; i < 2; i++) {
        struct ls_token_store *store = open_good(names[i], &memory);
        for (int64_t at = 0; at + PART < tokens; at += 7 * PART) {
            assert_ok(ls_token_store_weights(store, at, PART, part, &error), error);
            assert_memory_equal(part, weights + at, sizeof part);
        }
        assert_int_equal(ls_token_store_weights(store, tokens - 1, 1, part, &error), LS_EDATA);
        assert_text_contains(error.text, "c_train.weights: the weight of token");
        ls_token_store_close(store);
    }
    struct ls_token_store *store;
    s3_server_place_bytes(server, "data/c_train.weights", (const char *)weights, 100);
    assert_int_equal(open_with(web(), &memory, &store, &error), LS_EDATA);
    assert_text_contains(error.text, "c_train.weights: 100 bytes: the store has");
    free(weights);
}

/* Of the index only the header is read, unless the store is packed. */
CASE_WITH(test_an_index_elsewhere_is_not_read, setup, teardown)
{
    enum { T = 500 };
    const struct ls_store_options memory = options_of(NULL);
    struct ls_error error = {0};
    struct ls_token_store *store = open_good(web(), &memory), *local;
    size_t before = s3_server_range_bytes(server);
    assert_int_equal(s3_server_ranges(server, "data/c_train.idx"), 1);
    assert_int_equal(before, 34);
    assert_ok(ls_token_store_pack(store, T, &error), error);
    local = open_good(support_path("c_train"), NULL);
    assert_ok(ls_token_store_pack(local, T, &error), error);
    int64_t samples, same;
    assert_ok(ls_token_store_samples(store, T, &samples, &error), error);
    assert_ok(ls_token_store_samples(local, T, &same, &error), error);
    assert_int_equal(samples, same);
    int32_t inputs[2][T], targets[2][T];
    for (int64_t i = 0; i < samples; i += 37) {
        ls_sample_prefetch(store, i, T);
        assert_ok(ls_sample_read(store, i, T, 257, inputs[0], targets[0], &error), error);
        assert_ok(ls_sample_read(local, i, T, 257, inputs[1], targets[1], &error), error);
        assert_memory_equal(inputs[0], inputs[1], sizeof inputs[0]);
        assert_memory_equal(targets[0], targets[1], sizeof targets[0]);
    }
    ls_token_store_close(local);
    ls_token_store_close(store);
}

/* The files of a store that is packed lie beside each other: its samples are the local ones. A
 * packing of another store, as a copy in parts leaves it, is refused. */
CASE_WITH(test_a_packing_elsewhere, setup, teardown)
{
    enum { T = 700 };
    struct ls_error error = {0};
    struct ls_pack_report report;
    struct ls_token_store *store, *local = open_good(support_path("c_train"), NULL);
    int32_t inputs[2][T], targets[2][T], starts[2][T];
    int64_t samples, same;
    struct ls_store_options disk = options_of(support_path("packed"));
    disk.block_bytes = 0; /* that of the sums */
    store = open_good(s3_name, &disk);
    assert_int_equal(ls_token_store_pack_best_fit(store, T, &error), LS_EDATA);
    assert_text_contains(error.text, "c_train.pack: the store is not packed");
    assert_text_contains(error.text, ". Make the packing where the store lies on a disk: lockstep "
                                     "data pack STORE --sequence 700; then upload STORE.pack");
    ls_token_store_close(store);
    assert_ok(ls_store_pack(support_path("c_train"), T, NULL, &report, &error), error);
    upload("c_train.pack", "c_train.pack");
    assert_ok(ls_token_store_pack_best_fit(local, T, &error), error);
    store = open_good(s3_name, &disk);
    assert_ok(ls_token_store_pack_best_fit(store, T, &error), error);
    assert_ok(ls_token_store_samples(store, T, &samples, &error), error);
    assert_ok(ls_token_store_samples(local, T, &same, &error), error);
    assert_int_equal(samples, same);
    assert_true(samples > 100);
    for (int64_t i = 0; i < samples; i += 7) {
        ls_sample_prefetch(store, i, T);
        assert_ok(ls_sample_read(store, i, T, 257, inputs[0], targets[0], &error), error);
        assert_ok(ls_sample_read(local, i, T, 257, inputs[1], targets[1], &error), error);
        ls_sample_starts(store, i, starts[0]);
        ls_sample_starts(local, i, starts[1]);
        assert_memory_equal(inputs[0], inputs[1], sizeof inputs[0]);
        assert_memory_equal(targets[0], targets[1], sizeof targets[0]);
        assert_memory_equal(starts[0], starts[1], sizeof starts[0]);
    }
    ls_token_store_close(local);
    ls_token_store_close(store);
    /* The broken twin. */
    upload("c_train.sums", "c_train.pack");
    store = open_good(s3_name, &disk);
    assert_int_equal(ls_token_store_pack_best_fit(store, T, &error), LS_EDATA);
    assert_text_contains(error.text, "c_train.pack");
    ls_token_store_close(store);
}

/* ---- servers that fail ----------------------------------------------------------------------- */

static const enum s3_failure passing[] = {S3_BUSY, S3_DROP, S3_CUT, S3_SHIFT, S3_SHORT};
enum { PASSING = sizeof passing / sizeof *passing };

/* Any request fails once. */
CASE_WITH(test_each_request_fails_once, setup, teardown)
{
    for (int kind = 0; kind < PASSING; kind++) {
        int n = 1;
        for (bool all = false; !all; n++) {
            if (!check_pair(kind, n, PASSING) && kind > 0)
                continue;
            s3_server_fail(server, passing[kind], n, false);
            struct ls_store_options memory = options_of(NULL);
            memory.requests = 1;
            expect_all(kind % 2 ? s3_name : web(), &memory);
            all = s3_server_requests(server) < n || n > 60;
            if (kind > 0 && n > 20)
                break;
        }
        assert_in_range(n, 15, 60);
    }
    s3_server_fail(server, S3_SOUND, 0, false);
}

/* From any request on all fail: an error that names the file, and never other tokens. */
CASE_WITH(test_from_each_request_on_all_fail, setup, teardown)
{
    static const enum s3_failure kinds[] = {S3_BUSY, S3_REFUSE, S3_CUT, S3_WHOLE, S3_SHIFT};
    for (int n = 1; n < 16; n += 2)
        for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
            const struct ls_store_options memory = options_of(NULL);
            struct ls_error error = {0};
            struct ls_token_store *store = NULL;
            s3_server_fail(server, kinds[kind], n, true);
            int status = open_with(web(), &memory, &store, &error);
            if (!status)
                status = read_all(store, 1, &error);
            assert_int_equal(status, LS_EIO);
            assert_text_contains(error.text, "data/c_train");
            ls_token_store_close(store);
            s3_server_fail(server, S3_SOUND, 0, false);
        }
}

/* Bytes that a server changes are found by the sums of the store, with a cache and without;
 * without sums they are not. */
CASE_WITH(test_a_server_that_lies, setup, teardown)
{
    for (int cached = 0; cached < 2; cached++) {
        struct ls_store_options options = options_of(cached ? support_path("lies") : NULL);
        struct ls_error error = {0};
        options.block_bytes = 0; /* that of the sums */
        struct ls_token_store *store = open_good(web(), &options);
        s3_server_fail(server, S3_LIE, 1, false);
        assert_ok(read_all(store, 1, &error), error);
        assert_int_equal(s3_server_requests(server), 2);
        ls_token_store_close(store);
        options.cache = cached ? support_path("lies-2") : NULL;
        store = open_good(web(), &options);
        s3_server_fail(server, S3_LIE, 1, true);
        assert_int_equal(read_all(store, 1, &error), LS_EDATA);
        assert_text_contains(error.text,
                             "the server sends other bytes than the store has, 3 times");
        assert_text_contains(error.text, "c_train.bin");
        ls_token_store_close(store);
        /* The broken twin. */
        s3_server_remove(server, "data/c_train.sums");
        s3_server_fail(server, S3_SOUND, 0, false);
        options.cache = cached ? support_path("lies-3") : NULL;
        store = open_good(web(), &options);
        s3_server_fail(server, S3_LIE, 1, true);
        assert_int_equal(read_all(store, 1, &error), LS_EINVAL);
        ls_token_store_close(store);
        s3_server_fail(server, S3_SOUND, 0, false);
        upload("c_train.sums", "c_train.sums");
    }
}

/* So are those of what is read when a store is opened: the sums, and the index's beginning. */
CASE_WITH(test_a_lie_at_the_opening, setup, teardown)
{
    struct ls_store_options options = options_of(NULL);
    options.block_bytes = 0;
    options.requests = 1;
    for (int n = 1; n <= 8; n++) {
        s3_server_fail(server, S3_LIE, n, false);
        expect_all(web(), &options);
    }
    s3_server_fail(server, S3_SOUND, 0, false);
}

/* Memory for five pieces: what is in it is not fetched again, and what was used longest ago makes
 * room. No piece is read behind the one before it, so nothing is fetched ahead. */
CASE_WITH(test_a_memory_keeps_its_size, setup, teardown)
{
    static const int pieces[] = {0, 2, 4, 6, 0, 2, 4, 6, 8, 1, 3, 5, 7, 0, 5};
    struct ls_store_options options = options_of(NULL);
    options.memory_bytes = 5 * BLOCK;
    struct ls_error error = {0};
    struct ls_token_store *store = open_good(web(), &options);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        int64_t first = pieces[i] * (BLOCK / 2);
        int32_t id;
        assert_ok(ls_token_store_read(store, first, 1, 257, &id, &error), error);
        assert_int_equal(id, expected[first]);
    }
    assert_int_equal(s3_server_ranges(server, "data/c_train.bin"), 10);
    ls_token_store_close(store);
}

CASE_WITH(test_sums_of_another_store, setup, teardown)
{
    struct ls_error error = {0};
    struct ls_token_store *store;
    s3_server_place_bytes(server, "data/c_train.bin", "abcd", 4);
    assert_int_equal(open_with(web(), NULL, &store, &error), LS_EDATA);
    assert_text_contains(error.text, "c_train.bin: 4 bytes, and the store's .sums knows");
    s3_server_place(server, "data/c_train.sums", "damaged");
    assert_int_equal(open_with(web(), NULL, &store, &error), LS_EDATA);
    assert_text_contains(error.text, "c_train.sums");
}

CASE_WITH(test_a_stop_ends_a_stall, setup, teardown)
{
    for (int cached = 0; cached < 2; cached++) {
        struct ls_store_options options = options_of(cached ? support_path("stop") : NULL);
        struct ls_error error = {0};
        struct ls_token_store *store = open_good(web(), &options);
        s3_server_fail(server, S3_STALL, 1, true);
        ls_token_store_prefetch(store, 0, tokens);
        while (s3_server_stalled(server) == 0)
            await_pause();
        __atomic_store_n(&ends, 1, __ATOMIC_RELAXED);
        assert_int_equal(read_all(store, 1, &error), LS_ESTOPPED);
        ls_token_store_close(store);
        __atomic_store_n(&ends, 0, __ATOMIC_RELAXED);
        s3_server_fail(server, S3_SOUND, 0, false);
    }
}

/* The store has had one answer more than when it was opened. */
static struct {
    struct ls_token_store *store;
    int64_t requests;
} answered;

static int64_t requests_of(const struct ls_token_store *store)
{
    struct ls_store_traffic traffic;
    assert_true(ls_token_store_traffic(store, &traffic));
    return traffic.requests;
}

static bool ends_once_answered(void *user)
{
    (void)user;
    return answered.store && requests_of(answered.store) > answered.requests;
}

/* A stop behind an answer with wrong bytes is a stop: the store is not called damaged. */
CASE_WITH(test_a_stop_after_a_bad_sum, setup, teardown)
{
    struct ls_store_options options = options_of(NULL);
    struct ls_error error = {0};
    int32_t id;
    options.block_bytes = 0; /* that of the sums */
    options.net.ends = ends_once_answered;
    for (int stops = 0; stops < 2; stops++) {
        struct ls_token_store *store = open_good(web(), &options);
        s3_server_fail(server, S3_LIE, 1, true);
        answered.store = stops ? store : NULL;
        answered.requests = requests_of(store);
        assert_int_equal(ls_token_store_read(store, 0, 1, 257, &id, &error),
                         stops ? LS_ESTOPPED : LS_EDATA);
        assert_int_equal(requests_of(store), answered.requests + (stops ? 1 : TRIES));
        answered.store = NULL;
        ls_token_store_close(store);
        s3_server_fail(server, S3_SOUND, 0, false);
    }
}

/* ---- files that change ----------------------------------------------------------------------- */

CASE_WITH(test_an_object_that_changes, setup, teardown)
{
    const struct ls_store_options memory = options_of(NULL);
    struct ls_error error = {0};
    struct ls_token_store *store = open_good(web(), &memory);
    size_t bytes = (size_t)tokens * 2;
    char *other = calloc(1, bytes);
    assert_non_null(other);
    s3_server_place_bytes(server, "data/c_train.bin", other, bytes);
    assert_int_equal(read_all(store, 1, &error), LS_EDATA);
    assert_text_contains(error.text, "c_train.bin: changed since it was opened");
    ls_token_store_close(store);
    free(other);
}

CASE_WITH(test_a_local_file_that_changes, setup, teardown)
{
    struct ls_error error = {0};
    struct ls_token_store *store = open_good(support_path("c_train"), NULL);
    assert_ok(read_all(store, 1, &error), error);
    char bin[300];
    snprintf(bin, sizeof bin, "%s", support_path("c_train.bin"));
    assert_ok(ls_token_store_look(store, &error), error);
    int fd = open(bin, O_WRONLY);
    assert_int_equal(pwrite(fd, "xx", 2, 500000), 2);
    close(fd);
    const struct timespec times[] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1000}};
    assert_int_equal(utimensat(AT_FDCWD, bin, times, 0), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(ls_token_store_look(store, &error), LS_EDATA);
    int status = LS_OK;
    for (int i = 0; i < 2 && !status; i++)
        status = read_all(store, 1, &error);
    assert_int_equal(status, LS_EDATA);
    assert_text_contains(error.text, "c_train.bin: changed while it was in use");
    ls_token_store_close(store);
    /* One that shrinks is an error, too, and no SIGBUS. */
    struct ls_error short_error = {0};
    assert_ok(ls_token_store_open(support_path("c_train"), &store, &error), error);
    assert_int_equal(truncate(bin, 1000), 0);
    assert_int_equal(read_all(store, 1, &short_error), LS_EDATA);
    assert_text_contains(short_error.text, "it has 1000 bytes and had");
    ls_token_store_close(store);
}

/* ---- the cache ------------------------------------------------------------------------------- */

/* This program as a process of its own, which reads the whole store: "read URL LOCAL CACHE STEP".
 */
static int child_main(char **words)
{
    const struct ls_store_options disk = options_of(words[3]);
    struct ls_error error = {0};
    struct ls_token_store *store;
    expected_read(words[2]);
    int status = open_with(words[1], &disk, &store, &error);
    if (!status)
        status = read_all(store, atoi(words[4]), &error);
    ls_token_store_close(store);
    free(expected);
    return status != LS_OK;
}

static pid_t child_start(const char *cache, int step)
{
    char number[16];
    snprintf(number, sizeof number, "%d", step);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        execl("/proc/self/exe", "test_elsewhere", "read", web(), support_path("c_train"), cache,
              number, (char *)NULL);
    return pid;
}

static void child_expect(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Three processes and, after them, this one: each block is fetched once in all. */
CASE_WITH(test_a_block_is_fetched_once_a_host, setup, teardown)
{
    char cache[300];
    int64_t bytes;
    pid_t pids[3];
    snprintf(cache, sizeof cache, "%s", support_path("shared"));
    for (int i = 0; i < 3; i++)
        pids[i] = child_start(cache, 1 + 3 * i);
    for (int i = 0; i < 3; i++)
        child_expect(pids[i]);
    assert_int_equal(s3_server_ranges(server, "data/c_train.bin"), BLOCKS);
    const struct ls_store_options disk = options_of(cache);
    expect_all(web(), &disk);
    assert_int_equal(s3_server_ranges(server, "data/c_train.bin"), BLOCKS);
    assert_int_equal(files_of(cache, ".block", &bytes), BLOCKS);
    /* Without a cache each does. */
    const struct ls_store_options memory = options_of(NULL);
    expect_all(web(), &memory);
    assert_int_equal(s3_server_ranges(server, "data/c_train.bin"), 2 * BLOCKS);
}

/* A version without a name is not kept: another one of the same size would be taken for it. */
CASE_WITH(test_a_version_without_a_name, setup, teardown)
{
    char cache[300], words[512];
    int64_t bytes;
    snprintf(cache, sizeof cache, "%s", support_path("unnamed"));
    const struct ls_store_options disk = options_of(cache);
    struct ls_error error = {0};
    for (int again = 0; again < 2; again++) {
        s3_server_fail(server, S3_PLAIN, 1, true);
        struct ls_token_store *store = open_good(web(), &disk);
        assert_int_equal(read_all(store, 7, &error), again ? LS_EINVAL : LS_OK);
        assert_true(ls_token_store_warning(store, words, sizeof words));
        assert_text_contains(words, "names neither ETag nor Last-Modified");
        ls_token_store_close(store);
        assert_int_equal(files_of(cache, ".block", &bytes), 0);
        char *other = calloc(1, (size_t)tokens * 2); /* as many bytes, other tokens */
        assert_non_null(other);
        s3_server_place_bytes(server, "data/c_train.bin", other, (size_t)tokens * 2);
        free(other);
    }
    s3_server_fail(server, S3_SOUND, 0, false);
}

/* Killed while it waits for the server: others take over, and what it left is removed. */
CASE_WITH(test_a_fetcher_that_is_killed, setup, teardown)
{
    char cache[300], left[400];
    struct stat file;
    snprintf(cache, sizeof cache, "%s", support_path("killed"));
    snprintf(left, sizeof left, "%s/0-0.block.tmp-1-x-0", cache);
    const struct ls_store_options disk = options_of(cache);
    struct ls_token_store *store = open_good(web(), &disk);
    struct ls_error error = {0};
    s3_server_fail(server, S3_STALL, 6, true); /* behind what opens the store */
    pid_t pid = child_start(cache, 1);
    while (s3_server_stalled(server) == 0)
        await_pause();
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    s3_server_fail(server, S3_SOUND, 0, false);
    scratch_write(left, "half", 4);
    assert_ok(read_all(store, 1, &error), error);
    ls_token_store_close(store);
    assert_int_equal(stat(left, &file), -1);
}

CASE_WITH(test_a_cache_keeps_its_size, setup, teardown)
{
    enum { ROOM = 4 };
    char cache[300], used[400];
    int64_t bytes, one = BLOCK + 56;
    snprintf(cache, sizeof cache, "%s", support_path("small"));
    snprintf(used, sizeof used, "%s/used", cache);
    struct ls_store_options disk = options_of(cache);
    disk.cache_bytes = ROOM * one;
    struct ls_error error = {0};
    struct ls_token_store *store = open_good(web(), &disk);
    for (int64_t at = 0; at + 1000 <= tokens; at += 1000) {
        int32_t ids[1000];
        assert_ok(ls_token_store_read(store, at, 1000, 257, ids, &error), error);
        assert_memory_equal(ids, expected + at, sizeof ids);
        int lock = open(used, O_RDWR | O_CREAT, 0666); /* while nothing is counted */
        assert_int_equal(flock(lock, LOCK_EX), 0);
        files_of(cache, ".block", &bytes);
        close(lock);
        assert_true(bytes <= disk.cache_bytes);
    }
    assert_in_range(files_of(cache, ".block", &bytes), 1, ROOM);
    char text[256];
    assert_false(ls_token_store_warning(store, text, sizeof text));
    ls_token_store_close(store);
    disk.cache_bytes = 100; /* none fits: read, and not kept */
    disk.cache = support_path("tiny");
    expect_all(web(), &disk);
}

/* The block that was used longest ago makes room. */
CASE_WITH(test_the_oldest_use_goes_first, setup, teardown)
{
    char cache[300], path[400], data[100] = "x";
    struct ls_error error = {0};
    struct block_cache *blocks;
    snprintf(cache, sizeof cache, "%s", support_path("oldest"));
    assert_ok(block_cache_open(cache, 3 * (100 + 56), NULL, &blocks, &error), error);
    for (int i = 0; i < 3; i++) {
        const struct block_id id = {{1, 2}, i, 100};
        const struct timespec times[] = {{.tv_sec = 1000 - i}, {.tv_sec = 1000 - i}};
        assert_ok(block_cache_write(blocks, &id, data, &error), error);
        snprintf(path, sizeof path, "%s/%016x%016x-%d.block", cache, 1, 2, i);
        assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    }
    struct block_id last = {{1, 2}, 2, 100}, more = {{1, 2}, 3, 100};
    assert_int_equal(block_cache_read(blocks, &last, 10, 20, data), BLOCK_READ); /* used now */
    assert_ok(block_cache_write(blocks, &more, data, &error), error);
    const bool there[] = {true, false, true, true};
    for (int i = 0; i < 4; i++) {
        const struct block_id id = {{1, 2}, i, 100};
        assert_int_equal(block_cache_has(blocks, &id), there[i]);
    }
    block_cache_close(blocks);
}

/* Wherever a byte of a block changes, or it ends early: found, and fetched again. */
CASE_WITH(test_damaged_blocks, setup, teardown)
{
    char cache[300], path[400], byte, data[100], out[100];
    struct ls_error error = {0};
    struct block_cache *blocks;
    const struct block_id id = {{1, 2}, 0, 100};
    snprintf(cache, sizeof cache, "%s", support_path("damaged"));
    snprintf(path, sizeof path, "%s/%016x%016x-0.block", cache, 1, 2);
    memset(data, 'd', sizeof data);
    assert_ok(block_cache_open(cache, LIMIT, NULL, &blocks, &error), error);
    for (int at = -1; at < 156; at++) {
        assert_ok(block_cache_write(blocks, &id, data, &error), error);
        assert_int_equal(block_cache_read(blocks, &id, 0, 100, out), BLOCK_READ);
        assert_memory_equal(out, data, 100);
        int fd = open(path, O_RDWR);
        assert_int_equal(pread(fd, &byte, 1, ls_max(at, 0)), 1);
        byte ^= 16;
        if (at < 0)
            assert_int_equal(ftruncate(fd, 155), 0);
        else
            assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        close(fd);
        assert_int_equal(block_cache_read(blocks, &id, 30, 40, out), BLOCK_DAMAGED);
        assert_int_equal(block_cache_read(blocks, &id, 30, 40, out), BLOCK_ABSENT);
    }
    block_cache_close(blocks);
    /* And in a store. */
    const struct ls_store_options disk = options_of(support_path("damaged-2"));
    expect_all(web(), &disk);
    char line[600], text[256];
    snprintf(line, sizeof line,
             "for f in '%s'/*-3.block; do printf x | dd of=\"$f\" bs=1 "
             "seek=3000 conv=notrunc status=none; done",
             support_path("damaged-2"));
    assert_int_equal(system(line), 0);
    int before = s3_server_ranges(server, "data/c_train.bin");
    struct ls_token_store *store = open_good(web(), &disk);
    assert_ok(read_all(store, 1, &error), error);
    assert_int_equal(s3_server_ranges(server, "data/c_train.bin"), before + 1);
    assert_true(ls_token_store_warning(store, text, sizeof text));
    assert_text_contains(text, "damaged");
    ls_token_store_close(store);
}

/* A block that neither can be read nor goes (of another user, say; here a folder has its name): it
 * is fetched, and read from its source. */
CASE_WITH(test_a_block_that_cannot_be_read, setup, teardown)
{
    char line[900], text[256], cache[300];
    struct ls_error error = {0};
    snprintf(cache, sizeof cache, "%s", support_path("unreadable"));
    const struct ls_store_options disk = options_of(cache);
    expect_all(web(), &disk);
    snprintf(line, sizeof line, "for f in '%s'/*-3.block; do rm \"$f\" && mkdir \"$f\"; done",
             cache);
    assert_int_equal(system(line), 0);
    struct ls_token_store *store = open_good(web(), &disk);
    assert_ok(read_all(store, 1, &error), error);
    assert_true(ls_token_store_warning(store, text, sizeof text));
    ls_token_store_close(store);
}

/* The count of what is kept cannot be opened (another user's, say): the warning names it and why.
 */
CASE_WITH(test_a_count_that_cannot_be_opened, setup, teardown)
{
    char line[700], text[256], cache[300];
    struct ls_error error = {0};
    snprintf(cache, sizeof cache, "%s", support_path("foreign"));
    const struct ls_store_options disk = options_of(cache);
    snprintf(line, sizeof line, "mkdir -p '%s/used'", cache);
    assert_int_equal(system(line), 0);
    struct ls_token_store *store = open_good(web(), &disk);
    assert_ok(read_all(store, 1, &error), error);
    assert_true(ls_token_store_warning(store, text, sizeof text));
    assert_text_contains(text, "foreign/used: Is a directory");
    ls_token_store_close(store);
}

/* Several threads write. */
static int locked_before(void *user, const char *call)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    int failure = countdown_before(user, call);
    pthread_mutex_unlock(&lock);
    return failure;
}

/* Each call that writes the cache fails: a warning, the same tokens. */
CASE_WITH(test_a_disk_that_is_full, setup, teardown)
{
    struct countdown countdown = {.left = -1};
    const struct ls_fault fault = {locked_before, &countdown};
    struct ls_error error = {0};
    int n = 0;
    for (bool failed = true; failed && n < 20; n++) {
        char name[32], text[256];
        snprintf(name, sizeof name, "full-%d", n);
        struct ls_store_options disk = options_of(support_path(name));
        disk.fault = &fault;
        countdown = (struct countdown){.left = n};
        struct ls_token_store *store = open_good(web(), &disk);
        assert_ok(read_all(store, 1, &error), error);
        bool warned = ls_token_store_warning(store, text, sizeof text);
        ls_token_store_close(store); /* its threads have ended */
        failed = countdown.call[0] != '\0';
        assert_int_equal(warned, failed);
        if (failed)
            assert_text_contains(text, "read from its source");
    }
    assert_in_range(n, 12, 20);
    /* One that cannot even be made. */
    char text[256];
    scratch_write(support_path("file"), "", 0);
    const struct ls_store_options disk = options_of(support_path("file/cache"));
    struct ls_token_store *store = open_good(web(), &disk);
    assert_ok(read_all(store, 1, &error), error);
    assert_true(ls_token_store_warning(store, text, sizeof text));
    assert_text_contains(text, "/file: cannot create the directory");
    ls_token_store_close(store);
}

/* ---- ahead of use ---------------------------------------------------------------------------- */

CASE_WITH(test_what_is_wanted_is_fetched_ahead, setup, teardown)
{
    for (int cached = 0; cached < 2; cached++) {
        const struct ls_store_options options = options_of(cached ? support_path("ahead") : NULL);
        struct ls_error error = {0};
        struct ls_store_traffic traffic;
        struct ls_token_store *store = open_good(web(), &options);
        int before = s3_server_ranges(server, "data/c_train.bin");
        ls_token_store_prefetch(store, 0, tokens);
        while (s3_server_ranges(server, "data/c_train.bin") < before + BLOCKS)
            await_pause();
        assert_ok(read_all(store, 1, &error), error);
        assert_int_equal(s3_server_ranges(server, "data/c_train.bin"), before + BLOCKS);
        assert_true(ls_token_store_traffic(store, &traffic));
        assert_int_equal(traffic.fetched_bytes, 2 * tokens + 34); /* and the header of the index */
        assert_int_equal(traffic.read_bytes, 2 * tokens);
        ls_token_store_close(store);
    }
}

/* ---- names ----------------------------------------------------------------------------------- */

static int open_files(void)
{
    DIR *stream = opendir("/proc/self/fd");
    int count = 0;
    assert_non_null(stream);
    while (readdir(stream))
        count++;
    closedir(stream);
    return count;
}

static void expect_ids(const char *spec, int first, int count)
{
    struct ls_error error = {0};
    struct ls_token_store *store;
    assert_ok(ls_token_store_open(spec, &store, &error), error);
    assert_int_equal(ls_token_store_tokens(store), count);
    for (int i = 0; i < count; i++) {
        int32_t id;
        assert_ok(ls_token_store_read(store, i, 1, 65536, &id, &error), error);
        assert_int_equal(id, first + i);
    }
    ls_token_store_close(store);
}

/* 300 files in byte order, of which few are open at a time. */
CASE_WITH(test_folders_and_patterns, setup, teardown)
{
    enum { FILES = 300 };
    char name[64], spec[600];
    struct ls_error error = {0};
    struct ls_token_store *store;
    assert_int_equal(mkdir(support_path("many"), 0777), 0);
    for (int i = 0; i < FILES; i++) {
        uint16_t id = (uint16_t)i;
        snprintf(name, sizeof name, "many/%s%03d.bin", i < 100 ? "B" : "a", i);
        scratch_write(support_path(name), &id, sizeof id);
    }
    scratch_write(support_path("many/.hidden.bin"), "xx", 2);
    scratch_write(support_path("many/notes.txt"), "xx", 2);
    int before = open_files();
    snprintf(spec, sizeof spec, "u16:%s/", support_path("many"));
    expect_ids(spec, 0, FILES);
    assert_ok(ls_token_store_open(spec, &store, &error), error);
    assert_true(open_files() <= before + 128);
    ls_token_store_close(store);
    assert_int_equal(open_files(), before);
    snprintf(spec, sizeof spec, "u16:%s", support_path("many/a2*.bin"));
    expect_ids(spec, 200, 100);
    snprintf(spec, sizeof spec, "u16:%s", support_path("many/a1[0-4]?"));
    expect_ids(spec, 100, 50);
    /* Pairs count once, by their prefix. */
    const struct ls_store_options none = {0};
    expect_all(support_path("c_tr*"), &none);
    expect_all(support_path("c_train.b*"), &none);
    expect_all(support_path("*_train"), &none);
    assert_int_equal(mkdir(support_path("empty"), 0777), 0);
    assert_int_equal(ls_token_store_open(support_path("empty"), &store, &error), LS_EDATA);
    assert_text_contains(error.text, "empty: a folder without stores");
    assert_int_equal(ls_token_store_open(support_path("z*"), &store, &error), LS_EDATA);
    assert_text_contains(error.text, "z*: no store has a name like this");
}

/* In the bucket and, below m/, on the disk. */
static void both_place(const char *name, const void *bytes, size_t count)
{
    s3_server_place_bytes(server, name, bytes, count);
    scratch_write(support_path(name), bytes, count);
}

static void both_copy(const char *name, const char *to)
{
    static char bytes[1 << 20];
    FILE *file = fopen(support_path(name), "re");
    assert_non_null(file);
    size_t count = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    both_place(to, bytes, count);
}

/* A list of names, of which each lies in the bucket as on the disk: the same files in one order. */
static void expect_alike(const char *spec, int count)
{
    char names[1024] = "", local_names[1024] = "";
    const struct ls_store_options memory = options_of(NULL);
    struct ls_error error = {0};
    struct ls_token_store *store, *local;
    for (const char *at = spec; *at;
         at += at[strcspn(at, ",")] ? strcspn(at, ",") + 1 : strlen(at)) {
        char one[256];
        snprintf(one, sizeof one, "%.*s", (int)strcspn(at, ","), at);
        snprintf(names + strlen(names), sizeof names - strlen(names), "%ss3://bucket/%s",
                 *names ? "," : "", one);
        snprintf(local_names + strlen(local_names), sizeof local_names - strlen(local_names),
                 "%s%s", *local_names ? "," : "", support_path(one));
    }
    assert_ok(open_with(names, &memory, &store, &error), error);
    assert_ok(open_with(local_names, NULL, &local, &error), error);
    assert_int_equal(ls_token_store_files(store), count);
    assert_int_equal(ls_token_store_files(local), count);
    for (int i = 0; i < count; i++)
        assert_string_equal(ls_token_store_file(store, i).path + strlen("s3://bucket"),
                            ls_token_store_file(local, i).path + strlen(support_folder));
    ls_token_store_close(store);
    ls_token_store_close(local);
}

/* A bucket's folders and patterns, listed in pages of two, are those of a file system. */
CASE_WITH(test_folders_and_patterns_of_a_bucket, setup, teardown)
{
    const struct ls_store_options memory = options_of(NULL);
    unsigned char llmc[1024 + 2] = {0};
    memcpy(llmc, (const int32_t[]){20240520, 1, 1}, 12);
    assert_int_equal(mkdir(support_path("m"), 0777), 0);
    assert_int_equal(mkdir(support_path("m/n"), 0777), 0);
    static const char *const names[] = {"m/B.bin", "m/a1.bin", "m/a2.bin", "m/.hidden.bin",
                                        "m/n/a3.bin"};
    for (int i = 0; i < 5; i++)
        both_place(names[i], llmc, sizeof llmc);
    both_place("m/notes.txt", "xx", 2);
    both_copy("c_train.bin", "m/c_train.bin");
    both_copy("c_train.idx", "m/c_train.idx");
    s3_server_place(server, "m/", ""); /* as some programs mark folders */
    s3_server_place(server, "mm/z.bin", "xx");
    expect_alike("m/", 4);
    expect_alike("m/*", 4);
    expect_alike("m/a?", 2);
    expect_alike("m/a[!2]*", 1);
    expect_alike("m/[aB]*", 3);
    expect_alike("m/.h*", 1);
    expect_alike("m/a*.bin,m/c_train,m/B.bin", 4);
    expect_alike("m/c*", 1);
    expect_alike("m/c_train.b*", 1); /* a pair, whatever led to it */
    expect_alike("m/*/a*,m/n/", 2);
    expect_all("s3://bucket/data/", &memory);
    expect_all("S3://bucket/data/", &memory);
    expect_all("S3://bucket/data/c_tr?in", &memory);
    expect_all("s3://bucket/data//", &memory);
    expect_all("s3://bucket//data///", &memory);
    expect_all("s3://bucket//data/c_tr?in", &memory);
}

/* However a store is spelled, it has one name. */
CASE_WITH(test_a_name_has_one_spelling, setup, teardown)
{
    static const char *const spelled[] = {"s3://bucket/data/c_train", "S3://bucket//data/c_train",
                                          "s3://bucket///data/c_train", "s3://bucket/data//"};
    for (size_t i = 0; i < sizeof spelled / sizeof *spelled; i++) {
        const struct ls_store_options memory = options_of(NULL);
        struct ls_error error = {0};
        struct ls_token_store *store;
        assert_ok(open_with(spelled[i], &memory, &store, &error), error);
        assert_string_equal(ls_token_store_file(store, 0).path, "s3://bucket/data/c_train.bin");
        ls_token_store_close(store);
    }
}

CASE_WITH(test_folders_that_cannot_be_listed, setup, teardown)
{
    static const struct {
        const char *name;
        int code;
        const char *words;
    } cases[] = {{"s3://bucket/none/", LS_EDATA, "none/: a folder without stores"},
                 {"s3://bucket/data/z*", LS_EDATA, "z*: no store has a name like this"},
                 {"s3://bucket/odd/", LS_ECONFIG, "the object odd/a b.bin, which is found there"},
                 {"s3://b*/x/", LS_ECONFIG, "s3://bucket/prefix"},
                 {"s3://bucket/x?sig=hunter2", LS_ECONFIG, "the prefix may have letters"},
                 {"http://host/data/", LS_ECONFIG, "Name the stores, with commas"},
                 {"https://host/data/c*", LS_ECONFIG, "a web server does not list"},
                 {"https://hunter2@host/data/", LS_ECONFIG, "~/.netrc"}};
    s3_server_place(server, "odd/a b.bin", "xx");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_error error = {0};
        struct ls_token_store *store;
        assert_int_equal(open_with(cases[i].name, NULL, &store, &error), cases[i].code);
        assert_text_contains(error.text, cases[i].words);
        assert_null(strstr(error.text, "hunter2"));
    }
}

CASE_WITH(test_names_that_are_none, setup, teardown)
{
    static const struct {
        const char *name;
        int code;
        const char *words;
    } cases[] = {{"http://me:hunter2@host/x", LS_ECONFIG, "~/.netrc"},
                 {"https://host/x?sig=hunter2", LS_ECONFIG, "'?'"},
                 {"s3://x/y", LS_ECONFIG, "s3://bucket/prefix"},
                 {"s3://bucket", LS_ECONFIG, "needs a path"},
                 {"ftp://host/x", LS_ECONFIG, "ftp:// is not supported: expected http://"},
                 {"u16:gs://bucket/x", LS_ECONFIG, "gs:// is not supported"},
                 {"u16://none", LS_EIO, "//none"},
                 {"http://127.0.0.1:1", LS_ECONFIG, "needs a path"},
                 {"http://[::1]:9", LS_ECONFIG, "needs a path"}, /* no pattern */
                 {"http://[::1]:9/c[0]", LS_ECONFIG, "a web server does not list"},
                 {"s3://bucket/data//c_train", LS_ECONFIG, "single slashes"},
                 {"s3://bucket/data/none", LS_EIO, "neither s3://bucket/data/none.bin with its "},
                 {"s3://bucket/data/c_valid.idx", LS_EIO, "c_valid.idx"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_error error = {0};
        struct ls_token_store *store;
        assert_int_equal(ls_token_store_open(cases[i].name, &store, &error), cases[i].code);
        assert_text_contains(error.text, cases[i].words);
        assert_null(strstr(error.text, "hunter2"));
    }
}

/* A file whose length is not said is none of 0 bytes. */
CASE_WITH(test_a_server_that_says_no_length, setup, teardown)
{
    char spec[600];
    struct ls_error error = {0};
    struct ls_token_store *store;
    snprintf(spec, sizeof spec, "u16:%s", s3_server_url(server, "data/c_train.bin"));
    s3_server_fail(server, S3_BARE, 1, true);
    assert_int_equal(open_with(spec, NULL, &store, &error), LS_EIO);
    assert_text_contains(error.text, "does not say how long it is");
    s3_server_fail(server, S3_SOUND, 0, false);
}

/* ---------------------------------------------------------------------------------------------- */

int main(int count, char **words)
{
    if (count == 6)
        return child_main(words + 1);
    return suite_run(NULL, NULL);
}
