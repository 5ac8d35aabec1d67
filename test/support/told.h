/* How far works told that they are: what takes the place of ls_meter (Makefile, "wrap"). */
#ifndef TEST_SUPPORT_TOLD_H
#define TEST_SUPPORT_TOLD_H

#include <stdint.h>

/* Forgets all. */
void told_clear(void);
/* Hears each of them too; NULL: nobody does. */
extern void (*told_also)(const char *what, int64_t done, int64_t all);
/* Fails unless somebody told of `what`, of no less than before until all was done, and at the end
 * of all of `all`. TOLD_SOME: however many there are; 0: nobody knew how many. */
enum { TOLD_SOME = -1 };
void told_expect(const char *what, int64_t all);

#endif
