/* Making and ending a trainer: everything that a step needs is here before the first one. */
#include "train/workers.h"

#include <lockstep/base/file.h>
#include <lockstep/ckpt.h>
#include <lockstep/infer/rollout.h>
#include <lockstep/interop.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOADER_DEPTH = 2, TRACE_EVENTS = 1 << 16, TRACE_OPS = 1 << 18 };

/* The checkpoint itself in the place of a run, so that what is kept of this one says where it
 * began, whatever the other one does later. resume_else may not be needed: who needs it meets its
 * error. */
static int resume_resolve(struct ls_config *config, struct ls_error *error)
{
    bool own = !strcmp(config->train.resume, "auto");
    const char *path = ls_config_resume_path(config),
               *key = own ? "train.resume_else" : "train.resume";
    char directory[PATH_MAX];
    if (!path)
        return LS_OK;
    int status = ls_checkpoint_newest(path, directory, error);
    if (!status && strlen(directory) >= LS_CONFIG_TEXT_BYTES)
        status = ls_error_set(error, LS_ECONFIG, "%s: expected a path of at most %d bytes",
                              directory, LS_CONFIG_TEXT_BYTES - 1);
    if (!status)
        snprintf(own ? config->train.resume_else : config->train.resume, LS_CONFIG_TEXT_BYTES, "%s",
                 directory);
    return own || !status ? LS_OK : ls_config_blame(config, key, error);
}

int ls_train_resolve(struct ls_config *config, struct ls_error *error)
{
    struct ls_tokenizer *tokenizer;
    int status = ls_model_from(config, NULL, error);
    if (!status)
        status = resume_resolve(config, error);
    if (!status)
        status = ls_config_tokenizer(config, &tokenizer, error);
    if (status)
        return status;
    int64_t vocabulary = ls_tokenizer_vocabulary_of(tokenizer, config->model_keys.vocab);
    ls_tokenizer_free(tokenizer);
    return ls_config_resolve(config, vocabulary, error);
}

int ls_train_spread(struct ls_config *config, const struct ls_comm *world, bool *spread,
                    struct ls_error *error)
{
    int ranks = ls_comm_size(world);
    bool spreads =
        ranks > 1 && ls_comm_transport(world) == LS_TRANSPORT_MPI && !ls_config_axis_given(config);
    char word[48];
    snprintf(word, sizeof word, "parallel.dp=%d", ranks);
    if (spread)
        *spread = spreads;
    return spreads ? ls_config_set(config, word, error) : LS_OK;
}

/* All threads of the run compute at once. Rank threads of one process are measured as one product
 * on all of their threads together (as many as there are cores), processes each with its own, at
 * the same time, and their rates are added: what they share of a machine, they share here too. */
int ls_trainer_measure_peak(struct ls_trainer *t, struct ls_error *error)
{
    bool together = ls_comm_transport(t->whole) == LS_TRANSPORT_THREAD;
    int ranks = together ? ls_comm_size(t->whole) : 1;
    int64_t threads = ls_min((int64_t)t->ops.threads * ranks, ls_device_cores());
    struct ls_ops ops = {0};
    double flops = 0;
    uint64_t sum = 0;
    int status = LS_OK;
    bool mine = !together || ls_comm_rank(t->whole) == 0;
    if (mine)
        status = ls_ops_init(&ops, (int)ls_max(threads, 1), t->ops.isa, error);
    ops.arithmetic = t->ops.arithmetic;
    status = ls_comm_agree(t->whole, status, error);
    if (!status && mine)
        status = ls_gemm_peak(&ops, t->numerics.act, &flops, error);
    if (ops.threads)
        ls_ops_release(&ops);
    status = ls_comm_agree(t->whole, status, error);
    sum = (uint64_t)flops;
    if (!status)
        status = ls_all_reduce_u64(t->whole, &sum, 1, error);
    if (!status)
        t->peak_flops = (double)sum;
    return status;
}

static int data_open(struct ls_trainer *t, struct ls_error *error)
{
    const struct ls_config *config = &t->config;
    /* Without data each batch is given; workers take theirs of the data. */
    bool has_data = ls_config_has_data(config) || t->workers;
    int status = ls_config_tokenizer(config, &t->tokenizer, error);
    if (!status && has_data)
        status = ls_training_data_open(config, t->tokenizer, &t->data, error);
    if (!status && config->data.valid[0])
        status = ls_config_valid(config, &t->valid_store, error);
    if (status)
        return status;
    int64_t tokens = config->data.sequence, samples;
    if (t->valid_store)
        status = ls_token_store_samples(t->valid_store, tokens, &samples, error);
    if (status) {
        ls_config_blame(config, "data.valid", error);
        return status;
    }
    status = ls_layout_segments(&t->layout, t->coordinates[LS_AXIS_CP], &t->segments,
                                &t->segment_count, error);
    if (status || !has_data)
        return status;
    struct ls_dp_share share;
    ls_layout_share(&t->layout, t->layout.ramp.full, t->coordinates, &share);
    struct ls_loader_config loader = {.blend = t->data.blend,
                                      .stores =
                                          (const struct ls_token_store *const *)t->data.stores,
                                      .sequence_tokens = tokens,
                                      .vocabulary = config->model.vocab,
                                      .sequences_max = share.count * share.leaf,
                                      .segments = t->segments,
                                      .segment_count = t->segment_count,
                                      .depth = LOADER_DEPTH};
    return ls_loader_new(&loader, &t->loader, error);
}

static int lists_agree(struct ls_trainer *t, struct ls_error *error)
{
    int status = data_agree(&t->data, t->valid_store, t->whole, error);
    if (status == LS_EDATA)
        ls_config_blame(&t->config, ls_config_data_key(&t->config), error);
    return status;
}

/* Room for what the plan keeps elsewhere. */
static int tiers_open(struct ls_trainer *t, struct ls_error *error)
{
    int status = LS_OK;
    for (int kind = LS_TIER_HOST; kind < LS_TIER_KINDS && !status; kind++) {
        const struct ls_tier_options options = {.kind = (enum ls_tier_kind)kind,
                                                .bytes = t->plan.tiers[kind],
                                                .folder = t->config.memory.file,
                                                .rank = ls_comm_rank(t->whole)};
        if (options.bytes > 0 && t->ops.idle)
            status = ls_tier_idle_new(options.kind, options.bytes, &t->memory.tiers[kind], error);
        else if (options.bytes > 0)
            status = ls_tier_new(&options, &t->memory.tiers[kind], error);
        if (status && kind == LS_TIER_FILE)
            ls_config_blame(&t->config, "memory.file", error);
        if (t->memory.tiers[kind])
            ls_tier_set_queue(t->memory.tiers[kind], &t->ops.queue);
    }
    return status;
}

/* Losses of a batch: this rank's, and those of all that are gathered. */
static size_t losses_room(const struct ls_trainer *t)
{
    struct ls_dp_share share;
    ls_layout_share(&t->layout, t->layout.ramp.full, t->coordinates, &share);
    return (size_t)(2 * share.leaves * share.leaf);
}

/* The buffers of the plan, and what a batch is remembered in. Idle ops need addresses alone. */
static int memory_open(struct ls_trainer *t, struct ls_error *error)
{
    const struct memory_request request = {.config = &t->config,
                                           .layout = &t->layout,
                                           .coordinates = t->coordinates,
                                           .units = t->units,
                                           .unit_count = t->unit_count,
                                           .part = &t->part,
                                           .tp = &t->tp,
                                           .cp = &t->cp};
    struct ls_arena *arena = &t->memory.arena;
    bool real = !t->ops.idle || t->rehearses;
    int status = ls_plan_rank(&t->config, &t->layout, ls_comm_rank(t->world), &t->plan, error);
    if (!status)
        status = !real ? ls_arena_reserve(arena, t->plan.total, error)
                       : ls_arena_init(arena, t->plan.total, error);
    if (!status && (!t->ops.idle || t->records_works))
        status = tiers_open(t, error);
    if (!status)
        status = memory_take(&request, arena, &t->memory, &t->plan, error);
    if (status)
        return status;
    struct ls_dp_share share;
    ls_layout_share(&t->layout, t->layout.ramp.full, t->coordinates, &share);
    t->losses = calloc(losses_room(t), sizeof *t->losses);
    t->runs = calloc((size_t)share.micro_batches, sizeof *t->runs);
    t->sources = ls_config_source_count(&t->config);
    t->loss_sums = calloc((size_t)t->sources + 1, sizeof *t->loss_sums);
    t->source_weights = calloc((size_t)t->sources, sizeof *t->source_weights);
    if (!t->losses || !t->runs || !t->loss_sums || !t->source_weights)
        return ls_no_memory(error, "for a batch's losses");
    return LS_OK;
}

struct filling {
    struct ls_trainer *trainer;
    struct ls_state *unit;
    int param;
    struct ls_model_source *source; /* NULL: random values */
};

static int piece_fill(void *user, const struct ls_slice_piece *piece, struct ls_error *error)
{
    const struct filling *filling = user;
    struct ls_trainer *t = filling->trainer;
    const struct ls_param *param = &t->params.list[filling->param];
    const struct ls_slice *slice = &filling->unit->slices[filling->param];
    int64_t first = slice->part->first + piece->from;
    int status = ls_queue_synchronise(&t->ops.queue, error); /* the host writes */
    if (status)
        return status;
    if (filling->source)
        status = ls_model_source_fill(filling->source, param, &t->ops, first, piece->count,
                                      piece->values, error);
    else
        ls_param_fill(param, t->config.model.seed, &t->ops, first, piece->count, piece->values);
    ls_progress();
    return status || !filling->source ? status : ls_slice_fits(slice, piece, error);
}

/* Collective. The model of a path, checked against this one. key: what names it, or NULL. */
static int source_read(struct ls_trainer *t, const char *path, const char *key,
                       struct ls_model_source **source, struct ls_error *error)
{
    int status =
        ls_model_source_open(source, path, ls_comm_rank(t->world) == 0 ? t->log : NULL, error);
    if (status && key)
        ls_config_blame(&t->config, key, error);
    status = ls_model_source_agree(source, t->world, status, error);
    if (!status && key && t->config.lora.from[0])
        status = ls_model_source_adapt(*source, t->config.lora.from, error);
    if (!status) {
        status = ls_model_source_check(*source, &t->config.model, &t->numerics, error);
        if (status && key)
            ls_config_blame(&t->config, t->config.lora.from[0] ? "lora.from" : key, error);
    }
    return ls_comm_agree(t->world, status, error);
}

/* Collective. Where the first weights come from: model.from, but not for a run that goes on, which
 * has its own. *source is NULL if they are random. */
static int source_open(struct ls_trainer *t, struct ls_model_source **source,
                       struct ls_error *error)
{
    const struct ls_config_train *train = &t->config.train;
    int count = 0;
    int64_t resumes = ls_config_resume_path(&t->config) != NULL;
    *source = NULL;
    if (!t->config.model_keys.from[0] || t->ops.idle)
        return LS_OK;
    if (!resumes && !strcmp(train->resume, "auto") && ls_comm_rank(t->world) == 0)
        resumes = ls_checkpoint_count(train->out, &count, NULL) == LS_OK && count > 0;
    int status = ls_all_reduce_max(t->world, &resumes, error);
    if (status || resumes)
        return status;
    return source_read(t, t->config.model_keys.from, "model.from", source, error);
}

/* What was known of the state as it was is not known of it now. */
static void changes_count(struct ls_trainer *t)
{
    t->changes++;
    t->held_step = 0;
    if (t->workers)
        workers_changed(t->workers);
}

int ls_trainer_publish(struct ls_trainer *t, struct ls_error *error)
{
    int status = LS_OK;
    changes_count(t);
    ls_rollout_forget(t->rollout);
    for (int u = 0; u < t->unit_count && !status; u++) {
        status = ls_state_publish(&t->units[u], error);
        if (!status && t->unit_count > 1)
            status = ls_state_settle(&t->units[u], error);
    }
    return status;
}

void ls_trainer_lend(struct ls_trainer *t, struct ls_arena *kept)
{
    t->kept = kept;
}

/* Values of what this rank owns, and everything that is made of them. status: of the source, which
 * is closed in each case; NULL: random values. */
static int parameters_fill(struct ls_trainer *t, struct ls_model_source *source, int status,
                           struct ls_error *error)
{
    if (!status)
        changes_count(t); /* also where it fails on the way */
    for (int i = 0; i < t->params.count && !status; i++)
        for (int u = 0; u < t->unit_count && !status; u++) {
            struct ls_state *unit = &t->units[u];
            struct filling filling = {t, unit, i, source};
            status = ls_slice_visit_array(&unit->optimizer, &unit->slices[i], LS_OPTIM_MASTER,
                                          LS_WRITES, piece_fill, &filling, error);
        }
    if (source)
        ls_model_source_tell(source, t->log);
    ls_model_source_close(source);
    status = ls_comm_agree(t->world, status, error);
    return status ? status : ls_trainer_publish(t, error);
}

static int first_parameters(struct ls_trainer *t, struct ls_error *error)
{
    struct ls_model_source *source;
    int status = source_open(t, &source, error);
    return parameters_fill(t, source, status, error);
}

int ls_trainer_load(struct ls_trainer *t, const char *path, struct ls_error *error)
{
    struct ls_model_source *source = NULL;
    if (!ls_trainer_meets(t))
        return ls_error_set(error, LS_EINVAL,
                            "workers load where they meet, and this is between two meetings");
    if (t->config.model.lora.rank > 0)
        return ls_error_set(error, LS_ECONFIG,
                            "load: the run trains adapters (lora.rank), which would become part of "
                            "the frozen matrices: open a run with model.from");
    int status = source_read(t, path, NULL, &source, error);
    return parameters_fill(t, source, status, error);
}

static int layout_resolve(struct ls_trainer *t, struct ls_error *error)
{
    int64_t ranks = ls_comm_size(t->whole);
    /* Threads were started for this layout: the nearest one may have another number of them. */
    if (ls_comm_transport(t->whole) == LS_TRANSPORT_THREAD && ranks == ls_config_ranks(&t->config))
        ranks = 0;
    return ls_config_layout(&t->config, ranks, &t->layout, error);
}

/* This rank's place in the layout, its groups, and its part of the model. */
static int place_open(struct ls_trainer *t, struct ls_error *error)
{
    t->numerics = t->layout.numerics;
    ls_layout_coordinates(&t->layout, ls_comm_rank(t->world), t->coordinates);
    int status = ls_groups_open(&t->layout, t->world, &t->ops.queue, t->groups, error);
    if (status)
        return status;
    ls_groups_parallel(&t->layout, ls_comm_rank(t->world), t->groups, &t->tp, &t->cp);
    status = part_init(&t->part, &t->layout, t->coordinates[LS_AXIS_PP], error);
    if (!status)
        status = ls_layout_params(&t->layout, t->coordinates[LS_AXIS_TP], t->part.held, &t->params,
                                  error);
    return status || !t->workers ? status : workers_params(t, error);
}

static int trace_open(struct ls_trainer *t, struct ls_error *error)
{
    int status = ls_trace_new(&t->trace, ls_comm_rank(t->whole), "main",
                              t->config.log.profile ? TRACE_OPS : TRACE_EVENTS, error);
    for (int g = 0; g < LS_GROUPS && !status; g++)
        status = t->groups[g] ? ls_comm_set_trace(t->groups[g], t->trace, error) : LS_OK;
    ls_trace_phase(t->trace, "start");
    return status;
}

static struct ls_trainer *trainer_alloc(const struct ls_config *config, struct ls_comm *world,
                                        const struct ls_log *log)
{
    struct ls_trainer *t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    t->config = *config;
    t->whole = t->world = world;
    t->log = log;
    t->loss_scale = ls_config_loss_scale(config);
    t->unit_count = units_count(config);
    t->units = calloc((size_t)t->unit_count, sizeof *t->units);
    t->state = t->units;
    if (t->units)
        return t;
    free(t);
    return NULL;
}

/* Once this rank's group is known. */
static void units_open(struct ls_trainer *t)
{
    const struct ls_state borrowed = {.config = &t->config,
                                      .layout = &t->layout,
                                      .rank = ls_comm_rank(t->world),
                                      .groups = t->groups,
                                      .params = &t->params,
                                      .ops = &t->ops,
                                      .tiers = t->memory.tiers,
                                      .rooms = t->memory.rooms,
                                      .log = t->log,
                                      .loss_scale = ls_loss_scale_begin(&t->loss_scale),
                                      .saved_step = -1};
    units_init(t->units, t->unit_count, &borrowed, &t->config, &t->outer);
}

int ls_trainer_new(const struct ls_config *config, struct ls_comm *world, const struct ls_log *log,
                   struct ls_trainer **out, struct ls_error *error)
{
    return trainer_new(config, NULL, false, world, log, out, error);
}

/* Collective. If one machine has no room for its copy, all wait for checkpoints. */
static int saves_agree(struct ls_trainer *t, struct ls_error *error)
{
    int64_t waits = t->saves == 0;
    int status = ls_all_reduce_max(t->whole, &waits, error);
    t->saves = waits ? 0 : t->saves;
    return status;
}

int trainer_new(const struct ls_config *config, const struct ls_layout *layout, bool blank,
                struct ls_comm *world, const struct ls_log *log, struct ls_trainer **out,
                struct ls_error *error)
{
    *out = NULL;
    struct ls_trainer *t = trainer_alloc(config, world, log);
    int status = t ? LS_OK : ls_no_memory(error, "for a trainer");
    status = ls_comm_agree(world, status, error);
    if (!status) /* later collectives go by it */
        status = recipe_agree(config, world, error);
    if (status)
        goto failed;
    int threads = 1;
    if (layout)
        t->layout = *layout;
    else
        status = layout_resolve(t, error);
    if (!status) /* machines may differ in what they have */
        status = ls_config_threads(&t->config, world, &threads, error);
    status = ls_comm_agree(world, status, error);
    ls_comm_set_check(t->whole, t->config.comm.check); /* all groups of it inherit both */
    ls_comm_set_timeout(t->whole, t->config.comm.timeout_s);
    if (!status)
        status = workers_open(t, error);
    if (status)
        goto failed;
    units_open(t);
    status = ls_comm_agree(world, fit_check(&t->config, &t->layout, world, log, &t->saves, error),
                           error);
    if (!status)
        status = saves_agree(t, error);
    if (!status)
        status = place_open(t, error);
    if (!status)
        status = data_open(t, error);
    status = ls_comm_agree(world, status, error);
    if (!status)
        status = lists_agree(t, error);
    if (status)
        goto failed;
    status = ls_state_recall(&t->config, world, error);
    if (!status)
        status = ls_config_settle(&t->config, world, error);
    if (!status)
        status = ls_config_ops(&t->config, world, threads, &t->ops, error);
    if (status)
        goto failed;
    if (memory_checked(config))
        t->ops.queue.check = &t->check;
    status = memory_open(t, error);
    if (!status && config->log.trace)
        status = trace_open(t, error);
    if (config->log.profile) {
        t->watch = work_times_watch(&t->times, t->trace);
        t->ops.queue.watch = &t->watch;
    }
    if (!status)
        status = stage_runner_new(t, &t->runner, error);
    status = ls_comm_agree(world, status, error);
    t->blank = blank && !t->workers;
    if (!status && !t->blank)
        status = first_parameters(t, error);
    if (status)
        goto failed;
    *out = t;
    return LS_OK;
failed:
    ls_trainer_free(t);
    return status;
}

int trainer_idle(const struct ls_config *config, const struct ls_layout *layout,
                 struct ls_comm *world, struct ls_recording *recording, struct ls_trainer **out,
                 struct ls_error *error)
{
    struct ls_trainer *t = trainer_alloc(config, world, NULL);
    *out = t;
    if (!t)
        return ls_no_memory(error, "for a trainer");
    t->layout = *layout;
    ls_ops_init_idle(&t->ops, LS_ISA_PLAIN);
    t->rehearses = !recording;
    t->records_works = recording && recording->wants_works;
    units_open(t);
    int status = place_open(t, error);
    if (!status)
        status = memory_open(t, error);
    if (status)
        return status;
    for (int g = 0; g < LS_GROUPS && recording; g++)
        if (t->groups[g])
            ls_recording_group(recording, t->groups[g], g);
    if (recording) {
        recording->memories[0] =
            (struct ls_recorded_memory){t->memory.arena.base, t->memory.arena.size};
        recording->memories[1] =
            (struct ls_recorded_memory){t->losses, losses_room(t) * sizeof *t->losses};
        t->watch = ls_recording_watch(recording);
        t->ops.queue.watch = &t->watch;
    }
    return ls_state_share(t->state, error);
}

void ls_trainer_free(struct ls_trainer *t)
{
    if (!t)
        return;
    for (int i = 0; i < t->unit_count && !t->failed && t->state->layout; i++)
        ls_state_settle(&t->units[i], NULL);
    if (t->trace)
        ls_comm_set_trace(t->world, NULL, NULL);
    ls_trainer_discard(t);
    given_free(t->given);
    ls_rollout_free(t->rollout);
    ls_runner_free(t->runner);
    ls_loader_free(t->loader);
    ls_tokenizer_free(t->tokenizer);
    ls_token_store_close(t->valid_store);
    ls_training_data_close(&t->data);
    digests_release(t->digests);
    free(t->segments);
    free(t->losses);
    free(t->idle_starts);
    free(t->loss_sums);
    free(t->source_weights);
    free(t->runs);
    /* Transfers that nobody waited for still use the memory, of this rank and of others: their
     * groups go first. */
    workers_stop(t);
    ls_groups_close(t->groups);
    for (int i = 0; i < t->unit_count; i++)
        ls_state_release(&t->units[i]);
    free(t->units);
    if (t->kept) {
        *t->kept = t->memory.arena;
        t->memory.arena = (struct ls_arena){0};
    }
    memory_release(&t->memory);
    part_release(&t->part);
    ls_ops_release(&t->ops);
    ls_params_release(&t->params);
    ls_trace_free(t->trace);
    workers_close(t);
    free(t);
}

int ls_trainer_hash(struct ls_trainer *t, struct ls_digest *digest, struct ls_error *error)
{
    return t->workers ? workers_hash(t, digest, error) : ls_state_hash(t->state, digest, error);
}
int trainer_save(struct ls_trainer *t, const struct ls_digest *hash, struct ls_error *error)
{
    return t->workers ? workers_save(t, error) : ls_state_save(t->state, hash, error);
}
const char *trainer_newest_elsewhere(const struct ls_trainer *t)
{
    int64_t step = t->state->saved_step;
    return step >= 0 && !ls_checkpoint_there(t->config.train.out, step)
               ? ls_config_resume_path(&t->config)
               : NULL;
}
int ls_trainer_save(struct ls_trainer *t, struct ls_error *error)
{
    if (ls_comm_rank(t->world) == 0)
        ls_directory_make(t->config.train.out, NULL, NULL); /* saving says what is wrong with it */
    return trainer_save(t, NULL, error);
}
/* Each process of MPI looked by itself for the newest of a run, which another job may train on. */
static int resume_agree(struct ls_trainer *t, struct ls_error *error)
{
    struct ls_config_train *train = &t->config.train;
    char *path = strcmp(train->resume, "auto") ? train->resume : train->resume_else;
    return ls_config_resume_path(&t->config)
               ? ls_broadcast(t->whole, path, LS_CONFIG_TEXT_BYTES, LS_U8, 0, error)
               : LS_OK;
}

int ls_trainer_resume(struct ls_trainer *t, bool *resumed, struct ls_error *error)
{
    LS_ASSERT(!t->posted && !t->waiting);
    int status = resume_agree(t, error);
    if (status)
        return status;
    status =
        t->workers ? workers_resume(t, resumed, error) : ls_state_resume(t->state, resumed, error);
    if (!status && t->blank && !*resumed)
        status = first_parameters(t, error);
    t->blank = t->blank && status;
    return status;
}

int ls_trainer_evaluate(struct ls_trainer *t, struct ls_eval_report *report, struct ls_error *error)
{
    int status = t->valid_store ? LS_OK : ls_config_require(&t->config, "data.valid", error);
    if (!status && t->workers)
        status = workers_publish(t, error);
    if (!status)
        status = ls_runner_evaluate(t->runner, t->valid_store, t->config.eval.samples, report, NULL,
                                    error);
    /* Each group evaluates by itself: a stop that one heard, or a failure, is all groups'. */
    return t->workers && status != LS_ECOMM ? ls_comm_agree(t->whole, status, error) : status;
}
int ls_trainer_sample(struct ls_trainer *t, const char *prompt, char **text, struct ls_error *error)
{
    *text = NULL;
    int status = t->workers ? workers_publish(t, error) : LS_OK;
    if (!status)
        status = ls_runner_sample(t->runner, prompt, text, error);
    if (!t->workers || status == LS_ECOMM)
        return status;
    status = ls_comm_agree(t->whole, status, error); /* as of an evaluation */
    if (status) {
        free(*text);
        *text = NULL;
    }
    return status;
}

struct ls_runner *ls_trainer_runner(struct ls_trainer *t)
{
    return t->workers ? NULL : t->runner;
}

int ls_trainer_rollout(struct ls_trainer *t, struct ls_runner **out, struct ls_error *error)
{
    struct ls_config config;
    *out = t->runner;
    if (t->workers)
        return ls_error_set(error, LS_EINVAL, "with async.mode several models are trained");
    if (!ls_config_rollout(&t->config, &config))
        return LS_OK;
    int status = t->rollout ? LS_OK : ls_rollout_new(t->runner, &config, &t->rollout, error);
    if (!status)
        status = ls_rollout_refresh(t->rollout, error);
    if (!status)
        *out = ls_rollout_runner(t->rollout);
    return status;
}

const struct ls_tokenizer *ls_trainer_tokenizer(const struct ls_trainer *t)
{
    return t->tokenizer;
}

int64_t ls_trainer_steps(const struct ls_trainer *t)
{
    return t->workers ? workers_told(t->workers) : t->state->step;
}
bool ls_trainer_meets(const struct ls_trainer *t)
{
    return !t->workers || workers_told(t->workers) == t->state->step;
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
    memset(stats, 0, LS_GROUPS * sizeof *stats);
    for (int g = 0; g < LS_GROUPS; g++)
        if (t->groups[g])
            ls_comm_get_stats(t->groups[g], &stats[g]);
}
