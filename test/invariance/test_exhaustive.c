/* What is admitted runs: every layout of 1 to 4 ranks of small recipes, and not a sample of them.
 *
 *   test_exhaustive                   one in 720 of what is admitted, with CHECK=all one in 6
 *   test_exhaustive EVERY [RECIPE]    one in EVERY, of one of the recipes alone
 *
 * Exhaustive is the product of all axes (pp x dp_replicate x dp_shard x cp x tp = 1 to 4 ranks),
 * zero 0 to 3, sp on and off, every schedule with its chunks, every size of a micro-batch up to a
 * rank's share (those that do not divide it too), and both methods of cp. The other keys are drawn
 * for each of these layouts; then, but for `make check`, every pair of keys that is still missing
 * and that a recipe admits is run as well (ls_compare_draw).
 *
 * What the resolver admits has to be proved (ls_layout_check), to run, and to repeat the loss and
 * the state's hash of one rank, bit for bit: one step, or with a ramp-up the steps in which the
 * batch grows. What it refuses has to be refused with a text, by the resolver and by the trainer,
 * before a step is made. Broken twins, one of them ranks that take each other's leaves, must be
 * caught. */
#include "../support/cover.h"
#include "../support/extent.h"
#include "recipes.h"
#include "twins.h"

#include <lockstep/compare.h>
#include <lockstep/train/recorded.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS_MAX = 4, STEPS_MAX = 3, SMALL = 14, FAILED_MAX = 20 };

#define COMMON                                                                                     \
    "model.vocab=300", "model.vocab_multiple=16", "model.channels=32", "model.heads=4",            \
        "model.ffn=64", "numerics.tp_tiles=4", "numerics.arithmetic=fma", "optim.lr=1e-2",         \
        "optim.clip=0.5", "train.steps=64", "log.tensorboard=false", "log.progress=off"
#define THREE  "model.channels=48", "model.ffn=96", "model.vocab_multiple=48"
#define BLOCKS "model.channels=64", "model.head_dim=32", "model.ffn=128"
#define PAIRS  "numerics.arithmetic=bf16_pairs"
#define SHORT  COMMON, "model.layers=6", "model.context=16", "data.sequence=16"

/* With 12 leaves micro-batches of 8 leave a smaller one behind; leaves of several sequences have
 * parts, the last of which may be smaller. Long sequences are for cp, and have fewer layers. An
 * adapter's B begins with zeros: its A is trained from the second step on. Over a base in few bits
 * products of 16 rows do not pack it, larger ones do; 4 ranks of tp would cut its blocks. */
static const struct small {
    const char *name;
    int64_t steps;
    const char *keys[26];
} smalls[SMALL] = {
    {"gpt2, 12 sequences", 1, {SHORT, PAIRS, "model.arch=gpt2", "batch.global=12"}},
    {"gpt2, 4 to 12 sequences",
     3,
     {SHORT, "model.arch=gpt2", "batch.global=12", "batch.rampup_start=4",
      "batch.rampup_increment=4", "batch.rampup_samples=8"}},
    {"llama, 8 sequences",
     1,
     {SHORT, "model.arch=llama", "model.kv_heads=2", "numerics.precision=fp32", "batch.global=8"}},
    {"gpt2, 3 parts of a sequence, 2 to 4 sequences",
     2,
     {COMMON, PAIRS, "model.arch=gpt2", "model.layers=2", "model.context=384", "data.sequence=384",
      "numerics.seq_tiles=3", "model.dropout=0.1", "batch.global=4", "batch.rampup_start=2",
      "batch.rampup_increment=2", "batch.rampup_samples=2"}},
    {"llama, 4 parts of a sequence, 2 sequences",
     1,
     {COMMON, "model.arch=llama", "model.kv_heads=2", "model.layers=2", "model.context=512",
      "data.sequence=512", "numerics.seq_tiles=4", "batch.global=2"}},
    {"gpt2, 3 heads, 6 sequences",
     1,
     {SHORT, "model.arch=gpt2", "model.layers=3", THREE, "model.heads=3", "numerics.tp_tiles=3",
      "batch.global=6"}},
    {"llama, 6 heads, 4 sequences",
     1,
     {SHORT, "model.arch=llama", "model.layers=3", THREE, "model.heads=6", "model.kv_heads=3",
      "numerics.tp_tiles=6", "batch.global=4"}},
    {"llama, 4 leaves of 3 sequences",
     1,
     {SHORT, "model.arch=llama", "model.layers=3", "model.kv_heads=1", "batch.global=12",
      "numerics.leaf_sequences=3", "data.sequence=32", "model.context=32"}},
    {"gpt2, 1 to 3 leaves of 4 sequences",
     3,
     {SHORT, "model.arch=gpt2", "model.layers=3", "numerics.precision=fp32", "batch.global=12",
      "numerics.leaf_sequences=4", "batch.rampup_start=4", "batch.rampup_increment=4",
      "batch.rampup_samples=8"}},
    {"llama with muon, 2 sequences",
     1,
     {COMMON, "model.arch=llama", "model.kv_heads=2", "model.layers=2", "model.context=16",
      "data.sequence=16", PAIRS, "optim.name=muon", "batch.global=2"}},
    {"llama with adapters, 4 sequences",
     2,
     {COMMON, "model.arch=llama", "model.kv_heads=1", "model.layers=3", "model.context=16",
      "data.sequence=16", "lora.rank=3", "lora.targets=q_proj,v_proj,down_proj", "batch.global=4"}},
    {"gpt2 with adapters and one key/value head, 4 sequences",
     2,
     {COMMON, "model.arch=gpt2", "model.kv_heads=1", "model.layers=2", "model.context=16",
      "data.sequence=16", "lora.rank=3", "lora.targets=c_attn", "batch.global=4"}},
    {"llama over nf4, 4 sequences",
     2,
     {COMMON, PAIRS, "model.arch=llama", "model.kv_heads=2", "model.layers=3", "model.context=16",
      "data.sequence=16", BLOCKS, "lora.rank=3", "lora.base=nf4", "batch.global=4"}},
    {"gpt2 over int8, 2 parts of a sequence, 2 sequences",
     2,
     {COMMON, "model.arch=gpt2", "model.layers=2", "model.context=256", "data.sequence=256",
      "numerics.precision=fp32", "numerics.seq_tiles=2", BLOCKS, "lora.rank=3", "lora.base=int8",
      "lora.targets=c_attn,c_fc", "batch.global=2"}},
};

struct session {
    char folder[256];
    struct ls_config one[SMALL]; /* on one rank */
    struct ls_proof reference[SMALL][STEPS_MAX];
    struct ls_draw_cover cover;
    uint64_t kept; /* rows that are enumerated */
    int isas;      /* of this machine */
    int64_t every; /* of how many admitted layouts one runs */
    int64_t seen, same, admitted, ran, refused, failed;
};

static void small_config(struct session *s, int recipe)
{
    struct ls_config *config = &s->one[recipe];
    struct ls_error error = {0};
    char key[400];
    ls_config_defaults(config);
    snprintf(key, sizeof key, "data.train=u16:%s/tokens.bin", s->folder);
    int status = ls_config_set(config, key, &error);
    snprintf(key, sizeof key, "train.out=%s/none", s->folder);
    status = status ? status : ls_config_set(config, key, &error);
    for (int i = 0; smalls[recipe].keys[i] && !status; i++)
        status = ls_config_set(config, smalls[recipe].keys[i], &error);
    if (!status)
        status = ls_train_resolve(config, &error);
    if (!status)
        status = ls_proof_threads(config, smalls[recipe].steps, s->reference[recipe], &error);
    if (status)
        exit(fprintf(stderr, "%s: %s\n", smalls[recipe].name, error.text) > 0);
}

/* ---- one layout ------------------------------------------------------------------------------ */

static void failure(struct session *s, int recipe, const struct ls_config *config, const char *what)
{
    char text[1024];
    ls_config_layout_text(config, &s->one[recipe], text, sizeof text);
    printf("%s: %s: %s\n", smalls[recipe].name, text, what);
    s->failed++;
}

/* Whether an admitted layout gives one rank's bits. */
static bool runs(struct session *s, int recipe, const struct ls_config *config, char *why,
                 size_t bytes)
{
    struct ls_proof proof[STEPS_MAX] = {{0}};
    struct ls_error error = {0};
    int64_t steps = smalls[recipe].steps;
    int status = ls_proof_threads(config, steps, proof, &error);
    int64_t step = status ? 0 : ls_proof_differs(s->reference[recipe], proof, steps);
    if (status)
        snprintf(why, bytes, "%.900s", error.text);
    else
        snprintf(why, bytes, "differs from one rank at step %ld", (long)step);
    return !status && step == 0;
}

static void layout_run(struct session *s, int recipe, const struct ls_config *config)
{
    char why[1000];
    int values[LS_DRAW_ROWS_MAX];
    struct ls_layout layout;
    struct ls_layout_proof proof;
    struct ls_error error = {0};
    s->ran++;
    if (ls_config_layout(config, 0, &layout, &error) ||
        ls_layout_check(config, &layout, false, &proof, &error))
        failure(s, recipe, config, error.text);
    else if (!runs(s, recipe, config, why, sizeof why))
        failure(s, recipe, config, why);
    if (ls_draw_values(config, values))
        ls_draw_cover_add(&s->cover, values);
}

/* The resolver's text, which takes a search for the nearest that works, and the trainer's answer
 * are asked of every 64th, with CHECK=all of every 16th: the status is asked of all. */
static void refusal_check(struct session *s, int recipe, const struct ls_config *config, int status)
{
    struct ls_layout layout;
    struct ls_error error = {0}, trainers = {0};
    struct ls_proof proof[STEPS_MAX];
    if (status != LS_ELAYOUT)
        failure(s, recipe, config, "is refused, but not as a layout");
    if (s->refused++ % (check_all() ? 16 : 256))
        return;
    status = ls_config_layout(config, 0, &layout, &error);
    if (status != LS_ELAYOUT || strlen(error.text) < 20)
        failure(s, recipe, config, "is refused without a text");
    status = ls_proof_threads(config, smalls[recipe].steps, proof, &trainers);
    if (status != LS_ELAYOUT || !strstr(trainers.text, error.text))
        failure(s, recipe, config, "the trainer refuses it in other words");
}

/* ---- all layouts ----------------------------------------------------------------------------- */

/* A schedule with its chunks; 0: what it wants. */
static const struct {
    int schedule, chunks;
} schedules[] = {
    {LS_SCHEDULE_1F1B, 0},        {LS_SCHEDULE_GPIPE, 0},       {LS_SCHEDULE_ZB_H1, 0},
    {LS_SCHEDULE_INTERLEAVED, 1}, {LS_SCHEDULE_INTERLEAVED, 2}, {LS_SCHEDULE_INTERLEAVED, 3},
    {LS_SCHEDULE_ZBV, 2},         {LS_SCHEDULE_DUALPIPEV, 0},
};
enum { SCHEDULES = sizeof schedules / sizeof schedules[0] };

typedef bool visit(struct session *s, int recipe, const struct ls_config *config);

/* The inner loops: false where visit wants no more. */
static bool sizes_walk(struct session *s, int recipe, struct ls_config *config, visit *visit)
{
    struct ls_layout_keys *keys = &config->parallel;
    int64_t share = config->batch.global / (keys->dp_replicate * keys->dp_shard);
    for (int sp = 0; sp <= (keys->tp > 1); sp++)
        for (int ring = 0; ring <= (keys->cp > 1); ring++)
            for (int64_t micro = 1; micro <= ls_max(share, 1); micro++) {
                keys->sp = keys->tp > 1 ? sp : LS_LAYOUT_AUTO;
                keys->cp_method = ring ? LS_CP_RING : LS_CP_ALL_GATHER;
                config->batch.micro = micro;
                if (!visit(s, recipe, config))
                    return false;
            }
    return true;
}

static bool kinds_walk(struct session *s, int recipe, struct ls_config *config, visit *visit)
{
    struct ls_layout_keys *keys = &config->parallel;
    for (int zero = 0; zero <= 3; zero++)
        for (int i = 0; i < SCHEDULES; i++) {
            keys->zero = zero;
            keys->schedule = schedules[i].schedule;
            keys->chunks = schedules[i].chunks;
            /* One stage has one order, whatever it is called. */
            if (keys->pp == 1 && keys->chunks < 2 && i > 0 && i != SCHEDULES - 1)
                continue;
            if (!sizes_walk(s, recipe, config, visit))
                return false;
        }
    return true;
}

static void layouts_walk(struct session *s, int recipe, visit *visit)
{
    struct ls_config config = s->one[recipe];
    struct ls_layout_keys *keys = &config.parallel;
    for (keys->pp = 1; keys->pp <= RANKS_MAX; keys->pp++)
        for (keys->dp_replicate = 1; keys->dp_replicate <= RANKS_MAX; keys->dp_replicate++)
            for (keys->dp_shard = 1; keys->dp_shard <= RANKS_MAX; keys->dp_shard++)
                for (keys->cp = 1; keys->cp <= RANKS_MAX; keys->cp++)
                    for (keys->tp = 1; keys->tp <= RANKS_MAX; keys->tp++)
                        if (ls_config_ranks(&config) <= RANKS_MAX &&
                            !kinds_walk(s, recipe, &config, visit))
                            return;
}

/* Runs what is admitted, with the other keys drawn; looks at the refusal of the rest. */
static bool layout_visit(struct session *s, int recipe, const struct ls_config *config)
{
    struct ls_layout layout;
    struct ls_config drawn;
    struct ls_draw draw = {.seed = 1,
                           .index = (uint64_t)s->seen++,
                           .ranks_max = RANKS_MAX,
                           .isas = s->isas,
                           .folder = s->folder,
                           .kept = s->kept,
                           .attempts = 50};
    int status = ls_config_layout(config, 0, &layout, NULL);
    if (status) {
        refusal_check(s, recipe, config, status);
    } else if (layout.micro_sequences < config->batch.micro) {
        s->same++; /* a smaller batch.micro is the same layout */
    } else {
        if (s->admitted++ % s->every == 0)
            layout_run(s, recipe, ls_draw_layout(config, &draw, &drawn) ? &drawn : config);
    }
    return s->failed < FAILED_MAX;
}

static void recipe_check(struct session *s, int recipe)
{
    int64_t seen = s->seen, admitted = s->admitted, ran = s->ran, refused = s->refused;
    layouts_walk(s, recipe, layout_visit);
    printf("%s: %ld layouts enumerated, %ld refused, %ld admitted, %ld of them ran; %ld steps "
           "each\n",
           smalls[recipe].name, (long)(s->seen - seen), (long)(s->refused - refused),
           (long)(s->admitted - admitted), (long)(s->ran - ran), (long)smalls[recipe].steps);
    fflush(stdout);
}

/* Values and pairs of keys that no layout had so far, and that a recipe admits. */
static void rest_check(struct session *s)
{
    int64_t before = s->ran;
    struct ls_draw draw = {.seed = 1, .ranks_max = RANKS_MAX, .isas = s->isas, .folder = s->folder},
                   ask = draw;
    while (ls_draw_cover_ask(&s->cover, &ask) && s->failed < FAILED_MAX) {
        struct ls_config drawn;
        struct ls_draw_cover *room = malloc(sizeof *room);
        if (!room)
            exit(1);
        *room = s->cover;
        int recipe = ls_compare_draw(s->one, SMALL, &draw, room, &drawn);
        /* layout_run counts what it ran; what was found to be impossible is kept. */
        memcpy(s->cover.value_impossible, room->value_impossible, sizeof room->value_impossible);
        memcpy(s->cover.pair_impossible, room->pair_impossible, sizeof room->pair_impossible);
        free(room);
        draw.index++;
        if (recipe >= 0)
            layout_run(s, recipe, &drawn);
    }
    printf("pairs of keys that were still missing: %ld layouts more\n", (long)(s->ran - before));
}

/* ---- broken twins ---------------------------------------------------------------------------- */

static char caught[1200];

static bool twin_visit(struct session *s, int recipe, const struct ls_config *config)
{
    struct ls_layout layout;
    char why[1000], text[160];
    /* On two data-parallel ranks, for the sake of time. */
    if (ls_config_ranks(config) != 2 || config->parallel.tp > 1 || config->parallel.pp > 1)
        return true;
    if (ls_config_layout(config, 0, &layout, NULL) || runs(s, recipe, config, why, sizeof why))
        return true;
    ls_config_layout_text(config, &s->one[recipe], text, sizeof text);
    snprintf(caught, sizeof caught, "%s: %.200s", text, why);
    return false;
}

static int twins_missed(struct session *s)
{
    /* The last one in fma: pairs begin their chains anew with each step of 32 tokens. */
    static const struct {
        int twin, recipe;
    } chosen[] = {{TWIN_COUNTED_TWICE, 0}, {TWIN_ALL_ALIKE, 0}, {TWIN_CHAIN_ANEW, 7}};
    int missed = 0;
    for (size_t i = 0; i < sizeof chosen / sizeof chosen[0]; i++) {
        caught[0] = '\0';
        twin_set(chosen[i].twin);
        layouts_walk(s, chosen[i].recipe, twin_visit);
        twin_set(-1);
        printf("broken twin (%s): %s\n", twins[chosen[i].twin].name, *caught ? caught : "MISSED");
        missed += !*caught;
    }
    return missed;
}

/* ---- main ------------------------------------------------------------------------------------ */

static uint64_t rows_kept(void)
{
    static const char *const enumerated[] = {
        "parallel.pp",     "parallel.dp_replicate", "parallel.dp_shard", "parallel.cp",
        "parallel.tp",     "parallel.sp",           "parallel.zero",     "parallel.schedule",
        "parallel.chunks", "parallel.cp_method",    "batch.micro"};
    int count;
    uint64_t kept = 0;
    const struct ls_draw_row *rows = ls_draw_rows(&count);
    for (int row = 0; row < count; row++)
        for (size_t i = 0; i < sizeof enumerated / sizeof enumerated[0]; i++)
            if (!strcmp(rows[row].name, enumerated[i]))
                kept |= UINT64_C(1) << row;
    return kept;
}

int main(int argc, char **argv)
{
    /* Ranks and their threads are more than cores: those that wait have to sleep, which OpenMP is
     * told before it begins. */
    if (!getenv("OMP_WAIT_POLICY") && !setenv("OMP_WAIT_POLICY", "passive", 1))
        execv(argv[0], argv);
    struct session *s = calloc(1, sizeof *s);
    char pattern[] = "/tmp/lockstep-exhaustive-XXXXXX", command[300];
    if (!s || !mkdtemp(pattern))
        return 1;
    int only = argc > 2 ? atoi(argv[2]) : -1;
    snprintf(s->folder, sizeof s->folder, "%s", pattern);
    s->kept = rows_kept();
    s->isas = ls_isa_best() + 1;
    s->every = argc > 1 ? ls_max(atoi(argv[1]), 1) : check_all() ? 6 : 720;
    recipe_tokens_write(s->folder);
    for (int recipe = 0; recipe < SMALL; recipe++)
        small_config(s, recipe);
    for (int recipe = 0; recipe < SMALL; recipe++)
        if (only < 0 || only == recipe)
            recipe_check(s, recipe);
    if (only < 0 && (check_all() || argc > 1))
        rest_check(s);
    if (only < 0)
        cover_print(&s->cover);
    int missed = twins_missed(s);
    printf("%ld layouts enumerated, %ld refused, %ld the same as another one, %ld admitted, %ld "
           "ran%s\n",
           (long)s->seen, (long)s->refused, (long)s->same, (long)s->admitted, (long)s->ran,
           s->every > 1 ? " (NOT all: make exhaustive)" : "");
    printf("%ld passed, %ld failed\n", (long)(s->ran - s->failed), (long)(s->failed + missed));
    snprintf(command, sizeof command, "rm -rf '%s'", s->folder);
    if (system(command))
        fprintf(stderr, "%s was left behind\n", s->folder);
    int failed = s->failed > 0 || missed;
    free(s);
    return failed;
}
