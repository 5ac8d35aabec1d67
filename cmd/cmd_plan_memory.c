/* lockstep plan memory: what each rank keeps in memory, and when. Runs nothing. */
#include "cmd.h"
#include "plan_shown.h"
#include "rank_start.h"

#include <lockstep/base/file.h>
#include <lockstep/base/words.h>

#include <stdlib.h>
#include <string.h>

/* ---- kinds of ranks -------------------------------------------------------------------------- */

static bool same(const struct ls_memory_plan *a, const struct ls_memory_plan *b)
{
    return !memcmp(a->bytes, b->bytes, sizeof a->bytes) && a->live == b->live;
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
        return ls_error_set(error, LS_ENOMEM, "no memory for %ld plans", (long)pp_ranks);
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

static void json_print(const struct plan_shown *shown)
{
    printf("{\"ranks\": %ld, \"kinds\": [", (long)shown->layout->ranks);
    for (int64_t i = 0; i < shown->count; i++) {
        const struct plan_ranks *kind = &shown->kinds[i];
        const struct ls_memory_moment *peak = &kind->peak;
        printf("%s{\"rank\": %ld, \"pp_first\": %ld, \"pp_last\": %ld, \"allocated\": {",
               i ? ", " : "", (long)kind->rank, (long)kind->pp, (long)kind->pp_last);
        json_bytes(kind->plan.bytes, kind->plan.total);
        printf(", \"host\": %zu, \"file\": %zu", kind->plan.tiers[LS_TIER_HOST],
               kind->plan.tiers[LS_TIER_FILE]);
        printf(", \"live_micro_batches\": %d, \"peak\": {\"phase\": \"%s\", \"layer\": %d, "
               "\"action\": %ld, \"stage\": %d, \"micro_batch\": %d, \"in_use\": {",
               kind->plan.live, ls_memory_phase_name(peak->phase), peak->layer, (long)peak->index,
               peak->action.stage, peak->action.micro_batch);
        json_bytes(peak->bytes, peak->all);
        printf("}}");
    }
    printf("]}\n");
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
        json_print(shown);
        return LS_OK;
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
    int status = ranks_plan_config(&config, args->word, args->words, &missing, error);
    if (!status)
        status = ls_config_layout(&config, 0, &layout, error);
    if (!status)
        status = show(&shown, args, error);
    free(shown.kinds);
    return status;
}
