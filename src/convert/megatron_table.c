/* Megatron-LM's arguments, row by row (megatron/training/arguments.py, 2019 to 2026), and those of
 * the launchers before it. Tables are grouped as its arguments are. */
#include "convert/convert_private.h"

#define TOKENS    "tokens are made before: `lockstep data prepare`"
#define ENCODERS  "no family has an encoder and a decoder", "*encoder*|*: *cross*"
#define IMAGES    "no family reads images", "*image*|*vision*|*pixel*"
#define RETRIEVAL "there is no BERT, and no retrieval", "*bert*|*retriev*|*retro*"
#define STATE_SPACE                                                                                \
    "no family has a state space, or linear attention",                                            \
        "*mamba*|*ssm*|*hybrid*|*: *scan*|*: *delta*rule*|*: *delta*net*"
#define LATENT         "no family has latent or sparse attention", "*latent*|*mla*|*sparse*"
#define STREAMS        "no family has several residual streams", "*hyper*|*mhc*|*streams*"
#define MUP            "there is no muP", "*.mup*|*_mup"
#define GLU            "its activation is none of model.activation", "model.*clamp*|model.*offset*"
#define RELU           "its activation is none of model.activation", "model.activation=*relu*"
#define CONSTANT_DECAY "weight decay is constant", "optim.weight_decay_*|optim.*decay_style"
#define ONE_RATE                                                                                   \
    "all parameters have one rate, but for Muon", "optim.head*|optim.embed*|optim.*decoupled*"
#define WRITE_OUT    "write what the file says as arguments", "*args_path*"
#define NO_INFERENCE "`lockstep generate` has options of its own; training does not ask for it"
#define ONE_FORMAT   "checkpoints have one format, which any layout reads"
#define YARN         "has a meaning with --position-embedding-type yarn"
#define LOSS         "the loss is computed in fp32", "numerics.*logit*|numerics.*loss_type*"
#define DISTILLED    "there is no distillation", "*distil*"
#define FUSED        "another program for the same result"
#define SPEED        "how fast, not what"
#define RECORDS      "metrics.jsonl has every step"

const struct ls_convert_rule convert_megatron_rules[] = {
    /* the launcher */
    READ("--nproc-per-node", "parallel.dp", "the ranks are this times --nnodes"),
    READ("--nnodes", "parallel.dp", "the ranks are this times --nproc-per-node"),
    DROP("--nproc|--node-rank|--master-addr|--master-port|--rdzv-*|--standalone|--tee|"
         "--redirects|--log-dir|--max-restarts|--local-rank|--local-ranks-filter",
         "the launcher's"),
    /* the program */
    LOSE("pretrain_bert.py|pretrain_ict.py|pretrain_retro.py", "", RETRIEVAL),
    LOSE("pretrain_t5.py", "", ENCODERS),
    LOSE("pretrain_vlm.py|pretrain_mimo.py|pretrain_vision_classify.py|pretrain_vision_dino.py|"
         "pretrain_vision_inpaint.py",
         "", IMAGES),
    LOSE("pretrain_mamba.py|pretrain_hybrid.py", "", STATE_SPACE),
    LOSE("pretrain_prefix_lm.py", "", "attention is causal for every token",
         "model.*prefix*|data.*prefix*"),
    LOSE("evaluate.py|evaluate_gpt.py|generate_samples_gpt.py|run_text_generation_server.py|"
         "gpt_dynamic_inference.py|gpt_static_inference.py",
         "", "this trains nothing: `lockstep eval` and `lockstep generate` take a trained model",
         "train.no_train*|train.*eval_only*"),
    /* the model */
    COPY("--num-layers|--encoder-num-layers", "model.layers", ""),
    LOSE("--decoder-num-layers|--decoder-seq-length", "", ENCODERS),
    COPY("--hidden-size", "model.channels", ""),
    READ("--ffn-hidden-size", "model.ffn", ""),
    COPY("--num-attention-heads", "model.heads", ""),
    READ("--group-query-attention", "model.kv_heads", ""),
    READ("--num-query-groups", "model.kv_heads", "has a meaning with --group-query-attention"),
    COPY("--num-key-value-heads", "model.kv_heads", ""),
    COPY("--kv-channels", "model.head_dim", ""),
    READ("--max-position-embeddings", "model.context", ""),
    READ("--seq-length|--encoder-seq-length", "data.sequence", ""),
    READ("--position-embedding-type|--use-rotary-position-embeddings|"
         "--use-llama2-rotary-position-embeddings|--normalization|"
         "--qk-layernorm",
         "model.arch", ""),
    READ("--rotary-base|--rotary-position-embeddings-theta", "model.rope_theta",
         "has a meaning with rotary positions"),
    LOSE("--rotary-percent", "1", "the whole of a head is rotated",
         "model.rope_*per*|model.*partial*|model.rope_dim*"),
    DROP("--rotary-interleaved", "the same model, with the rows of a head in another order"),
    READ("--rotary-seq-len-interpolation-factor", "model.rope_factor,model.rope_scaling", ""),
    READ("--use-rope-scaling", "model.rope_factor", ""),
    READ("--rope-scaling-factor", "model.rope_factor", "has a meaning with --use-rope-scaling"),
    LOSE("--rope-type", "rope", LATENT),
    READ("--no-rope-freq", "model.rope_layers,model.arch", ""),
    READ("--no-position-embedding", "model.arch", "with rotary positions it means nothing"),
    LOSE("--relative-attention-*", "", "positions are learned or rotary",
         "*relative*|*alibi*|*: *relative*"),
    LOSE("--mrope-section", "", IMAGES),
    READ("--yarn-rotary-scaling-factor|--rotary-scaling-factor", "model.rope_factor", YARN),
    READ("--yarn-original-max-position-embeddings", "model.rope_original_context", YARN),
    READ("--yarn-beta-fast", "model.rope_beta_fast", YARN),
    READ("--yarn-beta-slow", "model.rope_beta_slow", YARN),
    READ("--yarn-mscale|--yarn-mscale-all-dim|--mscale|--mscale-all-dim",
         "model.rope_attention_factor", YARN),
    DROP("--yarn-correction-range-round-to-int", "always"),
    LOSE("--no-yarn-correction-range-round-to-int", "", "yarn rounds the range of its correction",
         "model.rope_*round*|model.rope_trunc*"),
    COPY("--norm-epsilon|--layernorm-epsilon", "model.norm_epsilon", ""),
    DROP("--apply-layernorm-1p", "norms are float32 and not decayed: 1 + w is the same as w"),
    READ("--swiglu|--openai-gelu", "model.activation", ""),
    LOSE("--squared-relu|--use-fused-weighted-squared-relu", "", RELU),
    LOSE("--quick-geglu", "", "its activation is none of model.activation",
         "model.activation=*quick*"),
    READ("--onnx-safe|--no-bias-gelu-fusion", "model.activation", FUSED),
    LOSE("--glu-linear-offset", "0", GLU),
    LOSE("--activation-func-clamp-value", "", GLU),
    READ("--disable-bias-linear", "model.bias", ""),
    READ("--add-qkv-bias", "model.arch", "all linear layers have biases"),
    READ("--untie-embeddings-and-output-weights", "model.tied", ""),
    COPY("--make-vocab-size-divisible-by", "model.vocab_multiple", ""),
    COPY("--vocab-size", "model.vocab", ""),
    READ("--padded-vocab-size|--pad-vocab-size-to", "model.vocab", ""),
    LOSE("--extra-vocab-size", "0", "it adds to the ids of the tokenizer: give model.vocab=N",
         "model.vocab_extra|model.*extra*"),
    LOSE("--embed-layernorm", "", "no family has a norm behind the embedding",
         "model.*embed*norm*|model.norm_embed*"),
    DROP("--no-pad-vocab-size", "model.vocab_multiple says it"),
    READ("--hidden-dropout", "model.dropout", ""),
    READ("--attention-dropout", "model.dropout", "0, as here"),
    COPY("--init-method-std", "model.init_std", ""),
    LOSE("--embedding-init-method-std", "", "all weights have one model.init_std",
         "model.*embed*std|model.init_*embed*"),
    LOSE("--init-method-xavier-uniform", "", "initial weights are normal",
         "model.init_[!s]*|model.init"),
    DROP("--no-initialization|--perform-initialization|--init-model-with-meta-device|"
         "--use-cpu-initialization",
         "initial weights are made by name, each once"),
    LOSE("--apply-residual-connection-post-layernorm", "",
         "no family takes the residual from behind a norm", "model.*residual*|model.*post_norm*"),
    DROP("--apply-query-key-layer-scaling|--no-query-key-layer-scaling",
         "scores are fp32: what is divided is multiplied again"),
    LOSE("--qk-l2-norm", "", "norms of queries and keys have weights",
         "model.*l2*|*: *l2*|*: *without weight*"),
    LOSE("--qk-clip*", "", "queries and keys are not clipped", "*qk_clip*|*clip_qk*"),
    LOSE("--attention-output-gate", "", "attention has no gate", "model.*gate*|*: *gate*"),
    LOSE("--softmax-type", "vanilla", "the softmax of attention is the plain one",
         "model.*softmax*|model.*sink*"),
    READ("--window-size", "model.window,model.arch", ""),
    READ("--window-attn-skip-freq", "model.window_layers", "has a meaning with --window-size"),
    LOSE("--fp32-residual-connection", "", "the residual stream has numerics.precision",
         "numerics.*residual*|numerics.*stream*"),
    DROP("--attention-softmax-in-fp32", "always"),
    LOSE("--multi-latent-attention|--q-lora-rank|--kv-lora-rank|--qk-head-dim|"
         "--qk-pos-emb-head-dim|--v-head-dim|--cache-mla-latents|"
         "--mla-down-proj-fusion|--experimental-attention-variant|--dsa-*|--no-dsa-*",
         "", LATENT),
    LOSE("--linear-attention-freq|--linear-*|--gdp-*|--mamba-*|"
         "--disable-mamba-mem-eff-path|--use-mamba-mem-eff-path|--hybrid-*|"
         "--is-hybrid-model",
         "", STATE_SPACE),
    LOSE("--enable-mhc-connections|--mhc-*", "", STREAMS),
    LOSE("--use-mup", "", MUP),
    LOSE("--mup-*", "1", MUP),
    LOSE("--mtp-*", "", "one token is predicted, the next", "*mtp*|*multi_token*|*predict*"),
    LOSE("--heterogeneous-*", "", "all blocks are alike", "*heterogen*|model.*pattern*"),
    LOSE("--spec", "", "the layers are those of model.arch", "model.spec*|model.layer_spec*"),
    LOSE("--model-provider", "gpt", STATE_SPACE),
    LOSE("--enable-gpt-oss", "", EXPERTS),
    DROP("--use-mcore-models", "one program"),
    DROP("--transformer-impl|--use-te|--use-te-activation-func|"
         "--use-transformer-engine-op-fuser|--attention-backend|"
         "--flash-attention-version|--use-flash-attn|--use-flash-attn-*|--use-kitchen-attention|"
         "--fused-residual-rmsnorm|--no-masked-softmax-fusion|--no-bias-*|"
         "--no-rope-fusion|--no-persist-layer-norm|--no-gradient-accumulation-fusion|"
         "--cross-entropy-*|--disable-jit-fuser",
         FUSED),
    LOSE("--fp16-lm-cross-entropy", "", LOSS),
    LOSE("--output-logit-dtype", "fp32", LOSS),
    DROP("--calculate-per-token-loss", "always: a loss is the mean over the tokens of its batch"),
    /* experts */
    LOSE("--num-experts", "0|1", EXPERTS),
    LOSE("--expert-model-parallel-size|--moe-expert-parallel-size", "1", EXPERTS),
    LOSE("--mlp-type", "standard", EXPERTS),
    DROP("--expert-tensor-parallel-*|--topk|--expert-interval|--create-moe-param-group|"
         "--disable-moe-*|--enable-expert-tensor-parallelism|--use-tutel|--overlap-moe-expert-"
         "parallel-comm|"
         "--overlap-dispatch-backward-with-experts-wgrad|"
         "--ep-overlap-early-attn-memory-release|--use-grouped-gemm-*|"
         "--high-priority-a2a-comm-stream",
         EXPERTS),
    LOSE("--moe-*", "", EXPERTS),
    /* the batch, the steps */
    READ("--micro-batch-size|--batch-size", "batch.micro", ""),
    READ("--global-batch-size", "batch.global", ""),
    READ("--rampup-batch-size", "batch.rampup_start,batch.rampup_increment,batch.rampup_samples",
         ""),
    LOSE("--step-batch-size-schedule", "", "a batch grows by equal steps: --rampup-batch-size",
         "batch.*schedule*|batch.*stages*"),
    LOSE("--decrease-batch-size-if-needed", "", "the batch does not depend on the ranks",
         "batch.*decrease*|batch.*shrink*"),
    LOSE("--phase-transition-iterations", "", "training has one phase", "train.*phase*"),
    READ("--train-iters|--train-samples|--train-tokens", "train.steps", ""),
    LOSE("--epochs", "", "a run is counted in steps: give train.steps=N", "train.epochs*"),
    LOSE("--iterations-to-skip|--skip-train-iteration-range", "",
         "no step is skipped by its number", "train.skip*|train.steps_*skip*"),
    DROP("--exit-interval", "train.steps bounds a run"),
    DROP("--exit-duration-in-mins", "a signal saves and stops; train.resume=auto goes on"),
    DROP("--exit-signal*", "SIGTERM, SIGINT and SIGUSR1 always save and stop"),
    DROP("--train-sync-interval", SPEED),
    DROP("--manual-gc*|--no-manual-gc-eval|--empty-unused-memory-level", "memory is planned ahead"),
    LOSE("--freeze-*", "", IMAGES),
    READ("--finetune", "model.from", ""),
    DROP("--sft*",
         "`lockstep data prepare --chat` makes tokens of conversations, of which answers count"),
    /* the optimizer */
    READ("--optimizer", "optim.name", ""),
    READ("--weight-decay", "optim.weight_decay", ""),
    LOSE("--start-weight-decay|--end-weight-decay", "", CONSTANT_DECAY),
    LOSE("--weight-decay-incr-style", "constant", CONSTANT_DECAY),
    LOSE("--apply-wd-to-qk-layernorm", "", "norms are not decayed",
         "optim.*decay_norm*|optim.*decay_1d*|optim.decay_all"),
    LOSE("--no-weight-decay-cond-type", "", "norms and biases are not decayed",
         "optim.*decay_norm*|optim.*decay_1d*|optim.decay_all"),
    READ("--adam-beta1", "optim.beta1", "this optimizer has none"),
    READ("--adam-beta2", "optim.beta2", "this optimizer has none"),
    READ("--adam-eps", "optim.epsilon", "this optimizer has none"),
    READ("--sgd-momentum", "optim.momentum", "for SGD only"),
    READ("--lion-beta1", "optim.beta1", "for Lion only"),
    READ("--lion-beta2", "optim.beta2", "for Lion only"),
    READ("--muon-momentum", "optim.momentum", "for Muon only"),
    READ("--muon-nesterov|--muon-use-nesterov", "optim.nesterov", "for Muon only"),
    READ("--muon-num-ns-steps", "optim.ns_steps", "for Muon only"),
    READ("--muon-scale-mode|--muon-extra-scale-factor", "optim.muon_scale", "for Muon only"),
    LOSE("--muon-coefficient-type", "quintic", "the Newton-Schulz iteration is quintic",
         "optim.ns_coef*|optim.ns_type|optim.ns_method"),
    LOSE("--muon-scalar-optimizer", "adam", "tables, norms and biases have AdamW",
         "optim.*scalar*|optim.beside*"),
    READ("--muon-tp-mode", "optim.name", "a matrix is orthogonalised as a whole"),
    DROP("--muon-fp32-matmul-prec|--muon-use-syrk|--optimizer-cuda-graph", SPEED),
    LOSE("--muon-no-split-qkv", "", "queries, keys and values are separate matrices",
         "optim.*qkv*"),
    READ("--exp-avg-dtype|--exp-avg-sq-dtype", "optim.moments", "fp32, as here"),
    LOSE("--main-params-dtype", "fp32", MASTERS),
    LOSE("--main-grads-dtype", "fp32", "gradients are fp32",
         "*grads*dtype*|*gradient*type*|numerics.gradients"),
    DROP("--use-precision-aware-optimizer", "optim.moments says it"),
    DROP("--no-use-layer-wise-param-layout", "who holds what does not change results"),
    COPY("--clip-grad", "optim.clip", ""),
    LOSE("--decoupled-lr|--decoupled-min-lr", "", ONE_RATE),
    LOSE("--head-lr-mult", "1", ONE_RATE),
    READ("--optimizer-cpu-offload", "memory.offload.optimizer", ""),
    READ("--optimizer-offload-fraction", "memory.offload.optimizer_ratio",
         "has a meaning with --optimizer-cpu-offload"),
    DROP("--overlap-cpu-optimizer-d2h-h2d", "always"),
    DROP("--use-torch-optimizer-for-cpu-offload", "the update runs on the device"),
    DROP("--no-pin-cpu-*", "windows are chosen here"),
    DROP("--param-to-param-group-map-json|--dump-param-to-param-group-map", "a record"),
    /* the rate */
    READ("--lr", "optim.lr", ""),
    READ("--min-lr", "optim.min_ratio", "a constant rate has no end"),
    READ("--lr-decay-style", "optim.schedule", ""),
    READ("--lr-decay-iters|--lr-decay-samples|--lr-decay-tokens", "optim.decay_steps",
         "this schedule has no end"),
    READ("--lr-warmup-iters|--lr-warmup-samples|--lr-warmup-tokens|--lr-warmup-fraction|--warmup",
         "optim.warmup_steps", ""),
    LOSE("--lr-warmup-init", "0", "the warm-up begins at 0",
         "optim.warmup_init*|optim.warmup_start*|optim.warmup_*ratio"),
    READ("--lr-wsd-decay-style", "optim.schedule", "for WSD only"),
    READ("--lr-wsd-decay-iters|--lr-wsd-decay-samples", "optim.cooldown_steps", "for WSD only"),
    DROP("--override-opt-param-scheduler|--use-checkpoint-opt-param-scheduler|"
         "--override-lr-scheduler|--use-checkpoint-lr-scheduler|--no-load-lr-state",
         "the configuration's schedule holds"),
    /* precision */
    READ("--fp16|--bf16", "numerics.precision", ""),
    READ("--loss-scale", "numerics.loss_scale", "has a meaning with --fp16 only"),
    READ("--initial-loss-scale", "numerics.initial_scale_power", "has a meaning with --fp16 only"),
    READ("--min-loss-scale", "numerics.min_loss_scale", "has a meaning with --fp16 only"),
    READ("--loss-scale-window", "numerics.loss_scale_window", "has a meaning with --fp16 only"),
    READ("--hysteresis", "numerics.hysteresis", "has a meaning with --fp16 only"),
    DROP("--use-loss-scaling", "numerics.precision=fp16 has it"),
    DROP("--accumulate-allreduce-grads-in-fp32|"
         "--ddp-reduce-scatter-with-fp32-accumulation",
         "always"),
    READ("--grad-reduce-in-bf16", "numerics.reduce,numerics.mode", ""),
    DROP("--ddp-param-name-patterns-for-fp32-local-accumulation", "always, for all"),
    DROP("--disable-bf16-reduced-precision-matmul", "products are summed in fp32"),
    DROP("--fp8-interval|--fp8-margin|--fp8-amax-*|--first-last-layers-bf16|"
         "--num-layers-at-start-in-bf16|--num-layers-at-end-in-bf16",
         "without --fp8-format it means nothing"),
    LOSE("--fp8|--fp8-*|--no-fp8-wgrad|--te-precision-config-file", "", NO_FP8),
    LOSE("--fp4|--fp4-*", "", NO_FP4),
    DROP("--keep-fp8-transpose-cache|--reuse-grad-buf-for-mxfp8-param-ag", NO_FP8),
    LOSE("--kitchen-*|--modelopt-enabled|--export-*", "", QUANTISED),
    /* parallelism */
    READ("--tensor-model-parallel-size|--model-parallel-size", "parallel.tp", ""),
    READ("--pipeline-model-parallel-size", "parallel.pp", ""),
    READ("--context-parallel-size", "parallel.cp", ""),
    READ("--cp-comm-type", "parallel.cp_method", ""),
    DROP("--hierarchical-context-parallel-sizes", "parallel.cp_method says it"),
    DROP("--hybrid-context-parallel|--max-seqlen-per-dp-cp-rank", "sequences have one length"),
    READ("--sequence-parallel", "parallel.sp", "without effect at a tensor-parallel size of 1"),
    READ("--num-layers-per-virtual-pipeline-stage|"
         "--num-virtual-stages-per-pipeline-rank",
         "parallel.chunks,parallel.schedule", ""),
    DROP("--microbatch-group-size-per-*", "the interleaved schedule takes pp micro-batches"),
    DROP("--decoder-first-pipeline-num-layers|--decoder-last-pipeline-num-layers|"
         "--pipeline-model-parallel-layout",
         "stages are balanced by cost; parallel.split says another cut"),
    DROP("--account-for-embedding-in-pipeline-split|"
         "--account-for-loss-in-pipeline-split",
         "embedding and head count by their cost"),
    READ("--use-distributed-optimizer|--use-megatron-fsdp|--use-torch-fsdp2", "parallel.zero", ""),
    READ("--data-parallel-sharding-strategy", "parallel.zero",
         "has a meaning with --use-megatron-fsdp"),
    READ("--torch-fsdp2-no-reshard-after-forward", "parallel.reshard_after_forward", ""),
    READ("--num-distributed-optimizer-instances", "parallel.dp_replicate,parallel.dp_shard",
         "1, as here"),
    DROP("--outer-dp-sharding-strategy|--enable-full-sharding-in-hsdp",
         "copies hold all of a shard's state"),
    DROP("--tensor-parallel-num-weight-shards|--gtp-*", "parallel.zero=3 cuts weights"),
    DROP("--megatron-fsdp-*|--fsdp-*", "parallel.zero=3 has its own types and windows"),
    DROP("--no-data-sharding", "who reads what does not change results"),
    READ("--ddp-bucket-size", "comm.bucket_mb", ""),
    DROP("--ddp-*|--no-align-*|--tp-comm-*|--no-tp-comm-*|"
         "--defer-embedding-wgrad-compute|--wgrad-deferral-limit|"
         "--use-gloo-process-groups|--disable-gloo-process-groups|"
         "--pipeline-model-parallel-comm-backend|--use-ring-exchange-p2p|"
         "--create-all-gather-group|--lazy-mpu-init|--distributed-config-file|"
         "--no-clone-scatter-output-in-embedding",
         SPEED),
    DROP("--overlap-*|--no-overlap-p2p-communication", "communication always overlaps"),
    DROP("--no-gradient-reduce-div-fusion", FUSED),
    READ("--tp-comm-overlap", "parallel.tp_overlap", ""),
    DROP("--delay-wgrad-compute", "a schedule such as zb-h1 separates them"),
    READ("--distributed-backend", "comm.transport", "it is chosen by how the program is started"),
    READ("--distributed-timeout-minutes", "comm.timeout_s", ""),
    COPY("--distributed-timeout-seconds-after-init", "comm.timeout_s", ""),
    DROP("--use-tp-pp-dp-mapping", "the order of axes is fixed"),
    DROP("--nccl-*|--use-nccl-ub|--use-sharp|--sharp-enabled-group|"
         "--disable-symmetric-registration|--symmetric-ar-type|"
         "--high-priority-stream-groups",
         "there is no NCCL"),
    DROP("--DDP-impl", "one program"),
    DROP("--data-impl", "a store of tokens is read as it lies"),
    DROP("--fake-process-group", "`lockstep layout --check` needs no ranks"),
    DROP("--batch-invariant-*", "no bit depends on the batch's cut"),
    DROP("--deterministic-mode", "always"),
    DROP("--cuda-*|--enable-cuda-graph|--external-cuda-graph", "there is no CUDA"),
    /* memory */
    READ("--recompute-activations|--recompute-granularity|--checkpoint-activations|"
         "--activations-checkpoint-method",
         "memory.recompute", ""),
    READ("--recompute-method|--recompute-num-layers", "memory.recompute",
         "with --recompute-granularity"),
    DROP("--recompute-modules",
         "selective recomputation makes norms, attention and the activation again"),
    READ("--activations-checkpoint-num-layers", "memory.recompute",
         "with --activations-checkpoint-method"),
    COPY("--distribute-saved-activations|--distribute-checkpointed-activations|"
         "--partition-activations",
         "memory.partition_activations", ""),
    READ("--cpu-offloading-num-layers", "memory.offload.activations", "0, as here"),
    DROP("--cpu-offloading-retain-pinned-cpu-buffers|"
         "--fine-grained-offloading-max-inflight-offloads",
         "windows are chosen here"),
    READ("--fine-grained-activation-offloading", "memory.offload.activations", ""),
    DROP("--offload-modules", "all that a block keeps goes"),
    DROP("--activation-offload-fraction", "memory.offload.activations_ratio says it"),
    DROP("--delay-offload-until-cuda-graph|--delta-offload-bytes-across-pp-ranks|"
         "--min-offloaded-tensor-size|--mlp-chunks-for-*",
         SPEED),
    /* data */
    READ("--data-path|--train-data-path", "data.train,data.blend", ""),
    READ("--split", "data.train", "all of it is trained on, as here"),
    READ("--valid-data-path", "data.valid", ""),
    DROP("--test-data-path", "`lockstep eval` takes any data"),
    LOSE("--data-args-path|--per-split-data-args-path", "", WRITE_OUT),
    READ("--mock-data", "data.train", "data.train names tokens"),
    DROP("--data-cache-path|--mid-level-dataset-surplus",
         "the order of samples is computed, not kept"),
    DROP("--dataloader-type", "samples come in a random order, another one each epoch"),
    DROP("--dataloader-*|--num-workers|--num-dataset-builder-threads|"
         "--no-mmap-bin-files|--per-dataset-sequences-path|--object-storage-cache-path",
         SPEED),
    DROP("--dataset-provider|--tokenizer-*|--no-tokenizer-*|"
         "--no-use-tokenizer-model-from-checkpoint-args|--tiktoken-*|"
         "--null-tokenizer-*|--vocab-extra-ids|--special-tokens|--trust-remote-code|"
         "--chat-template|--metadata-path|--allow-ambiguous-pad-tokens|--use-gigatoken",
         TOKENS),
    DROP("--no-create-attention-mask-in-dataloader", "attention is always causal"),
    READ("--reset-position-ids", "data.packing", "data.packing=documents begins positions anew"),
    READ("--reset-attention-mask", "data.packing", ""),
    READ("--eod-mask-loss", "data.packing", "nothing follows a document in data.packing=documents"),
    LOSE("--fim-*", "", "samples are texts as they are", "*fim*|*middle*"),
    LOSE("--data-parallel-random-init", "", "all ranks have the same weights",
         "*random_init*|model.seed_*"),
    LOSE("--sample-rate", "1", "all samples are used", "data.*sample_rate*|data.*share*"),
    COPY("--seed", "model.seed", ""),
    DROP("--te-rng-tracker", "random numbers come from Philox"),
    READ("--vocab-file|--merge-file", "data.tokenizer", "both make data.tokenizer"),
    READ("--tokenizer-type", "data.tokenizer", TOKENS),
    /* checkpoints */
    READ("--save", "train.out", ""),
    READ("--load", "train.resume", ""),
    COPY("--save-interval|--persistent-save-interval", "train.save_every", ""),
    DROP("--save-retain-interval", "train.keep says how many stay"),
    COPY("--most-recent-k", "train.keep", ""),
    READ("--pretrained-checkpoint|--no-load-optim|--no-load-rng", "model.from", ""),
    LOSE("--load-main-params-from-ckpt", "", "checkpoints of Megatron are not read",
         "model.from: *Megatron*"),
    DROP("--no-save-optim|--no-save-rng", "a checkpoint is the whole state"),
    DROP("--ckpt-step|--override-ckpt-iteration|--exit-on-missing-checkpoint",
         "train.resume takes the path of a checkpoint"),
    DROP("--use-checkpoint-args", "the configuration holds"),
    DROP("--use-mp-args-from-checkpoint-args", "any layout reads any checkpoint"),
    DROP("--use-dist-ckpt|--dist-ckpt-*|--ckpt-*|--no-ckpt-*|--auto-detect-ckpt-format|"
         "--non-persistent-*|--distrib-optim-*|--replication*|"
         "--no-strict-fsdp-dtensor-load|--no-save-tokenizer-assets",
         ONE_FORMAT),
    DROP("--async-*|--use-persistent-ckpt-worker", SPEED),
    DROP("--verify-integrity", "always"),
    /* evaluation */
    READ("--eval-interval", "eval.every", "no data.valid is known: set it with eval.every"),
    READ("--eval-iters", "eval.samples", "no data.valid is known"),
    READ("--eval-global-batch-size", "eval.samples", "with --eval-iters"),
    DROP("--eval-micro-batch-size", SPEED),
    DROP("--start-eval-at-iter", "eval.every holds from the start"),
    DROP("--full-validation", "eval.samples says how many"),
    DROP("--multiple-validation-sets|--validation-set-names", "data.valid is one list"),
    DROP("--skip-train|--test-mode|--eval-only", "`lockstep eval` evaluates"),
    /* records */
    DROP("--log-interval|--log-*|--no-log-loss-scale-to-tensorboard|--wandb-*|"
         "--mlflow-*|--otel-*|--one-logger-*|--no-one-logger|--app-tag-run-*|"
         "--timing-*|--barrier-with-L1-time|--no-barrier-with-level-1-timing|"
         "--throughput-window-size|--memory-keys|--runtime-time-unit|"
         "--run-workload-inspector-server",
         RECORDS),
    READ("--tensorboard-dir", "log.tensorboard", ""),
    DROP("--tensorboard-*", "events go to train.out"),
    DROP("--logging-level|--no-filter-warnings|--modules-to-filter|"
         "--set-level-for-all-loggers",
         "log.level says it"),
    DROP("--save-config-filepath|--config-logger-dir",
         "the resolved config.yaml lies in train.out"),
    DROP("--save-*", "records of tensors: `lockstep diff` finds where two runs part"),
    COPY("--profile", "log.trace", ""),
    DROP("--profile-*|--use-pytorch-profiler|--use-nsys-profiler|--pytorch-profiler-*|"
         "--nvtx-ranges|--record-*",
         "log.trace has every step"),
    DROP("--memory-snapshot-path", "`lockstep plan memory` shows it"),
    DROP("--flight-recorder-*|--no-flight-recorder-*",
         "always: comm.timeout_s names the rank that is late"),
    READ("--check-weight-hash-across-dp-replicas-interval", "log.hash_every", ""),
    READ("--no-check-for-nan-in-loss-and-grad", "train.on_nonfinite",
         "a run stops where something is not finite"),
    DROP("--no-check-for-nan-in-loss|--check-for-*", "a run stops where something is not finite"),
    DROP("--rerun-mode", "`lockstep diff` repeats runs"),
    DROP("--error-injection-*|--fault-injector-*", "it tests their machinery"),
    DROP("--gpu-sniff-test-interval", "`lockstep doctor` shows the machine"),
    DROP("--straggler-*|--disable-straggler-on-startup",
         "comm.timeout_s names the rank that is late"),
    DROP("--enable-ft-package|--inprocess-*|--adlr-*",
         "a batch system starts a job again; train.resume=auto goes on"),
    DROP("--calc-ft-timeouts|--ft-*", "comm.timeout_s says it"),
    DROP("--enable-experimental", ""),
    DROP("--enable-msc|--disable-msc", "files lie in folders"),
    DROP("--suggested-communication-unit-size", SPEED),
    DROP("--logits-load-*", "without --logits-load-dir it means nothing"),
    LOSE("--logits-load-dir", "", DISTILLED),
    DROP("--logits-save-*", DISTILLED),
    LOSE("--yaml-cfg", "", WRITE_OUT),
    /* those of Megatron-DeepSpeed */
    DROP("--deepspeed|--deepspeed-mpi", "one program"),
    READ("--deepspeed-config", "", ""),
    COPY("--zero-stage", "parallel.zero", ""),
    DROP("--zero-reduce-scatter|--zero-contigious-gradients|--zero-reduce-bucket-size|"
         "--zero-allgather-bucket-size|--remote-device|--use-pin-memory|--ds-fused-adam|"
         "--cpu-torch-adam|--sync-tp-duplicated-parameters|--use-contiguous-buffers-in-*|"
         "--no-contiguous-buffers-in-*|--no-scatter-gather-tensors-in-pipeline|"
         "--no-async-tensor-model-parallel-allreduce|--synchronize-each-layer|"
         "--force-ds-sequence-parallel|--ds-sequence-parallel-fpdt*|--mmap-warmup|"
         "--valid-num-workers",
         SPEED),
    DROP("--deepspeed-activation-checkpointing|--contigious-checkpointing|--split-transformers|"
         "--scattered-embeddings|--memory-centric-tiled-linear|--tile-factor",
         "memory.recompute says what is computed again"),
    READ("--checkpoint-in-cpu", "memory.offload.activations", ""),
    READ("--cpu-optimizer", "memory.offload.optimizer", ""),
    DROP("--no-pipeline-parallel", "parallel.pp says it"),
    DROP("--pp-partition-method", "stages are balanced by cost; parallel.split says another cut"),
    READ("--ds-sequence-parallel-size", "parallel.cp", ""),
    READ("--enable-zbh1-pipeline", "parallel.schedule", ""),
    DROP("--enable-zbh1-exact-semantics", "every schedule gives the same results"),
    DROP("--abort-on-unmet-fused-kernel-constraints|--disable-mem-efficient-ln", FUSED),
    DROP("--kill-switch-path|--kill-switch-file", "a signal saves and stops"),
    DROP("--universal-checkpoint|--load-tag", ONE_FORMAT),
    LOSE("--reset-progress|--reset-iteration", "", WHOLE_STATE),
    LOSE("--use-bnb-optimizer", "", "moments are fp32 or bf16", "optim.moments=*8*"),
    LOSE(
        "--train-weighted-split-paths|--train-weighted-split-paths-path|"
        "--valid-weighted-split-paths|--valid-weighted-split-paths-path",
        "",
        "shares of stores are no corpora: cut them with `lockstep data split`, and give data.blend",
        "data.*split*|data.*share*"),
    DROP("--test-weighted-split-paths|--test-weighted-split-paths-path",
         "`lockstep eval` takes any data"),
    DROP("--train-data-exact-num-epochs|--return-data-index|--train-idx-path|--train-desc-path|"
         "--train-doc-idx-path|--train-sample-idx-path|--train-shuffle-idx-path|"
         "--repeated-dataloader",
         "the order of samples is computed, not kept"),
    LOSE("--curriculum-learning-*|--data-efficiency-curriculum-learning", "",
         "sequences have one length", "*curriculum*|*difficulty*"),
    LOSE("--random-ltd", "", "no tokens are dropped", "*ltd*|*token_drop*"),
    LOSE("--norm-target-loss|--reweight-loss-based-on-position-frequency", "",
         "a loss is the mean over the tokens of its batch", "*loss_weight*|*reweight*"),
    DROP("--loss-on-targets-only",
         "the store says which tokens count: `lockstep data prepare --pairs` makes one"),
    LOSE("--kd|--kd-*|--mos|--load-teacher|--num-layers-teacher|--num-experts-teacher|"
         "--hidden-size-teacher|--num-attention-heads-teacher",
         "", DISTILLED),
    DROP("--codecarbon-dir|--no-log-learnig-rate-to-tensorboard", RECORDS),
    DROP("--inference|--ds-inference", NO_INFERENCE),
    /* those of Pai-Megatron-Patch */
    DROP("--patch-tokenizer-type|--dataset|--max-padding-length", TOKENS),
    DROP("--transformer-type", "one program"),
    READ("--intermediate-size", "model.ffn", ""),
    /* inference, reinforcement learning, other models */
    DROP("--inference-*|--flash-decode|--enable-chunked-prefill|"
         "--decode-only-cuda-graphs|--use-legacy-static-engine|--max-tokens-to-oom|"
         "--num-speculative-tokens",
         NO_INFERENCE),
    LOSE("--perform-rl-step|--rl-*|--no-rl-*|--grpo-*|--langrl-env-config", "", NO_RL),
    DROP("--refit-method|--use-same-sampling-seed-across-dp-ranks", NO_RL),
    LOSE("--bert-*|--mask-*|--short-seq-prob|--ict-*|--biencoder-*|--retriever-*|"
         "--retro-*|--titles-data-path|--evidence-data-path|--query-in-block-prob|"
         "--use-one-sent-docs",
         "", RETRIEVAL),
    DROP("--indexer-*|--embedding-path|--block-data-path|--output-bert-embeddings", RETRIEVAL),
    DROP("--result-rejected-tracker-filename", RECORDS),
    LOSE("--dino-*|--vision-*|--swin-*|--patch-dim|--img-*|--num-channels|"
         "--num-classes|--iter-per-epoch|--language-model-type|--pixel-shuffle|"
         "--disable-vision-class-token|--image-tag-type|--use-tiling",
         "", IMAGES),
    LOSE("--classes-fraction|--data-per-class-fraction", "1", IMAGES),
    {0},
};
