/* Where slices' masters and states lie, on the device or in a tier, and how one gets at them. */
#include "optim/slices.h"

#include <lockstep/base/half_range.h>

#include <math.h>
#include <stdlib.h>

enum {
    WINDOW = 1 << 20, /* elements of a window; in bytes a multiple of LS_TIER_ALIGN */
    SLICE_ALIGN = 16, /* elements */
};

static int arrays_most(const struct ls_optim_config *config)
{
    return LS_OPTIM_STATE + ls_optimizer_states_most(config);
}

static int arrays_of(const struct ls_optim_config *config, const struct ls_slice *slice)
{
    return LS_OPTIM_STATE + ls_param_states(config, slice->param);
}

static size_t element_bytes(const struct ls_optim_config *config, int array)
{
    return array == LS_OPTIM_MASTER ? sizeof(float) : ls_dtype_bytes(config->moments);
}

/* ---- places ---------------------------------------------------------------------------------- */

/* Slices go to the tier in their order, until enough of the elements that may have gone. */
static void slices_choose(struct ls_slice *slices, int count,
                          const struct ls_optim_storage *storage)
{
    int64_t all = 0, gone = 0;
    for (int i = 0; i < count; i++)
        all += slices[i].lent ? 0 : slices[i].part->room;
    for (int i = 0; i < count; i++) {
        slices[i].away = storage && storage->room && !slices[i].lent &&
                         (double)gone < storage->ratio * (double)all;
        gone += slices[i].away ? slices[i].part->room : 0;
    }
}

/* The arrays of the slices that stay lie one behind the other. */
static void array_take(const struct ls_optim_config *config, int array, struct ls_slice *slices,
                       int count, struct ls_arena *arena)
{
    bool masters = array == LS_OPTIM_MASTER;
    size_t bytes = element_bytes(config, array), used = 0;
    unsigned char *base = NULL;
    for (int pass = 0; pass < 2; pass++) {
        if (pass)
            base = ls_arena_take(arena, used);
        used = 0;
        for (int i = 0; i < count; i++) {
            if (slices[i].away || (masters && slices[i].lent) ||
                array >= arrays_of(config, &slices[i]))
                continue;
            void *place = base ? base + used : NULL;
            if (masters)
                slices[i].master = place;
            else
                slices[i].state[array - LS_OPTIM_STATE] = place;
            used += (size_t)ls_round_up(slices[i].part->room, SLICE_ALIGN) * bytes;
        }
    }
}

static void lane_widen(size_t *lane, size_t bytes)
{
    *lane = bytes > *lane ? bytes : *lane;
}

void ls_optimizer_init(struct ls_optimizer *optimizer, const struct ls_optim_config *config,
                       struct ls_slice *slices, int count, const struct ls_optim_storage *storage,
                       struct ls_arena *arena)
{
    *optimizer = (struct ls_optimizer){.config = *config,
                                       .tier = storage ? storage->tier : NULL,
                                       .gradient_tier = storage ? storage->gradient_tier : NULL};
    slices_choose(slices, count, storage);
    for (int a = 0; a < arrays_most(config); a++)
        array_take(config, a, slices, count, arena);
    size_t lanes[LS_PASS_LANES] = {0};
    for (int i = 0; i < count; i++) {
        const int64_t room = slices[i].part->room, window = ls_min(room, WINDOW);
        for (int s = 0; s < ls_param_states(config, slices[i].param); s++)
            slices[i].rounding_key[s] = ls_optimizer_rounding_key(config, s, slices[i].param);
        for (int a = 0; a < arrays_of(config, &slices[i]) && slices[i].away; a++) {
            size_t bytes = element_bytes(config, a);
            slices[i].place[a] = ls_tier_room_take(storage->room, (size_t)room * bytes);
            lane_widen(&lanes[a], (size_t)window * bytes);
        }
        if (slices[i].part->gradient_away) /* which begins anywhere */
            lane_widen(&lanes[LANE_GRADIENT], (size_t)window * sizeof(float) + LS_TIER_ALIGN);
    }
    ls_pass_init(&optimizer->pass, lanes, arena);
}

/* ---- windows --------------------------------------------------------------------------------- */

/* A walk over the windows of slices: arrays [first, end) of those that are away, gradients of those
 * whose are. */
struct walk {
    const struct ls_optimizer *optimizer;
    const struct ls_slice *slices;
    int count, first, end;
    bool gradients, but_hidden, but_frozen;
    enum ls_access access;
    int at; /* the next window: of slice at, from there */
    int64_t from;
    slices_work *work;
    void *user;
};

static bool is_walked(const struct walk *walk, const struct ls_slice *slice)
{
    if ((walk->but_hidden && slice->param->hidden) || (walk->but_frozen && slice->param->frozen))
        return false;
    return (walk->end > walk->first && slice->away) ||
           (walk->gradients && slice->part->gradient_away);
}

static bool window_next(void *user, struct ls_window *window)
{
    struct walk *w = user;
    while (w->at < w->count &&
           (!is_walked(w, &w->slices[w->at]) || w->from == w->slices[w->at].part->count)) {
        w->at++;
        w->from = 0;
    }
    if (w->at == w->count)
        return false;
    const struct ls_slice *slice = &w->slices[w->at];
    window->index = w->at;
    window->from = w->from;
    window->count = ls_min(WINDOW, slice->part->count - w->from);
    int end = (int)ls_min(w->end, arrays_of(&w->optimizer->config, slice));
    for (int a = w->first; a < end && slice->away; a++) {
        size_t bytes = element_bytes(&w->optimizer->config, a);
        window->lane[a] = (struct ls_lane){.tier = w->optimizer->tier,
                                           .offset = slice->place[a] + (size_t)w->from * bytes,
                                           .bytes = (size_t)window->count * bytes,
                                           .access = w->access};
    }
    if (w->gradients && slice->part->gradient_away) {
        size_t first = slice->part->gradient_place + (size_t)w->from * sizeof(float);
        size_t offset = first & ~(size_t)(LS_TIER_ALIGN - 1);
        window->lane[LANE_GRADIENT] =
            (struct ls_lane){.tier = w->optimizer->gradient_tier,
                             .offset = offset,
                             .bytes = first - offset + (size_t)window->count * sizeof(float),
                             .access = LS_READS};
    }
    w->from += window->count;
    return true;
}

static int window_work(void *user, const struct ls_window *window, struct ls_error *error)
{
    struct walk *w = user;
    return w->work(w->user, window, error);
}

static int walk_run(struct walk *walk, struct ls_error *error)
{
    const struct ls_pass_work work = {window_next, window_work, walk};
    return ls_pass_run(&walk->optimizer->pass, &work, error);
}

int slices_pass(const struct ls_optimizer *optimizer, const struct ls_slice *slices, int count,
                slices_work *work, void *user, struct ls_error *error)
{
    struct walk walk = {.optimizer = optimizer,
                        .slices = slices,
                        .count = count,
                        .end = arrays_most(&optimizer->config),
                        .gradients = true,
                        .but_hidden = optimizer->muon != NULL,
                        .but_frozen = true,
                        .access = LS_READS_WRITES,
                        .work = work,
                        .user = user};
    return walk_run(&walk, error);
}

void *slices_array(const struct ls_optimizer *optimizer, const struct ls_slice *slice,
                   const struct ls_window *window, int array)
{
    if (slice->away)
        return window->lane[array].data;
    size_t first = (size_t)window->from * element_bytes(&optimizer->config, array);
    unsigned char *values =
        array == LS_OPTIM_MASTER ? (void *)slice->master : slice->state[array - LS_OPTIM_STATE];
    return values ? values + first : NULL;
}

const float *slices_gradient(const struct ls_slice *slice, const struct ls_window *window,
                             const float *gradient)
{
    if (!slice->part->gradient_away)
        return gradient + slice->part->gradient + window->from;
    size_t first = slice->part->gradient_place + (size_t)window->from * sizeof(float);
    const unsigned char *data = window->lane[LANE_GRADIENT].data;
    return (const float *)(const void *)(data + first % LS_TIER_ALIGN);
}

/* ---- gradients ------------------------------------------------------------------------------- */

struct gradient_visiting {
    const struct ls_slice *slices;
    ls_gradient_visit *visit;
    void *user;
};

static int gradient_window(void *user, const struct ls_window *window, struct ls_error *error)
{
    const struct gradient_visiting *v = user;
    const struct ls_slice *slice = &v->slices[window->index];
    return v->visit(v->user, (int)window->index, window->from, window->count,
                    slices_gradient(slice, window, NULL), error);
}

int ls_slices_visit_gradient(const struct ls_optimizer *optimizer, const struct ls_slice *slices,
                             int count, const float *gradient, ls_gradient_visit *visit, void *user,
                             struct ls_error *error)
{
    struct gradient_visiting visiting = {slices, visit, user};
    struct walk walk = {.optimizer = optimizer,
                        .slices = slices,
                        .count = count,
                        .gradients = true,
                        .work = gradient_window,
                        .user = &visiting};
    int status = LS_OK;
    for (int i = 0; i < count && !status; i++)
        if (!slices[i].part->gradient_away && !slices[i].param->frozen)
            status = visit(user, i, 0, slices[i].part->count, gradient + slices[i].part->gradient,
                           error);
    return status ? status : walk_run(&walk, error);
}

/* ---- one array ------------------------------------------------------------------------------- */

struct visiting {
    int array;
    ls_slice_visit *visit;
    void *user;
};

static int window_visit(void *user, const struct ls_window *window, struct ls_error *error)
{
    const struct visiting *v = user;
    const struct ls_slice_piece piece = {window->from, window->count, window->lane[v->array].data};
    return v->visit(v->user, &piece, error);
}

/* The master of a slice that has none: its copy, piece by piece. */
static int half_visit(const struct ls_slice *slice, enum ls_access access, ls_slice_visit *visit,
                      void *user, struct ls_error *error)
{
    enum { PIECE = 1 << 16 };
    if (slice->compute_type == LS_F32) {
        const struct ls_slice_piece whole = {0, slice->part->count, slice->compute};
        return visit(user, &whole, error);
    }
    float *values = malloc(PIECE * sizeof *values);
    ls_half *halves = slice->compute;
    int status = values ? LS_OK : ls_no_memory(error, "for %d values", PIECE);
    for (int64_t from = 0; from < slice->part->count && !status; from += PIECE) {
        const struct ls_slice_piece piece = {from, ls_min(PIECE, slice->part->count - from),
                                             values};
        for (int64_t i = 0; access & LS_READS && i < piece.count; i++)
            values[i] = ls_half_to_f32(slice->compute_type, halves[from + i]);
        status = visit(user, &piece, error);
        for (int64_t i = 0; access & LS_WRITES && !status && i < piece.count; i++)
            halves[from + i] = ls_f32_to_half(slice->compute_type, values[i]);
    }
    free(values);
    return status;
}

/* Names value `at` of a piece of the slice's master, and why it cannot be kept. */
static int weight_refuse(const struct ls_slice *slice, const struct ls_slice_piece *piece,
                         int64_t at, const char *why, struct ls_error *error)
{
    const struct ls_param *param = slice->param;
    const float *values = piece->values;
    struct ls_places places = ls_param_places(param, slice->part->first + piece->from);
    int64_t place = ls_place(&places, at);
    return ls_error_set(error, LS_EDATA, "%s: the weight at [%ld, %ld] is %.9g, and %s",
                        param->name, (long)(place / param->global_cols),
                        (long)(place % param->global_cols), (double)values[at], why);
}

int ls_slice_fits(const struct ls_slice *slice, const struct ls_slice_piece *piece,
                  struct ls_error *error)
{
    const float *values = piece->values;
    bool overflows = false;
    int64_t at = 0;
    for (int64_t i = 0; i < piece->count && slice->compute_type == LS_F16; i++)
        overflows |= ls_half_overflows(LS_F16, values[i]);
    if (!overflows)
        return LS_OK;
    while (!ls_half_overflows(LS_F16, values[at]))
        at++;
    return weight_refuse(slice, piece, at,
                         "the numbers of fp16 end at 65504: set numerics.precision to bf16 or "
                         "fp32",
                         error);
}

/* Blocks are rows long: of a piece from the slice's value `from` on. */
static int piece_quantize(const struct ls_slice *slice, const struct ls_slice_piece *piece,
                          void *blocks, struct ls_error *error)
{
    const float *values = piece->values;
    int status = ls_blocks_quantize(slice->param->blocks, piece->count, values, blocks, error);
    if (!status)
        return LS_OK;
    int64_t at = 0;
    while (isfinite(values[at]))
        at++;
    return weight_refuse(slice, piece, at,
                         "lora.base keeps finite ones: mend the model, or set lora.base=none",
                         error);
}

/* The same of a matrix in few bits: whole blocks at a time. */
static int blocks_visit(const struct ls_slice *slice, enum ls_access access, ls_slice_visit *visit,
                        void *user, struct ls_error *error)
{
    enum { PIECE = 1 << 16 };
    const enum ls_blocks form = slice->param->blocks;
    float *values = malloc(PIECE * sizeof *values);
    int status = values ? LS_OK : ls_no_memory(error, "for %d values", PIECE);
    for (int64_t from = 0; from < slice->part->count && !status; from += PIECE) {
        const struct ls_slice_piece piece = {from, ls_min(PIECE, slice->part->count - from),
                                             values};
        unsigned char *blocks = (unsigned char *)slice->blocks +
                                (size_t)(from / LS_BLOCK_VALUES) * ls_block_bytes(form);
        if (access & LS_READS)
            ls_blocks_values(form, blocks, 0, piece.count, values);
        status = visit(user, &piece, error);
        if (access & LS_WRITES && !status)
            status = piece_quantize(slice, &piece, blocks, error);
    }
    free(values);
    return status;
}

int ls_slice_visit_array(const struct ls_optimizer *optimizer, const struct ls_slice *slice,
                         int array, enum ls_access access, ls_slice_visit *visit, void *user,
                         struct ls_error *error)
{
    if (slice->param->blocks && array == LS_OPTIM_MASTER)
        return blocks_visit(slice, access, visit, user, error);
    if (slice->half && array == LS_OPTIM_MASTER)
        return half_visit(slice, access, visit, user, error);
    if (!slice->away) {
        void *values =
            array == LS_OPTIM_MASTER ? slice->master : slice->state[array - LS_OPTIM_STATE];
        const struct ls_slice_piece whole = {0, slice->part->count, values};
        return visit(user, &whole, error);
    }
    struct visiting visiting = {array, visit, user};
    struct walk walk = {.optimizer = optimizer,
                        .slices = slice,
                        .count = 1,
                        .first = array,
                        .end = array + 1,
                        .access = access,
                        .work = window_visit,
                        .user = &visiting};
    return walk_run(&walk, error);
}

/* ---- rounding -------------------------------------------------------------------------------- */

struct rounding {
    struct ls_ops *ops;
    const struct ls_slice *slice;
    void *compute;
};

static int piece_round(void *user, const struct ls_slice_piece *piece, struct ls_error *error)
{
    const struct rounding *r = user;
    const struct ls_slice *slice = r->slice;
    (void)error;
    if (slice->compute_type == LS_F32) {
        ls_copy(r->ops, (size_t)piece->count * sizeof(float), piece->values,
                (float *)r->compute + piece->from);
        return LS_OK;
    }
    ls_half *halves = (ls_half *)r->compute + piece->from;
    ls_cast_to_half(r->ops, slice->compute_type, piece->count, piece->values, halves);
    if (slice->param->frozen)
        ls_cast_from_half(r->ops, slice->compute_type, piece->count, halves, piece->values);
    return LS_OK;
}

int slices_round(const struct ls_optimizer *optimizer, struct ls_ops *ops,
                 const struct ls_slice *slice, int i, struct ls_error *error)
{
    struct rounding rounding = {ops, slice, NULL};
    enum ls_access access = slice->param->frozen ? LS_READS_WRITES : LS_READS;
    int status = slice->half || slice->param->blocks
                     ? LS_OK
                     : slices_compute(optimizer, slice, i, &rounding.compute, error);
    if (!status && rounding.compute && slice->part->count > 0)
        status = ls_slice_visit_array(optimizer, slice, LS_OPTIM_MASTER, access, piece_round,
                                      &rounding, error);
    return status;
}

int ls_slices_round(const struct ls_optimizer *optimizer, struct ls_ops *ops,
                    const struct ls_slice *slices, int count, struct ls_error *error)
{
    int status = LS_OK;
    for (int i = 0; i < count && !status; i++)
        status = slices_round(optimizer, ops, &slices[i], i, error);
    return status;
}
