/* Each function of lockstep/ops/ that takes ops to compute with, once. test_idle.c holds the table
 * equal to the headers. */
#ifndef TEST_OPS_EVERY_OP_H
#define TEST_OPS_EVERY_OP_H

#include <lockstep/ops.h>

/* Rows, channels, elements; heads have 8 channels, products are 8 x 8 x 8. */
enum { EVERY_OP_N = 64, EVERY_OP_BYTES = 1 << 20 };
/* Where the next buffer of an op lies: EVERY_OP_BYTES each. Set before one is run. */
extern void *(*every_op_at)(void);

struct every_op {
    const char *name;
    int (*run)(struct ls_ops *ops);
};
extern const struct every_op every_op[];
extern const int every_op_count;

#endif
