/* Making and ending a trainer: everything that a step needs is here before the first one. */
#include "stage.h"

#include <stdlib.h>
#include <string.h>

enum { LOADER_DEPTH = 2, TRACE_EVENTS = 1 << 16 };

/* The tokens that the key of that name tells of. */
static int tokens_open(const struct ls_config *config, const char *key, struct ls_token_store **out,
                       struct ls_error *error)
{
    bool train = strcmp(key, "data.train") == 0;
    int status = ls_token_store_open(train ? config->data.train : config->data.valid, out, error);
    if (status)
        ls_config_blame(config, key, error);
    return status;
}

int tokenizer_find(const struct ls_config *config, struct ls_tokenizer **out,
                   struct ls_error *error)
{
    *out = NULL;
    if (config->data.tokenizer[0]) {
        int status = ls_tokenizer_new(config->data.tokenizer, out, error);
        if (status)
            ls_config_blame(config, "data.tokenizer", error);
        return status;
    }
    if (!config->data.train[0])
        return LS_OK;
    /* Foreign stores come without one: then nothing is decoded. */
    struct ls_error absent = {0};
    int status = ls_tokenizer_new_for_store(config->data.train, out, &absent);
    if (status == LS_EIO) {
        struct ls_token_store *store;
        status = tokens_open(config, "data.train", &store, error);
        ls_token_store_close(store);
    } else if (status && error) {
        *error = absent;
        ls_config_blame(config, "data.train", error);
    }
    return status;
}

int ls_train_resolve(struct ls_config *config, struct ls_error *error)
{
    struct ls_tokenizer *tokenizer;
    int status = tokenizer_find(config, &tokenizer, error);
    if (status)
        return status;
    bool known = tokenizer != NULL;
    int64_t vocabulary = known ? ls_tokenizer_vocabulary(tokenizer) : 0;
    ls_tokenizer_free(tokenizer);
    status = ls_config_resolve(config, vocabulary, error);
    /* Where the data is missing, so is its tokenizer: the data is what the user has to look at. */
    struct ls_token_store *store = NULL;
    struct ls_error missing = {0};
    if (status && !known && config->data.train[0] &&
        tokens_open(config, "data.train", &store, &missing)) {
        if (error)
            *error = missing;
        status = missing.code;
    }
    ls_token_store_close(store);
    return status;
}

/* Cores of this process divided among the ranks that share them. */
static int threads_of(const struct ls_config *config, struct ls_comm *world)
{
    if (config->parallel.threads > 0)
        return (int)config->parallel.threads;
    /* A launcher that binds has divided them. */
    bool divided = ls_comm_transport(world) == LS_TRANSPORT_MPI && ls_device_bound();
    int cores = ls_device_cores() / (divided ? 1 : ls_comm_machine_ranks(world));
    return (int)ls_max(cores, 1);
}

/* Ranks use one instruction set: the configured one, or the least of their best ones. */
static int isa_agree(struct ls_trainer *t, enum ls_isa *isa, struct ls_error *error)
{
    int64_t mine = t->config.numerics.isa, best = ls_isa_best();
    int status = LS_OK;
    if (mine == LS_CONFIG_AUTO)
        mine = best;
    else if (mine > best)
        status = ls_config_reject(&t->config, LS_ENOTSUP, "numerics.isa", error,
                                  "this machine offers at most %s", ls_isa_name((int)best));
    status = ls_comm_agree(t->world, status, error);
    if (status)
        return status;
    int64_t least = -mine;
    status = ls_all_reduce_max(t->world, &least, error);
    *isa = (enum ls_isa) - least;
    return status;
}

/* All threads of the run compute at once. Rank threads of one process are measured as one product
 * on all of their threads together (as many as there are cores), processes each with its own, at
 * the same time, and their rates are added: what they share of a machine, they share here too. */
int ls_trainer_measure_peak(struct ls_trainer *t, struct ls_error *error)
{
    bool together = ls_comm_transport(t->world) == LS_TRANSPORT_THREAD;
    int ranks = together ? ls_comm_size(t->world) : 1;
    int64_t threads = ls_min((int64_t)t->ops.threads * ranks, ls_device_cores());
    struct ls_ops ops = {0};
    double flops = 0;
    uint64_t sum = 0;
    int status = LS_OK;
    bool mine = !together || ls_comm_rank(t->world) == 0;
    if (mine)
        status = ls_ops_init(&ops, (int)ls_max(threads, 1), t->ops.isa, error);
    status = ls_comm_agree(t->world, status, error);
    if (!status && mine)
        status = ls_gemm_peak(&ops, t->numerics.act, &flops, error);
    if (ops.threads)
        ls_ops_release(&ops);
    status = ls_comm_agree(t->world, status, error);
    sum = (uint64_t)flops;
    if (!status)
        status = ls_all_reduce_u64(t->world, &sum, 1, error);
    if (!status)
        t->peak_flops = (double)sum;
    return status;
}

/* The tokens of a sequence that this rank holds. */
static int segments_make(struct ls_trainer *t, struct ls_error *error)
{
    int64_t tiles = t->numerics.seq_tiles, cp = t->layout.size[LS_AXIS_CP];
    t->segment_count = ls_segments(tiles, cp);
    t->segments = calloc((size_t)t->segment_count, sizeof *t->segments);
    if (!t->segments)
        return ls_error_set(error, LS_ENOMEM, "no memory for a list of segments");
    for (int i = 0; i < t->segment_count; i++)
        ls_segment(tiles, cp, t->coordinates[LS_AXIS_CP], t->config.data.sequence, i,
                   &t->segments[i].first, &t->segments[i].count);
    return LS_OK;
}

static int data_open(struct ls_trainer *t, struct ls_error *error)
{
    const struct ls_config *config = &t->config;
    int status = ls_config_require(config, "data.train", error);
    if (!status)
        status = tokens_open(config, "data.train", &t->store, error);
    if (!status && config->data.valid[0])
        status = tokens_open(config, "data.valid", &t->valid_store, error);
    if (!status)
        status = tokenizer_find(config, &t->tokenizer, error);
    if (status)
        return status;
    int64_t tokens = config->data.sequence, samples;
    status = ls_token_store_samples(t->store, tokens, &samples, error);
    if (status) {
        ls_config_blame(config, "data.train", error);
        return status;
    }
    if (t->valid_store)
        status = ls_token_store_samples(t->valid_store, tokens, &samples, error);
    if (status) {
        ls_config_blame(config, "data.valid", error);
        return status;
    }
    status = segments_make(t, error);
    if (status)
        return status;
    struct ls_dp_share share;
    ls_layout_share(&t->layout, t->layout.leaves, t->coordinates, &share);
    struct ls_loader_config loader = {.store = t->store,
                                      .sequence_tokens = tokens,
                                      .vocabulary = config->model.vocab,
                                      .seed = (uint64_t)config->data.seed,
                                      .shuffle = config->data.shuffle,
                                      .sequences_max =
                                          share.count * config->numerics.leaf_sequences,
                                      .segments = t->segments,
                                      .segment_count = t->segment_count,
                                      .depth = LOADER_DEPTH};
    return ls_loader_new(&loader, &t->loader, error);
}

static int buffers_open(struct ls_trainer *t, struct ls_error *error)
{
    const struct memory_request request = {.config = &t->config,
                                           .layout = &t->layout,
                                           .coordinates = t->coordinates,
                                           .params = &t->params,
                                           .part = &t->part,
                                           .groups = &t->groups,
                                           .tp = &t->tp,
                                           .cp = &t->cp};
    int status = memory_plan(&t->config, &t->layout, t->coordinates, &t->plan, error);
    if (!status)
        status = ls_arena_init(&t->memory.arena, t->plan.total, error);
    if (!status)
        status = memory_take(&request, &t->memory.arena, &t->memory, &t->plan, error);
    if (status)
        return status;
    struct ls_dp_share share;
    ls_layout_share(&t->layout, t->layout.leaves, t->coordinates, &share);
    int64_t leaves = ls_max(share.count, t->layout.micro_leaves);
    t->leaf_loss = calloc((size_t)leaves, sizeof *t->leaf_loss);
    t->runs = calloc((size_t)share.micro_batches, sizeof *t->runs);
    t->eval_ids = calloc((size_t)(4 * t->layout.micro_sequences * t->config.data.sequence),
                         sizeof *t->eval_ids);
    t->eval_input = calloc(
        (size_t)(t->layout.micro_sequences * t->config.data.sequence * t->config.model.channels),
        ls_dtype_bytes(t->numerics.act));
    if (!t->leaf_loss || !t->runs || !t->eval_ids || !t->eval_input)
        return ls_error_set(error, LS_ENOMEM, "no memory for a batch's losses and tokens");
    return LS_OK;
}

/* Initial values of what this rank owns, and everything that is made of them. */
static int parameters_fill(struct ls_trainer *t, struct ls_error *error)
{
    struct ls_zero *zero = t->memory.zero;
    for (int i = 0; i < t->params.count; i++) {
        const struct ls_param *param = &t->params.list[i];
        const struct ls_zero_slice *slice = &ls_zero_slices(zero)[i];
        ls_param_fill(param, t->config.model.seed, &t->ops, slice->first, slice->count,
                      ls_zero_master(zero) + slice->offset);
        t->memory.slices[i] = (struct ls_slice){.first = slice->offset,
                                                .count = slice->count,
                                                .compute = ls_zero_compute(zero, i),
                                                .decay = param->decay,
                                                .counted = param->owned};
        ls_progress();
    }
    return ls_zero_publish(zero, &t->ops, true, error);
}

/* The layout over the world's ranks, this rank's place in it, and its groups. */
static int layout_open(struct ls_trainer *t, struct ls_error *error)
{
    int64_t ranks = ls_comm_size(t->world);
    /* Threads were started for this layout: the nearest one may have another number of them. */
    if (ls_comm_transport(t->world) == LS_TRANSPORT_THREAD && ranks == ls_config_ranks(&t->config))
        ranks = 0;
    int status = ls_config_layout(&t->config, ranks, &t->layout, error);
    if (status)
        return status;
    t->numerics = t->layout.numerics;
    ls_layout_coordinates(&t->layout, ls_comm_rank(t->world), t->coordinates);
    ls_comm_set_check(t->world, t->config.comm.check);
    ls_comm_set_timeout(t->world, t->config.comm.timeout_s);
    status = groups_open(&t->layout, t->world, &t->groups, error);
    if (!status)
        status =
            ls_tp_init(&t->tp, t->groups.tp, t->layout.sp, (int)t->layout.tp_overlap,
                       ls_tp_sharers(t->layout.size[LS_AXIS_TP], t->layout.model.kv_heads), error);
    ls_cp_init(&t->cp, t->groups.cp, t->layout.cp_method);
    return status;
}

/* This rank's part of the model, and its data. */
static int part_open(struct ls_trainer *t, struct ls_error *error)
{
    int status = part_init(&t->part, &t->layout, t->coordinates[LS_AXIS_PP], error);
    struct ls_part held = {t->layout.size[LS_AXIS_TP], t->coordinates[LS_AXIS_TP], t->part.held};
    if (!status)
        status = ls_params_init(&t->params, &t->config.model, &t->numerics, &held, error);
    return status ? status : data_open(t, error);
}

/* The communicator of each group, NULL where the layout has none. */
static void comms_of(const struct ls_trainer *t, struct ls_comm *comms[LS_GROUPS])
{
    struct ls_comm *const list[LS_GROUPS] = {
        [LS_GROUP_TP] = t->groups.tp,
        [LS_GROUP_SHARERS] = t->tp.sharers_comm,
        [LS_GROUP_CP] = t->groups.cp,
        [LS_GROUP_SHARD] = t->groups.shard,
        [LS_GROUP_REPLICATE] = t->groups.replicate,
        [LS_GROUP_PP] = t->groups.pp,
        [LS_GROUP_DP] = t->groups.dp,
        [LS_GROUP_DP_SHARD] = t->groups.dp_shard,
        [LS_GROUP_DP_REPLICATE] = t->groups.dp_replicate,
        [LS_GROUP_OWNERS] = t->groups.owners,
        [LS_GROUP_WORLD] = t->world,
    };
    memcpy(comms, list, sizeof list);
}

static int trace_open(struct ls_trainer *t, struct ls_error *error)
{
    struct ls_comm *comms[LS_GROUPS + 1];
    int status = ls_trace_new(&t->trace, ls_comm_rank(t->world), "main", TRACE_EVENTS, error);
    comms_of(t, comms);
    comms[LS_GROUPS] = t->groups.copies;
    for (int g = 0; g <= LS_GROUPS && !status; g++)
        if (comms[g])
            status = ls_comm_set_trace(comms[g], t->trace, error);
    ls_trace_phase(t->trace, "start");
    return status;
}

int ls_trainer_new(const struct ls_config *config, struct ls_comm *world, const struct ls_log *log,
                   struct ls_trainer **out, struct ls_error *error)
{
    *out = NULL;
    struct ls_trainer *t = calloc(1, sizeof *t);
    int status = t ? LS_OK : ls_error_set(error, LS_ENOMEM, "no memory for a trainer");
    status = ls_comm_agree(world, status, error);
    if (status)
        goto failed;
    t->config = *config;
    t->world = world;
    t->log = log;
    t->saved_step = -1;
    status = layout_open(t, error);
    if (!status)
        status = part_open(t, error);
    status = ls_comm_agree(world, status, error);
    if (status)
        goto failed;
    enum ls_isa isa;
    status = isa_agree(t, &isa, error);
    if (status)
        goto failed;
    status = ls_ops_init(&t->ops, threads_of(config, world), isa, error);
    if (!status)
        status = buffers_open(t, error);
    if (!status && config->log.trace)
        status = trace_open(t, error);
    status = ls_comm_agree(world, status, error);
    if (!status)
        status = parameters_fill(t, error);
    if (status)
        goto failed;
    *out = t;
    return LS_OK;
failed:
    ls_trainer_free(t);
    return status;
}

void ls_trainer_free(struct ls_trainer *t)
{
    if (!t)
        return;
    if (t->memory.zero && !t->failed)
        ls_zero_settle(t->memory.zero, NULL);
    if (t->trace)
        ls_comm_set_trace(t->world, NULL, NULL);
    ls_decoder_free(t->decoder);
    ls_loader_free(t->loader);
    ls_tokenizer_free(t->tokenizer);
    ls_token_store_close(t->valid_store);
    ls_token_store_close(t->store);
    digests_release(t->digests);
    free(t->segments);
    free(t->leaf_loss);
    free(t->runs);
    free(t->eval_ids);
    free(t->eval_input);
    if (t->sampled)
        whole_release(t->sampled);
    free(t->sampled);
    /* Transfers of a failed step may still use its memory: their groups go first. */
    if (t->failed) {
        ls_tp_release(&t->tp);
        groups_close(&t->groups);
    }
    memory_release(&t->memory);
    ls_tp_release(&t->tp);
    groups_close(&t->groups);
    part_release(&t->part);
    ls_ops_release(&t->ops);
    ls_params_release(&t->params);
    ls_trace_free(t->trace);
    free(t);
}

int64_t ls_trainer_steps(const struct ls_trainer *t)
{
    return t->step;
}
float *ls_trainer_master(struct ls_trainer *t)
{
    return ls_zero_master(t->memory.zero);
}
const struct ls_layout *ls_trainer_layout(const struct ls_trainer *t)
{
    return &t->layout;
}
const struct ls_params *ls_trainer_params(const struct ls_trainer *t)
{
    return &t->params;
}

void ls_trainer_stats(const struct ls_trainer *t, struct ls_comm_stats stats[LS_GROUPS])
{
    struct ls_comm *comms[LS_GROUPS];
    comms_of(t, comms);
    for (int g = 0; g < LS_GROUPS; g++) {
        stats[g] = (struct ls_comm_stats){0};
        if (comms[g])
            ls_comm_get_stats(comms[g], &stats[g]);
    }
}
