/* `lockstep import` and `export`, and commands that take a folder of another program's: a run goes
 * out, comes back, is trained on and evaluated, with the same words and exit codes throughout. */
#include "runs.h"

#include "../support/scratch.h"
#include "../support/suite.h"

CASE(test_out_and_back)
{
    expect("$L train $C train.out=run train.steps=2 model.arch=llama", 0, "hash");
    expect("$L export run --out out", 0, "tensors in 1 file of weights");
    expect("$L import out --out again", 0, "1 layer of the family llama, 257 tokens");
    expect("cmp run/checkpoints/step-00000002/$M again/checkpoints/step-00000000/$M", 0, "");
    /* The same loss of the run and of the folder, on one rank and on two. */
    expect("$L eval run corpus_valid | sed 's/  [0-9.]* bits.*//; s/step 2 /step 0 /' > loss.txt",
           0, "");
    expect("$L eval out corpus_valid | diff - loss.txt", 0, "");
    expect("$L eval out corpus_valid parallel.tp=2 | diff - loss.txt", 0, "");
    /* A folder's weights may be computed in another type; a run has its own. */
    expect("$L eval out corpus_valid numerics.precision=fp32 | diff - loss.txt && "
           "$L eval out corpus_valid numerics.precision=bf16 > bf16.txt && "
           "! diff -q bf16.txt loss.txt && "
           "$L generate out --prompt a --tokens 2 numerics.precision=bf16 data.tokenizer=byte",
           0, "differ");
    expect("$L eval run corpus_valid numerics.precision=bf16", 2,
           "all but its layout is the run's");
    /* The folder of an import is enough to train in. */
    expect("$L train again/config.yaml data.train=corpus_train train.steps=2 parallel.pp=2 "
           "batch.global=4 parallel.threads=1 log.progress=plain",
           0, "hash");
    assert_true(exists("again/checkpoints/step-00000002"));
    expect("$L export again --step 0 --dtype bf16 --shard-mb 1 --out half", 0, "");
    expect("$L export again --format gguf --dtype f16 --out x.gguf", 0, "1 file");
    expect("$L export again --format gguf --quantize int8 --out y.gguf", 0, "1 file");
    expect("test $(stat -c %s y.gguf) -lt $(stat -c %s x.gguf)", 0, "");
}

CASE(test_llmc)
{
    expect("$L train $C train.out=gpt train.steps=1", 0, "hash");
    expect("$L export gpt --format llmc --out gpt.bin", 0, "16 tensors");
    expect("$L export gpt --out gpt-hf && grep -c '_pdrop\": 0.0' gpt-hf/config.json", 0, "3\n");
    expect("$L import gpt.bin --out back", 0, "of the family gpt2");
    expect("$L train $C model.from=gpt.bin train.out=more train.steps=1", 0, "hash");
    expect("$L export run --format llmc --out no.bin", 2, "a file of llm.c has gpt2");
    assert_false(exists("no.bin"));
}

CASE(test_words)
{
    expect("$L import", 2, "the model's folder is missing");
    expect("$L import out", 2, "--out RUN is missing");
    expect("$L import out --out again", 2, "again: already exists");
    expect("$L import nowhere --out new", 16, "there is no such folder");
    expect("$L export run", 2, "--out is missing");
    expect("$L export run --out new --format onnx", 2, "expected hf, peft, llmc or gguf");
    expect("$L export run --out new.gguf", 2,
           "--out new.gguf: a GGUF file: expected --format gguf");
    expect("$L export run --out new --dtype int4", 2, "--dtype = int4: expected fp32, bf16, fp16");
    expect("$L export run --out new --dtype int8", 2, "; int8 is --format gguf --quantize int8");
    expect("$L export run --out new --quantize int4", 2, "expected none or int8");
    expect("$L export run --out new --quantize int8", 2, "only --format gguf has int8");
    expect("$L export run --out new --format gguf --quantize int8 --dtype f16", 2,
           "give one of the two");
    expect("$L export run --out new --step 7", 15, "no such checkpoint");
    expect("$L generate out --prompt x --step 3", 2, "has no steps to choose from");
    expect("$L train $C model.from=out model.layers=9 train.out=new", 2, "model.layers = 9");
    assert_false(exists("new"));
}

/* A folder that has no tokenizer: nothing is printed before the refusal, and one may be named. */
CASE(test_no_tokenizer)
{
    expect(
        "$L generate out --prompt x", 2,
        "text needs the tokenizer that made the model's data, and the model has none that can be "
        "read: name one with data.tokenizer=SPEC");
    expect("ln -s gone out/tokenizer.json; $L generate out --prompt x", 2,
           "tokenizer is not used: out/tokenizer.json: links to gone, which cannot be read");
    expect(
        "rm out/tokenizer.json; echo '{\"model\": {\"type\": \"Unigram\"}}' > out/tokenizer.json; "
        "$L generate out --prompt x",
        2, "Unigram");
    expect("$L generate out --prompt x", 2, "the model has none that can be read");
    expect("rm out/tokenizer.json", 0, "");
    expect("printf 'in the\\n' > text; $L eval out --text text", 2, "data.tokenizer=SPEC");
    expect("test -z \"$($L generate out --prompt x 2>/dev/null)\"", 0, "");
    expect("$L generate run --prompt 'in the' --tokens 9 > a && "
           "$L generate out --prompt 'in the' --tokens 9 data.tokenizer=byte parallel.tp=2 > b && "
           "cmp a b && $L eval run --text text --step 2 | sed 's/step 2 /step 0 /' > a && "
           "$L eval out --text text data.tokenizer=byte | diff a -",
           0, "");
    expect("printf '{\"do_sample\": false, \"eos_token_id\": [32, 101], \"num_beams\": 4}' > "
           "out/generation_config.json; "
           "$L generate out --prompt 'in the' --tokens 9 data.tokenizer=byte",
           0, "temperature 0, top-k 0, top-p 1: generation_config.json");
    expect("$L generate out --prompt x --tokens 9 data.tokenizer=byte", 0,
           "num_beams = 4: not supported, and not applied");
    expect("$L generate out --prompt 'in the' --tokens 9 --temperature 0.8 --eos none "
           "data.tokenizer=byte 2>/dev/null > b && "
           "$L generate run --prompt 'in the' --tokens 9 --eos none > a && cmp a b",
           0, "");
    expect("printf '{\"max_new_tokens\": 9, \"max_length\": 3}' > out/generation_config.json; "
           "$L generate out --prompt 'in the' --eos none data.tokenizer=byte > b && cmp a b",
           0, "at most 9 tokens: generation_config.json");
    expect("printf '{\"max_length\": 15}' > out/generation_config.json; "
           "$L generate out --prompt 'in the' --eos none data.tokenizer=byte > b && cmp a b",
           0, "at most 15 tokens with the prompt: generation_config.json");
    expect("$L generate out --prompt 'in the morning, we' data.tokenizer=byte", 14,
           "the prompt has 18 tokens, and generation_config.json has max_length = 15: expected");
    expect("$L generate out --prompt 'in the morning, we' --tokens 1 data.tokenizer=byte && "
           "$L generate out --prompt 'in the morning, we' --truncate data.tokenizer=byte && "
           "rm out/generation_config.json",
           0, "");
    expect("$L generate run --prompt x data.tokenizer=byte", 2,
           "data.tokenizer = \"byte\": the model has a tokenizer of its own");
    expect("$L generate out --prompt x data.tokenizer=$G", 2, "tokens, and the model 257");
}

/* A run keeps what the folder that it began from says, and has its own end of a document. */
CASE(test_a_run_draws_and_ends_as_its_folder)
{
    expect("printf '{\"do_sample\": false, \"max_new_tokens\": 30, \"eos_token_id\": [32]}' > "
           "out/generation_config.json && $L import out --out began data.tokenizer=byte && "
           "$L generate out --prompt 'in' data.tokenizer=byte > a && "
           "$L generate began --prompt 'in' > b && cmp a b",
           0, "temperature 0, top-k 0, top-p 1: generation_config.json");
    assert_non_null(strstr(output, "at most 30 tokens: generation_config.json"));
    expect("printf 'in' > said.txt && $L generate began --prompts said.txt parallel.dp=2", 0,
           "\"finish\":\"end\"");
    expect("$L generate began/checkpoints/step-00000000 --prompts said.txt", 0,
           "\"finish\":\"end\"");
    expect("$L generate began --prompts said.txt --eos none", 0, "\"finish\":\"length\"");
    expect("echo '{\"top_k\": 0.5}' > began/hf/generation_config.json; "
           "$L generate began --prompt x parallel.tp=2",
           2, "began/hf/generation_config.json: top_k: expected");
    expect("rm out/generation_config.json", 0, "");
}

SUITE_MAIN(corpus_setup, scratch_teardown)
