/* What runs with workers admit (async.mode). Features are values of the configuration's own table
 * of keys; each key of it gives some, or is listed with the reason why it gives none. In every mode
 * a feature is refused, by its own key and one of async's, or it is admitted: then one rank that
 * computes all workers, a rank or more for each worker in the feature's layout, and a run that
 * stops at a meeting and goes on in that layout, give the same bits. What is refused is listed.
 *
 * Broken twin: a feature that is admitted and changes bits. */
#include "../support/examples.h"
#include "../support/extent.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/wrapped.h"
#include "tokens.h"
#include "train/workers_private.h"
#include "workers_run.h"

#include <lockstep/base/file.h>
#include <lockstep/base/words.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- modes ----------------------------------------------------------------------------------- */

#define SERVER "async.mode=server async.sync_every=3 "
static const struct mode {
    const char *name, *words;
    bool clock; /* one run decides the order, the others follow it */
} modes[] = {
    {"diloco", "async.mode=diloco async.sync_every=3", false},
    {"streaming", "async.mode=diloco async.sync_every=6 async.fragments=2 async.delay=1", false},
    {"bounded", SERVER "async.times=1,3 async.staleness=1", false},
    {"free", SERVER "async.times=1,3", false},
    {"clock", SERVER "async.order=clock", true},
};
enum { MODES = sizeof modes / sizeof *modes, ALL = (1 << MODES) - 1, SERVERS = 7 << 2 };
static const char none[] = "async.mode=none async.workers=1 async.sync_every=100";

/* ---- features -------------------------------------------------------------------------------- */

/* Features of keys that are no words and no switches; "key=value", and what it needs. @ is the
 * test's directory, # the run's number. */
static const char *const features[] = {
    "model.dropout=0.1",
    "data.blend",
    "batch.micro=1",
    "batch.rampup_start=1 batch.rampup_increment=1 batch.rampup_samples=4",
    "optim.lr=0.01",
    "optim.clip=0",
    "optim.clip=0.01",
    "optim.weight_decay=0",
    "optim.warmup_steps=2",
    "optim.decay_steps=5",
    "optim.momentum=0 optim.name=sgd",
    "optim.adamw_lr=0.01 optim.name=muon",
    "lora.rank=2",
    "lora.targets=c_attn lora.rank=2",
    "numerics.leaf_sequences=2",
    "numerics.seq_tiles=2 parallel.cp=2 data.sequence=256 model.context=256",
    "numerics.loss_scale=64 numerics.precision=fp16",
    "numerics.initial_scale_power=26 numerics.precision=fp16",
    "parallel.servers=1",
    "parallel.pp=2",
    "parallel.dp=2",
    "parallel.dp_replicate=2 parallel.dp_shard=2 parallel.zero=1 batch.global=4",
    "parallel.dp_shard=2",
    "parallel.tp=2",
    "parallel.zero=1 parallel.dp=2",
    "parallel.zero=2 parallel.dp=2",
    "parallel.zero=3 parallel.dp=2",
    "parallel.chunks=2 parallel.schedule=interleaved parallel.pp=2",
    "parallel.split=0-1,2-4 parallel.pp=2",
    "parallel.prefetch=0 parallel.zero=3 parallel.dp=2",
    "parallel.persist=64 parallel.zero=3 parallel.dp=2",
    "parallel.tp_overlap=2 parallel.tp=2",
    "memory.recompute=full",
    "memory.recompute=selective",
    "memory.recompute=every:2",
    "memory.recompute=sqrt",
    "memory.recompute=0-1",
    "memory.device_budget=1GiB",
    "comm.bucket_mb=1 parallel.dp=2",
    "train.frozen=wte.*,h.0.*",
    "train.extend=3",
    "train.save_every=2",
    "train.keep=1 train.save_every=3",
    "snapshot.every=1",
    "checkpoint.also=@/also#",
    "eval.every=2",
    "sample.every=2 data.train=@/some_train data.valid= model.vocab=260",
    "check.replay=1 parallel.dp=2",
    "log.drift_every=2 parallel.dp=2",
};

/* Values that words and switches need more for. */
static const char *const needs[][2] = {
    {"data.packing=documents", "data.train=@/some_train data.valid= model.vocab=260 "
                               "data.sequence=64 model.context=64"},
    {"optim.nesterov=", "optim.name=sgd"},
    {"optim.muon_scale=", "optim.name=muon"},
    {"optim.schedule=wsd", "optim.cooldown_steps=2"},
    {"optim.schedule=inverse_sqrt", "optim.warmup_steps=1"},
    {"lora.base=", "lora.rank=2 model.channels=64 model.heads=2 model.head_dim=64 model.ffn=256"},
    {"numerics.arithmetic=bf16_pairs", "numerics.precision=bf16"},
    {"numerics.consecutive_hysteresis=", "numerics.precision=fp16"},
    {"parallel.sp=", "parallel.tp=2"},
    {"parallel.schedule=", "parallel.pp=2"},
    {"parallel.schedule=dualpipev", "batch.global=4"},
    {"parallel.cp_method=",
     "parallel.cp=2 numerics.seq_tiles=2 data.sequence=256 model.context=256"},
    {"parallel.reshard_after_forward=", "parallel.zero=3 parallel.dp=2"},
    {"memory.partition_activations=", "memory.recompute=full parallel.tp=2"},
    {"memory.offload.optimizer=", "memory.file=@"},
    {"memory.offload.gradients=", "memory.file=@"},
    {"memory.offload.parameters=", "memory.file=@"},
    {"memory.offload.activations=", "memory.file=@"},
    {"train.keep_best=", "eval.every=3"},
    {"checkpoint.async=", "train.save_every=2"},
};

/* Keys, groups and values that are no features here. */
static const char *const others[][2] = {
    {"model.", "workers never look into a model: its shapes are compared in test/invariance"},
    {"async.", "that is the modes; test_workers and test_server have its other keys"},
    {"launch.", "of the program that starts jobs"},
    {"rollout.", "who generates asks for it, and no worker does (test/python/test_run.py)"},
    {"data.train data.valid data.changed data.tokenizer data.cache.dir data.cache.size "
     "data.sequence data.seed batch.global",
     "the same to every mode, and what all runs here have"},
    {"data.packing=best_fit", "needs the list that lockstep data pack writes; else as documents"},
    {"optim.beta1 optim.beta2 optim.epsilon optim.ns_steps optim.min_ratio optim.cooldown_steps",
     "numbers of ops that see one parameter of one worker"},
    {"lora.alpha lora.from", "a number of one op; initial weights"},
    {"numerics.mode numerics.reduce", "fast promises no bits"},
    {"numerics.isa", "what a machine has; all give the same bits (test/ops)"},
    {"numerics.tp_tiles numerics.loss_scale_window numerics.hysteresis numerics.min_loss_scale",
     "numbers of what tensor parallelism and the loss scale have above"},
    {"parallel.workers parallel.cp parallel.threads", "in every layout here, or with seq_tiles"},
    {"parallel.schedule=csv parallel.schedule_file", "a schedule by another way"},
    {"memory.offload.optimizer_ratio memory.offload.gradients_ratio "
     "memory.offload.parameters_ratio memory.offload.activations_ratio memory.file",
     "shares and the place of what is offloaded above"},
    {"comm.transport comm.timeout_s", "ranks are threads here; test_workers_rescue has processes"},
    {"train.steps train.out train.resume train.resume_else train.plan", "in every run here"},
    {"snapshot.failures snapshot.replicas snapshot.folder", "of snapshot.every"},
    {"eval.samples sample.prompt sample.tokens sample.temperature sample.top_k sample.top_p",
     "of eval.every and sample.every"},
    {"log.hash_every log.progress log.level", "in every run here; what a terminal shows"},
};

/* What is refused, in which modes. */
static const struct {
    const char *word;
    unsigned modes;
} refused[] = {
    {"batch.rampup_start=1", SERVERS},
    {"parallel.servers=1", 3},
    {"parallel.auto=true", ALL},
    {"checkpoint.async=true", ALL},
    {"memory.offload.gradients=host", SERVERS},
    {"memory.offload.gradients=file", SERVERS},
};

static bool begins(const char *text, const char *with)
{
    return !strncmp(text, with, strlen(with));
}

/* Whether the key, or the word "key=value", is among the others. */
static bool is_other(const char *word)
{
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char names[600], *save = NULL;
        snprintf(names, sizeof names, "%s", others[i][0]);
        for (char *name = strtok_r(names, " ", &save); name; name = strtok_r(NULL, " ", &save))
            if (name[strlen(name) - 1] == '.' ? begins(word, name) : !strcmp(word, name))
                return true;
    }
    return false;
}

/* Whether a feature of the list sets the key, `first` of all. */
static bool is_listed(const char *key, bool first)
{
    for (size_t i = 0; i < sizeof features / sizeof *features; i++) {
        const char *at = strstr(features[i], key);
        if (at && (at == features[i] || !first) && strchr("= ", at[strlen(key)]))
            return true;
    }
    return false;
}

/* A feature: its first word is it, the others are what it needs. */
enum { WORDS_BYTES = 400, FEATURES_MAX = 160 };
static char list[FEATURES_MAX][WORDS_BYTES];
static int count;

static void feature_add(const char *format, const char *key, const char *value)
{
    char word[WORDS_BYTES];
    snprintf(word, sizeof word, format, key, value);
    if (is_other(word))
        return;
    assert_true(count < FEATURES_MAX);
    size_t used = (size_t)snprintf(list[count], WORDS_BYTES, "%s", word);
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
        if (begins(word, needs[i][0]))
            snprintf(list[count] + used, WORDS_BYTES - used, " %s", needs[i][1]);
    count++;
}

static void key_add(const struct ls_config_key *key)
{
    if (is_other(key->name) || is_listed(key->name, true))
        return;
    if (key->type == LS_CONFIG_BOOL)
        feature_add("%s=%s", key->name, strcmp(key->initial, "true") ? "true" : "false");
    else if (key->type == LS_CONFIG_WORD)
        for (const struct ls_word *word = key->words; word->word; word++) {
            if (strcmp(word->word, key->initial) && strcmp(word->word, "auto"))
                feature_add("%s=%s", key->name, word->word);
        }
    else if (!is_listed(key->name, false))
        fail_msg("%s is a new key: list a feature of it here, or why it is none", key->name);
}

static void features_make(void)
{
    if (count)
        return;
    for (size_t i = 0; i < sizeof features / sizeof *features; i++)
        feature_add("%s%s", features[i], "");
    for (const struct ls_config_key *key = ls_config_keys(NULL); key->name; key++)
        key_add(key);
}

/* ---- one feature in one mode ----------------------------------------------------------------- */

static const char *directory;
static int run_number;

/* The words of a feature that are recipe, or the others: those of a layout and a run change no
 * bits. */
static void words_part(const char *feature, bool recipe, int run, char words[1024])
{
    char text[WORDS_BYTES], *save = NULL;
    size_t used = 0;
    snprintf(text, sizeof text, "%s", feature);
    words[0] = '\0';
    for (char *word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(word, "="), word);
        bool bits = ls_config_key_of(name)->part == LS_CONFIG_RECIPE || begins(name, "data.") ||
                    !strcmp(name, "train.extend"); /* a log that is followed has all steps */
        if (!strcmp(word, "data.blend") || bits != recipe)
            continue;
        for (const char *from = word; *from && used < 1000; from++)
            used += (size_t)(*from == '@'   ? snprintf(words + used, 1024 - used, "%s", directory)
                             : *from == '#' ? snprintf(words + used, 1024 - used, "%d", run)
                                            : snprintf(words + used, 1024 - used, "%c", *from));
        words[used++] = ' ';
        words[used] = '\0';
    }
}

static bool blends(const char *feature)
{
    return begins(feature, "data.blend");
}

/* The feature's recipe in the mode, with a layout behind it; the run has that number. */
static int config_try(struct ls_config *config, struct ls_error *error, const char *mode,
                      const char *feature, const char *layout, int run)
{
    char words[5000], recipe[1024];
    words_part(feature, true, 0, recipe);
    snprintf(words, sizeof words,
             "%sasync.workers=2 parallel.workers=1 numerics.leaf_sequences=1 train.save_every=0 "
             "train.out=%s/t%d %s %s %s",
             blends(feature) ? "blend " : "", directory, run, mode, recipe, layout);
    return workers_config_try(config, error, directory, words);
}

enum outcome { EQUAL, REFUSED, REFUSED_ELSEWHERE, DIFFERENT, FAILED, OUTCOMES };
static const char *const outcome_names[OUTCOMES] = {"equal", "refused", "badly refused",
                                                    "different", "failed"};

struct trial {
    enum outcome outcome;
    char text[1200];
};

static void trial_end(struct trial *trial, enum outcome outcome, const char *what, const char *text)
{
    trial->outcome = outcome;
    snprintf(trial->text, sizeof trial->text, "%s: %.1000s", what, text);
}

/* It may be refused where the layout is known, too. */
static void refusal_judge(struct trial *trial, const char *feature, const char *what,
                          const struct ls_error *error)
{
    char key[64];
    snprintf(key, sizeof key, "%.*s", (int)strcspn(feature, "= "), feature);
    bool by_name = strstr(error->text, key) && strstr(error->text, "async.");
    bool refusal = error->code == LS_ECONFIG || error->code == LS_ELAYOUT;
    trial_end(trial, !refusal ? FAILED : by_name ? REFUSED : REFUSED_ELSEWHERE, what, error->text);
}

#define SERVED "parallel.workers=2 parallel.servers=1"
enum { HALF = 3 };
/* Runs that must be alike; but for the first one in the feature's layout. By the clock that one
 * decides the order. */
static const struct plan {
    const char *what, *groups;
    int steps, folder;
} plans[] = {
    {"one rank", "parallel.workers=1", WORKERS_STEPS_MAX, 0},
    {"a group a worker", "parallel.workers=2", WORKERS_STEPS_MAX, 1},
    {"stopped", "parallel.workers=1", HALF, 2},
    {"resumed", "parallel.workers=2", WORKERS_STEPS_MAX, 2},
};
enum { PLANS = sizeof plans / sizeof *plans, RESUMED = PLANS - 1 };

static void trial_run(struct trial *trial, const struct mode *mode, const char *feature)
{
    static struct workers_run runs[PLANS];
    char beside[1024], layout[2048], follow[700] = "";
    bool servers = strstr(feature, "parallel.servers=1");
    *trial = (struct trial){0};
    for (int i = 0; i < PLANS && trial->outcome == EQUAL; i++) {
        const struct plan *plan = &plans[i];
        struct ls_error error = {0};
        const char *groups = servers || (mode->clock && i == 0) ? SERVED : plan->groups;
        words_part(feature, false, run_number + plan->folder, beside);
        snprintf(layout, sizeof layout, "%s %s %s %s", i ? beside : "", groups, i ? follow : "",
                 i == RESUMED ? "train.resume=auto" : "");
        runs[i] = (struct workers_run){.whole = true, .steps = plan->steps};
        if (config_try(&runs[i].config, &error, mode->words, feature, layout,
                       run_number + plan->folder))
            refusal_judge(trial, feature, plan->what, &error);
        else if (workers_run(&runs[i]))
            refusal_judge(trial, feature, plan->what, &runs[i].error);
        if (trial->outcome != EQUAL)
            return;
        const char *difference = i ? workers_difference(&runs[0], &runs[i]) : NULL;
        if (difference)
            trial_end(trial, DIFFERENT, plan->what, difference);
        if (i == RESUMED && runs[i].first != HALF)
            trial_end(trial, FAILED, plan->what, "it did not go on from the meeting");
        if (mode->clock)
            snprintf(follow, sizeof follow, "async.follow=%s/t%d", directory, run_number);
    }
}

static struct trial trial_of(const struct mode *mode, const char *feature)
{
    struct trial trial;
    char path[700];
    trial_run(&trial, mode, feature);
    for (int i = 0; i < PLANS; i++, run_number++) {
        snprintf(path, sizeof path, "%s/t%d", directory, run_number);
        ls_directory_remove(path);
    }
    return trial;
}

static bool is_refused(int mode, const char *feature)
{
    size_t length = strcspn(feature, " ");
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (strlen(refused[i].word) == length && begins(feature, refused[i].word))
            return refused[i].modes >> mode & 1;
    return false;
}

/* ---- twin ------------------------------------------------------------------------------------ */

/* A group of several forgets which samples of a step come before its worker's: dropout reads it. */
static bool forgets;
WRAPPED(workers_shift);
int64_t __wrap_workers_shift(const struct workers *w, int64_t batch)
{
    return forgets && w->groups > 1 ? 0 : __real_workers_shift(w, batch);
}

/* ---- cases ----------------------------------------------------------------------------------- */

static void setup_examples(void)
{
    enum { EXAMPLES = 60 };
    char lines[EXAMPLES * 160], *at = lines;
    for (int i = 0; i < EXAMPLES; i++)
        at += sprintf(at, "{\"prompt\": \"%.*s\", \"completion\": \"%0*d\"}\n", 1 + i * 37 % 50,
                      "What does the machine under the table in the hall say?", 1 + i * 17 % 40, i);
    examples_prepare(directory, "some", lines);
}

static int setup(void **state)
{
    setenv("LOCKSTEP_PEAK_FLOPS", "1e12", 0);
    if (workers_setup(state))
        return -1;
    directory = *state;
    setup_examples();
    features_make();
    return 0;
}

/* A feature that a run without workers refuses would be no feature. */
CASE(test_each_feature_is_one_of_runs_without_workers)
{
    (void)state;
    for (int f = 0; f < count; f++) {
        struct ls_config config;
        struct ls_error error = {0};
        char beside[1024];
        words_part(list[f], false, 0, beside);
        if (begins(list[f], "parallel.servers"))
            continue;
        if (config_try(&config, &error, none, list[f], beside, 0))
            fail_msg("%s: %s", list[f], error.text);
    }
}

CASE(test_a_feature_is_refused_or_gives_the_same_bits)
{
    (void)state;
    int every = check_every(211, 157), counts[MODES][OUTCOMES] = {{0}}, wrong = 0;
    for (int i = 0; i < MODES * count; i++) {
        int m = i % MODES, f = i / MODES;
        bool refuses = is_refused(m, list[f]); /* at no cost */
        if (i % every && !refuses)
            continue;
        struct trial trial = trial_of(&modes[m], list[f]);
        enum outcome expected = refuses ? REFUSED : EQUAL;
        counts[m][trial.outcome]++;
        if (trial.outcome == expected)
            continue;
        wrong++;
        printf("%s, %s: %s, expected %s: %s\n", modes[m].name, list[f],
               outcome_names[trial.outcome], outcome_names[expected], trial.text);
    }
    printf("%-10s", "");
    for (int o = 0; o < OUTCOMES; o++)
        printf(" %14s", outcome_names[o]);
    for (int m = 0; m < MODES; m++) {
        printf("\n%-10s", modes[m].name);
        for (int o = 0; o < OUTCOMES; o++)
            printf(" %14d", counts[m][o]);
    }
    printf("\n%d features in all\n", count);
    assert_int_equal(wrong, 0);
}

/* State of workers in a tier, more of it than the list has at once, in every mode. */
CASE(test_offloaded_state_gives_the_same_bits)
{
#define FILES " memory.file=@"
    static const char *const offloads[] = {
        "memory.offload.optimizer=file" FILES,
        "memory.offload.parameters=host parallel.zero=3 parallel.dp=2 numerics.precision=bf16",
        "memory.offload.optimizer=host memory.offload.parameters=file parallel.zero=3 "
        "parallel.dp=2 numerics.precision=bf16 optim.name=muon" FILES,
        "memory.offload.optimizer=host memory.offload.optimizer_ratio=0.5 lora.rank=2 "
        "numerics.precision=fp16 async.compensation=2",
        "memory.offload.gradients=host memory.offload.optimizer=host "
        "memory.offload.parameters=host "
        "parallel.dp_shard=2 parallel.zero=3 optim.moments=bf16 async.mixing=0.5",
        "memory.offload.gradients=file parallel.pp=2 async.delta=int8" FILES,
    };
    (void)state;
    size_t here[2], there[2];
    for (int away = 0; away < 2; away++) {
        struct ls_config config;
        struct ls_layout layout;
        struct ls_memory_plan plan;
        struct ls_error error = {0};
        const char *tier = away ? "memory.offload.optimizer=host" : "";
        assert_ok(config_try(&config, &error, modes[0].words, "", tier, 0), error);
        assert_ok(ls_config_layout(&config, 0, &layout, &error), error);
        assert_ok(ls_plan_rank(&config, &layout, 0, &plan, &error), error);
        here[away] = plan.total;
        there[away] = plan.tiers[LS_TIER_HOST];
    }
    assert_true(here[1] < here[0] && there[1] > there[0]);
    for (size_t i = 0; i < sizeof offloads / sizeof *offloads; i++)
        for (int m = 0; m < MODES; m++) {
            bool diloco = m < 2, server = strstr(offloads[i], "compensation");
            bool skips = strstr(offloads[i], "gradients") ? !diloco : server && diloco;
            if (skips || !check_pair((int)i, m, 3))
                continue;
            struct trial trial = trial_of(&modes[m], offloads[i]);
            if (trial.outcome != EQUAL)
                fail_msg("%s, %s: %s: %s", modes[m].name, offloads[i], outcome_names[trial.outcome],
                         trial.text);
        }
}

/* Twin: the others are not touched by it. */
CASE(test_a_feature_that_changes_bits_is_seen)
{
    (void)state;
    forgets = true;
    struct trial twin = trial_of(&modes[0], "model.dropout=0.1");
    struct trial other = trial_of(&modes[0], "parallel.tp=2");
    forgets = false;
    assert_int_equal(twin.outcome, DIFFERENT);
    if (other.outcome != EQUAL)
        fail_msg("%s", other.text);
}

SUITE_MAIN(setup, scratch_teardown)
