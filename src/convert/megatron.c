/* Megatron-LM's arguments for the model, the layout and memory: what several say together, and its
 * defaults. */
#include "megatron.h"

#include <string.h>

/* ---- the model ------------------------------------------------------------------------------ */

/* Rotary positions make a Llama; what else a family is must fit. */
static bool choose_family(struct convert *c)
{
    const char *positions = convert_word(c, "--position-embedding-type", "learned_absolute");
    bool rope =
        convert_find(c, "--use-rotary-position-embeddings") || strcmp(positions, "rope") == 0;
    bool rms = strcmp(convert_word(c, "--normalization", "LayerNorm"), "RMSNorm") == 0;
    const char *from = rope && !convert_find(c, "--position-embedding-type")
                           ? "--use-rotary-position-embeddings"
                           : "--position-embedding-type";
    if (!rope && strcmp(positions, "learned_absolute") != 0)
        convert_lose(c, "--position-embedding-type",
                     "%s is not here: gpt2 has learned positions, llama rotary ones", positions);
    if (convert_find(c, from))
        convert_keep(c, "model.arch", from, "%s", rope ? "llama" : "gpt2");
    else
        convert_assume(c, "model.arch", from, "gpt2");
    if (rope != rms)
        convert_lose(c, "--normalization", "%s: model.arch = %s has %s",
                     convert_word(c, "--normalization", "LayerNorm (the default there)"),
                     rope ? "llama" : "gpt2", rope ? "RMSNorm" : "LayerNorm");
    return rope;
}

static void translate_activation(struct convert *c, bool llama)
{
    bool swiglu = convert_find(c, "--swiglu");
    if (llama && !swiglu)
        convert_lose(c, "--swiglu", "it is not given: model.arch = llama has SwiGLU");
    if (!llama && swiglu)
        convert_lose(c, "--swiglu", "model.arch = gpt2 has GELU");
    if (swiglu && llama)
        convert_keep(c, "model.activation", "--swiglu", "swiglu");
    if (!llama && convert_find(c, "--openai-gelu"))
        convert_keep(c, "model.activation", "--openai-gelu", "gelu_tanh");
    else if (!llama && convert_find(c, "--no-bias-gelu-fusion"))
        convert_keep(c, "model.activation", "--no-bias-gelu-fusion", "gelu_erf");
    if (convert_find(c, "--openai-gelu") && llama)
        convert_lose(c, "--openai-gelu", "model.arch = llama has SwiGLU");
}

static void translate_bias(struct convert *c, bool llama)
{
    if (convert_find(c, "--disable-bias-linear"))
        convert_keep(c, "model.bias", "--disable-bias-linear", "false");
    else if (llama)
        convert_lose(c, "--disable-bias-linear",
                     "it is not given: model.arch = llama has no biases");
}

/* Four times the width, or with SwiGLU as many parameters as that. */
static void translate_ffn(struct convert *c)
{
    int64_t hidden, ffn;
    if (convert_int(c, "--ffn-hidden-size", 1, &ffn))
        convert_keep(c, "model.ffn", "--ffn-hidden-size", "%lld", (long long)ffn);
    else if (convert_find(c, "--swiglu") && convert_int(c, "--hidden-size", 1, &hidden))
        convert_assume(c, "model.ffn", "--ffn-hidden-size", "%lld",
                       (long long)(8 * hidden / 3 / 64 * 64));
}

static void translate_heads(struct convert *c)
{
    int64_t groups = 1;
    if (!convert_find(c, "--group-query-attention"))
        return;
    convert_int(c, "--num-query-groups", 1, &groups);
    convert_keep(c, "model.kv_heads",
                 convert_find(c, "--num-query-groups") ? "--num-query-groups"
                                                       : "--group-query-attention",
                 "%lld", (long long)groups);
}

static void translate_rope(struct convert *c, bool llama)
{
    double factor = 8;
    if (!llama)
        return;
    if (convert_find(c, "--rotary-base"))
        convert_keep(c, "model.rope_theta", "--rotary-base", "%s",
                     convert_word(c, "--rotary-base", ""));
    if (!convert_find(c, "--use-rope-scaling"))
        return;
    convert_real(c, "--rope-scaling-factor", &factor);
    convert_keep(c, "model.rope_factor",
                 convert_find(c, "--rope-scaling-factor") ? "--rope-scaling-factor"
                                                          : "--use-rope-scaling",
                 "%g", factor);
    convert_keep(c, "model.rope_original_context", "--use-rope-scaling", "8192");
}

static void translate_context(struct convert *c)
{
    static const char *const lengths[] = {"--seq-length", "--encoder-seq-length"};
    int64_t length = 0, context = 0;
    for (int i = 0; i < 2; i++)
        if (convert_int(c, lengths[i], 1, &length))
            convert_keep(c, "data.sequence", lengths[i], "%lld", (long long)length);
    if (convert_int(c, "--max-position-embeddings", 1, &context))
        convert_keep(c, "model.context", "--max-position-embeddings", "%lld", (long long)context);
    else if (length)
        convert_assume(c, "model.context", "--max-position-embeddings", "%lld", (long long)length);
}

/* Dropout is on there unless it is turned off, and also falls on attention's probabilities. */
static void translate_dropout(struct convert *c)
{
    double attention = 0.1;
    if (convert_find(c, "--hidden-dropout"))
        convert_keep(c, "model.dropout", "--hidden-dropout", "%s",
                     convert_word(c, "--hidden-dropout", ""));
    else
        convert_assume(c, "model.dropout", "--hidden-dropout", "0.1");
    convert_real(c, "--attention-dropout", &attention);
    if (attention != 0)
        convert_lose(c, "--attention-dropout",
                     "%g%s: attention's probabilities are not dropped; write 0", attention,
                     convert_find(c, "--attention-dropout") ? "" : " (the default there)");
}

static void translate_vocabulary(struct convert *c)
{
    int64_t padded;
    if (convert_int(c, "--padded-vocab-size", 1, &padded)) {
        convert_keep(c, "model.vocab", "--padded-vocab-size", "%lld", (long long)padded);
        convert_keep(c, "model.vocab_multiple", "--padded-vocab-size", "1");
    }
}

void megatron_model(struct convert *c)
{
    bool llama = choose_family(c);
    translate_activation(c, llama);
    translate_bias(c, llama);
    translate_ffn(c);
    translate_heads(c);
    translate_rope(c, llama);
    translate_context(c);
    translate_dropout(c);
    translate_vocabulary(c);
    if (convert_find(c, "--untie-embeddings-and-output-weights"))
        convert_keep(c, "model.tied", "--untie-embeddings-and-output-weights", "false");
    else
        convert_assume(c, "model.tied", "--untie-embeddings-and-output-weights", "true");
}

/* ---- the layout ----------------------------------------------------------------------------- */

static void translate_stages(struct convert *c, struct megatron *m)
{
    static const char *const per_stage = "--num-layers-per-virtual-pipeline-stage";
    static const char *const stages = "--num-virtual-stages-per-pipeline-rank";
    static const char *const ends[] = {"--decoder-first-pipeline-num-layers",
                                       "--decoder-last-pipeline-num-layers"};
    int64_t layers = 0, chunks = 0;
    const char *from = convert_find(c, per_stage) ? per_stage : stages;
    if (convert_int(c, per_stage, 1, &layers)) {
        if (!m->layers || m->layers % convert_times(m->pp, layers))
            convert_fail(c, per_stage,
                         "expected a divisor of --num-layers over "
                         "--pipeline-model-parallel-size");
        else
            chunks = m->layers / m->pp / layers;
    } else {
        convert_int(c, stages, 1, &chunks);
    }
    if (chunks > 1) {
        convert_keep(c, "parallel.schedule", from, "interleaved");
        convert_keep(c, "parallel.chunks", from, "%lld", (long long)chunks);
    }
    for (int i = 0; i < 2; i++)
        if (convert_find(c, ends[i]))
            convert_drop(c, ends[i],
                         "stages are balanced by cost; parallel.split says another cut");
}

/* The world of a launcher, where both of its numbers are there. */
static int64_t launched(struct convert *c)
{
    const struct convert_entry *nodes = convert_find(c, "--nnodes"),
                               *local = convert_find(c, "--nproc-per-node");
    double a = 1, b;
    if (!nodes && convert_is_there(c, "--nnodes"))
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
        convert_keep(c, "parallel.dp_replicate", key, "%lld", (long long)instances);
        convert_keep(c, "parallel.dp_shard", key, "%lld", (long long)(m->dp / instances));
    } else {
        convert_keep(c, "parallel.dp", from, "%lld", (long long)m->dp);
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
    if (convert_find(c, "--distributed-backend"))
        convert_drop(c, "--distributed-backend",
                     "comm.transport is chosen by how the program is started");
}

void megatron_layout(struct convert *c, struct megatron *m)
{
    static const char *const tensor[] = {"--model-parallel-size", "--tensor-model-parallel-size"};
    m->tp = m->pp = m->cp = 1;
    convert_int(c, "--num-layers", 1, &m->layers);
    for (int i = 0; i < 2; i++)
        if (convert_int(c, tensor[i], 1, &m->tp))
            convert_tp(c, tensor[i], m->tp);
    if (convert_find(c, "--sequence-parallel") && m->tp > 1)
        convert_keep(c, "parallel.sp", "--sequence-parallel", "true");
    else if (convert_find(c, "--sequence-parallel"))
        convert_drop(c, "--sequence-parallel", "there is one tensor-parallel rank, as there");
    if (convert_int(c, "--pipeline-model-parallel-size", 1, &m->pp))
        convert_keep(c, "parallel.pp", "--pipeline-model-parallel-size", "%lld", (long long)m->pp);
    if (convert_int(c, "--context-parallel-size", 1, &m->cp))
        convert_cp(c, "--context-parallel-size", m->cp);
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
        if (convert_find(c, "--optimizer-offload-fraction"))
            convert_keep(c, "memory.offload.optimizer_ratio", "--optimizer-offload-fraction", "%s",
                         convert_word(c, "--optimizer-offload-fraction", ""));
    }
    if (convert_int(c, "--cpu-offloading-num-layers", 0, &offloaded) && offloaded > 0) {
        convert_keep(c, "memory.offload.activations", "--cpu-offloading-num-layers", "host");
        if (m->layers > offloaded)
            convert_keep(c, "memory.offload.activations_ratio", "--cpu-offloading-num-layers",
                         "%.4g", (double)offloaded / (double)m->layers);
    }
    if (convert_find(c, "--fine-grained-activation-offloading"))
        convert_keep(c, "memory.offload.activations", "--fine-grained-activation-offloading",
                     "host");
}
