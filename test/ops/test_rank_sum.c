/* Sums over ranks: the order that the law of sums says, on every instruction set. */
#include <lockstep/ops.h>

#include <math.h>
#include <string.h>

#include "../support/suite.h"

/* Longer than a kernel's block, and no multiple of a vector; LONG is worth a team, whose parts are
 * longer than all that a kernel has room for. */
enum { INPUTS = LS_RANK_SUM_INPUTS, COUNT = 1043, LONG = 20011 };

static float whole[INPUTS][LONG], before[LONG];
static ls_bf16 narrow[INPUTS][LONG];

static float input(enum ls_rank_sum_form form, int rank, int64_t i)
{
    return form == LS_RANK_SUM_BF16      ? ls_bf16_to_f32(narrow[rank][i])
           : form == LS_RANK_SUM_ROUNDED ? ls_bf16_to_f32(ls_f32_to_bf16(whole[rank][i]))
                                         : whole[rank][i];
}

/* Values of many magnitudes and both signs; zeros of both signs and NaN too where the maximum is
 * looked for. */
static void fill(enum ls_rank_sum_form form, int64_t count)
{
    static const float magnitudes[] = {1e-3f, 1, 1e3f, 1e6f};
    for (int r = 0; r < INPUTS; r++)
        for (int64_t i = 0; i < count; i++) {
            uint32_t bits[4];
            ls_philox((struct ls_philox_key){{3, (uint32_t)r}}, (uint32_t[4]){(uint32_t)i, 0, 0, 0},
                      bits);
            float value = (ls_uniform_of(bits[0]) - 0.5f) * magnitudes[bits[1] % 4];
            if (form == LS_RANK_SUM_MAX && bits[2] % 3 == 0)
                value = bits[3] % 9 == 0 ? -NAN : bits[3] % 2 ? 0.0f : -0.0f;
            whole[r][i] = value;
            narrow[r][i] = ls_f32_to_bf16(value);
            before[i] = value * 0.37f;
        }
}

/* ---- the order, written down ----------------------------------------------------------------- */

static float joined(enum ls_rank_sum_form form, float a, float b)
{
    if (form != LS_RANK_SUM_MAX)
        return a + b;
    if (isnan(a) || isnan(b))
        return NAN;
    return a > b || (a == b && !signbit(a)) ? a : b;
}

static float tree(enum ls_rank_sum_form form, int first, int n, int64_t i)
{
    if (n == 1)
        return input(form, first, i);
    int split = (int)ls_tree_split(n);
    return joined(form, tree(form, first, split, i), tree(form, first + split, n - split, i));
}

static float expected(const struct ls_rank_sum *sum, int64_t i)
{
    float value = before[i];
    for (int r = 0; r < sum->n; r += sum->inner) {
        float leaf = tree(sum->form, r, sum->inner, i);
        value = r || sum->onto ? joined(sum->form, value, leaf) : leaf;
    }
    return value;
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* out[count] is the sum; it may be one of the inputs, which are filled again then. */
static void check(struct ls_ops *ops, struct ls_rank_sum sum, float *out)
{
    static float want[LONG];
    for (int r = 0; r < sum.n; r++)
        sum.inputs[r] = sum.form == LS_RANK_SUM_BF16 ? (void *)narrow[r] : (void *)whole[r];
    sum.out = out;
    for (int64_t i = 0; i < sum.count; i++)
        want[i] = expected(&sum, i);
    if (sum.onto)
        memcpy(out, before, (size_t)sum.count * sizeof *out);
    ls_rank_sum_run(ops, &sum);
    for (int64_t i = 0; i < sum.count; i++)
        if (memcmp(&out[i], &want[i], sizeof *out) != 0)
            fail_msg("%s, form %d, %d inputs, %d of a leaf, onto %d: element %lld of %lld is %a, "
                     "expected %a",
                     ls_isa_name(ops->isa), (int)sum.form, sum.n, sum.inner, sum.onto, (long long)i,
                     (long long)sum.count, (double)out[i], (double)want[i]);
}

/* Every form of sum, on every instruction set. */
CASE(test_sums_are_ordered)
{
    static float out[LONG];
    for (int isa = 0; isa <= (int)ls_isa_best(); isa++) {
        struct ls_ops ops;
        assert_int_equal(ls_ops_init(&ops, 2, (enum ls_isa)isa, NULL), LS_OK);
        for (enum ls_rank_sum_form form = LS_RANK_SUM_F32; form <= LS_RANK_SUM_MAX; form++) {
            fill(form, LONG);
            for (int n = 1; n <= INPUTS; n++)
                for (int inner = 1; inner <= n; inner++)
                    for (int c = 0; c < 6 && n % inner == 0; c++) {
                        const int64_t count = c < 2 ? c : c < 4 ? COUNT : LONG;
                        check(&ops,
                              (struct ls_rank_sum){form, n, inner, c % 2, count, {NULL}, NULL},
                              out);
                    }
        }
        ls_ops_release(&ops);
    }
}

/* Out may be any input of a leaf. */
CASE(test_in_place)
{
    struct ls_ops ops;
    ls_ops_init_shared(&ops);
    assert_int_equal(ops.isa, ls_isa_best());
    for (enum ls_rank_sum_form form = LS_RANK_SUM_F32; form <= LS_RANK_SUM_MAX; form++)
        for (int n = 1; n <= INPUTS && form != LS_RANK_SUM_BF16; n++)
            for (int r = 0; r < n; r++) {
                fill(form, COUNT);
                check(&ops, (struct ls_rank_sum){form, n, n, false, COUNT, {NULL}, NULL}, whole[r]);
            }
}

/* What is summed in another order is told from it: the values do not hide one. */
CASE(test_orders_differ)
{
    fill(LS_RANK_SUM_F32, COUNT);
    for (int n = 4; n <= INPUTS; n++) {
        int differ = 0;
        for (int64_t i = 0; i < COUNT; i++)
            differ +=
                tree(LS_RANK_SUM_F32, 0, n, i) !=
                expected(&(struct ls_rank_sum){LS_RANK_SUM_F32, n, 1, false, 0, {NULL}, NULL}, i);
        assert_true(differ > COUNT / 8);
    }
}

/* One chain in two commands. */
CASE(test_a_sum_goes_on)
{
    struct ls_ops ops;
    static float once[COUNT], twice[COUNT];
    ls_ops_init_shared(&ops);
    fill(LS_RANK_SUM_F32, COUNT);
    struct ls_rank_sum sum = {LS_RANK_SUM_F32, 6, 2, false, COUNT, {NULL}, once};
    for (int r = 0; r < 6; r++)
        sum.inputs[r] = whole[r];
    ls_rank_sum_run(&ops, &sum);
    sum.n = 4;
    sum.out = twice;
    ls_rank_sum_run(&ops, &sum);
    ls_rank_sum_run(&ops, &(struct ls_rank_sum){
                              LS_RANK_SUM_F32, 2, 2, true, COUNT, {whole[4], whole[5]}, twice});
    assert_memory_equal(once, twice, sizeof once);
}

SUITE_MAIN(NULL, NULL)
