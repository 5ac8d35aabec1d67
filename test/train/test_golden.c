/* Losses and states of small recipes are, bit for bit, those that test/golden/bits.txt holds.
 *
 *     test_golden             compares, on every instruction set of this machine
 *     test_golden --record    prints the file anew; lines of sets that this machine has not are
 *                             kept if they are of this numerics.version
 */
#include "../support/scratch.h"
#include "tokens.h"

#include <lockstep/base/version.h>
#include <lockstep/compare.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char bits_path[] = "test/golden/bits.txt";

enum { STEPS_MAX = 16, RECIPES_MAX = 64, BITS_SIZE = STEPS_MAX * 9 + 33 };

struct recipe {
    int line;
    const char *words;
    const char *bits[LS_ISA_COUNT]; /* "LOSS LOSS ... HASH"; NULL: not recorded */
};
struct golden {
    int version, compiler, steps;
    const char *common;
    struct recipe recipes[RECIPES_MAX];
    int count;
};

/* ---- the file ---------------------------------------------------------------------------------
 */

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

/* "  avx2 LOSS ... HASH". These return NULL, or what is wrong. */
static const char *parse_set(struct golden *golden, char *line)
{
    char *name = line + strspn(line, " "), *bits = strchr(name, ' ');
    if (golden->count == 0)
        return "an instruction set before the first recipe";
    if (!bits)
        return "expected an instruction set and its bits";
    *bits++ = '\0';
    int isa = ls_isa_of_name(name);
    if (isa < 0)
        return "no such instruction set";
    if (!is_bits(bits, golden->steps))
        return "expected a loss of 8 digits for each step, and a hash of 32";
    const char **place = &golden->recipes[golden->count - 1].bits[isa];
    if (*place)
        return "an instruction set twice";
    *place = bits;
    return NULL;
}

static const char *parse_recipe(struct golden *golden, const char *line, int number)
{
    if (!golden->version || !golden->compiler || !golden->steps || !golden->common)
        return "expected numerics.version, compiler, steps and common before the recipes";
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
        return parse_set(golden, line);
    if (strncmp(line, "model.arch=", 11) == 0)
        return parse_recipe(golden, line, number);
    if (strncmp(line, "common ", 7) == 0) {
        golden->common = line + 7;
        return NULL;
    }
    if (sscanf(line, "numerics.version %d%n", &golden->version, &end) != 1 &&
        sscanf(line, "compiler %d%n", &golden->compiler, &end) != 1 &&
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
        if (!golden->recipes[i].bits[LS_ISA_PLAIN]) {
            snprintf(why, size, "%s:%d: a recipe without bits: record them", bits_path,
                     golden->recipes[i].line);
            return false;
        }
    snprintf(why, size, "%s: no recipe", bits_path);
    return golden->count > 0;
}

/* ---- running ----------------------------------------------------------------------------------
 */

static int set_words(struct ls_config *config, const char *words, struct ls_error *error)
{
    char *copy = strdup(words), *rest = copy;
    int status = LS_OK;
    for (char *word; !status && (word = strsep(&rest, " "));)
        status = ls_config_set(config, word, error);
    free(copy);
    return status;
}

/* bits[BITS_SIZE] = those of the recipe on isa. */
static int bits_of(const char *directory, const struct golden *golden, const struct recipe *recipe,
                   enum ls_isa isa, char *bits, struct ls_error *error)
{
    struct ls_config config;
    struct ls_proof proof[STEPS_MAX];
    char place[600], hash[33];
    snprintf(place, sizeof place, "data.train=u16:%s/tokens.bin numerics.isa=%s", directory,
             ls_isa_name(isa));
    ls_config_defaults(&config);
    int status = set_words(&config, place, error);
    if (!status)
        status = set_words(&config, golden->common, error);
    if (!status)
        status = set_words(&config, recipe->words, error);
    if (!status)
        status = ls_train_resolve(&config, error);
    if (!status)
        status = ls_proof_threads(&config, golden->steps, proof, error);
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

/* How many of the recipes have other bits on isa than recorded; prints which. */
static int count_changed(const char *directory, const struct golden *golden, enum ls_isa isa)
{
    int changed = 0, without = 0;
    for (int i = 0; i < golden->count; i++) {
        const struct recipe *recipe = &golden->recipes[i];
        char bits[BITS_SIZE], text[200];
        struct ls_error error = {0};
        if (!recipe->bits[isa]) {
            without++;
            continue;
        }
        if (bits_of(directory, golden, recipe, isa, bits, &error))
            fail_msg("%s:%d: %s", bits_path, recipe->line, error.text);
        if (bits_differ(bits, recipe->bits[isa], golden->steps, text, sizeof text)) {
            printf("%s:%d: %s: %s\n    %s\n", bits_path, recipe->line, ls_isa_name(isa), text,
                   recipe->words);
            changed++;
        }
    }
    if (without)
        printf("SKIPPED: %d of %d recipes have no bits on %s in %s\n", without, golden->count,
               ls_isa_name(isa), bits_path);
    return changed;
}

/* Where the machine has not isa, there is something that it cannot compare. */
static void say_missing(const struct golden *golden, enum ls_isa isa)
{
    for (int i = 0; i < golden->count; i++)
        if (golden->recipes[i].bits[isa]) {
            printf("SKIPPED: no %s here: its bits in %s are not compared\n", ls_isa_name(isa),
                   bits_path);
            return;
        }
}

static bool is_release(void)
{
#ifdef NDEBUG
    return true;
#else
    return false;
#endif
}

/* The file as it is; free *text when golden is no longer needed. */
static void open_golden(struct golden *golden, char **text)
{
    char why[200];
    *text = scratch_read(bits_path, NULL);
    if (!parse(*text, true, golden, why, sizeof why))
        fail_msg("%s", why);
}

static void test_bits_are_those_recorded(void **state)
{
    struct golden golden;
    char *text;
    int changed = 0;
    open_golden(&golden, &text);
    assert_int_equal(golden.version, LS_NUMERICS_VERSION);
    if (!is_release() || atoi(__VERSION__) != golden.compiler) {
        printf("SKIPPED: the bits were recorded with gcc %d in a release build, this is %s\n",
               golden.compiler, __VERSION__);
        free(text);
        skip();
    }
    for (int isa = 0; isa < LS_ISA_COUNT; isa++)
        if (isa <= (int)ls_isa_best())
            changed += count_changed(*state, &golden, (enum ls_isa)isa);
        else
            say_missing(&golden, (enum ls_isa)isa);
    free(text);
    if (changed)
        fail_msg("bits changed in %d cases, and numerics.version is still %d: "
                 "doc/adr/0018-numerics-version.md says what to do",
                 changed, LS_NUMERICS_VERSION);
}

/* ---- the broken twins -------------------------------------------------------------------------
 */

/* One recipe, with bits that this build just made, is unchanged; changed where one bit of a loss or
 * of the hash is flipped, and where one key is another. */
static void test_changes_are_seen(void **state)
{
    struct golden golden;
    struct ls_error error = {0};
    char *text, bits[BITS_SIZE], words[400];
    open_golden(&golden, &text);
    struct recipe *recipe = &golden.recipes[0];
    golden.count = 1;
    assert_int_equal(bits_of(*state, &golden, recipe, LS_ISA_PLAIN, bits, &error), 0);
    recipe->bits[LS_ISA_PLAIN] = bits;
    assert_int_equal(count_changed(*state, &golden, LS_ISA_PLAIN), 0);
    const int places[] = {7, 9 * (golden.steps - 1) + 7, 9 * golden.steps + 31};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char *digit = &bits[places[i]], kept = *digit;
        int value = kept <= '9' ? kept - '0' : kept - 'a' + 10;
        *digit = "0123456789abcdef"[value ^ 1];
        assert_int_equal(count_changed(*state, &golden, LS_ISA_PLAIN), 1);
        *digit = kept;
    }
    snprintf(words, sizeof words, "%s optim.beta2=0.951", recipe->words);
    recipe->words = words;
    assert_int_equal(count_changed(*state, &golden, LS_ISA_PLAIN), 1);
    free(text);
}

#define HEAD   "numerics.version 1\ncompiler 12\nsteps 1\ncommon a=b\n"
#define RECIPE HEAD "model.arch=gpt2\n"
#define HASH   "00112233445566778899aabbccddeeff"

static void test_malformed_files_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"", "no recipe"},
        {HEAD, "no recipe"},
        {"steps 17\n", ":1: expected a whole number"},
        {"steps 2x\n", ":1: expected a whole number"},
        {"compiler gcc\n", ":1: expected a recipe"},
        {"model.arch=gpt2\n", ":1: expected numerics.version"},
        {HEAD "  plain 01234567 " HASH "\n", ":5: an instruction set before"},
        {RECIPE, ":5: a recipe without bits"},
        {RECIPE "  plain\n", ":6: expected an instruction set and"},
        {RECIPE "  sse 01234567 " HASH "\n", ":6: no such instruction set"},
        {RECIPE "  plain 0123456 " HASH "\n", ":6: expected a loss of 8"},
        {RECIPE "  plain 01234567 01234567 " HASH "\n", ":6: expected a loss of 8"},
        {RECIPE "  plain 01234567 " HASH "0\n", ":6: expected a loss of 8"},
        {RECIPE "  plain 01234567 " HASH " \n", ":6: expected a loss of 8"},
        {RECIPE "  plain 01234567 " HASH "\n  plain 01234567 " HASH "\n", ":7: an instruction"},
    };
    struct golden golden;
    char text[400], why[200];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        strcpy(text, cases[i].text);
        assert_false(parse(text, true, &golden, why, sizeof why));
        if (!strstr(why, cases[i].why))
            fail_msg("case %zu: \"%s\" has no \"%s\"", i, why, cases[i].why);
    }
    strcpy(text, RECIPE "  plain 01234567 " HASH "\n");
    assert_true(parse(text, true, &golden, why, sizeof why));
    assert_string_equal(golden.recipes[0].bits[LS_ISA_PLAIN], "01234567 " HASH);
}

/* ---- recording --------------------------------------------------------------------------------
 */

static void record_recipe(const char *directory, const struct golden *golden,
                          const struct recipe *recipe)
{
    for (int isa = 0; isa < LS_ISA_COUNT; isa++) {
        char bits[BITS_SIZE];
        struct ls_error error = {0};
        const char *line = golden->version == LS_NUMERICS_VERSION ? recipe->bits[isa] : NULL;
        if (isa <= (int)ls_isa_best()) {
            if (bits_of(directory, golden, recipe, (enum ls_isa)isa, bits, &error)) {
                fprintf(stderr, "%s:%d: %s\n", bits_path, recipe->line, error.text);
                exit(1);
            }
            line = bits;
        }
        if (line)
            printf("  %s %s\n", ls_isa_name((enum ls_isa)isa), line);
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
    if (!is_release()) {
        fprintf(stderr, "bits are those of a release build, and this is none\n");
        return 1;
    }
    if (tokens_setup(&directory))
        return 1;
    const struct recipe *recipe = golden.recipes;
    while ((line = strsep(&rest, "\n"))) {
        if (strncmp(line, "numerics.version ", 17) == 0)
            printf("numerics.version %d\n", LS_NUMERICS_VERSION);
        else if (strncmp(line, "compiler ", 9) == 0)
            printf("compiler %d\n", atoi(__VERSION__));
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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_bits_are_those_recorded, tokens_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_changes_are_seen, tokens_setup, scratch_teardown),
        cmocka_unit_test(test_malformed_files_are_refused),
    };
    if (count == 2 && strcmp(arguments[1], "--record") == 0)
        return record();
    return cmocka_run_group_tests_name("golden", tests, NULL, NULL);
}
