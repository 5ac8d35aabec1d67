/* The instruction set that is best here, and the variable that makes it less. */
#include <lockstep/ops.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

static void test_names(void **state)
{
    (void)state;
    for (int isa = 0; isa < LS_ISA_COUNT; isa++)
        assert_int_equal(ls_isa_of_name(ls_isa_name((enum ls_isa)isa)), isa);
    assert_int_equal(ls_isa_of_name("avx"), -1);
}

static void test_the_variable_is_an_upper_bound(void **state)
{
    (void)state;
    assert_int_equal(unsetenv(LS_ISA_VARIABLE), 0);
    enum ls_isa machine = ls_isa_best();
    for (int isa = 0; isa < LS_ISA_COUNT; isa++) {
        struct ls_ops ops;
        struct ls_error error = {0};
        enum ls_isa want = isa < (int)machine ? (enum ls_isa)isa : machine;
        assert_int_equal(setenv(LS_ISA_VARIABLE, ls_isa_name((enum ls_isa)isa), 1), 0);
        assert_int_equal(ls_isa_best(), want);
        assert_int_equal(ls_ops_init(&ops, 1, want, &error), LS_OK);
        ls_ops_release(&ops);
        if (want == LS_ISA_COUNT - 1)
            continue;
        assert_int_equal(ls_ops_init(&ops, 1, want + 1, &error), LS_ENOTSUP);
        /* Named where it forbids, not where the machine alone does. */
        if (!strstr(error.text, LS_ISA_VARIABLE) != (isa > (int)machine))
            fail_msg("%s: %s", ls_isa_name((enum ls_isa)isa), error.text);
    }
}

static void test_an_unknown_name_is_refused(void **state)
{
    (void)state;
    struct ls_ops ops;
    struct ls_error error = {0};
    assert_int_equal(setenv(LS_ISA_VARIABLE, "avx3", 1), 0);
    assert_int_equal(ls_ops_init(&ops, 1, LS_ISA_PLAIN, &error), LS_EINVAL);
    assert_non_null(strstr(error.text, "LOCKSTEP_ISA=avx3: expected plain, avx2"));
    assert_int_equal(setenv(LS_ISA_VARIABLE, "", 1), 0);
    assert_int_equal(ls_ops_init(&ops, 1, LS_ISA_PLAIN, &error), LS_OK);
    ls_ops_release(&ops);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_the_variable_is_an_upper_bound),
        cmocka_unit_test(test_an_unknown_name_is_refused),
    };
    return cmocka_run_group_tests_name("isa", tests, NULL, NULL);
}
