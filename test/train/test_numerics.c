/* A change of bits is a change of numerics.version, and a fingerprint says where bits may differ.
 */
#include "../support/scratch.h"
#include "tokens.h"

#include <lockstep/base/version.h>
#include <lockstep/train.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 3, RECIPES = 4 };

/* The state's hash after STEPS steps of each recipe below, on each instruction set: recorded at
 * NUMERICS, by gcc 12 at -O3. Where a change alters one, raise LS_NUMERICS_VERSION and put what
 * this test prints here. NULL: no machine with that set was at hand. */
enum { NUMERICS = 1 };
static const char *const recorded[LS_ISA_COUNT][RECIPES] = {
    [LS_ISA_PLAIN] = {"28bdeaa3367cb67f110196a262974cf2", "6ab276a2486f4d9e5191f9af9e6385d6",
                      "baeb95d16723dbc61b5a5d051cf614aa", "743f979a5b4eeb8dc00be92ef1a48e43"},
    [LS_ISA_AVX2] = {"b90b467e23eba242b4c04176f4e164aa", "d1dd58b15d4e0b8ce03da1e325a59a35",
                     "cbbfdb2f4d400d05988e85157e955b35", "a7221ffea91bada350495417efd30b73"},
    [LS_ISA_AVX512] = {"b90b467e23eba242b4c04176f4e164aa", "d1dd58b15d4e0b8ce03da1e325a59a35",
                       "cbbfdb2f4d400d05988e85157e955b35", "a7221ffea91bada350495417efd30b73"},
    [LS_ISA_AVX512_BF16] = {"b90b467e23eba242b4c04176f4e164aa", "a054af472fdecef1a8188ff04c32a554",
                            "cbbfdb2f4d400d05988e85157e955b35", "b9e8f9d1840dd31cac3a0354f6bc28fc"},
};
static const char *const recipes[RECIPES][4] = {
    {"model.arch=gpt2", "numerics.precision=fp32", "model.dropout=0.1", "optim.name=adamw"},
    {"model.arch=gpt2", "numerics.precision=bf16", "model.tied=true", "optim.name=lion"},
    {"model.arch=llama", "numerics.precision=fp32", "model.kv_heads=2", "optim.name=sgd"},
    {"model.arch=llama", "numerics.precision=bf16", "model.kv_heads=2", "numerics.tp_tiles=2"},
};
static const char *const common[] = {
    "model.vocab=50",   "model.layers=2", "model.channels=64",   "model.heads=4",
    "model.context=64", "model.ffn=128",  "data.sequence=64",    "batch.global=8",
    "optim.lr=3e-3",    "optim.clip=0.5", "optim.decay_steps=8", "train.steps=8",
    "batch.micro=2",    "parallel.dp=1",  "parallel.threads=1",  "optim.weight_decay=0.1"};

static void must(int status, const struct ls_error *error)
{
    if (status)
        fail_msg("%s", error->text);
}

static void hash_of(const char *directory, int recipe, enum ls_isa isa, char hex[33])
{
    struct ls_config config;
    struct ls_error error = {0};
    struct ls_proof proof[STEPS];
    char data[600], set[64];
    snprintf(data, sizeof data, "data.train=u16:%s/tokens.bin", directory);
    snprintf(set, sizeof set, "numerics.isa=%s", ls_isa_name(isa));
    ls_config_defaults(&config);
    must(ls_config_set(&config, data, &error), &error);
    must(ls_config_set(&config, set, &error), &error);
    for (size_t i = 0; i < sizeof common / sizeof *common; i++)
        must(ls_config_set(&config, common[i], &error), &error);
    for (int i = 0; i < 4; i++)
        must(ls_config_set(&config, recipes[recipe][i], &error), &error);
    must(ls_train_resolve(&config, &error), &error);
    must(ls_proof_threads(&config, STEPS, proof, &error), &error);
    ls_digest_hex(&proof[STEPS - 1].hash, hex);
}

static void test_bits_are_those_of_the_version(void **state)
{
    int changed = 0;
    assert_int_equal(NUMERICS, LS_NUMERICS_VERSION);
    bool comparable = strncmp(__VERSION__, "12.", 3) == 0;
#ifndef NDEBUG
    comparable = false;
#endif
    if (!comparable) {
        printf("SKIPPED: the hashes were recorded with gcc 12 in a release build, this is %s\n",
               __VERSION__);
        skip();
    }
    for (int isa = 0; isa <= (int)ls_isa_best(); isa++)
        for (int recipe = 0; recipe < RECIPES; recipe++) {
            char hex[33];
            const char *want = recorded[isa][recipe];
            hash_of(*state, recipe, (enum ls_isa)isa, hex);
            if (!want)
                printf("SKIPPED: no hash was recorded on %s\n", ls_isa_name((enum ls_isa)isa));
            else if (strcmp(hex, want))
                changed++;
            if (!want || strcmp(hex, want))
                printf("%s, recipe %d: \"%s\"\n", ls_isa_name((enum ls_isa)isa), recipe, hex);
        }
    if (changed)
        fail_msg("%d hashes changed, and numerics.version is still %d: "
                 "doc/adr/0018-numerics-version.md says what to do",
                 changed, LS_NUMERICS_VERSION);
}

/* The comparison above sees a change. */
static void test_other_sets_have_other_bits(void **state)
{
    char plain[33], best[33];
    if (ls_isa_best() == LS_ISA_PLAIN)
        skip();
    hash_of(*state, 0, LS_ISA_PLAIN, plain);
    hash_of(*state, 0, ls_isa_best(), best);
    assert_string_not_equal(plain, best);
}

static void expect_difference(const char *a, const char *b, const char *want)
{
    char text[256];
    assert_int_equal(ls_fingerprint_differs(a, b, text, sizeof text), *want != 0);
    assert_string_equal(text, want);
}

static void test_fingerprints(void **state)
{
    (void)state;
    char mine[256], head[128];
    static const char base[] = "numerics.version 3; isa avx2; compiler 12.2.0; lockstep 0.1.0 aaaa";
    ls_fingerprint(LS_ISA_AVX2, mine, sizeof mine);
    snprintf(head, sizeof head, "numerics.version %d; isa avx2; compiler ", LS_NUMERICS_VERSION);
    assert_memory_equal(mine, head, strlen(head));
    assert_non_null(strstr(mine, ls_commit()));
    expect_difference(mine, mine, "");
    /* Another commit or version is no other bits. */
    expect_difference(
        base, "numerics.version 3; isa avx2; compiler 12.2.0; lockstep 0.2.0 bbbb-dirty", "");
    expect_difference(base, "numerics.version 4; isa avx2; compiler 12.2.0; lockstep 0.1.0 aaaa",
                      "numerics.version 3 there, 4 here");
    expect_difference(base, "numerics.version 3; isa amx; compiler 14.1.0; lockstep 0.1.0 aaaa",
                      "isa avx2 there, amx here; compiler 12.2.0 there, 14.1.0 here");
    /* A name's beginning is not the name; a value's neither. */
    expect_difference(base, "numerics.version 33; isa avx2; compiler 12.2.0",
                      "numerics.version 3 there, 33 here");
    /* As checkpoints had it before there was a numerics.version. */
    expect_difference("isa avx2; lockstep 0.1.0; compiler 12.2.0", base,
                      "numerics.version unknown there, 3 here");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_bits_are_those_of_the_version, tokens_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_other_sets_have_other_bits, tokens_setup,
                                        scratch_teardown),
        cmocka_unit_test(test_fingerprints),
    };
    return cmocka_run_group_tests_name("numerics", tests, NULL, NULL);
}
