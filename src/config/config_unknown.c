/* What was meant by a key that does not exist: its name elsewhere, another group, a slip. */
#include "config/config_private.h"

#include <ctype.h>
#include <string.h>

/* Names that PyTorch, Hugging Face, Megatron-LM, DeepSpeed, torchtitan and nanoGPT have for our
 * keys, in lower case with underscores, as in their files, flags and function arguments. A note
 * stands where the value means something else too. */
static const struct alias {
    const char *theirs, *ours, *note;
} aliases[] = {
    {"model_type", "model.arch", NULL},
    {"architecture", "model.arch", NULL},
    {"vocab_size", "model.vocab", NULL},
    {"padded_vocab_size", "model.vocab", NULL},
    {"make_vocab_size_divisible_by", "model.vocab_multiple", NULL},
    {"n_layer", "model.layers", NULL},
    {"n_layers", "model.layers", NULL},
    {"num_layers", "model.layers", NULL},
    {"num_hidden_layers", "model.layers", NULL},
    {"depth", "model.layers", NULL},
    {"n_embd", "model.channels", NULL},
    {"dim", "model.channels", NULL},
    {"d_model", "model.channels", NULL},
    {"embed_dim", "model.channels", NULL},
    {"hidden_size", "model.channels", NULL},
    {"n_head", "model.heads", NULL},
    {"n_heads", "model.heads", NULL},
    {"num_heads", "model.heads", NULL},
    {"num_attention_heads", "model.heads", NULL},
    {"n_kv_head", "model.kv_heads", NULL},
    {"n_kv_heads", "model.kv_heads", NULL},
    {"num_key_value_heads", "model.kv_heads", NULL},
    {"num_query_groups", "model.kv_heads", NULL},
    {"kv_channels", "model.head_dim", NULL},
    {"head_size", "model.head_dim", NULL},
    {"n_inner", "model.ffn", NULL},
    {"ffn_hidden_size", "model.ffn", NULL},
    {"intermediate_size", "model.ffn", NULL},
    {"block_size", "model.context", NULL},
    {"n_ctx", "model.context", NULL},
    {"n_positions", "model.context", NULL},
    {"context_length", "model.context", NULL},
    {"max_position_embeddings", "model.context", NULL},
    {"tie_word_embeddings", "model.tied", NULL},
    {"tie_embeddings", "model.tied", NULL},
    {"untie_embeddings_and_output_weights", "model.tied", "false here means true there"},
    {"add_bias_linear", "model.bias", NULL},
    {"activation_function", "model.activation", NULL},
    {"hidden_act", "model.activation", NULL},
    {"norm_eps", "model.norm_epsilon", NULL},
    {"rms_norm_eps", "model.norm_epsilon", NULL},
    {"layer_norm_eps", "model.norm_epsilon", NULL},
    {"layer_norm_epsilon", "model.norm_epsilon", NULL},
    {"rope_base", "model.rope_theta", NULL},
    {"rotary_base", "model.rope_theta", NULL},
    {"hidden_dropout", "model.dropout", NULL},
    {"attention_dropout", "model.dropout", NULL},
    {"attn_pdrop", "model.dropout", NULL},
    {"resid_pdrop", "model.dropout", NULL},
    {"init_method_std", "model.init_std", NULL},
    {"initializer_range", "model.init_std", NULL},
    {"seq_len", "data.sequence", NULL},
    {"seq_length", "data.sequence", NULL},
    {"sequence_length", "data.sequence", NULL},
    {"max_seq_len", "data.sequence", NULL},
    {"max_seq_length", "data.sequence", NULL},
    {"sample_packing", "data.packing", "documents, where it is true there"},
    {"data_path", "data.train", NULL},
    {"dataset", "data.train", NULL},
    {"train_file", "data.train", NULL},
    {"train_data_path", "data.train", NULL},
    {"validation_file", "data.valid", NULL},
    {"valid_data_path", "data.valid", NULL},
    {"tokenizer_name", "data.tokenizer", NULL},
    {"tokenizer_model", "data.tokenizer", NULL},
    {"tokenizer_path", "data.tokenizer", NULL},
    {"tokenizer_type", "data.tokenizer", NULL},
    {"batch_size", "batch.global", "sequences of one step, over all ranks"},
    {"global_batch_size", "batch.global", NULL},
    {"train_batch_size", "batch.global", NULL},
    {"total_batch_size", "batch.global", "sequences, not tokens"},
    {"micro_batch_size", "batch.micro", NULL},
    {"local_batch_size", "batch.micro", NULL},
    {"per_device_train_batch_size", "batch.micro", NULL},
    {"train_micro_batch_size_per_gpu", "batch.micro", NULL},
    {"gradient_accumulation_steps", "batch.micro", "the steps follow from batch.global and it"},
    {"rampup_batch_size", "batch.rampup_start", NULL},
    {"optimizer", "optim.name", NULL},
    {"optimizer_type", "optim.name", NULL},
    {"learning_rate", "optim.lr", NULL},
    {"max_lr", "optim.lr", NULL},
    {"wd", "optim.weight_decay", NULL},
    {"adam_beta1", "optim.beta1", NULL},
    {"adam_beta2", "optim.beta2", NULL},
    {"betas", "optim.beta1", "and optim.beta2"},
    {"eps", "optim.epsilon", NULL},
    {"adam_eps", "optim.epsilon", NULL},
    {"adam_epsilon", "optim.epsilon", NULL},
    {"sgd_momentum", "optim.momentum", NULL},
    {"muon_momentum", "optim.momentum", NULL},
    {"muon_num_ns_steps", "optim.ns_steps", NULL},
    {"adjust_lr_fn", "optim.muon_scale", NULL},
    {"exp_avg_dtype", "optim.moments", NULL},
    {"exp_avg_sq_dtype", "optim.moments", NULL},
    {"grad_clip", "optim.clip", NULL},
    {"clip_grad", "optim.clip", NULL},
    {"max_norm", "optim.clip", NULL},
    {"max_grad_norm", "optim.clip", NULL},
    {"gradient_clipping", "optim.clip", NULL},
    {"lr_scheduler", "optim.schedule", NULL},
    {"lr_scheduler_type", "optim.schedule", NULL},
    {"lr_decay_style", "optim.schedule", NULL},
    {"scheduler", "optim.schedule", NULL},
    {"warmup", "optim.warmup_steps", NULL},
    {"warmup_iters", "optim.warmup_steps", NULL},
    {"num_warmup_steps", "optim.warmup_steps", NULL},
    {"lr_warmup_iters", "optim.warmup_steps", NULL},
    {"warmup_ratio", "optim.warmup_steps", "steps, not a share of them"},
    {"lr_decay_iters", "optim.decay_steps", NULL},
    {"min_lr", "optim.min_ratio", "a share of optim.lr, not a rate"},
    {"lr_wsd_decay_iters", "optim.cooldown_steps", NULL},
    {"dtype", "numerics.precision", NULL},
    {"torch_dtype", "numerics.precision", NULL},
    {"mixed_precision", "numerics.precision", NULL},
    {"bf16", "numerics.precision", "set it to bf16"},
    {"fp16", "numerics.precision", "set it to fp16"},
    {"initial_loss_scale", "numerics.initial_scale_power", "its power of two"},
    {"init_scale", "numerics.initial_scale_power", "its power of two"},
    {"growth_interval", "numerics.loss_scale_window", NULL},
    {"fp32", "numerics.precision", "set it to fp32"},
    {"grad_reduce_in_fp32", "numerics.reduce", NULL},
    {"pp_size", "parallel.pp", NULL},
    {"pipeline_parallel", "parallel.pp", NULL},
    {"pipeline_parallel_size", "parallel.pp", NULL},
    {"pipeline_parallel_degree", "parallel.pp", NULL},
    {"pipeline_model_parallel_size", "parallel.pp", NULL},
    {"tp_size", "parallel.tp", NULL},
    {"tensor_parallel", "parallel.tp", NULL},
    {"tensor_parallel_size", "parallel.tp", NULL},
    {"tensor_parallel_degree", "parallel.tp", NULL},
    {"tensor_model_parallel_size", "parallel.tp", NULL},
    {"model_parallel_size", "parallel.tp", NULL},
    {"cp_size", "parallel.cp", NULL},
    {"context_parallel", "parallel.cp", NULL},
    {"context_parallel_size", "parallel.cp", NULL},
    {"context_parallel_degree", "parallel.cp", NULL},
    {"dp_size", "parallel.dp", NULL},
    {"data_parallel", "parallel.dp", NULL},
    {"data_parallel_size", "parallel.dp", NULL},
    {"data_parallel_degree", "parallel.dp", NULL},
    {"world_size", "parallel.dp", "ranks are pp x dp x cp x tp"},
    {"data_parallel_shard_degree", "parallel.dp_shard", NULL},
    {"fsdp", "parallel.dp_shard", "with parallel.zero = 3"},
    {"data_parallel_replicate_degree", "parallel.dp_replicate", NULL},
    {"ddp", "parallel.dp_replicate", NULL},
    {"sequence_parallel", "parallel.sp", NULL},
    {"zero_stage", "parallel.zero", NULL},
    {"zero_optimization", "parallel.zero", "0 to 3"},
    {"use_distributed_optimizer", "parallel.zero", "1"},
    {"pipeline_schedule", "parallel.schedule", NULL},
    {"pipeline_parallel_schedule", "parallel.schedule", NULL},
    {"pipeline_parallel_schedule_csv", "parallel.schedule_file", NULL},
    {"virtual_pipeline_model_parallel_size", "parallel.chunks", NULL},
    {"num_layers_per_virtual_pipeline_stage", "parallel.chunks", "chunks, not layers of one"},
    {"stage3_param_persistence_threshold", "parallel.persist", NULL},
    {"param_persistence_threshold", "parallel.persist", NULL},
    {"fsdp_reshard_after_forward", "parallel.reshard_after_forward", NULL},
    {"gradient_checkpointing", "memory.recompute", "full"},
    {"activation_checkpointing", "memory.recompute", "full"},
    {"activation_checkpoint", "memory.recompute", "full or selective"},
    {"recompute_activations", "memory.recompute", "selective"},
    {"recompute_granularity", "memory.recompute", "full or selective"},
    {"recompute_num_layers", "memory.recompute", "every:K"},
    {"distribute_saved_activations", "memory.partition_activations", NULL},
    {"offload_optimizer", "memory.offload.optimizer", "host or file; updates run on the device"},
    {"optimizer_cpu_offload", "memory.offload.optimizer", "host; updates run on the device"},
    {"optimizer_offload_fraction", "memory.offload.optimizer_ratio", NULL},
    {"offload_param", "memory.offload.parameters",
     "host or file; over several ranks with "
     "parallel.zero=3"},
    {"cpu_offload", "memory.offload.optimizer",
     "and memory.offload.gradients, memory.offload.parameters"},
    {"enable_cpu_offload", "memory.offload.optimizer",
     "and memory.offload.gradients, memory.offload.parameters"},
    {"cpu_checkpointing", "memory.offload.activations", "host, beside memory.recompute"},
    {"cpu_offloading", "memory.offload.activations", "host"},
    {"cpu_offloading_num_layers", "memory.offload.activations_ratio", "a share of the blocks"},
    {"enable_activation_offloading", "memory.offload.activations", "host"},
    {"nvme_path", "memory.file", NULL},
    {"num_threads", "parallel.threads", NULL},
    {"omp_num_threads", "parallel.threads", NULL},
    {"backend", "comm.transport", NULL},
    {"bucket_cap_mb", "comm.bucket_mb", NULL},
    {"bucket_size_mb", "comm.bucket_mb", NULL},
    {"reduce_bucket_size", "comm.bucket_mb", "MiB, not elements"},
    {"timeout", "comm.timeout_s", "in seconds"},
    {"distributed_timeout_minutes", "comm.timeout_s", "in seconds"},
    {"max_steps", "train.steps", NULL},
    {"max_iters", "train.steps", NULL},
    {"train_iters", "train.steps", NULL},
    {"num_steps", "train.steps", NULL},
    {"num_iterations", "train.steps", NULL},
    {"training_steps", "train.steps", NULL},
    {"epochs", "train.steps", "steps: an epoch is tokens / (batch.global x data.sequence)"},
    {"num_epochs", "train.steps", "steps: an epoch is tokens / (batch.global x data.sequence)"},
    {"num_train_epochs", "train.steps",
     "steps: an epoch is tokens / (batch.global x data.sequence)"},
    {"out_dir", "train.out", NULL},
    {"output_dir", "train.out", NULL},
    {"save_dir", "train.out", NULL},
    {"checkpoint_dir", "train.out", NULL},
    {"load", "train.resume", NULL},
    {"init_from", "train.resume", NULL},
    {"resume_from_checkpoint", "train.resume", NULL},
    {"save_steps", "train.save_every", NULL},
    {"save_interval", "train.save_every", NULL},
    {"checkpoint_interval", "train.save_every", NULL},
    {"save_total_limit", "train.keep", NULL},
    {"keep_latest_k", "train.keep", NULL},
    {"eval_steps", "eval.every", NULL},
    {"eval_interval", "eval.every", NULL},
    {"val_loss_every", "eval.every", NULL},
    {"eval_iters", "eval.samples", "sequences, not batches"},
    {"max_new_tokens", "sample.tokens", NULL},
    {"enable_tensorboard", "log.tensorboard", NULL},
    {"tensorboard_dir", "log.tensorboard", "true or false; they go to train.out"},
    {"profiler", "log.trace", "log.profile measures ops by kind"},
    {"log_level", "log.level", NULL},
};

bool config_alias(size_t index, const char **theirs, const char **ours)
{
    if (index >= sizeof aliases / sizeof aliases[0])
        return false;
    *theirs = aliases[index].theirs;
    *ours = aliases[index].ours;
    return true;
}

/* The part behind the last dot. */
static const char *leaf_of(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

/* Learning-Rate and learning_rate are one name. */
static void normalise(const char *name, char *out, size_t bytes)
{
    size_t i = 0;
    for (; name[i] && i + 1 < bytes; i++)
        out[i] = name[i] == '-' ? '_' : (char)tolower((unsigned char)name[i]);
    out[i] = '\0';
}

/* "optim.lr" or "model.seed or data.seed": keys whose part behind the dot is this word. */
static bool same_leaf(const char *word, char *text, size_t bytes)
{
    size_t used = 0;
    for (const struct ls_config_key *key = ls_config_keys(NULL); key->name && used < bytes; key++)
        if (strcmp(leaf_of(key->name), word) == 0)
            used +=
                (size_t)snprintf(text + used, bytes - used, "%s%s", used ? " or " : "", key->name);
    return used > 0;
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

void config_unknown(const char *name, char *text, size_t bytes)
{
    char word[64], near[256];
    normalise(leaf_of(name), word, sizeof word);
    for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++)
        if (strcmp(aliases[i].theirs, word) == 0) {
            snprintf(text, bytes, "unknown key %s; did you mean %s?%s%s%s", name, aliases[i].ours,
                     aliases[i].note ? " (" : "", aliases[i].note ? aliases[i].note : "",
                     aliases[i].note ? ")" : "");
            return;
        }
    const char *spelling = nearest_spelling(name);
    if (same_leaf(word, near, sizeof near))
        spelling = near;
    snprintf(text, bytes, "unknown key %s%s%s%s", name, spelling ? "; did you mean " : "",
             spelling ? spelling : "",
             spelling ? "?" : " (lockstep train --help-config lists all)");
}
