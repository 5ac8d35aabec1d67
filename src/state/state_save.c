/* Saving: rank 0 writes a checkpoint tensor by tensor, as the files take them; the ranks that hold
 * the state once send it their slices. */
#include "state/state_private.h"

#include <lockstep/ckpt.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What rank 0 asks the others for: array + 1 times all parameters, plus the parameter; or the end
 * of the save. */
enum { ASK_END = -1 };

/* What the files hold. */
struct listing {
    struct ls_params all;            /* of every layer */
    struct ls_tensor_entry *entries; /* [count], the parameters first */
    int64_t *asked;                  /* [count] what stands for each */
    int count;
    char (*names)[LS_PARAM_NAME_MAX + STATE_PREFIX_BYTES];
};

/* A save as every rank of the first copy sees it; the entries are rank 0's. */
struct saving {
    struct ls_state *state;
    struct state_collector collector;
    struct listing list;
};

static void listing_release(struct listing *list)
{
    ls_params_release(&list->all);
    free(list->entries);
    free(list->asked);
    free(list->names);
}

static void saving_release(struct saving *s)
{
    listing_release(&s->list);
    state_collector_release(&s->collector);
}

static void entries_fill(struct listing *list, const struct ls_optim_config *optim, int arrays)
{
    for (int64_t asked = 0; asked < (int64_t)arrays * list->all.count; asked++) {
        const struct ls_param *param = &list->all.list[asked % list->all.count];
        char prefix[STATE_PREFIX_BYTES];
        int array = (int)(asked / list->all.count) - 1, e = list->count;
        if (array >= ls_param_states(optim, param))
            continue;
        list->asked[list->count++] = asked;
        state_prefix(optim, param, array, prefix);
        snprintf(list->names[e], sizeof list->names[e], "%s%s", prefix, param->name);
        list->entries[e] = (struct ls_tensor_entry){.name = list->names[e],
                                                    .dtype = ls_state_type_of(optim, array),
                                                    .dims = param->spec.dims};
        for (int dim = 0; dim < param->spec.dims; dim++)
            list->entries[e].shape[dim] = param->spec.shape[dim];
    }
}

/* Local. The parameters, and with `entries` all else. */
static int listing_init(struct listing *list, const struct ls_layout *layout,
                        const struct ls_optim_config *optim, bool entries, struct ls_error *error)
{
    *list = (struct listing){.count = 0};
    int status = ls_layout_params(layout, 0, NULL, &list->all, error);
    if (status || !entries)
        return status;
    int arrays = 1 + ls_optimizer_states_most(optim);
    size_t count = (size_t)arrays * (size_t)list->all.count;
    list->entries = calloc(count, sizeof *list->entries);
    list->asked = calloc(count, sizeof *list->asked);
    list->names = calloc(count, sizeof *list->names);
    if (!list->entries || !list->asked || !list->names)
        return ls_error_set(error, LS_ENOMEM, "no memory for the %zu tensors of a checkpoint",
                            count);
    entries_fill(list, optim, arrays);
    return LS_OK;
}

/* The entries of one of the two files. */
static const struct ls_tensor_entry *listing_part(const struct listing *list,
                                                  enum ls_checkpoint_part part, size_t *count)
{
    int parameters = list->all.count;
    bool model = part == LS_CKPT_MODEL;
    *count = (size_t)(model ? parameters : list->count - parameters);
    return model ? list->entries : list->entries + parameters;
}

int ls_state_file_bytes(const struct ls_config *config, const struct ls_layout *layout,
                        struct ls_state_files *files, struct ls_error *error)
{
    const struct ls_optim_config optim = ls_config_optim(config);
    struct listing list;
    *files = (struct ls_state_files){0};
    int status = listing_init(&list, layout, &optim, true, error);
    for (int part = LS_CKPT_MODEL; part <= LS_CKPT_OPTIMIZER && !status; part++) {
        size_t count;
        uint64_t bytes;
        const struct ls_tensor_entry *entries =
            listing_part(&list, (enum ls_checkpoint_part)part, &count);
        status = ls_safetensors_bytes(entries, count, NULL, 0, &bytes, error);
        *(part == LS_CKPT_MODEL ? &files->model : &files->optimizer) = (int64_t)bytes;
    }
    files->tensors = list.count;
    listing_release(&list);
    return status;
}

/* Local. */
static int saving_init(struct saving *s, struct ls_state *state, struct ls_error *error)
{
    bool writes = ls_comm_rank(ls_state_world(state)) == 0;
    *s = (struct saving){.state = state};
    int status = listing_init(&s->list, state->layout, &state->optimizer.config, writes, error);
    if (status)
        return status;
    return state_collector_init(&s->collector, state, &s->list.all, error);
}

/* ---- the other ranks ------------------------------------------------------------------------- */

static int collect(struct saving *s, int64_t index, const struct state_sink *sink,
                   struct ls_error *error)
{
    int count = s->list.all.count;
    return state_collect(&s->collector, (int)(index % count), (int)(index / count) - 1, sink,
                         error);
}

/* Whom rank 0 asks: the first copy. Each set may have another one: then everybody. */
static struct ls_comm *asked(const struct saving *s)
{
    bool one = s->state->layout->set_count == 1;
    return s->state->groups[one ? LS_GROUP_OWNERS : LS_GROUP_WORLD];
}

/* Sends what rank 0 asks for. A failure to collect is known to all owners before anything is
 * committed. */
static int serve(struct saving *s, struct ls_error *error)
{
    int failed = LS_OK;
    for (;;) {
        int64_t index;
        struct ls_error unheard = {0};
        int status = ls_broadcast(asked(s), &index, 1, LS_I64, 0, error);
        if (status)
            return status;
        if (index == ASK_END)
            return ls_comm_agree(asked(s), failed, error);
        status = collect(s, index, NULL, failed ? &unheard : error);
        failed = failed ? failed : status;
    }
}

/* ---- rank 0 ---------------------------------------------------------------------------------- */

struct appending {
    struct ls_safetensors_writer *writer;
    size_t bytes; /* of an element */
};

static int window_append(void *user, const void *values, int64_t count, struct ls_error *error)
{
    const struct appending *a = user;
    return ls_safetensors_writer_append(a->writer, values, (size_t)count * a->bytes, error);
}

static int tensor_write(struct saving *s, struct ls_safetensors_writer *writer,
                        const struct ls_tensor_entry *entry, struct ls_error *error)
{
    int64_t index = s->list.asked[entry - s->list.entries];
    struct appending appending = {writer, ls_dtype_bytes(entry->dtype)};
    const struct state_sink sink = {window_append, &appending};
    int status = ls_broadcast(asked(s), &index, 1, LS_I64, 0, error);
    return status ? status : collect(s, index, &sink, error);
}

static int part_write(struct saving *s, struct ls_checkpoint_writer *checkpoint,
                      enum ls_checkpoint_part part, struct ls_error *error)
{
    size_t count;
    struct ls_safetensors_writer *writer;
    const struct ls_tensor_entry *entries = listing_part(&s->list, part, &count);
    int status = ls_checkpoint_writer_begin(checkpoint, part, entries, count, &writer, error);
    while (!status) {
        const struct ls_tensor_entry *next = ls_safetensors_writer_next(writer);
        if (!next)
            return ls_checkpoint_writer_end(checkpoint, error);
        status = tensor_write(s, writer, next, error);
    }
    return status;
}

/* The others are told of the end, also where writing failed; all learn whether one of them did. */
static int end_agree(const struct saving *s, int status, struct ls_error *error)
{
    struct ls_comm *owners = asked(s);
    struct ls_error unheard = {0};
    int64_t end = ASK_END;
    int told = ls_broadcast(owners, &end, 1, LS_I64, 0, status ? &unheard : error);
    return told ? (status ? status : told) : ls_comm_agree(owners, status, error);
}

static int checkpoint_write(struct saving *s, const struct ls_checkpoint_state *about,
                            struct ls_error *error)
{
    struct ls_checkpoint_writer *writer = NULL;
    int status =
        ls_checkpoint_writer_open(&writer, s->state->config->train.out, about, NULL, error);
    bool open = status == LS_OK;
    if (!status)
        status = part_write(s, writer, LS_CKPT_MODEL, error);
    if (!status)
        status = part_write(s, writer, LS_CKPT_OPTIMIZER, error);
    status = end_agree(s, status, error);
    if (!status)
        return ls_checkpoint_writer_commit(writer, error);
    if (open)
        ls_checkpoint_writer_abort(writer);
    return status;
}

static int write_all(struct saving *s, const struct ls_digest *digest, struct ls_error *error)
{
    const struct ls_state *state = s->state;
    char hash[33], recipe_digest[33], fingerprint[256];
    struct ls_digest recipe = {0, 0};
    ls_digest_hex(digest, hash);
    ls_config_recipe_digest(state->config, &recipe);
    ls_digest_hex(&recipe, recipe_digest);
    ls_fingerprint(state->ops, fingerprint, sizeof fingerprint);
    char *text;
    int status = ls_config_text(state->config, &text, error);
    if (status)
        return end_agree(s, status, error);
    struct ls_checkpoint_state about = {.step = state->step,
                                        .samples = state->samples,
                                        .tokens = state->samples * state->config->data.sequence,
                                        .loss_scale = state->loss_scale.scale,
                                        .good_steps = state->loss_scale.good_steps,
                                        .hysteresis = state->loss_scale.hysteresis,
                                        .recipe_digest = recipe_digest,
                                        .recipe = text,
                                        .fingerprint = fingerprint,
                                        .hash = hash};
    status = checkpoint_write(s, &about, error);
    if (!status && state->config->train.keep > 0)
        status =
            ls_checkpoint_prune(state->config->train.out, (int)state->config->train.keep, error);
    free(text);
    return status;
}

int ls_state_save(struct ls_state *state, struct ls_error *error)
{
    struct ls_digest digest;
    int status = ls_state_hash(state, &digest, error);
    if (status)
        return status;
    struct saving saving;
    status = ls_comm_agree(ls_state_world(state), saving_init(&saving, state, error), error);
    bool first_copy =
        state->layout->set_count > 1 || ls_comm_rank(state->groups[LS_GROUP_COPIES]) == 0;
    if (!status && ls_comm_rank(ls_state_world(state)) == 0)
        status = write_all(&saving, &digest, error);
    else if (!status && first_copy)
        status = serve(&saving, error);
    saving_release(&saving);
    status = ls_comm_agree(ls_state_world(state), status, error);
    if (!status)
        state->saved_step = state->step;
    return status;
}
