/* lockstep verify: layouts of a recipe, drawn at random, against one rank. */
#include "cmd.h"
#include "rank_start.h"

#include <lockstep/base/meter.h>
#include <lockstep/base/words.h>
#include <lockstep/compare.h>
#include <lockstep/train/recorded.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TEXT_BYTES = 1024 };

struct verify {
    int64_t layouts, ranks, steps, seed;
    struct ls_config config, one;
    struct ls_proof *reference, *proof; /* [steps] */
    uint64_t *seen;                     /* [layouts]: hashes of the texts of those that ran */
    struct ls_draw_cover cover;
    int64_t ran, differ, failed, too_large;
};

static void print_layout(const struct verify *v, const struct ls_config *config, double bytes)
{
    char text[TEXT_BYTES];
    ls_config_layout_text(config, &v->one, text, sizeof text);
    cmd_print("%4ld/%ld  %2ld rank%s %10s  %s: ", (long)v->ran, (long)v->layouts,
              (long)ls_config_ranks(config), ls_config_ranks(config) == 1 ? " " : "s",
              ls_bytes(bytes).text, text);
}

static void print_difference(const struct verify *v, const struct ls_config *config, int64_t step)
{
    char tensor[256];
    struct ls_error error = {0};
    const struct ls_proof *one = &v->reference[step - 1], *here = &v->proof[step - 1];
    printf("DIFFERS at step %ld (loss bits %08x, one rank's are %08x)\n", (long)step,
           here->loss_bits, one->loss_bits);
    if (ls_proof_trace(&v->one, config, step, tensor, sizeof tensor, &error))
        printf("          not traced: %s\n", error.text);
    else
        printf("          first tensor: %s\n", tensor);
}

/* Before it runs: that every wait ends. */
static int waits_prove(const struct ls_config *config, struct ls_error *error)
{
    struct ls_layout layout;
    struct ls_layout_proof proof;
    int status = ls_config_layout(config, 0, &layout, error);
    return status ? status : ls_layout_check(config, &layout, false, &proof, error);
}

/* Proves and runs one layout and prints its line. Only what makes going on senseless is an error.
 */
static int layout_check(struct verify *v, const struct ls_config *config, struct ls_error *error)
{
    double bytes;
    int status = ranks_memory(config, &bytes, error);
    if (status == LS_ENOMEM) {
        v->too_large++;
        return LS_OK;
    }
    if (status)
        return status;
    v->ran++;
    print_layout(v, config, bytes);
    status = waits_prove(config, error);
    if (!status)
        status = ls_proof_threads(config, v->steps, v->proof, error);
    if (status == LS_ECOMM) {
        putchar('\n');
        return status;
    }
    int64_t step = status ? 0 : ls_proof_differs(v->reference, v->proof, v->steps);
    if (status) {
        printf("FAILED: %s\n", error->text);
        v->failed++;
    } else if (step) {
        print_difference(v, config, step);
        v->differ++;
    } else {
        puts("ok");
    }
    fflush(stdout);
    ls_meter("layouts", v->ran, v->layouts);
    return LS_OK;
}

/* Whether a layout was not there before; it is from now on. A micro-batch that is chosen is the
 * same as one that is given. */
static bool is_new(struct verify *v, const struct ls_config *config, int64_t count)
{
    char text[TEXT_BYTES];
    struct ls_config given = *config;
    struct ls_layout layout;
    if (!ls_config_layout(config, 0, &layout, NULL))
        given.batch.micro = layout.micro_sequences;
    ls_config_layout_text(&given, &v->one, text, sizeof text);
    uint64_t hash = ls_hash64(text, strlen(text), 0);
    for (int64_t i = 0; i < count; i++)
        if (v->seen[i] == hash)
            return false;
    v->seen[count] = hash;
    return true;
}

/* The configuration's own layout, then those that are drawn, each once. */
static int layouts_check(struct verify *v, struct ls_error *error)
{
    enum { DRAWS_FOR_ONE = 30 };
    struct ls_config drawn;
    int64_t count = 0, last_new = 0;
    int status = LS_OK, values[LS_DRAW_ROWS_MAX];
    is_new(v, &v->one, count++);
    if (is_new(v, &v->config, count)) {
        count++;
        if (ls_draw_values(&v->config, values))
            ls_draw_cover_add(&v->cover, values);
        status = layout_check(v, &v->config, error);
    }
    for (int64_t i = 0; count < v->layouts + 1 && !status && i - last_new < DRAWS_FOR_ONE; i++) {
        const char *file = v->config.memory.file;
        struct ls_draw draw = {.seed = (uint64_t)v->seed,
                               .index = (uint64_t)i,
                               .ranks_max = v->ranks,
                               .file = *file ? file : NULL};
        if (ls_compare_draw(&v->config, 1, &draw, &v->cover, &drawn) < 0)
            break;
        if (!is_new(v, &drawn, count))
            continue;
        count++;
        last_new = i;
        status = layout_check(v, &drawn, error);
    }
    return status;
}

static int reference_make(struct verify *v, struct ls_error *error)
{
    char hash[33];
    double bytes;
    struct ls_params params;
    struct ls_numerics numerics = ls_config_numerics(&v->config);
    int status = ranks_memory(&v->one, &bytes, error);
    if (!status)
        status = ls_params_init(&params, &v->config.model, &numerics, NULL, error);
    if (status)
        return status;
    printf("%s %.1fM parameters, %s, %ld x %ld tokens a step, %s\n",
           ls_arch_name(v->config.model.arch), (double)params.weights / 1e6,
           ls_config_precision(&v->config), (long)v->config.batch.global,
           (long)v->config.data.sequence, ls_counted(v->steps, "step").text);
    printf("one rank, %s: ", ls_bytes(bytes).text);
    fflush(stdout);
    ls_params_release(&params);
    double begin_s = ls_now_s();
    status = ls_proof_threads(&v->one, v->steps, v->reference, error);
    if (status)
        return status;
    ls_digest_hex(&v->reference[v->steps - 1].hash, hash);
    printf("hash %s, %.1f s\n", hash, ls_now_s() - begin_s);
    return LS_OK;
}

/* Whether the recipe admits no layout that cuts anything but the list of layers: axes are the first
 * rows, and each was asked for. */
static bool only_pipelines(const struct verify *v)
{
    for (int axis = 0; axis < LS_AXES; axis++)
        if (axis != LS_AXIS_PP && !v->cover.pair_impossible[axis][axis])
            return false;
    return true;
}

static int summary(const struct verify *v)
{
    char hash[33];
    ls_digest_hex(&v->reference[v->steps - 1].hash, hash);
    ls_draw_cover_line(&v->cover, stdout);
    if (v->too_large)
        printf("left out: %s, with ranks that do not fit into this machine's memory\n",
               ls_counted(v->too_large, "layout").text);
    if (only_pipelines(v) || v->ran + v->too_large < v->layouts)
        printf("the recipe admits few layouts of at most %s: a larger batch.global, or "
               "numerics.tp_tiles and numerics.seq_tiles above 1, admit more\n",
               ls_counted(v->ranks, "rank").text);
    if (v->differ || v->failed)
        printf("%s: different from one rank %ld, failed %ld\n", ls_counted(v->ran, "layout").text,
               (long)v->differ, (long)v->failed);
    else
        printf("%s, 1 hash: %s\n", ls_counted(v->ran, "layout").text, hash);
    return v->differ || v->failed;
}

static int read_arguments(struct verify *v, const struct cmd_args *args, struct ls_error *error)
{
    int status = cmd_args_int(args, "--layouts", 1, 1000000, &v->layouts, error);
    if (!status)
        status = cmd_args_int(args, "--ranks", 2, 1024, &v->ranks, error);
    if (!status)
        status = cmd_args_int(args, "--steps", 1, 1000000, &v->steps, error);
    if (!status)
        status = cmd_args_int(args, "--seed", 0, INT64_MAX, &v->seed, error);
    if (!status && ls_mpi_launched())
        status = ls_error_set(error, LS_ECONFIG,
                              "ranks are threads of one process here: start it without mpirun");
    return status;
}

/* Once for all layouts: each would measure by itself. */
static int arithmetic_settle(struct ls_config *config, struct ls_error *error)
{
    struct ls_comm *self;
    int status = ls_comm_self_new(&self, error);
    if (status)
        return status;
    status = ls_state_recall(config, self, error);
    if (!status)
        status = ls_config_settle(config, self, error);
    ls_comm_free(self);
    return status;
}

static int prepare(struct verify *v, const struct cmd_args *args, struct ls_error *error)
{
    int status = ranks_config(&v->config, NULL, args->word, args->words, error);
    if (!status)
        status = ls_config_require_data(&v->config, error);
    if (!status && v->config.numerics.mode == LS_CONFIG_FAST)
        status = ls_config_reject(&v->config, LS_ECONFIG, "numerics.mode", error,
                                  "in this mode the bits depend on the layout, so verify has "
                                  "nothing to prove: use ordered");
    struct ls_layout layout;
    if (!status)
        status = ls_config_layout(&v->config, 0, &layout, error);
    if (!status)
        status = arithmetic_settle(&v->config, error);
    if (status)
        return status;
    v->config.log.trace = false;
    ls_compare_one_rank(&v->config, &v->one);
    size_t steps = (size_t)v->steps;
    v->reference = calloc(steps, sizeof *v->reference);
    v->proof = calloc(steps, sizeof *v->proof);
    v->seen = calloc((size_t)v->layouts + 2, sizeof *v->seen);
    if (!v->reference || !v->proof || !v->seen)
        return ls_error_set(error, LS_ENOMEM, "no memory for %ld steps", (long)v->steps);
    return LS_OK;
}

int cmd_verify(const struct cmd_args *args, struct ls_error *error)
{
    static struct verify v;
    v = (struct verify){.layouts = 50, .ranks = 8, .steps = 3, .seed = 1};
    int status = read_arguments(&v, args, error);
    if (!status)
        status = prepare(&v, args, error);
    if (!isatty(STDOUT_FILENO)) /* there its lines show it */
        cmd_progress_begin();
    if (!status)
        status = reference_make(&v, error);
    if (!status)
        status = layouts_check(&v, error);
    ranks_end(status, error);
    int code = status ? status : summary(&v);
    free(v.reference);
    free(v.proof);
    free(v.seen);
    return code;
}
