/* What each file of tests includes: cmocka, with the headers that it needs before it, and how tests
 * look at a struct ls_error. */
#ifndef TEST_SUPPORT_TESTING_H
#define TEST_SUPPORT_TESTING_H

#include <lockstep/base.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

/* Each test is given a state, and few look at it; hooks and wrapped functions are alike. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

/* Both operands are in the message. */
#define assert_text_contains(text, part)                                                           \
    do {                                                                                           \
        const char *text_ = (text), *part_ = (part);                                               \
        if (!strstr(text_, part_))                                                                 \
            fail_msg("\"%s\" does not contain \"%s\"", text_, part_);                              \
    } while (0)
#define assert_ok(call, error)                                                                     \
    do {                                                                                           \
        int rc_ = (call);                                                                          \
        if (rc_)                                                                                   \
            fail_msg("%s: %s: %s", #call, ls_status_name(rc_), (error).text);                      \
    } while (0)

#endif
