/* DeepSpeed's configuration: what several of its keys say together, and its defaults. */
#include "convert/convert_private.h"

#include <string.h>

#define ZERO "zero_optimization."

/* ---- the batch ------------------------------------------------------------------------------ */

struct batch {
    int64_t total, micro, steps, dp; /* 0 = not given */
};

/* Two of total = micro * steps * dp give the third; DeepSpeed's own rules for the rest. */
static void complete_batch(struct convert *c, struct batch *b)
{
    int64_t rank = convert_times(b->micro, b->steps);
    if (b->total && rank && !b->dp && b->total % rank == 0)
        b->dp = b->total / rank;
    if (!b->steps && !(b->total && b->micro))
        b->steps = 1;
    if (!b->dp)
        return;
    bool no_micro = !b->micro && b->total, no_steps = !b->steps;
    int64_t given = no_micro ? b->steps : b->micro;
    if (no_micro)
        b->micro = b->total / b->dp / b->steps;
    if (no_steps)
        b->steps = b->total / b->micro / b->dp;
    int64_t product = convert_times(convert_times(b->micro, b->steps), b->dp);
    if (!b->total)
        b->total = product;
    if (b->total != product && (no_micro || no_steps))
        convert_fail(c, "train_batch_size",
                     "expected a multiple of %s x data-parallel ranks = %lld x %lld: change one of "
                     "them, or --ranks",
                     no_micro ? "gradient_accumulation_steps" : "train_micro_batch_size_per_gpu",
                     (long long)given, (long long)b->dp);
    else if (b->total != product || b->steps < 1 || b->micro < 1)
        convert_fail(c, "train_batch_size",
                     "expected train_micro_batch_size_per_gpu x gradient_accumulation_steps x "
                     "data-parallel ranks, and %lld is not %lld x %lld x %lld: change one of them, "
                     "or --ranks",
                     (long long)b->total, (long long)b->micro, (long long)b->steps,
                     (long long)b->dp);
}

static void data_ranks(struct convert *c, const struct batch *b)
{
    int64_t shard = 0;
    const char *from = c->options->ranks ? "--ranks" : "train_batch_size";
    bool mics = convert_int(c, ZERO "mics_shard_size", -1, &shard) && shard > 0;
    if (!b->dp) {
        convert_advise(c, "parallel.dp: how many ranks share the batch is not in the file; give "
                          "--ranks N, or set it");
        return;
    }
    if (mics && b->dp % shard) {
        convert_fail(c, ZERO "mics_shard_size",
                     "expected a divisor of the %lld data-parallel ranks", (long long)b->dp);
    } else if (mics) {
        convert_keep_int(c, "parallel.dp_shard", ZERO "mics_shard_size", shard);
        convert_keep_int(c, "parallel.dp_replicate", ZERO "mics_shard_size", b->dp / shard);
    } else {
        convert_keep_int(c, "parallel.dp", from, b->dp);
    }
}

static void translate_batch(struct convert *c, int64_t model_ranks)
{
    struct batch b = {0};
    bool total = convert_int(c, "train_batch_size", 1, &b.total);
    bool micro = convert_int(c, "train_micro_batch_size_per_gpu", 1, &b.micro);
    convert_int(c, "gradient_accumulation_steps", 1, &b.steps);
    b.dp = convert_dp(c, model_ranks, "tensor x sequence parallel ranks");
    if (!total && !micro) {
        convert_advise(c, "batch.global: the file leaves it open; set it");
        data_ranks(c, &b);
        return;
    }
    complete_batch(c, &b);
    if (total && micro && b.steps && !b.dp)
        convert_fail(c, "train_batch_size",
                     "expected a multiple of train_micro_batch_size_per_gpu x "
                     "gradient_accumulation_steps = %lld x %lld",
                     (long long)b.micro, (long long)b.steps);
    if (!b.total)
        convert_fail(c, "train_micro_batch_size_per_gpu",
                     "the batch is this times the data-parallel ranks, which the file does not "
                     "say: give --ranks N");
    convert_keep_int(c, "batch.global",
                     total ? "train_batch_size" : "train_micro_batch_size_per_gpu", b.total);
    if (b.micro)
        convert_keep_int(c, "batch.micro",
                         micro ? "train_micro_batch_size_per_gpu"
                         : convert_find(c, "gradient_accumulation_steps")
                             ? "gradient_accumulation_steps"
                             : "train_batch_size",
                         b.micro);
    data_ranks(c, &b);
}

/* ---- precision ------------------------------------------------------------------------------ */

static void translate_scale(struct convert *c)
{
    static const struct {
        const char *theirs, *ours;
    } rows[] = {
        {"fp16.loss_scale", "numerics.loss_scale"},
        {"fp16.initial_scale_power", "numerics.initial_scale_power"},
        {"fp16.loss_scale_window", "numerics.loss_scale_window"},
        {"fp16.hysteresis", "numerics.hysteresis"},
        {"fp16.consecutive_hysteresis", "numerics.consecutive_hysteresis"},
        {"fp16.min_loss_scale", "numerics.min_loss_scale"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        convert_take(c, rows[i].ours, rows[i].theirs, NULL);
}

static void translate_precision(struct convert *c)
{
    static const char *const switches[] = {"fp16.enabled", "bf16.enabled", "bfloat16.enabled",
                                           "torch_autocast.enabled"};
    const char *cast = convert_word(c, "torch_autocast.dtype", "bfloat16");
    bool half = strstr(cast, "float16") && !strstr(cast, "bfloat16");
    const char *types[] = {"fp16", "bf16", "bf16", half ? "fp16" : "bf16"};
    const char *type = NULL, *from = NULL;
    bool automatic = false;
    for (size_t i = 0; i < sizeof switches / sizeof *switches; i++) {
        automatic |= convert_is_auto(c, switches[i]);
        if (!convert_flag(c, switches[i], false))
            continue;
        if (type && strcmp(type, types[i]) != 0)
            convert_fail(c, switches[i], "expected one precision, and %s is on too", from);
        from = switches[i];
        type = types[i];
    }
    if (type)
        convert_keep(c, "numerics.precision", from, "%s", type);
    else if (!automatic)
        convert_assume(c, "numerics.precision", "fp16.enabled", "fp32");
    if (type && strcmp(type, "fp16") == 0)
        translate_scale(c);
    if (convert_flag(c, "bf16.bf16_optimizer_states", false))
        convert_keep(c, "optim.moments", "bf16.bf16_optimizer_states", "bf16");
}

/* ---- the optimizer -------------------------------------------------------------------------- */

#define PARAM "optimizer.params."

static void betas(struct convert *c, const char *second)
{
    static const char *const ours[] = {"optim.beta1", "optim.beta2"};
    const struct convert_entry *entry = convert_find(c, PARAM "betas");
    char one[64];
    for (int i = 0; i < 2; i++) {
        if (!entry)
            convert_assume(c, ours[i], PARAM "betas", "%s", i ? second : "0.9");
        else if (convert_element(entry, i, one, sizeof one))
            convert_keep(c, ours[i], PARAM "betas", "%s", one);
        else
            convert_fail(c, PARAM "betas", "expected a list of two numbers");
    }
}

static void adam(struct convert *c, bool decoupled)
{
    double decay = 0;
    decoupled = decoupled || convert_flag(c, PARAM "adam_w_mode", true);
    convert_real(c, PARAM "weight_decay", &decay);
    convert_keep(c, "optim.name", "optimizer.type", "adamw");
    betas(c, "0.999");
    convert_take(c, "optim.epsilon", PARAM "eps", "1e-8");
    /* torch.optim.AdamW has 0.01, and DeepSpeed's own optimizers and torch.optim.Adam 0 */
    bool torch = decoupled && convert_flag(c, PARAM "torch_adam", false);
    convert_take(c, "optim.weight_decay", PARAM "weight_decay", torch ? "0.01" : "0");
    if (!decoupled && decay != 0)
        convert_lose(c, PARAM "adam_w_mode", "optim.name=adam|optim.decoupled*",
                     "weight decay is decoupled in adamw");
}

static void sgd(struct convert *c)
{
    double momentum = 0;
    convert_keep(c, "optim.name", "optimizer.type", "sgd");
    convert_real(c, PARAM "momentum", &momentum);
    convert_take(c, "optim.momentum", PARAM "momentum", "0");
    if (convert_flag(c, PARAM "nesterov", false) || momentum > 0)
        convert_take(c, "optim.nesterov", PARAM "nesterov", "false");
    convert_take(c, "optim.weight_decay", PARAM "weight_decay", "0");
}

/* Whether the peak of every parameter is the schedule's, whatever rates the optimizer has. */
static bool schedule_has_peak(struct convert *c)
{
    static const char *const peak = "scheduler.params.warmup_max_lr";
    const char *type = convert_word(c, "scheduler.type", "");
    return convert_among(type, "WarmupDecayLR") ||
           (convert_among(type, "WarmupLR") && (convert_find(c, peak) || convert_is_auto(c, peak)));
}

/* Of matrices and of what AdamW updates: each its own, that of all, or the default there. */
static void muon_rates(struct convert *c)
{
    static const struct {
        const char *theirs, *ours, *initial;
    } rates[] = {{PARAM "muon_lr", "optim.lr", "0.02"},
                 {PARAM "adam_lr", "optim.adamw_lr", "0.0003"}};
    bool split = convert_find(c, rates[0].theirs) || convert_find(c, rates[1].theirs);
    bool open = convert_is_auto(c, PARAM "lr");
    for (int i = 0; i < 2; i++)
        if (schedule_has_peak(c) && convert_find(c, rates[i].theirs))
            convert_drop(c, rates[i].theirs, "the schedule sets it");
        else if (schedule_has_peak(c))
            continue;
        else if (convert_find(c, rates[i].theirs) || !convert_find(c, PARAM "lr"))
            convert_take(c, rates[i].ours, rates[i].theirs, open ? NULL : rates[i].initial);
        else if (split || i == 0)
            convert_take(c, rates[i].ours, PARAM "lr", NULL);
    if (!schedule_has_peak(c) && convert_find(c, rates[0].theirs) &&
        convert_find(c, rates[1].theirs) && convert_find(c, PARAM "lr"))
        convert_drop(c, PARAM "lr", "muon_lr and adam_lr are the rates");
}

static void muon(struct convert *c)
{
    convert_keep(c, "optim.name", "optimizer.type", "muon");
    muon_rates(c);
    convert_take(c, "optim.momentum", PARAM "momentum", "0.95");
    betas(c, "0.95");
    convert_take(c, "optim.epsilon", PARAM "eps", "1e-10");
    convert_take(c, "optim.weight_decay", PARAM "weight_decay", "0");
    convert_assume(c, "optim.muon_scale", "optimizer.type", "original");
}

/* Ours of that name, if there is one. */
static void translate_optimizer(struct convert *c)
{
    const char *type = convert_word(c, "optimizer.type", NULL);
    bool automatic = convert_is_auto(c, "optimizer.type");
    if (!type && !automatic) {
        convert_advise(c, "optim: the optimizer is made by the program there, not by the file; set "
                          "optim.name, optim.lr and the others");
        return;
    }
    if (automatic || convert_among(type, "Adam|AdamW|FusedAdam|DeepSpeedCPUAdam")) {
        adam(c, automatic || convert_among(type, "AdamW"));
    } else if (convert_among(type, "SGD")) {
        sgd(c);
    } else if (convert_among(type, "Lion")) {
        convert_keep(c, "optim.name", "optimizer.type", "lion");
        betas(c, "0.99");
        convert_take(c, "optim.weight_decay", PARAM "weight_decay", "0");
    } else if (convert_among(type, "Muon")) {
        muon(c);
    } else {
        convert_choose(c, "optim.name", "optimizer.type", type);
        betas(c, "0.999");
        convert_take(c, "optim.epsilon", PARAM "eps", "1e-8");
        convert_take(c, "optim.weight_decay", PARAM "weight_decay", "0");
    }
}

/* ---- the schedule --------------------------------------------------------------------------- */

#define STEP "scheduler.params."

static void warm_up(struct convert *c)
{
    int64_t steps = 1000;
    double least = 0;
    if (convert_int(c, STEP "warmup_num_steps", 0, &steps) && steps < 2)
        steps = 2; /* the least there */
    convert_settle(c, "optim.warmup_steps", STEP "warmup_num_steps", "%lld", (long long)steps);
    if (!convert_among(convert_word(c, STEP "warmup_type", "log"), "linear"))
        convert_lose(c, STEP "warmup_type", "optim.warmup_type|optim.warmup=*log*",
                     "log (the default there): the warm-up is linear here; write \"linear\"");
    if ((convert_real(c, STEP "warmup_min_lr", &least) && least != 0) ||
        (convert_real(c, STEP "warmup_min_ratio", &least) && least != 0))
        convert_lose(c,
                     convert_find(c, STEP "warmup_min_lr") ? STEP "warmup_min_lr"
                                                           : STEP "warmup_min_ratio",
                     "optim.warmup_*ratio|optim.warmup_*lr|optim.warmup_init*",
                     "the warm-up begins at 0 here");
}

static void decay(struct convert *c, const char *schedule, const char *least)
{
    int64_t steps;
    convert_keep(c, "optim.schedule", "scheduler.type", "%s", schedule);
    if (convert_take_int(c, "optim.decay_steps", STEP "total_num_steps", &steps))
        convert_keep_int(c, "train.steps", STEP "total_num_steps", steps);
    if (strcmp(schedule, "cosine") == 0)
        convert_take(c, "optim.min_ratio", STEP "cos_min_ratio", least);
    else
        convert_assume(c, "optim.min_ratio", "scheduler.type", "%s", least);
}

/* The peak: of the schedule, else of the optimizer. */
static void translate_rate(struct convert *c, const char *type)
{
    bool warm = type && convert_among(type, "WarmupLR|WarmupDecayLR");
    if (warm && convert_is_auto(c, STEP "warmup_max_lr"))
        return;
    if (warm && convert_find(c, STEP "warmup_max_lr"))
        convert_take(c, "optim.lr", STEP "warmup_max_lr", NULL);
    else if (warm && convert_among(type, "WarmupDecayLR"))
        convert_assume(c, "optim.lr", STEP "warmup_max_lr", "0.001");
    else if (!convert_has(c, "optim.lr") && (convert_find(c, "optimizer.type") || warm))
        convert_take(c, "optim.lr", PARAM "lr", "0.001");
}

static void translate_schedule(struct convert *c)
{
    const char *type = convert_word(c, "scheduler.type", NULL);
    translate_rate(c, type);
    if (!type) {
        if (!convert_is_auto(c, "scheduler.type"))
            convert_assume(c, "optim.schedule", "scheduler.type", "constant");
    } else if (convert_among(type, "WarmupLR")) {
        convert_keep(c, "optim.schedule", "scheduler.type", "constant");
        warm_up(c);
    } else if (convert_among(type, "WarmupDecayLR")) {
        decay(c, "linear", "0");
        warm_up(c);
    } else if (convert_among(type, "WarmupCosineLR")) {
        decay(c, "cosine", "0.0001");
        warm_up(c);
    } else {
        convert_lose(c, "scheduler.type", "optim.schedule=*cycle*|optim.schedule=*range*",
                     "there is no %s; WarmupLR, WarmupDecayLR and WarmupCosineLR have counterparts",
                     type);
    }
}

/* ---- ZeRO, memory --------------------------------------------------------------------------- */

static void offload(struct convert *c, const char *theirs, const char *ours)
{
    const char *device = convert_word(c, theirs, NULL);
    if (!device)
        return;
    if (convert_among(device, "none|cpu|nvme"))
        convert_keep(c, ours, theirs, "%s",
                     convert_among(device, "none")  ? "none"
                     : convert_among(device, "cpu") ? "host"
                                                    : "file");
    else
        convert_fail(c, theirs, "expected none, cpu or nvme");
}

static void offload_path(struct convert *c, const char *device, const char *path)
{
    if (convert_among(convert_word(c, device, ""), "nvme") && convert_find(c, path))
        convert_keep(c, "memory.file", path, "%s", convert_word(c, path, ""));
}

static void translate_offload(struct convert *c)
{
    static const char *const old[] = {ZERO "cpu_offload", ZERO "cpu_offload_param",
                                      ZERO "cpu_offload_params"};
    offload(c, ZERO "offload_optimizer.device", "memory.offload.optimizer");
    offload(c, ZERO "offload_param.device", "memory.offload.parameters");
    offload_path(c, ZERO "offload_optimizer.device", ZERO "offload_optimizer.nvme_path");
    offload_path(c, ZERO "offload_param.device", ZERO "offload_param.nvme_path");
    if (convert_among(convert_word(c, ZERO "offload_optimizer.device", ""), "cpu|nvme"))
        convert_take(c, "memory.offload.optimizer_ratio", ZERO "offload_optimizer.ratio", NULL);
    for (int i = 0; i < 3; i++)
        if (convert_flag(c, old[i], false))
            convert_keep(c, i ? "memory.offload.parameters" : "memory.offload.optimizer", old[i],
                         "host");
}

static void translate_zero(struct convert *c)
{
    static const char *const persist[] = {ZERO "stage3_param_persistence_threshold",
                                          ZERO "param_persistence_threshold"};
    static const char *const prefetch[] = {ZERO "stage3_prefetch_bucket_size",
                                           ZERO "prefetch_bucket_size"};
    double elements;
    int64_t stage = 0;
    if (convert_flag(c, "zero_optimization", false)) /* as it was in 2020 */
        convert_keep(c, "parallel.zero", "zero_optimization", "1");
    if (convert_int(c, ZERO "stage", 0, &stage))
        convert_keep_int(c, "parallel.zero", ZERO "stage", stage);
    if (convert_real(c, ZERO "reduce_bucket_size", &elements))
        convert_bucket(c, ZERO "reduce_bucket_size", elements);
    for (int i = 0; i < 2; i++) {
        if (stage == 3 && convert_real(c, persist[i], &elements))
            convert_keep(c, "parallel.persist", persist[i], "%.0f", elements);
        if (convert_real(c, prefetch[i], &elements) && elements == 0)
            convert_keep(c, "parallel.prefetch", prefetch[i], "0");
    }
    translate_offload(c);
}

static void translate_recomputation(struct convert *c)
{
    static const char *const keys[] = {"activation_checkpointing.partition_activations",
                                       "activation_checkpointing.cpu_checkpointing",
                                       "activation_checkpointing.number_checkpoints"};
    int64_t checkpoints = 0; /* false in many files */
    bool cut = convert_flag(c, keys[0], false), host = convert_flag(c, keys[1], false);
    if (!convert_among(convert_word(c, keys[2], ""), "false"))
        convert_int(c, keys[2], 0, &checkpoints);
    if (cut || host || checkpoints > 0)
        convert_keep(c, "memory.recompute", cut ? keys[0] : host ? keys[1] : keys[2], "full");
    if (cut)
        convert_keep(c, "memory.partition_activations", keys[0], "true");
    if (host)
        convert_keep(c, "memory.offload.activations", keys[1], "host");
}

/* Ranks that share one sequence. */
static int64_t translate_model_ranks(struct convert *c)
{
    static const char *const tensor[] = {"tensor_parallel.autotp_size",
                                         "tensor_parallel.tp.tp_size"};
    int64_t ranks = 1, tp, sp;
    for (int i = 0; i < 2; i++)
        if (convert_int(c, tensor[i], 0, &tp) && tp > 1) {
            convert_tp(c, tensor[i], tp);
            ranks = i == 0 || ranks == 1 ? tp : ranks;
        }
    if (convert_int(c, "sequence_parallel_size", 1, &sp)) {
        convert_cp(c, "sequence_parallel_size", sp);
        ranks = convert_times(ranks, sp);
    }
    return ranks;
}

static void derive(struct convert *c)
{
    int64_t model_ranks = translate_model_ranks(c);
    translate_batch(c, model_ranks);
    translate_precision(c);
    translate_optimizer(c);
    translate_schedule(c);
    translate_zero(c);
    translate_recomputation(c);
    if (!convert_has(c, "optim.clip") && !convert_is_auto(c, "gradient_clipping")) {
        convert_assume(c, "optim.clip", "gradient_clipping", "1");
        convert_advise(c, "optim.clip: without gradient_clipping DeepSpeed clips at 1 since 2026, "
                          "and before that not at all: set it, 0 for none");
    }
    if (convert_find(c, "communication_data_type"))
        convert_reduce(c, "communication_data_type",
                       convert_word(c, "communication_data_type", ""));
    if (!c->options->preset)
        convert_advise(c, "model: a DeepSpeed file does not describe it; give --model PRESET, such "
                          "as gpt2-124m, or set model.arch, model.layers and the others");
    convert_advise(c, "data.train: a DeepSpeed file does not name it; set it");
}

const struct convert_project convert_deepspeed = {
    .name = "deepspeed",
    .title = "DeepSpeed",
    .read = convert_json_read,
    .rules = convert_deepspeed_rules,
    .remark = "Initial weights, the order of samples and rounding differ from there in any case; "
              "norms and biases are not decayed here, and a schedule's learning rate there is "
              "one step behind.",
    .derive = derive,
};
