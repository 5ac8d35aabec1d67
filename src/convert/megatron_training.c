/* Megatron-LM's arguments for training and data: what several say together, and its defaults. */
#include "convert/megatron.h"

#include <math.h>
#include <string.h>

/* ---- the batch and the steps ---------------------------------------------------------------- */

enum { RAMP_STEPS_MAX = 1 << 24 };
#define SAMPLES_MAX 0x1p53

static void translate_rampup(struct convert *c, struct megatron *m)
{
    static const char *const ours[] = {"batch.rampup_start", "batch.rampup_increment",
                                       "batch.rampup_samples"};
    const struct convert_entry *entry = convert_find(c, "--rampup-batch-size");
    char one[64];
    double value[3] = {0};
    if (!entry)
        return;
    m->rampup = true;
    for (int i = 0; i < 3; i++)
        if (convert_element(entry, i, one, sizeof one)) {
            convert_keep(c, ours[i], "--rampup-batch-size", "%s", one);
            convert_number(one, &value[i]);
        } else {
            convert_fail(c, "--rampup-batch-size", "expected a start, an increment and samples");
        }
    if (value[0] >= 1 && value[0] < (double)m->batch && value[1] >= 1 && value[1] <= SAMPLES_MAX &&
        value[2] >= 1 && value[2] <= SAMPLES_MAX)
        m->ramp = (struct ls_ramp){.full = m->batch,
                                   .start = (int64_t)value[0],
                                   .increment = (int64_t)value[1],
                                   .samples = (int64_t)value[2]};
}

static void translate_batch(struct convert *c, struct megatron *m)
{
    static const char *const small[] = {"--batch-size", "--micro-batch-size"};
    int64_t micro = 0;
    for (int i = 0; i < 2; i++)
        convert_take_int(c, "batch.micro", small[i], &micro);
    if (convert_take_int(c, "batch.global", "--global-batch-size", &m->batch)) {
        if (m->dp && micro && m->batch % convert_times(micro, m->dp))
            convert_fail(c, "--global-batch-size",
                         "expected a multiple of --micro-batch-size x data-parallel ranks = %lld x "
                         "%lld",
                         (long long)micro, (long long)m->dp);
    } else if (micro && m->dp) {
        m->batch = convert_times(micro, m->dp);
        convert_assume(c, "batch.global", "--global-batch-size", "%lld", (long long)m->batch);
    } else {
        convert_advise(c, "batch.global: it is the micro-batch times the data-parallel ranks "
                          "there; give --ranks N, or set it");
    }
    translate_rampup(c, m);
}

static bool says(const struct convert *c, const char *key)
{
    const struct convert_entry *entry = convert_find(c, key);
    return entry && strcmp(entry->text, "0") != 0;
}

/* A run is counted in iterations or in samples, as is its schedule; only the latter lets a batch
 * grow. Megatron-LM ends with an assertion otherwise. */
static void check_counts(struct convert *c)
{
    static const char *const samples[] = {"--train-samples", "--lr-decay-samples",
                                          "--lr-warmup-samples", "--rampup-batch-size"};
    static const char *const iterations[] = {"--lr-decay-iters", "--lr-warmup-iters"};
    static const char *const warm_ups[] = {"--lr-warmup-iters", "--lr-warmup-samples"};
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++)
        if (says(c, "--train-iters") && says(c, samples[i]))
            convert_fail(c, samples[i],
                         "it counts samples: expected no --train-iters beside it, which counts "
                         "iterations");
    for (size_t i = 0; i < 2; i++)
        if (says(c, "--train-samples") && says(c, iterations[i]))
            convert_fail(c, iterations[i],
                         "it counts iterations: expected no --train-samples beside it");
    for (size_t i = 0; i < 2; i++)
        if (says(c, "--lr-warmup-fraction") && says(c, warm_ups[i]))
            convert_fail(c, warm_ups[i], "expected no --lr-warmup-fraction beside it");
}

/* What a number of steps may be given as. */
struct counted {
    const char *steps, *samples, *tokens; /* their arguments; NULL: there is none in tokens */
    const char *ours;
};

/* Steps that are `share` of a batch each; the batch must be known and stay. */
static int64_t steps_in(struct convert *c, const struct megatron *m, const char *theirs,
                        const char *ours, int64_t value, int64_t share)
{
    if (!value)
        return 0;
    if (!m->rampup && m->batch && share)
        return value / convert_times(m->batch, share);
    convert_lose(c, theirs, "train.samples|train.tokens",
                 "steps are counted here, and %s: give %s=N and --allow-loss",
                 m->rampup ? "the batch grows" : "the batch is not known", ours);
    return 0;
}

/* Steps that one of the arguments says, that in tokens first; 0 for none. A last step that is not
 * whole goes. */
static int64_t steps_of(struct convert *c, const struct megatron *m, const struct counted *as,
                        const char **from)
{
    int64_t value = 0, sequence = 0;
    *from = as->tokens;
    if (as->tokens && convert_int(c, as->tokens, 0, &value) && value) {
        convert_int(c, "--seq-length", 1, &sequence);
        return steps_in(c, m, as->tokens, as->ours, value, sequence);
    }
    *from = as->steps;
    if (convert_int(c, as->steps, 0, &value) && value)
        return value;
    *from = as->samples;
    return convert_int(c, as->samples, 0, &value) ? steps_in(c, m, as->samples, as->ours, value, 1)
                                                  : 0;
}

/* Megatron-LM's update_train_iters: of the run's end a partial batch goes, unless the batch still
 * grows there. 0: not known. */
static int64_t steps_grown(const struct megatron *m, int64_t samples)
{
    int64_t steps = 0, consumed = 0;
    if (!m->ramp.full)
        return 0;
    for (; consumed <= m->ramp.samples && consumed <= samples; steps++) {
        if (steps == RAMP_STEPS_MAX)
            return 0;
        consumed += ls_ramp_at(&m->ramp, consumed);
    }
    return steps + (samples > consumed ? (samples - consumed) / m->batch : 0);
}

/* The run ends with the first of its counts. */
static void translate_steps(struct convert *c, struct megatron *m)
{
    static const struct counted run = {"--train-iters", "--train-samples", NULL, "train.steps"};
    static const struct counted tokens = {"--train-iters", "--train-samples", "--train-tokens",
                                          "train.steps"};
    const char *from = "--train-samples", *other;
    int64_t samples = 0;
    check_counts(c);
    if (m->rampup && convert_int(c, from, 0, &samples))
        m->steps = steps_grown(m, samples);
    if (!m->steps)
        m->steps = steps_of(c, m, &run, &from);
    if (convert_find(c, tokens.tokens)) {
        samples = steps_of(c, m, &tokens, &other);
        if (samples && (!m->steps || samples < m->steps)) {
            m->steps = samples;
            from = other;
        }
    }
    if (m->steps)
        convert_keep_int(c, "train.steps", from, m->steps);
}

/* ---- the rate ------------------------------------------------------------------------------- */

static void translate_warm_up(struct convert *c, const struct megatron *m, int64_t decay)
{
    const char *from;
    double share, old;
    static const struct counted as = {"--lr-warmup-iters", "--lr-warmup-samples",
                                      "--lr-warmup-tokens", "optim.warmup_steps"};
    int64_t steps = steps_of(c, m, &as, &from);
    if (!steps && m->rampup && convert_find(c, "--lr-warmup-fraction"))
        convert_lose(c, "--lr-warmup-fraction", "train.samples",
                     "it is a share of samples there, and the batch grows: give "
                     "optim.warmup_steps=N and --allow-loss");
    else if (!steps && convert_real(c, "--lr-warmup-fraction", &share)) {
        from = "--lr-warmup-fraction";
        steps = convert_share(share, decay ? decay : m->steps);
    }
    if (!steps && convert_real(c, "--warmup", &old)) { /* a share, before 2021 */
        from = "--warmup";
        steps = convert_share(old, decay ? decay : m->steps);
    }
    if (steps)
        convert_keep_int(c, "optim.warmup_steps", from, steps);
}

/* The end of the schedule: cosine and linear fall to the least rate there. */
static void translate_end(struct convert *c, const char *style, double peak)
{
    double least = 0;
    bool ends = !convert_among(style, "constant|inverse-square-root");
    bool given = convert_real(c, "--min-lr", &least);
    if (ends && given && peak > 0)
        convert_keep(c, "optim.min_ratio", "--min-lr", "%.9g", least / peak);
    else if (ends)
        convert_assume(c, "optim.min_ratio", "--min-lr", "0");
    else if (least != 0 && !convert_among(style, "constant"))
        convert_lose(c, "--min-lr", "optim.min_lr", "inverse_sqrt has no least rate");
}

static void translate_wsd(struct convert *c, const struct megatron *m)
{
    const char *from;
    static const struct counted as = {"--lr-wsd-decay-iters", "--lr-wsd-decay-samples", NULL,
                                      "optim.cooldown_steps"};
    int64_t steps = steps_of(c, m, &as, &from);
    const char *style = convert_word(c, "--lr-wsd-decay-style", "exponential");
    convert_keep(c, "optim.schedule", "--lr-decay-style", "wsd");
    if (steps)
        convert_keep_int(c, "optim.cooldown_steps", from, steps);
    if (strcmp(style, "linear") != 0)
        convert_lose(c, "--lr-wsd-decay-style",
                     "optim.cooldown_[!s]*|optim.cooldown_s[!t]*|optim.cooldown=*",
                     "%s%s: the cool-down is linear here", style,
                     convert_find(c, "--lr-wsd-decay-style") ? "" : " (the default there)");
}

static void translate_rate(struct convert *c, const struct megatron *m)
{
    static const char *const styles[][2] = {{"constant", "constant"},
                                            {"linear", "linear"},
                                            {"cosine", "cosine"},
                                            {"inverse-square-root", "inverse_sqrt"}};
    const char *style = convert_word(c, "--lr-decay-style", "linear"), *from;
    static const struct counted as = {"--lr-decay-iters", "--lr-decay-samples", "--lr-decay-tokens",
                                      "optim.decay_steps"};
    int64_t decay = steps_of(c, m, &as, &from);
    double peak = 0;
    bool known = convert_among(style, "WSD");
    convert_take(c, "optim.lr", "--lr", NULL);
    convert_real(c, "--lr", &peak);
    for (int i = 0; i < 4; i++)
        if (strcmp(style, styles[i][0]) == 0) {
            known = true;
            convert_settle(c, "optim.schedule", "--lr-decay-style", "%s", styles[i][1]);
        }
    if (convert_among(style, "WSD"))
        translate_wsd(c, m);
    if (!known)
        convert_fail(c, "--lr-decay-style",
                     "expected constant, linear, cosine, inverse-square-root or WSD");
    if (m->rampup && !convert_among(style, "constant") && !convert_find(c, "--lr-decay-samples"))
        convert_lose(c, "--lr-decay-samples", "train.samples",
                     "--train-samples is the default there: the rate follows samples, here steps, "
                     "and the batch grows");
    if (decay && !convert_among(style, "constant|inverse-square-root"))
        convert_keep_int(c, "optim.decay_steps", from, decay);
    if (decay && decay < m->steps && convert_among(style, "inverse-square-root"))
        convert_lose(c, from, "optim.min_lr",
                     "behind it the rate is that of --min-lr there, and inverse_sqrt has no end: "
                     "leave it out, or let it be the run's");
    translate_warm_up(c, m, decay);
    translate_end(c, style, peak);
}

/* ---- the optimizer -------------------------------------------------------------------------- */

/* blockwise: each tensor-parallel rank orthogonalises its own part. */
static void translate_muon_parts(struct convert *c, const struct megatron *m)
{
    static const char *const mode = "--muon-tp-mode";
    if (convert_among(convert_word(c, mode, ""), "blockwise") && m->tp > 1)
        convert_lose(c, mode, "optim.*tp_mode*|optim.*block*",
                     "blockwise: a matrix is orthogonalised as a whole here, as with duplicated "
                     "and distributed");
}

static void translate_muon(struct convert *c, const struct megatron *m)
{
    static const char *const older = "--muon-use-nesterov";
    const char *mode = convert_word(c, "--muon-scale-mode", "spectral");
    const char *nesterov = convert_find(c, older) ? older : "--muon-nesterov";
    double extra = 1;
    translate_muon_parts(c, m);
    convert_real(c, "--muon-extra-scale-factor", &extra);
    convert_take(c, "optim.momentum", "--muon-momentum", "0.9");
    convert_settle(c, "optim.nesterov", nesterov, "%s",
                   convert_find(c, nesterov) ? "true" : "false");
    if (convert_find(c, older) && convert_find(c, "--muon-nesterov"))
        convert_drop(c, "--muon-nesterov", "as --muon-use-nesterov");
    convert_take(c, "optim.ns_steps", "--muon-num-ns-steps", NULL);
    convert_take(c, "optim.weight_decay", "--weight-decay", "0.01");
    if (strcmp(mode, "spectral") == 0 && extra == 0.2)
        convert_keep(c, "optim.muon_scale", "--muon-extra-scale-factor", "match_rms_adamw");
    else if (strcmp(mode, "shape_scaling") == 0 && extra == 1)
        convert_keep(c, "optim.muon_scale", "--muon-scale-mode", "original");
    else
        convert_lose(c, "--muon-scale-mode", "optim.muon_scale=*spectral*|optim.muon_*factor",
                     "%s times %g is not here: spectral with --muon-extra-scale-factor 0.2 is "
                     "match_rms_adamw, shape_scaling is original",
                     mode, extra);
}

static void translate_optimizer(struct convert *c, const struct megatron *m)
{
    const char *name = convert_word(c, "--optimizer", "adam");
    bool muon = convert_among(name, "muon|dist_muon");
    if (convert_find(c, "--optimizer"))
        convert_choose(c, "optim.name", "--optimizer",
                       muon                          ? "muon"
                       : convert_among(name, "adam") ? "adamw"
                                                     : name);
    if (convert_among(name, "sgd")) {
        convert_take(c, "optim.momentum", "--sgd-momentum", "0.9");
        convert_take(c, "optim.weight_decay", "--weight-decay", "0.01");
        return;
    }
    if (convert_among(name, "lion")) {
        convert_take(c, "optim.beta1", "--lion-beta1", "0.95");
        convert_take(c, "optim.beta2", "--lion-beta2", "0.98");
        convert_take(c, "optim.weight_decay", "--weight-decay", "0.01");
        return;
    }
    if (muon)
        translate_muon(c, m);
    convert_take(c, "optim.beta1", "--adam-beta1", "0.9");
    convert_take(c, "optim.beta2", "--adam-beta2", "0.999");
    convert_take(c, "optim.epsilon", "--adam-eps", "1e-8");
    convert_take(c, "optim.weight_decay", "--weight-decay", "0.01");
}

static void translate_moments(struct convert *c)
{
    static const char *const keys[] = {"--exp-avg-dtype", "--exp-avg-sq-dtype"};
    bool both = convert_among(convert_word(c, keys[0], "fp32"), "bf16") &&
                convert_among(convert_word(c, keys[1], "fp32"), "bf16");
    if (both)
        convert_keep(c, "optim.moments", keys[0], "bf16");
    for (int i = 0; i < 2 && !both; i++)
        if (!convert_among(convert_word(c, keys[i], "fp32"), "fp32"))
            convert_lose(c, keys[i], "optim.moments=fp16|optim.moments=*8*|optim.moment1*",
                         "moments are fp32, or both bf16");
}

/* ---- precision ------------------------------------------------------------------------------ */

static void translate_precision(struct convert *c)
{
    static const char *const scale[][2] = {{"--loss-scale-window", "numerics.loss_scale_window"},
                                           {"--hysteresis", "numerics.hysteresis"},
                                           {"--min-loss-scale", "numerics.min_loss_scale"},
                                           {"--loss-scale", "numerics.loss_scale"}};
    double initial = 0x1p32;
    if (convert_find(c, "--fp16") && convert_find(c, "--bf16"))
        convert_fail(c, "--fp16", "expected one precision, and --bf16 is there too");
    if (convert_find(c, "--bf16"))
        convert_keep(c, "numerics.precision", "--bf16", "bf16");
    else if (!convert_find(c, "--fp16"))
        convert_assume(c, "numerics.precision", "--bf16", "fp32");
    if (!convert_find(c, "--fp16"))
        return;
    convert_keep(c, "numerics.precision", "--fp16", "fp16");
    for (int i = 0; i < 4; i++)
        convert_take(c, scale[i][1], scale[i][0], NULL);
    if (convert_find(c, "--loss-scale"))
        return;
    if (!convert_real(c, "--initial-loss-scale", &initial))
        convert_assume(c, "numerics.initial_scale_power", "--initial-loss-scale", "32");
    else if (initial < 1 || log2(initial) != floor(log2(initial)))
        convert_lose(c, "--initial-loss-scale", "numerics.initial_scale",
                     "the loss scale begins at a power of two");
    else
        convert_keep(c, "numerics.initial_scale_power", "--initial-loss-scale", "%.0f",
                     log2(initial));
}

static void training(struct convert *c, struct megatron *m)
{
    translate_batch(c, m);
    translate_steps(c, m);
    translate_rate(c, m);
    translate_optimizer(c, m);
    translate_moments(c);
    translate_precision(c);
    if (convert_has(c, "model.seed"))
        convert_take(c, "data.seed", "--seed", NULL);
    if (convert_find(c, "--tensorboard-dir"))
        convert_keep(c, "log.tensorboard", "--tensorboard-dir", "true");
    convert_take(c, "log.hash_every", "--check-weight-hash-across-dp-replicas-interval", NULL);
    if (convert_find(c, "--grad-reduce-in-bf16"))
        convert_reduce(c, "--grad-reduce-in-bf16", "bf16");
}

/* ---- data, checkpoints, evaluation ---------------------------------------------------------- */

/* A prefix; several, which are one stream in the proportion of their sizes, there too; or weights
 * and prefixes in turn. weighed: the key of those, NULL: there is none. */
static void translate_corpus(struct convert *c, const char *theirs, const char *ours,
                             const char *weighed)
{
    const struct convert_entry *entry = convert_find(c, theirs);
    char word[LS_CONFIG_TEXT_BYTES + 1], list[LS_CONFIG_BLEND_BYTES] = ""; /* + 1: too long */
    double weight = 0;
    size_t used = 0;
    int count = 0;
    bool blank = false;
    if (!entry)
        return;
    bool weights = convert_element(entry, 1, word, sizeof word) &&
                   convert_element(entry, 0, word, sizeof word) && convert_number(word, &weight);
    for (; used < sizeof list && convert_element(entry, count, word, sizeof word); count++) {
        blank |= strchr(word, ' ') != NULL;
        if (!weights || count % 2 || weighed)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%s",
                                     !used     ? ""
                                     : weights ? " "
                                               : ",",
                                     word);
    }
    if (used >= sizeof list)
        convert_fail(c, theirs, "more than %zu bytes: put the stores into one folder", sizeof list);
    else if (weights && (count % 2 || (!weighed && count > 2)))
        convert_lose(c, theirs, "data.valid_blend|data.valid: *weight*",
                     count % 2 ? "a weight without its prefix"
                               : "%s is evaluated as one stream, without weights",
                     ours);
    else if (weights && count > 2 && blank)
        convert_fail(c, theirs,
                     "expected prefixes without a blank beside weights: rename the store");
    else
        convert_keep(c, weights && count > 2 ? weighed : ours, theirs, "%s",
                     weights && weighed && count == 2 ? strchr(list, ' ') + 1 : list);
}

/* The share of documents that is trained on there is cut off when tokens are made here. Without an
 * argument Megatron-LM holds some out too, of what --data-path names. told: the command line says
 * what is trained on. */
static void translate_split(struct convert *c, bool told)
{
    bool given = convert_find(c, "--split");
    bool legacy = !given && convert_entries_find(&c->entries, "--data-path");
    const char *split = convert_word(c, "--split", legacy ? "969,30,1" : "");
    const char *held_out = split + strcspn(split, ",/ ");
    if (told && given)
        convert_drop(c, "--split", "data.train is given: all of it is trained on");
    else if (!told && strspn(held_out, "0,./ ") != strlen(held_out))
        convert_lose(c, "--split", "data.split|data.*validation*",
                     "%.40s%s holds documents out, and data.train is trained on as a whole: give "
                     "data.train=STORE data.valid=STORE beside the file, from `lockstep data "
                     "prepare --validation`, or data.train=STORE alone to train on all",
                     split, given ? "" : " (the default there)");
}

static void translate_evaluation(struct convert *c, const struct megatron *m)
{
    int64_t batches = 100, batch = m->batch;
    if (!convert_has(c, "data.valid"))
        return;
    convert_take(c, "eval.every", "--eval-interval", NULL);
    convert_int(c, "--eval-global-batch-size", 1, &batch);
    if (convert_int(c, "--eval-iters", 0, &batches) && batches > 0 && batch > 0)
        convert_keep_int(c, "eval.samples", "--eval-iters", convert_times(batches, batch));
}

static void translate_checkpoints(struct convert *c)
{
    const char *save = convert_word(c, "--save", NULL), *load = convert_word(c, "--load", NULL);
    static const char *const others[] = {"--pretrained-checkpoint", "--no-load-optim",
                                         "--no-load-rng"};
    bool tuned = convert_find(c, "--finetune");
    if (save)
        convert_keep(c, "train.out", "--save", "%s", save);
    else if (load)
        convert_keep(c, "train.out", "--load", "%s", load);
    if (load && !tuned && (!save || strcmp(save, load) == 0))
        convert_keep(c, "train.resume", "--load", "auto");
    else if (load || tuned)
        convert_first_weights(c, load ? "--load" : "--finetune");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (convert_find(c, others[i]))
            convert_first_weights(c, others[i]);
}

static void data(struct convert *c, const struct megatron *m)
{
    const char *vocab = convert_word(c, "--vocab-file", NULL);
    const char *merges = convert_word(c, "--merge-file", NULL);
    bool told = convert_has(c, "data.train") || convert_has(c, "data.blend");
    translate_corpus(c, "--data-path", "data.train", "data.blend");
    translate_corpus(c, "--train-data-path", "data.train", "data.blend");
    translate_corpus(c, "--valid-data-path", "data.valid", NULL);
    translate_split(c, told);
    if (convert_find(c, "--mock-data") && !convert_has(c, "data.train") &&
        !convert_has(c, "data.blend"))
        convert_lose(c, "--mock-data", "data.*mock*|data.*synthetic*|data.train: *random*",
                     "there is always real data: give data.train=PREFIX");
    if (vocab && merges)
        convert_keep(c, "data.tokenizer", "--vocab-file", "%s,%s", vocab, merges);
    else if (!convert_has(c, "model.vocab"))
        convert_advise(c, "model.vocab: set it, or data.tokenizer, if none is recorded beside the "
                          "data");
    translate_evaluation(c, m);
    translate_checkpoints(c);
}

/* Where DeepSpeed runs, some of what its own file says holds, and --clip-grad does not. */
static void translate_deepspeed(struct convert *c)
{
    static const char *const file = "--deepspeed-config";
    if (!convert_find(c, file))
        return;
    convert_drop(c, file, "`lockstep convert deepspeed` reads it");
    convert_advise(c,
                   "optim.clip: it is gradient_clipping of %.200s there, whatever --clip-grad says",
                   convert_word(c, file, ""));
}

static void derive(struct convert *c)
{
    struct megatron m = {0};
    megatron_model(c);
    megatron_layout(c, &m);
    megatron_memory(c, &m);
    training(c, &m);
    data(c, &m);
    translate_deepspeed(c);
}

const struct convert_project convert_megatron = {
    .name = "megatron",
    .title = "Megatron-LM",
    .read = convert_shell_read,
    .rules = convert_megatron_rules,
    .remark = "Initial weights, the order of samples and rounding differ from there in any case.",
    .derive = derive,
    .flags = true,
};
