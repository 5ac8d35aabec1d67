/* What the tests of ops share: test values in any activation type, comparison with a reference in
 * double, gradients by central differences, and equality of bits over threads, instruction sets and
 * cuts. */
#ifndef TEST_OPS_GRADIENT_H
#define TEST_OPS_GRADIENT_H

#include <lockstep/ops.h>

/* ---- fixture --------------------------------------------------------------------------------- */

/* Two threads on the best instruction set, between a group's setup and teardown. */
extern struct ls_ops ops_best;
int ops_best_setup(void **state);
int ops_best_teardown(void **state);

/* ---- values ---------------------------------------------------------------------------------- */

/* Heap memory filled with 0x5a bytes (so that what an op forgot to write shows); aborts the test
 * where there is none. The caller frees. */
void *values_new(size_t bytes);
/* count normal values with this standard deviation, rounded to act; the same for the same seed. */
void *values_normal(uint64_t seed, enum ls_dtype act, int64_t count, double stddev);
/* The values of an act buffer in double. */
double *values_in_double(enum ls_dtype act, const void *values, int64_t count);

/* ---- comparison ------------------------------------------------------------------------------ */

/* got [count] of act against want: fails (naming what, place and both operands) unless the norm of
 * the difference is at most tolerance times the norm of want. */
void assert_near(const char *what, enum ls_dtype act, const void *got, const double *want,
                 int64_t count, double tolerance);
/* Two gradients: |got| / |want| within 1 +- tolerance and 1 - cosine below tolerance^2. Returns
 * false instead of failing, so that broken twins can be checked too; prints both figures on false.
 */
bool gradient_near(const char *what, enum ls_dtype act, const void *got, const double *want,
                   int64_t count, double tolerance);
void assert_gradient_near(const char *what, enum ls_dtype act, const void *got, const double *want,
                          int64_t count, double tolerance);

/* ---- central differences --------------------------------------------------------------------- */

/* gradient[i] = (f(x + step e_i) - f(x - step e_i)) / (2 step), i < count. f reads x through its
 * context too: x is changed in place and restored. */
void gradient_by_differences(double (*f)(void *context), void *context, double *x, int64_t count,
                             double step, double *gradient);

/* ---- bits ------------------------------------------------------------------------------------ */

/* Runs run(ops, pieces, context, out) on every instruction set that this machine has,
 * with 1, 2 and 3 threads and pieces 1 and 2 (how many calls the op shall be cut into), and fails
 * where out[bytes] differs from the first run's. Same bits over instruction sets are asked only of
 * ops that promise it: others pass isa_each = true. */
struct bits_case {
    const char *what;
    size_t bytes;
    bool isa_each;
    void (*run)(struct ls_ops *ops, int pieces, void *context, void *out);
    void *context;
};
void assert_bits_same(const struct bits_case *bits);

#endif
