/* Digests of the tensors of a step, the same in any layout: each element counts once and is keyed
 * by its place in the whole, so ranks add up what they hold. */
#include "train/stage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Places of the digests: outputs of layers ascending, gradients of their inputs descending, then
 * gradients of parameters in the order of the whole model. */
struct tensor_digests {
    struct ls_params whole;
    int layers, count;
    struct ls_digest *list; /* [count] */
};

int ls_trainer_digests_enable(struct ls_trainer *t, struct ls_error *error)
{
    if (t->workers)
        return ls_config_reject(&t->config, LS_ENOTSUP, "async.mode", error,
                                "the tensors of workers' steps have no digests");
    struct tensor_digests *d = calloc(1, sizeof *d);
    int status = d ? ls_params_init(&d->whole, &t->config.model, &t->numerics, NULL, error)
                   : ls_no_memory(error, "for tensor digests");
    if (!status) {
        d->layers = (int)t->config.model.layers + 2;
        d->count = 2 * d->layers + d->whole.count;
        d->list = calloc((size_t)d->count, sizeof *d->list);
        if (!d->list)
            status = ls_no_memory(error, "for tensor digests");
    }
    t->digests = d;
    return ls_comm_agree(t->world, status, error);
}

void digests_release(struct tensor_digests *d)
{
    if (!d)
        return;
    ls_params_release(&d->whole);
    free(d->list);
    free(d);
}

void digests_begin(struct tensor_digests *d)
{
    if (d)
        memset(d->list, 0, (size_t)d->count * sizeof *d->list);
}

/* The token of a sequence that row r of those held here is. */
static int64_t token_of_row(const struct ls_trainer *t, int64_t r)
{
    int i = 0;
    while (r >= t->segments[i].count)
        r -= t->segments[i++].count;
    return t->segments[i].first + r;
}

int digests_note_stream(struct ls_trainer *t, enum digest_kind kind, int layer,
                        const struct ls_micro_batch *micro, const void *rows,
                        struct ls_error *error)
{
    struct tensor_digests *d = t->digests;
    if (!d || (!t->layout.sp && t->coordinates[LS_AXIS_TP] > 0))
        return LS_OK; /* without sequence parallel all tp ranks hold the same */
    int64_t held = micro->tokens / t->layout.size[LS_AXIS_CP], channels = t->config.model.channels;
    int64_t first = 0, count = micro->sequences * held;
    if (t->layout.sp)
        ls_tp_share(&t->tp, count, &first, &count);
    struct ls_digest *digest = &d->list[kind == DIGEST_OUTPUT ? layer : 2 * d->layers - 1 - layer];
    enum { PIECE = 256 };
    float piece[PIECE];
    int status = ls_queue_synchronise(&t->ops.queue, error);
    for (int64_t r = 0; r < count && !status; r++) {
        int64_t sequence = micro->first_sequence + (first + r) / held;
        int64_t token = sequence * micro->tokens + token_of_row(t, (first + r) % held);
        for (int64_t c = 0; c < channels; c += PIECE) {
            int64_t n = ls_min(PIECE, channels - c), at = r * channels + c;
            const float *values = (const float *)rows + at;
            if (t->numerics.act != LS_F32) {
                for (int64_t i = 0; i < n; i++)
                    piece[i] = ls_half_to_f32(t->numerics.act, ((const ls_half *)rows)[at + i]);
                values = piece;
            }
            ls_digest_floats(digest, "stream", token * channels + c, n, values);
        }
    }
    return status;
}

static int piece_note(void *user, int i, int64_t from, int64_t count, const float *values,
                      struct ls_error *error)
{
    struct ls_trainer *t = user;
    struct tensor_digests *d = t->digests;
    const struct ls_param *param = &t->params.list[i];
    const struct ls_zero_slice *slice = t->state->slices[i].part;
    int set = t->params.units[param->unit].set;
    /* Gradients are equal on all copies: the first one counts. */
    if (!param->owned || ls_comm_rank(t->groups[ls_set_group(set, LS_GROUP_COPIES)]) > 0)
        return LS_OK;
    int status = ls_queue_synchronise(&t->ops.queue, error);
    if (status)
        return status;
    int index = (int)(ls_params_find(&d->whole, param->name) - d->whole.list);
    struct ls_digest *digest = &d->list[2 * d->layers + index];
    ls_param_digest(param, &t->ops, "", slice->first + from, count, LS_F32, values, digest);
    if (slice->second >= 0)
        ls_param_digest(param, &t->ops, "second ", slice->first + from, count, LS_F32,
                        t->state->gradient + slice->second + from, digest);
    return LS_OK;
}

static int gradients_note(struct ls_trainer *t, struct ls_error *error)
{
    struct ls_state *state = t->state;
    int status = ls_queue_synchronise(&t->ops.queue, error);
    return status ? status
                  : ls_slices_visit_gradient(&state->optimizer, state->slices, t->params.count,
                                             state->gradient, piece_note, t, error);
}

int digests_finish(struct ls_trainer *t, struct ls_error *error)
{
    struct tensor_digests *d = t->digests;
    if (!d)
        return LS_OK;
    int status = gradients_note(t, error);
    status = ls_comm_agree(t->world, status, error);
    return status ? status : ls_all_reduce_u64(t->world, (uint64_t *)d->list, 2 * d->count, error);
}

int ls_trainer_digest_count(const struct ls_trainer *t)
{
    return t->digests ? t->digests->count : 0;
}

void ls_trainer_digest(const struct ls_trainer *t, int i, char *name, size_t bytes,
                       struct ls_digest *digest)
{
    const struct tensor_digests *d = t->digests;
    *digest = d->list[i];
    int layer = i < d->layers ? i : 2 * d->layers - 1 - i;
    const char *what = i < d->layers ? "forward" : "backward";
    if (i >= 2 * d->layers)
        snprintf(name, bytes, "gradient of %s", d->whole.list[i - 2 * d->layers].name);
    else if (layer == 0)
        snprintf(name, bytes, "%s, embedding", what);
    else if (layer == d->layers - 1)
        snprintf(name, bytes, "%s, head", what);
    else
        snprintf(name, bytes, "%s, block %d (h.%d)", what, layer - 1, layer - 1);
    /* Where both run: which stage of this layout computes it. */
    if (i < 2 * d->layers && t->layout.stages > 1)
        ls_string_add(name, bytes, ", ", "stage %d", ls_layout_stage(&t->layout, layer));
}
