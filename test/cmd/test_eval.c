/* `lockstep eval` on texts, tokens, requests and multiple choices, in any layout: the same bytes
 * come out, and what is wrong is named. */
#include "../support/extent.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "runs.h"

#include <lockstep/base.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char script[PATH_MAX];

static int run_setup(void **state)
{
    if (corpus_setup(state) || !realpath("tools/lm_eval_lockstep.py", script))
        return -1;
    return shell("$L train $C train.steps=2 train.out=run numerics.tp_tiles=4 && "
                 "printf 'in the beginning' > text && printf '%s\\n' "
                 "'{\"context\": \"in the\", \"continuation\": \" end\"}' "
                 "'{\"context\": \"\", \"continuation\": \"so\"}' "
                 "'{\"text\": \"a text that is longer than the context of the model\"}' "
                 "'{\"tokens\": [97, 98, 99], \"prompt_tokens\": 2}' > requests.jsonl");
}

/* A file of one example: behind "ab", one of "c" and "de"; the second is right. */
static void choices_write(int count)
{
    uint32_t header[256] = {20240522, 1, (uint32_t)count, 26};
    uint16_t words[] = {65535, 26, 0, 1, 2, 2, 'a', 'b', 1, 'c', 2, 'd', 'e'};
    char file[sizeof header + sizeof words];
    memcpy(file, header, sizeof header);
    memcpy(file + sizeof header, words, sizeof words);
    scratch_write(at("choices.bin"), file, sizeof file);
}

CASE(test_the_same_lines_in_every_layout)
{
    static const char *const layouts[] = {"parallel.tp=2", "parallel.pp=3 parallel.dp=2",
                                          "parallel.tp=4 parallel.sp=true", "numerics.isa=plain"};
    char line[600];
    expect("$L eval run --text text --logprobs a.jsonl && $L eval run --ids a.jsonl --logprobs b "
           "&& cmp a.jsonl b && $L eval run --samples 3 --logprobs s.jsonl && "
           "$L eval run --requests requests.jsonl --output r.jsonl && wc -l a.jsonl s.jsonl",
           0, "16 a.jsonl\n  96 s.jsonl");
    assert_non_null(strstr(output, "1 text  15 tokens  loss "));
    for (size_t i = check_all() ? 0 : 1; i < sizeof layouts / sizeof layouts[0]; i++) {
        snprintf(line, sizeof line,
                 "$L eval run --text text --logprobs x %s && cmp a.jsonl x && "
                 "$L eval run --samples 3 --logprobs x %s && cmp s.jsonl x && "
                 "$L eval run --requests requests.jsonl %s > x && cmp r.jsonl x",
                 layouts[i], layouts[i], layouts[i]);
        expect(line, 0, "");
    }
    expect("head -n 2 a.jsonl", 0,
           "{\"position\":0,\"id\":105,\"text\":\"i\",\"logprob\":null,\"bits\":null}\n"
           "{\"position\":1,\"id\":110,\"text\":\"n\",\"logprob\":-");
    expect("cat r.jsonl", 0, ",\"tokens\":4}\n{\"index\":1,\"loglikelihood\":-");
    assert_non_null(strstr(output, "\"is_greedy\":false,\"tokens\":51}"));
    expect("$L eval run --requests requests.jsonl --logprobs x --output y && wc -l x", 0,
           "68 x"); /* 10 + 3 + 52 + 3 tokens */
}

/* A context that is not whole blocks of two ranks: windows and what fits are those of one rank. */
CASE(test_context_parallel_ranks_share_any_context)
{
    static const char *const cuts[] = {"parallel.cp=2",
                                       "parallel.cp=2 parallel.cp_method=ring parallel.tp=2"};
    static const char *const archs[] = {"gpt2", "llama"};
    char line[1200];
    expect("head -c 900 book.txt > long.txt && head -c 301 book.txt > full.txt && "
           "printf '{\"tokens\": [%s5]}\\n' $(printf '7%.0s,' $(seq 300)) > full.jsonl",
           0, "");
    for (int i = 0; i < 2; i++) {
        snprintf(line, sizeof line,
                 "$L train $C model.arch=%s model.context=300 data.sequence=256 "
                 "numerics.seq_tiles=2 numerics.tp_tiles=4 batch.global=1 train.steps=1 "
                 "train.out=%s && $L eval %s --text long.txt --logprobs %s.long > %s.told && "
                 "$L eval %s --requests full.jsonl > %s.full",
                 archs[i], archs[i], archs[i], archs[i], archs[i], archs[i], archs[i]);
        expect(line, 0, "");
        snprintf(line, sizeof line,
                 "$L eval %s --text long.txt --logprobs x %s | cmp - %s.told && cmp x %s.long && "
                 "$L eval %s --requests full.jsonl %s | cmp - %s.full",
                 archs[i], cuts[i], archs[i], archs[i], archs[i], cuts[i], archs[i]);
        expect(line, 0, "");
    }
}

CASE(test_multiple_choice)
{
    choices_write(1);
    expect("$L eval run --choices choices.bin > a && $L eval run --choices choices.bin "
           "parallel.tp=2 parallel.dp=2 > b && cmp a b && cat a",
           0, "step 2  1 example  accuracy ");
    choices_write(2);
    expect("$L eval run --choices choices.bin", ls_exit_code(LS_EDATA),
           "choices.bin: truncated: it ends in example 1 of the 2");
}

CASE(test_what_is_wrong_is_named)
{
    int data = ls_exit_code(LS_EDATA), io = ls_exit_code(LS_EIO);
    expect("printf '\\n{\"text\": 1}\\n' > bad.jsonl; $L eval run --requests bad.jsonl", data,
           "bad.jsonl:2: \"text\": expected a string or a list of token ids");
    expect("printf '{\"context\": \"%040d\", \"continuation\": \"x\"}\\n' 7 > long.jsonl; "
           "$L eval run --requests long.jsonl",
           data, "long.jsonl: line 1 has 41 tokens, 1 of them to be scored: at most 33 fit");
    expect("$L eval run --requests long.jsonl --truncate", 0, "\"tokens\":1}");
    expect("$L eval run --requests long.jsonl --truncate parallel.dp=2", 0, "\"tokens\":1}");
    expect("printf '{\"id\": 300}\\n' > ids.jsonl; $L eval run --ids ids.jsonl", data,
           "ids.jsonl:1: \"id\": expected a token id from 0 to 256");
    expect("$L eval run --text /dev/null", data, "at least two tokens");
    expect("$L eval run --text txet", io, "did you mean text?");
    expect("$L eval run --text text --ids ids.jsonl", 2, "--text and --ids: expected one of them");
    expect("$L eval run corpus_valid --text text", 2, "--text and DATA (corpus_valid)");
    expect("$L eval run --text text --samples 2", 2, "--samples goes with DATA and with --choices");
    expect("$L eval run --text text --output x", 2, "--output goes with --requests");
    expect("$L eval run --text text --truncate", 2, "--truncate goes with --requests");
    expect("$L eval run --choices x --logprobs y", 2, "--choices has no --logprobs");
    expect("$L eval run --text text --logprobs none/x", io, "none/x");
    expect("$L eval run --requests requests.jsonl --output none/x", io, "none/x");
    expect("$L eval run --requests requests.jsonl > /dev/full", ls_exit_code(LS_ENOSPC),
           "standard output cannot be written");
    expect("mkfifo gone && exec 3<>gone 4>gone 3<&- && rm gone && $L eval run --requests "
           "requests.jsonl >&4",
           0, "");
    assert_string_equal(output, ""); /* a reader who is gone */
}

/* The file of log-probabilities is there when all of it is. */
CASE(test_nothing_half_written)
{
    expect("rm -f half*; $L eval run --requests bad.jsonl --logprobs half --output half2",
           ls_exit_code(LS_EDATA), "bad.jsonl:2");
    assert_int_equal(matches("half*"), 0);
}

/* The script that serves lm-evaluation-harness, without it. */
CASE(test_a_script_asks_for_scores_and_texts)
{
    char line[PATH_MAX + 200];
    snprintf(line, sizeof line,
             "LOCKSTEP_LIBRARY=$(dirname $L)/liblockstep.so.0 PYTHONDONTWRITEBYTECODE=1 python3 "
             "'%s' --self-test run",
             script);
    expect(line, 0, "lm_eval_lockstep: ok");
}

SUITE_MAIN(run_setup, scratch_teardown)
