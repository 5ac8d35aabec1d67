/* A fingerprint says where bits may differ. */
#include <lockstep/base/version.h>
#include <lockstep/train.h>

#include <stdio.h>
#include <string.h>

#include "../support/suite.h"

static void expect_difference(const char *a, const char *b, const char *want)
{
    char text[256];
    assert_int_equal(ls_fingerprint_differs(a, b, text, sizeof text), *want != 0);
    assert_string_equal(text, want);
}

CASE(test_fingerprints)
{
    char mine[256], head[128];
    static const char base[] =
        "numerics.version 3; arithmetic fma; isa avx2; compiler 12.2.0; lockstep 0.1.0 aaaa";
    const struct ls_ops ops = {.isa = LS_ISA_AVX2, .arithmetic = LS_ARITHMETIC_BF16_PAIRS};
    ls_fingerprint(&ops, mine, sizeof mine);
    snprintf(head, sizeof head, "numerics.version %d; arithmetic bf16_pairs; isa avx2; compiler ",
             LS_NUMERICS_VERSION);
    assert_memory_equal(mine, head, strlen(head));
    assert_non_null(strstr(mine, ls_commit()));
    expect_difference(mine, mine, "");
    /* Another instruction set, compiler, commit or version is no other bits; another arithmetic is
     * another recipe. */
    expect_difference(base,
                      "numerics.version 3; arithmetic fma; isa plain; compiler 14.1.0; "
                      "lockstep 0.2.0 bbbb-dirty",
                      "");
    expect_difference(base, "numerics.version 4; arithmetic fma; isa avx2; lockstep 0.1.0 aaaa",
                      "numerics.version 3 there, 4 here");
    expect_difference(base, "numerics.version 3; arithmetic bf16_pairs; isa amx; compiler 12.2.0",
                      "");
    /* A name's beginning is not the name; a value's neither. */
    expect_difference(base, "numerics.version 33; arithmetic fma; isa avx2",
                      "numerics.version 3 there, 33 here");
    /* As checkpoints had it before there was a numerics.version. */
    expect_difference("isa avx2; lockstep 0.1.0; compiler 12.2.0", base,
                      "numerics.version unknown there, 3 here");
}

SUITE_MAIN(NULL, NULL)
