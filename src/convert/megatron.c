/* Megatron-LM's arguments for the model, the layout and memory: what several say together, and its
 * defaults. Which family they describe: each argument asks for something that layers have, and the
 * families are asked who has it. */
#include "convert/megatron.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- what families have: sets of bits 1 << enum ls_arch -------------------------------------- */

enum { ALL = (1 << LS_ARCHES) - 1 };

/* A step of that name, or one that adds a bias. */
static unsigned with_step(const char *name, bool biased)
{
    unsigned set = 0;
    const char *step;
    bool bias;
    for (int arch = 0; arch < LS_ARCHES; arch++)
        for (int i = 0; (step = ls_family_step((enum ls_arch)arch, i, &bias)); i++)
            if (strcmp(step, name) == 0 && (bias || !biased))
                set |= 1u << arch;
    return set;
}

static unsigned with_activation(enum ls_activation act)
{
    unsigned set = 0;
    for (int arch = 0; arch < LS_ARCHES; arch++)
        if (ls_family_of((enum ls_arch)arch)->acts & 1u << act)
            set |= 1u << arch;
    return set;
}

static unsigned with_key(const char *key)
{
    unsigned set = 0;
    for (int arch = 0; arch < LS_ARCHES; arch++)
        if (ls_family_reads((enum ls_arch)arch, key))
            set |= 1u << arch;
    return set;
}

/* ---- the choice ----------------------------------------------------------------------------- */

struct choice {
    struct convert *c;
    unsigned fits; /* families that have all that was asked for */
};

/* Those that have it stay. If there are none, their argument is lost, as are those that fit. */
static bool ask(struct choice *choice, unsigned having, const char *theirs, const char *what)
{
    char fitting[256] = "";
    if (choice->fits & having) {
        choice->fits &= having;
        return true;
    }
    for (int arch = 0; arch < LS_ARCHES; arch++)
        if (choice->fits & 1u << arch)
            ls_string_add(fitting, sizeof fitting, ", ", "%s", ls_arch_name((enum ls_arch)arch));
    convert_lose(choice->c, theirs, ASKED, "%s: not in a family that fits the other arguments (%s)",
                 what, fitting);
    return false;
}

/* Rotary positions, or learned ones; and what goes with them in every family. */
static const char *ask_positions(struct choice *choice)
{
    static const char *const type = "--position-embedding-type";
    static const char *const others[] = {"--use-rotary-position-embeddings",
                                         "--use-llama2-rotary-position-embeddings"};
    struct convert *c = choice->c;
    const char *positions = convert_word(c, type, "learned_absolute");
    const char *old = others[convert_find(c, others[1]) != NULL];
    bool rotary = convert_find(c, old) || convert_among(positions, "rope|yarn");
    bool rms = convert_among(convert_word(c, "--normalization", "LayerNorm"), "RMSNorm");
    if (!rotary && convert_find(c, "--no-position-embedding"))
        convert_lose(c, "--no-position-embedding", "model.*nope*", "every family has positions");
    else if (!rotary && strcmp(positions, "learned_absolute") != 0)
        convert_lose(c, type, "model.position*|*alibi*|*: *relative*",
                     "%s is not here: positions are learned or rotary", positions);
    choice->fits &= rotary ? with_step("rope", false) : ~with_step("rope", false);
    ask(choice, with_step(rms ? "rmsnorm" : "layernorm", false), "--normalization",
        convert_word(c, "--normalization", "LayerNorm (the default there)"));
    return rotary && !convert_find(c, type) ? old : type;
}

static void ask_activation(struct choice *choice)
{
    static const struct {
        const char *theirs, *what, *ours;
        enum ls_activation act;
    } rows[] = {{"--swiglu", "SwiGLU", "swiglu", LS_ACT_SWIGLU},
                {"--openai-gelu", "GELU", "gelu_tanh", LS_ACT_GELU_TANH},
                {"--onnx-safe", "GELU", "gelu_erf", LS_ACT_GELU_ERF},
                {"--no-bias-gelu-fusion", "GELU", "gelu_erf", LS_ACT_GELU_ERF}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (convert_find(choice->c, rows[i].theirs)) {
            if (ask(choice, with_activation(rows[i].act), rows[i].theirs, rows[i].what))
                convert_keep(choice->c, "model.activation", rows[i].theirs, "%s", rows[i].ours);
            return;
        }
    ask(choice, with_activation(LS_ACT_GELU_TANH), "--swiglu", "it is not given, GELU");
}

static void ask_biases(struct choice *choice)
{
    static const char *const off = "--disable-bias-linear";
    struct convert *c = choice->c;
    unsigned rows = with_step("row-parallel linear", true);
    unsigned columns = with_step("column-parallel linear", true) & ~rows;
    if (!convert_find(c, off)) {
        ask(choice, rows, off, "it is not given, biases of linear layers");
        return;
    }
    if (choice->fits & ~rows)
        choice->fits &= ~rows;
    else
        convert_lose(c, off, "model.*norm*bias*",
                     "model.bias=false leaves out the biases of LayerNorm too, which stay there");
    if (convert_find(c, "--add-qkv-bias"))
        ask(choice, columns, "--add-qkv-bias", "biases of queries, keys and values alone");
    else
        convert_keep(c, "model.bias", off, "false");
    if (!convert_find(c, "--add-qkv-bias") && choice->fits & ~columns)
        choice->fits &= ~columns;
}

/* All blocks but the last of every so many; there, a list of blocks too. */
static void keep_layers(struct convert *c, const char *key, const char *theirs)
{
    const char *every = convert_word(c, theirs, "");
    char *end;
    long period = strtol(every, &end, 10);
    bool counts = !*end && period > 0 && period <= INT_MAX;
    const char *word = ls_word_of(ls_config_key_of(key)->words, counts ? (int)period : -1);
    if (counts && strcmp(word, "?") != 0)
        convert_keep(c, key, theirs, "%s", word);
    else
        convert_choose(c, key, theirs, every);
}

/* "(127,0)" are 128 tokens, the query's own included. */
static void ask_window(struct choice *choice)
{
    static const char *const size = "--window-size", *const skip = "--window-attn-skip-freq";
    static const long long most = 1LL << 53; /* as of other whole numbers */
    struct convert *c = choice->c;
    const char *text = convert_word(c, size, "");
    long long before, behind;
    if (!*text)
        return;
    text += *text == '(';
    if (sscanf(text, "%lld , %lld", &before, &behind) != 2 || before < -1 || before > most ||
        behind > 0) {
        convert_fail(c, size, "expected (TOKENS,0): what a query sees before itself");
    } else if (before == -1) {
        convert_drop(c, size, "all tokens before, as here");
    } else if (ask(choice, with_key("window"), size, "a window of attention")) {
        convert_keep_int(c, "model.window", size, before + 1);
        if (!convert_find(c, skip) ||
            !ask(choice, with_key("window_layers"), skip, "a window in some blocks"))
            return;
        keep_layers(c, "model.window_layers", skip);
    }
}

/* Blocks without positions. */
static void ask_turned(struct choice *choice)
{
    static const char *const skip = "--no-rope-freq";
    if (convert_find(choice->c, skip) &&
        ask(choice, with_key("rope_layers"), skip, "blocks without positions"))
        keep_layers(choice->c, "model.rope_layers", skip);
}

/* model.arch, with model.activation, model.bias and model.window. Whether positions are rotary. */
static bool megatron_family(struct convert *c)
{
    /* Nothing in Megatron asks for these. */
    unsigned strange = with_step("scale", false) | with_step("norm of q and k", false) |
                       with_step("rmsnorm of 1 + weight", false);
    unsigned normed = with_step("norm of heads", false);
    struct choice choice = {c, ALL & ~strange};
    int arch = 0;
    const char *from = ask_positions(&choice);
    ask_activation(&choice);
    ask_biases(&choice);
    if (convert_find(c, "--qk-layernorm"))
        ask(&choice, normed, "--qk-layernorm", "norms of queries and keys");
    else if (choice.fits & ~normed)
        choice.fits &= ~normed;
    ask_window(&choice);
    ask_turned(&choice);
    while (!(choice.fits & 1u << arch))
        arch++;
    convert_settle(c, "model.arch", from, "%s", ls_arch_name((enum ls_arch)arch));
    return ls_family_reads((enum ls_arch)arch, "rope_theta");
}

/* ---- the model ------------------------------------------------------------------------------ */

/* Four times the width, or with SwiGLU as many parameters as that. */
static void translate_ffn(struct convert *c)
{
    int64_t hidden, ffn;
    bool given = convert_take_int(c, "model.ffn", "--ffn-hidden-size", &ffn) ||
                 convert_take_int(c, "model.ffn", "--intermediate-size", &ffn);
    if (!given && convert_find(c, "--swiglu") && convert_int(c, "--hidden-size", 1, &hidden))
        convert_assume(c, "model.ffn", "--ffn-hidden-size", "%lld",
                       (long long)(8 * hidden / 3 / 64 * 64));
}

static void translate_heads(struct convert *c)
{
    int64_t groups = 1;
    if (!convert_find(c, "--group-query-attention"))
        return;
    convert_int(c, "--num-query-groups", 1, &groups);
    convert_keep_int(c, "model.kv_heads",
                     convert_find(c, "--num-query-groups") ? "--num-query-groups"
                                                           : "--group-query-attention",
                     groups);
}

/* The first of the two that is given, else the second. */
static const char *either(const struct convert *c, const char *const keys[2])
{
    return keys[!convert_find(c, keys[0])];
}

/* As in the paper: queries and keys count 0.1 mscale ln(factor) + 1 times, over the same of
 * mscale-all-dim. */
static void translate_mscale(struct convert *c, double factor)
{
    static const char *const keys[2][2] = {{"--yarn-mscale", "--mscale"},
                                           {"--yarn-mscale-all-dim", "--mscale-all-dim"}};
    double value[2] = {1, 0}; /* the defaults there */
    const char *from = NULL;
    for (int i = 0; i < 2; i++) {
        const char *key = either(c, keys[i]);
        if (!convert_real(c, key, &value[i]))
            continue;
        if (factor <= 1)
            convert_drop(c, key, "positions are not scaled");
        else if (from)
            convert_drop(c, key, "model.rope_attention_factor is of both");
        from = from ? from : key;
    }
    if (from && factor > 1)
        convert_keep(c, "model.rope_attention_factor", from, "%.9g",
                     (0.1 * value[0] * log(factor) + 1) / (0.1 * value[1] * log(factor) + 1));
}

static void translate_yarn(struct convert *c)
{
    static const char *const factors[2] = {"--yarn-rotary-scaling-factor",
                                           "--rotary-scaling-factor"};
    double factor = 1;
    convert_keep(c, "model.rope_scaling", "--position-embedding-type", "yarn");
    convert_take(c, "model.rope_factor", either(c, factors), NULL);
    convert_real(c, either(c, factors), &factor);
    convert_take(c, "model.rope_original_context", "--yarn-original-max-position-embeddings",
                 factor > 1 ? "4096" : NULL);
    convert_take(c, "model.rope_beta_fast", "--yarn-beta-fast", NULL);
    convert_take(c, "model.rope_beta_slow", "--yarn-beta-slow", NULL);
    translate_mscale(c, factor);
}

static void translate_rope(struct convert *c)
{
    static const char *const linear = "--rotary-seq-len-interpolation-factor";
    convert_take(c, "model.rope_theta", "--rotary-base", NULL);
    convert_take(c, "model.rope_theta", "--rotary-position-embeddings-theta", NULL);
    if (convert_among(convert_word(c, "--position-embedding-type", ""), "yarn"))
        translate_yarn(c);
    if (convert_find(c, linear)) {
        convert_keep(c, "model.rope_scaling", linear, "linear");
        convert_take(c, "model.rope_factor", linear, NULL);
    }
    if (!convert_find(c, "--use-rope-scaling"))
        return;
    if (!convert_find(c, "--rope-scaling-factor"))
        convert_keep(c, "model.rope_factor", "--use-rope-scaling", "8");
    convert_take(c, "model.rope_factor", "--rope-scaling-factor", NULL);
    convert_keep(c, "model.rope_original_context", "--use-rope-scaling", "8192");
}

/* Samples are a stream of documents, unless attention, positions and the loss end with each. */
static void translate_documents(struct convert *c, bool rotary)
{
    static const char *const keys[] = {"--reset-attention-mask", "--reset-position-ids",
                                       "--eod-mask-loss"};
    bool attention = convert_find(c, keys[0]);
    if (attention && (rotary || convert_find(c, keys[1]))) { /* rotary positions are differences */
        convert_documents(c, keys[0]);
        return;
    }
    for (int i = 0; i < 3; i++)
        if (convert_find(c, keys[i]))
            convert_lose(c, keys[i], "data.*position*|data.*attention*|data.*eod*",
                         "data.packing=documents does it with the other two: give %s and %s",
                         keys[0], keys[1]);
}

static void translate_context(struct convert *c)
{
    static const char *const lengths[] = {"--seq-length", "--encoder-seq-length"};
    int64_t length = 0, context;
    for (int i = 0; i < 2; i++)
        convert_take_int(c, "data.sequence", lengths[i], &length);
    context = length;
    convert_int(c, "--max-position-embeddings", 1, &context);
    if (context)
        convert_settle(c, "model.context", "--max-position-embeddings", "%lld", (long long)context);
}

/* Dropout is on there unless it is turned off, and also falls on attention's probabilities. */
static void translate_dropout(struct convert *c)
{
    double attention = 0.1;
    convert_take(c, "model.dropout", "--hidden-dropout", "0.1");
    convert_real(c, "--attention-dropout", &attention);
    if (attention != 0)
        convert_lose(c, "--attention-dropout", "model.att*dropout*",
                     "%g%s: attention's probabilities are not dropped; write 0", attention,
                     convert_find(c, "--attention-dropout") ? "" : " (the default there)");
}

static void translate_vocabulary(struct convert *c)
{
    static const char *const keys[] = {"--padded-vocab-size", "--pad-vocab-size-to"};
    int64_t padded;
    for (int i = 0; i < 2; i++)
        if (convert_take_int(c, "model.vocab", keys[i], &padded))
            convert_keep(c, "model.vocab_multiple", keys[i], "1");
}

void megatron_model(struct convert *c)
{
    static const char *const untied = "--untie-embeddings-and-output-weights";
    bool rotary = megatron_family(c);
    translate_ffn(c);
    translate_heads(c);
    if (rotary)
        translate_rope(c);
    translate_documents(c, rotary);
    translate_context(c);
    translate_dropout(c);
    translate_vocabulary(c);
    if (convert_find(c, untied))
        convert_keep(c, "model.tied", untied, "false");
    else
        convert_assume(c, "model.tied", untied, "true");
}

/* ---- the layout ----------------------------------------------------------------------------- */

static void translate_stages(struct convert *c, struct megatron *m)
{
    static const char *const per_stage = "--num-layers-per-virtual-pipeline-stage";
    static const char *const stages = "--num-virtual-stages-per-pipeline-rank";
    int64_t layers = 0, chunks = 0;
    const char *from = convert_find(c, per_stage) ? per_stage : stages;
    if (convert_int(c, per_stage, 1, &layers)) {
        if (!m->layers || m->layers % convert_times(m->pp, layers))
            convert_fail(c, per_stage,
                         "expected a divisor of --num-layers over --pipeline-model-parallel-size");
        else
            chunks = m->layers / m->pp / layers;
    } else {
        convert_int(c, stages, 1, &chunks);
    }
    if (chunks > 1) {
        convert_keep(c, "parallel.schedule", from, "interleaved");
        convert_keep_int(c, "parallel.chunks", from, chunks);
    }
}

/* The world of a launcher, where both of its numbers are there. */
static int64_t launched(struct convert *c)
{
    const struct convert_entry *nodes = convert_find(c, "--nnodes"),
                               *local = convert_find(c, "--nproc-per-node");
    double a = 1, b;
    if (!nodes && convert_entries_find(&c->entries, "--nnodes"))
        return 0;
    if (!local || !convert_number(local->text, &b) || (nodes && !convert_number(nodes->text, &a)) ||
        a < 1 || b < 1 || a * b > 1e9)
        return 0;
    return (int64_t)(a * b);
}

static void translate_data_ranks(struct convert *c, struct megatron *m)
{
    int64_t instances = 1, world = c->options->ranks ? c->options->ranks : launched(c);
    int64_t model = convert_times(convert_times(m->tp, m->pp), m->cp);
    const char *from = c->options->ranks ? "--ranks" : "--nproc-per-node";
    if (!world || (!c->options->ranks && world % model)) {
        convert_advise(c, "parallel.dp: how many ranks there are is not among the arguments; give "
                          "--ranks N, or set it");
        return;
    }
    if (world % model) {
        convert_fail(c, from,
                     "%lld ranks cannot be shared: expected a multiple of tensor x pipeline x "
                     "context parallel = %lld",
                     (long long)world, (long long)model);
        return;
    }
    m->dp = world / model;
    if (convert_int(c, "--num-distributed-optimizer-instances", 1, &instances) && instances > 1) {
        const char *key = "--num-distributed-optimizer-instances";
        if (m->dp % instances)
            convert_fail(c, key, "expected a divisor of the %lld data-parallel ranks",
                         (long long)m->dp);
        convert_keep_int(c, "parallel.dp_replicate", key, instances);
        convert_keep_int(c, "parallel.dp_shard", key, m->dp / instances);
    } else {
        convert_keep_int(c, "parallel.dp", from, m->dp);
    }
}

static void translate_zero(struct convert *c)
{
    static const char *const strategy = "--data-parallel-sharding-strategy";
    static const char *const words[] = {"no_shard", "optim", "optim_grads", "optim_grads_params"};
    double elements;
    if (convert_find(c, "--use-megatron-fsdp")) {
        const char *word = convert_word(c, strategy, "optim_grads_params");
        int stage = 0;
        while (stage < 4 && strcmp(words[stage], word) != 0)
            stage++;
        if (stage == 4)
            convert_fail(c, strategy,
                         "expected no_shard, optim, optim_grads or optim_grads_params");
        convert_keep(c, "parallel.zero",
                     convert_find(c, strategy) ? strategy : "--use-megatron-fsdp", "%d", stage);
    } else if (convert_find(c, "--use-torch-fsdp2")) {
        convert_keep(c, "parallel.zero", "--use-torch-fsdp2", "3");
    } else if (convert_find(c, "--use-distributed-optimizer")) {
        convert_keep(c, "parallel.zero", "--use-distributed-optimizer", "1");
    }
    if (convert_find(c, "--torch-fsdp2-no-reshard-after-forward"))
        convert_keep(c, "parallel.reshard_after_forward", "--torch-fsdp2-no-reshard-after-forward",
                     "false");
    if (convert_real(c, "--ddp-bucket-size", &elements))
        convert_bucket(c, "--ddp-bucket-size", elements);
}

static void translate_communication(struct convert *c)
{
    const struct convert_entry *kind = convert_find(c, "--cp-comm-type");
    char first[64];
    double minutes;
    if (kind && convert_element(kind, 0, first, sizeof first)) {
        bool ring = convert_among(first, "p2p|a2a+p2p");
        if (convert_among(first, "p2p|all_gather|a2a+p2p|a2a"))
            convert_keep(c, "parallel.cp_method", "--cp-comm-type", "%s",
                         ring ? "ring" : "allgather");
        else
            convert_fail(c, "--cp-comm-type", "expected p2p, all_gather, a2a or a2a+p2p");
    }
    if (convert_real(c, "--distributed-timeout-minutes", &minutes))
        convert_keep(c, "comm.timeout_s", "--distributed-timeout-minutes", "%g", 60 * minutes);
    if (convert_find(c, "--tp-comm-overlap"))
        convert_keep(c, "parallel.tp_overlap", "--tp-comm-overlap", "4");
}

void megatron_layout(struct convert *c, struct megatron *m)
{
    static const char *const tensor[] = {"--model-parallel-size", "--tensor-model-parallel-size"};
    static const char *const context[] = {"--ds-sequence-parallel-size", "--context-parallel-size"};
    m->tp = m->pp = m->cp = 1;
    convert_int(c, "--num-layers", 1, &m->layers);
    for (int i = 0; i < 2; i++)
        if (convert_int(c, tensor[i], 1, &m->tp))
            convert_tp(c, tensor[i], m->tp);
    if (convert_find(c, "--sequence-parallel") && m->tp > 1)
        convert_keep(c, "parallel.sp", "--sequence-parallel", "true");
    convert_take_int(c, "parallel.pp", "--pipeline-model-parallel-size", &m->pp);
    for (int i = 0; i < 2; i++)
        if (convert_int(c, context[i], 1, &m->cp))
            convert_cp(c, context[i], m->cp);
    if (convert_find(c, "--enable-zbh1-pipeline") && m->pp > 1)
        convert_keep(c, "parallel.schedule", "--enable-zbh1-pipeline", "zb-h1");
    translate_stages(c, m);
    translate_data_ranks(c, m);
    translate_zero(c);
    translate_communication(c);
}

/* ---- memory --------------------------------------------------------------------------------- */

/* Full recomputation: of every block, of each group of K (uniform), of the first K (block). */
static void translate_full(struct convert *c, const struct megatron *m, const char *from,
                           const char *method, int64_t layers)
{
    if (method && strcmp(method, "block") == 0 && m->pp == 1 && layers > 0)
        convert_keep(c, "memory.recompute", from, "0-%lld", (long long)layers - 1);
    else if (method && strcmp(method, "uniform") == 0 && layers > 1)
        convert_keep(c, "memory.recompute", from, "every:%lld", (long long)layers);
    else
        convert_keep(c, "memory.recompute", from, "full");
}

static void translate_recomputation(struct convert *c, const struct megatron *m)
{
    const char *how = convert_word(c, "--recompute-granularity", NULL);
    const char *old = convert_word(c, "--activations-checkpoint-method", NULL);
    int64_t layers = 0;
    if (!convert_int(c, "--recompute-num-layers", 1, &layers))
        convert_int(c, "--activations-checkpoint-num-layers", 1, &layers);
    if (how && strcmp(how, "full") == 0)
        translate_full(c, m, "--recompute-granularity", convert_word(c, "--recompute-method", NULL),
                       layers);
    else if (how && strcmp(how, "selective") == 0)
        convert_keep(c, "memory.recompute", "--recompute-granularity", "selective");
    else if (how)
        convert_fail(c, "--recompute-granularity", "expected full or selective");
    else if (convert_find(c, "--recompute-activations"))
        convert_keep(c, "memory.recompute", "--recompute-activations", "selective");
    else if (old)
        translate_full(c, m, "--activations-checkpoint-method", old, layers);
    else if (convert_find(c, "--checkpoint-activations"))
        convert_keep(c, "memory.recompute", "--checkpoint-activations", "full");
}

void megatron_memory(struct convert *c, const struct megatron *m)
{
    int64_t offloaded = 0;
    translate_recomputation(c, m);
    if (convert_find(c, "--optimizer-cpu-offload")) {
        convert_keep(c, "memory.offload.optimizer", "--optimizer-cpu-offload", "host");
        convert_take(c, "memory.offload.optimizer_ratio", "--optimizer-offload-fraction", NULL);
    }
    if (convert_int(c, "--cpu-offloading-num-layers", 0, &offloaded) && offloaded > 0) {
        convert_keep(c, "memory.offload.activations", "--cpu-offloading-num-layers", "host");
        if (m->layers > offloaded)
            convert_keep(c, "memory.offload.activations_ratio", "--cpu-offloading-num-layers",
                         "%.4g", (double)offloaded / (double)m->layers);
    }
    if (convert_find(c, "--cpu-optimizer"))
        convert_keep(c, "memory.offload.optimizer", "--cpu-optimizer", "host");
    if (convert_find(c, "--checkpoint-in-cpu"))
        convert_keep(c, "memory.offload.activations", "--checkpoint-in-cpu", "host");
    if (convert_find(c, "--fine-grained-activation-offloading"))
        convert_keep(c, "memory.offload.activations", "--fine-grained-activation-offloading",
                     "host");
}
