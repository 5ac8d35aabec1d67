/* What a run asks of its machine is refused before it is taken: threads and memory that are not
 * there. */
#include "../support/config_words.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "tokens.h"

#include <lockstep/compare.h>

#include <stdio.h>
#include <string.h>

#define TINY                                                                                       \
    "model.vocab=50 model.layers=3 model.channels=32 model.heads=4 model.context=32 "              \
    "batch.global=8 parallel.threads=1 "
/* More than any address space. */
#define HUGE TINY "model.layers=200 model.channels=32768 model.heads=4096 model.ffn=4194304 "

static struct ls_config config_of(const char *directory, const char *keys)
{
    return config_of_words("data.train=u16:%s/tokens.bin %s", directory, keys);
}

/* One step of it. */
static int train(const char *directory, const char *keys, struct ls_error *error)
{
    struct ls_config config = config_of(directory, keys);
    struct ls_proof proof[1];
    return ls_proof_threads(&config, 1, proof, error);
}

static void refused(const char *directory, const char *keys, int status, const char *words)
{
    struct ls_error error = {0};
    int got = train(directory, keys, &error);
    if (got != status || !strstr(error.text, words))
        fail_msg("%s\ngave %s: %s\nexpected %s: %s", keys, ls_status_name(got), error.text,
                 ls_status_name(status), words);
}

CASE_WITH(test_more_threads_than_make_sense, tokens_setup, scratch_teardown)
{
    struct ls_error error = {0};
    char keys[400], words[200];
    int cores = ls_device_cores_online(), most = ls_device_threads_max();
    assert_in_range(most, cores, 4 * cores);
    snprintf(words, sizeof words, "parallel.threads = %d: this machine has %d core", most + 1,
             cores);
    snprintf(keys, sizeof keys, TINY "parallel.threads=%d", most + 1);
    refused(*state, keys, LS_ELAYOUT, words);
    snprintf(words, sizeof words, "at most %d threads", most);
    refused(*state, keys, LS_ELAYOUT, words);
    snprintf(keys, sizeof keys, TINY "parallel.threads=%d", most);
    assert_ok(train(*state, keys, &error), error);
}

CASE_WITH(test_more_memory_than_there_is, tokens_setup, scratch_teardown)
{
    refused(*state, HUGE, LS_ELAYOUT, "1 rank on this machine would take ");
    refused(*state, HUGE "parallel.pp=3 parallel.dp=2 batch.micro=1", LS_ELAYOUT,
            "6 ranks on this machine would take ");
    refused(*state, HUGE, LS_ELAYOUT, "memory.overcommit=true starts anyway");
    /* Then the system refuses. */
    refused(*state, HUGE "memory.overcommit=true", LS_ENOMEM, "cannot reserve ");
}

/* All ranks count, each with its own stage's plan. */
CASE_WITH(test_the_sum_of_all_ranks, tokens_setup, scratch_teardown)
{
    struct ls_config config =
        config_of(*state, TINY "parallel.pp=3 parallel.dp=2 parallel.tp=2 batch.micro=1");
    static struct ls_layout layout;
    struct ls_error error = {0};
    struct ls_memory_fit fit;
    int64_t sum = 0;
    assert_int_equal(ls_config_layout(&config, 0, &layout, &error), LS_OK);
    for (int64_t rank = 0; rank < layout.ranks; rank++) {
        struct ls_memory_plan plan;
        assert_int_equal(ls_plan_rank(&config, &layout, rank, &plan, &error), LS_OK);
        sum += (int64_t)plan.total;
    }
    assert_int_equal(ls_memory_fit(&config, &layout, NULL, &fit, &error), LS_OK);
    assert_int_equal(fit.ranks, 12);
    assert_int_equal(fit.bytes, sum);
    assert_int_equal(ls_memory_fits(&fit), LS_FITS);
}

/* Three snapshots of the whole state, of all its ranks. */
CASE_WITH(test_snapshots_count, tokens_setup, scratch_teardown)
{
    const char *const keys[] = {TINY "parallel.dp=2 parallel.zero=1", TINY "parallel.pp=3"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        struct ls_config config = config_of(*state, keys[i]);
        static struct ls_layout layout;
        struct ls_error error = {0};
        struct ls_memory_fit without, with;
        struct ls_state_files files;
        assert_int_equal(ls_config_layout(&config, 0, &layout, &error), LS_OK);
        assert_int_equal(ls_memory_fit(&config, &layout, NULL, &without, &error), LS_OK);
        config.snapshot.every = 5;
        assert_int_equal(ls_memory_fit(&config, &layout, NULL, &with, &error), LS_OK);
        assert_int_equal(ls_state_file_bytes(&config, &layout, &files, &error), LS_OK);
        assert_int_equal(with.snapshots, 3 * (files.model + files.optimizer));
        assert_int_equal(with.bytes, without.bytes + with.snapshots);
    }
}

/* One copy of the state, where saves are written beside steps. */
CASE_WITH(test_saves_count, tokens_setup, scratch_teardown)
{
    static const struct {
        const char *keys;
        bool counts;
    } cases[] = {{"train.save_every=5 checkpoint.async=auto", true},
                 {"train.save_every=5 checkpoint.async=true parallel.dp=2", true},
                 {"train.save_every=5", false},
                 {"", false},
                 {"train.save_every=5 snapshot.every=auto", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char keys[400];
        snprintf(keys, sizeof keys, TINY "%s", cases[i].keys);
        struct ls_config config = config_of(*state, keys);
        static struct ls_layout layout;
        struct ls_error error = {0};
        struct ls_memory_fit without, with;
        struct ls_state_files files;
        assert_int_equal(ls_config_layout(&config, 0, &layout, &error), LS_OK);
        assert_int_equal(ls_memory_fit(&config, &layout, NULL, &with, &error), LS_OK);
        config.train.save_every = 0;
        assert_int_equal(ls_memory_fit(&config, &layout, NULL, &without, &error), LS_OK);
        assert_int_equal(ls_state_file_bytes(&config, &layout, &files, &error), LS_OK);
        assert_int_equal(with.saves, cases[i].counts ? files.model + files.optimizer : 0);
        assert_int_equal(with.bytes, without.bytes + with.saves);
    }
}

/* Each change that is named was planned: with its keys the ranks take what it says. */
static void changes_check(const struct ls_config *config, double share, int least)
{
    static struct ls_layout layout, other;
    struct ls_error error = {0};
    struct ls_memory_fit fit;
    struct ls_memory_change changes[LS_MEMORY_CHANGES_MAX];
    assert_int_equal(ls_config_layout(config, 0, &layout, &error), LS_OK);
    assert_int_equal(ls_memory_fit(config, &layout, NULL, &fit, &error), LS_OK);
    int64_t limit = (int64_t)(share * (double)fit.bytes);
    int count = ls_memory_changes(config, &layout, NULL, limit, changes);
    assert_in_range(count, least, LS_MEMORY_CHANGES_MAX);
    for (int i = 0; i < count; i++) {
        struct ls_config changed = *config;
        char keys[800], *save = NULL;
        snprintf(keys, sizeof keys, "%s", changes[i].keys);
        for (char *word = strtok_r(keys, " ", &save); word; word = strtok_r(NULL, " ", &save))
            assert_ok(ls_config_set(&changed, word, &error), error);
        if (ls_config_layout(&changed, 0, &other, &error) ||
            ls_memory_fit(&changed, &other, NULL, &fit, &error))
            fail_msg("%s: %s", changes[i].keys, error.text);
        assert_int_equal(fit.bytes, changes[i].bytes);
        assert_true(fit.bytes <= limit);
    }
    if (least == 0)
        assert_int_equal(count, 0);
}

CASE_WITH(test_changes_that_would_fit, tokens_setup, scratch_teardown)
{
    static const char *const layouts[] = {"", "parallel.dp=4 ", "parallel.dp_replicate=4 ",
                                          "parallel.dp_shard=4 parallel.zero=1 ",
                                          "parallel.pp=2 parallel.dp=2 "};
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        char keys[400];
        snprintf(keys, sizeof keys,
                 "model.preset=gpt2-124m model.vocab=50257 data.sequence=1024 batch.global=32 "
                 "batch.micro=8 %s",
                 layouts[i]);
        struct ls_config config = config_of(*state, keys);
        changes_check(&config, 0.95, 2);
        changes_check(&config, 0.75, 1);
        changes_check(&config, 0.01, 0);
    }
}

/* A budget for each rank's device is a limit of its own: what is offloaded does not count. */
CASE_WITH(test_a_budget, tokens_setup, scratch_teardown)
{
    static struct ls_layout layout;
    struct ls_error error = {0};
    struct ls_memory_fit fit;
    struct ls_memory_change changes[LS_MEMORY_CHANGES_MAX];
    struct ls_config config =
        config_of(*state, "model.preset=gpt2-124m model.vocab=50257 data.sequence=1024 "
                          "batch.global=32 batch.micro=1 memory.device_budget=2GiB");
    assert_int_equal(ls_config_layout(&config, 0, &layout, &error), LS_OK);
    assert_int_equal(ls_memory_fit(&config, &layout, NULL, &fit, &error), LS_OK);
    assert_false(ls_memory_keeps_budget(&config, &fit));
    assert_int_equal(fit.rank_bytes, fit.bytes);
    int count = ls_memory_changes(&config, &layout, NULL, 0, changes);
    assert_in_range(count, 1, LS_MEMORY_CHANGES_MAX);
    for (int i = 0; i < count; i++) {
        assert_non_null(strstr(changes[i].keys, "memory.offload.optimizer=host"));
        assert_true(changes[i].bytes <= INT64_C(2) << 30);
    }
    refused(*state,
            "model.preset=gpt2-124m model.vocab=50257 data.sequence=1024 batch.global=32 "
            "batch.micro=1 memory.device_budget=2GiB ",
            LS_ELAYOUT, "enough would be memory.offload.optimizer=host");
    refused(*state, TINY "memory.device_budget=64KiB ", LS_ELAYOUT, "use more ranks");
}

CASE(test_what_fits)
{
    const struct {
        int64_t bytes, total, free;
        enum ls_fit want;
    } cases[] = {{10, 20, 10, LS_FITS},         {11, 20, 10, LS_FITS_NOT_NOW},
                 {20, 20, 10, LS_FITS_NOT_NOW}, {21, 20, 10, LS_FITS_NOT},
                 {21, 0, 0, LS_FITS},           {21, 20, 0, LS_FITS_NOT}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_memory_fit fit = {.bytes = cases[i].bytes,
                                    .machine = {.total = cases[i].total, .free = cases[i].free}};
        assert_int_equal(ls_memory_fits(&fit), cases[i].want);
    }
}

/* What the system says of itself. */
CASE(test_the_memory_of_this_machine)
{
    struct ls_device_memory memory = ls_device_memory();
    assert_true(memory.installed > 1 << 20);
    assert_in_range(memory.available, 1 << 20, memory.installed);
    assert_in_range(memory.total, memory.free, memory.installed);
    if (memory.group)
        assert_true(memory.total <= memory.group && memory.free <= memory.group);
}

SUITE_MAIN(NULL, NULL)
