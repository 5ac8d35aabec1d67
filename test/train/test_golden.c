/* Losses and states of small recipes are, bit for bit, those that test/golden/bits.txt holds: with
 * any compiler, in any build, and on each instruction set: in fma, and with bf16 in bf16_pairs too.
 *
 *     test_golden             compares: an eighth of the recipes on the best set of this machine, a
 *                             share of them on each lesser one; with CHECK=all all of them on each
 *     test_golden --record    prints the file anew, on any machine
 */
#include "../support/extent.h"
#include "../support/late_queue.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "tokens.h"

#include <lockstep/base/version.h>
#include <lockstep/compare.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char bits_path[] = "test/golden/bits.txt";

/* Sanitizers are slow: they see the fastest kernels. */
#ifdef NDEBUG
enum { FIRST_ISA = LS_ISA_PLAIN };
#else
enum { FIRST_ISA = LS_ISA_AVX512 };
#endif
enum { STEPS_MAX = 16, RECIPES_MAX = 96, BITS_SIZE = STEPS_MAX * 9 + 33 };

struct recipe {
    int line;
    const char *words;
    const char *bits[LS_ARITHMETIC_COUNT]; /* "LOSS LOSS ... HASH"; NULL: not recorded */
};
struct golden {
    int version, steps;
    const char *common;
    struct recipe recipes[RECIPES_MAX];
    int count;
};

/* ---- the file -------------------------------------------------------------------------------- */

/* Whether text is `steps` losses and a hash, with one space between. */
static bool is_bits(const char *text, int steps)
{
    for (int i = 0; i <= steps; i++) {
        size_t digits = strspn(text, "0123456789abcdef");
        if (digits != (i < steps ? 8 : 32) || text[digits] != (i < steps ? ' ' : '\0'))
            return false;
        text += digits + 1;
    }
    return true;
}

static int arithmetic_of_name(const char *name)
{
    for (int i = 0; i < LS_ARITHMETIC_COUNT; i++)
        if (strcmp(name, ls_arithmetic_name((enum ls_arithmetic)i)) == 0)
            return i;
    return -1;
}

/* "  fma LOSS ... HASH". These return NULL, or what is wrong. */
static const char *parse_bits(struct golden *golden, char *line)
{
    char *name = line + strspn(line, " "), *bits = strchr(name, ' ');
    if (golden->count == 0)
        return "an arithmetic before the first recipe";
    if (!bits)
        return "expected an arithmetic and its bits";
    *bits++ = '\0';
    int arithmetic = arithmetic_of_name(name);
    if (arithmetic < 0)
        return "no such arithmetic";
    if (!is_bits(bits, golden->steps))
        return "expected a loss of 8 digits for each step, and a hash of 32";
    const char **place = &golden->recipes[golden->count - 1].bits[arithmetic];
    if (*place)
        return "an arithmetic twice";
    *place = bits;
    return NULL;
}

static const char *parse_recipe(struct golden *golden, const char *line, int number)
{
    if (!golden->version || !golden->steps || !golden->common)
        return "expected numerics.version, steps and common before the recipes";
    if (golden->count == RECIPES_MAX)
        return "more recipes than RECIPES_MAX";
    golden->recipes[golden->count++] = (struct recipe){.line = number, .words = line};
    return NULL;
}

static const char *parse_line(struct golden *golden, char *line, int number)
{
    int end = 0;
    if (*line == '\0' || *line == '#')
        return NULL;
    if (*line == ' ')
        return parse_bits(golden, line);
    if (strncmp(line, "model.arch=", 11) == 0)
        return parse_recipe(golden, line, number);
    if (strncmp(line, "common ", 7) == 0) {
        golden->common = line + 7;
        return NULL;
    }
    if (sscanf(line, "numerics.version %d%n", &golden->version, &end) != 1 &&
        sscanf(line, "steps %d%n", &golden->steps, &end) != 1)
        return "expected a recipe, which begins with model.arch=";
    if (line[end] || golden->steps < 0 || golden->steps > STEPS_MAX)
        return "expected a whole number, and no more steps than STEPS_MAX";
    return NULL;
}

/* Cuts text apart; golden points into it. Recorded: each recipe has bits. On false, why[size] says
 * what is wrong. */
static bool parse(char *text, bool recorded, struct golden *golden, char *why, size_t size)
{
    int number = 0;
    *golden = (struct golden){0};
    for (char *line; (line = strsep(&text, "\n"));) {
        const char *wrong = parse_line(golden, line, ++number);
        if (wrong) {
            snprintf(why, size, "%s:%d: %s", bits_path, number, wrong);
            return false;
        }
    }
    for (int i = 0; recorded && i < golden->count; i++)
        if (!golden->recipes[i].bits[LS_ARITHMETIC_FMA]) {
            snprintf(why, size, "%s:%d: a recipe without bits: record them", bits_path,
                     golden->recipes[i].line);
            return false;
        }
    snprintf(why, size, "%s: no recipe", bits_path);
    return golden->count > 0;
}

/* ---- running --------------------------------------------------------------------------------- */

static int set_words(struct ls_config *config, const char *words, struct ls_error *error)
{
    char *copy = strdup(words), *rest = copy;
    int status = LS_OK;
    for (char *word; !status && (word = strsep(&rest, " "));)
        status = ls_config_set(config, word, error);
    free(copy);
    return status;
}

static int config_of(const char *directory, const struct golden *golden,
                     const struct recipe *recipe, struct ls_config *config, struct ls_error *error)
{
    char place[600];
    snprintf(place, sizeof place, "data.train=u16:%s/tokens.bin", directory);
    ls_config_defaults(config);
    int status = set_words(config, place, error);
    if (!status)
        status = set_words(config, golden->common, error);
    if (!status)
        status = set_words(config, recipe->words, error);
    return status ? status : ls_train_resolve(config, error);
}

/* Arithmetics that a precision has, from FMA on. */
static int arithmetics_of(enum ls_dtype precision)
{
    return precision == LS_BF16 ? LS_ARITHMETIC_COUNT : LS_ARITHMETIC_FMA + 1;
}

/* bits[BITS_SIZE] = those of the configuration in an arithmetic on isa. */
static int bits_of(const struct golden *golden, struct ls_config *config, int arithmetic,
                   enum ls_isa isa, char *bits, struct ls_error *error)
{
    struct ls_proof proof[STEPS_MAX];
    char hash[33];
    config->numerics.arithmetic = arithmetic;
    config->numerics.isa = (int)isa;
    int status = ls_proof_threads(config, golden->steps, proof, error);
    if (status)
        return status;
    for (int i = 0; i < golden->steps; i++)
        bits += sprintf(bits, "%08x ", proof[i].loss_bits);
    ls_digest_hex(&proof[golden->steps - 1].hash, hash);
    strcpy(bits, hash);
    return LS_OK;
}

/* Where two are not the same, says which step or that it is the hash. */
static bool bits_differ(const char *a, const char *b, int steps, char *text, size_t size)
{
    if (strcmp(a, b) == 0)
        return false;
    for (int i = 0; i < steps; i++, a += 9, b += 9)
        if (strncmp(a, b, 8)) {
            snprintf(text, size, "the loss of step %d is %.8s, recorded is %.8s", i + 1, a, b);
            return true;
        }
    snprintf(text, size, "the losses are as recorded, the hash is %.32s, recorded is %.32s", a, b);
    return true;
}

/* In how many arithmetics a recipe has other bits on isa than recorded; prints which. */
static int recipe_changed(const char *directory, const struct golden *golden,
                          const struct recipe *recipe, enum ls_isa isa)
{
    struct ls_config config;
    char bits[BITS_SIZE], text[200];
    struct ls_error error = {0};
    int changed = 0;
    if (config_of(directory, golden, recipe, &config, &error))
        fail_msg("%s:%d: %s", bits_path, recipe->line, error.text);
    for (int of = 0; of < arithmetics_of(config.numerics.precision); of++) {
        if (!recipe->bits[of])
            fail_msg("%s:%d: no bits in %s", bits_path, recipe->line,
                     ls_arithmetic_name((enum ls_arithmetic)of));
        if (bits_of(golden, &config, of, isa, bits, &error))
            fail_msg("%s:%d: %s", bits_path, recipe->line, error.text);
        if (!bits_differ(bits, recipe->bits[of], golden->steps, text, sizeof text))
            continue;
        printf("%s:%d: %s on %s: %s\n    %s\n", bits_path, recipe->line,
               ls_arithmetic_name((enum ls_arithmetic)of), ls_isa_name(isa), text, recipe->words);
        changed++;
    }
    return changed;
}

/* The same of all recipes, or of one in `every`, others on each set. Half of them run their
 * commands late; with CHECK=all each runs so too. */
static int count_changed(const char *directory, const struct golden *golden, enum ls_isa isa,
                         int every)
{
    int changed = 0, ran = 0;
    for (int i = (int)isa % every; i < golden->count; i += every, ran++)
        for (int again = 0; again <= check_all(); again++) {
            late = (i + again) % 2;
            changed += recipe_changed(directory, golden, &golden->recipes[i], isa);
        }
    printf("%s: %d of %d recipes\n", ls_isa_name(isa), ran, golden->count);
    return changed;
}

/* The file as it is; free *text when golden is no longer needed. */
static void open_golden(struct golden *golden, char **text)
{
    char why[200];
    *text = scratch_read(bits_path, NULL);
    if (!parse(*text, true, golden, why, sizeof why))
        fail_msg("%s", why);
}

CASE_WITH(test_bits_are_those_recorded, tokens_setup, scratch_teardown)
{
    struct golden golden;
    char *text;
    int changed = 0;
    open_golden(&golden, &text);
    assert_int_equal(golden.version, LS_NUMERICS_VERSION);
    for (int isa = FIRST_ISA; isa < LS_ISA_COUNT; isa++)
        if (isa <= (int)ls_isa_best())
            changed += count_changed(*state, &golden, (enum ls_isa)isa,
                                     isa == (int)ls_isa_best()
                                         ? check_every(8, 8)
                                         : check_every(16, isa == LS_ISA_PLAIN ? 60 : 32));
        else
            printf("SKIPPED: no %s here: its bits are not compared\n",
                   ls_isa_name((enum ls_isa)isa));
    free(text);
    if (changed)
        fail_msg("bits changed in %d cases, and numerics.version is still %d: "
                 "doc/adr/0018-numerics-version.md says what to do",
                 changed, LS_NUMERICS_VERSION);
}

/* ---- the broken twins ------------------------------------------------------------------------ */

/* One recipe, with bits that this build just made, is unchanged; changed where one bit of a loss or
 * of the hash is flipped, and where one key is another. */
CASE_WITH(test_changes_are_seen, tokens_setup, scratch_teardown)
{
    const int runs = 1 + check_all(); /* of each recipe */
    struct golden golden;
    char *text, bits[BITS_SIZE], words[400];
    open_golden(&golden, &text);
    struct recipe *recipe = &golden.recipes[0];
    golden.count = 1;
    strcpy(bits, recipe->bits[LS_ARITHMETIC_FMA]);
    recipe->bits[LS_ARITHMETIC_FMA] = bits;
    assert_int_equal(count_changed(*state, &golden, ls_isa_best(), 1), 0);
    const int places[] = {7, 9 * (golden.steps - 1) + 7, 9 * golden.steps + 31};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char *digit = &bits[places[i]], kept = *digit;
        int value = kept <= '9' ? kept - '0' : kept - 'a' + 10;
        *digit = "0123456789abcdef"[value ^ 1];
        assert_int_equal(count_changed(*state, &golden, ls_isa_best(), 1), runs);
        *digit = kept;
    }
    snprintf(words, sizeof words, "%s optim.beta2=0.951", recipe->words);
    recipe->words = words;
    assert_int_equal(count_changed(*state, &golden, ls_isa_best(), 1), runs);
    free(text);
}

#define HEAD   "numerics.version 1\nsteps 1\ncommon a=b\n"
#define RECIPE HEAD "model.arch=gpt2\n"
#define HASH   "00112233445566778899aabbccddeeff"

CASE(test_malformed_files_are_refused)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"", "no recipe"},
        {HEAD, "no recipe"},
        {"steps 17\n", ":1: expected a whole number"},
        {"steps 2x\n", ":1: expected a whole number"},
        {"version 2\n", ":1: expected a recipe"},
        {"model.arch=gpt2\n", ":1: expected numerics.version"},
        {HEAD "  fma 01234567 " HASH "\n", ":4: an arithmetic before"},
        {RECIPE, ":4: a recipe without bits"},
        {RECIPE "  fma\n", ":5: expected an arithmetic and"},
        {RECIPE "  sse 01234567 " HASH "\n", ":5: no such arithmetic"},
        {RECIPE "  fma 0123456 " HASH "\n", ":5: expected a loss of 8"},
        {RECIPE "  fma 01234567 01234567 " HASH "\n", ":5: expected a loss of 8"},
        {RECIPE "  fma 01234567 " HASH "0\n", ":5: expected a loss of 8"},
        {RECIPE "  fma 01234567 " HASH " \n", ":5: expected a loss of 8"},
        {RECIPE "  fma 01234567 " HASH "\n  fma 01234567 " HASH "\n", ":6: an arithmetic"},
    };
    struct golden golden;
    char text[400], why[200];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        strcpy(text, cases[i].text);
        assert_false(parse(text, true, &golden, why, sizeof why));
        if (!strstr(why, cases[i].why))
            fail_msg("case %zu: \"%s\" has no \"%s\"", i, why, cases[i].why);
    }
    strcpy(text, RECIPE "  fma 01234567 " HASH "\n");
    assert_true(parse(text, true, &golden, why, sizeof why));
    assert_string_equal(golden.recipes[0].bits[LS_ARITHMETIC_FMA], "01234567 " HASH);
}

/* ---- recording ------------------------------------------------------------------------------- */

static void record_recipe(const char *directory, const struct golden *golden,
                          const struct recipe *recipe)
{
    struct ls_config config;
    struct ls_error error = {0};
    char bits[BITS_SIZE];
    int status = config_of(directory, golden, recipe, &config, &error);
    int count = status ? 0 : arithmetics_of(config.numerics.precision);
    for (int of = 0; of < count && !status; of++) {
        status = bits_of(golden, &config, of, ls_isa_best(), bits, &error);
        if (!status)
            printf("  %s %s\n", ls_arithmetic_name((enum ls_arithmetic)of), bits);
    }
    if (status) {
        fprintf(stderr, "%s:%d: %s\n", bits_path, recipe->line, error.text);
        exit(1);
    }
}

/* The lines of the file, with other bits. Recipes may have none yet. */
static int record(void)
{
    struct golden golden;
    char why[200], *text = scratch_read(bits_path, NULL), *rest = strdup(text), *line;
    void *directory;
    if (!parse(text, false, &golden, why, sizeof why)) {
        fprintf(stderr, "%s\n", why);
        return 1;
    }
    if (tokens_setup(&directory))
        return 1;
    struct recipe *recipe = golden.recipes;
    while ((line = strsep(&rest, "\n"))) {
        if (strncmp(line, "numerics.version ", 17) == 0)
            printf("numerics.version %d\n", LS_NUMERICS_VERSION);
        else if (*line && *line != ' ')
            printf("%s\n", line);
        if (strncmp(line, "model.arch=", 11) == 0)
            record_recipe(directory, &golden, recipe++);
    }
    free(text);
    return scratch_teardown(&directory);
}

int main(int count, char **arguments)
{
    if (count == 2 && strcmp(arguments[1], "--record") == 0)
        return record();
    return suite_run(NULL, NULL);
}
