/* What each file of tests includes: cmocka, with the headers that it needs before it. */
#ifndef TEST_SUPPORT_TESTING_H
#define TEST_SUPPORT_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Each test is given a state, and few look at it; hooks and wrapped functions are alike. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

#endif
