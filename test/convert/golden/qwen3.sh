#!/bin/bash
# Qwen3 4B that goes on with longer texts, each of which ends with its document.
GPUS=8
TP=2
LENGTH=8192
SHAPE=(
    --num-layers 36 --hidden-size 2560 --ffn-hidden-size 9728
    --num-attention-heads 32 --group-query-attention --num-query-groups 8 --kv-channels 128
    --qk-layernorm --normalization RMSNorm --norm-epsilon 1e-6 --swiglu --disable-bias-linear
    --use-rotary-position-embeddings --no-position-embedding --position-embedding-type yarn
    --rotary-base 1000000 --rotary-percent 1.0 --attention-dropout 0.0 --hidden-dropout 0.0
    --yarn-rotary-scaling-factor 2 --yarn-original-max-position-embeddings 4096
    --make-vocab-size-divisible-by 1187 --vocab-size 151936
)
torchrun --nproc_per_node $GPUS --nnodes 2 pretrain_gpt.py "${SHAPE[@]}" \
    --seq-length $LENGTH --max-position-embeddings $LENGTH \
    --tensor-model-parallel-size $TP --sequence-parallel --use-distributed-optimizer \
    --micro-batch-size 1 --global-batch-size $((GPUS * 4)) --train-iters 400 \
    --lr 2e-5 --min-lr 2e-6 --lr-decay-style cosine --lr-warmup-iters 20 --weight-decay 0.1 \
    --clip-grad 1.0 --adam-beta1 0.9 --adam-beta2 0.95 --bf16 --grad-reduce-in-bf16 \
    --calculate-per-token-loss --reset-position-ids --reset-attention-mask --eod-mask-loss \
    --data-path corpus/long --tokenizer-type HuggingFaceTokenizer --tokenizer-model Qwen/Qwen3-4B \
    --finetune --load mcore/qwen3-4b --save runs/long --save-interval 100 \
    --no-load-optim --no-load-rng --ckpt-format torch_dist --attention-backend flash
