#!/bin/bash
# A script as people write them for a GPT: arrays, variables, comments.
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS=4
NODES=2
SIZE=${SIZE:-medium}
OUT="runs/gpt $SIZE"
DATA=$1 # given when it is called

MODEL=(
    --num-layers 24          # as GPT-2 350M
    --hidden-size 1024
    --num-attention-heads 16
    --seq-length 1024 --max-position-embeddings 1024
    --attention-dropout 0.0 --hidden-dropout 0
)
TRAIN="--micro-batch-size 4 --global-batch-size=64 \
       --lr 3.0e-4 --min-lr 3.0e-5 --lr-decay-style cosine --lr-warmup-fraction .01"
PARALLEL=(--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2)
PARALLEL+=(--sequence-parallel --num-layers-per-virtual-pipeline-stage 6)

echo "starting ${OUT}"
torchrun --nproc_per_node $GPUS --nnodes $NODES --master_addr localhost pretrain_gpt.py \
    "${MODEL[@]}" $TRAIN \
    ${PARALLEL[@]} \
    --train-iters 2000 --clip-grad 1.0 --weight-decay 0.1 \
    --adam-beta1 0.9 --adam-beta2 0.95 --bf16 \
    --use-distributed-optimizer --overlap-grad-reduce \
    --recompute-granularity full --recompute-method uniform --recompute-num-layers 2 \
    --data-path "$DATA" --vocab-file gpt2/vocab.json --merge-file gpt2/merges.txt --split 100,0,0 \
    --save "$OUT" --load "$OUT" --save-interval 500 --log-interval 10 \
    --cp-comm-type p2p
