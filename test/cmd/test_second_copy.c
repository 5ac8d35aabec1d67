/* checkpoint.also: a run whose checkpoints are lost goes on from their copies, with the same bits,
 * and a place that fails does not hold it up. */
#include "runs.h"

#include "../support/s3_server.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/wrapped.h"
#include "train/second_copy.h"

#include <lockstep/ckpt/place.h>
#include <lockstep/train.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAVES  "train.save_every=2 log.hash_every=1 "
#define BUCKET "s3://bucket/runs/a"

static struct s3_server *server;

/* Of the runs that check_loss compares: further keys, and the one that nothing disturbs. */
static const char *keys = "", *whole = "whole";

/* A run that nothing disturbs, for comparison. */
static void undisturbed(void)
{
    char line[256];
    snprintf(line, sizeof line, "$L train $C %s train.out=%s train.steps=12 " SAVES, keys, whole);
    if (!exists(whole))
        expect(line, 0, "hash");
}

/* How many copies a run's records say were made, skipped or failed. */
static int copies(const char *run, const char *how)
{
    char line[256];
    snprintf(line, sizeof line, "grep '\"event\": \"copy\"' %s/metrics.jsonl | grep -c '\"%s\"'",
             run, how);
    shell(line);
    return atoi(output);
}

/* Records of workers have the tokens of all, which metrics_read does not expect. */
static void expect_whole(const char *run)
{
    char line[256];
    snprintf(line, sizeof line, "$L diff %s %s", whole, run);
    if (*keys)
        expect(line, 0, "equal up to step 12");
    else
        expect_same_run(whole, run);
}

/* Eight steps, a loss, and the rest: the bits of a run that lost nothing. */
static void check_loss(const char *run, const char *also, const char *loss, const char *says)
{
    char line[1024];
    undisturbed();
    snprintf(line, sizeof line,
             "$L train $C %s train.out=%s train.steps=8 checkpoint.also=%s " SAVES, keys, run,
             also);
    expect(line, 0, "hash");
    assert_int_equal(copies(run, "done") + copies(run, "skipped"), 4);
    assert_int_equal(copies(run, "failed"), 0);
    snprintf(line, sizeof line, "cd %s && %s", run, loss);
    expect(line, 0, "");
    /* Twice, since the last checkpoint of a run is never skipped. */
    static const char rest[] = "$L train $C %s train.out=%s train.steps=%d checkpoint.also=%s "
                               "train.resume=auto parallel.dp=2 " SAVES;
    snprintf(line, sizeof line, rest, keys, run, 10, also);
    expect(line, 0, says);
    assert_non_null(strstr(output, "(step 8)"));
    snprintf(line, sizeof line, rest, keys, run, 12, also);
    expect(line, 0, "(step 10)");
    assert_null(strstr(output, "fetched"));
    expect_whole(run);
}

CASE(test_a_directory_has_what_the_disk_lost)
{
    check_loss("a", "copies-a", "rm -r checkpoints",
               "a has no sound checkpoint; that of step 8 was fetched from copies-a");
    assert_int_equal(matches("copies-a/step-*"), 2); /* train.keep */
    assert_true(exists("copies-a/step-00000012/manifest.json"));
    check_loss("b", "copies-b", "rm -r checkpoints/step-00000008",
               "b has only older checkpoints; that of step 8 was fetched from copies-b");
    /* A byte in each checkpoint, which only who reads it finds. */
    check_loss(
        "c", "copies-c",
        "for f in checkpoints/*/$M; do printf x | dd of=$f bs=1 seek=9999 conv=notrunc; done",
        "c has no sound checkpoint; that of step 8 was fetched from copies-c");
    /* Nothing sound is left: the run does not begin anew by itself. */
    expect("for f in copies-c/*/$M; do printf x | dd of=$f bs=1 seek=9999 conv=notrunc; done; "
           "rm -r c/checkpoints",
           0, "");
    expect("$L train $C train.out=c train.steps=12 checkpoint.also=copies-c train.resume=auto",
           ls_exit_code(LS_ECKPT), "checkpoint.also: none of 2 copies in copies-c is sound");
    /* Sound ones are taken as they are. */
    check_loss("d", "copies-d", "true", "going on from d/checkpoints/step-00000008");
}

/* The run has one checkpoint again, and the place has more: they were not removed but lost. */
CASE(test_a_loss_takes_no_copy)
{
    /* Twice: those of a run's end are never skipped. */
    expect("$L train $C train.out=l train.steps=6 checkpoint.also=copies-l " SAVES
           "&& $L train $C train.out=l train.steps=8 train.resume=auto "
           "checkpoint.also=copies-l " SAVES,
           0, "hash");
    expect("rm -r l/checkpoints && $L train $C train.out=l train.steps=8 train.resume=auto "
           "checkpoint.also=copies-l " SAVES,
           0, "step 8 was fetched");
    assert_int_equal(matches("copies-l/step-*"), 2);
    expect(
        "$L train $C train.out=l train.steps=10 train.resume=auto checkpoint.also=copies-l " SAVES
        " && ls -d copies-l/step-* | tr -d '\n'",
        0, "copies-l/step-00000008copies-l/step-00000010");
}

/* The newer copies are of the past that the run left: no start fetches them, whether it ended
 * before its first checkpoint (here the disk refuses that) or before the first copy. */
CASE(test_going_back_is_not_undone)
{
    expect("$L train $C train.out=m train.steps=4 checkpoint.also=copies-m " SAVES
           "&& mkdir kept && cp -r m/checkpoints/step-00000004 kept "
           "&& $L train $C train.out=m train.steps=8 train.resume=auto "
           "checkpoint.also=copies-m " SAVES "&& rm -r m/checkpoints",
           0, "hash");
    expect("ulimit -f 40; $L train $C train.out=m train.steps=6 checkpoint.also=copies-m "
           "train.resume=kept/step-00000004 train.save_every=6",
           ls_exit_code(LS_EIO), "copies-m has copies of steps behind 4");
    assert_true(exists("copies-m/step-00000008/manifest.json"));
    expect("$L train $C train.out=m train.steps=8 train.resume=auto checkpoint.also=copies-m",
           ls_exit_code(LS_ECKPT), "checkpoint.also: m went back to step 4");
    expect("$L train $C train.out=m train.steps=6 checkpoint.also=copies-m "
           "train.resume=kept/step-00000004 " SAVES " && ls -d copies-m/step-* | tr -d '\n'",
           0, "copies-m/step-00000006");
    assert_int_equal(matches("copies-m/step-*"), 1);
    assert_false(exists("m/went_back"));
    expect(
        "$L train $C train.out=m train.steps=8 train.resume=auto checkpoint.also=copies-m " SAVES,
        0, "going on from m/checkpoints/step-00000006");
    assert_null(strstr(output, "fetched"));
    expect("$L train $C train.out=n train.steps=8 checkpoint.also=" BUCKET "-n " SAVES, 0, "hash");
    s3_server_fail(server, S3_REFUSE, 1, true);
    expect("$L train $C train.out=n train.steps=7 checkpoint.also=" BUCKET "-n "
           "train.resume=n/checkpoints/step-00000006 " SAVES,
           0, "the copy of step 7 is missing in " BUCKET "-n");
    s3_server_fail(server, S3_SOUND, 0, false);
    assert_true(exists("n/went_back"));
    expect("$L train $C train.out=n train.steps=9 train.resume=auto checkpoint.also=" BUCKET
           "-n " SAVES,
           0, "going on from n/checkpoints/step-00000007");
    assert_null(strstr(output, "fetched"));
    assert_false(exists("n/went_back"));
    assert_int_equal(s3_server_objects(server, "runs/a-n/step-00000009/"), 3);
}

/* A new folder that goes on from a copy that was named is the run whose copies they are. One that
 * goes on from elsewhere, or begins, is another run, and hears of it before any step. */
CASE(test_a_copy_that_is_named)
{
    expect("$L train $C train.out=o train.steps=4 checkpoint.also=copies-o " SAVES
           "&& cp -r o elsewhere && rm -r o",
           0, "hash");
    expect("$L train $C train.out=p train.steps=6 checkpoint.also=copies-o "
           "train.resume=elsewhere " SAVES,
           ls_exit_code(LS_ECONFIG), "copies-o holds the copies of another run");
    expect("mkdir owned-o && cp copies-o/owner owned-o && $L train $C train.out=p train.steps=6 "
           "checkpoint.also=owned-o " SAVES,
           ls_exit_code(LS_ECONFIG), "owned-o holds the copies of another run");
    expect("$L train $C train.out=p train.steps=6 checkpoint.also=copies-o "
           "train.resume=copies-o/step-00000004 " SAVES,
           0, "hash");
    assert_int_equal(copies("p", "failed"), 0);
    assert_true(exists("copies-o/step-00000006/manifest.json"));
    expect("rm -r p/checkpoints && $L train $C train.out=p train.steps=8 train.resume=auto "
           "checkpoint.also=copies-o " SAVES,
           0, "that of step 6 was fetched from copies-o");
}

CASE(test_a_bucket_has_what_the_disk_lost)
{
    check_loss("e", BUCKET, "rm -r checkpoints",
               "e has no sound checkpoint; that of step 8 was fetched from " BUCKET);
    assert_int_equal(s3_server_objects(server, "runs/a/step-00000012/"), 5); /* of two ranks */
    assert_int_equal(s3_server_objects(server, "runs/a/step-00000010/"), 5);
    assert_int_equal(s3_server_objects(server, "runs/a/step-"), 10); /* train.keep */
    assert_int_equal(s3_server_uploads(server), 0);
    /* The copy's newest is damaged: the one before it is taken. */
    undisturbed();
    expect("rm -r e/checkpoints", 0, "");
    s3_server_place(server, "runs/a/step-00000012/" SHARD, "x");
    expect("$L train $C train.out=e train.steps=12 train.resume=auto checkpoint.also=" BUCKET
           " " SAVES,
           0, "skipping a damaged copy: ");
    assert_non_null(strstr(output, "that of step 10 was fetched from " BUCKET));
    expect_same_run("whole", "e");
}

/* Each worker's checkpoints have their copies, and all of one step come back. */
CASE(test_a_place_has_what_workers_lost)
{
    keys = "async.mode=diloco async.workers=3 async.sync_every=2";
    whole = "whole-workers";
    check_loss("w", "copies-w/", "rm -r checkpoints workers",
               "w has no sound checkpoint; that of step 8 was fetched from copies-w/");
    assert_int_equal(matches("copies-w/step-*"), 2); /* train.keep */
    assert_int_equal(matches("copies-w/workers/*/step-*"), 6);
    check_loss("x", BUCKET "-x", "rm -r workers/0001/checkpoints/step-00000008",
               "x has only older checkpoints; that of step 8 was fetched from " BUCKET "-x");
    assert_int_equal(s3_server_objects(server, "runs/a-x/workers/0002/step-"), 10);
    check_loss("y", "copies-y",
               "for f in workers/0001/checkpoints/*/$M; do "
               "printf x | dd of=$f bs=1 seek=9999 conv=notrunc; done",
               "y has no sound checkpoint; that of step 8 was fetched from copies-y");
    /* Without one worker's copy the others of that step are none. */
    expect("rm -r y/checkpoints y/workers copies-y/workers/0002/step-00000012", 0, "");
    expect("$L train $C async.mode=diloco async.workers=3 async.sync_every=2 "
           "train.out=y train.steps=12 checkpoint.also=copies-y train.resume=auto " SAVES,
           0, "skipping a damaged copy: copies-y has no copy of worker 2 of step 12");
    assert_non_null(strstr(output, "that of step 10 was fetched from copies-y"));
    expect_whole("y");
    keys = "";
    whole = "whole";
}

/* Another run's place, one that is none, credentials that are missing: said before any step. */
CASE(test_places_that_are_refused)
{
    int code = ls_exit_code(LS_ECONFIG);
    expect("$L train $C train.out=f train.steps=2 checkpoint.also=copies-f", 0, "hash");
    expect("$L train $C train.out=g train.steps=2 checkpoint.also=copies-f", code,
           "checkpoint.also: copies-f already holds checkpoints; resume with "
           "train.resume=auto");
    expect(
        "mkdir g && $L train $C train.out=g train.steps=2 checkpoint.also=g/checkpoints; code=$?; "
        "$L train $C train.out=g/../g train.steps=2 checkpoint.also=g && exit 1; exit $code",
        code, "checkpoint.also: g is in the run's own folder");
    expect("$L train $C train.out=g train.steps=2 checkpoint.also=no/such", ls_exit_code(LS_EIO),
           "checkpoint.also: no/such");
    expect("$L train $C train.out=g train.steps=2 checkpoint.also=s3:/bucket", ls_exit_code(LS_EIO),
           "checkpoint.also: s3:/bucket");
    expect("AWS_ACCESS_KEY_ID= $L train $C train.out=g train.steps=2 checkpoint.also=" BUCKET, code,
           "S3 needs credentials: set AWS_ACCESS_KEY_ID");
    expect("$L train $C train.out=g train.steps=2 checkpoint.also=s3://other/a",
           ls_exit_code(LS_EIO), "HTTP 404 NoSuchBucket");
    expect("mkdir none && touch none/libcurl-gnutls.so.4 none/libcurl.so.4 && LD_LIBRARY_PATH=none "
           "$L train $C train.out=g train.steps=2 checkpoint.also=" BUCKET,
           ls_exit_code(LS_ENOTSUP), "libcurl cannot be loaded: install libcurl3-gnutls");
    expect("LD_LIBRARY_PATH=none $L doctor", 0, "missing: no data from the web or S3");
    assert_false(exists("g/metrics.jsonl"));
    /* Another run's, whose copies stay. */
    expect("$L train $C train.out=first train.steps=2 checkpoint.also=owned " SAVES, 0, "");
    expect("$L train $C train.out=second train.steps=4 " SAVES, 0, "");
    expect(
        "$L train $C train.out=second train.steps=6 train.resume=auto checkpoint.also=owned " SAVES,
        2, "owned holds the copies of another run");
    expect("cp -r first copied; $L train $C train.out=copied train.steps=6 train.resume=auto "
           "checkpoint.also=owned " SAVES,
           2, "owned holds the copies of another run");
    assert_true(exists("owned/step-00000002/manifest.json"));
    /* Not the same run, by the same script: that is there, and may be going on. */
    expect(
        "$L train $C train.out=twin train.steps=6 train.resume=auto checkpoint.also=owned " SAVES,
        code, "/first, or name another place");
    assert_false(exists("twin/start") || exists("twin/checkpoints"));
    /* It may be moved, and once it is lost another folder takes its place. */
    expect("mv first moved && $L train $C train.out=moved train.steps=4 train.resume=auto "
           "checkpoint.also=owned " SAVES " && grep /moved owned/owner",
           0, "/moved\n");
    expect(
        "$L train $C train.out=twin train.steps=6 train.resume=auto checkpoint.also=owned " SAVES,
        code, "/moved, or name another place");
    expect("rm -r moved && $L train $C train.out=twin train.steps=6 train.resume=auto "
           "checkpoint.also=owned " SAVES,
           0, "that of step 4 was fetched from owned");
}

/* The bucket refuses from some request after the start on: the run is what it would have been, and
 * says which copies are missing. When the bucket is back, the run makes up for the last one. */
CASE(test_a_place_that_fails)
{
    enum { AT_THE_START = 8 };
    undisturbed();
    s3_server_fail(server, S3_REFUSE, AT_THE_START, true);
    expect("$L train $C train.out=h train.steps=12 checkpoint.also=" BUCKET "-h " SAVES, 0,
           "the copy of step 12 is missing in " BUCKET "-h: ");
    assert_non_null(strstr(output, "HTTP 403"));
    expect_same_run("whole", "h");
    assert_true(copies("h", "failed") > 0);
    assert_int_equal(copies("h", "done") + copies("h", "failed") + copies("h", "skipped"), 6);
    s3_server_fail(server, S3_SOUND, 0, false);
    assert_int_equal(s3_server_objects(server, "runs/a-h/step-00000012/manifest.json"), 0);
    expect("$L train $C train.out=h train.steps=12 train.resume=auto checkpoint.also=" BUCKET
           "-h " SAVES,
           0, "");
    assert_int_equal(s3_server_objects(server, "runs/a-h/step-00000012/manifest.json"), 1);
    assert_int_equal(s3_server_objects(server, "runs/a-h/step-"), 3);
}

/* A first copy that takes half a second: the others wait or are skipped, the last is made. */
CASE(test_a_place_that_is_slow)
{
    undisturbed();
    s3_server_fail(server, S3_BUSY, 8, false);
    expect("$L train $C train.out=i train.steps=12 train.keep=1 checkpoint.also=" BUCKET
           "-i " SAVES,
           0, "");
    s3_server_fail(server, S3_SOUND, 0, false);
    expect_same_run("whole", "i");
    assert_int_equal(copies("i", "done") + copies("i", "skipped"), 6);
    assert_int_equal(s3_server_objects(server, "runs/a-i/step-00000012/"), 3);
    assert_int_equal(s3_server_objects(server, "runs/a-i/step-"), 3);
}

/* What a run begins from is not its own: no copy of that is due. */
CASE(test_a_run_that_begins_from_another)
{
    undisturbed();
    expect("$L train $C train.out=q train.steps=14 checkpoint.also=copies-q "
           "train.resume=whole " SAVES,
           0, "hash");
    assert_null(strstr(output, "missing"));
    assert_int_equal(copies("q", "failed"), 0);
    assert_int_equal(copies("q", "done"), 1);
}

/* How long a place that was opened last may be slow, and silent. */
static double slow_s, patient_s;

WRAPPED(ls_place_open);
int __wrap_ls_place_open(struct ls_place **out, const char *where,
                         const struct ls_place_options *options, struct ls_error *error)
{
    slow_s = options->net.slow_s;
    patient_s = options->net.patient_s;
    return __real_ls_place_open(out, where, options, error);
}

/* A copy gives up before ranks that wait for it do: also with a limit of few seconds. */
CASE(test_a_copy_waits_less_than_ranks)
{
    static const double cases[][3] = {
        {0, 30, 300}, {600, 30, 300}, {40, 10, 20}, {3, 0.75, 1.5}, {1, 0.25, 0.5}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char limit[64];
        struct second_copy *copy;
        struct ls_error error = {0};
        struct ls_config config;
        ls_config_defaults(&config);
        snprintf(limit, sizeof limit, "comm.timeout_s=%g", cases[i][0]);
        assert_ok(ls_config_set(&config, limit, &error), error);
        assert_ok(ls_config_set(&config, "checkpoint.also=s3://bucket/waits", &error), error);
        assert_ok(ls_config_set(&config, "train.out=waits", &error), error);
        assert_ok(second_copy_open(&copy, &config, NULL, &error), error);
        if (fabs(slow_s - cases[i][1]) > 1e-9 || fabs(patient_s - cases[i][2]) > 1e-9)
            fail_msg("%s: %g and %g s, expected %g and %g", limit, slow_s, patient_s, cases[i][1],
                     cases[i][2]);
        second_copy_close(copy);
    }
}

static int setup(void **state)
{
    server = s3_server_start();
    return corpus_setup(state);
}

static int teardown(void **state)
{
    assert_int_equal(s3_server_faults(server), 0);
    s3_server_stop(server);
    return scratch_teardown(state);
}

SUITE_MAIN(setup, teardown)
