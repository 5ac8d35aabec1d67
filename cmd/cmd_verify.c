/* lockstep verify: layouts of a recipe, drawn at random, against one rank. */
#include "cmd.h"
#include "rank_start.h"

#include <lockstep/base/words.h>
#include <lockstep/compare/verify.h>

#include <unistd.h>

static int head_print(const struct ls_verify *v, struct ls_error *error)
{
    struct ls_params params;
    struct ls_numerics numerics = ls_config_numerics(&v->config);
    int status = ls_params_init(&params, &v->config.model, &numerics, NULL, error);
    if (status)
        return status;
    printf("%s %.1fM parameters, %s, %ld x %ld tokens a step, %s\n",
           ls_arch_name(v->config.model.arch), (double)params.weights / 1e6,
           ls_config_precision(&v->config), (long)v->config.batch.global,
           (long)v->config.data.sequence, ls_counted(v->request.steps, "step").text);
    ls_params_release(&params);
    return LS_OK;
}

static void one_rank_print(const struct ls_verified *one)
{
    char hash[33];
    if (one->as == LS_VERIFY_BEGINS) {
        printf("one rank, %s: ", ls_bytes(one->bytes).text);
        return;
    }
    ls_digest_hex(&one->hash, hash);
    printf("hash %s, %.1f s\n", hash, one->seconds);
}

static void begin_print(const struct ls_verify *v, const struct ls_verified *told)
{
    int64_t ranks = ls_config_ranks(told->config);
    cmd_print("%4ld/%ld  %2ld rank%s %10s  %s: ", (long)told->number, (long)v->request.layouts,
              (long)ranks, ranks == 1 ? " " : "s", ls_bytes(told->bytes).text, told->layout);
}

struct printing {
    const struct ls_verify *v;
    bool line_begun;
};

static void layout_print(void *user, const struct ls_verified *told)
{
    struct printing *p = user;
    p->line_begun = told->as == LS_VERIFY_BEGINS;
    if (told->number == 0) {
        one_rank_print(told);
    } else if (told->as == LS_VERIFY_BEGINS) {
        begin_print(p->v, told);
    } else if (told->as == LS_VERIFY_FAILED) {
        printf("FAILED: %s\n", told->why);
    } else if (told->as == LS_VERIFY_DIFFERS) {
        printf("DIFFERS at step %ld (loss bits %08x, one rank's are %08x)\n", (long)told->step,
               told->loss_bits, told->one_bits);
        printf("          %s: %s\n", told->traced ? "first tensor" : "not traced", told->tensor);
    } else {
        puts("ok");
    }
    cmd_flush();
}

static int summary(const struct ls_verify *v, bool verbose)
{
    char hash[33];
    ls_digest_hex(&v->reference[v->request.steps - 1].hash, hash);
    ls_draw_cover_line(&v->cover, verbose, stdout);
    if (v->too_large)
        printf("left out: %s, with ranks that do not fit into this machine's memory\n",
               ls_counted(v->too_large, "layout").text);
    if (ls_verify_only_pipelines(v) || v->ran + v->too_large < v->request.layouts)
        printf("the recipe admits few layouts of at most %s: a larger batch.global, or "
               "numerics.tp_tiles and numerics.seq_tiles above 1, admit more\n",
               ls_counted(v->request.ranks, "rank").text);
    if (v->differ || v->failed)
        printf("%s: different from one rank %ld, failed %ld\n", ls_counted(v->ran, "layout").text,
               (long)v->differ, (long)v->failed);
    else
        printf("%s, 1 hash: %s\n", ls_counted(v->ran, "layout").text, hash);
    return v->differ || v->failed;
}

static int read_arguments(struct ls_verify_request *request, const struct cmd_args *args,
                          struct ls_error *error)
{
    int64_t seed = (int64_t)request->seed;
    int status = cmd_args_int(args, "--layouts", 1, 1000000, &request->layouts, error);
    if (!status)
        status = cmd_args_int(args, "--ranks", 2, 1024, &request->ranks, error);
    if (!status)
        status = cmd_args_int(args, "--steps", 1, 1000000, &request->steps, error);
    if (!status)
        status = cmd_args_int(args, "--seed", 0, INT64_MAX, &seed, error);
    request->seed = (uint64_t)seed;
    if (!status && ls_mpi_launched())
        status = ls_error_set(error, LS_ECONFIG,
                              "ranks are threads of one process here: start it without mpirun");
    return status;
}

int cmd_verify(const struct cmd_args *args, struct ls_error *error)
{
    static struct ls_verify v;
    static struct ls_config config;
    struct printing printing = {.v = &v};
    struct ls_verify_request request = {.config = &config,
                                        .layouts = 50,
                                        .ranks = 8,
                                        .steps = 3,
                                        .seed = 1,
                                        .told = layout_print,
                                        .user = &printing};
    v = (struct ls_verify){0};
    int status = read_arguments(&request, args, error);
    if (!status)
        status = ranks_config(&config, NULL, args->word, args->words, error);
    if (!status)
        status = ls_verify_open(&v, &request, error);
    if (!isatty(STDOUT_FILENO)) /* there its lines show it */
        cmd_progress_begin();
    if (!status)
        status = head_print(&v, error);
    if (!status)
        status = ls_verify_run(&v, error);
    if (printing.line_begun)
        putchar('\n');
    ranks_end(status, error);
    int code = status ? status : summary(&v, cmd_args_given(args, "--verbose"));
    ls_verify_release(&v);
    return code;
}
