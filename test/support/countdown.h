/* The n-th system call fails: the hook of a struct ls_fault. */
#ifndef TEST_SUPPORT_COUNTDOWN_H
#define TEST_SUPPORT_COUNTDOWN_H

#include <errno.h>
#include <stdio.h>

struct countdown {
    int left;        /* how many calls come before it; negative: none fails */
    int errno_value; /* 0 is ENOSPC */
    char call[16];   /* the one that failed, "" until then */
    char behind[16]; /* the one before it */
};

static inline int countdown_before(void *user, const char *call)
{
    struct countdown *countdown = user;
    if (countdown->left-- != 0) {
        if (countdown->left >= 0)
            snprintf(countdown->behind, sizeof countdown->behind, "%s", call);
        return 0;
    }
    snprintf(countdown->call, sizeof countdown->call, "%s", call);
    return countdown->errno_value ? countdown->errno_value : ENOSPC;
}

#endif
