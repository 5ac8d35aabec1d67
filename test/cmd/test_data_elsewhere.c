/* Runs whose data lie on a web server or in S3: the bits of the run on local files, in any layout,
 * with and without a cache; and what a run says when its server does not keep up. */
#include "runs.h"

#include "../support/await.h"
#include "../support/s3_server.h"
#include "../support/scratch.h"
#include "../support/suite.h"

#include <lockstep/train.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define RUN "$L train $C train.steps=6 log.hash_every=1 eval.every=3 "

static struct s3_server *server;

static void upload(const char *name)
{
    char key[64];
    size_t bytes;
    char *data = scratch_read(at(name), &bytes);
    snprintf(key, sizeof key, "data/%s", name);
    s3_server_place_bytes(server, key, data, bytes);
    free(data);
}

static void undisturbed(void)
{
    if (!exists("whole"))
        expect(RUN "train.out=whole", 0, "hash");
}

/* U is the URL of the web, S that of the bucket. */
static void expect_same(const char *run, const char *keys)
{
    char line[2048];
    undisturbed();
    snprintf(line, sizeof line, "U='%s' S=s3://bucket/data && " RUN "train.out=%s %s",
             s3_server_url(server, "data"), run, keys);
    expect(line, 0, "hash");
    expect_same_run("whole", run);
}

CASE(test_the_bits_of_the_local_run)
{
    expect_same("web", "data.train=$U/corpus_train data.valid=$U/corpus_valid");
    expect_same("s3", "data.train=$S/corpus_train data.valid=$S/corpus_valid data.cache.dir=cache "
                      "parallel.dp=2");
    int ranges = s3_server_ranges(server, "data/corpus_train.bin");
    expect_same("again", "data.train=$S/corpus_train data.valid=$S/corpus_valid "
                         "data.cache.dir=cache data.cache.size=1GiB parallel.pp=1 parallel.dp=4");
    /* Of what the cache has nothing is fetched again but what the records' digest looks at. */
    assert_true(s3_server_ranges(server, "data/corpus_train.bin") <= ranges + 64);
    /* A run's folder says where its data are. */
    expect("grep 'train: \"http://127.0.0.1:.*/web/data/corpus_train\"' web/config.yaml", 0, "");
    expect("$L eval web", 0, "loss");
}

/* Best-fit packing: the .pack lies beside the store. */
CASE(test_a_packed_run)
{
    char line[1024];
    expect("$L data pack corpus_train --sequence 32", 0, "");
    upload("corpus_train.pack");
    expect(RUN "eval.every=0 data.valid= data.packing=best_fit train.out=packed", 0, "hash");
    snprintf(line, sizeof line,
             RUN "eval.every=0 data.valid= data.packing=best_fit train.out=packed_away "
                 "data.train=%s data.cache.dir=cache parallel.dp=2",
             s3_server_url(server, "data/corpus_train"));
    expect(line, 0, "hash");
    expect_same_run("packed", "packed_away");
}

CASE(test_a_folder_is_its_stores)
{
    expect("mkdir -p both && cp corpus_train.* corpus.tokenizer both/ && cp corpus_valid.bin "
           "both/z.bin && cp "
           "corpus_valid.idx both/z.idx",
           0, "");
    expect(RUN "train.out=listed data.train=both/corpus_train,both/z", 0, "2 files of ");
    expect(RUN "train.out=folder data.train=both/", 0, "2 files of ");
    expect_same_run("listed", "folder");
    expect(RUN "train.out=pattern 'data.train=both/*'", 0,
           "from both/corpus_train.bin to "
           "both/z.bin");
    expect_same_run("listed", "pattern");
}

CASE(test_what_is_refused)
{
    int code = ls_exit_code(LS_ECONFIG);
    expect(RUN "train.out=x data.train=http://me:hunter2@host/x", code, "~/.netrc");
    assert_null(strstr(output, "hunter2"));
    expect(RUN "train.out=x 'data.train=https://host/x?sig=hunter2'", code, "'?'");
    assert_null(strstr(output, "hunter2"));
    expect(RUN "train.out=x data.train=ftp://host/x", code,
           "ftp:// is not supported: expected http://");
    expect("$L data inspect http://me:hunter2@host/x", code, "~/.netrc");
    assert_null(strstr(output, "hunter2"));
    expect(RUN "train.out=x data.train=s3://bucket/data/none", ls_exit_code(LS_EIO),
           "neither s3://bucket/data/none.bin");
    expect(RUN "train.out=x data.cache.size=10", code, "data.cache.size");
    expect(RUN "train.out=x data.cache.size=4MiB", code, "expected at least 64MiB, a size");
    assert_false(exists("x"));
}

/* Neither what a run prints nor a file that it writes has a credential, at the chattiest level and
 * where the server refuses it. */
CASE(test_no_credential_is_kept)
{
    static const char search[] = "grep -rlF -e \"$AWS_SECRET_ACCESS_KEY\" -e "
                                 "\"$AWS_SESSION_TOKEN\" -e 'AWS4-HMAC' kept cache said";
    static const char train[] = "$L train $C train.steps=2 log.level=debug log.trace=true "
                                "train.out=kept train.resume=auto data.cache.dir=cache "
                                "data.train=s3://bucket/data/corpus_train >>said 2>&1";
    expect(train, 0, "");
    s3_server_fail(server, S3_REFUSE, 1, true);
    expect(train, ls_exit_code(LS_EIO), "");
    s3_server_fail(server, S3_SOUND, 0, false);
    expect("cat said", 0, "HTTP 403");
    expect(search, 1, "");
    expect("echo \"secret=$AWS_SECRET_ACCESS_KEY;\" >>said", 0, ""); /* it would be found */
    expect(search, 0, "said");
}

CASE(test_inspect)
{
    char line[512];
    expect("$L data inspect corpus_train | tail -n +2 > local.txt", 0, "");
    snprintf(line, sizeof line, "$L data inspect %s | tail -n +2 | diff local.txt -",
             s3_server_url(server, "data/corpus_train"));
    expect(line, 0, "");
}

/* The planner says what the network must bring, and what comes of it where that is less. */
CASE(test_the_plan_says_what_must_come)
{
    static const char plan[] = "$L plan --layout --cluster $G/../../../clusters/cpu-2core.yaml $C "
                               "data.train=s3://bucket/data/corpus_train ";
    char line[512];
    expect(plan, 0,
           "/s to a host; the cluster does not say what comes (storage.host, storage.all)");
    assert_non_null(strstr(output, "shuffled, before their blocks are in a cache: up to "));
    assert_null(strstr(output, "waits for samples"));
    snprintf(line, sizeof line, "%s --what-if storage.host=1kB/s", plan);
    expect(line, 0, "; a host gets 1000 B/s");
    assert_non_null(strstr(output, "waits for samples"));
    assert_non_null(strstr(output, "the step before hides all but "));
}

/* A run is asked to end once a server does not answer it: it does at once. */
static void expect_stopped(const char *out, const char *keys, int signal)
{
    int status;
    pid_t child = run_start(out, keys);
    while (s3_server_stalled(server) == 0)
        await_pause();
    assert_int_equal(kill(child, signal), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    while (s3_server_stalled(server) > 0) /* the next child's are counted from none */
        await_pause();
    if (!WIFEXITED(status) || WEXITSTATUS(status) != ls_exit_code(LS_ESTOPPED))
        fail_msg("%s: ended with %#x", out, (unsigned)status);
    s3_server_fail(server, S3_SOUND, 0, false);
}

/* The server says nothing when the first samples are asked for. */
CASE(test_a_stop_while_a_server_stalls)
{
    char line[1024], keys[512];
    snprintf(keys, sizeof keys, "train.steps=1 data.train=%s",
             s3_server_url(server, "data/corpus_train"));
    snprintf(line, sizeof line, "$L train $C train.out=counted %s", keys);
    s3_server_fail(server, S3_SOUND, 0, false);
    expect(line, 0, "hash");
    s3_server_fail(server, S3_STALL, s3_server_requests(server), true);
    expect_stopped("stalled", keys, SIGINT);
}

/* Whatever is refused while a run begins, it ends: it does not train without the data's digest, as
 * if its records could not be written. */
CASE(test_data_that_cannot_be_read_end_a_run)
{
    char line[1024];
    snprintf(line, sizeof line,
             "rm -rf refused; $L train $C train.out=refused train.steps=1 data.train=%s",
             s3_server_url(server, "data/corpus_train"));
    s3_server_fail(server, S3_SOUND, 0, false);
    expect(line, 0, "hash");
    int requests = s3_server_requests(server);
    for (int request = 1; request < requests; request++) {
        s3_server_fail(server, S3_REFUSE, request, true);
        expect(line, ls_exit_code(LS_EIO), "HTTP 403");
        assert_null(strstr(output, "without records"));
    }
    s3_server_fail(server, S3_SOUND, 0, false);
}

/* The same while the stores are opened: the list of a bucket, a store's tokenizer, its index. */
CASE(test_a_stop_while_stores_are_opened)
{
    for (int request = 1; request <= 5; request++) {
        char out[16];
        snprintf(out, sizeof out, "opened%d", request);
        s3_server_fail(server, S3_STALL, request, true);
        expect_stopped(out,
                       "data.tokenizer=byte 'data.train=s3://bucket/data/corpus_tr*' "
                       "data.valid=s3://bucket/data/corpus_valid",
                       SIGTERM);
    }
}

/* ---------------------------------------------------------------------------------------------- */

static int setup(void **state)
{
    static const char *const names[] = {"corpus_train.bin", "corpus_train.idx", "corpus_valid.bin",
                                        "corpus_valid.idx", "corpus.tokenizer"};
    server = s3_server_start();
    int failed = corpus_setup(state);
    for (size_t i = 0; i < sizeof names / sizeof *names && !failed; i++)
        upload(names[i]);
    return failed;
}

static int teardown(void **state)
{
    assert_int_equal(s3_server_faults(server), 0);
    s3_server_stop(server);
    return scratch_teardown(state);
}

SUITE_MAIN(setup, teardown)
