/* The table of keys: everything that a reader may set is declared here, once. */
#include "config/config_private.h"

#include <lockstep/parallel/arrivals.h>
#include <lockstep/parallel/tensor.h>

#include <pthread.h>
#include <string.h>
#include <xxhash.h>

#define KEY(type, name, part, initial, low, high, above, below, words, field, help)                \
    {                                                                                              \
        name, LS_CONFIG_##type, LS_CONFIG_##part, initial, low, high, above, below, words, help,   \
            offsetof(struct ls_config, field)                                                      \
    }
#define INT(name, part, initial, low, high, field, help)                                           \
    KEY(INT, name, part, initial, low, high, false, false, NULL, field, help)
#define COUNT(name, part, initial, low, field, help)                                               \
    INT(name, part, initial, low, 0x1p60, field, help)
/* Bounds inclusive; above the lower; below the upper. */
/* A count, or a word whose value is none. */
#define COUNT_OR(name, part, initial, low, high, words, field, help)                               \
    KEY(INT, name, part, initial, low, high, false, false, words, field, help)
#define REAL(name, part, initial, low, high, field, help)                                          \
    KEY(REAL, name, part, initial, low, high, false, false, NULL, field, help)
#define REAL_ABOVE(name, part, initial, low, high, field, help)                                    \
    KEY(REAL, name, part, initial, low, high, true, false, NULL, field, help)
#define REAL_BELOW(name, part, initial, low, high, field, help)                                    \
    KEY(REAL, name, part, initial, low, high, false, true, NULL, field, help)
#define WORD(name, part, initial, words, field, help)                                              \
    KEY(WORD, name, part, initial, 0, 0, false, false, words, field, help)
#define PLAIN(type, name, part, initial, field, help)                                              \
    KEY(type, name, part, initial, 0, 0, false, false, NULL, field, help)
#define BYTES(name, part, initial, low, field, help)                                               \
    KEY(BYTES, name, part, initial, low, 0x1p60, false, false, NULL, field, help)
/* The two keys of what may lie in a tier: which one, and how much of it. */
#define OFFLOAD(name, what, help, ratio_help)                                                      \
    WORD("memory.offload." name, LAYOUT, "none", tiers, memory.offload[what].to, help),            \
        REAL("memory.offload." name "_ratio", LAYOUT, "1", 0, 1, memory.offload[what].ratio,       \
             ratio_help)
#define BOOL(...)  PLAIN(BOOL, __VA_ARGS__)
#define TEXT(...)  PLAIN(STRING, __VA_ARGS__)
#define PATHS(...) PLAIN(PATHS, __VA_ARGS__)
#define PATH(...)  PLAIN(PATH, __VA_ARGS__)

#define WORDS(name) static const struct ls_word name[]
#define END                                                                                        \
    {                                                                                              \
        NULL, 0                                                                                    \
    }

#define ARCH(arch, name) {#name, arch},
WORDS(arches) = {LS_FAMILIES(ARCH) END};
WORDS(automatic) = {{"auto", LS_CONFIG_AUTO}, END};
WORDS(auto_or_bool) = {{"auto", LS_CONFIG_AUTO}, {"true", 1}, {"false", 0}, END};
WORDS(activations) = {{"auto", LS_CONFIG_AUTO},      {"gelu_tanh", LS_ACT_GELU_TANH},
                      {"gelu_erf", LS_ACT_GELU_ERF}, {"swiglu", LS_ACT_SWIGLU},
                      {"geglu", LS_ACT_GEGLU},       END};
WORDS(some_layers) = {{"auto", LS_CONFIG_AUTO},
                      {"all", LS_LAYERS_ALL},
                      {"even", LS_LAYERS_EVEN},
                      {"three_of_four", LS_LAYERS_THREE_OF_FOUR},
                      {"five_of_six", LS_LAYERS_FIVE_OF_SIX},
                      END};
WORDS(optimizers) = {
    {"adamw", LS_ADAMW}, {"sgd", LS_SGD}, {"lion", LS_LION}, {"muon", LS_MUON}, END};
WORDS(muon_scales) = {{"original", LS_MUON_ORIGINAL}, {"match_rms_adamw", LS_MUON_MATCH_RMS}, END};
WORDS(schedules) = {{"constant", LS_LR_CONSTANT}, {"linear", LS_LR_LINEAR},
                    {"cosine", LS_LR_COSINE},     {"inverse_sqrt", LS_LR_INVERSE_SQRT},
                    {"wsd", LS_LR_WSD},           END};
WORDS(async_modes) = {
    {"none", LS_CONFIG_SYNC}, {"diloco", LS_CONFIG_DILOCO}, {"server", LS_CONFIG_SERVER}, END};
WORDS(orders) = {{"times", LS_CONFIG_BY_TIMES}, {"clock", LS_CONFIG_BY_CLOCK}, END};
WORDS(staleness_lrs) = {{"none", LS_CONFIG_EQUAL}, {"inverse", LS_CONFIG_INVERSE}, END};
WORDS(free_bound) = {{"free", LS_BOUND_FREE}, END};
WORDS(outer_optimizers) = {{"nesterov", LS_CONFIG_NESTEROV},
                           {"sgd", LS_CONFIG_OUTER_SGD},
                           {"adamw", LS_CONFIG_OUTER_ADAMW},
                           END};
WORDS(deltas) = {{"fp32", LS_DELTA_F32}, {"bf16", LS_DELTA_BF16}, {"int8", LS_DELTA_INT8}, END};
WORDS(precisions) = {{"fp32", LS_F32}, {"bf16", LS_BF16}, {"fp16", LS_F16}, END};
WORDS(fp32_or_bf16) = {{"fp32", LS_F32}, {"bf16", LS_BF16}, END};
WORDS(modes) = {{"ordered", LS_CONFIG_ORDERED}, {"fast", LS_CONFIG_FAST}, END};
WORDS(arithmetics) = {{"auto", LS_CONFIG_AUTO},
                      {"fma", LS_ARITHMETIC_FMA},
                      {"bf16_pairs", LS_ARITHMETIC_BF16_PAIRS},
                      END};
WORDS(isas) = {{"auto", LS_CONFIG_AUTO},
               {"plain", LS_ISA_PLAIN},
               {"avx2", LS_ISA_AVX2},
               {"avx512", LS_ISA_AVX512},
               {"avx512_bf16", LS_ISA_AVX512_BF16},
               {"amx", LS_ISA_AMX},
               END};
WORDS(pipelines) = {{"gpipe", LS_SCHEDULE_GPIPE},
                    {"1f1b", LS_SCHEDULE_1F1B},
                    {"interleaved", LS_SCHEDULE_INTERLEAVED},
                    {"zb-h1", LS_SCHEDULE_ZB_H1},
                    {"zbv", LS_SCHEDULE_ZBV},
                    {"dualpipev", LS_SCHEDULE_DUALPIPEV},
                    {"csv", LS_LAYOUT_CSV},
                    END};
WORDS(cp_methods) = {{"allgather", LS_CP_ALL_GATHER}, {"ring", LS_CP_RING}, END};
WORDS(transports) = {
    {"auto", LS_CONFIG_AUTO}, {"thread", LS_TRANSPORT_THREAD}, {"mpi", LS_TRANSPORT_MPI}, END};
WORDS(rope_kinds) = {
    {"llama3", LS_ROPE_LLAMA3}, {"linear", LS_ROPE_LINEAR}, {"yarn", LS_ROPE_YARN}, END};
WORDS(tiers) = {{"none", LS_TIER_DEVICE}, {"host", LS_TIER_HOST}, {"file", LS_TIER_FILE}, END};
WORDS(packings) = {{"stream", LS_CONFIG_STREAM},
                   {"documents", LS_CONFIG_DOCUMENTS},
                   {"best_fit", LS_CONFIG_BEST_FIT},
                   END};
WORDS(nonfinites) = {{"stop", LS_CONFIG_STOP}, {"skip", LS_CONFIG_SKIP}, END};
WORDS(progresses) = {{"auto", LS_CONFIG_AUTO},
                     {"live", LS_CONFIG_LIVE},
                     {"plain", LS_CONFIG_PLAIN},
                     {"off", LS_CONFIG_OFF},
                     END};
WORDS(levels) = {{"error", LS_LOG_ERROR},
                 {"warning", LS_LOG_WARNING},
                 {"info", LS_LOG_INFO},
                 {"debug", LS_LOG_DEBUG},
                 END};

static const struct ls_config_key table[] = {
    TEXT("model.preset", RUN, "", model_keys.preset,
         "a published shape to start from: {presets}; keys that you give beside it win"),
    PATH("model.from", RUN, "", model_keys.from,
         "take the shape and the initial weights of this model: a Hugging Face folder "
         "(config.json and safetensors), llm.c's model_*.bin, or a run; empty = the keys "
         "below, and random weights"),
    WORD("model.arch", RECIPE, "gpt2", arches, model_keys.arch, "{families}"),
    INT("model.vocab", RECIPE, "0", 0, 0x1p30, model_keys.vocab,
        "vocabulary in tokens; 0 = the tokenizer's"),
    INT("model.vocab_multiple", RECIPE, "128", 1, 65536, model_keys.vocab_multiple,
        "the vocabulary is padded up to a multiple of this"),
    INT("model.layers", RECIPE, "0", 0, 4096, model_keys.layers, "Transformer blocks"),
    INT("model.channels", RECIPE, "0", 0, LS_NORM_CHANNELS_MAX, model_keys.channels,
        "width of the residual stream"),
    INT("model.heads", RECIPE, "0", 0, 4096, model_keys.heads, "query heads"),
    INT("model.kv_heads", RECIPE, "0", 0, 4096, model_keys.kv_heads,
        "key/value heads (grouped-query attention); divides heads; 0 = heads"),
    INT("model.head_dim", RECIPE, "0", 0, 256, model_keys.head_dim,
        "width of a head, a multiple of 8; 0 = channels / heads"),
    INT("model.ffn", RECIPE, "0", 0, 4194304, model_keys.ffn,
        "hidden width of the feed-forward part; 0 = {ffn}"),
    INT("model.context", RECIPE, "0", 0, 0x1p30, model_keys.context,
        "longest sequence of the model, in tokens"),
    WORD("model.tied", RECIPE, "auto", auto_or_bool, model_keys.tied,
         "the output head shares the token embedding's weight; auto = {tied}"),
    WORD("model.bias", RECIPE, "auto", auto_or_bool, model_keys.bias,
         "linear layers, and norms of gpt2, have biases; auto = {bias}"),
    WORD("model.activation", RECIPE, "auto", activations, model_keys.activation,
         "activation of the feed-forward part; auto = {activation}"),
    REAL_ABOVE("model.norm_epsilon", RECIPE, "1e-5", 0, 1, model_keys.norm_epsilon,
               "added to the variance (LayerNorm) or the mean square (RMSNorm)"),
    REAL_ABOVE("model.rope_theta", RECIPE, "10000", 1, 1e12, model_keys.rope_theta,
               "base of the rotary frequencies ({readers})"),
    REAL_ABOVE("model.rope_local_theta", RECIPE, "10000", 1, 1e12, model_keys.rope_local_theta,
               "base of the rotary frequencies of blocks with the window, which no rope_scaling "
               "scales ({readers})"),
    WORD("model.rope_layers", RECIPE, "auto", some_layers, model_keys.rope_layers,
         "the blocks that have rotary positions, as in model.window_layers; the others have none "
         "({readers}); auto = {rope_layers}"),
    REAL("model.rope_factor", RECIPE, "0", 0, 1e6, model_keys.rope_factor,
         "rotary frequencies are scaled by this factor; 0 or 1 = none ({readers})"),
    WORD("model.rope_scaling", RECIPE, "llama3", rope_kinds, model_keys.rope_scaling,
         "how rotary frequencies are scaled: llama3 (by wavelength), linear (all of them) or "
         "yarn ({readers})"),
    REAL("model.rope_low_freq_factor", RECIPE, "1", 0, 1e6, model_keys.rope_low_freq_factor,
         "wavelengths above rope_original_context / this are scaled in full ({readers})"),
    REAL("model.rope_high_freq_factor", RECIPE, "4", 0, 1e6, model_keys.rope_high_freq_factor,
         "wavelengths below rope_original_context / this are not scaled ({readers})"),
    INT("model.rope_original_context", RECIPE, "0", 0, 0x1p30, model_keys.rope_original_context,
        "context before the scaling, in tokens ({readers})"),
    REAL_ABOVE("model.rope_beta_fast", RECIPE, "32", 0, 1e6, model_keys.rope_beta_fast,
               "yarn does not scale pairs that turn more often than this in rope_original_context "
               "({readers})"),
    REAL_ABOVE("model.rope_beta_slow", RECIPE, "1", 0, 1e6, model_keys.rope_beta_slow,
               "yarn scales in full pairs that turn less often than this in "
               "rope_original_context ({readers})"),
    REAL("model.rope_attention_factor", RECIPE, "0", 0, 1e6, model_keys.rope_attention_factor,
         "yarn multiplies queries and keys by this; 0 = 0.1 ln(rope_factor) + 1 ({readers})"),
    INT("model.window", RECIPE, "0", 0, 0x1p30, model_keys.window,
        "tokens that a query sees, its own included ({readers}); 0 = all up to its own"),
    WORD("model.window_layers", RECIPE, "auto", some_layers, model_keys.window_layers,
         "the blocks that have the window: all, even = the first, the third and so on, "
         "three_of_four = all but every fourth, or five_of_six = all but every sixth ({readers}); "
         "auto = {window_layers}"),
    REAL("model.attention_softcap", RECIPE, "0", 0, 1e6, model_keys.attention_softcap,
         "attention scores become cap tanh(score / cap) ({readers}); 0 = none"),
    REAL("model.logit_softcap", RECIPE, "0", 0, 1e6, model_keys.logit_softcap,
         "logits become cap tanh(logit / cap) ({readers}); 0 = none"),
    REAL("model.query_scale", RECIPE, "0", 0, 1e6, model_keys.query_scale,
         "attention scores are divided by the square root of this ({readers}); 0 = head_dim"),
    REAL_BELOW("model.dropout", RECIPE, "0", 0, 1, model_keys.dropout,
               "probability that an activation is dropped while training"),
    REAL_ABOVE("model.init_std", RECIPE, "0.02", 0, 10, model_keys.init_std,
               "standard deviation of the initial weights"),
    COUNT("model.seed", RECIPE, "1234", 0, model_keys.seed,
          "seed of the initial weights, of dropout and of stochastic rounding"),

    PATHS("data.train", RECIPE, "", data.train,
          "tokens to train on: the prefix of a .bin/.idx pair, an llm.c token file, u16:FILE for "
          "bare uint16 tokens, a folder or a pattern of these, or a list with commas between; "
          "files may lie at http://, https:// or s3://"),
    PLAIN(BLEND, "data.blend", RECIPE, "", data.blend,
          "stores mixed by weight, in the place of data.train: a list of maps with source, "
          "weight, epochs and from_step, or \"0.7 STORE 0.3 STORE\" (doc/data.md)"),
    BOOL("data.changed", RUN, "false", data.changed,
         "go on from a checkpoint although the data, or data.blend in steps that are done, are not "
         "those that it was trained on: samples may be read again or left out"),
    PATHS("data.valid", RUN, "", data.valid, "tokens to evaluate on; empty = none"),
    PATHS("data.tokenizer", RUN, "", data.tokenizer,
          "`byte`, a folder with tokenizer.json or with vocab.json and merges.txt, or another "
          "tokenizer (doc/data.md); empty = the one recorded beside the data, or without data that "
          "of model.from"),
    PATH("data.cache.dir", RUN, "", data.cache_dir,
         "a directory on a local disk for blocks of data elsewhere (http://, https://, s3://), "
         "fetched once a host; empty = they are kept in memory"),
    BYTES("data.cache.size", RUN, "64GiB", 64 << 20, data.cache_size,
          "bytes of data.cache.dir; blocks that were used longest ago make room"),
    INT("data.sequence", RECIPE, "0", 0, 0x1p30, data.sequence,
        "tokens of a training sequence; 0 = model.context"),
    BOOL("data.shuffle", RECIPE, "true", data.shuffle,
         "visit the sequences in a random order, a different one in each epoch"),
    WORD("data.packing", RECIPE, "stream", packings, data.packing,
         "what a sequence holds: stream = the next tokens, wherever documents end; documents = "
         "whole documents, as many as fit, each of which attends only to itself; best_fit = the "
         "same, with the documents of a sequence chosen by `lockstep data pack`"),
    COUNT("data.seed", RECIPE, "1234", 0, data.seed, "seed of the order of sequences"),

    INT("batch.global", RECIPE, "8", 1, 0x1p30, batch.global, "sequences of one optimizer step"),
    INT("batch.micro", LAYOUT, "0", 0, 0x1p30, batch.micro,
        "sequences of one micro-batch of one rank; 0 = chosen for this machine"),
    INT("batch.rampup_start", RECIPE, "0", 0, 0x1p30, batch.rampup_start,
        "sequences of a step at the start of a batch-size ramp-up; 0 = no ramp-up"),
    INT("batch.rampup_increment", RECIPE, "0", 0, 0x1p30, batch.rampup_increment,
        "sequences added at each increment of the ramp-up, up to batch.global"),
    COUNT("batch.rampup_samples", RECIPE, "0", 0, batch.rampup_samples,
          "sequences consumed until the ramp-up is complete"),

    WORD("optim.name", RECIPE, "adamw", optimizers, optim.name,
         "adamw (decoupled weight decay), sgd (with momentum), lion, or muon for the matrices of "
         "blocks with adamw for tables, norms and biases"),
    REAL_ABOVE("optim.lr", RECIPE, "6e-4", 0, 1000, optim.lr, "peak learning rate"),
    REAL_BELOW("optim.beta1", RECIPE, "0.9", 0, 1, optim.beta1,
               "decay of the first moment (adamw, lion, beside muon)"),
    REAL_BELOW("optim.beta2", RECIPE, "0.95", 0, 1, optim.beta2,
               "decay of the second moment (adamw, beside muon) or of the momentum (lion)"),
    REAL_ABOVE("optim.epsilon", RECIPE, "1e-8", 0, 1, optim.epsilon,
               "added to the square root of the second moment (adamw, beside muon)"),
    REAL("optim.weight_decay", RECIPE, "0.1", 0, 100, optim.weight_decay,
         "weight decay, decoupled from the gradient (with sgd added to it, as in PyTorch); norms "
         "and biases are not decayed"),
    REAL_BELOW("optim.momentum", RECIPE, "0.9", 0, 1, optim.momentum,
               "momentum (sgd; muon, with default 0.95)"),
    BOOL("optim.nesterov", RECIPE, "false", optim.nesterov,
         "Nesterov's momentum (sgd; muon, with default true)"),
    INT("optim.ns_steps", RECIPE, "5", 1, 99, optim.ns_steps,
        "steps of the Newton-Schulz iteration that orthogonalises a matrix (muon)"),
    WORD("optim.muon_scale", RECIPE, "match_rms_adamw", muon_scales, optim.muon_scale,
         "factor of a matrix's learning rate (muon): match_rms_adamw = 0.2 sqrt(max(rows, "
         "columns)), for the rate and weight decay of adamw; original = sqrt(max(1, rows / "
         "columns)), for a rate of about 0.02"),
    REAL("optim.adamw_lr", RECIPE, "0", 0, 1000, optim.adamw_lr,
         "peak learning rate of tables, norms and biases, on the schedule of optim.lr (muon); 0 = "
         "optim.lr"),
    WORD("optim.moments", RECIPE, "fp32", fp32_or_bf16, optim.moments,
         "type of the moments (and of momentum): bf16 halves their memory and rounds them "
         "stochastically, with random bits that do not depend on the layout"),
    REAL("optim.clip", RECIPE, "1", 0, 1e30, optim.clip,
         "largest global norm of the gradients, which are scaled down to it; 0 = off"),
    WORD("optim.schedule", RECIPE, "cosine", schedules, optim.schedule,
         "course of the learning rate after the warm-up; wsd = warm-up, stable, decay"),
    COUNT("optim.warmup_steps", RECIPE, "0", 0, optim.warmup_steps,
          "steps of linear warm-up from a rate of 0"),
    COUNT("optim.decay_steps", RECIPE, "0", 0, optim.decay_steps,
          "step at which the learning rate reaches its minimum (linear, cosine, wsd); 0 = "
          "train.steps, or warmup_steps + cooldown_steps if that is more"),
    REAL("optim.min_ratio", RECIPE, "0.1", 0, 1, optim.min_ratio,
         "the minimum as a share of the peak (linear, cosine, wsd)"),
    COUNT("optim.cooldown_steps", RECIPE, "0", 0, optim.cooldown_steps,
          "number of steps before decay_steps in which the rate falls (wsd)"),

    WORD("async.mode", RECIPE, "none", async_modes, async.mode,
         "diloco = async.workers replicas of the model train by themselves and meet every "
         "async.sync_every steps; server = a step is one worker's gradient, added to the "
         "parameters of all, which others may have moved meanwhile (doc/async.md)"),
    INT("async.workers", RECIPE, "1", 1, 258, async.workers,
        "replicas that train by themselves, each on batch.global sequences of its own a step"),
    INT("async.sync_every", RECIPE, "100", 1, 0x1p30, async.sync_every,
        "diloco: steps between two outer steps of a parameter; server: steps between two moments "
        "at which ranks agree on what else there is to do, such as checkpoints"),
    INT("async.fragments", RECIPE, "1", 1, 4096, async.fragments,
        "parts of the model that take turns, one outer step every sync_every / fragments steps "
        "(streaming DiLoCo)"),
    COUNT("async.delay", RECIPE, "0", 0, async.delay,
          "steps in which deltas are on their way while workers go on: what is used at an outer "
          "step was sent so many steps before it"),
    WORD("async.outer_optim", RECIPE, "nesterov", outer_optimizers, async.outer,
         "outer optimizer, whose gradient is the mean of the workers' deltas: nesterov, sgd (no "
         "momentum; at rate 1 the workers' mean) or adamw"),
    REAL_ABOVE("async.outer_lr", RECIPE, "0.7", 0, 1000, async.outer_lr,
               "learning rate of the outer optimizer"),
    REAL_BELOW("async.outer_momentum", RECIPE, "0.9", 0, 1, async.outer_momentum,
               "momentum of the outer optimizer (nesterov), decay of its first moment (adamw)"),
    REAL_BELOW("async.outer_beta2", RECIPE, "0.95", 0, 1, async.outer_beta2,
               "decay of the second moment of the outer optimizer (adamw)"),
    REAL_ABOVE("async.outer_epsilon", RECIPE, "1e-8", 0, 1, async.outer_epsilon,
               "added to the square root of the second moment (adamw)"),
    REAL("async.mixing", RECIPE, "0", 0, 1, async.mixing,
         "share of its own parameters that a worker keeps at an outer step: 0 = it goes on from "
         "the new global ones"),
    WORD("async.delta", RECIPE, "fp32", deltas, async.delta,
         "type in which deltas travel; int8 with one scale a tensor, and exact sums"),

    WORD("async.order", RECIPE, "times", orders, async.order,
         "server: the order of updates: times = computed from async.times; clock = as gradients "
         "arrive at the ranks of parallel.servers, which write it to arrivals in train.out, where "
         "any other layout reads it"),
    PATH("async.follow", RUN, "", async.follow,
         "a run whose workers this one's follow: diloco: who takes part when, from its members; "
         "server: the order of updates, from its arrivals, in the place of the clock; empty = "
         "none, but without server ranks train.out"),
    COUNT_OR("async.staleness", RECIPE, "free", 0, LS_ARRIVAL_BOUND_MAX, free_bound,
             async.staleness,
             "server: clocks that a worker may be ahead of the slowest before it waits (stale "
             "synchronous parallel): 0 = bulk synchronous, free = it never waits"),
    TEXT("async.times", RECIPE, "", async.times,
         "server: how long each worker takes for a gradient, whole numbers with commas between, "
         "of which the order of updates follows (1,1,1,4: the last one is four times slower); "
         "empty = all alike"),
    REAL("async.compensation", RECIPE, "0", 0, 1e6, async.compensation,
         "server: factor of the correction of a stale gradient, lambda of DC-ASGD; 0 = none"),
    WORD("async.staleness_lr", RECIPE, "none", staleness_lrs, async.staleness_lr,
         "server: inverse = the learning rate of an update is divided by its staleness"),

    INT("lora.rank", RECIPE, "0", 0, 4096, lora.rank,
        "rank of the LoRA adapters that are trained while the model's own weights are frozen; "
        "0 = the model is trained"),
    REAL("lora.alpha", RECIPE, "0", 0, 1e6, lora.alpha,
         "the output of adapters is scaled by alpha / rank; 0 = lora.rank"),
    TEXT("lora.targets", RECIPE, "all", lora.targets,
         "matrices of each block that have adapters, by the names of Hugging Face's files with "
         "commas between (q_proj,v_proj; c_attn); all = each of them"),
    WORD("lora.base", RECIPE, "none", ls_lora_bases, lora.base,
         "what the frozen matrices of the blocks are kept in, as QLoRA does: nf4 = 4 bits "
         "(NormalFloat4 in blocks of 64, as bitsandbytes), int8 = 8 bits in blocks of 64, none = "
         "numerics.precision"),
    PATH("lora.from", RUN, "", lora.from,
         "take the initial adapters and the keys above from this PEFT folder "
         "(adapter_config.json and adapter_model.safetensors); empty = random adapters that "
         "change nothing before the first step"),

    WORD("numerics.precision", RECIPE, "bf16", precisions, numerics.precision,
         "type in which forward and backward compute; weights are kept and sums are taken in fp32"),
    WORD("numerics.mode", RECIPE, "ordered", modes, numerics.mode,
         "ordered: the same bits in every layout; fast: sums in the quickest order"),
    INT("numerics.tp_tiles", RECIPE, "0", 0, 1024, numerics.tp_tiles,
        "tiles into which contractions are cut, so that parallel.tp may be this number divided by "
        "any power of two: it divides heads, ffn, the padded vocabulary and kv_heads * head_dim, "
        "and is a multiple or a divisor of kv_heads; 0 = the largest such power of two up to 8"),
    INT("numerics.seq_tiles", RECIPE, "1", 1, LS_SEQ_TILES_MAX, numerics.seq_tiles,
        "tiles into which a sequence is cut for the sums over its tokens, so that parallel.cp "
        "may be this number divided by any power of two; above 1 data.sequence must be a "
        "multiple of 128 times this"),
    INT("numerics.leaf_sequences", RECIPE, "0", 0, 0x1p20, numerics.leaf_sequences,
        "sequences of a leaf: a batch's gradient is summed leaf by leaf, and one data-parallel "
        "rank computes a leaf; 0 = chosen from the recipe (doc/determinism.md)"),
    WORD("numerics.arithmetic", RECIPE, "auto", arithmetics, numerics.arithmetic,
         "how products are added, equally on every processor: fma, or bf16_pairs, which is "
         "fast with AMX (bf16 only); auto = bf16_pairs for bf16 where all ranks have AMX, "
         "otherwise fma: decided when the run first starts, and then kept"),
    WORD("numerics.isa", LAYOUT, "auto", isas, numerics.isa,
         "instruction set, which changes only the speed; auto = the fastest one that every "
         "rank has"),

    WORD("numerics.reduce", RECIPE, "fp32", fp32_or_bf16, numerics.reduce,
         "type in which ranks exchange gradients: bf16 halves the bytes, rounds each rank's "
         "part, and needs numerics.mode = fast"),
    REAL("numerics.loss_scale", RECIPE, "0", 0, 0x1p40, numerics.loss_scale,
         "fp16 only: factor of the loss, so that gradients fit into fp16; 0 = dynamic: halved at a "
         "non-finite step, which is skipped, and doubled after loss_scale_window finite steps"),
    INT("numerics.initial_scale_power", RECIPE, "16", 0, 40, numerics.initial_scale_power,
        "the dynamic loss scale begins at 2 to this power"),
    INT("numerics.loss_scale_window", RECIPE, "1000", 1, 0x1p40, numerics.loss_scale_window,
        "finite steps in a row after which the dynamic loss scale doubles"),
    INT("numerics.hysteresis", RECIPE, "2", 1, 0x1p20, numerics.hysteresis,
        "halve the dynamic loss scale after this many non-finite steps"),
    BOOL("numerics.consecutive_hysteresis", RECIPE, "false", numerics.consecutive_hysteresis,
         "restart that count after every finite step, not only when the scale doubles"),
    REAL_ABOVE("numerics.min_loss_scale", RECIPE, "1", 0, 0x1p40, numerics.min_loss_scale,
               "smallest dynamic loss scale: if it would fall lower, the run stops, or with "
               "train.on_nonfinite = skip continues at this scale"),

    INT("parallel.workers", LAYOUT, "1", 1, 258, parallel.workers,
        "groups of ranks that train workers at the same time (async.workers, of which this is a "
        "divisor); each has the layout below"),
    INT("parallel.servers", LAYOUT, "0", 0, 1, parallel.servers,
        "groups of ranks, beside those of workers and with the same layout, that hold the "
        "parameters and add gradients to them; 0 = the ranks of all workers do"),
    INT("parallel.pp", LAYOUT, "1", 1, 65536, parallel.pp,
        "pipeline-parallel ranks: each holds some of the layers"),
    INT("parallel.dp", LAYOUT, "0", 0, 65536, parallel.dp,
        "data-parallel ranks in all; sets dp_replicate with zero 0 and dp_shard with zero 1 to "
        "3, or, if one of the two is given, the other; 0 = dp_replicate times dp_shard"),
    INT("parallel.dp_replicate", LAYOUT, "0", 0, 65536, parallel.dp_replicate,
        "data-parallel replicas of the training state; 0 = from parallel.dp, or 1"),
    INT("parallel.dp_shard", LAYOUT, "0", 0, 65536, parallel.dp_shard,
        "data-parallel ranks that share one copy of the training state; 0 = from parallel.dp, "
        "or 1"),
    INT("parallel.cp", LAYOUT, "1", 1, 65536, parallel.cp,
        "context-parallel ranks: each holds a part of every sequence; numerics.seq_tiles "
        "divided by a power of two, or 1"),
    INT("parallel.tp", LAYOUT, "1", 1, 65536, parallel.tp,
        "tensor-parallel ranks: each holds a part of every layer; numerics.tp_tiles divided by "
        "a power of two, or 1"),
    WORD("parallel.sp", LAYOUT, "auto", auto_or_bool, parallel.sp,
         "sequence parallel: norms, dropout and residual on 1/tp of the tokens; auto = if tp is "
         "above 1 and the recipe's token tiles admit it"),
    INT("parallel.zero", LAYOUT, "0", 0, 3, parallel.zero,
        "state that data-parallel ranks shard instead of replicating it: 1 optimizer state, 2 "
        "also gradients, 3 also parameters"),
    WORD("parallel.schedule", LAYOUT, "1f1b", pipelines, parallel.schedule,
         "order of a pipeline's work; csv = parallel.schedule_file"),
    PATH("parallel.schedule_file", LAYOUT, "", parallel.schedule_file,
         "a table in torchtitan's CSV form: a row for each pipeline rank, cells such as 0F0, 1I2, "
         "1W2, 2B1"),
    INT("parallel.chunks", LAYOUT, "0", 0, LS_SCHEDULE_CHUNKS_MAX, parallel.chunks,
        "virtual stages of each pipeline rank: 1 (gpipe, 1f1b, zb-h1), 2 (zbv, dualpipev) or "
        "any (interleaved); 0 = the fewest that the schedule needs"),
    TEXT("parallel.split", LAYOUT, "", parallel.split,
         "layers of each stage, such as 0-5,6-13: 0 is the embedding, model.layers + 1 the head; "
         "empty = balanced by cost"),
    WORD("parallel.cp_method", LAYOUT, "allgather", cp_methods, parallel.cp_method,
         "how context-parallel ranks get each other's keys and values: gathered at once, or "
         "passed around in a ring"),
    INT("parallel.prefetch", LAYOUT, "1", 0, 64, parallel.prefetch,
        "number of layers whose parameters are gathered, or read from a memory tier, before "
        "they are needed (zero 1 to 3, and memory.offload.parameters)"),
    INT("parallel.persist", LAYOUT, "0", 0, 0x1p40, parallel.persist,
        "tensors of up to this many elements stay whole on every rank (zero 3)"),
    BOOL("parallel.reshard_after_forward", LAYOUT, "true", parallel.reshard_after_forward,
         "parameters are freed after the forward and gathered again for the backward (zero 3)"),
    INT("parallel.tp_overlap", LAYOUT, "1", 1, LS_TP_CHUNKS_MAX, parallel.tp_overlap,
        "parts into which a tensor-parallel product is cut, so that one part is sent while the "
        "next is computed"),
    BOOL("parallel.auto", RUN, "false", train.auto_layout,
         "let `lockstep train` search for the fastest layout, for train.plan or for this "
         "machine, which it measures; layout keys on the command line are fixed"),
    INT("parallel.threads", LAYOUT, "0", 0, 4096, parallel.threads,
        "threads of each rank; 0 = cores / ranks on this machine, at least 1"),

    TEXT("memory.recompute", LAYOUT, "none", parallel.recompute,
         "what blocks drop after the forward and compute again for the backward: none, "
         "selective (norms, attention, the activation), full (all but a block's input), every:K "
         "(all but the input of every K-th block), sqrt (the same with K = the square root of a "
         "stage's blocks), or a list of blocks such as 0-3,7, recomputed in full; by stage: "
         "full@0;none@1-3"),
    BOOL("memory.partition_activations", LAYOUT, "false", parallel.partition_activations,
         "cut the input that a recomputed block keeps over tensor-parallel ranks, and gather "
         "it for the backward"),
    BYTES("memory.device_budget", LAYOUT, "0", 0, memory.device_budget,
          "limit of a rank's device memory, such as 2GiB; a run that needs more is refused, "
          "and the error says what would fit; 0 = the machine's memory"),
    OFFLOAD("optimizer", LS_OFFLOAD_OPTIMIZER,
            "where the float32 masters and optimizer states of matrices are kept: none (on the "
            "device), host (the machine's memory) or file (on the disk of memory.file); they "
            "pass through the device at each update",
            "share of it that is offloaded, at least; the rest stays on the device"),
    OFFLOAD("gradients", LS_OFFLOAD_GRADIENTS,
            "where the gradients of blocks are kept: none, host or file; each is read to the "
            "device while a leaf is added to it, and for the update. Not with dp_replicate "
            "above 1 in zero 1 to 3",
            "share of the blocks, at least"),
    OFFLOAD("parameters", LS_OFFLOAD_PARAMETERS,
            "where the matrices of blocks are kept, in the compute type: none, host or file; "
            "each block's are read before it is computed (parallel.prefetch). Not with zero 1 "
            "or 2 over several ranks",
            "share of the blocks, at least"),
    OFFLOAD("activations", LS_OFFLOAD_ACTIVATIONS,
            "where the activations of blocks are kept until the backward: none, host or file; "
            "they are written after the forward and read before the backward. Not the last "
            "block of a stage's chunk",
            "share of the blocks, at least: the first ones, whose activations wait longest"),
    PATH("memory.file", LAYOUT, "", memory.file,
         "folder on a local disk for data offloaded to file: each rank makes a file of the "
         "size it needs there, and removes it at the end"),
    BOOL("memory.overcommit", RUN, "false", train.overcommit,
         "train although the ranks of a machine will take more memory than it has (swap, or pages "
         "that are never touched)"),

    BOOL("memory.check", LAYOUT, "false", memory.check,
         "poison dead values and guard live ones: the error names a value that a layer reads "
         "too late or writes past its end (slow; finds wrong lifetimes)"),

    WORD("comm.transport", LAYOUT, "auto", transports, comm.transport,
         "thread: ranks are threads of this process; mpi: ranks are processes started by mpirun "
         "or srun; auto = mpi if they started the program"),
    INT("comm.bucket_mb", LAYOUT, "25", 1, 65536, comm.bucket_mb,
        "gradients are reduced in buckets of about this many MiB, while the backward still runs"),
    REAL("comm.timeout_s", LAYOUT, "600", 0, 1e6, comm.timeout_s,
         "seconds without progress after which the run ends and names the late rank, also while "
         "it saves; 0 = never"),
    BOOL("comm.check", LAYOUT, "false", comm.check,
         "ranks compare every collective before it starts (slow; finds mismatches)"),

    COUNT("train.steps", RUN, "100", 0, train.steps,
          "planned optimizer steps; 0 = save the initial weights and end"),
    TEXT("train.frozen", RECIPE, "", train.frozen,
         "parameters that do not change, and take no gradient and no optimizer memory: patterns of "
         "their names (wte.*,h.0.*,*.norm_1.weight) with commas between; empty = none"),
    COUNT("train.extend", RUN, "0", 0, train.extend,
          "steps after train.steps, on the same schedule, which from optim.decay_steps on stays at "
          "its minimum (linear, cosine, wsd); the recipe does not change, so a finished run can "
          "resume with them"),
    PATH("train.out", RUN, "", train.out,
         "the run's directory; empty = runs/ and the name of the configuration file"),
    PATH("train.resume", RUN, "never", train.resume,
         "never; auto = from the run's newest checkpoint if there is one; or the path of a "
         "checkpoint, or of a run, for its newest"),
    PATH("train.resume_else", RUN, "", train.resume_else,
         "with train.resume=auto: the path of the checkpoint (or run) to begin from if the run has "
         "none of its own yet (`lockstep launch` sets it to the path that train.resume names); "
         "empty = none"),
    PATH("train.plan", RUN, "", train.plan,
         "cluster file (such as that of lockstep bench machine) for a forecast, with which the "
         "run's steps are compared; empty = ranks are only compared with each other"),
    COUNT("train.save_every", RUN, "0", 0, train.save_every,
          "steps between checkpoints; 0 = only at the end"),
    BOOL("train.save_first", RUN, "false", train.save_first,
         "save the initial weights too, as step 0"),
    COUNT("train.keep", RUN, "2", 1, train.keep, "number of newest checkpoints to keep"),
    BOOL("train.keep_best", RUN, "false", train.keep_best,
         "keep the checkpoint with the lowest validation loss too; checkpoints/best names it"),
    WORD("train.on_nonfinite", RUN, "stop", nonfinites, train.on_nonfinite,
         "if a loss or gradient is not finite: stop the run, or skip that step"),

    COUNT_OR("snapshot.every", RUN, "0", 0, 0x1p60, automatic, snapshot.every,
             "steps between snapshots: checkpoints in the memory of each machine, which outlive "
             "its ranks, and from which checkpoints are written while steps go on; auto = as "
             "often as their measured cost and snapshot.failures say (the default of `lockstep "
             "launch`); 0 = none"),
    REAL("snapshot.failures", RUN, "1.6e-4", 0, 1e3, snapshot.failures,
         "failures an hour of one machine, for snapshot.every=auto"),
    COUNT("snapshot.replicas", RUN, "1", 0, snapshot.replicas,
          "other machines, as far as there are, that get a copy of each file of a snapshot"),
    PATH("snapshot.folder", RUN, "/dev/shm", snapshot.folder,
         "a file system in memory, for snapshots"),

    WORD("checkpoint.async", RUN, "false", auto_or_bool, checkpoint.async,
         "write the checkpoints of train.save_every and train.keep_best while steps go on, from a "
         "copy of the state in memory (with snapshot.every they are written from snapshots): true, "
         "auto = if memory has room for the copy when the run starts and there are no workers, "
         "false = all ranks wait"),
    TEXT("checkpoint.also", RUN, "", checkpoint.also,
         "a second place for checkpoints: a directory, or s3://bucket/prefix with the environment "
         "of AWS's tools; each is copied there while the run goes on; empty = none"),

    COUNT("eval.every", RUN, "0", 0, eval.every,
          "steps between evaluations on data.valid, and one after the last step; 0 = none"),
    COUNT("eval.samples", RUN, "64", 1, eval.samples, "sequences of an evaluation"),

    COUNT("sample.every", RUN, "0", 0, sample.every,
          "steps between samples of generated text; 0 = none"),
    TEXT("sample.prompt", RUN, "", sample.prompt, "what a sample begins with"),
    COUNT("sample.tokens", RUN, "64", 1, sample.tokens, "tokens of a sample"),
    REAL("sample.temperature", RUN, "0.8", 0, 100, sample.temperature,
         "divides the logits; 0 = always the likeliest token"),
    COUNT("sample.top_k", RUN, "0", 0, sample.top_k,
          "draw from this many of the likeliest tokens; 0 = from all"),
    REAL_ABOVE("sample.top_p", RUN, "1", 0, 1, sample.top_p,
               "draw from the likeliest tokens that together have this probability; 1 = from all"),

    INT("rollout.dp", RUN, "0", 0, 65536, rollout.dp,
        "copies of the model among which texts are shared out while Python's run.generate, "
        "logprobs "
        "and score work, on the same ranks as the run; 0 = ranks / (rollout.pp x rollout.tp)"),
    INT("rollout.pp", RUN, "0", 0, 65536, rollout.pp,
        "pipeline-parallel ranks of such a copy; 0 = 1, or the run's layout if no key of this "
        "group is set"),
    INT("rollout.tp", RUN, "0", 0, 65536, rollout.tp,
        "tensor-parallel ranks of such a copy; 0 = 1, or the run's layout if no key of this "
        "group is set"),

    REAL("check.replay", RUN, "0", 0, 1, check.replay,
         "probability with which a step is computed a second time, by other ranks, and compared; "
         "takes twice the memory"),

    COUNT("log.hash_every", RUN, "0", 0, log.hash_every,
          "steps between hashes of the whole state in metrics.jsonl; steps that are saved have "
          "one anyway; 0 = only those"),
    COUNT("log.drift_every", RUN, "20", 0, log.drift_every,
          "steps after which ranks compare their times, and report a slow rank, an unbalanced "
          "stage, a slow link or input wait; 0 = never"),
    BOOL("log.tensorboard", RUN, "true", log.tensorboard, "write TensorBoard events"),
    BOOL("log.trace", RUN, "false", log.trace,
         "write a trace of every step that Perfetto and chrome://tracing show"),
    BOOL("log.profile", RUN, "false", log.profile,
         "measure the ops of every step, and record their seconds by kind in metrics.jsonl; with "
         "log.trace each op is in the trace"),
    WORD("log.progress", RUN, "auto", progresses, log.progress,
         "live: one line, updated in place, on a terminal; plain: a line every five seconds; "
         "off: only hash and paths; auto = live on a terminal, otherwise plain"),
    WORD("log.level", RUN, "info", levels, log.level, "the least urgent kind of messages shown"),

    COUNT("launch.retries", RUN, "3", 0, launch.retries,
          "how often `lockstep launch` starts a job again that fails without getting further"),
    REAL("launch.pause_s", RUN, "5", 0, 600, launch.pause_s,
         "seconds until `lockstep launch` tries a host again that did not answer; the pause "
         "doubles each time, up to ten minutes. Also between starts that fail, from the second in "
         "a row, before the run begins"),
    REAL("launch.slow", RUN, "0", 0, 100, launch.slow,
         "`lockstep launch` leaves a host of which a rank computes so much slower than the others, "
         "and takes layers from a stage that does, if the job is faster then: 0.5 = 50 %; 0 = "
         "never"),
    REAL("launch.deadline_s", RUN, "0", 0, 1e9, launch.deadline_s,
         "seconds from the start of `lockstep launch` in which the job must have saved and ended: "
         "it is asked to in time; 0 = none, but in Slurm the end of the allocation"),
    TEXT("launch.on_event", RUN, "", launch.on_event,
         "a shell command that `lockstep launch` runs for each line of events.jsonl, with the "
         "line on its standard input; it gets 10 seconds"),
    {.name = NULL},
};

enum { TABLE_COUNT = sizeof table / sizeof table[0] - 1 };
_Static_assert((size_t)TABLE_COUNT <= (size_t)LS_CONFIG_KEYS_MAX,
               "LS_CONFIG_KEYS_MAX holds the whole table");

const struct ls_config_key *ls_config_keys(size_t *count)
{
    if (count)
        *count = TABLE_COUNT;
    return table;
}

int ls_config_key_index(const struct ls_config_key *keys, const char *name)
{
    for (int i = 0; keys[i].name; i++)
        if (strcmp(keys[i].name, name) == 0)
            return i;
    return -1;
}

int ls_config_group_index(const struct ls_config_key *keys, const char *name)
{
    size_t length = strlen(name);
    for (int i = 0; keys[i].name; i++)
        if (strncmp(keys[i].name, name, length) == 0 && keys[i].name[length] == '.')
            return i;
    return -1;
}

/* Where a name is in the table, by its hash: its index and 1, or 0. Layouts that are drawn look up
 * millions. */
enum { PLACES = 1024 };
static uint16_t places[PLACES];

static size_t place_of(const char *name)
{
    size_t at = XXH3_64bits(name, strlen(name)) % PLACES;
    while (places[at] && strcmp(table[places[at] - 1].name, name) != 0)
        at = (at + 1) % PLACES;
    return at;
}

static void places_make(void)
{
    _Static_assert(2 * (size_t)TABLE_COUNT <= (size_t)PLACES, "half of the places are free");
    for (int i = 0; i < TABLE_COUNT; i++)
        places[place_of(table[i].name)] = (uint16_t)(i + 1);
}

int config_index(const char *name)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, places_make);
    return places[place_of(name)] - 1;
}

size_t config_names(const char *names[LS_CONFIG_KEYS_MAX])
{
    for (int i = 0; i < TABLE_COUNT; i++)
        names[i] = table[i].name;
    return TABLE_COUNT;
}

/* Presets are the families'. */
static const struct ls_preset *preset_at(int index, enum ls_arch *arch)
{
    for (int a = 0; a < LS_ARCHES; a++) {
        *arch = (enum ls_arch)a;
        for (const struct ls_preset *preset = ls_family_of(*arch)->presets; preset->name; preset++)
            if (index-- == 0)
                return preset;
    }
    return NULL;
}

const char *config_preset(const char *name, enum ls_arch *arch)
{
    const struct ls_preset *preset;
    for (int i = 0; (preset = preset_at(i, arch)); i++)
        if (strcmp(preset->name, name) == 0)
            return preset->keys;
    return NULL;
}

const char *ls_config_preset_name(int index)
{
    enum ls_arch arch;
    const struct ls_preset *preset = preset_at(index, &arch);
    return preset ? preset->name : NULL;
}

int ls_config_preset_check(const char *name, struct ls_error *error)
{
    enum { PRESETS_MAX = 256 };
    const char *names[PRESETS_MAX];
    size_t count = 0;
    enum ls_arch arch;
    if (config_preset(name, &arch))
        return LS_OK;
    while ((names[count] = ls_config_preset_name((int)count)))
        LS_ASSERT(++count < PRESETS_MAX);
    if (*ls_family_lacks(name))
        return ls_error_set(error, LS_ECONFIG, "no such preset%s", ls_family_lacks(name));
    const char *near = ls_nearest(name, names, count);
    return ls_error_set(error, LS_ECONFIG, "no such preset%s",
                        ls_meant(near, " (lockstep train --help-config lists them)").text);
}
