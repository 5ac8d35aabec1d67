/* Where context parallel puts tokens, and rows between the order of ranks and that of tokens. */
#include "../support/suite.h"

#include <lockstep/parallel/context.h>

enum { TOKENS = 96, WIDTH = 3, PARTS = 2 };

/* Every token is held once, and every rank has the same causal work. */
CASE(test_segments)
{
    for (int64_t tiles = 1; tiles <= 16; tiles *= 2)
        for (int64_t cp = 1; cp <= tiles; cp *= 2) {
            int holder[TOKENS] = {0};
            int64_t work_of_first = 0;
            for (int64_t rank = 0; rank < cp; rank++) {
                int64_t work = 0, held = 0, first, count;
                for (int i = 0; i < ls_segments(tiles, cp); i++) {
                    ls_segment(tiles, cp, rank, TOKENS, i, &first, &count);
                    for (int64_t t = first; t < first + count; t++, held++) {
                        holder[t]++;
                        work += t + 1;
                    }
                }
                assert_int_equal(held, TOKENS / cp);
                work_of_first = rank == 0 ? work : work_of_first;
                assert_int_equal(work, work_of_first);
            }
            for (int t = 0; t < TOKENS; t++)
                assert_int_equal(holder[t], 1);
        }
}

/* A rank's rows are those that ranks of twice as many hold together, in their order: so a tile of
 * the recipe is the same rows for any cp. */
CASE(test_ranks_hold_whole_tiles)
{
    int64_t want, got, count;
    for (int64_t cp = 1; cp < 16; cp *= 2)
        for (int64_t rank = 0; rank < 2 * cp; rank++)
            for (int i = 0; i < ls_segments(16, 2 * cp); i++) {
                ls_segment(16, 2 * cp, rank, TOKENS, i, &got, &count);
                int within = (int)(rank % 2) * ls_segments(16, 2 * cp) + i;
                ls_segment(16, cp, rank / 2, TOKENS, within, &want, &count);
                assert_int_equal(got, want);
            }
}

/* The value of a token's column. */
static float value_of(int64_t token, int64_t column)
{
    return (float)(token * WIDTH + column);
}

struct walk {
    int64_t tiles;
    int size;
};

static int gather_check(const struct ls_cp *cp, struct ls_ops *ops, int64_t tiles,
                        struct ls_error *error)
{
    enum { LD = WIDTH + 2 };
    float own[TOKENS * LD], staging[TOKENS * WIDTH], natural[TOKENS * WIDTH];
    int64_t row = 0, first, count;
    for (int i = 0; i < ls_segments(tiles, cp->size); i++) {
        ls_segment(tiles, cp->size, cp->rank, TOKENS, i, &first, &count);
        for (int64_t t = first; t < first + count; t++, row++)
            for (int64_t c = 0; c < WIDTH; c++)
                own[row * LD + c] = value_of(t, c);
    }
    const struct ls_cp_rows rows = {tiles, TOKENS, WIDTH, LS_F32};
    int status = ls_cp_gather(cp, ops, &rows, own, LD, staging, natural, error);
    for (int64_t i = 0; i < TOKENS * WIDTH && !status; i++)
        if (natural[i] != (float)i)
            status = ls_error_set(error, LS_EINVAL, "gathered element %ld is %g", (long)i,
                                  (double)natural[i]);
    return status;
}

/* Rank r brings r + 1 times each value, and of the second part ten times that. */
static int reduce_check(const struct ls_cp *cp, struct ls_ops *ops, int64_t tiles,
                        struct ls_error *error)
{
    float natural[PARTS * TOKENS * WIDTH], staging[PARTS * TOKENS * WIDTH];
    int64_t local = TOKENS / cp->size, row = 0, first, count;
    float ranks = (float)(cp->size * (cp->size + 1) / 2);
    for (int64_t i = 0; i < TOKENS * WIDTH; i++) {
        natural[i] = (float)i * (float)(cp->rank + 1);
        natural[TOKENS * WIDTH + i] = 10 * natural[i];
    }
    const struct ls_cp_rows rows = {tiles, TOKENS, WIDTH, LS_F32};
    int status = ls_cp_reduce(cp, ops, &rows, PARTS, natural, staging, natural, error);
    for (int i = 0; i < ls_segments(tiles, cp->size) && !status; i++) {
        ls_segment(tiles, cp->size, cp->rank, TOKENS, i, &first, &count);
        for (int64_t t = first; t < first + count && !status; t++, row++)
            for (int64_t c = 0; c < WIDTH; c++) {
                float want = value_of(t, c) * ranks, one = natural[row * WIDTH + c],
                      ten = natural[(local + row) * WIDTH + c];
                if (one != want || ten != 10 * want)
                    status = ls_error_set(error, LS_EINVAL,
                                          "token %ld column %ld: sums %g and %g, expected %g and "
                                          "ten times that",
                                          (long)t, (long)c, (double)one, (double)ten, (double)want);
            }
    }
    return status;
}

static int rank_run(struct ls_comm *comm, void *user, struct ls_error *error)
{
    const struct walk *walk = user;
    struct ls_cp cp;
    struct ls_ops ops;
    ls_cp_init(&cp, comm, LS_CP_ALL_GATHER);
    int status = ls_ops_init(&ops, 1, LS_ISA_PLAIN, error);
    if (!status)
        status = gather_check(&cp, &ops, walk->tiles, error);
    if (!status)
        status = reduce_check(&cp, &ops, walk->tiles, error);
    ls_ops_release(&ops);
    return status;
}

CASE(test_rows_come_and_go)
{
    struct ls_error error = {0};
    for (int64_t tiles = 1; tiles <= 8; tiles *= 2)
        for (int size = 1; size <= tiles; size *= 2)
            if (ls_world_run(size, rank_run, &(struct walk){tiles, size}, &error))
                fail_msg("%ld tiles over %d ranks: %s", (long)tiles, size, error.text);
}

SUITE_MAIN(NULL, NULL)
