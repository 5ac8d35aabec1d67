/* A test program as a suite of cases.
 *
 *     CASE(test_that_it_holds)
 *     {
 *         assert_true(holds());
 *     }
 *     SUITE_MAIN(NULL, NULL)
 *
 * A case lists itself, and cases run in the order of the file. `state` within one is cmocka's: what
 * the set-up left there. */
#ifndef TEST_SUPPORT_SUITE_H
#define TEST_SUPPORT_SUITE_H

#include "testing.h"

#define CASE(name) CASE_WITH(name, NULL, NULL)
/* With a set-up before it and a tear-down after it, NULL for none. */
#define CASE_WITH(name, setup, teardown)                                                           \
    static void name(void **state);                                                                \
    __attribute__((constructor(1000 + __LINE__))) static void name##_listed(void)                  \
    {                                                                                              \
        suite_add((struct CMUnitTest){#name, name, setup, teardown, NULL});                        \
    }                                                                                              \
    static void name(void **state)
/* The main function, with a set-up before all cases and a tear-down after them. */
#define SUITE_MAIN(setup, teardown)                                                                \
    int main(void)                                                                                 \
    {                                                                                              \
        return suite_run(setup, teardown);                                                         \
    }

void suite_add(struct CMUnitTest test);
/* Runs the cases: how many of them failed; 1 where there is none. */
int suite_run(CMFixtureFunction setup, CMFixtureFunction teardown);

#endif
