/* torchtitan's keys, row by row (config_manager.py of 2024, job_config.py of 2025, configs.py of
 * 2026), under the sections that they had over time. */
#include "convert/convert_private.h"

#define IMAGES     "it belongs to a model of images", "*image*|*vision*|*pixel*|*: *vision*"
#define PYTHON     "a module of Python is not read", "*python*|*custom_*"
#define COMPILED   "nothing is compiled"
#define ONE_FORMAT "checkpoints have one format, which any layout reads"
#define TRACES     "log.trace has every step"
#define TESTS      "it is for their own tests"

/* A degree had three sections: training, experimental, parallelism. */
#define DEGREE(name, ours)                                                                         \
    READ("parallelism." name "|experimental." name "|training." name, ours, "")

const struct ls_convert_rule convert_torchtitan_rules[] = {
    /* the job */
    DROP("job.description", "a name"),
    READ("job.dump_folder|global.dump_folder", "train.out", ""),
    DROP("job.print_args|job.print_config|job.save_config_*",
         "the resolved config.yaml lies in train.out"),
    DROP("job.config_file", "it names this file"),
    DROP("job.use_for_integration_test", TESTS),
    LOSE("job.custom_config_module|experimental.custom_*", "", PYTHON),
    DROP("experimental.torch_spmd", COMPILED),
    /* the model */
    READ("model.name|model.flavor|hf_transformers.model", "model.preset",
         "the model is what model.flavor, model.preset or model.from says"),
    LOSE("model.norm_type", "rmsnorm|fused_rmsnorm|compiled_rmsnorm",
         "the families that torchtitan has are here with RMSNorm",
         "model.norm*type|llama: layernorm|qwen3: layernorm"),
    COPY("model.vocab_size", "model.vocab", ""),
    READ("model.tokenizer_path|model.hf_assets_path", "data.tokenizer",
         "data.tokenizer is the one of the tokens"),
    READ("model.converters", "", "as it is here"),
    DROP("model.print_after_conversion", ""),
    DROP("model.use_flex_attn", "another program for the same result"),
    READ("model.attn_mask_type", "data.packing", "causal, as here"),
    LOSE("hf_assets_path", "", "give it as model.hf_assets_path", "*hf_assets*"),
    /* data and the batch */
    READ("training.dataset|training.dataset_path", "data.train",
         "nothing is downloaded: data.train names tokens"),
    READ("training.seq_len|training.max_context_length", "data.sequence,model.context", ""),
    READ("training.batch_size|training.local_batch_size", "batch.micro,batch.global", ""),
    READ("training.global_batch_size|training.num_tokens_per_train_step|"
         "training.gradient_accumulation_steps",
         "batch.global", ""),
    READ("training.num_tokens_per_microbatch_per_dp_rank", "batch.micro", ""),
    DROP("training.dataloader.*|dataloader.*", "how fast, not what"),
    /* training */
    COPY("training.steps", "train.steps", ""),
    COPY("training.max_norm", "optim.clip", ""),
    READ("training.seed|debug.seed", "model.seed,data.seed", ""),
    DROP("training.deterministic|debug.deterministic*", "always"),
    DROP("debug.batch_invariant", "no bit depends on the batch's cut"),
    DROP("debug.moe_force_load_balance|training.debug_moe_force_load_balance", EXPERTS),
    DROP("debug.*", TESTS),
    DROP("training.gc_freq|training.gc_debug", "memory is planned ahead"),
    DROP("training.disable_cuda_graphs", "there is no CUDA"),
    DROP("training.compile|compile.*", COMPILED),
    DROP("training.disable_loss_parallel|training.enable_loss_parallel",
         "the loss is always computed on parts"),
    READ("training.enable_cpu_offload",
         "memory.offload.optimizer,memory.offload.gradients,memory.offload.parameters", "off"),
    /* precision */
    READ("training.dtype|training.mixed_precision_param", "numerics.precision", ""),
    READ("training.mixed_precision_reduce", "numerics.reduce,numerics.mode", ""),
    LOSE("training.fp8_linear|training.enable_fp8_linear|training.enable_float8_linear|"
         "float8.enable_float8_linear",
         "false", NO_FP8),
    DROP("training.enable_fsdp_*|training.precompute_float8_*|training.float8_scaling_*", NO_FP8),
    DROP("float8.*", "it takes effect where model.converters names float8"),
    DROP("mx.*", "it takes effect where model.converters names mx"),
    DROP("quantize.*", "it takes effect where model.converters names a quantisation"),
    /* the optimizer and its schedule */
    READ("optimizer.name", "optim.name", ""),
    READ("optimizer.lr", "optim.lr", ""),
    READ("optimizer.beta1", "optim.beta1", ""),
    READ("optimizer.beta2", "optim.beta2", ""),
    READ("optimizer.eps", "optim.epsilon", ""),
    READ("optimizer.weight_decay", "optim.weight_decay", ""),
    DROP("optimizer.implementation|optimizer.fused", "another program for the same update"),
    DROP("optimizer.early_step_in_backward", "when a parameter is updated, not how"),
    READ("lr_scheduler.warmup_steps|training.warmup_steps|training.warmup_pct",
         "optim.warmup_steps", ""),
    READ("lr_scheduler.decay_ratio", "optim.schedule,optim.cooldown_steps",
         "the rate falls from the end of the warm-up, as here"),
    READ("lr_scheduler.decay_type", "optim.schedule", ""),
    READ("lr_scheduler.lr_min|lr_scheduler.min_lr_factor", "optim.min_ratio", ""),
    COPY("lr_scheduler.total_steps", "optim.decay_steps", ""),
    /* parallelism */
    DEGREE("data_parallel_replicate_degree", "parallel.dp_replicate"),
    DEGREE("data_parallel_shard_degree", "parallel.dp_shard"),
    READ("training.data_parallel_degree", "parallel.dp_shard", ""),
    LOSE("training.data_parallel_type", "fsdp", "data parallelism is by shards and copies",
         "parallel.data*type|parallel.ddp*"),
    DEGREE("tensor_parallel_degree", "parallel.tp"),
    DEGREE("pipeline_parallel_degree", "parallel.pp"),
    DEGREE("context_parallel_degree", "parallel.cp"),
    DROP("training.sequence_parallel_degree", "the tensor-parallel degree says it"),
    READ("parallelism.enable_sequence_parallel", "parallel.sp", ""),
    READ("parallelism.context_parallel_rotate_method|"
         "experimental.context_parallel_rotate_method",
         "parallel.cp_method", ""),
    DROP("parallelism.context_parallel_load_balancer|"
         "parallelism.context_parallel_ptrr_mask_key",
         "ranks take an early and a late part"),
    READ("parallelism.fsdp_reshard_after_forward|training.fsdp_reshard_after_forward",
         "parallel.reshard_after_forward", ""),
    DROP("parallelism.enable_fsdp_symm_mem", "there is no CUDA"),
    DROP("parallelism.disable_loss_parallel", "the loss is always computed on parts"),
    READ("parallelism.enable_async_tensor_parallel|"
         "experimental.enable_async_tensor_parallel",
         "parallel.tp_overlap", "off"),
    READ("parallelism.pipeline_parallel_schedule|"
         "experimental.pipeline_parallel_schedule",
         "parallel.schedule", ""),
    READ("parallelism.pipeline_parallel_schedule_csv|"
         "experimental.pipeline_parallel_schedule_csv",
         "parallel.schedule_file", "none"),
    READ("parallelism.pipeline_parallel_microbatch_size", "batch.micro", ""),
    DROP("parallelism.pipeline_parallel_microbatches|"
         "experimental.pipeline_parallel_microbatches",
         "they follow from batch.micro"),
    READ("parallelism.num_pp_microbatches", "batch.global", ""),
    READ("parallelism.pipeline_parallel_split_points|"
         "experimental.pipeline_parallel_split_points",
         "parallel.split", ""),
    DROP("experimental.pipeline_parallel_split_mode", "parallel.split says it"),
    DROP("parallelism.pipeline_parallel_first_stage_less_layers|"
         "parallelism.pipeline_parallel_last_stage_less_layers|"
         "parallelism.pipeline_parallel_layers_per_stage",
         "stages are balanced by cost"),
    DROP("parallelism.module_fqns_per_model_part", "parallel.split says it, in layers"),
    DROP("parallelism.enable_compiled_autograd|experimental.enable_compiled_autograd|"
         "parallelism.spmd_backend|parallelism.full_dtensor",
         COMPILED),
    LOSE("parallelism.expert_parallel_degree|experimental.expert_parallel_degree", "1", EXPERTS),
    DROP("experimental.expert_parallel_mode|parallelism.expert_tensor_parallel_degree|"
         "parallelism.expert_parallel_comm_backend|"
         "parallelism.pipeline_parallel_expert_parallel_overlap|parallelism.hybridep_*",
         EXPERTS),
    /* memory */
    READ("activation_checkpoint.mode", "memory.recompute", ""),
    READ("activation_checkpoint.selective_ac_option", "memory.recompute",
         "with activation_checkpoint.mode"),
    READ("training.enable_selective_ac", "memory.recompute", "off"),
    DROP("activation_checkpoint.*", "which products are kept, not what is computed"),
    DROP("memory_estimation.*|estimate.*", "`lockstep plan memory` shows it"),
    /* checkpoints */
    READ("checkpoint.enable_checkpoint|checkpoint.enable", "train.save_every", ""),
    READ("checkpoint.interval", "train.save_every", "checkpoints are off there unless enabled"),
    READ("checkpoint.interval_type", "train.save_every", "steps, as here"),
    READ("checkpoint.keep_latest_k", "train.keep", "checkpoints are off there unless enabled"),
    DROP("checkpoint.folder|training.checkpoint_folder", "checkpoints go to train.out"),
    COPY("training.checkpoint_interval", "train.save_every", ""),
    DROP("training.checkpoint_interval_type", "steps"),
    READ("checkpoint.enable_first_step_checkpoint|checkpoint.create_seed_checkpoint",
         "train.save_first", "off"),
    READ("checkpoint.load_step", "train.resume", "the newest, as train.resume=auto takes it"),
    READ("checkpoint.initial_load_path", "model.from", "checkpoints are off there unless enabled"),
    READ("checkpoint.initial_load_in_hf", "model.from", "with checkpoint.initial_load_path"),
    DROP("checkpoint.initial_load_*", "with checkpoint.initial_load_path"),
    LOSE("checkpoint.load_only", "false", "a run saves its end",
         "train.load_only|train.save_end|train.no_save*"),
    LOSE("checkpoint.exclude_from_loading", "", WHOLE_STATE),
    DROP("checkpoint.async_mode", "checkpoint.async=auto writes checkpoints beside steps"),
    DROP("checkpoint.enable_ft_dataloader_checkpoints|checkpoint.model_weights_only", ONE_FORMAT),
    DROP("checkpoint.export_dtype|checkpoint.last_save_*",
         "`lockstep export` writes models for other programs"),
    DROP("fault_tolerance.process_group*", "without fault_tolerance.enable it means nothing"),
    LOSE("fault_tolerance.*", "false",
         "steps apart are async.mode here: set it and its keys by hand",
         "*replica_id*|*elastic*|*semi_sync*"),
    /* evaluation */
    READ("validation.enable|validation.enabled", "eval.every", ""),
    READ("validation.dataset|validation.dataset_path", "data.valid", ""),
    READ("validation.freq", "eval.every", "nothing is evaluated"),
    READ("validation.steps|validation.local_batch_size", "eval.samples", "nothing is evaluated"),
    DROP("validation.seq_len", "data.sequence holds"),
    DROP("validation.dataloader.*", "how fast, not what"),
    LOSE("validation.*", "", IMAGES),
    /* records */
    DROP("metrics.log_freq|metrics.*", "metrics.jsonl has every step"),
    COPY("metrics.enable_tensorboard", "log.tensorboard", ""),
    DROP("metrics.save_tb_folder", "events go to train.out"),
    COPY("profiling.enable_profiling|profiling.run_profiler", "log.trace", ""),
    DROP("profiling.enable_memory_snapshot", "`lockstep plan memory` shows it"),
    DROP("profiling.*|profiler.*", TRACES),
    COPY("comm.train_timeout_seconds", "comm.timeout_s", ""),
    DROP("comm.*", "always: comm.timeout_s names the rank that is late"),
    /* other models */
    LOSE("training.classifer_free_guidance_prob|training.classifier_free_guidance_prob|"
         "training.img_size|training.guidance|encoder.*|eval.*|inference.*|data.*",
         "", IMAGES),
    {0},
};
