/* lockstep layout: how a configuration is cut over ranks. Runs nothing. */
#include "cmd.h"
#include "rank_start.h"

#include <lockstep/base/file.h>
#include <lockstep/base/words.h>
#include <lockstep/train/memory.h>
#include <lockstep/train/recorded.h>

#include <string.h>

/* Rows of a list, and slots of a schedule, before they are cut short; columns of its drawing. */
enum { SHOWN = 16, SLOTS_SHOWN = 80, COLUMNS = 100 };

/* ---- ranks and groups ------------------------------------------------------------------------ */

static void print_head(const struct ls_config *config, const struct ls_layout *layout)
{
    static const char *const keeps[] = {"nothing", "optimizer state", "optimizer state, gradients",
                                        "optimizer state, gradients, parameters"};
    const struct ls_model_config *m = &layout->model;
    printf("%s, %s of %s, %s (%ld key/value), ffn %ld, vocabulary %ld\n", ls_arch_name(m->arch),
           ls_counted(m->layers, "block").text, ls_counted(m->channels, "channel").text,
           ls_counted(m->heads, "head").text, (long)m->kv_heads, (long)m->ffn,
           (long)m->vocab_padded);
    printf("%s =", ls_counted(layout->ranks, "rank").text);
    for (int axis = 0; axis < LS_AXES; axis++)
        printf("%s %s %ld", axis ? " x" : "", ls_axis_name((enum ls_layout_axis)axis),
               (long)layout->size[axis]);
    if (ls_config_workers(config) > 1)
        printf("\n%s of ranks with this layout train %s%s: %s",
               ls_counted(config->parallel.workers, "group").text,
               ls_counted(ls_config_workers(config), "worker").text,
               config->parallel.servers ? ", one more serves" : "",
               ls_counted(ls_config_ranks(config), "rank").text);
    printf("\nzero %d: dp_shard ranks share %s\n", layout->zero, keeps[layout->zero]);
    printf("sequence parallel %s%s\n", layout->sp ? "on" : "off",
           layout->size[LS_AXIS_CP] == 1     ? ""
           : layout->cp_method == LS_CP_RING ? "; keys and values by a ring"
                                             : "; keys and values by all-gather");
    printf("a step: %s of %s; each rank %s\n",
           ls_counted(layout->ramp.full * layout->numerics.leaf_sequences, "sequence").text,
           ls_counted(layout->sequence, "token").text, ls_layout_batches(layout).text);
    int64_t leaves = layout->ramp.increment ? layout->ramp.start : layout->ramp.full;
    printf("summed as %s of %s: max dp = %ld\n", ls_counted(leaves, "leaf").text,
           ls_counted(layout->numerics.leaf_sequences, "sequence").text, (long)leaves);
    if (*layout->note)
        cmd_print("note: %s\n", layout->note);
}

static void print_ranks(const struct ls_layout *layout)
{
    printf("\nranks\n   rank");
    for (int axis = 0; axis < LS_AXES; axis++)
        printf("  %s", ls_axis_name((enum ls_layout_axis)axis));
    printf("\n");
    for (int64_t rank = 0; rank < layout->ranks; rank++) {
        int64_t at[LS_AXES];
        if (layout->ranks > SHOWN && rank == SHOWN / 2) {
            printf("    ...  rank = (((pp %ld + dp_replicate) %ld + dp_shard) %ld + cp) %ld + tp\n",
                   (long)layout->size[LS_AXIS_DP_REPLICATE], (long)layout->size[LS_AXIS_DP_SHARD],
                   (long)layout->size[LS_AXIS_CP], (long)layout->size[LS_AXIS_TP]);
            rank = layout->ranks - SHOWN / 2;
        }
        ls_layout_coordinates(layout, rank, at);
        printf("%7ld", (long)rank);
        for (int axis = 0; axis < LS_AXES; axis++)
            printf("  %*ld", (int)strlen(ls_axis_name((enum ls_layout_axis)axis)), (long)at[axis]);
        printf("\n");
    }
}

static void print_groups(const struct ls_layout *layout)
{
    const char *const what[LS_GROUPS] = {
        [LS_GROUP_TP] = "parts of a layer",
        [LS_GROUP_SHARERS] = "the same key/value head",
        [LS_GROUP_CP] = "parts of a sequence",
        [LS_GROUP_SHARD] = layout->zero > 0
                               ? "gradients are added here first, and the state is sharded"
                               : "gradients are added here",
        [LS_GROUP_REPLICATE] = "then gradients are added here",
        [LS_GROUP_PP] = "stages",
        [LS_GROUP_MATRICES] = "parts of matrices, in the optimizer",
    };
    printf("\ngroups of rank 0\n");
    for (int g = 0; g < LS_GROUPS; g++) {
        enum ls_layout_group group = (enum ls_layout_group)g;
        int64_t size = ls_group_size(layout, group);
        if (size == 1 || !what[g])
            continue;
        bool copies = ls_account_of(layout, group) == LS_ACCOUNT_REPLICATE;
        printf("  %-10s %5ld x %-5ld ranks", ls_group_name(copies ? LS_GROUP_REPLICATE : group),
               (long)(layout->ranks / size), (long)size);
        for (int64_t i = 0; i < size; i++) {
            if (size > 8 && i == 4) {
                printf(" ...");
                i = size - 1;
            }
            printf(" %ld", (long)ls_group_member(layout, group, 0, i));
        }
        printf("   (%s)\n", what[g]);
    }
}

/* ---- shards ---------------------------------------------------------------------------------- */

/* "[rows, columns]" */
static void shape_text(int dims, const int64_t *shape, char text[48])
{
    if (dims == 1)
        snprintf(text, 48, "[%ld]", (long)shape[0]);
    else
        snprintf(text, 48, "[%ld, %ld]", (long)shape[0], (long)shape[1]);
}

/* What one rank has of a tensor: rows and columns by tp, and rows of these by ZeRO. */
static void print_tensor(const struct ls_layout *layout, const struct ls_param *param)
{
    const struct ls_dtensor_spec *spec = &param->spec;
    int64_t held[2] = {param->matrix ? param->rows : param->cols, param->cols}, own[2];
    char whole_text[48], held_text[48], own_text[48] = "";
    shape_text(spec->dims, spec->shape, whole_text);
    shape_text(spec->dims, held, held_text);
    ls_dtensor_local_shape(spec, 0, own);
    if (layout->zero && layout->sets[0].shard_ranks > 1)
        snprintf(own_text, sizeof own_text, "%ld of %ld", (long)own[0], (long)held[0]);
    printf("  %-24s %-16s %-16s %s\n", param->name, whole_text, held_text, own_text);
}

/* Tensors of one layer as the tp rank 0 of its stage has them. */
static int print_layer(const struct ls_layout *layout, const char *name, int64_t layer,
                       struct ls_error *error)
{
    bool held[LS_LAYOUT_LAYERS_MAX + 2] = {false};
    struct ls_params params;
    held[layer] = true;
    int status = ls_layout_params(layout, 0, held, &params, error);
    if (status)
        return status;
    printf(" %s\n", name);
    for (int i = 0; i < params.count; i++)
        print_tensor(layout, &params.list[i]);
    ls_params_release(&params);
    return LS_OK;
}

static int print_shards(const struct ls_layout *layout, struct ls_error *error)
{
    static const char *const shared[] = {"", "; by zero: of the optimizer state",
                                         "; by zero: of optimizer state and gradients",
                                         "; by zero: of all state and the parameters"};
    printf("\nshards: what a tp rank holds of a tensor%s\n", shared[layout->zero]);
    printf("  %-24s %-16s %-16s %s\n", "tensor", "whole", "tp rank",
           layout->zero && layout->sets[0].shard_ranks > 1 ? "rows by zero" : "");
    int status = print_layer(layout, "embedding", 0, error);
    if (!status)
        status = print_layer(layout, "each block", 1, error);
    if (status)
        return status;
    return print_layer(layout, layout->model.tied ? "head (the embedding's table)" : "head",
                       layout->model.layers + 1, error);
}

/* ---- stages and schedule --------------------------------------------------------------------- */

static void print_stages(const struct ls_layout *layout, const struct ls_stage_cost *costs)
{
    double total = 0;
    for (int64_t s = 0; s < layout->stages; s++)
        total += costs[s].forward;
    printf("\nstages (layer 0 is the embedding, %ld the head)\n"
           "  stage  pp rank  layers      share of the work\n",
           (long)layout->model.layers + 1);
    for (int64_t s = 0; s < layout->stages; s++) {
        char layers[32];
        if (layout->stages > 2 * SHOWN && s == SHOWN / 2) {
            printf("    ...\n");
            s = layout->stages - SHOWN / 2;
        }
        snprintf(layers, sizeof layers, "%d-%d", layout->stage_first[s],
                 layout->stage_first[s + 1] - 1);
        printf("  %5ld  %7d  %-10s  %5.2f%%\n", (long)s, layout->stage_rank[s], layers,
               100 * costs[s].forward / total);
    }
}

/* Draws stages of equal cost, so that columns are slots; figures are of the costs as they are. */
static int print_schedule(const struct ls_layout *layout, const struct ls_schedule *table,
                          const struct ls_stage_cost *stage, struct ls_error *error)
{
    struct ls_schedule_costs costs = {.stage = stage}, even = {.all = {1, 1, 1}};
    struct ls_schedule_figures figures, ideal;
    double makespan = 0;
    int status = ls_schedule_simulate(table, &even, &ideal, error);
    if (!status) {
        makespan = ideal.makespan;
        status = ls_schedule_simulate(table, &costs, &figures, error);
        if (!status) {
            cmd_print(
                "\nschedule %s: bubble %.1f%% (%.1f%% if all stages were equal); a rank holds "
                "activations of up to %d micro-batches x chunks\n",
                layout->schedule == LS_LAYOUT_CSV
                    ? layout->schedule_file
                    : ls_schedule_name((enum ls_schedule_kind)layout->schedule),
                100 * figures.bubble, 100 * ideal.bubble, figures.live_max);
            ls_schedule_figures_release(&figures);
        }
        ls_schedule_figures_release(&ideal);
    }
    if (!status && table->ranks > 1 && makespan <= SLOTS_SHOWN)
        status = ls_schedule_print(table, &even, SHOWN, COLUMNS, stdout, error);
    else if (!status && table->ranks > 1)
        printf("  %.0f slots: --svg FILE draws them\n", makespan);
    return status;
}

/* ---- costs ----------------------------------------------------------------------------------- */

/* Of many pipeline ranks the first and the last are shown. */
static int64_t skipped(const struct ls_layout *layout, int64_t pp)
{
    int64_t ranks = layout->size[LS_AXIS_PP];
    if (ranks <= 2 * SHOWN || pp != SHOWN / 2)
        return pp;
    printf("   ...\n");
    return ranks - SHOWN / 2;
}

static int print_bytes(const struct ls_config *config, const struct ls_layout *layout,
                       struct ls_error *error)
{
    printf("\nbytes that a rank sends in a step, by axis\n"
           "  %4s %12s %12s %12s %14s %14s%s\n",
           "pp", "tp", "cp", "pp", "dp_shard", "dp_replicate",
           layout->matrices_meet ? "      optimizer" : "");
    for (int64_t pp = 0; pp < layout->size[LS_AXIS_PP]; pp++) {
        int64_t bytes[LS_ACCOUNTS];
        pp = skipped(layout, pp);
        int status =
            ls_record_bytes(config, layout, ls_layout_first_rank(layout, pp), bytes, error);
        if (status)
            return status;
        printf("  %4ld %12s %12s %12s %14s %14s", (long)pp, cmd_size(bytes[LS_ACCOUNT_TP]).text,
               cmd_size(bytes[LS_ACCOUNT_CP]).text, cmd_size(bytes[LS_ACCOUNT_PP]).text,
               cmd_size(bytes[LS_ACCOUNT_SHARD]).text, cmd_size(bytes[LS_ACCOUNT_REPLICATE]).text);
        if (layout->matrices_meet)
            printf(" %14s", cmd_size(bytes[LS_ACCOUNT_OPTIMIZER]).text);
        printf("\n");
    }
    return LS_OK;
}

static int print_memory(const struct ls_config *config, const struct ls_layout *layout,
                        struct ls_error *error)
{
    printf("\nmemory of a rank\n  %4s", "pp");
    ranks_memory_head();
    for (int64_t pp = 0; pp < layout->size[LS_AXIS_PP]; pp++) {
        struct ls_memory_plan plan;
        pp = skipped(layout, pp);
        int status = ls_plan_rank(config, layout, ls_layout_first_rank(layout, pp), &plan, error);
        if (status)
            return status;
        printf("  %4ld", (long)pp);
        ranks_memory_row(&plan);
    }
    return LS_OK;
}

/* ---- the picture ----------------------------------------------------------------------------- */

static int draw(const void *layout, FILE *file, struct ls_error *error)
{
    return ls_layout_draw_schedule(layout, 0, file, error);
}

/* ---- the command ----------------------------------------------------------------------------- */

static int check(const struct ls_config *config, const struct ls_layout *layout,
                 struct ls_error *error)
{
    struct ls_layout_proof proof;
    double start = ls_now_s();
    cmd_progress_begin();
    int status = ls_layout_check(config, layout, true, &proof, error);
    if (status)
        return status;
    printf("proved: %s in %s; %s agree, %s arrive (%.2f s)\n", ls_counted(proof.ranks, "rank").text,
           ls_counted(proof.groups, "group").text, ls_counted(proof.collectives, "collective").text,
           ls_counted(proof.messages, "message").text, ls_now_s() - start);
    return LS_OK;
}

static int show(const struct ls_config *config, const struct ls_layout *layout, const char *svg,
                struct ls_error *error)
{
    struct ls_schedule table;
    int status = ls_layout_table(layout, layout->micro_batches, &table, error);
    if (status)
        return status;
    print_head(config, layout);
    print_ranks(layout);
    print_groups(layout);
    status = print_shards(layout, error);
    if (!status) {
        struct ls_stage_cost costs[LS_LAYOUT_LAYERS_MAX + 2];
        ls_layout_stage_costs(layout, costs);
        print_stages(layout, costs);
        status = print_schedule(layout, &table, costs, error);
    }
    if (!status)
        status = print_bytes(config, layout, error);
    if (!status)
        status = print_memory(config, layout, error);
    if (!status && svg)
        status = ls_file_write(svg, draw, layout, error);
    ls_schedule_release(&table);
    return status;
}

int cmd_layout(const struct cmd_args *args, struct ls_error *error)
{
    static struct ls_config config;
    static struct ls_layout layout;
    int status = ranks_layouts(&config, args->word, args->words, &layout, NULL, error);
    if (!status && cmd_args_given(args, "--check"))
        status = check(&config, &layout, error);
    else if (!status)
        status = show(&config, &layout, cmd_args_value(args, "--svg"), error);
    return status;
}
