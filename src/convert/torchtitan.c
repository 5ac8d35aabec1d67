/* torchtitan's configuration: what several of its keys say together, and its defaults. */
#include "convert/convert_private.h"

#include <stdlib.h>
#include <string.h>

struct titan {
    int64_t tp, pp, cp, replicate, shard, dp; /* dp = replicate x shard; 0 = unknown */
    int64_t sequence, layers;                 /* 0 = unknown */
};

/* The first of the keys that is given; NULL ends them. */
static const char *given(const struct convert *c, const char *const *keys)
{
    for (; *keys; keys++)
        if (convert_find(c, *keys))
            return *keys;
    return NULL;
}
#define GIVEN(...) given(c, (const char *const[]){__VA_ARGS__, NULL})

/* ---- the model ------------------------------------------------------------------------------ */

static const char hf_model[] = "hf_transformers.model";
/* What torchtitan calls families, if that is not our name, and what our presets of it begin with.
 * Its llama of 2024 is Llama 2. */
static const struct family {
    const char *names, *arch, *presets;
} families[] = {
    {"llama3|llama3_ft|llama3_simple_fsdp", "llama", "llama"},
    {"llama|llama2", "llama", "llama2"},
};
/* Shapes of its own, by the names of presets. */
static const struct ls_preset shapes[] = {
    {"llama-debugmodel", "layers=6 channels=256 heads=16 ffn=768 rope_theta=500000 rope_factor=8 "
                         "rope_original_context=8192"},
    {"qwen3-debugmodel", "layers=8 channels=256 heads=16 kv_heads=8 head_dim=128 ffn=3072 "
                         "rope_theta=1000000 norm_epsilon=1e-6 tied=true"},
    {0}};
/* Models, or flavors, that are none of ours, and what they have. */
static const struct stranger {
    const char *names, *why, *lacks;
} strangers[] = {
    {"llama4|deepseek_v2|deepseek_v3|deepseek_v4|gpt_oss|30B-A3B|235B-A22B|debugmodel_moe",
     EXPERTS},
    {"flux|llama3_siglip2|llama3-siglip2|vlm|qwen3_vl", "it reads or makes pictures",
     "*image*|*vision*|*pixel*"},
    {"qwen3_5", "its attention is linear in part", "*: *delta*|*linear_attention*"},
};
/* Behind a flavor: attention stays within a document. */
static const char *const masked[] = {"_flex_attn", "_varlen_attn", "_flex", "_varlen"};

/* The preset of that name, whatever the case, NULL for none. */
static const struct ls_preset *preset_of(const struct ls_preset *presets, const char *name)
{
    for (; presets->name; presets++)
        if (convert_among(name, presets->name))
            return presets;
    return NULL;
}

/* *presets: what the names of presets begin with. */
static bool family_of(const char *name, enum ls_arch *arch, const char **presets)
{
    *presets = name;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (convert_among(name, families[i].names)) {
            *presets = families[i].presets;
            name = families[i].arch;
            break;
        }
    for (int i = 0; i < LS_ARCHES; i++)
        if (strcmp(ls_arch_name((enum ls_arch)i), name) == 0) {
            *arch = (enum ls_arch)i;
            return true;
        }
    return false;
}

/* Why there is no model of that name, or of that flavor; known: the others. */
static void refuse(struct convert *c, const char *theirs, const char *name, const char *known)
{
    for (size_t i = 0; i < sizeof strangers / sizeof *strangers; i++)
        if (convert_among(name, strangers[i].names)) {
            convert_lose(c, theirs, strangers[i].lacks,
                         "there is no model %s here: %s; give --model PRESET if one is the same",
                         name, strangers[i].why);
            return;
        }
    convert_lose(c, theirs, ASKED,
                 "there is no model %s here: expected one of %s; or give --model PRESET, or "
                 "model.layers, model.channels and the others",
                 name, known);
}

static void refuse_family(struct convert *c, const char *theirs, const char *name)
{
    char known[256] = "llama3";
    for (int i = 0; i < LS_ARCHES; i++)
        ls_string_add(known, sizeof known, ", ", "%s", ls_arch_name((enum ls_arch)i));
    refuse(c, theirs, name, known);
}

static void refuse_flavor(struct convert *c, enum ls_arch arch, const char *prefix,
                          const char *flavor)
{
    char known[512] = "", debug[64];
    snprintf(debug, sizeof debug, "%.40s-debugmodel", prefix);
    if (preset_of(shapes, debug))
        ls_string_add(known, sizeof known, ", ", "debugmodel");
    for (const struct ls_preset *preset = ls_family_of(arch)->presets; preset->name; preset++) {
        size_t length = strlen(prefix);
        if (strncmp(preset->name, prefix, length) == 0 && preset->name[length] == '-')
            ls_string_add(known, sizeof known, ", ", "%s", preset->name + length + 1);
    }
    refuse(c, "model.flavor", flavor, known);
}

/* Llama 3 scales positions there since October 2025; until June of that year batches had another
 * name, and until April the model of tests 8 layers. */
static void tell_age(struct convert *c, const struct ls_preset *shape)
{
    static const char *const older = "training.batch_size";
    if (!strstr(shape->keys, "rope_factor") || convert_find(c, "training.max_context_length"))
        return;
    if (convert_find(c, older))
        convert_keep(c, "model.rope_factor", older, "1");
    convert_advise(c, "model.rope_factor: Llama 3 scales positions there since October 2025%s",
                   convert_find(c, older) ? ", and the file is older (training.batch_size)"
                                          : "; for a run of before, give model.rope_factor=1");
    if (convert_find(c, older) && strstr(shape->name, "debugmodel"))
        convert_advise(c, "model.layers: the debugmodel had 8 until April 2025");
}

/* The keys of a shape, one by one. */
static void keep_shape(struct convert *c, enum ls_arch arch, const struct ls_preset *shape)
{
    char keys[512], *rest;
    snprintf(keys, sizeof keys, "%s", shape->keys);
    convert_keep(c, "model.arch", "model.flavor", "%s", ls_arch_name(arch));
    for (char *key = strtok_r(keys, " ", &rest); key; key = strtok_r(NULL, " ", &rest)) {
        char ours[64];
        size_t length = strcspn(key, "=");
        snprintf(ours, sizeof ours, "model.%.*s", (int)length, key);
        convert_keep(c, ours, "model.flavor", "%s", key + length + 1);
    }
    if (!convert_has(c, "model.vocab"))
        convert_keep(c, "model.vocab", "model.flavor", "2048");
}

/* The flavor without what masks documents: "8B" of "8B_flex". */
static bool is_masked(const char *flavor, char *shape, size_t bytes)
{
    size_t length = strlen(flavor), end = 0;
    for (size_t i = 0; i < sizeof masked / sizeof *masked && !end; i++)
        if (length > strlen(masked[i]) &&
            strcmp(flavor + length - strlen(masked[i]), masked[i]) == 0)
            end = strlen(masked[i]);
    snprintf(shape, bytes, "%.*s", (int)ls_min((int64_t)(length - end), 63), flavor);
    return end > 0;
}

static void translate_flavor(struct convert *c, struct titan *t, enum ls_arch arch,
                             const char *prefix)
{
    const char *flavor = convert_word(c, "model.flavor", "debugmodel"), *layers;
    char bare[64], name[128];
    bool documents = is_masked(flavor, bare, sizeof bare);
    snprintf(name, sizeof name, "%.40s-%s", prefix,
             convert_among(bare, "debug") ? "debugmodel" : bare);
    const struct ls_preset *preset = preset_of(ls_family_of(arch)->presets, name);
    const struct ls_preset *shape = preset ? preset : preset_of(shapes, name);
    if (!shape) {
        refuse_flavor(c, arch, prefix, flavor);
        return;
    }
    layers = strstr(shape->keys, "layers=");
    t->layers = strtoll(layers + strlen("layers="), NULL, 10);
    bool told = convert_has(c, "model.from");
    if (!told && preset)
        convert_keep(c, "model.preset", "model.flavor", "%s", preset->name);
    else if (!told)
        keep_shape(c, arch, shape);
    if (!told)
        tell_age(c, shape);
    if (documents)
        convert_documents(c, "model.flavor");
}

/* A model of Hugging Face's by its name there: "Qwen/Qwen3-4B". */
static void translate_hf_model(struct convert *c)
{
    const char *model = convert_word(c, hf_model, ""), *slash = strrchr(model, '/');
    const struct ls_preset *preset = NULL;
    for (int i = 0; i < LS_ARCHES && !preset; i++)
        preset = preset_of(ls_family_of((enum ls_arch)i)->presets, slash ? slash + 1 : model);
    if (preset && convert_among(convert_word(c, "model.flavor", "full"), "full"))
        convert_keep(c, "model.preset", hf_model, "%s", preset->name);
    else
        refuse_family(c, hf_model, model);
}

static void translate_model(struct convert *c, struct titan *t)
{
    const char *name = convert_word(c, "model.name", "llama3"), *presets;
    enum ls_arch arch;
    bool told = convert_has(c, "model.preset") || convert_has(c, "model.layers");
    if (!told && convert_find(c, hf_model))
        translate_hf_model(c);
    else if (!told && family_of(name, &arch, &presets))
        translate_flavor(c, t, arch, presets);
    else if (!told)
        refuse_family(c, "model.name", name);
    if (convert_among(convert_word(c, "model.attn_mask_type", "causal"), "block_causal"))
        convert_documents(c, "model.attn_mask_type");
    else if (!convert_among(convert_word(c, "model.attn_mask_type", "causal"), "causal"))
        convert_fail(c, "model.attn_mask_type", "expected causal or block_causal");
}

static void translate_converters(struct convert *c)
{
    const struct convert_entry *list = convert_find(c, "model.converters");
    char one[64];
    for (int i = 0; list && convert_element(list, i, one, sizeof one); i++)
        if (convert_among(one, "lora"))
            convert_lose(c, "model.converters", "lora.targets: *head*",
                         "lora: adapters are beside matrices of blocks here, and beside the head "
                         "too there: set lora.rank and lora.targets yourself");
        else
            convert_lose(c, "model.converters", "*fp8*|*float8*|*mxfp*|*quant*",
                         "%s: nothing is quantised in training", one);
}

/* First weights: where Hugging Face's, they say what the model is. */
static void translate_first_weights(struct convert *c)
{
    static const char *const path = "checkpoint.initial_load_path";
    const char *on = GIVEN("checkpoint.enable", "checkpoint.enable_checkpoint");
    bool hf = convert_flag(c, "checkpoint.initial_load_in_hf", false);
    const char *from = hf ? GIVEN(path, "model.hf_assets_path") : GIVEN(path);
    if (!from || !on || !*convert_word(c, from, "") || !convert_flag(c, on, false))
        return;
    if (hf && !convert_has(c, "model.from"))
        convert_keep(c, "model.from", from, "%s", convert_word(c, from, ""));
    else
        convert_first_weights(c, from);
}

static void translate_sequence(struct convert *c, struct titan *t)
{
    const char *from = GIVEN("training.max_context_length", "training.seq_len");
    t->sequence = 2048;
    if (from)
        convert_int(c, from, 1, &t->sequence);
    from = from ? from : "training.seq_len";
    convert_take(c, "data.sequence", from, "2048");
    if (!convert_has(c, "model.from"))
        convert_take(c, "model.context", from, "2048");
}

/* ---- the layout ----------------------------------------------------------------------------- */

#define DEGREE(name) GIVEN("parallelism." name, "experimental." name, "training." name)
/* What moved from one section to the other. */
#define PARALLEL(name) GIVEN("parallelism." name, "experimental." name)

/* Ranks on an axis, 1 if it is not given. */
static int64_t degree(struct convert *c, const char *from, int64_t least)
{
    int64_t ranks = 1;
    if (from)
        convert_int(c, from, least, &ranks);
    return ranks;
}

static void translate_data_ranks(struct convert *c, struct titan *t)
{
    const char *copies = DEGREE("data_parallel_replicate_degree");
    const char *shards =
        GIVEN("parallelism.data_parallel_shard_degree", "experimental.data_parallel_shard_degree",
              "training.data_parallel_shard_degree", "training.data_parallel_degree");
    int64_t model = convert_times(convert_times(t->tp, t->pp), t->cp);
    int64_t rest = convert_dp(c, model, "tensor x pipeline x context parallel");
    t->replicate = degree(c, copies, 1);
    t->shard = shards ? degree(c, shards, -1) : -1;
    const char *from = shards ? shards : "parallelism.data_parallel_shard_degree";
    if (t->shard == -1 && rest) { /* what is left */
        if (rest % t->replicate)
            convert_fail(c, copies, "expected a divisor of the %lld data-parallel ranks",
                         (long long)rest);
        t->shard = rest / t->replicate;
    } else if (rest && t->shard != -1 && rest != convert_times(t->replicate, t->shard)) {
        convert_fail(c, from,
                     "copies x shards = %lld x %lld are not the %lld ranks that --ranks leaves",
                     (long long)t->replicate, (long long)t->shard, (long long)rest);
    }
    if (t->shard == 0)
        convert_fail(c, from, "expected -1, or at least 1");
    if (copies)
        convert_keep_int(c, "parallel.dp_replicate", copies, t->replicate);
    if (t->shard == -1) {
        convert_advise(c, "parallel.dp_shard: it is what is left of the ranks there; give --ranks "
                          "N, or set it");
    } else {
        convert_keep_int(c, "parallel.dp_shard", from, t->shard);
        t->dp = convert_times(t->replicate, t->shard);
    }
    if (t->shard != 1)
        convert_keep(c, "parallel.zero", from, "3");
}

static void translate_schedule(struct convert *c)
{
    static const struct {
        const char *theirs, *ours;
    } words[] = {{"1F1B", "1f1b"},
                 {"GPipe|gpipe", "gpipe"},
                 {"Interleaved1F1B|interleaved_1f1b|LoopedBFS|InterleavedZeroBubble|"
                  "flexible_interleaved_1f1b",
                  "interleaved"},
                 {"ZBVZeroBubble", "zbv"},
                 {"zb|ZeroBubble", "zb-h1"},
                 {"DualPipeV", "dualpipev"}};
    const char *key = PARALLEL("pipeline_parallel_schedule");
    const char *file = PARALLEL("pipeline_parallel_schedule_csv");
    const char *path = file ? convert_word(c, file, "") : "";
    if (*path) {
        convert_keep(c, "parallel.schedule", file, "csv");
        convert_keep(c, "parallel.schedule_file", file, "%s", path);
        return;
    }
    if (!key)
        return;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (convert_among(convert_word(c, key, ""), words[i].theirs)) {
            convert_keep(c, "parallel.schedule", key, "%s", words[i].ours);
            return;
        }
    convert_fail(c, key,
                 "expected 1F1B, GPipe, Interleaved1F1B, LoopedBFS, InterleavedZeroBubble, "
                 "ZBVZeroBubble or DualPipeV");
}

/* ["layers.4", "layers.8"]: the first block of each stage but the first. Here layer 0 is the
 * embedding, so block 4 is layer 5. */
static void translate_split(struct convert *c, const struct titan *t)
{
    const char *key = PARALLEL("pipeline_parallel_split_points");
    char one[64], split[512] = "";
    int64_t from = 0;
    if (!key || !t->layers)
        return;
    for (int i = 0; convert_element(convert_find(c, key), i, one, sizeof one); i++) {
        double block;
        size_t used = strlen(split);
        if (strncmp(one, "layers.", 7) != 0 || !convert_number(one + 7, &block) || block < from ||
            block >= (double)t->layers || block != (double)(int64_t)block ||
            used > sizeof split - 64) {
            convert_drop(c, key, "stages are balanced by cost; parallel.split says another cut");
            return;
        }
        snprintf(split + used, sizeof split - used, "%lld-%.0f,", (long long)from, block);
        from = (int64_t)block + 1;
    }
    if (*split)
        convert_keep(c, "parallel.split", key, "%s%lld-%lld", split, (long long)from,
                     (long long)t->layers + 1);
}

static void translate_exchange(struct convert *c, const struct titan *t)
{
    const char *rotate = PARALLEL("context_parallel_rotate_method");
    const char *reshard =
        GIVEN("parallelism.fsdp_reshard_after_forward", "training.fsdp_reshard_after_forward");
    const char *async = PARALLEL("enable_async_tensor_parallel");
    const char *how = reshard ? convert_word(c, reshard, "") : "default";
    if (rotate)
        convert_keep(c, "parallel.cp_method", rotate, "%s",
                     convert_among(convert_word(c, rotate, ""), "alltoall") ? "ring" : "allgather");
    if (reshard && convert_among(how, "default"))
        convert_drop(c, reshard, "parallel.reshard_after_forward is true");
    else if (reshard)
        convert_keep(c, "parallel.reshard_after_forward", reshard, "%s",
                     convert_among(how, "never|false") ? "false" : "true");
    if (async && convert_flag(c, async, false))
        convert_keep(c, "parallel.tp_overlap", async, "4");
    if (t->tp > 1)
        convert_take(c, "parallel.sp", "parallelism.enable_sequence_parallel", NULL);
}

static void translate_layout(struct convert *c, struct titan *t)
{
    const char *tp = DEGREE("tensor_parallel_degree"), *pp = DEGREE("pipeline_parallel_degree");
    const char *cp = DEGREE("context_parallel_degree");
    t->tp = degree(c, tp, 1);
    t->pp = degree(c, pp, 1);
    t->cp = degree(c, cp, 1);
    if (tp)
        convert_tp(c, tp, t->tp);
    if (pp)
        convert_keep_int(c, "parallel.pp", pp, t->pp);
    if (cp)
        convert_cp(c, cp, t->cp);
    translate_data_ranks(c, t);
    if (t->pp > 1) {
        translate_schedule(c);
        translate_split(c, t);
    }
    translate_exchange(c, t);
}

/* ---- the batch ------------------------------------------------------------------------------ */

/* A key in tokens, as sequences; 0 if it is absent or -1. */
static int64_t sequences(struct convert *c, const struct titan *t, const char *key)
{
    int64_t tokens = 0;
    if (!convert_int(c, key, -1, &tokens) || tokens < 1)
        return 0;
    if (tokens % t->sequence)
        convert_fail(c, key, "expected a multiple of the sequence's %lld tokens",
                     (long long)t->sequence);
    return tokens / t->sequence;
}

static void translate_batch(struct convert *c, const struct titan *t)
{
    static const char *const tokens = "training.num_tokens_per_microbatch_per_dp_rank";
    static const char *const step = "training.num_tokens_per_train_step";
    static const char *const pieces = "parallelism.pipeline_parallel_microbatch_size";
    const char *from = GIVEN("training.local_batch_size", "training.batch_size", tokens);
    int64_t local = 8, global = 0, micro = 0, times = 1;
    bool counted = from == tokens;
    if (from)
        local = counted ? ls_max(sequences(c, t, tokens), 1) : degree(c, from, 1);
    from = from ? from : "training.local_batch_size";
    convert_int(c, "training.gradient_accumulation_steps", 1, &times);
    if (counted && t->pp > 1)
        convert_int(c, "parallelism.num_pp_microbatches", 1, &times);
    bool cut = t->pp > 1 && convert_take_int(c, "batch.micro", pieces, &micro);
    if (!cut && (t->pp == 1 || counted))
        convert_keep_int(c, "batch.micro", from, local);
    convert_int(c, "training.global_batch_size", -1, &global);
    const char *whole = global > 0 ? "training.global_batch_size" : step;
    if (global < 1)
        global = sequences(c, t, step);
    if (global > 0 && t->dp && global % convert_times(local, t->dp))
        convert_fail(c, whole,
                     "expected a multiple of %lld sequences on each of %lld data-parallel ranks",
                     (long long)local, (long long)t->dp);
    if (global > 0)
        convert_keep_int(c, "batch.global", whole, global);
    else if (t->dp)
        convert_keep_int(c, "batch.global", from,
                         convert_times(convert_times(local, times), t->dp));
    else
        convert_advise(c,
                       "batch.global: it is %lld sequences on each data-parallel rank there; "
                       "give --ranks N, or set it",
                       (long long)convert_times(local, times));
}

/* ---- the optimizer and its schedule --------------------------------------------------------- */

static void translate_optimizer(struct convert *c)
{
    const char *name = convert_word(c, "optimizer.name", "AdamW");
    double decay = 0.1;
    convert_real(c, "optimizer.weight_decay", &decay);
    if (!convert_among(name, "Adam|AdamW"))
        convert_lose(c, "optimizer.name", ASKED,
                     "%s: torchtitan has Adam and AdamW; set optim.name and its keys for another",
                     name);
    else if (convert_find(c, "optimizer.name"))
        convert_keep(c, "optim.name", "optimizer.name", "adamw");
    if (convert_among(name, "Adam") && decay != 0)
        convert_lose(c, "optimizer.weight_decay", "optim.name=adam|optim.decoupled*",
                     "%g%s: it is part of Adam's gradient there, decoupled here", decay,
                     convert_find(c, "optimizer.weight_decay") ? "" : " (the default there)");
    convert_take(c, "optim.lr", "optimizer.lr", "8e-4");
    convert_take(c, "optim.beta1", "optimizer.beta1", NULL);
    convert_take(c, "optim.beta2", "optimizer.beta2", NULL);
    convert_take(c, "optim.epsilon", "optimizer.eps", NULL);
    convert_take(c, "optim.weight_decay", "optimizer.weight_decay", NULL);
}

static int64_t translate_warm_up(struct convert *c, int64_t steps)
{
    const char *from = GIVEN("lr_scheduler.warmup_steps", "training.warmup_steps");
    int64_t warm = steps < 200 ? steps : 200;
    double share;
    if (from) {
        convert_int(c, from, 0, &warm);
    } else if (convert_real(c, "training.warmup_pct", &share)) {
        from = "training.warmup_pct";
        warm = convert_share(share, steps);
    }
    warm = ls_min(warm, steps);
    convert_settle(c, "optim.warmup_steps", from ? from : "lr_scheduler.warmup_steps", "%lld",
                   (long long)warm);
    return warm;
}

static void translate_rate(struct convert *c)
{
    static const char *const ratio = "lr_scheduler.decay_ratio";
    static const char *const type = "lr_scheduler.decay_type";
    const char *how = convert_word(c, type, "linear");
    const char *least = GIVEN("lr_scheduler.min_lr_factor", "lr_scheduler.lr_min");
    int64_t steps = 10000, total;
    double share = 1;
    if (!convert_int(c, "training.steps", 0, &steps))
        convert_assume(c, "train.steps", "training.steps", "10000");
    total = steps;
    convert_int(c, "lr_scheduler.total_steps", 1, &total);
    int64_t warm = translate_warm_up(c, total);
    bool given_share = convert_real(c, ratio, &share);
    int64_t decay = convert_share(share, total);
    bool stable = given_share && warm + decay < total;
    if (stable && decay == 0) {
        convert_keep(c, "optim.schedule", ratio, "constant");
        return;
    }
    if (!convert_among(how, "linear|cosine") || (stable && !convert_among(how, "linear")))
        convert_lose(c, type, "optim.schedule=sqrt|optim.cooldown_[!s]*|optim.cooldown_s[!t]*",
                     "%s%s: the rate falls in a line%s", how, stable ? " behind a stable part" : "",
                     stable ? "" : ", or by a cosine");
    else if (!stable)
        convert_settle(c, "optim.schedule", type, "%s", how);
    if (stable) {
        convert_keep(c, "optim.schedule", ratio, "wsd");
        convert_keep_int(c, "optim.cooldown_steps", ratio, decay);
    }
    convert_take(c, "optim.min_ratio", least ? least : "lr_scheduler.min_lr_factor", "0");
}

/* ---- precision, memory ---------------------------------------------------------------------- */

static void translate_precision(struct convert *c)
{
    static const char *const mixed = "training.mixed_precision_param";
    const char *word = convert_word(c, mixed, NULL);
    const char *whole = convert_word(c, "training.dtype", "float32");
    if (word && !convert_among(word, "bfloat16|float32"))
        convert_fail(c, mixed, "expected bfloat16 or float32");
    if (word)
        convert_keep(c, "numerics.precision", mixed, "%s",
                     convert_among(word, "float32") ? "fp32" : "bf16");
    if (!convert_among(whole, "float32"))
        convert_lose(c, "training.dtype", "*master*|*param*type*", "%s: master weights are fp32",
                     whole);
    if (convert_find(c, "training.mixed_precision_reduce"))
        convert_reduce(c, "training.mixed_precision_reduce",
                       convert_word(c, "training.mixed_precision_reduce", ""));
}

static void translate_memory(struct convert *c)
{
    static const char *const offloaded[] = {"memory.offload.optimizer", "memory.offload.gradients",
                                            "memory.offload.parameters"};
    const char *mode = convert_word(c, "activation_checkpoint.mode", NULL);
    const char *every = convert_word(c, "activation_checkpoint.selective_ac_option", "2");
    if (mode && strcmp(mode, "selective") == 0 && strcmp(every, "1") == 0)
        mode = "full";
    if (mode)
        convert_keep(c, "memory.recompute", "activation_checkpoint.mode", "%s",
                     convert_among(mode, "none|full") ? mode : "selective");
    else if (convert_flag(c, "training.enable_selective_ac", false))
        convert_keep(c, "memory.recompute", "training.enable_selective_ac", "selective");
    for (int i = 0; i < 3 && convert_flag(c, "training.enable_cpu_offload", false); i++)
        convert_keep(c, offloaded[i], "training.enable_cpu_offload", "host");
}

/* ---- the run -------------------------------------------------------------------------------- */

static void translate_checkpoints(struct convert *c)
{
    const char *from = GIVEN("checkpoint.enable", "checkpoint.enable_checkpoint");
    const char *first =
        GIVEN("checkpoint.enable_first_step_checkpoint", "checkpoint.create_seed_checkpoint");
    int64_t keep = 10;
    if (!from || !convert_flag(c, from, false)) {
        if (from)
            convert_drop(c, from, "off: only the end of a run is saved");
        return;
    }
    convert_keep(c, "train.resume", from, "auto");
    convert_take(c, "train.save_every", "checkpoint.interval", "500");
    convert_int(c, "checkpoint.keep_latest_k", 0, &keep);
    convert_settle(c, "train.keep", "checkpoint.keep_latest_k", "%lld",
                   keep ? (long long)keep : 1000000LL); /* 0 keeps all */
    if (first && convert_flag(c, first, false))
        convert_keep(c, "train.save_first", first, "true");
}

static void translate_data(struct convert *c)
{
    const char *from = GIVEN("training.dataset_path", "training.dataset");
    if (!convert_has(c, "data.train"))
        convert_advise(c, "data.train: %s%s; `lockstep data prepare` makes tokens of a text",
                       from ? "there it is " : "set it", from ? convert_word(c, from, "") : "");
}

static void translate_evaluation(struct convert *c, const struct titan *t)
{
    const char *on = GIVEN("validation.enable", "validation.enabled");
    int64_t steps = -1, local = 8;
    if (!on || !convert_flag(c, on, false))
        return;
    if (!convert_has(c, "data.valid")) {
        convert_drop(c, on, "no data.valid is known: set it with eval.every");
        return;
    }
    convert_take(c, "eval.every", "validation.freq", "10");
    convert_int(c, "validation.local_batch_size", 1, &local);
    if (convert_int(c, "validation.steps", -1, &steps) && steps > 0 && t->dp)
        convert_keep_int(c, "eval.samples", "validation.steps",
                         convert_times(convert_times(steps, local), t->dp));
}

static void translate_seed(struct convert *c)
{
    const char *from = GIVEN("debug.seed", "training.seed");
    if (!from)
        return;
    convert_take(c, "model.seed", from, NULL);
    convert_take(c, "data.seed", from, NULL);
}

static void derive(struct convert *c)
{
    struct titan t = {0};
    const char *folder = GIVEN("job.dump_folder", "global.dump_folder");
    translate_first_weights(c);
    translate_model(c, &t);
    translate_converters(c);
    translate_sequence(c, &t);
    translate_layout(c, &t);
    translate_batch(c, &t);
    translate_optimizer(c);
    translate_rate(c);
    translate_precision(c);
    translate_memory(c);
    translate_seed(c);
    if (folder && *convert_word(c, folder, ""))
        convert_take(c, "train.out", folder, NULL);
    translate_checkpoints(c);
    translate_data(c);
    translate_evaluation(c, &t);
}

const struct convert_project convert_torchtitan = {
    .name = "torchtitan",
    .title = "torchtitan",
    .read = convert_toml_read,
    .rules = convert_torchtitan_rules,
    .remark =
        "Initial weights, the order of samples and rounding differ from there in any case; the "
        "learning rate of a step is that of the step before here; weight decay is on norms and "
        "biases too there, and on matrices alone here.",
    .derive = derive,
};
