/* A recipe in layouts that are drawn, each trained and held against one rank. */
#include <lockstep/base/meter.h>
#include <lockstep/compare/verify.h>
#include <lockstep/train/fit.h>
#include <lockstep/train/recorded.h>

#include <stdlib.h>
#include <string.h>

static void tell(const struct ls_verify *v, struct ls_verified *told, enum ls_verified_as as)
{
    told->as = as;
    if (v->request.told)
        v->request.told(v->request.user, told);
}

/* ---- one layout ------------------------------------------------------------------------------ */

/* Before it runs: that every wait ends. */
static int waits_prove(const struct ls_config *config, struct ls_error *error)
{
    struct ls_layout layout;
    struct ls_layout_proof proof;
    int status = ls_config_layout(config, 0, &layout, error);
    return status ? status : ls_layout_check(config, &layout, false, &proof, error);
}

/* Ranks of a layout did not return: their threads go on, beside whatever else ran. */
static bool is_given_up(int status, const struct ls_error *error)
{
    return status && error->cause == LS_CAUSE_GIVEN_UP;
}

/* What the trace meets it tells; only a rank that was given up is an error. */
static int difference_trace(const struct ls_verify *v, int64_t step, struct ls_verified *told,
                            struct ls_error *error)
{
    told->step = step;
    told->loss_bits = v->proof[step - 1].loss_bits;
    told->one_bits = v->reference[step - 1].loss_bits;
    int status =
        ls_proof_trace(&v->one, told->config, step, told->tensor, sizeof told->tensor, error);
    told->traced = !status;
    if (status)
        snprintf(told->tensor, sizeof told->tensor, "%.255s", error->text);
    return is_given_up(status, error) ? status : LS_OK;
}

/* Proves and runs it. Only what makes going on senseless is an error. */
static int layout_check(struct ls_verify *v, const struct ls_config *config, struct ls_error *error)
{
    struct ls_verified told = {.config = config};
    double begin_s = ls_now_s();
    int status = ls_memory_here(config, &told.bytes, error);
    if (status == LS_ENOMEM) {
        v->too_large++;
        return LS_OK;
    }
    if (status)
        return status;
    told.number = ++v->ran;
    ls_config_layout_text(config, &v->one, told.layout, sizeof told.layout);
    tell(v, &told, LS_VERIFY_BEGINS);
    status = waits_prove(config, error);
    if (!status)
        status = ls_proof_threads(config, v->request.steps, v->proof, error);
    if (status == LS_ECOMM || is_given_up(status, error))
        return status;
    int traced = LS_OK;
    int64_t step = status ? 0 : ls_proof_differs(v->reference, v->proof, v->request.steps);
    v->failed += status != 0;
    v->differ += step != 0;
    if (status)
        snprintf(told.why, sizeof told.why, "%.1023s", error->text);
    if (step)
        traced = difference_trace(v, step, &told, error);
    told.seconds = ls_now_s() - begin_s;
    tell(v, &told, status ? LS_VERIFY_FAILED : step ? LS_VERIFY_DIFFERS : LS_VERIFY_EQUAL);
    ls_meter("layouts", v->ran, v->request.layouts);
    return traced;
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* Whether a layout was not there before; it is from now on. A micro-batch that is chosen is the
 * same as one that is given. */
static bool is_new(struct ls_verify *v, const struct ls_config *config, int64_t count)
{
    char text[1024];
    struct ls_config given = *config;
    struct ls_layout layout;
    if (!ls_config_layout(config, 0, &layout, NULL))
        given.batch.micro = layout.micro_sequences;
    ls_config_layout_text(&given, &v->one, text, sizeof text);
    uint64_t hash = ls_hash64(text, strlen(text), 0);
    for (int64_t i = 0; i < count; i++)
        if (v->seen[i] == hash)
            return false;
    v->seen[count] = hash;
    return true;
}

static int stopped(const struct ls_verify *v, struct ls_error *error)
{
    if (!v->request.stop || !*v->request.stop)
        return LS_OK;
    return ls_error_set(error, LS_ESTOPPED, "stopped after %ld layouts", (long)v->ran);
}

/* The configuration's own layout, then those that are drawn, each once. */
static int layouts_check(struct ls_verify *v, struct ls_error *error)
{
    enum { DRAWS_FOR_ONE = 30 };
    struct ls_config drawn;
    int64_t count = 0, last_new = 0, layouts = v->request.layouts;
    int status = LS_OK, values[LS_DRAW_ROWS_MAX];
    is_new(v, &v->one, count++);
    if (is_new(v, &v->config, count)) {
        count++;
        if (ls_draw_values(&v->config, values))
            ls_draw_cover_add(&v->cover, values);
        status = layout_check(v, &v->config, error);
    }
    for (int64_t i = 0; count < layouts + 1 && !status && i - last_new < DRAWS_FOR_ONE; i++) {
        const char *file = v->config.memory.file;
        struct ls_draw draw = {.seed = v->request.seed,
                               .index = (uint64_t)i,
                               .ranks_max = v->request.ranks,
                               .file = *file ? file : NULL};
        status = stopped(v, error);
        if (status || ls_compare_draw(&v->config, 1, &draw, &v->cover, &drawn) < 0)
            break;
        if (!is_new(v, &drawn, count))
            continue;
        count++;
        last_new = i;
        status = layout_check(v, &drawn, error);
    }
    return status;
}

static int reference_make(struct ls_verify *v, struct ls_error *error)
{
    struct ls_verified told = {.config = &v->one, .layout = "one rank"};
    double begin_s = ls_now_s();
    int status = ls_memory_here(&v->one, &told.bytes, error);
    if (status)
        return status;
    tell(v, &told, LS_VERIFY_BEGINS);
    status = ls_proof_threads(&v->one, v->request.steps, v->reference, error);
    if (status)
        return status;
    told.hash = v->reference[v->request.steps - 1].hash;
    told.seconds = ls_now_s() - begin_s;
    tell(v, &told, LS_VERIFY_EQUAL);
    return LS_OK;
}

/* ---- what is called -------------------------------------------------------------------------- */

/* Once for all layouts: each would measure by itself. */
static int arithmetic_settle(struct ls_config *config, struct ls_error *error)
{
    struct ls_comm *self;
    int status = ls_comm_self_new(&self, error);
    if (status)
        return status;
    status = ls_state_recall(config, self, error);
    if (!status)
        status = ls_config_settle(config, self, error);
    ls_comm_free(self);
    return status;
}

static int config_check(struct ls_config *config, struct ls_error *error)
{
    struct ls_layout layout;
    int status = ls_config_require_data(config, error);
    if (!status && config->numerics.mode == LS_CONFIG_FAST)
        status = ls_config_reject(config, LS_ECONFIG, "numerics.mode", error,
                                  "in this mode the bits depend on the layout, so verify has "
                                  "nothing to prove: use ordered");
    if (!status && config->async.order == LS_CONFIG_BY_CLOCK && !*config->async.follow)
        status = ls_config_reject(config, LS_ECONFIG, "async.order", error,
                                  "updates come in another order each time, so verify has nothing "
                                  "to prove: use times, or async.follow=RUN with a run of this "
                                  "recipe, whose order all layouts then follow");
    if (!status)
        status = ls_config_layout(config, 0, &layout, error);
    return status ? status : arithmetic_settle(config, error);
}

int ls_verify_open(struct ls_verify *v, const struct ls_verify_request *request,
                   struct ls_error *error)
{
    v->request = *request;
    v->config = *request->config;
    int status = config_check(&v->config, error);
    if (status)
        return status;
    v->config.log.trace = false;
    ls_compare_one_rank(&v->config, &v->one);
    size_t steps = (size_t)request->steps;
    v->reference = calloc(steps, sizeof *v->reference);
    v->proof = calloc(steps, sizeof *v->proof);
    v->seen = calloc((size_t)request->layouts + 2, sizeof *v->seen);
    if (v->reference && v->proof && v->seen)
        return LS_OK;
    return ls_no_memory(error, "for %ld steps", (long)request->steps);
}

int ls_verify_run(struct ls_verify *v, struct ls_error *error)
{
    int status = reference_make(v, error);
    return status ? status : layouts_check(v, error);
}

bool ls_verify_only_pipelines(const struct ls_verify *v)
{
    /* Axes are the first rows, and each was asked for. */
    for (int axis = 0; axis < LS_AXES; axis++)
        if (axis != LS_AXIS_PP && !v->cover.pair_impossible[axis][axis])
            return false;
    return true;
}

void ls_verify_release(struct ls_verify *v)
{
    free(v->reference);
    free(v->proof);
    free(v->seen);
}
