/* What a refusal names as the nearest that works, works: refused configurations are drawn over all
 * keys of the layout and those of the recipe that a layout depends on, and what the text says is
 * put in as a user would. */
#include "../support/extent.h"
#include "../support/scratch.h"
#include "../support/suite.h"

#include <lockstep/compare.h>

#include <stdlib.h>
#include <string.h>

enum { VOCABULARY = 257, WORDS_MAX = 96, WORD_BYTES = 400, VALUE_BYTES = 320, RANKS_MAX = 12 };

static const char *const recipes[] = {
    "model.layers=6 model.channels=64 model.heads=4 model.context=256 batch.global=8",
    "model.layers=3 model.channels=96 model.heads=12 model.context=512 batch.global=12",
    "model.preset=llama-tiny data.sequence=48 batch.global=24",
    "model.layers=14 model.channels=64 model.heads=8 model.context=1024 numerics.mode=fast "
    "batch.global=18",
    "model.layers=4 model.channels=64 model.heads=4 model.context=512 batch.global=12 "
    "batch.rampup_start=4 batch.rampup_increment=4 batch.rampup_samples=12 optim.name=muon",
    "model.layers=4 model.channels=64 model.heads=4 model.context=256 batch.global=4 "
    "async.mode=diloco async.workers=6 async.sync_every=4 async.fragments=2",
    "model.layers=4 model.channels=64 model.heads=4 model.context=256 batch.global=6 "
    "async.mode=server async.workers=4",
    "model.layers=4 model.channels=64 model.heads=4 model.head_dim=64 model.context=256 "
    "batch.global=8 lora.rank=4 lora.base=nf4",
    "model.arch=llama model.layers=6 model.channels=128 model.heads=8 model.kv_heads=2 "
    "model.ffn=384 model.context=64 batch.global=12 lora.rank=4 lora.base=int8",
};
enum { RECIPES = sizeof recipes / sizeof recipes[0] };

/* Values beside those of ls_draw_rows: sizes that seldom fit, texts that fit some layouts, and the
 * recipe's keys. */
static const struct ls_draw_row more[] = {
    {"parallel.pp", {"5", "6", "8", "17", "64"}},
    {"parallel.dp", {"2", "3", "4", "5", "6", "8", "96"}},
    {"parallel.dp_replicate", {"5", "8", "12"}},
    {"parallel.dp_shard", {"6", "7", "8"}},
    {"parallel.cp", {"4", "6", "8"}},
    {"parallel.tp", {"6", "8", "12", "32"}},
    {"parallel.chunks", {"4", "5"}},
    {"parallel.persist", {"30000", "1e12"}},
    {"parallel.split", {"0-3,4-7", "0-1,2,3-4", "0-7", "0-4,5-9,10-15", "a"}},
    {"parallel.schedule", {"csv"}},
    {"memory.recompute", {"full@0;none@1-3", "selective@1;2-3@0", "0-5", "every:0", "all"}},
    {"memory.file", {"/nowhere"}},
    {"batch.micro", {"5", "12", "100"}},
    {"numerics.tp_tiles", {"1", "2", "3", "4", "5", "6", "8"}},
    {"numerics.seq_tiles", {"2", "3", "4", "6", "8"}},
    {"numerics.leaf_sequences", {"1", "2", "3", "4", "5", "6"}},
};
enum { MORE = sizeof more / sizeof more[0] };

/* ---- drawing --------------------------------------------------------------------------------- */

struct drawn {
    char words[WORDS_MAX][WORD_BYTES]; /* assignments in their order */
    int count;
    int64_t world;
};

static uint32_t pick(uint64_t *state, uint32_t below)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 33) % below;
}

static void word_add(struct drawn *drawn, const char *key, const char *value)
{
    assert_true(drawn->count < WORDS_MAX);
    snprintf(drawn->words[drawn->count++], WORD_BYTES, "%s=%s", key, value);
}

/* One row in four or so, by chance with another value than its first. */
static void rows_draw(struct drawn *drawn, const struct ls_draw_row *rows, int count, int few,
                      uint64_t *state)
{
    for (int row = 0; row < count; row++) {
        int values = 0;
        while (rows[row].values[values])
            values++;
        const char *value = rows[row].values[pick(state, (uint32_t)values)];
        if (pick(state, (uint32_t)few) == 0 && strchr(rows[row].name, '.') &&
            strcmp(value, "given"))
            word_add(drawn, rows[row].name, value);
    }
}

static void configuration_draw(struct drawn *drawn, uint64_t seed, const char *table)
{
    uint64_t state = seed * UINT64_C(0x9e3779b97f4a7c15);
    char words[400], *save = NULL;
    int count;
    const struct ls_draw_row *rows = ls_draw_rows(&count);
    memset(drawn, 0, sizeof *drawn);
    snprintf(words, sizeof words, "%s", recipes[pick(&state, RECIPES)]);
    for (char *word = strtok_r(words, " ", &save); word; word = strtok_r(NULL, " ", &save))
        snprintf(drawn->words[drawn->count++], WORD_BYTES, "%s", word);
    rows_draw(drawn, rows, count, 5, &state);
    rows_draw(drawn, more, MORE, 20, &state);
    if (pick(&state, 12) == 0)
        word_add(drawn, "parallel.schedule_file", table);
    drawn->world = pick(&state, 2) ? 0 : 1 + pick(&state, RANKS_MAX);
}

/* The status of a run of these assignments, before anything is taken. A recipe is refused before
 * the number of ranks is looked at. */
static int judge(struct drawn *drawn, struct ls_error *error)
{
    static struct ls_layout layout;
    static struct ls_config config;
    ls_config_defaults(&config);
    for (int i = 0; i < drawn->count; i++)
        assert_ok(ls_config_set(&config, drawn->words[i], error), *error);
    int status = ls_config_resolve(&config, VOCABULARY, error);
    if (status)
        drawn->world = 0;
    return status ? status : ls_config_layout(&config, drawn->world, &layout, error);
}

/* ---- what a refusal names -------------------------------------------------------------------- */

/* The next "key = value" of *at, whose value may stand in quotes; false behind the last. */
static bool change_next(const char **at, char key[64], char value[VALUE_BYTES])
{
    int read = 0;
    if (sscanf(*at, "%63[a-z_.] = %n", key, &read) != 1 || read == 0)
        return false;
    *at += read;
    bool quoted = **at == '"';
    size_t length = strcspn(*at += quoted, quoted ? "\"" : ",;");
    snprintf(value, VALUE_BYTES, "%.*s", (int)length, *at);
    *at += length + quoted;
    *at += strspn(*at, ", ");
    return true;
}

/* Puts in what the text names behind these words; false where it names nothing. */
static bool take_it(struct drawn *drawn, const char *text, const char *words)
{
    const char *at = strstr(text, words);
    char key[64], value[VALUE_BYTES];
    int before = drawn->count;
    if (!at)
        return false;
    at += strlen(words);
    while (change_next(&at, key, value))
        word_add(drawn, key, value);
    return drawn->count > before;
}

/* What is offered besides: other ranks for the same layout, and another recipe. */
static bool besides_works(const struct drawn *drawn, const char *text, struct drawn *room,
                          struct ls_error *then)
{
    const char *start = strstr(text, " started: start ");
    *room = *drawn;
    room->world = start ? atol(start + strlen(" started: start ")) : 0;
    if (start && judge(room, then))
        return false;
    *room = *drawn;
    return !take_it(room, text, "; what works too, before the first step, is ") ||
           !judge(room, then);
}

/* Whether any layout of that many ranks is admitted, all other layout keys by default. */
static bool some_layout(const struct drawn *refused, struct drawn *room)
{
    int64_t n = refused->world;
    enum { AXES = 6 };
    static const char *const axes[AXES] = {"parallel.workers",      "parallel.pp",
                                           "parallel.dp_replicate", "parallel.dp_shard",
                                           "parallel.cp",           "parallel.tp"};
    for (int64_t code = 0; code < n * n * n * n * n * n; code++) {
        int64_t size[AXES], rest = code, ranks = 1;
        for (int axis = 0; axis < AXES; axis++, rest /= n)
            ranks *= size[axis] = 1 + rest % n;
        if (ranks != n)
            continue;
        *room = *refused;
        room->count = 0;
        for (int i = 0; i < refused->count; i++) {
            const char *word = refused->words[i];
            char name[64];
            snprintf(name, sizeof name, "%.*s", (int)strcspn(word, "="), word);
            if (ls_config_key_of(name)->part != LS_CONFIG_LAYOUT)
                snprintf(room->words[room->count++], WORD_BYTES, "%s", word);
        }
        for (int axis = 0; axis < AXES; axis++) {
            char value[32];
            snprintf(value, sizeof value, "%ld", (long)size[axis]);
            word_add(room, axes[axis], value);
        }
        if (!judge(room, &(struct ls_error){0}))
            return true;
    }
    return false;
}

struct counts {
    int refused, works, fails, silent, impossible;
};

static void explain(const struct drawn *drawn, const char *what, const char *text, const char *then)
{
    printf("%s:\n   ", what);
    for (int i = 0; i < drawn->count; i++)
        printf(" %s", drawn->words[i]);
    printf(" (%ld ranks)\n    %s\n    %s\n", (long)drawn->world, text, then);
}

static void refusal_try(struct counts *counts, const struct drawn *drawn, const char *text)
{
    static struct drawn taken;
    struct ls_error then = {0};
    counts->refused++;
    if (!besides_works(drawn, text, &taken, &then) && ++counts->fails < 10)
        explain(drawn, "does not work", text, then.text);
    taken = *drawn;
    if (!take_it(&taken, text, "; the nearest that works is ")) {
        bool none = drawn->world && strstr(text, "; no layout of ") && !some_layout(drawn, &taken);
        counts->impossible += none;
        counts->silent += !none;
        if (!none && counts->silent < 10)
            explain(drawn, "names nothing", text, "");
    } else if (!judge(&taken, &then)) {
        counts->works++;
    } else if (++counts->fails < 10) {
        explain(drawn, "does not work", text, then.text);
    }
}

static void table_write(const char *path)
{
    struct ls_schedule table;
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(ls_schedule_generate(&table, LS_SCHEDULE_GPIPE, 2, 1, 4, NULL), LS_OK);
    assert_int_equal(ls_schedule_write(&table, file, NULL), LS_OK);
    assert_int_equal(fclose(file), 0);
    ls_schedule_release(&table);
}

CASE_WITH(test_what_is_named_works, scratch_setup, scratch_teardown)
{
    static struct drawn drawn;
    struct counts counts = {0};
    char table[300];
    uint64_t many = (uint64_t)(check_all() ? 20000 : 20000 / check_every(50, 40));
    snprintf(table, sizeof table, "%s/table.csv", (const char *)*state);
    table_write(table);
    for (uint64_t seed = 1; seed <= many; seed++) {
        struct ls_error error = {0};
        configuration_draw(&drawn, seed, table);
        if (judge(&drawn, &error))
            refusal_try(&counts, &drawn, error.text);
    }
    printf("%d configurations refused of %ld: what is named works %d times, and not %d times; "
           "nothing is named %d times, and %d times there is none\n",
           counts.refused, (long)many, counts.works, counts.fails, counts.silent,
           counts.impossible);
    assert_true(counts.refused > (int)many / 4 && counts.impossible > 0);
    assert_int_equal(counts.fails, 0);
    assert_int_equal(counts.silent, 0);
}

/* Of four workers, and of what is asked: the nearest number of groups, not one. */
CASE(test_groups_of_ranks_are_named)
{
    static const struct {
        const char *keys;
        int64_t world;
        const char *named;
    } cases[] = {
        {"parallel.workers=3", 0, "; the nearest that works is parallel.workers = 4"},
        {"parallel.workers=4", 2, "; the nearest that works is parallel.workers = 2"},
        {"parallel.workers=2 parallel.dp=2", 2, "; the nearest that works is parallel.dp = 1"},
        {"parallel.workers=2 parallel.servers=1", 5,
         "; the nearest that works is parallel.workers = 4"},
        {"parallel.workers=4 parallel.servers=1", 4,
         "; the nearest that works is parallel.servers = 0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static struct drawn drawn;
        struct ls_error error = {0};
        char keys[200], *save = NULL;
        drawn = (struct drawn){.world = cases[i].world};
        word_add(&drawn, "model.preset", "llama-tiny");
        word_add(&drawn, "async.mode", "server");
        word_add(&drawn, "async.workers", "4");
        snprintf(keys, sizeof keys, "%s", cases[i].keys);
        for (char *word = strtok_r(keys, " ", &save); word; word = strtok_r(NULL, " ", &save))
            snprintf(drawn.words[drawn.count++], WORD_BYTES, "%s", word);
        if (judge(&drawn, &error) != LS_ELAYOUT)
            fail_msg("%s: %s", cases[i].keys, error.text);
        const char *named = strstr(error.text, "; the nearest");
        assert_non_null(named);
        assert_string_equal(named, cases[i].named);
    }
}

SUITE_MAIN(NULL, NULL)
