/* `lockstep convert`: its arguments, where the result goes, and that a run takes it. Runs from the
 * root of the tree, where the converter's golden files are. */
#include "../support/scratch.h"
#include "../support/suite.h"
#include "run_program.h"

#include <lockstep/base.h>

#include <stdio.h>
#include <stdlib.h>

#define GOLDEN "test/convert/golden/"

static const int wrong = 2;

CASE(test_each_project)
{
    program_expect("convert deepspeed " GOLDEN "zero3.json --ranks 8", 0,
                   "dp: 8                           # --ranks");
    program_expect("convert megatron " GOLDEN "pretrain.sh", 0, "(Megatron-LM)");
    program_expect("convert torchtitan " GOLDEN "newer.toml", 0, "schedule: wsd");
    program_expect("convert deepspeed --keys", 0,
                   "| `gradient_clipping` | copied | `optim.clip` |");
    program_expect("convert torchtitan --keys", 0, "fine with `rmsnorm` or");
}

CASE(test_arguments_of_megatron)
{
    static const char *const forms[] = {
        "convert megatron '--num-layers 2 --attention-dropout 0' model.heads=4",
        "convert megatron -- --num-layers 2 --attention-dropout 0 model.heads=4",
        "convert megatron model.heads=4 -- --num-layers 2 --attention-dropout=0",
        "convert megatron -- --num-layers '2' \"--attention-dropout 0\" model.heads=4",
    };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        program_expect(forms[i], 0, "layers: 2 ");
        program_expect(forms[i], 0, "heads: 4 ");
        program_expect(forms[i], 0, "Converted from arguments (Megatron-LM)");
    }
    program_expect("convert megatron -- --tokenizer-model \"it's $here\" --attention-dropout 0", 0,
                   "--tokenizer-model (line 1)");
    program_expect("convert megatron " GOLDEN "pretrain.sh SIZE=small", 0, "runs/gpt small");
}

CASE(test_losses_are_listed)
{
    program_expect("convert megatron " GOLDEN "llama.txt --ranks 16", wrong,
                   "llama.txt:9: --moe-router-topk: there are no experts");
    program_expect("convert megatron " GOLDEN "llama.txt --ranks 16", wrong,
                   "lockstep convert: " GOLDEN "llama.txt:9: --num-experts");
    program_expect("convert megatron " GOLDEN "llama.txt --ranks 16 --allow-loss", 0,
                   "LEFT OUT ALTHOUGH RESULTS CHANGE");
    program_expect("convert megatron " GOLDEN "llama.txt --ranks 16 --allow-loss >/dev/null", 0,
                   "llama.txt:9: --num-experts: there are no experts");
}

CASE(test_bad_command_lines)
{
    program_expect("convert", wrong, "expected deepspeed|megatron|torchtitan");
    program_expect("convert nanogpt x", wrong, "doc/coming-from/nanogpt-llmc.md has our key");
    program_expect("convert torchtitan config_registry.py", wrong,
                   "a program in Python, which is not run: expected its values as TOML");
    program_expect("convert deepsped x.json", wrong, "did you mean deepspeed?");
    program_expect("convert " GOLDEN "zero3.json", wrong, "lockstep convert deepspeed " GOLDEN);
    program_expect("convert deepspeed", wrong, "expected");
    program_expect("convert deepspeed a.json b.json", wrong, "one file is expected");
    program_expect("convert deepspeed /no/such.json", ls_exit_code(LS_EIO), "/no/such.json");
    program_expect("convert deepspeed " GOLDEN "zero3.json --ranks many", wrong, "--ranks = many");
    program_expect("convert deepspeed " GOLDEN "zero3.json --rank 2", wrong,
                   "did you mean --ranks?");
    program_expect("convert deepspeed " GOLDEN "zero3.json --ranks 8 --model gpt2-124", wrong,
                   "--model = gpt2-124: no such preset; did you mean gpt2-124m?");
    program_expect("convert deepspeed /dev/zero", wrong, "/dev/zero");
}

/* --out writes a file that a layout can be made of, or nothing. */
CASE_WITH(test_a_run_takes_the_result, scratch_setup, scratch_teardown)
{
    char arguments[1024];
    const char *path = scratch_path(*state, "run.yaml");
    snprintf(arguments, sizeof arguments,
             "convert deepspeed " GOLDEN "zero3.json --ranks 4 --model gpt2-tiny --out '%s' "
             "model.vocab=257 parallel.persist=0",
             path);
    program_expect(arguments, 0, "");
    snprintf(arguments, sizeof arguments, "layout '%s'", path);
    program_expect(arguments, 0, "4 ranks = pp 1 x dp_replicate 1 x dp_shard 4");
    snprintf(arguments, sizeof arguments, "convert megatron '--lr x' --allow-loss --out '%s'",
             scratch_path(*state, "none.yaml"));
    program_expect(arguments, wrong, "expected a number");
    assert_int_equal(scratch_count(*state), 1);
    program_expect("convert deepspeed " GOLDEN "zero3.json --ranks 8 --out /no/such/folder/x.yaml",
                   ls_exit_code(LS_EIO), "/no/such/folder");
}

SUITE_MAIN(NULL, NULL)
