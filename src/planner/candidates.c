/* The layouts that a search looks at: every combination, and a bound of its time from blocks. */
#include "planner/candidates.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NONE, SELECTIVE, FULL, RECOMPUTES };
enum { MICROS = 5 };

static const char *const recomputes[RECOMPUTES] = {"none", "selective", "full"};

/* ---- keys ------------------------------------------------------------------------------------ */

bool key_pinned(const struct ls_search_options *options, const char *key)
{
    return options->pinned && options->pinned(options->config, key);
}

int64_t split_parts(const struct ls_search_options *options)
{
    const char *at = options->config->parallel.split;
    int64_t parts = 1;
    if (!*at || !key_pinned(options, "parallel.split") || key_pinned(options, "parallel.pp"))
        return 0;
    while ((at = strchr(at, ',')) && at++)
        parts++;
    return parts;
}

bool ranks_have_hosts(const struct ls_cluster *cluster, int64_t ranks, int64_t cores)
{
    return cluster->accelerators % cores == 0 ||
           ranks <= cluster->hosts * (cluster->accelerators / cores);
}

void candidate_apply(const struct candidate *c, const struct ls_search_options *options,
                     struct ls_config *config)
{
    struct ls_layout_keys *keys = &config->parallel;
    keys->pp = c->pp;
    keys->dp = 0;
    keys->dp_replicate = c->replicate;
    keys->dp_shard = c->shard;
    keys->cp = c->cp;
    keys->tp = c->tp;
    keys->zero = c->zero;
    keys->schedule = c->schedule;
    keys->chunks = c->chunks;
    keys->threads = c->threads;
    if (!key_pinned(options, "parallel.split"))
        keys->split[0] = '\0';
    if (c->schedule != LS_LAYOUT_CSV)
        keys->schedule_file[0] = '\0';
    config->batch.micro = c->micro;
    if (!key_pinned(options, "memory.recompute"))
        snprintf(keys->recompute, sizeof keys->recompute, "%s", recomputes[c->recompute]);
    struct ls_config_offload *offload = &config->memory.offload[LS_OFFLOAD_OPTIMIZER];
    if (!key_pinned(options, "memory.offload.optimizer"))
        offload->to = c->offload ? LS_TIER_HOST : LS_TIER_DEVICE;
    if (!key_pinned(options, "memory.offload.optimizer_ratio"))
        offload->ratio = 1;
}

/* ---- the blocks of a cut --------------------------------------------------------------------- */

/* What a micro-batch costs by cut: of a block, and of embedding and head together. */
struct cut {
    int64_t tp, cp, micro, threads;
    int recompute;
    bool admitted;
    double block_s, ends_s;             /* computing, and waiting for tp and cp */
    double block_least_s, ends_least_s; /* the same without sums of gradients, which ZeRO shares */
    double block_free_s, ends_free_s;   /* of these, what moves meanwhile do not lengthen */
    struct layer_times least;
    double block_bytes; /* of activations */
    double state_s;     /* update of all parameters that a rank has with pp 1 */
};

/* Kinds of blocks: with a window or without, and by what is frozen in them. Of each the number of
 * blocks, and one of them; the first block of a model does not count: none is before it. Blocks of
 * more kinds count as if they took nothing. */
enum { KINDS_MAX = 8 };
struct kinds {
    struct {
        int64_t blocks, at;
        uint64_t mark;
    } list[KINDS_MAX];
    int count;
    int64_t blocks; /* of all kinds */
    bool unknown;   /* none of them is as the first block, or there are more */
};

struct cuts {
    const struct ls_search_options *options;
    struct cut *list;
    int64_t count, room;
    int64_t accelerators; /* of the whole layout */
    struct kinds kinds;
    struct candidate unadmitted; /* the first of such a cut; pp 0: none */
    bool full;                   /* no memory */
};

/* Of a micro-batch: seconds without sums of gradients (BARE), of passes, of products in the forward
 * and in the backward's halves; bytes of activations. */
enum { MICRO, FREE, ADD, BARE, STATE, FORWARD, BACKWARD, PRODUCT, INPUT, WEIGHT, BYTES, FIGURES };
struct sample {
    double of[FIGURES];
};

/* Whether memory.recompute names blocks or stages, which a shorter model may not have. */
static bool names_blocks(const struct ls_layout_keys *keys)
{
    return strpbrk(keys->recompute, "@;") || (*keys->recompute >= '0' && *keys->recompute <= '9');
}

/* A model of so many blocks on tp x cp ranks, one micro-batch. */
static bool cut_sample(struct cuts *cuts, const struct cut *cut, int64_t layers,
                       struct sample *sample)
{
    const struct ls_search_options *options = cuts->options;
    const struct candidate one = {.pp = 1,
                                  .replicate = 1,
                                  .shard = 1,
                                  .cp = cut->cp,
                                  .tp = cut->tp,
                                  .micro = cut->micro,
                                  .threads = cut->threads,
                                  .schedule = LS_SCHEDULE_1F1B,
                                  .recompute = cut->recompute};
    struct ls_config config = *options->config;
    struct ls_layout layout;
    candidate_apply(&one, options, &config);
    config.model.layers = layers;
    config.parallel.split[0] = '\0';
    bool some = names_blocks(&config.parallel); /* bounded by none's time, and no bytes */
    if (some)
        snprintf(config.parallel.recompute, sizeof config.parallel.recompute, "none");
    config.batch.global = ls_max(cut->micro, config.numerics.leaf_sequences);
    config.batch.rampup_start = config.batch.rampup_samples = 0;
    config.batch.rampup_increment = 0;
    if (config.optim.name == LS_MUON) /* its products are a step's, and shared by dp */
        config.optim.name = LS_ADAMW;
    if (ls_config_layout(&config, 0, &layout, NULL))
        return false;
    struct ls_forecast forecast;
    struct ls_memory_plan plan;
    const struct ls_forecast_ask ask = {.config = &config,
                                        .layout = &layout,
                                        .cluster = options->cluster,
                                        .slowest_of = cuts->accelerators};
    if (ls_forecast_make(&ask, &forecast, NULL) || ls_plan_rank(&config, &layout, 0, &plan, NULL))
        return false;
    double state = forecast.work_s[LS_WORK_UPDATE] + forecast.work_s[LS_WORK_SQUARES] +
                   forecast.work_s[LS_WORK_FILL] + forecast.work_s[LS_WORK_COPY] +
                   forecast.work_s[LS_WORK_CAST];
    double micros = (double)layout.micro_batches, *of = sample->of;
    double waits = forecast.exposed_s[LS_ACCOUNT_TP] + forecast.exposed_s[LS_ACCOUNT_CP];
    of[STATE] = state;
    of[MICRO] = (forecast.compute_s - state + waits) / micros;
    of[FREE] = (forecast.fixed_s + waits) / micros;
    of[ADD] = forecast.work_s[LS_WORK_ADD] / micros;
    of[BARE] = of[MICRO] - of[ADD];
    of[FORWARD] = forecast.pass_s[LS_WORK_PASS_FORWARD] / micros;
    of[BACKWARD] = of[BARE] - of[FORWARD];
    of[PRODUCT] = forecast.work_s[LS_WORK_PRODUCT_BT] / micros;
    of[INPUT] =
        (forecast.work_s[LS_WORK_PRODUCT] + forecast.work_s[LS_WORK_ATTENTION_BACKWARD]) / micros;
    of[WEIGHT] = forecast.work_s[LS_WORK_PRODUCT_AT] / micros;
    of[BYTES] = some ? 0 : (double)plan.bytes[LS_MEMORY_ACTIVATIONS];
    return true;
}

/* A model of one block, and what the other blocks add: in the mean, the least and the most. */
struct blocks {
    struct sample one, mean, least, most;
};

static bool blocks_sample(struct cuts *cuts, const struct cut *cut, struct blocks *b)
{
    const struct kinds *kinds = &cuts->kinds;
    bool good = cut_sample(cuts, cut, 1, &b->one);
    for (int k = 0; k < kinds->count && good; k++) {
        struct sample before = b->one, with;
        int64_t at = kinds->list[k].at;
        double share = (double)kinds->list[k].blocks / (double)kinds->blocks;
        good =
            (at == 1 || cut_sample(cuts, cut, at, &before)) && cut_sample(cuts, cut, at + 1, &with);
        for (int f = 0; f < FIGURES && good; f++) {
            double more = fmax(with.of[f] - before.of[f], 0);
            b->mean.of[f] = share * more + (k ? b->mean.of[f] : 0);
            b->least.of[f] = kinds->unknown ? 0 : k ? fmin(b->least.of[f], more) : more;
            b->most.of[f] = k ? fmax(b->most.of[f], more) : more;
        }
    }
    return good;
}

/* Valid until the next; NULL: no memory. */
static const struct cut *cut_of(struct cuts *cuts, const struct candidate *c)
{
    struct cut *cut = NULL;
    for (int64_t i = cuts->count - 1; i >= 0 && !cut; i--) {
        struct cut *known = &cuts->list[i];
        if (known->tp == c->tp && known->cp == c->cp && known->micro == c->micro &&
            known->threads == c->threads && known->recompute == c->recompute)
            cut = known;
    }
    if (cut)
        return cut;
    if (!ls_list_grow(&cuts->list, cuts->count, &cuts->room, sizeof *cuts->list)) {
        cuts->full = true;
        return NULL;
    }
    cut = &cuts->list[cuts->count++];
    *cut = (struct cut){.tp = c->tp,
                        .cp = c->cp,
                        .micro = c->micro,
                        .threads = c->threads,
                        .recompute = c->recompute};
    struct blocks b;
    cut->admitted = blocks_sample(cuts, cut, &b);
    if (!cut->admitted)
        return cut;
    double layers = (double)cuts->options->config->model.layers;
    const double *one = b.one.of, *mean = b.mean.of, *least = b.least.of, *most = b.most.of;
    /* Ends may be below 0, of a first block that takes less than the mean: all blocks with them
     * take what they take. */
    cut->block_s = mean[MICRO];
    cut->ends_s = one[MICRO] - mean[MICRO];
    cut->block_free_s = mean[FREE];
    cut->ends_free_s = one[FREE] - mean[FREE];
    cut->block_least_s = mean[BARE];
    cut->ends_least_s = one[BARE] - mean[BARE];
    cut->least = (struct layer_times){
        .forward_s = least[FORWARD],
        .backward_s = least[BACKWARD],
        .input_s = least[INPUT],
        .weight_s = least[WEIGHT],
        .head_s = cuts->kinds.unknown
                      ? 0
                      : fmax(one[PRODUCT] - most[PRODUCT], 0) + fmax(one[INPUT] - most[INPUT], 0) +
                            fmax(one[WEIGHT] - most[WEIGHT], 0),
    };
    cut->block_bytes = least[BYTES];
    cut->state_s = one[STATE] + (layers - 1) * mean[STATE];
    return cut;
}

/* ---- bounds and estimates -------------------------------------------------------------------- */

/* Slots that a pipeline adds to m micro-batches, in micro-batches of a rank's stages. */
static double bubble_slots(const struct candidate *c, double micro_batches)
{
    double p = (double)c->pp - 1, v = c->chunks > 1 ? (double)c->chunks : 1;
    switch (c->schedule) {
    case LS_SCHEDULE_ZB_H1:
        return p / 3;
    case LS_SCHEDULE_ZBV:
        return micro_batches >= 2 * p + 1 ? 0 : p / 6;
    case LS_SCHEDULE_DUALPIPEV:
        return p / 6;
    default:
        return p / v;
    }
}

/* What its stages take at least, a micro-batch: the head makes its gradients in its forward. */
static struct ls_stage_cost stage_cost(const struct layer_times *layer,
                                       const struct ls_layout *layout, bool splits, int64_t stage)
{
    int64_t first = layout->stage_first[stage], end = layout->stage_first[stage + 1];
    int64_t head = layout->model.layers + 1;
    double blocks = (double)(ls_min(end, head) - ls_max(first, 1));
    return (struct ls_stage_cost){
        .forward = blocks * layer->forward_s + (end > head ? layer->head_s : 0),
        .input = blocks * (splits ? layer->input_s : layer->backward_s),
        .weight = splits ? blocks * layer->weight_s : 0,
    };
}

double candidate_pipeline_s(const struct candidate *c, const struct ls_layout *layout)
{
    bool splits = c->schedule != LS_SCHEDULE_GPIPE && c->schedule != LS_SCHEDULE_1F1B &&
                  c->schedule != LS_SCHEDULE_INTERLEAVED;
    struct ls_stage_cost cost[LS_LAYOUT_LAYERS_MAX + 2];
    double own[LS_LAYOUT_LAYERS_MAX + 2] = {0}, least = 0;
    struct ls_schedule_figures figures = {0};
    struct ls_schedule table;
    if (layout->stages == 1 || ls_layout_table(layout, layout->micro_batches, &table, NULL))
        return 0;
    for (int64_t stage = 0; stage < layout->stages; stage++) {
        const struct ls_stage_cost whole = stage_cost(&c->layer, layout, false, stage);
        cost[stage] = stage_cost(&c->layer, layout, splits, stage);
        own[layout->stage_rank[stage]] += whole.forward + whole.input;
    }
    if (!ls_schedule_simulate(&table, &(struct ls_schedule_costs){.stage = cost}, &figures, NULL))
        least = figures.makespan;
    for (int64_t rank = 0; rank < layout->size[LS_AXIS_PP] && least > 0; rank++)
        least = fmax(least, figures.rank[rank].begin + (double)layout->micro_batches * own[rank]);
    ls_schedule_figures_release(&figures);
    ls_schedule_release(&table);
    return least;
}

/* Elements of a model, or of a rank's part of it. Frozen ones are of the compute type, of which
 * those in blocks take few. */
struct held {
    double trained, frozen;
    double once;   /* of both, those that the backward does not reach, or reaches without weights */
    double blocks; /* that it reaches */
};

/* Blocks from the second on; of a model of one block, one that is as the second would be. */
static void kinds_set(const struct ls_model_config *model, const struct ls_params *params,
                      struct kinds *kinds)
{
    uint64_t mark[LS_LAYOUT_LAYERS_MAX + 2] = {0};
    bool more = false;
    for (int64_t block = 0; block < ls_max(model->layers, 2); block++)
        mark[block] = (ls_layer_among(model->window_layers, block) ? 1 : 0) |
                      (ls_layer_among(model->rope_layers, block) ? 2 : 0);
    for (int i = 0; i < params->count; i++) {
        int64_t block = params->units[params->list[i].unit].layer - 1;
        if (block >= 0 && block < model->layers)
            mark[block] = ls_hash64(&params->list[i].frozen, sizeof(bool), mark[block]);
        if (block == 0 && model->layers == 1) /* nothing says that it would be frozen */
            mark[1] = ls_hash64(&(bool){false}, sizeof(bool), mark[1]);
    }
    kinds->blocks = ls_max(model->layers - 1, 1);
    kinds->unknown = true;
    for (int64_t block = 1; block <= kinds->blocks; block++) {
        int k = 0;
        while (k < kinds->count && kinds->list[k].mark != mark[block])
            k++;
        kinds->unknown = kinds->unknown && mark[block] != mark[0];
        more = more || k == KINDS_MAX;
        if (k == KINDS_MAX)
            continue;
        if (k == kinds->count) {
            kinds->list[kinds->count].at = block;
            kinds->list[kinds->count++].mark = mark[block];
        }
        kinds->list[k].blocks++;
    }
    kinds->unknown = kinds->unknown || more;
}

static bool model_read(const struct ls_config *config, struct held *held, struct kinds *kinds)
{
    struct ls_params params;
    const struct ls_part all = {.tp = 1};
    const struct ls_numerics numerics = ls_config_numerics(config);
    if (ls_params_init(&params, &config->model, &numerics, &all, NULL))
        return false;
    int lowest = (int)ls_max(ls_model_lowest_trained(&config->model), 1);
    held->blocks = (double)ls_max(config->model.layers + 1 - lowest, 0);
    for (int i = 0; i < params.count; i++) {
        const struct ls_param *param = &params.list[i];
        int64_t values = ls_param_elements(param);
        double room = (double)(param->frozen ? ls_param_room(param, values) : values);
        *(param->frozen ? &held->frozen : &held->trained) += room;
        held->once += params.units[param->unit].layer < lowest ? room : 0;
    }
    kinds_set(&config->model, &params, kinds);
    ls_params_release(&params);
    return true;
}

/* How often gradients are reduced in a step: each leaf by itself, as order has it; in mode fast
 * once, or where they are sharded at every micro-batch. */
static double reductions(const struct ls_config *config, const struct candidate *c,
                         double micro_batches)
{
    double dp = (double)(c->replicate * c->shard);
    if (config->numerics.mode == LS_CONFIG_FAST)
        return c->zero >= 2 ? micro_batches : 1;
    return fmax((double)config->batch.global / dp / (double)config->numerics.leaf_sequences, 1);
}

/* Seconds in which sums of gradients go from one replica of the shards to the next, a leaf behind
 * the other (mode ordered), or are reduced over them. */
static double replicas_s(const struct ls_config *config, const struct ls_cluster *cluster,
                         const struct candidate *c, struct held held, double micro_batches)
{
    if (c->zero == 0 || c->replicate < 2)
        return 0;
    int64_t stride = c->shard * c->cp * c->tp;
    double piece = 4 * held.trained / (double)(c->shard * c->cp);
    const struct ls_cost_group group =
        ls_cost_group_of(cluster, (int)ls_max(c->threads, 1), 0, c->replicate, stride);
    bool fast = config->numerics.mode == LS_CONFIG_FAST;
    double once = ls_cost_move(cluster, &group, fast ? LS_COMM_ALL_REDUCE : LS_COMM_SEND, piece);
    return once * (fast ? 1 : reductions(config, c, micro_batches) * (double)c->replicate);
}

/* Seconds that the links of data parallel are busy: those between shards, which move block by
 * block. *taken: the share of its time that one takes at least from what computes meanwhile. */
static double moves_s(const struct ls_config *config, const struct ls_cluster *cluster,
                      const struct candidate *c, struct held held, double micro_batches,
                      double *taken)
{
    double n = (double)(c->zero ? c->shard * c->cp : c->replicate * c->shard * c->cp);
    *taken = 0;
    if (n < 2)
        return 0;
    const struct ls_cost_group group =
        ls_cost_group_of(cluster, (int)ls_max(c->threads, 1), 0, (int64_t)n, c->tp);
    double act = (double)ls_dtype_bytes(config->numerics.precision);
    double gathers = c->zero == 0 ? 0 : c->zero >= 3 ? micro_batches : 1;
    enum ls_comm_kind reduce = c->zero ? LS_COMM_REDUCE_SCATTER : LS_COMM_ALL_REDUCE;
    double blocks = (double)config->model.layers / (double)c->pp, block = held.trained / blocks;
    double gathered = block + (c->zero >= 3 ? held.frozen / blocks : 0);
    bool twice = c->zero >= 3 && config->parallel.reshard_after_forward;
    double again = twice ? held.blocks / (double)c->pp : 0; /* gathered in the backward */
    double above = held.trained + held.frozen - held.once, units, memory;
    ls_cost_taken(cluster, &group, &units, &memory);
    *taken = fmin(units, memory) * cluster->overlap;
    double moves = reductions(config, c, micro_batches) * blocks *
                   ls_cost_move(cluster, &group, reduce, 4 * block);
    moves += gathers * blocks * ls_cost_move(cluster, &group, LS_COMM_ALL_GATHER, act * gathered);
    if (again > 0)
        moves += micro_batches * again *
                 ls_cost_move(cluster, &group, LS_COMM_ALL_GATHER, act * above / again);
    return moves;
}

static bool goes_to_a_tier(const struct ls_config *config, enum ls_offload what)
{
    return ls_config_tier(config, what) != LS_TIER_DEVICE;
}

/* Bytes of a rank's state: masters, compute copies, gradients and moments, as ZeRO shares them, and
 * as far as no tier has them. In fp32 masters are computed with: in a tier they leave copies. */
static double state_bytes(const struct ls_config *config, const struct candidate *c,
                          struct held held)
{
    const struct ls_optim_config optim = ls_config_optim(config);
    double act = config->numerics.precision == LS_F32
                     ? 0
                     : (double)ls_dtype_bytes(config->numerics.precision);
    double states =
        (double)ls_dtype_bytes(config->optim.moments) * ls_optimizer_states(&optim, true);
    double n = (double)(c->shard * c->cp), part = c->zero >= 1 ? 1 / n : 1;
    bool away = goes_to_a_tier(config, LS_OFFLOAD_PARAMETERS);
    double copies = away ? 0 : c->zero >= 3 ? act / n : act;
    double master = c->offload && (away || act > 0) ? 0 : 4 * part;
    double moments = c->offload ? 0 : states * part;
    double gradients = goes_to_a_tier(config, LS_OFFLOAD_GRADIENTS) ? 0 : 4 * part;
    return held.trained * (copies + master + moments + gradients) +
           held.frozen * (act > 0 ? copies : master);
}

/* Micro-batches whose activations the rank that takes most keeps at least, in blocks of the mean
 * rank; where the backward is split, with what weight halves wait for. Of stages or a table of the
 * user's the rank that keeps most micro-batches may have the fewest blocks. */
static double kept_least(const struct ls_search_options *options, const struct candidate *c,
                         double micro_batches)
{
    bool split = *options->config->parallel.split && key_pinned(options, "parallel.split");
    double live = fmin(micro_batches, (double)c->pp);
    if (split || c->schedule == LS_LAYOUT_CSV)
        return 0.9;
    switch (c->schedule) {
    case LS_SCHEDULE_GPIPE:
        return 0.9 * micro_batches;
    case LS_SCHEDULE_ZB_H1:
        return 1.5 * live;
    case LS_SCHEDULE_ZBV:
    case LS_SCHEDULE_DUALPIPEV:
        return 2.5 * live;
    default:
        return 0.9 * live;
    }
}

static bool candidate_judge(struct cuts *cuts, const struct held *all, struct candidate *c)
{
    const struct ls_config *config = cuts->options->config;
    const struct ls_cluster *cluster = cuts->options->cluster;
    bool v = c->schedule < LS_SCHEDULE_KINDS &&
             ls_schedule_chunks((enum ls_schedule_kind)c->schedule) == 2;
    if (v && 2 * c->pp > config->model.layers + 2)
        return false;
    const struct cut *cut = cut_of(cuts, c);
    if (cut && !cut->admitted && cuts->unadmitted.pp == 0)
        cuts->unadmitted = *c;
    if (!cut || !cut->admitted)
        return false;
    double layers = (double)config->model.layers, pp = (double)c->pp;
    double dp = (double)(c->replicate * c->shard);
    double micro_batches = ceil((double)config->batch.global / dp / (double)c->micro);
    double whole = layers * cut->block_s + cut->ends_s;
    double ranks = pp * (double)c->tp;
    const struct held held = {all->trained / ranks, all->frozen / ranks, all->once / ranks,
                              all->blocks};
    double taken, moves = moves_s(config, cluster, c, held, micro_batches, &taken);
    double overlap = cluster->overlap;
    for (int l = 0; l < cluster->links; l++) /* what may hide, wherever it moves */
        overlap = fmax(overlap, cluster->link[l].overlap);
    double computing = micro_batches * (layers * cut->block_least_s + cut->ends_least_s) / pp;
    double free_s = micro_batches * (layers * cut->block_free_s + cut->ends_free_s) / pp;
    double lost = taken * fmax(moves - free_s, 0);
    c->layer = cut->least;
    c->bound_s = fmax(computing, 0.9 * moves + (1 - overlap) * computing);
    c->bound_s = fmax(c->bound_s, 0.9 * lost + computing);
    double most = ceil(layers / pp) * cut->block_s + (c->pp == 1 ? cut->ends_s : 0);
    most = fmax(most, whole / pp);
    double shared = c->zero >= 1 ? (double)(c->shard * c->cp) : 1;
    /* Fewer micro-batches than stages leave most of them idle, whatever the chunks. */
    double slots = fmax(bubble_slots(c, micro_batches), pp - micro_batches);
    c->estimate_s = (micro_batches + slots) * most + cut->state_s / pp / shared;
    /* Not all that could hide does: the first and the last of them have nothing to hide behind. */
    c->estimate_s += fmax(moves - 0.9 * overlap * computing, 0.4 * moves) + lost +
                     replicas_s(config, cluster, c, held, micro_batches);
    c->least_bytes = state_bytes(config, c, held) + kept_least(cuts->options, c, micro_batches) *
                                                        floor(layers / pp) * cut->block_bytes;
    return true;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static bool add(struct candidates *candidates, const struct candidate *candidate)
{
    if (!ls_list_grow(&candidates->list, candidates->count, &candidates->room,
                      sizeof *candidates->list))
        return false;
    candidates->list[candidates->count++] = *candidate;
    return true;
}

/* Values of one key: all that are worth a look, or the one that is pinned. */
struct values {
    int64_t list[64];
    int count;
};

static void value_add(struct values *values, int64_t value)
{
    if (values->count < (int)(sizeof values->list / sizeof *values->list))
        values->list[values->count++] = value;
}

static bool is_pinned(const struct ls_search_options *options, const char *key,
                      struct values *values, int64_t value)
{
    if (!key_pinned(options, key))
        return false;
    *values = (struct values){.list = {value}, .count = 1};
    return true;
}

/* Divisors of n, at most max. */
static struct values divisors(int64_t n, int64_t max)
{
    struct values values = {.count = 0};
    for (int64_t d = 1; d <= n && d <= max; d++)
        if (n % d == 0)
            value_add(&values, d);
    return values;
}

static struct values schedules_of(const struct ls_search_options *options, int64_t pp)
{
    static const int all[] = {LS_SCHEDULE_1F1B, LS_SCHEDULE_INTERLEAVED, LS_SCHEDULE_ZB_H1,
                              LS_SCHEDULE_ZBV, LS_SCHEDULE_DUALPIPEV};
    struct values values = {.count = 0};
    if (is_pinned(options, "parallel.schedule", &values, options->config->parallel.schedule))
        return values;
    for (size_t i = 0; i < (pp > 1 ? sizeof all / sizeof *all : 1); i++)
        value_add(&values, all[i]);
    return values;
}

static struct values chunks_of(const struct ls_search_options *options, int schedule, int64_t pp)
{
    struct values values = {.count = 0};
    if (is_pinned(options, "parallel.chunks", &values, options->config->parallel.chunks))
        return values;
    if (schedule != LS_SCHEDULE_INTERLEAVED)
        value_add(&values, 0);
    for (int64_t v = 2; schedule == LS_SCHEDULE_INTERLEAVED && v <= 8; v *= 2)
        if (v * pp <= options->config->model.layers + 2)
            value_add(&values, v);
    return values;
}

/* Where leaves are added in turn a micro-batch has at most one of them. */
static struct values micros_of(const struct ls_search_options *options, int64_t dp, int64_t cp)
{
    struct values values = {.count = 0};
    const struct ls_config *config = options->config;
    int64_t each = config->batch.global / dp;
    if (config->numerics.mode == LS_CONFIG_ORDERED && dp * cp > 1)
        each = ls_min(each, config->numerics.leaf_sequences);
    if (is_pinned(options, "batch.micro", &values, options->config->batch.micro))
        return values;
    for (int64_t micro = 1; micro <= each && values.count < MICROS; micro *= 2)
        if (each % micro == 0)
            value_add(&values, micro);
    return values;
}

/* Whether a split that is pinned has a part for each stage; with a file, the file knows them. */
static bool split_suits(const struct ls_search_options *options, const struct candidate *c)
{
    int64_t parts = split_parts(options), chunks = c->chunks;
    if (!chunks && c->schedule != LS_LAYOUT_CSV)
        chunks = ls_schedule_chunks((enum ls_schedule_kind)c->schedule);
    return parts == 0 || chunks == 0 || parts == c->pp * chunks;
}

struct making {
    const struct ls_search_options *options;
    struct candidates *candidates;
    struct cuts cuts;
    struct held all; /* of the model, and its kinds: once it is read, for the first layout */
    bool read, full; /* full: no memory */
};

/* What remains to be chosen where the axes are. */
static void add_details(struct making *making, struct candidate c)
{
    const struct ls_search_options *options = making->options;
    if (!making->read && !model_read(options->config, &making->all, &making->cuts.kinds)) {
        making->full = true;
        return;
    }
    making->read = true;
    struct values schedules = schedules_of(options, c.pp);
    struct values micros = micros_of(options, c.replicate * c.shard, c.cp), offloads = {{0, 1}, 2};
    struct values recompute = {{0, 1, 2}, RECOMPUTES};
    is_pinned(options, "memory.recompute", &recompute, 0);
    is_pinned(options, "memory.offload.optimizer", &offloads,
              goes_to_a_tier(options->config, LS_OFFLOAD_OPTIMIZER));
    for (int s = 0; s < schedules.count; s++) {
        c.schedule = (int)schedules.list[s];
        c.kind = making->candidates->kinds++;
        struct values chunks = chunks_of(options, c.schedule, c.pp);
        for (int v = 0; v < chunks.count; v++) {
            c.chunks = (int)chunks.list[v];
            for (int m = 0; m < micros.count && split_suits(options, &c); m++) {
                c.family = making->candidates->families++;
                for (int r = 0; r < recompute.count; r++)
                    for (int o = 0; o < offloads.count; o++) {
                        c.micro = micros.list[m];
                        c.recompute = (int)recompute.list[r];
                        c.offload = offloads.list[o];
                        if (candidate_judge(&making->cuts, &making->all, &c) &&
                            !add(making->candidates, &c))
                            making->full = true;
                    }
            }
        }
    }
}

/* Whether the keys that are pinned are so many ranks, and so many copies. */
static bool is_asked(const struct ls_search_options *options, int64_t dp, int64_t replicate)
{
    const struct ls_layout_keys *keys = &options->config->parallel;
    return (!key_pinned(options, "parallel.dp") || keys->dp == 0 || keys->dp == dp) &&
           (!key_pinned(options, "parallel.dp_replicate") || keys->dp_replicate == 0 ||
            keys->dp_replicate == replicate);
}

/* ZeRO goes with shards. Pinned, it also is without where the other keys leave none, and shards are
 * copies where these keys or cp ask for them. */
static bool shards_suit(const struct ls_search_options *options, const struct candidate *c)
{
    bool fixed =
        key_pinned(options, "parallel.dp_shard") || key_pinned(options, "parallel.dp_replicate");
    if ((c->zero > 0) == (c->shard * c->cp > 1))
        return true;
    return key_pinned(options, "parallel.zero") &&
           (fixed || c->shard * c->replicate == 1 || (c->zero == 0 && c->shard == 1));
}

/* dp ranks as copies, as shards, and as shards inside each host with copies over hosts. */
static void add_dp(struct making *making, struct candidate c, int64_t dp)
{
    const struct ls_search_options *options = making->options;
    const struct ls_layout_keys *keys = &options->config->parallel;
    int64_t near = options->cluster->accelerators / ls_max(c.tp * c.cp, 1);
    /* Where each leaf is reduced by itself, ZeRO 1 keeps no more gradients than ZeRO 2. */
    struct values zeros = options->config->numerics.mode == LS_CONFIG_ORDERED
                              ? (struct values){{0, 1, 3}, 3}
                              : (struct values){{0, 1, 2, 3}, 4};
    struct values shards = {{1, dp, near}, 3};
    is_pinned(options, "parallel.zero", &zeros, keys->zero);
    is_pinned(options, "parallel.dp_replicate", &shards, dp / ls_max(keys->dp_replicate, 1));
    is_pinned(options, "parallel.dp_shard", &shards, keys->dp_shard);
    for (int s = 0; s < shards.count; s++) {
        int64_t shard = shards.list[s];
        bool again = (s > 0 && shard == shards.list[0]) || (s > 1 && shard == shards.list[1]);
        if (shard < 1 || dp % shard || again || !is_asked(options, dp, dp / shard))
            continue;
        for (int z = 0; z < zeros.count; z++) {
            c.zero = (int)zeros.list[z];
            c.shard = shard;
            c.replicate = dp / shard;
            if (shards_suit(options, &c))
                add_details(making, c);
        }
    }
}

static void add_axes(struct making *making, int64_t ranks, int64_t threads)
{
    const struct ls_search_options *options = making->options;
    const struct ls_layout_keys *keys = &options->config->parallel;
    const struct ls_numerics numerics = ls_config_numerics(options->config);
    struct values pps = divisors(ranks, options->config->model.layers + 2);
    is_pinned(options, "parallel.pp", &pps, keys->pp);
    for (int i = 0; i < pps.count; i++) {
        struct values tps = divisors(ranks / pps.list[i], ls_max(numerics.tp_tiles, 64));
        is_pinned(options, "parallel.tp", &tps, keys->tp);
        for (int j = 0; j < tps.count; j++) {
            int64_t left = ranks / pps.list[i] / ls_max(tps.list[j], 1);
            if (pps.list[i] * tps.list[j] * left != ranks ||
                ls_model_admits_tp(&options->config->model, &numerics, tps.list[j], NULL))
                continue;
            struct values cps = divisors(left, 1024);
            is_pinned(options, "parallel.cp", &cps, keys->cp);
            for (int k = 0; k < cps.count; k++) {
                int64_t cp = cps.list[k], dp = left / ls_max(cp, 1);
                if (cp * dp != left || options->config->batch.global % dp ||
                    ls_cp_admits(cp, numerics.seq_tiles, (enum ls_cp_method)keys->cp_method, NULL))
                    continue;
                const struct candidate c = {
                    .pp = pps.list[i], .tp = tps.list[j], .cp = cp, .threads = threads};
                add_dp(making, c, dp);
            }
        }
    }
}

int candidates_add(const struct ls_search_options *options, int64_t accelerators,
                   struct candidates *candidates, struct ls_error *error)
{
    struct making making = {.options = options,
                            .candidates = candidates,
                            .cuts = {.options = options, .accelerators = accelerators}};
    bool cores = options->cluster->accelerator.is_core;
    int64_t most = (int64_t)ls_config_key_of("parallel.threads")->max;
    struct values threads = {.list = {0}, .count = 1};
    if (cores)
        threads = divisors(options->cluster->accelerators, ls_min(accelerators, most));
    if (cores && options->config->parallel.threads > 0)
        is_pinned(options, "parallel.threads", &threads, options->config->parallel.threads);
    for (int i = 0; i < threads.count && !making.full; i++) {
        int64_t each = ls_max(threads.list[i], 1), ranks = accelerators / each;
        if (accelerators % each == 0 && ranks_have_hosts(options->cluster, ranks, each))
            add_axes(&making, ranks, threads.list[i]);
    }
    if (candidates->unadmitted.pp == 0)
        candidates->unadmitted = making.cuts.unadmitted;
    free(making.cuts.list);
    return making.full || making.cuts.full ? ls_no_memory(error, "for a search") : LS_OK;
}
