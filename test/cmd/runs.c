/* Runs of the program on a small corpus, and what their records say. */
#include "runs.h"

#include "../support/scratch.h"
#include "../support/suite.h"

#include <lockstep/train.h>

#include <glob.h>
#include <jansson.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

char program[PATH_MAX];
const char *folder;
char output[OUTPUT_BYTES];

const char common[] =
    "data.train=corpus_train data.valid=corpus_valid model.layers=1 model.channels=32 "
    "model.heads=4 model.context=32 batch.global=4 optim.lr=3e-3 optim.schedule=constant "
    "eval.samples=8 numerics.precision=fp32 parallel.threads=1 log.progress=plain";

/* ---- running it ------------------------------------------------------------------------------ */

int shell(const char *line)
{
    char command[3 * PATH_MAX], golden[PATH_MAX] = "";
    LS_ASSERT(realpath("test/data/golden", golden));
    snprintf(command, sizeof command,
             "{ cd '%s' && L='%s' && C='%s' && G='%s' && M=" SHARD " && %s ; } 2>&1", folder,
             program, common, golden, line);
    return program_shell(command, output);
}

void expect(const char *line, int code, const char *words)
{
    int got = shell(line);
    if (got != code || !strstr(output, words))
        fail_msg("%s\nexited with %d and printed:\n%s\nexpected %d and: %s", line, got, output,
                 code, words);
}

pid_t run_start(const char *out, const char *keys)
{
    char line[3 * PATH_MAX];
    snprintf(line, sizeof line,
             "cd '%s' && exec '%s' train %s train.out=%s train.steps=1000000000 %s > %s.log 2>&1",
             folder, program, common, out, keys, out);
    return program_start(line, SIGKILL);
}

void mpi_or_skip(void)
{
#if !defined(LS_WITH_MPI)
    skip();
#endif
    if (shell("command -v mpirun")) {
        print_message("skipped: mpirun is absent\n");
        skip();
    }
}

const char *at(const char *name)
{
    return scratch_path(folder, name);
}

bool exists(const char *name)
{
    return access(at(name), F_OK) == 0;
}

size_t matches(const char *pattern)
{
    glob_t found;
    size_t count = glob(at(pattern), 0, NULL, &found) == 0 ? found.gl_pathc : 0;
    globfree(&found);
    return count;
}

/* ---- what a run recorded --------------------------------------------------------------------- */

static const char *const step_fields[] = {"tokens",      "loss",       "loss_bits",    "grad_norm",
                                          "lr",          "step_s",     "tokens_per_s", "peak_share",
                                          "data_wait_s", "comm_wait_s"};

/* The metrics, which may have moved. */
static struct metrics *step_read(const json_t *line, struct metrics *metrics)
{
    int64_t step = json_integer_value(json_object_get(line, "step"));
    assert_int_equal(step, metrics->steps + 1);
    for (size_t i = 0; i < sizeof step_fields / sizeof step_fields[0]; i++)
        if (!json_object_get(line, step_fields[i]))
            fail_msg("step %ld lacks %s", (long)step, step_fields[i]);
    const char *hex = json_string_value(json_object_get(line, "loss_bits"));
    assert_int_equal(strlen(hex), 8);
    uint32_t bits = (uint32_t)strtoul(hex, NULL, 16), loss_bits;
    float loss = (float)json_number_value(json_object_get(line, "loss"));
    memcpy(&loss_bits, &loss, sizeof loss_bits);
    if (json_is_number(json_object_get(line, "loss")))
        assert_int_equal(bits, loss_bits);
    assert_int_equal(json_integer_value(json_object_get(line, "tokens")), step * 4 * 32);
    if (metrics->steps == metrics->room) {
        metrics->room = 2 * metrics->room + 64;
        metrics = realloc(metrics, sizeof *metrics + (size_t)metrics->room * sizeof bits);
        assert_non_null(metrics);
    }
    metrics->bits[metrics->steps++] = bits;
    const char *hash = json_string_value(json_object_get(line, "hash"));
    if (hash)
        snprintf(metrics->hash, sizeof metrics->hash, "%s", hash);
    return metrics;
}

struct metrics *metrics_read(const char *run)
{
    char name[128];
    snprintf(name, sizeof name, "%s/metrics.jsonl", run);
    struct metrics *metrics = calloc(1, sizeof *metrics);
    char *text = scratch_read(at(name), NULL), *save = NULL;
    for (char *one = strtok_r(text, "\n", &save); one; one = strtok_r(NULL, "\n", &save)) {
        json_error_t error;
        json_t *line = json_loads(one, JSON_REJECT_DUPLICATES, &error);
        if (!line)
            fail_msg("%s: %s in: %s", name, error.text, one);
        json_t *validation = json_object_get(line, "validation_loss");
        if (validation)
            metrics->validation_loss = json_number_value(validation);
        else if (!json_object_get(line, "event"))
            metrics = step_read(line, metrics);
        json_decref(line);
    }
    free(text);
    return metrics;
}

void expect_same_run(const char *a, const char *b)
{
    struct metrics *first = metrics_read(a), *second = metrics_read(b);
    assert_int_equal(first->steps, second->steps);
    for (int64_t i = 0; i < first->steps; i++)
        if (first->bits[i] != second->bits[i])
            fail_msg("step %ld: %s has loss %08x, %s %08x", (long)i + 1, a, first->bits[i], b,
                     second->bits[i]);
    assert_int_equal(strlen(first->hash), 32);
    assert_string_equal(first->hash, second->hash);
    free(first);
    free(second);
}

/* ---- the corpus ------------------------------------------------------------------------------ */

int corpus_setup(void **state)
{
    if (scratch_setup(state))
        return -1;
    folder = *state;
    program_path(program, sizeof program);
    static const char *const words[] = {"in ", "the ",  "beginning ", "was ",
                                        "a ",  "sum, ", "and\n"};
    FILE *file = fopen(at("book.txt"), "w");
    for (uint32_t i = 0; i < 4000 && file; i++) {
        uint32_t bits[4];
        ls_philox(ls_philox_key_of(1, "words"), (uint32_t[4]){i, 0, 0, 0}, bits);
        fputs(words[bits[0] % 7], file);
    }
    if (!file || fclose(file))
        return -1;
    if (shell("$L data prepare --input book.txt --output corpus --tokenizer byte --workers 1")) {
        print_error("%s", output);
        return -1;
    }
    return 0;
}
