/* Ranks whose hosts have another recipe, or list other stores, do not train: a file more, another
 * length, another order. Each rank here is given a folder of its own. */
#include "../support/examples.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "tokens.h"

#include <lockstep/train.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 3 };

static const char *directory;

static void shell(const char *commands)
{
    char line[1024];
    snprintf(line, sizeof line, "cd '%s' && %s", directory, commands);
    assert_int_equal(system(line), 0);
}

static int set(struct ls_config *config, const char *word, struct ls_error *error)
{
    char full[PATH_MAX];
    snprintf(full, sizeof full, word, directory, directory);
    return ls_config_set(config, full, error);
}

/* What each rank trains on. */
static int train(struct ls_comm *world, void *user, struct ls_error *error)
{
    static const char *const keys[] = {"model.layers=1",  "model.vocab=64",   "model.channels=32",
                                       "model.heads=4",   "model.context=32", "batch.global=6",
                                       "parallel.dp=3",   "train.steps=1",    "parallel.threads=1",
                                       "train.out=%s/run"};
    const char *const *words = user;
    struct ls_config *config = malloc(sizeof *config);
    struct ls_trainer *trainer = NULL;
    assert_non_null(config);
    ls_config_defaults(config);
    char given[1024], *save = NULL;
    int status = LS_OK;
    snprintf(given, sizeof given, "%s", words[ls_comm_rank(world)]);
    for (size_t i = 0; i < sizeof keys / sizeof *keys && !status; i++)
        status = set(config, keys[i], error);
    for (char *word = strtok_r(given, " ", &save); word; word = strtok_r(NULL, " ", &save))
        status = status ? status : set(config, word, error);
    if (!status)
        status = ls_train_resolve(config, error);
    if (!status)
        status = ls_trainer_new(config, world, NULL, &trainer, error);
    ls_trainer_free(trainer);
    free(config);
    return status;
}

static void expect_status(const char *const words[RANKS], int expected, const char *says)
{
    struct ls_error error = {0};
    int status = ls_world_run(RANKS, train, (void *)words, &error);
    if (!says && status)
        fail_msg("%s", error.text);
    if (!says)
        return;
    assert_int_equal(status, expected);
    if (!strstr(error.text, says))
        fail_msg("%s: expected %s", error.text, says);
}

static void expect(const char *const words[RANKS], const char *says)
{
    expect_status(words, says ? LS_EDATA : LS_OK, says);
}

CASE(test_lists_of_one_content)
{
    shell("mkdir a b && cp tokens.bin a/x.bin && cp tokens.bin a/y.bin && cp a/* b/");
    expect((const char *[]){"data.train=u16:%s/a", "data.train=u16:%s/a/", "data.train=u16:%s/b"},
           NULL);
}

#define BLEND(a, b) "data.blend=" a "\tu16:%s/a\t" b "\tu16:%s/b"
#define ENTRY(b)    "data.blend=[{\"source\":\"u16:%s/a\",\"weight\":1," b "}]"

/* Such as of an older file on one host. Sharded state has no copies that would show it. */
CASE(test_another_recipe)
{
    expect_status((const char *[]){"data.train=u16:%s/a", "data.train=u16:%s/a optim.lr=0.5",
                                   "data.train=u16:%s/a"},
                  LS_ECONFIG, "rank 1: the configuration is not the same: rank 0 has optim.lr = ");
    expect_status((const char *[]){"data.train=u16:%s/a optim.lr=0.5", "data.train=u16:%s/a",
                                   "data.train=u16:%s/b"},
                  LS_ECONFIG, "has optim.lr = 0.5, and rank 1 has optim.lr = ");
    expect_status((const char *[]){BLEND("0.7", "0.3"), BLEND("0.3", "0.7"), BLEND("0.7", "0.3")},
                  LS_ECONFIG,
                  "rank 0 has data.blend: entry 0 = source 0, weight 0.7, epochs 0, from_step 0, "
                  "and rank 1 has data.blend: entry 0 = source 0, weight 0.3, ");
    expect_status(
        (const char *[]){ENTRY("\"epochs\":9"), ENTRY("\"epochs\":9"), ENTRY("\"epochs\":8")},
        LS_ECONFIG, "epochs 9, from_step 0, and rank 2 has data.blend: entry 0 = ");
    expect_status((const char *[]){ENTRY("\"epochs\":9"), "data.train=u16:%s/a",
                                   ENTRY("\"from_step\":0,\"epochs\":9")},
                  LS_ECONFIG, "epochs 9, from_step 0, and rank 1 has data.blend: entry 0 = ");
    expect((const char *[]){BLEND("0.7", "0.3"), BLEND("0.7", "0.3"),
                            "data.blend=0.7\tu16:%s/b\t0.3\tu16:%s/a"},
           NULL);
}

/* Ranks would exchange other messages, or not at the same time. What one shows, and how many
 * threads it has, is its own. */
CASE(test_another_layout)
{
    static const struct {
        const char *word, *says;
    } cases[] = {
        {"parallel.zero=3", "rank 0 has parallel.zero = 0, and rank 2 has parallel.zero = 3. "},
        {"batch.micro=2", "rank 2 has batch.micro = 2. Expected one configuration"},
        {"rollout.dp=3", "rank 0 has rollout.dp = 0, and rank 2 has rollout.dp = 3. "},
        {"train.save_every=2",
         "rank 0 has train.save_every = 0, and rank 2 has train.save_every = 2. "},
        {"log.hash_every=2", "rank 0 has log.hash_every = 0, and rank 2 has log.hash_every = 2. "},
        {"log.level=debug", NULL},
        {"parallel.threads=2", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char other[128];
        snprintf(other, sizeof other, "data.train=u16:%%s/a %s", cases[i].word);
        expect_status((const char *[]){"data.train=u16:%s/a", "data.train=u16:%s/a", other},
                      LS_ECONFIG, cases[i].says);
    }
}

/* By it ranks make the groups of workers: they compare it before that. */
CASE(test_another_mode)
{
    static const char *const given[RANKS] = {
        "data.train=u16:%s/a",
        ("data.train=u16:%s/a async.mode=diloco async.workers=2 async.sync_every=1 "
         "parallel.workers=1"),
        "data.train=u16:%s/a"};
    expect_status(given, LS_ECONFIG,
                  "rank 0 has async.mode = none, and rank 1 has async.mode = diloco. ");
}

/* A line is compared as a whole; told is what is around the difference. */
CASE(test_long_values)
{
    char words[2][1024] = {"data.train=u16:%s/a lora.rank=2 lora.targets=", ""};
    while (strlen(words[0]) < 400)
        strcat(words[0], "c_attn,");
    snprintf(words[1], sizeof words[1], "%sc_fc", words[0]);
    strcat(words[0], "c_proj");
    const char *const given[RANKS] = {words[0], words[0], words[1]};
    expect_status(given, LS_ECONFIG, "rank 0 has lora.targets = \"c_attn,c_attn,");
    expect_status(given, LS_ECONFIG, ",c_proj\", and rank 2 has lora.targets = \"c_attn,c_attn,");
    expect_status(given, LS_ECONFIG, ",c_fc\". Expected one configuration");
}

CASE(test_a_file_more)
{
    shell("cp -r a more && cp tokens.bin more/xx.bin");
    expect((const char *[]){"data.train=u16:%s/a", "data.train=u16:%s/a", "data.train=u16:%s/more"},
           "rank 2: the list of stores is not the same: file 2 of rank 0 is y.bin of source 0, ");
    expect((const char *[]){"data.train=u16:%s/a", "data.train=u16:%s/a", "data.train=u16:%s/more"},
           ", and of rank 2 xx.bin of source 0, ");
    shell("mv more/xx.bin more/z.bin");
    expect(
        (const char *[]){"data.train=u16:%s/more", "data.train=u16:%s/a", "data.train=u16:%s/more"},
        "file 3 of rank 0 is z.bin of source 0, ");
    expect(
        (const char *[]){"data.train=u16:%s/more", "data.train=u16:%s/a", "data.train=u16:%s/more"},
        ", and of rank 1 nothing more. Expected the same files on all hosts");
}

CASE(test_another_length)
{
    shell("cp -r a longer && head -c 2 tokens.bin >> longer/y.bin");
    expect(
        (const char *[]){"data.train=u16:%s/a", "data.train=u16:%s/longer", "data.train=u16:%s/a"},
        ", and of rank 1 y.bin of source 0, ");
}

CASE(test_another_order)
{
    expect((const char *[]){"data.train=u16:%s/a/x.bin,u16:%s/a/y.bin",
                            "data.train=u16:%s/a/y.bin,u16:%s/a/x.bin",
                            "data.train=u16:%s/a/x.bin,u16:%s/a/y.bin"},
           "file 1 of rank 0 is x.bin of source 0, ");
}

/* The rank would divide the loss by another sum. */
CASE(test_weights_of_one_host)
{
    char make[300];
    struct ls_prepare_report report = examples_prepare(
        directory, "e",
        "{\"prompt\": \"is it?\", \"completion\": \"it is, and it was so before\"}\n");
    snprintf(make, sizeof make,
             "mkdir none some && cp e_train.bin e_train.idx none && cp none/* some && "
             "head -c %lld /dev/zero > some/e_train.weights",
             4 * (long long)report.train.tokens);
    shell(make);
    expect((const char *[]){"data.train=%s/none/e_train", "data.train=%s/some/e_train",
                            "data.train=%s/none/e_train"},
           "rank 1 e_train.bin of source 0, ");
    expect((const char *[]){"data.train=%s/some/e_train", "data.train=%s/some/e_train",
                            "data.train=%s/none/e_train"},
           "with weights, and of rank 2 e_train.bin of source 0, ");
}

static int setup(void **state)
{
    int failed = tokens_setup(state);
    directory = *state;
    return failed;
}

SUITE_MAIN(setup, scratch_teardown)
