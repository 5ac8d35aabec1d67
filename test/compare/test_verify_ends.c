/* What ends a verify and what does not, in the place of layouts that are trained. */
#include "../support/config_words.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/wrapped.h"

#include <lockstep/compare/verify.h>

#include <string.h>

/* What becomes of each layout, and of the trace of one that differs. */
static struct {
    int layout, trace; /* its status */
    bool differs, given_up;
    int runs, told[LS_VERIFY_FAILED + 1];
} now;

static int end(int status, struct ls_error *error)
{
    if (status)
        ls_error_set(error, status, "rank 0: no file; rank 1 did not return (1 in all)");
    if (status && now.given_up)
        ls_error_blame(error, LS_CAUSE_GIVEN_UP, "");
    return status;
}

WRAPPED(ls_proof_threads);
int __wrap_ls_proof_threads(const struct ls_config *config, int64_t steps, struct ls_proof *proof,
                            struct ls_error *error)
{
    (void)config;
    memset(proof, 0, (size_t)steps * sizeof *proof);
    bool reference = now.runs++ == 0;
    proof[0].loss_bits = now.differs && !reference;
    return reference ? LS_OK : end(now.layout, error);
}

WRAPPED(ls_proof_trace);
int __wrap_ls_proof_trace(const struct ls_config *a, const struct ls_config *b, int64_t step,
                          char *name, size_t bytes, struct ls_error *error)
{
    (void)a, (void)b, (void)step;
    snprintf(name, bytes, "a tensor");
    return end(now.trace, error);
}

static void on_told(void *user, const struct ls_verified *layout)
{
    (void)user;
    now.told[layout->as] += layout->number > 0;
    if (layout->as == LS_VERIFY_DIFFERS && now.trace)
        assert_non_null(strstr(layout->tensor, "did not return"));
}

/* A layout that fails or differs is counted, and the next one is tried. A rank that was given up is
 * still at work: nothing else begins, whatever else had failed. */
CASE_WITH(test_a_rank_that_is_given_up_ends_it, scratch_setup, scratch_teardown)
{
    enum { LAYOUTS = 3 };
    static const struct {
        int layout, trace;
        bool differs, given_up;
        int status, begun, failed, differ;
    } cases[] = {
        {LS_OK, LS_OK, false, false, LS_OK, LAYOUTS, 0, 0},
        {LS_EIO, LS_OK, false, false, LS_OK, LAYOUTS, LAYOUTS, 0},
        {LS_EIO, LS_OK, false, true, LS_EIO, 1, 0, 0},
        {LS_ECOMM, LS_OK, false, false, LS_ECOMM, 1, 0, 0},
        {LS_OK, LS_OK, true, false, LS_OK, LAYOUTS, 0, LAYOUTS},
        {LS_OK, LS_EIO, true, false, LS_OK, LAYOUTS, 0, LAYOUTS},
        {LS_OK, LS_EIO, true, true, LS_EIO, 1, 0, 1},
    };
    static const uint16_t tokens[512];
    const char *path = scratch_path(*state, "tokens.bin");
    scratch_write(path, tokens, sizeof tokens);
    const struct ls_config config =
        config_of_words("model.vocab=257 model.layers=2 model.channels=32 model.heads=2 "
                        "model.context=32 batch.global=8 data.train=u16:%s "
                        "numerics.precision=fp32 parallel.threads=1 parallel.dp=2",
                        path);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_error error = {0};
        struct ls_verify v = {0};
        const struct ls_verify_request request = {
            .config = &config, .layouts = LAYOUTS, .ranks = 4, .steps = 1, .told = on_told};
        memset(&now, 0, sizeof now);
        now.layout = cases[i].layout;
        now.trace = cases[i].trace;
        now.differs = cases[i].differs;
        now.given_up = cases[i].given_up;
        assert_ok(ls_verify_open(&v, &request, &error), error);
        assert_int_equal(ls_verify_run(&v, &error), cases[i].status);
        assert_true(!cases[i].given_up || error.cause == LS_CAUSE_GIVEN_UP);
        assert_int_equal(now.told[LS_VERIFY_BEGINS], cases[i].begun);
        assert_int_equal(now.told[LS_VERIFY_FAILED], cases[i].failed);
        assert_int_equal(now.told[LS_VERIFY_DIFFERS], cases[i].differ);
        ls_verify_release(&v);
    }
}

SUITE_MAIN(NULL, NULL)
