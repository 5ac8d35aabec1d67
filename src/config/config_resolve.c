/* Fills what is automatic and refuses combinations that cannot be honoured: better one clear line
 * before the run than a key that silently does nothing. */
#include "config/config_private.h"

#include <lockstep/base/key.h>

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define REJECT(name, ...) ls_config_reject(config, LS_ECONFIG, name, error, __VA_ARGS__)

/* ---- keys that belong to one choice ---------------------------------------------------------- */

/* The key must have its default, since `because` makes it meaningless. */
static int refuse_unused(const struct ls_config *config, const struct ls_config_key *key,
                         const char *because, struct ls_error *error)
{
    if (config_is_initial(config, key))
        return LS_OK;
    return REJECT(key->name, "has no meaning with %s: remove it (its default is %s)", because,
                  *key->initial ? key->initial : "empty");
}

/* Keys of kinds of steps that the model's family has none of. */
static int refuse_other_families(const struct ls_config *config, struct ls_error *error)
{
    enum ls_arch arch = (enum ls_arch)config->model_keys.arch;
    char because[64];
    size_t prefix = strlen("model.");
    int status = LS_OK;
    snprintf(because, sizeof because, "model.arch = %s", ls_arch_name(arch));
    for (const struct ls_config_key *key = ls_config_keys(NULL); key->name && !status; key++)
        if (!strncmp(key->name, "model.", prefix) && !ls_family_reads(arch, key->name + prefix))
            status = refuse_unused(config, key, because, error);
    return status;
}

static int refuse_meaningless(const struct ls_config *config, struct ls_error *error)
{
    const struct ls_config_optim *optim = &config->optim;
    bool decays = optim->schedule != LS_LR_CONSTANT && optim->schedule != LS_LR_INVERSE_SQRT;
    const struct ls_config_async *async = &config->async;
    const char *momentum = "optim.momentum|optim.nesterov";
    const struct {
        bool applies;
        const char *names, *because;
    } rules[] = {
        {optim->name != LS_MUON, "optim.ns_steps|optim.muon_scale|optim.adamw_lr",
         "an optim.name other than muon"},
        {optim->name == LS_ADAMW, momentum, "optim.name = adamw"},
        {optim->name == LS_LION, momentum, "optim.name = lion"},
        {optim->name == LS_SGD, "optim.beta1|optim.beta2|optim.epsilon", "optim.name = sgd"},
        {optim->name == LS_SGD && optim->momentum == 0, "optim.moments", "optim.momentum = 0"},
        {optim->name == LS_LION, "optim.epsilon", "optim.name = lion"},
        {!decays, "optim.decay_steps|optim.min_ratio", "optim.schedule = constant or inverse_sqrt"},
        {optim->schedule != LS_LR_WSD, "optim.cooldown_steps", "an optim.schedule other than wsd"},
        {async->mode == LS_CONFIG_SYNC,
         "async.workers|async.sync_every|async.fragments|async.delay|async.outer_optim|"
         "async.outer_lr|async.outer_momentum|async.outer_beta2|async.outer_epsilon|"
         "async.mixing|async.delta|async.follow|async.order|async.staleness|async.times|async."
         "compensation|"
         "async.staleness_lr",
         "async.mode = none"},
        {async->mode == LS_CONFIG_DILOCO,
         "async.order|async.staleness|async.times|async.compensation|async.staleness_lr",
         "async.mode = diloco"},
        {async->order == LS_CONFIG_BY_CLOCK, "async.times", "async.order = clock"},
        {async->mode == LS_CONFIG_SERVER && async->order == LS_CONFIG_BY_TIMES, "async.follow",
         "async.order = times"},
        {async->mode == LS_CONFIG_SERVER,
         "async.fragments|async.delay|async.outer_optim|async.outer_lr|async.outer_momentum|"
         "async.outer_beta2|async.outer_epsilon|async.mixing|async.delta",
         "async.mode = server"},
        {async->outer == LS_CONFIG_OUTER_SGD, "async.outer_momentum", "async.outer_optim = sgd"},
        {async->outer != LS_CONFIG_OUTER_ADAMW, "async.outer_beta2|async.outer_epsilon",
         "an async.outer_optim other than adamw"},
        {config->lora.rank == 0, "lora.alpha|lora.targets|lora.base", "lora.rank = 0"},
        {config->lora.rank > 0, "train.frozen", "lora.rank above 0, which freezes the whole model"},
    };
    int status = refuse_other_families(config, error);
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        for (const struct ls_config_key *key = ls_config_keys(NULL); key->name && !status; key++)
            if (rules[i].applies && ls_word_among(rules[i].names, key->name))
                status = refuse_unused(config, key, rules[i].because, error);
    return status;
}

/* ---- the other groups ----------------------------------------------------------------------- */

/* Muon's usual momentum is another than SGD's. */
static void choose_momentum(struct ls_config *config)
{
    struct ls_config_optim *optim = &config->optim;
    bool muon = optim->name == LS_MUON;
    if (!ls_config_is_given(config, "optim.momentum"))
        optim->momentum = muon ? 0.95 : 0.9;
    if (!ls_config_is_given(config, "optim.nesterov"))
        optim->nesterov = muon && optim->momentum > 0;
}

static int resolve_optim(struct ls_config *config, struct ls_error *error)
{
    struct ls_config_optim *optim = &config->optim;
    if (optim->nesterov && optim->momentum == 0)
        return REJECT("optim.nesterov", "needs optim.momentum above 0");
    if (optim->schedule == LS_LR_INVERSE_SQRT && optim->warmup_steps == 0)
        return REJECT("optim.warmup_steps",
                      "optim.schedule = inverse_sqrt starts from the warm-up: expected at least 1");
    if (optim->schedule == LS_LR_CONSTANT || optim->schedule == LS_LR_INVERSE_SQRT)
        return LS_OK;
    if (optim->decay_steps == 0) /* train.extend is not planned for */
        optim->decay_steps =
            ls_max(config->train.steps, optim->warmup_steps + optim->cooldown_steps);
    if (optim->warmup_steps > optim->decay_steps)
        return REJECT("optim.warmup_steps", "expected at most optim.decay_steps = %lld",
                      (long long)optim->decay_steps);
    if (optim->cooldown_steps > optim->decay_steps - optim->warmup_steps)
        return REJECT("optim.cooldown_steps",
                      "expected at most optim.decay_steps - optim.warmup_steps = %lld",
                      (long long)(optim->decay_steps - optim->warmup_steps));
    return LS_OK;
}

static int resolve_tp_tiles(struct ls_config *config, bool mends, struct ls_error *error)
{
    enum { TILES = 8 };
    int64_t *tiles = &config->numerics.tp_tiles;
    struct ls_error why = {0};
    bool automatic = *tiles == 0;
    if (automatic)
        *tiles = TILES;
    if (!automatic && !mends && ls_model_admits_tiles(&config->model, *tiles, &why))
        return REJECT("numerics.tp_tiles", "%s", why.text);
    while (ls_model_admits_tiles(&config->model, *tiles, NULL)) /* powers of two serve most tp */
        *tiles = automatic ? *tiles / 2 : *tiles - 1;
    return LS_OK;
}

/* A leaf that is computed in one micro-batch, and leaves 16 of them in the smallest batch; 64 from
 * what is called 8B. */
static int64_t small_leaf(double parameters, int64_t smallest, int64_t sequence)
{
    return ls_min(smallest / (parameters >= 7e9 ? 64 : 16), LS_MICRO_ROWS / sequence);
}

/* Models that fill a host with tp send all sums of gradients over the network, and have pp, whose
 * micro-batches are small: a leaf of one would be summed for longer than it is computed. So theirs
 * has up to 16,384 tokens, where that leaves 64. From 100 billion parameters on, which ZeRO alone
 * does not cut enough, it is the largest that leaves 192 if that is more: the most data parallelism
 * of published runs (MegaScale). It is a power of two: the odd factors of a batch are dp's. */
static int64_t large_leaf(double parameters, int64_t smallest, int64_t sequence)
{
    int64_t most = ls_min(smallest / 64, 16384 / sequence), leaf = 1;
    if (parameters >= 100e9)
        most = ls_max(most, smallest / 192);
    while (2 * leaf <= most)
        leaf *= 2;
    return leaf;
}

/* What divides all batches of a run. */
static int64_t batch_unit(const struct ls_config_batch *batch)
{
    int64_t smallest = batch->rampup_start ? batch->rampup_start : batch->global;
    return ls_gcd(batch->global, ls_gcd(smallest, batch->rampup_increment));
}

/* The default leaves the smallest batch enough leaves for the data parallelism that a model of its
 * size may meet. Nothing of the layout counts. */
static void resolve_leaf(struct ls_config *config)
{
    static const double large_parameters = 15e9;
    const struct ls_config_batch *batch = &config->batch;
    int64_t *leaf = &config->numerics.leaf_sequences, sequence = config->data.sequence;
    double parameters = ls_model_flops_per_token(&config->model, 0) / 6;
    int64_t smallest = batch->rampup_start ? batch->rampup_start : batch->global;
    int64_t unit = batch_unit(batch);
    bool large = parameters >= large_parameters;
    int64_t most = large ? large_leaf(parameters, smallest, sequence)
                         : small_leaf(parameters, smallest, sequence);
    if (*leaf)
        return;
    *leaf = config->numerics.seq_tiles > 1 ? 1 : ls_max(ls_min(most, unit), 1);
    while (unit % *leaf)
        *leaf = large ? *leaf / 2 : *leaf - 1;
}

/* Other tiles have other leaves by default. */
static int check_seq_tiles(struct ls_config *config, bool mends, struct ls_error *error)
{
    struct ls_config_numerics *n = &config->numerics;
    struct ls_error why = {0};
    int64_t tokens = config->data.sequence;
    bool good = !ls_seq_tiles_admit(n->seq_tiles, tokens, n->leaf_sequences, &why);
    n->seq_tiles = mends ? ls_min(n->seq_tiles, tokens) : n->seq_tiles;
    while (mends && ls_seq_tiles_admit(n->seq_tiles, tokens, n->leaf_sequences, NULL))
        n->seq_tiles--;
    if (!good && !ls_config_is_given(config, "numerics.leaf_sequences"))
        n->leaf_sequences = 0;
    if (!good && mends)
        resolve_leaf(config);
    return good || mends ? LS_OK : REJECT("numerics.seq_tiles", "%s", why.text);
}

/* With bf16 a run decides at its start what auto is, if it has a choice: a leaf's gradient goes
 * on from any sequence to the next one, so each has to be whole steps. */
static int resolve_arithmetic(struct ls_config *config, struct ls_error *error)
{
    struct ls_config_numerics *numerics = &config->numerics;
    bool bf16 = numerics->precision == LS_BF16;
    bool whole = numerics->leaf_sequences == 1 || config->data.sequence % LS_PAIRS_STEP == 0;
    if (bf16 && whole)
        return LS_OK;
    if (numerics->arithmetic == LS_ARITHMETIC_BF16_PAIRS && !bf16)
        return REJECT("numerics.arithmetic",
                      "it adds products of bf16, and numerics.precision is %s: expected fma or "
                      "auto, or numerics.precision = bf16",
                      ls_config_precision(config));
    if (numerics->arithmetic == LS_ARITHMETIC_BF16_PAIRS)
        return REJECT(
            "numerics.arithmetic",
            "it adds %d tokens at a time, and a leaf has %lld sequences of %lld: expected "
            "fma or auto, data.sequence a multiple of %d, or numerics.leaf_sequences = 1",
            LS_PAIRS_STEP, (long long)numerics->leaf_sequences, (long long)config->data.sequence,
            LS_PAIRS_STEP);
    numerics->arithmetic = LS_ARITHMETIC_FMA;
    return LS_OK;
}

static int resolve_numerics(struct ls_config *config, bool mends, struct ls_error *error)
{
    int status = resolve_tp_tiles(config, mends, error);
    resolve_leaf(config);
    if (!status)
        status = check_seq_tiles(config, mends, error);
    if (!status)
        status = resolve_arithmetic(config, error);
    struct ls_loss_scale_config scale = ls_config_loss_scale(config);
    if (!status && scale.dynamic && scale.least > scale.initial)
        status = REJECT("numerics.min_loss_scale",
                        "the loss scale begins below it: expected at most 2 to the power of "
                        "numerics.initial_scale_power = %lld",
                        (long long)config->numerics.initial_scale_power);
    if (!status && config->numerics.reduce == LS_BF16 && config->numerics.mode != LS_CONFIG_FAST)
        return REJECT("numerics.reduce",
                      "rounds each rank's part of a sum, so that bits would depend on how many "
                      "ranks there are: expected fp32, or numerics.mode = fast");
    return status;
}

/* ---- data and batches ------------------------------------------------------------------------ */

static int resolve_data(struct ls_config *config, struct ls_error *error)
{
    struct ls_config_data *data = &config->data;
    if (data->sequence == 0)
        data->sequence = config->model.context;
    if (data->sequence > config->model.context)
        return REJECT("data.sequence", "expected at most model.context = %lld",
                      (long long)config->model.context);
    if (*data->train && *data->blend)
        return REJECT("data.blend",
                      "data.train is set too: expected one of the two; `data.train=` unsets it");
    if (config->eval.every > 0 && !*data->valid)
        return REJECT("eval.every", "there is nothing to evaluate on: set data.valid");
    if (config->train.keep_best && config->eval.every == 0)
        return REJECT("train.keep_best",
                      "the best checkpoint is found by evaluations: set eval.every");
    if (*config->train.plan && config->log.drift_every == 0)
        return REJECT("train.plan",
                      "steps are compared with a plan every log.drift_every of them: set it");
    return LS_OK;
}

static int check_rampup(const struct ls_config *config, struct ls_error *error)
{
    const struct ls_config_batch *batch = &config->batch;
    int64_t leaf = config->numerics.leaf_sequences;
    bool any = batch->rampup_start || batch->rampup_increment || batch->rampup_samples;
    if (!any)
        return LS_OK;
    const char *missing = !batch->rampup_start       ? "batch.rampup_start"
                          : !batch->rampup_increment ? "batch.rampup_increment"
                          : !batch->rampup_samples   ? "batch.rampup_samples"
                                                     : NULL;
    if (missing)
        return REJECT(missing, "a ramp-up needs rampup_start, rampup_increment and rampup_samples: "
                               "set it, or none of them");
    if (batch->rampup_start >= batch->global)
        return REJECT("batch.rampup_start", "expected less than batch.global = %lld",
                      (long long)batch->global);
    if ((batch->global - batch->rampup_start) % batch->rampup_increment)
        return REJECT("batch.rampup_increment",
                      "expected a divisor of batch.global - batch.rampup_start = %lld",
                      (long long)(batch->global - batch->rampup_start));
    if (batch->rampup_start % leaf || batch->rampup_increment % leaf)
        return REJECT(batch->rampup_start % leaf ? "batch.rampup_start" : "batch.rampup_increment",
                      "expected a multiple of numerics.leaf_sequences = %lld", (long long)leaf);
    return LS_OK;
}

/* Whole leaves: in a larger batch, or, with a ramp-up, in smaller leaves. */
static void mend_batch(struct ls_config *config)
{
    struct ls_config_batch *batch = &config->batch;
    int64_t *leaf = &config->numerics.leaf_sequences;
    if (batch->rampup_start == 0)
        batch->global = ls_round_up(batch->global, *leaf);
    while (batch_unit(batch) % *leaf)
        --*leaf;
}

static int check_batch(struct ls_config *config, bool mends, struct ls_error *error)
{
    int64_t leaf = config->numerics.leaf_sequences;
    if (mends)
        mend_batch(config);
    else if (config->batch.global % leaf)
        return REJECT("batch.global", "expected a multiple of numerics.leaf_sequences = %lld",
                      (long long)leaf);
    return check_rampup(config, error);
}

/* Workers meet at whole intervals, between which nothing of a run can be seen. */
static int check_async(const struct ls_config *config, struct ls_error *error)
{
    const struct ls_config_async *async = &config->async;
    if (async->mode == LS_CONFIG_SYNC)
        return LS_OK;
    if (async->sync_every % async->fragments)
        return REJECT("async.sync_every", "expected a multiple of async.fragments = %lld",
                      (long long)async->fragments);
    if (async->fragments > config->model.layers)
        return REJECT("async.fragments", "expected at most model.layers = %lld",
                      (long long)config->model.layers);
    if (async->mode == LS_CONFIG_SERVER) {
        int64_t times[LS_DELTA_INT8_WORKERS_MAX];
        if (ls_config_times(config, times, error))
            return LS_ECONFIG;
        if (config->batch.rampup_start)
            return REJECT("batch.rampup_start", "batches of a parameter server's workers are of "
                                                "one size: expected no ramp-up with async.mode = "
                                                "server");
    }
    int64_t interval = ls_config_interval(config), steps = ls_config_steps(config);
    if (async->delay >= interval)
        return REJECT("async.delay",
                      "expected less than the %lld steps between two outer steps "
                      "(async.sync_every / async.fragments)",
                      (long long)interval);
    if (steps % interval)
        return REJECT(config->train.steps % interval ? "train.steps" : "train.extend",
                      "workers meet every %lld steps (async.sync_every / async.fragments), and the "
                      "last step is a meeting: expected %lld or %lld steps in all",
                      (long long)interval, (long long)(steps / interval * interval),
                      (long long)((steps / interval + 1) * interval));
    if (config->checkpoint.async == true)
        return REJECT("checkpoint.async",
                      "workers wait for a checkpoint where they meet, which is rare, or write it "
                      "from a snapshot (snapshot.every): expected auto or false with async.mode");
    if (config->train.auto_layout)
        return REJECT("parallel.auto", "the planner lays out one worker, not several: expected "
                                       "false with async.mode");
    return LS_OK;
}

void ls_config_name_out(struct ls_config *config)
{
    char *out = config->train.out;
    for (size_t length = strlen(out); length > 1 && out[length - 1] == '/'; length--)
        out[length - 1] = '\0';
    if (*out)
        return;
    const char *slash = strrchr(config->path, '/');
    const char *name = slash ? slash + 1 : config->path;
    const char *dot = strrchr(name, '.');
    int length = dot && dot != name ? (int)(dot - name) : (int)strlen(name);
    snprintf(out, LS_CONFIG_TEXT_BYTES, "runs/%.*s", length ? length : 3, length ? name : "run");
}

/* A run's names are too many, and too common, for the root of the file system. */
static int check_out(const struct ls_config *config, struct ls_error *error)
{
    char real[PATH_MAX];
    if (!realpath(config->train.out, real) || strcmp(real, "/") != 0)
        return LS_OK;
    return REJECT("train.out",
                  "the root of the file system: expected a directory of the run's own");
}

int config_resolve(struct ls_config *config, int64_t tokenizer_vocab, bool mends,
                   struct ls_error *error)
{
    int status = config_resolve_model(config, tokenizer_vocab, error);
    choose_momentum(config);
    if (!status)
        status = refuse_meaningless(config, error);
    if (!status)
        status = resolve_data(config, error);
    if (!status)
        status = resolve_numerics(config, mends, error);
    if (!status)
        status = check_batch(config, mends, error);
    if (!status)
        status = resolve_optim(config, error);
    if (!status)
        status = check_async(config, error);
    if (!status)
        ls_config_name_out(config);
    return status ? status : check_out(config, error);
}

bool config_is_mended(const struct ls_config *config, const struct ls_config_key *key)
{
    static const char mended[] =
        "numerics.tp_tiles|numerics.seq_tiles|numerics.leaf_sequences|batch.global";
    return ls_word_among(mended, key->name) && *(const int64_t *)config_slot(config, key) > 0;
}

int ls_config_resolve(struct ls_config *config, int64_t tokenizer_vocab, struct ls_error *error)
{
    int status = config_resolve(config, tokenizer_vocab, false, error);
    if (!status || !error)
        return status;
    struct ls_config mended = *config;
    struct ls_error why = {0};
    if (!config_resolve(&mended, tokenizer_vocab, true, &why))
        config_suggest(config, &mended, 0, error);
    else if (strcmp(why.key, error->key) != 0)
        ls_error_suffix(error, "; besides, %s", why.text);
    return status;
}
