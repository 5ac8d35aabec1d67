/* The list of a program's cases. */
#include "suite.h"

#include <stdlib.h>

enum { CASES_MAX = 64 };

static struct CMUnitTest cases[CASES_MAX]; /* cmocka passes over those without a name */
static int count;

void suite_add(struct CMUnitTest test)
{
    if (count == CASES_MAX)
        abort();
    cases[count++] = test;
}

int suite_run(CMFixtureFunction setup, CMFixtureFunction teardown)
{
    if (getenv("ONLY"))
        cmocka_set_test_filter(getenv("ONLY"));
    return count ? cmocka_run_group_tests(cases, setup, teardown) : 1;
}
