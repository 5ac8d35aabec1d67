/* An optimizer: its states, the square of a gradient, clipping, one step over a rank's slices. */
#include "optim/muon_matrices.h"
#include "optim/slices.h"

#include <math.h>
#include <stdio.h>

/* What updates a parameter. */
static enum ls_optimizer_kind rule_of(const struct ls_optim_config *config, bool hidden)
{
    return config->kind == LS_MUON && !hidden ? LS_ADAMW : config->kind;
}

int ls_optimizer_states(const struct ls_optim_config *config, bool hidden)
{
    switch (rule_of(config, hidden)) {
    case LS_ADAMW:
        return 2;
    case LS_SGD:
        return config->momentum != 0 ? 1 : 0;
    case LS_LION:
    case LS_MUON:
        return 1;
    }
    return 0;
}

int ls_optimizer_states_most(const struct ls_optim_config *config)
{
    return ls_optimizer_states(config, false);
}

const char *ls_optimizer_state_name(const struct ls_optim_config *config, bool hidden, int state)
{
    enum ls_optimizer_kind rule = rule_of(config, hidden);
    if (rule == LS_SGD || rule == LS_MUON)
        return "momentum_buffer";
    return state == 0 ? "exp_avg" : "exp_avg_sq";
}

struct ls_philox_key ls_optimizer_rounding_key(const struct ls_optim_config *config, int state,
                                               const struct ls_param *param)
{
    char purpose[256];
    snprintf(purpose, sizeof purpose, "round:%s.%s",
             ls_optimizer_state_name(config, param->hidden, state), param->name);
    return ls_philox_key_of(config->seed, purpose);
}

/* What lr is multiplied by for a matrix of that shape. */
static float muon_factor(enum ls_muon_scale scale, int64_t rows, int64_t cols)
{
    if (scale == LS_MUON_MATCH_RMS)
        return (float)(0.2 * sqrt((double)ls_max(rows, cols)));
    return (float)sqrt(fmax(1, (double)rows / (double)cols));
}

int ls_optimizer_meet(struct ls_optimizer *optimizer, const struct ls_matrices *matrices,
                      struct ls_arena *arena, struct ls_error *error)
{
    return muon_new(matrices, optimizer->config.ns_steps, arena, &optimizer->muon, error);
}

int ls_optimizer_rehearse(struct ls_optimizer *optimizer, struct ls_ops *ops, struct ls_comm *comm,
                          struct ls_error *error)
{
    return muon_rehearse(optimizer->muon, ops, comm, error);
}

void ls_optimizer_release(struct ls_optimizer *optimizer)
{
    muon_free(optimizer->muon);
    *optimizer = (struct ls_optimizer){0};
}

static const float *second_of(const struct ls_slice *slice, const float *gradient)
{
    return slice->part->second < 0 ? NULL : gradient + slice->part->second;
}

struct squaring {
    const struct ls_slice *slices;
    const float *gradient;
    struct ls_ops *ops;
    struct ls_exact_sum *sum;
};

static int piece_square(void *user, int i, int64_t from, int64_t count, const float *values,
                        struct ls_error *error)
{
    const struct squaring *s = user;
    const float *second = second_of(&s->slices[i], s->gradient);
    (void)error;
    if (s->slices[i].param->owned)
        ls_squared_norm(s->ops, count, values, second ? second + from : NULL, s->sum);
    return LS_OK;
}

int ls_gradient_square(const struct ls_optimizer *optimizer, const struct ls_slice *slices,
                       int count, const float *gradient, struct ls_ops *ops,
                       struct ls_exact_sum *sum, struct ls_error *error)
{
    struct squaring squaring = {slices, gradient, ops, sum};
    return ls_slices_visit_gradient(optimizer, slices, count, gradient, piece_square, &squaring,
                                    error);
}

float ls_clip_factor(const struct ls_optim_config *config, double norm)
{
    if (config->clip <= 0)
        return 1.0f;
    double factor = config->clip / (norm + 1e-6);
    return factor < 1 ? (float)factor : 1.0f;
}

/* ---- the update ------------------------------------------------------------------------------ */

/* A run of a slice's elements, its arrays on the device. */
struct piece {
    const struct ls_slice *slice;
    int64_t from, count;
    float *master;
    void *state[2];
    const float *gradient;
    void *compute; /* of the slice's first element; NULL: none */
};

struct updating {
    const struct ls_optimizer *optimizer;
    const struct ls_optim_config *config;
    struct ls_ops *ops;
    const struct ls_optim_step *step;
    const struct ls_slice *slices;
};

static struct ls_update update_of(const struct updating *u, const struct piece *piece)
{
    const struct ls_slice *slice = piece->slice;
    const float *second = second_of(slice, u->step->gradient);
    bool rounds = piece->compute && slice->compute_type != LS_F32;
    return (struct ls_update){
        .count = piece->count,
        .master = piece->master,
        .compute = rounds ? (ls_half *)piece->compute + piece->from : NULL,
        .compute_type = slice->compute_type,
        .gradient = piece->gradient,
        .second = second ? second + piece->from : NULL,
        .gradient_scale = u->step->gradient_scale,
        .lr = u->step->lr,
        .weight_decay = slice->param->decay ? u->config->weight_decay : 0.0f,
        .moment_type = u->config->moments,
        .rounding = {.key = {slice->rounding_key[0], slice->rounding_key[1]},
                     .step = u->step->step,
                     .places = ls_param_places(slice->param, slice->part->first + piece->from)},
    };
}

/* A copy in float32 of the masters, if that is what is computed with. */
static void compute_copy(const struct updating *u, const struct piece *piece)
{
    if (piece->compute && piece->slice->compute_type == LS_F32)
        ls_copy(u->ops, (size_t)piece->count * sizeof(float), piece->master,
                (float *)piece->compute + piece->from);
}

/* With Muon, of a parameter that is no hidden matrix. */
static float adamw_lr(const struct ls_optim_config *config, float lr)
{
    bool own = config->kind == LS_MUON && config->adamw_lr > 0;
    return own ? (float)((double)lr * (double)config->adamw_lr / (double)config->lr) : lr;
}

static void piece_update(const struct updating *u, const struct piece *piece)
{
    const struct ls_optim_config *c = u->config;
    struct ls_update update = update_of(u, piece);
    if (c->kind == LS_SGD) {
        struct ls_sgd sgd = {c->momentum, c->nesterov, u->step->step};
        ls_sgd_update(u->ops, &update, &sgd, piece->state[0]);
    } else if (c->kind == LS_LION) {
        struct ls_lion lion = {c->beta1, c->beta2};
        ls_lion_update(u->ops, &update, &lion, piece->state[0]);
    } else {
        struct ls_adamw adamw = {c->beta1, c->beta2, c->epsilon, u->step->step};
        update.lr = adamw_lr(c, update.lr);
        ls_adamw_update(u->ops, &update, &adamw, piece->state[0], piece->state[1]);
    }
    compute_copy(u, piece);
}

static int window_update(void *user, const struct ls_window *window, struct ls_error *error)
{
    const struct updating *u = user;
    const struct ls_slice *slice = &u->slices[window->index];
    struct piece piece = {.slice = slice, .from = window->from, .count = window->count};
    int status = slices_compute(u->optimizer, slice, (int)window->index, &piece.compute, error);
    if (status)
        return status;
    piece.master = slices_array(u->optimizer, slice, window, LS_OPTIM_MASTER);
    for (int s = 0; s < ls_optimizer_states(u->config, slice->param->hidden); s++)
        piece.state[s] = slices_array(u->optimizer, slice, window, LS_OPTIM_STATE + s);
    piece.gradient = slices_gradient(slice, window, u->step->gradient);
    piece_update(u, &piece);
    return LS_OK;
}

/* ---- hidden matrices ------------------------------------------------------------------------- */

/* One of them, while a piece of its momentum or its master is on the device. */
struct hidden {
    const struct updating *updating;
    const struct ls_slice *slice;
    void *compute;
    float *place; /* [slice->part->count] the gradient, the direction, this rank's part of the
                     result */
};

static struct piece hidden_piece(const struct hidden *h, const struct ls_slice_piece *visited)
{
    return (struct piece){.slice = h->slice,
                          .from = visited->from,
                          .count = visited->count,
                          .compute = h->compute,
                          .gradient = h->place + visited->from};
}

static int piece_begin(void *user, const struct ls_slice_piece *visited, struct ls_error *error)
{
    const struct hidden *h = user;
    const struct ls_optim_config *config = h->updating->config;
    const struct ls_muon_momentum momentum = {config->momentum, config->nesterov};
    struct piece piece = hidden_piece(h, visited);
    struct ls_update update = update_of(h->updating, &piece);
    (void)error;
    ls_muon_momentum(h->updating->ops, &update, &momentum, visited->values,
                     h->place + visited->from);
    return LS_OK;
}

static int piece_end(void *user, const struct ls_slice_piece *visited, struct ls_error *error)
{
    const struct hidden *h = user;
    struct piece piece = hidden_piece(h, visited);
    piece.master = visited->values;
    struct ls_update update = update_of(h->updating, &piece);
    float factor = muon_factor(h->updating->config->muon_scale, h->slice->param->global_rows,
                               h->slice->param->global_cols);
    (void)error;
    ls_muon_update(h->updating->ops, &update, factor, piece.gradient);
    compute_copy(h->updating, &piece);
    return LS_OK;
}

static int gradient_copy(void *user, int i, int64_t from, int64_t count, const float *values,
                         struct ls_error *error)
{
    const struct hidden *h = user;
    (void)i;
    (void)error;
    ls_copy(h->updating->ops, (size_t)count * sizeof *values, values, h->place + from);
    return LS_OK;
}

static float *hidden_place(void *user, int i)
{
    const struct updating *u = user;
    return u->step->gradient + u->slices[i].part->gradient;
}

/* Before the parts meet: its momentum, and the direction in the gradient's place. */
static int hidden_begin(void *user, int i, float *place, struct ls_error *error)
{
    const struct updating *u = user;
    struct hidden hidden = {u, &u->slices[i], NULL, place};
    int status = LS_OK;
    if (hidden.slice->part->gradient_away)
        status = ls_slices_visit_gradient(u->optimizer, hidden.slice, 1, NULL, gradient_copy,
                                          &hidden, error);
    return status ? status
                  : ls_slice_visit_array(u->optimizer, hidden.slice, LS_OPTIM_STATE,
                                         LS_READS_WRITES, piece_begin, &hidden, error);
}

/* And after: this rank's part of the orthogonal matrix is in that place. */
static int hidden_end(void *user, int i, float *place, struct ls_error *error)
{
    const struct updating *u = user;
    struct hidden hidden = {u, &u->slices[i], NULL, place};
    int status = slices_compute(u->optimizer, hidden.slice, i, &hidden.compute, error);
    return status ? status
                  : ls_slice_visit_array(u->optimizer, hidden.slice, LS_OPTIM_MASTER,
                                         LS_READS_WRITES, piece_end, &hidden, error);
}

/* ---- a step ---------------------------------------------------------------------------------- */

int ls_optimizer_step(struct ls_optimizer *optimizer, struct ls_ops *ops,
                      const struct ls_slice *slices, int count, const struct ls_optim_step *step,
                      struct ls_error *error)
{
    struct updating u = {optimizer, &optimizer->config, ops, step, slices};
    struct muon_hooks hooks = {&u, hidden_place, hidden_begin, hidden_end};
    struct ls_error ignored;
    int status = optimizer->muon ? muon_begin(optimizer->muon, &hooks, error) : LS_OK;
    if (status)
        return status;
    for (int i = 0; i < count && !status; i++) {
        const struct ls_slice *s = &slices[i];
        const struct ls_window whole = {.index = i, .count = s->part->count};
        bool frozen = s->param->frozen;
        if (frozen && s->compute_away) /* where others of its unit are written anew */
            status = slices_round(optimizer, ops, s, i, error);
        else if (!slices_passes(s) && !frozen && !(optimizer->muon && s->param->hidden))
            status = window_update(&u, &whole, error);
    }
    if (!status)
        status = slices_pass(optimizer, slices, count, window_update, &u, error);
    /* The other ranks wait for this one's parts, also where its disk failed. */
    int met = optimizer->muon ? muon_finish(optimizer->muon, ops, &hooks, status ? &ignored : error)
                              : LS_OK;
    return status ? status : met;
}
