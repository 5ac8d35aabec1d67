/* What was meant by a key that does not exist: its name elsewhere, another group, a slip. */
#include "config/config_private.h"

#include <lockstep/base/key.h>

#include <ctype.h>
#include <string.h>

/* Names that PyTorch, Hugging Face, Megatron-LM, DeepSpeed, torchtitan and nanoGPT have for our
 * keys, in lower case with underscores, as in their files, flags and function arguments. A note
 * stands where the value means something else too. */
static const struct alias {
    const char *ours, *theirs, *note; /* theirs: names with | between */
} aliases[] = {
    {"model.arch", "model_type|architecture", NULL},
    {"model.vocab", "vocab_size|padded_vocab_size", NULL},
    {"model.vocab_multiple", "make_vocab_size_divisible_by", NULL},
    {"model.from",
     "model_name_or_path|pretrained_model_name_or_path|model_name|base_model|hf_model|pretrained|"
     "pretrained_checkpoint|initial_load_path",
     "a folder on the disk"},
    {"model.layers", "n_layer|n_layers|num_layers|num_hidden_layers|depth", NULL},
    {"model.channels", "n_embd|dim|d_model|embed_dim|hidden_size", NULL},
    {"model.heads", "n_head|n_heads|num_heads|num_attention_heads", NULL},
    {"model.kv_heads", "n_kv_head|n_kv_heads|num_key_value_heads|num_query_groups", NULL},
    {"model.head_dim", "kv_channels|head_size", NULL},
    {"model.ffn", "n_inner|ffn_hidden_size|intermediate_size", NULL},
    {"model.context", "block_size|n_ctx|n_positions|context_length|max_position_embeddings", NULL},
    {"model.tied", "tie_word_embeddings|tie_embeddings", NULL},
    {"model.tied", "untie_embeddings_and_output_weights", "false here means true there"},
    {"model.bias", "add_bias_linear", NULL},
    {"model.activation", "activation_function|hidden_act", NULL},
    {"model.norm_epsilon", "norm_eps|rms_norm_eps|layer_norm_eps|layer_norm_epsilon", NULL},
    {"model.rope_theta", "rope_base|rotary_base", NULL},
    {"model.dropout", "hidden_dropout|attention_dropout|attn_pdrop|resid_pdrop", NULL},
    {"model.init_std", "init_method_std|initializer_range", NULL},
    {"data.sequence", "seq_len|seq_length|sequence_length|max_seq_len|max_seq_length", NULL},
    {"data.packing", "sample_packing", "documents, where it is true there"},
    {"data.train", "data_path|dataset|train_file|train_data_path", NULL},
    {"data.blend", "data_blend|datasets|data_mix|mixture|streams|train_data_weights", NULL},
    {"data.valid", "validation_file|valid_data_path", NULL},
    {"data.tokenizer", "tokenizer_name|tokenizer_model|tokenizer_path|tokenizer_type", NULL},
    {"batch.global", "batch_size", "sequences of one step, over all ranks"},
    {"batch.global", "global_batch_size|train_batch_size", NULL},
    {"batch.global", "total_batch_size", "sequences, not tokens"},
    {"batch.micro",
     "micro_batch_size|local_batch_size|per_device_train_batch_size|train_micro_batch_size_per_gpu",
     NULL},
    {"batch.micro",
     "gradient_accumulation_steps|gradient_accumulation|grad_accum_steps|accumulate_grad_batches",
     "the steps follow from batch.global and it"},
    {"batch.rampup_start", "rampup_batch_size", NULL},
    {"optim.name", "optimizer|optimizer_type", NULL},
    {"optim.lr", "learning_rate|max_lr", NULL},
    {"optim.weight_decay", "wd", NULL},
    {"optim.beta1", "adam_beta1", NULL},
    {"optim.beta1", "betas", "and optim.beta2"},
    {"optim.beta2", "adam_beta2", NULL},
    {"optim.epsilon", "eps|adam_eps|adam_epsilon", NULL},
    {"optim.momentum", "sgd_momentum|muon_momentum", NULL},
    {"optim.ns_steps", "muon_num_ns_steps", NULL},
    {"optim.muon_scale", "adjust_lr_fn", NULL},
    {"optim.moments", "exp_avg_dtype|exp_avg_sq_dtype", NULL},
    {"optim.clip", "grad_clip|clip_grad|max_norm|max_grad_norm|gradient_clipping", NULL},
    {"optim.schedule", "lr_scheduler|lr_scheduler_type|lr_decay_style|scheduler", NULL},
    {"optim.warmup_steps", "warmup|warmup_iters|num_warmup_steps|lr_warmup_iters", NULL},
    {"optim.warmup_steps", "warmup_ratio|warmup_fraction|lr_warmup_fraction",
     "steps, not a share of them"},
    {"optim.decay_steps", "lr_decay_iters", NULL},
    {"optim.min_ratio", "min_lr", "a share of optim.lr, not a rate"},
    {"optim.cooldown_steps", "lr_wsd_decay_iters", NULL},
    {"numerics.precision", "dtype|torch_dtype|mixed_precision", NULL},
    {"numerics.precision", "bf16", "set it to bf16"},
    {"numerics.precision", "fp16", "set it to fp16"},
    {"numerics.precision", "fp32", "set it to fp32"},
    {"numerics.initial_scale_power", "initial_loss_scale|init_scale", "its power of two"},
    {"numerics.loss_scale_window", "growth_interval", NULL},
    {"numerics.reduce", "grad_reduce_in_fp32", NULL},
    {"parallel.pp",
     "pp_size|pipeline_parallel|pipeline_parallel_size|pipeline_parallel_degree|"
     "pipeline_model_parallel_size",
     NULL},
    {"parallel.tp",
     "tp_size|tensor_parallel|tensor_parallel_size|tensor_parallel_degree|"
     "tensor_model_parallel_size|model_parallel_size",
     NULL},
    {"parallel.cp", "cp_size|context_parallel|context_parallel_size|context_parallel_degree", NULL},
    {"parallel.dp", "dp_size|data_parallel|data_parallel_size|data_parallel_degree", NULL},
    {"parallel.dp", "world_size|ranks|nproc_per_node|nnodes", "ranks are pp x dp x cp x tp"},
    {"parallel.dp_shard", "data_parallel_shard_degree", NULL},
    {"parallel.dp_shard", "fsdp", "with parallel.zero = 3"},
    {"parallel.dp_replicate", "data_parallel_replicate_degree|ddp", NULL},
    {"parallel.sp", "sequence_parallel", NULL},
    {"parallel.zero", "zero_stage", NULL},
    {"parallel.zero", "zero_optimization", "0 to 3"},
    {"parallel.zero", "use_distributed_optimizer", "1"},
    {"parallel.schedule", "pipeline_schedule|pipeline_parallel_schedule", NULL},
    {"parallel.schedule_file", "pipeline_parallel_schedule_csv", NULL},
    {"parallel.chunks", "virtual_pipeline_model_parallel_size|vpp|vpp_size", NULL},
    {"parallel.chunks", "num_layers_per_virtual_pipeline_stage", "chunks, not layers of one"},
    {"parallel.persist", "stage3_param_persistence_threshold|param_persistence_threshold", NULL},
    {"parallel.reshard_after_forward", "fsdp_reshard_after_forward", NULL},
    {"memory.recompute", "gradient_checkpointing|activation_checkpointing", "full"},
    {"memory.recompute", "activation_checkpoint|recompute_granularity", "full or selective"},
    {"memory.recompute", "recompute_activations", "selective"},
    {"memory.recompute", "recompute_num_layers", "every:K"},
    {"memory.partition_activations", "distribute_saved_activations", NULL},
    {"memory.offload.optimizer", "offload_optimizer", "host or file; updates run on the device"},
    {"memory.offload.optimizer", "optimizer_cpu_offload", "host; updates run on the device"},
    {"memory.offload.optimizer", "cpu_offload|enable_cpu_offload",
     "and memory.offload.gradients, memory.offload.parameters"},
    {"memory.offload.optimizer_ratio", "optimizer_offload_fraction", NULL},
    {"memory.offload.parameters", "offload_param",
     "host or file; over several ranks with parallel.zero=3"},
    {"memory.offload.activations", "cpu_checkpointing", "host, beside memory.recompute"},
    {"memory.offload.activations", "cpu_offloading|enable_activation_offloading", "host"},
    {"memory.offload.activations_ratio", "cpu_offloading_num_layers", "a share of the blocks"},
    {"memory.file", "nvme_path", NULL},
    {"parallel.threads", "num_threads|omp_num_threads", NULL},
    {"comm.transport", "backend", NULL},
    {"comm.bucket_mb", "bucket_cap_mb|bucket_size_mb", NULL},
    {"comm.bucket_mb", "reduce_bucket_size", "MiB, not elements"},
    {"comm.timeout_s", "timeout|distributed_timeout_minutes", "in seconds"},
    {"lora.rank", "r|lora_r|lora_rank|use_lora|use_peft|peft", NULL},
    {"lora.alpha", "lora_alpha", NULL},
    {"lora.targets", "target_modules|lora_target_modules", NULL},
    {"lora.base", "load_in_4bit|use_4bit", "set it to nf4"},
    {"lora.base", "load_in_8bit", "set it to int8"},
    {"train.steps", "max_steps|max_iters|train_iters|num_steps|num_iterations|training_steps",
     NULL},
    {"train.steps", "epochs|num_epochs|num_train_epochs",
     "steps: an epoch is tokens / (batch.global x data.sequence)"},
    {"train.out", "out_dir|output_dir|save_dir|checkpoint_dir", NULL},
    {"train.resume", "load|init_from|resume_from_checkpoint", NULL},
    {"train.save_every", "save_steps|save_interval|checkpoint_interval", NULL},
    {"train.keep", "save_total_limit|keep_latest_k", NULL},
    {"checkpoint.async", "async_save|async_mode", NULL},
    {"eval.every", "eval_steps|eval_interval|val_loss_every", NULL},
    {"eval.samples", "eval_iters", "sequences, not batches"},
    {"sample.tokens", "max_new_tokens", NULL},
    {"log.tensorboard", "enable_tensorboard", NULL},
    {"log.tensorboard", "tensorboard_dir", "true or false; they go to train.out"},
    {"log.trace", "profiler", "log.profile measures ops by kind, and with log.trace one by one"},
    {"log.level", "log_level", NULL},
    {"memory.device_budget", "memory_limit|memory_budget|gpu_memory|device_memory", NULL},
};

/* What has no key here, and why. */
static const struct absent {
    const char *theirs, *why;
} absents[] = {
    {"ep|ep_size|expert|experts|num_experts|n_experts|num_local_experts|expert_parallel|"
     "expert_parallel_size|expert_parallel_degree|expert_model_parallel_size|moe",
     "models with experts are not supported"},
    {"fp8|float8|use_fp8|enable_fp8|fp4|mxfp8", "training is in fp32, bf16 or fp16"},
    {"device|devices|cuda|gpus|num_gpus|n_gpu|use_cuda|accelerator",
     "there are only CPUs; ranks and their threads are keys of the group parallel"},
    {"compile|torch_compile|attn_implementation|use_flash_attn|flash_attention|"
     "use_flash_attention_2|attention_backend",
     "nothing is compiled or chosen: attention never makes its whole matrix of scores"},
    {"logging_steps|log_interval|logging_interval|log_every|log_freq",
     "metrics.jsonl has every step"},
    {"lora_dropout", "adapters have no dropout"},
    {"wandb|use_wandb|wandb_log|wandb_project|report_to|mlflow",
     "records go to train.out: metrics.jsonl, metrics.prom, and for log.tensorboard events"},
};

bool config_alias(size_t index, char theirs[CONFIG_ALIAS_BYTES], const char **ours)
{
    const char *word;
    size_t length;
    for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++)
        for (const char *list = aliases[i].theirs; ls_word_next(&list, &word, &length);)
            if (index-- == 0) {
                snprintf(theirs, CONFIG_ALIAS_BYTES, "%.*s", (int)length, word);
                *ours = aliases[i].ours;
                return true;
            }
    return false;
}

/* The part behind the last dot. */
static const char *leaf_of(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

/* Learning-Rate and learning_rate are one name, and so are batch.size and batch_size. */
static void normalise(const char *name, char *out, size_t bytes)
{
    size_t i = 0;
    for (; name[i] && i + 1 < bytes; i++)
        out[i] = name[i] == '-' || name[i] == '.' ? '_' : (char)tolower((unsigned char)name[i]);
    out[i] = '\0';
}

/* "optim.lr" or "model.seed or data.seed": keys whose part behind the dot is this word. */
static bool same_leaf(const char *word, char *text, size_t bytes)
{
    text[0] = '\0';
    for (const struct ls_config_key *key = ls_config_keys(NULL); key->name; key++)
        if (strcmp(leaf_of(key->name), word) == 0)
            ls_string_add(text, bytes, " or ", "%s", key->name);
    return *text;
}

/* The key of the nearest spelling; in the group that was given, if that group exists, since the
 * group's letters would hide that the rest is another word. */
static const char *nearest_spelling(const char *name)
{
    const char *names[LS_CONFIG_KEYS_MAX], *leaves[LS_CONFIG_KEYS_MAX];
    const char *of_group[LS_CONFIG_KEYS_MAX];
    size_t count = config_names(names), members = 0;
    size_t group = (size_t)(leaf_of(name) - name);
    for (size_t i = 0; i < count; i++) {
        leaves[i] = leaf_of(names[i]);
        if (group && strncmp(names[i], name, group) == 0 && leaves[i] == names[i] + group)
            of_group[members++] = leaves[i];
    }
    const char *near = members ? ls_nearest(name + group, of_group, members)
                               : ls_nearest(leaf_of(name), leaves, count);
    if (!near)
        return NULL;
    for (size_t i = 0; i < count; i++)
        if (leaves[i] == near)
            return names[i];
    return NULL;
}

/* By the part behind the dot; else batch.size is batch_size. NULL: nobody's. */
static const struct alias *alias_of(const char *name, const char *leaf)
{
    char joined[64];
    normalise(name, joined, sizeof joined);
    const char *words[] = {leaf, joined};
    for (size_t w = 0; w < 2; w++)
        for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++)
            if (ls_word_among(aliases[i].theirs, words[w]))
                return &aliases[i];
    return NULL;
}

/* "unknown key batch: a group of keys, such as batch.global"; false if it is none. */
static bool group_say(const char *name, char *text, size_t bytes)
{
    size_t length = strlen(name);
    for (const struct ls_config_key *key = ls_config_keys(NULL); length && key->name; key++)
        if (strncmp(key->name, name, length) == 0 && key->name[length] == '.') {
            snprintf(text, bytes, "unknown key %s: a group of keys, such as %s", name, key->name);
            return true;
        }
    return false;
}

/* "unknown key optim.learning_rate; did you mean optim.lr?" */
static void unknown_say(const char *name, char *text, size_t bytes)
{
    char word[64], near[256];
    if (strpbrk(name, " \t")) {
        snprintf(text, bytes,
                 "unknown key \"%s\": expected no blank in it, and none around =", name);
        return;
    }
    if (group_say(name, text, bytes))
        return;
    normalise(leaf_of(name), word, sizeof word);
    const struct alias *alias = alias_of(name, word);
    if (alias) {
        snprintf(text, bytes, "unknown key %s; did you mean %s?%s%s%s", name, alias->ours,
                 alias->note ? " (" : "", alias->note ? alias->note : "", alias->note ? ")" : "");
        return;
    }
    for (size_t i = 0; i < sizeof absents / sizeof absents[0]; i++)
        if (ls_word_among(absents[i].theirs, word)) {
            snprintf(text, bytes, "unknown key %s: %s", name, absents[i].why);
            return;
        }
    const char *spelling = nearest_spelling(name);
    if (same_leaf(word, near, sizeof near))
        spelling = near;
    snprintf(text, bytes, "unknown key %s%s", name,
             ls_meant(spelling, " (lockstep train --help-config lists all)").text);
}

int config_unknown(const char *name, struct ls_error *error)
{
    char text[512];
    unknown_say(name, text, sizeof text);
    ls_error_set(error, LS_ECONFIG, "%s", text);
    ls_error_about(error, name, 0);
    return LS_ECONFIG;
}
