/* `lockstep generate` of many prompts, and of one with its log-probabilities: `lockstep eval` finds
 * the same bits, whatever the layout and the batch; what is wrong is named. */
#include "../support/scratch.h"
#include "../support/suite.h"
#include "runs.h"

#include <lockstep/base.h>

#include <stdio.h>
#include <string.h>

static int run_setup(void **state)
{
    if (corpus_setup(state))
        return -1;
    return shell("$L train $C train.steps=2 train.out=run numerics.tp_tiles=4 && "
                 "printf 'in the\\n\\nbeginning\\nand it was so' > prompts.txt && printf '%s\\n' "
                 "'{\"prompt\": \"in the\", \"max_tokens\": 3}' "
                 "'{\"prompt\": [98, 101], \"stop\": [\"zzz\", \"e\"]}' > prompts.jsonl");
}

CASE(test_a_prompt_has_the_bits_that_an_evaluation_finds)
{
    expect("$L generate run --prompt 'in the beginning' --tokens 16 --logprobs > a && wc -l a && "
           "$L eval run --ids a --logprobs b parallel.tp=2 && cmp a b && "
           "$L generate run --prompt 'in the beginning' --tokens 16 --logprobs --output c "
           "parallel.pp=2 parallel.tp=2 && cmp a c",
           0, "32 a");
}

CASE(test_many_prompts)
{
    expect("$L generate run --prompts prompts.txt --tokens 9 --logprobs --batch 1 --output a && "
           "$L generate run --prompts prompts.txt --tokens 9 --logprobs --batch 2 > b 2> told && "
           "cmp a b && $L generate run --prompts prompts.txt --tokens 9 --logprobs parallel.tp=4 "
           "--output c && cmp a c && cat told && wc -l a",
           0, "3 a");
    assert_non_null(strstr(output, "28 tokens read, 27 written in "));
    assert_non_null(strstr(output, "; 2 at a time, keys and values of 128 tokens: "));
    expect("$L generate run --prompts prompts.txt --tokens 9 --samples 2 --output d && "
           "$L generate run --prompts prompts.txt --tokens 9 --samples 2 --cache-tokens 64 "
           "parallel.dp=2 parallel.tp=2 --output e && cmp d e && wc -l d",
           0, "6 d");
    expect("cat d", 0, "{\"index\":2,\"sample\":1,\"text\":\"");
    expect("$L generate run --samples 2", 2, "--samples: expected --prompts FILE beside it");
    expect("$L generate run --prompts prompts.txt --cache-tokens 63", 2,
           "room for keys and values of 63 tokens: the longest text may come to ");
    expect("cat a", 0, "\"finish\":\"length\",\"prompt_tokens\":6,\"tokens\":[105,110,32,");
    expect("$L eval run --requests a", 0, "{\"index\":2,\"loglikelihood\":-");
    assert_non_null(strstr(output, "\"is_greedy\":false,\"tokens\":9}"));
    expect("$L generate run --prompts prompts.jsonl --tokens 20 --temperature 0 --eos none", 0,
           "{\"index\":1,\"text\":\"");
    assert_non_null(strstr(output, "\"finish\":\"length\",\"prompt_tokens\":6"));
}

/* The text that comes as it is drawn is the one of the lines, up to where it stops. */
CASE(test_where_a_text_stops)
{
    expect("$L generate run --prompt 'in the' --tokens 200 --seed 3 --eos none > whole && "
           "$L generate run --prompt 'in the' --tokens 200 --seed 3 --eos none --stop e > cut && "
           "printf 'in the' > p.txt && "
           "$L generate run --prompts p.txt --tokens 26 --seed 3 --eos none --stop e",
           0, "\"finish\":\"stop\",\"prompt_tokens\":6");
    expect("head -c $(($(wc -c < cut) - 1)) cut > body && cmp -n $(wc -c < body) body whole && "
           "tail -c +7 body | grep -c e",
           1, "0");
}

/* A conversation is the text that its template makes; a turn joins it with its answer. */
CASE(test_conversations)
{
    expect("printf '%s' '{% for m in messages %}{{ m.role[0] ~ m.content }}|{% endfor %}a' > t && "
           "printf '%s\\n' '{\"messages\": [{\"role\": \"system\", \"content\": \"be\"}, "
           "{\"role\": \"user\", \"content\": \"hi\"}], \"max_tokens\": 3}' > c.jsonl && "
           "sed 's/,/,\\n/g' c.jsonl > c.json && "
           "echo '{\"prompt\": \"sbe|uhi|a\", \"max_tokens\": 3}' > p.jsonl && "
           "$L generate run --prompts p.jsonl > p && "
           "$L generate run --chat --chat-template t --prompts c.jsonl > c && cmp p c && "
           "$L generate run --chat --chat-template t --prompts c.json > c && cmp p c",
           0, "");
    /* The user's line and the answer are in the second prompt. */
    expect("printf 'hi\\n\\nso\\n' > said && "
           "$L generate run --chat --chat-template t --system be --tokens 3 < said > turns && "
           "$L generate run --chat --chat-template t --system be --tokens 3 --prompt hi > one && "
           "cmp -n $(wc -c < one) one turns && test $(wc -c < turns) -gt $(wc -c < one) && "
           "$L generate run --chat --chat-template t --system be --tokens 3 parallel.tp=2 "
           "parallel.pp=2 < said > cut && cmp turns cut",
           0, "the answer was cut after 3 tokens");
    int data = ls_exit_code(LS_EDATA);
    expect(
        "printf '%s' '{{ strftime_now(\"%Y-\") ~ messages[0].content }}|' > day && "
        "printf '2026-hi|' > p.txt && echo '{\"messages\": [{\"role\": \"user\", \"content\": "
        "\"hi\"}]}' > u.jsonl && $L generate run --prompts p.txt --tokens 3 > p && "
        "$L generate run --chat --chat-template day --template-date 2026-11-25 --prompts u.jsonl "
        "--tokens 3 > c && cmp p c",
        0, "");
    expect("echo '[{\"role\": \"user\"}]' > list.json; "
           "$L generate run --chat --chat-template t --prompts list.json",
           data, "list.json: expected one JSON object, {\"messages\": [...]}");
    expect("$L generate run --chat --chat-template day --prompts u.jsonl", data,
           "day:1:4: strftime_now is not defined");
    expect("$L generate run --chat --chat-template day --template-date 1.2.2026 --prompts u.jsonl",
           2, "--template-date: 1.2.2026: expected a day such as");
    expect("$L generate run --template-date 2026-11-25", 2, "--template-date: expected --chat");
    expect("$L data prepare --input u.jsonl --output u --tokenizer byte --template-date 2026-11-25",
           2, "--template-date needs --chat");
    expect("sed 's/user/assistant/' u.jsonl > a.jsonl && (printf '{%% generation %%}'; cat day; "
           "printf '{%% endgeneration %%}') > said.day && $L data prepare --input a.jsonl --chat "
           "--chat-template said.day --template-date 2026-11-25 --output a --tokenizer byte "
           "--validation 0",
           0, "1 document, 9 tokens, 8 of them count");
    expect("$L generate run --chat", 2, "the tokenizer byte has no chat template");
    expect("$L generate run --system x", 2, "--system: expected --chat beside it");
    expect("$L generate run --chat --chat-template none", ls_exit_code(LS_EIO), "none");
    expect("sed 's/user/assistant/' c.jsonl > d.jsonl; "
           "$L generate run --chat --chat-template t --prompts d.jsonl",
           data, "d.jsonl:1: \"messages\": the last one is the assistant's");
    expect("$L generate run --chat --chat-template t --prompt x --logprobs", 2, "--prompts FILE");
    expect("$L generate run --chat --chat-template t --special-tokens text", 2,
           "the chat template writes special tokens");
    expect("echo \"$(printf '%040d' 7)\" | $L generate run --chat --chat-template t", data,
           "lockstep generate: the conversation has 43 tokens: at most 32 fit the model's context "
           "(--truncate leaves out the first ones)");
    expect("$L generate run --prompt $(printf '%040d' 7) --logprobs", data,
           "lockstep generate: the prompt has 40 tokens: at most 32 fit the model's context (--tr");
    expect("echo \"$(printf '%040d' 7)\" | "
           "$L generate run --chat --chat-template t --tokens 8 --truncate",
           0, "cut after 8 tokens");
}

/* The token in front, and those written in a text: as in transformers, unless it is said. */
CASE(test_special_tokens)
{
    expect("printf 'in the<|end_of_text|>' > end.txt && seq 1000 > numbers && "
           "$L data prepare --input numbers --output with --validation 0 --tokenizer "
           "$G/families/llama3.json && "
           "$L data prepare --input numbers --output without --validation 0 --tokenizer "
           "$G/families/llama3.json --no-special-tokens && "
           "$L train $C data.train=with_train data.valid= train.steps=1 train.out=llama && "
           "echo $(($(wc -c < with_train.bin) - $(wc -c < without_train.bin))) bytes more",
           0, "\n2 bytes more");
    expect("$L train $C data.train=with_train data.valid= data.tokenizer=byte --dry-run", 0,
           "its samples are not counted: command line: data.train");
    expect("$L generate llama --prompts end.txt --tokens 1", 0, "\"prompt_tokens\":4,");
    expect("$L generate llama --prompts end.txt --tokens 1 --no-special-tokens "
           "--special-tokens text",
           0, "\"prompt_tokens\":16,");
    expect("$L eval llama --text end.txt --no-special-tokens", 0, "  2 tokens  ");
    expect("$L eval llama --text end.txt --special-tokens text", 0, "  16 tokens  ");
    expect(
        "printf '{\"context\": \"in\", \"continuation\": \" the<|end_of_text|>\"}' > end.jsonl && "
        "$L eval llama --requests end.jsonl --logprobs x && wc -l < x",
        0, "\"tokens\":2}\n4\n");
    expect("$L eval llama --requests end.jsonl --logprobs x --no-special-tokens && wc -l < x", 0,
           "\"tokens\":2}\n3\n");
    expect("$L eval llama --requests end.jsonl --special-tokens text", 0, "\"tokens\":15}");
    expect("$L eval llama --ids x --special-tokens text", 2,
           "--special-tokens goes with --text FILE and --requests FILE");
    expect("$L eval llama --no-special-tokens", 2, "--no-special-tokens goes with --text FILE");
}

/* Ids go in and come out: nothing else needs a tokenizer. */
CASE(test_ids_without_a_tokenizer)
{
    expect("head -c 4096 corpus_train.bin > ids.bin && "
           "$L train $C data.train=u16:ids.bin data.valid= model.vocab=30000 train.steps=1 "
           "train.out=bare && echo '{\"prompt\": [97, 98, 99]}' > ids.jsonl && "
           "$L generate bare --prompts ids.jsonl --tokens 2",
           0, "{\"index\":0,\"finish\":\"length\",\"prompt_tokens\":3,\"tokens\":[97,98,99,");
    /* A tokenizer leaves out the rows that it has no token for. */
    expect("$L generate bare --prompts ids.jsonl --tokens 16 | grep -cE '[0-9]{4}'", 0, "1");
    expect("$L generate bare --prompts ids.jsonl --tokens 16 data.tokenizer=byte > within.jsonl && "
           "grep -cE '[0-9]{4}' within.jsonl",
           1, "0");
    expect("$L generate bare --prompt x", 2, "data.tokenizer");
    expect("$L generate bare --prompts ids.jsonl --stop x", 2, "a text to stop at: text needs the");
    expect("$L generate bare --chat", 2,
           "--chat: the model has no tokenizer that can be read: name one with");
}

CASE(test_what_is_wrong_is_named)
{
    int data = ls_exit_code(LS_EDATA), io = ls_exit_code(LS_EIO);
    expect("printf 'ok\\n%040d\\n' 7 > long.txt; $L generate run --prompts long.txt", data,
           "long.txt: line 2 has 40 tokens: at most 32 fit the model's context (--truncate leaves");
    expect("$L generate run --prompts long.txt --tokens 8 --truncate", 0, "\"prompt_tokens\":25,");
    assert_non_null(strstr(output, "--truncate left out the first tokens of 1 prompt\n"));
    expect("$L generate run --prompts long.txt --tokens 32 --truncate", data,
           "long.txt: line 1 has 2 tokens, and 32 are to be added (max_tokens, --tokens): the "
           "model's context of 32 has no room for the prompt: expected at most 31 to be added");
    /* The default of 128 leaves half of the context. */
    expect("$L generate run --prompts long.txt --truncate", 0, "\"prompt_tokens\":17,");
    expect("printf '{\"prompt\": [1, 300]}\\n' > bad.jsonl; $L generate run --prompts bad.jsonl",
           data, "bad.jsonl:1: \"prompt\", value 2: expected token ids from 0 to 256");
    expect("$L generate run --prompts /dev/null", data, "/dev/null holds no prompts");
    expect("$L generate run --prompts pronpts.txt", io, "did you mean prompts.txt?");
    expect("$L generate run --prompts prompts.txt --prompt x", 2, "--prompt and --prompts");
    expect("$L generate run --prompts prompts.txt --output none/x", io, "none/x");
    expect("$L generate run --prompts prompts.txt --tokens 2 > /dev/full", ls_exit_code(LS_ENOSPC),
           "standard output cannot be written");
    expect("$L generate run --prompts prompts.txt --tokens 2 parallel.tp=2 parallel.pp=2 "
           "> /dev/full",
           ls_exit_code(LS_ENOSPC), "standard output cannot be written");
    /* A reader who is gone: nothing is said, and it ends with the first line that he refuses. */
    for (int layout = 0; layout < 2; layout++) {
        char line[512];
        snprintf(line, sizeof line,
                 "mkfifo gone && exec 3<>gone 4>gone 3<&- && rm gone && $L generate run --prompts "
                 "prompts.txt --batch 1 %s >&4",
                 layout ? "parallel.tp=2" : "");
        expect(line, 0, "");
        assert_string_equal(output, "");
    }
    expect("$L generate run --prompts prompts.txt --batch 0", 2, "--batch = 0");
    expect("$L generate run --prompts prompts.txt --eos 5,x", 2, "--eos = 5,x: expected token ids");
    expect("$L generate run --prompt x --eos 257", 2, "--eos = 257: expected token ids from 0");
    expect("$L generate run --prompt x --stop ''", 2, "--stop: expected a text");
    expect("$L generate run --prompt x --output y", 2, "--output: expected --prompts or");
}

SUITE_MAIN(run_setup, scratch_teardown)
