/* `lockstep plan memory`: its tables, JSON and picture, the textbook beside it, and what it
 * refuses. Runs from the root of the tree, where configs/ is. */
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/svg.h"
#include "../support/xml.h"
#include "run_program.h"

#include <lockstep/base.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TINY "plan memory configs/gpt2-tiny.yaml batch.global=8 batch.micro=1 model.vocab=257 "
#define CUT  TINY "parallel.pp=2 parallel.tp=2 parallel.dp=2 parallel.zero=3 "

static json_t *planned(const char *arguments)
{
    static char output[PROGRAM_OUTPUT_BYTES];
    json_error_t why;
    assert_int_equal(program_run("", arguments, output), 0);
    json_t *json = json_loads(output, 0, &why);
    if (!json)
        fail_msg("%s\n%s", why.text, output);
    return json;
}

static double sum_of(json_t *bytes)
{
    const char *name;
    json_t *value;
    double sum = 0;
    json_object_foreach(bytes, name, value) if (strcmp(name, "all") != 0) sum +=
        json_number_value(value);
    return sum;
}

CASE(test_parts_add_up)
{
    static const char *const cases[] = {TINY "--json", CUT "--json",
                                        TINY "parallel.pp=3 parallel.schedule=zb-h1 --json",
                                        "plan memory configs/llama-405b-16k.yaml --json"};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *plan = planned(cases[i]), *kind;
        size_t k;
        json_array_foreach(json_object_get(plan, "kinds"), k, kind)
        {
            json_t *allocated = json_object_get(kind, "allocated");
            json_t *used = json_object_get(json_object_get(kind, "peak"), "in_use");
            double all = json_number_value(json_object_get(allocated, "all"));
            assert_true(all == sum_of(allocated));
            assert_true(json_number_value(json_object_get(used, "all")) == sum_of(used));
            assert_true(sum_of(used) > 0.5 * all && sum_of(used) <= all);
        }
        assert_true(k > 0);
        json_decref(plan);
    }
}

CASE(test_shows_ranks_and_the_moment)
{
    static const char *const words[] = {"8 ranks of gpt2, each: 4 micro-batches of 1 sequence",
                                        "memory of a rank, as it is allocated",
                                        "communication",
                                        "the most in use at once",
                                        ", micro-batch ",
                                        "8 ranks on this machine alone would take ",
                                        "\nbeside that at most "};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        program_expect(CUT, 0, words[i]);
    program_expect(CUT "--rank 7", 0, "\n          7 ");
}

/* A cluster's ranks on a laptop: what is compared is said, and where to ask instead. */
CASE(test_a_cluster_does_not_fit_here)
{
    program_expect("plan memory configs/llama-405b-16k.yaml", 0,
                   "16384 ranks on this machine alone would take ");
    program_expect("plan memory configs/llama-405b-16k.yaml", 0,
                   "is free: DOES NOT FIT: use more machines (`lockstep plan --cluster FILE` ");
    program_expect("plan memory configs/llama-405b-16k.yaml --json", 0, "\"fits_here\": false}");
    program_expect(CUT "--json", 0, "\"fits_here\": true}");
}

/* ZeRO's table for 7.5 billion parameters scaled to 6.74: 16 bytes a parameter over 4 ranks. */
CASE(test_explains)
{
    static const char *const words[] = {
        "  textbook                   12.55 GiB     12.55 GiB     75.31 GiB",
        "  textbook                   12.55 GiB     12.55 GiB     18.83 GiB",
        "  textbook                   12.55 GiB      3.14 GiB     18.83 GiB",
        "  textbook                    3.14 GiB      3.14 GiB     18.83 GiB",
        "  here                        9.41 GiB      6.28 GiB     12.55 GiB"};
    char arguments[256];
    for (int i = 0; i < 5; i++) {
        snprintf(arguments, sizeof arguments,
                 "plan memory model.preset=llama2-7b data.sequence=4096 numerics.precision=bf16 "
                 "batch.global=4 parallel.dp_shard=4 parallel.zero=%d --explain",
                 i < 3 ? i : 3);
        program_expect(arguments, 0, words[i]);
    }
    program_expect(CUT "--explain", 0, "16 bytes for each of ");
    program_expect(CUT "--explain", 0, "Gradients are summed in float32");
    program_expect(CUT "--explain", 0, "Dropout's masks are drawn again");
}

CASE_WITH(test_draws, scratch_setup, scratch_teardown)
{
    const char *path = scratch_path(*state, "memory.svg");
    char arguments[1024];
    snprintf(arguments, sizeof arguments, CUT "--svg '%s'", path);
    program_expect(arguments, 0, "memory of a rank");
    char *text = scratch_read(path, NULL);
    assert_xml(text);
    assert_svg_texts(text);
    assert_svg_legend(text);
    static const char *const words[] = {
        "Memory in use on rank ", "allocated: ",      "most: ", ">activations ", ">workspace ",
        ", communication ",       "layers under work"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        assert_non_null(strstr(text, words[i]));
    free(text);
}

CASE(test_refuses)
{
    program_expect(CUT "--rank 8", ls_exit_code(LS_ECONFIG), "--rank");
    program_expect(CUT "--svg /no/such/folder/m.svg", ls_exit_code(LS_EIO), "/no/such/folder");
    program_expect(TINY "parallel.tp=3", ls_exit_code(LS_ELAYOUT), "the nearest that works");
    program_expect("plan memory no-such.yaml", ls_exit_code(LS_EIO), "no-such.yaml");
    program_expect("plan memoir", ls_exit_code(LS_ECONFIG), "did you mean plan memory");
    program_expect("plan", ls_exit_code(LS_ECONFIG), "Usage: lockstep plan [option]...");
}

CASE(test_plans_16384_ranks)
{
    program_expect_within("plan memory configs/llama-405b-16k.yaml", "16384 ranks of llama",
                          (size_t)1 << 30);
}

SUITE_MAIN(NULL, NULL)
