/* lockstep plan memory: what each rank keeps in memory, and when. Runs nothing. */
#include "cmd.h"
#include "rank_start.h"

#include <lockstep/base/file.h>
#include <lockstep/base/words.h>
#include <lockstep/train/memory.h>

#include <stdlib.h>
#include <string.h>

/* Ranks that take the same: those of pipeline ranks pp to pp_last. */
struct plan_ranks {
    int64_t rank, pp, pp_last; /* rank: one of them */
    struct ls_memory_plan plan;
    struct ls_memory_moment peak;
};
struct plan_shown {
    const struct ls_config *config;
    const struct ls_layout *layout;
    struct plan_ranks *kinds; /* [count] */
    int64_t count;
};

/* ---- beside the textbook: state -------------------------------------------------------------- */

/* Weights of the part of the model that the rank computes with. */
static int weights_of(const struct ls_layout *layout, int64_t pp, double *weights,
                      struct ls_error *error)
{
    bool held[LS_LAYOUT_LAYERS_MAX + 2] = {false};
    struct ls_params params;
    ls_layout_layers(layout, pp, held, NULL);
    struct ls_part part = {.tp = layout->size[LS_AXIS_TP], .layers = held};
    int status = ls_params_init(&params, &layout->model, &layout->numerics, &part, error);
    if (status)
        return status;
    *weights = (double)params.weights;
    ls_params_release(&params);
    return LS_OK;
}

static void row(const char *name, double parameters, double gradients, double optimizer)
{
    printf("  %-22s %13s %13s %13s %13s\n", name, cmd_size((int64_t)parameters).text,
           cmd_size((int64_t)gradients).text, cmd_size((int64_t)optimizer).text,
           cmd_size((int64_t)(parameters + gradients + optimizer)).text);
}

static void state_differences(const struct plan_shown *shown, const struct ls_memory_plan *plan)
{
    const struct ls_layout *l = shown->layout;
    int64_t leaf = l->numerics.leaf_sequences;
    int states = (int)(plan->bytes[LS_MEMORY_OPTIMIZER] > 0);
    puts("  The textbook counts masters with the optimizer; here they are parameters.");
    puts("  Gradients are summed in float32: 4 bytes and not 2.");
    if (!l->numerics.fast && l->micro_sequences < leaf)
        printf("  A leaf of %ld sequences lasts several micro-batches: it grows beside the sum.\n",
               (long)leaf);
    if (l->numerics.act == LS_F32)
        puts(
            "  In fp32 the masters are what is computed with: no second copy without ZeRO 1 or 2.");
    if (shown->config->optim.name == LS_MUON)
        puts("  Muon keeps one state of a block's matrix, and Adam's two of tables and vectors.");
    else if (shown->config->optim.name != LS_ADAMW)
        printf("  The textbook's optimizer is Adam, with two states; this one has %s.\n",
               states ? "one" : "none");
    if (shown->config->optim.moments == LS_BF16 && states)
        puts("  Moments are bf16 (optim.moments): 2 bytes each and not 4.");
    if (l->numerics.fast && l->zero == 1 && l->sets[0].shard_ranks > 1 && l->micro_batches > 1)
        puts("  ZeRO 1 keeps the sum of this rank's shard besides the whole gradient.");
    if (l->model.tied)
        puts("  A tied table has two gradients, as the head and as the table, added last.");
}

/* Beside the bytes a parameter that Rajbhandari et al. 2020 (ZeRO) count in mixed precision with
 * Adam: weights and gradients of two bytes, masters and two states of four each; over n ranks. */
static int state_print(const struct plan_shown *shown, const struct plan_ranks *ranks,
                       struct ls_error *error)
{
    const struct ls_layout *l = shown->layout;
    const size_t *bytes = ranks->plan.bytes;
    const double n = (double)l->sets[0].shard_ranks;
    double weights = 0;
    int status = weights_of(l, ranks->pp, &weights, error);
    if (status)
        return status;
    printf(
        "\nstate of rank %ld beside the textbook: 16 bytes for each of %.1fM parameters, ZeRO %d "
        "over %ld ranks\n",
        (long)ranks->rank, weights / 1e6, l->zero, (long)l->sets[0].shard_ranks);
    printf("  %-22s %13s %13s %13s %13s\n", "", "parameters", "gradients", "optimizer", "in all");
    row("textbook", 2 * weights / (l->zero >= 3 ? n : 1), 2 * weights / (l->zero >= 2 ? n : 1),
        12 * weights / (l->zero >= 1 ? n : 1));
    row("here", (double)bytes[LS_MEMORY_PARAMETERS], (double)bytes[LS_MEMORY_GRADIENTS],
        (double)bytes[LS_MEMORY_OPTIMIZER]);
    state_differences(shown, &ranks->plan);
    return LS_OK;
}

/* ---- activations ----------------------------------------------------------------------------- */

/* Korthikanti et al. 2022, table 2: bytes that a layer of a GPT keeps of a micro-batch, s b h (10 +
 * 24 / t) and all of it / t with sequence parallel; plus 5 a s^2 b / t of attention's matrices. */
static void activations_print(const struct plan_shown *shown, const struct plan_ranks *ranks)
{
    const struct ls_layout *l = shown->layout;
    const struct ls_model_config *m = &l->model;
    double t = (double)l->size[LS_AXIS_TP], s = (double)l->sequence / (double)l->size[LS_AXIS_CP];
    double b = (double)l->micro_sequences, h = (double)m->channels, a = (double)m->heads;
    double sbh = s * b * h, blocks = 0;
    bool held[LS_LAYOUT_LAYERS_MAX + 2] = {false};
    ls_layout_layers(l, ranks->pp, held, NULL);
    for (int64_t layer = 1; layer <= m->layers; layer++)
        blocks += held[layer];
    double layer = sbh * (l->sp ? 34 / t : 10 + 24 / t);
    double matrices = 5 * a * s * (double)l->sequence * b / t;
    double live = (double)ranks->plan.live / (double)l->chunks;
    printf("\nactivations of rank %ld beside the textbook (Korthikanti et al. 2022): %.0f blocks, "
           "%.0f micro-batches live\n",
           (long)ranks->rank, blocks, live);
    printf("  %-44s %13s\n", "textbook: s b h (34 + 5 a s / h) a block",
           cmd_size((int64_t)((layer + matrices) * blocks * live)).text);
    printf("  %-44s %13s\n", "textbook, selective recomputation: 34 s b h",
           cmd_size((int64_t)(layer * blocks * live)).text);
    printf("  %-44s %13s\n", "here",
           cmd_size((int64_t)ranks->plan.bytes[LS_MEMORY_ACTIVATIONS]).text);
    puts("  Attention never has s x s matrices: it goes block by block, and its backward again.\n"
         "  Dropout's masks are drawn again and not kept: 32 s b h and not 34.\n"
         "  Statistics of norms and of attention's rows are kept in float32.\n"
         "  The head keeps its input's gradient and no logits: it computes gradients at once.");
    if (m->act == LS_ACT_SWIGLU)
        puts("  The textbook's block is GPT's: here the feed-forward has a gate, and its own "
             "width.");
    if (l->numerics.act == LS_F32)
        puts("  The textbook's values have two bytes; in fp32 they have four.");
}

/* The textbook's figures beside those of ranks. */
static int plan_explain(const struct plan_shown *shown, const struct plan_ranks *ranks,
                        struct ls_error *error)
{
    int status = state_print(shown, ranks, error);
    if (!status)
        activations_print(shown, ranks);
    return status;
}

/* ---- kinds of ranks -------------------------------------------------------------------------- */

static bool same(const struct ls_memory_plan *a, const struct ls_memory_plan *b)
{
    return !memcmp(a->bytes, b->bytes, sizeof a->bytes) && a->live == b->live &&
           a->rollout == b->rollout;
}

static int kind_read(const struct plan_shown *shown, int64_t rank, struct plan_ranks *kind,
                     struct ls_error *error)
{
    kind->rank = rank;
    int status = ls_plan_rank(shown->config, shown->layout, rank, &kind->plan, error);
    return status ? status : ls_memory_peak(shown->config, shown->layout, rank, &kind->peak, error);
}

/* Neighbouring pipeline ranks that take the same are of one kind. */
static int kinds_read(struct plan_shown *shown, int64_t rank, struct ls_error *error)
{
    const struct ls_layout *layout = shown->layout;
    int64_t pp_ranks = layout->size[LS_AXIS_PP], each = layout->ranks / pp_ranks;
    shown->kinds = calloc((size_t)pp_ranks, sizeof *shown->kinds);
    if (!shown->kinds)
        return ls_no_memory(error, "for %ld plans", (long)pp_ranks);
    if (rank >= 0) {
        shown->kinds[shown->count++] =
            (struct plan_ranks){.pp = rank / each, .pp_last = rank / each};
        return kind_read(shown, rank, &shown->kinds[0], error);
    }
    int status = LS_OK;
    for (int64_t pp = 0; pp < pp_ranks && !status; pp++) {
        struct plan_ranks *last = shown->count ? &shown->kinds[shown->count - 1] : NULL;
        struct plan_ranks next = {.pp = pp, .pp_last = pp};
        status = kind_read(shown, ls_layout_first_rank(layout, pp), &next, error);
        if (last && same(&last->plan, &next.plan))
            last->pp_last = pp;
        else
            shown->kinds[shown->count++] = next;
    }
    return status;
}

static const struct plan_ranks *most_of(const struct plan_shown *shown)
{
    const struct plan_ranks *most = &shown->kinds[0];
    for (int64_t i = 1; i < shown->count; i++)
        if (shown->kinds[i].plan.total > most->plan.total)
            most = &shown->kinds[i];
    return most;
}

/* ---- tables ---------------------------------------------------------------------------------- */

static void tables_print(const struct plan_shown *shown, bool one)
{
    printf("%s of %s, each: %s\n\nmemory of a rank, as it is allocated\n  %9s",
           ls_counted(shown->layout->ranks, "rank").text, ls_arch_name(shown->layout->model.arch),
           ls_layout_batches(shown->layout).text, one ? "rank" : "pp ranks");
    ranks_memory_head();
    for (int64_t i = 0; i < shown->count; i++) {
        const struct plan_ranks *kind = &shown->kinds[i];
        char name[48];
        if (one || kind->pp == kind->pp_last)
            snprintf(name, sizeof name, "%ld", (long)(one ? kind->rank : kind->pp));
        else
            snprintf(name, sizeof name, "%ld-%ld", (long)kind->pp, (long)kind->pp_last);
        printf("  %9s", name);
        ranks_memory_row(&kind->plan);
    }
    printf("\nthe most in use at once\n");
    for (int64_t i = 0; i < shown->count; i++) {
        const struct plan_ranks *kind = &shown->kinds[i];
        printf("  %9ld", (long)(one ? kind->rank : kind->pp));
        ranks_bytes_print(kind->peak.bytes, kind->peak.all);
        printf("   %s\n", ls_memory_moment_text(&kind->peak).text);
    }
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void json_bytes(const size_t bytes[LS_MEMORY_KINDS], size_t all)
{
    for (int kind = 0; kind < LS_MEMORY_KINDS; kind++)
        printf("\"%s\": %zu, ", ls_memory_name((enum ls_memory_kind)kind), bytes[kind]);
    printf("\"all\": %zu}", all);
}

static void json_print(const struct plan_shown *shown, bool starts)
{
    printf("{\"ranks\": %ld, \"kinds\": [", (long)shown->layout->ranks);
    for (int64_t i = 0; i < shown->count; i++) {
        const struct plan_ranks *kind = &shown->kinds[i];
        const struct ls_memory_moment *peak = &kind->peak;
        printf("%s{\"rank\": %ld, \"pp_first\": %ld, \"pp_last\": %ld, \"allocated\": {",
               i ? ", " : "", (long)kind->rank, (long)kind->pp, (long)kind->pp_last);
        json_bytes(kind->plan.bytes, kind->plan.total);
        printf(", \"host\": %zu, \"file\": %zu, \"rollout\": %zu", kind->plan.tiers[LS_TIER_HOST],
               kind->plan.tiers[LS_TIER_FILE], kind->plan.rollout);
        printf(", \"live_micro_batches\": %d, \"peak\": {\"phase\": \"%s\", \"layer\": %d, "
               "\"action\": %ld, \"stage\": %d, \"micro_batch\": %d, \"in_use\": {",
               kind->plan.live, ls_memory_phase_name(peak->phase), peak->layer, (long)peak->index,
               peak->action.stage, peak->action.micro_batch);
        json_bytes(peak->bytes, peak->all);
        printf("}}");
    }
    printf("], \"fits_here\": %s}\n", starts ? "true" : "false");
}

/* ---- the picture ----------------------------------------------------------------------------- */

static int draw(const void *context, FILE *file, struct ls_error *error)
{
    const struct plan_shown *shown = context;
    return ls_memory_draw(shown->config, shown->layout, most_of(shown)->rank, 0, file, error);
}

/* ---- the command ----------------------------------------------------------------------------- */

static int show(struct plan_shown *shown, const struct cmd_args *args, struct ls_error *error)
{
    int64_t rank = -1;
    int status = cmd_args_int(args, "--rank", 0, shown->layout->ranks - 1, &rank, error);
    if (!status)
        status = kinds_read(shown, rank, error);
    if (!status && cmd_args_given(args, "--svg"))
        status = ls_file_write(cmd_args_value(args, "--svg"), draw, shown, error);
    if (status)
        return status;
    if (cmd_args_given(args, "--json")) {
        struct ls_memory_fit fit;
        status = ls_memory_fit(shown->config, shown->layout, NULL, &fit, error);
        if (!status)
            json_print(shown, ranks_fit_starts(shown->config, &fit));
        return status;
    }
    tables_print(shown, rank >= 0);
    if (rank < 0) {
        printf("\n");
        status = ranks_fit_print("", shown->config, shown->layout, &(bool){0}, error);
    }
    if (!status && cmd_args_given(args, "--explain"))
        status = plan_explain(shown, most_of(shown), error);
    return status;
}

int cmd_plan_memory(const struct cmd_args *args, struct ls_error *error)
{
    static struct ls_config config;
    static struct ls_layout layout;
    struct ls_error missing;
    struct plan_shown shown = {.config = &config, .layout = &layout};
    int status = ranks_layouts(&config, args->word, args->words, &layout, &missing, error);
    if (!status)
        status = show(&shown, args, error);
    free(shown.kinds);
    return status;
}
