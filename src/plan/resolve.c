/* Which layouts a recipe admits. */
#include "plan/plan_private.h"

#include <lockstep/base/formatted.h>
#include <lockstep/base/words.h>
#include <lockstep/plan/groups.h>

#include <stdio.h>
#include <string.h>

enum { RANKS_MAX = 1 << 30 };

int plan_refuse(struct ls_error *error, const char *key, int64_t value, const char *format, ...)
{
    char reason[512], text[24];
    LS_FORMAT(reason, format);
    snprintf(text, sizeof text, "%ld", (long)value);
    return ls_error_refuse(error, LS_ELAYOUT, key, text, "%s", reason);
}

/* ---- axes ----------------------------------------------------------------------------------- */

int ls_layout_axes(const struct ls_layout_keys *keys, int64_t size[LS_AXES], struct ls_error *error)
{
    int64_t dp = keys->dp, replicate = keys->dp_replicate, shard = keys->dp_shard;
    if (dp > 0 && replicate == 0 && shard == 0) {
        replicate = keys->zero ? 1 : dp;
        shard = keys->zero ? dp : 1;
    } else if (dp > 0 && (replicate == 0 || shard == 0)) {
        int64_t given = ls_max(replicate, shard);
        if (dp % given)
            return plan_refuse(error, "parallel.dp", dp,
                               "it is not a multiple of parallel.%s = %ld",
                               replicate ? "dp_replicate" : "dp_shard", (long)given);
        replicate = replicate ? replicate : dp / shard;
        shard = shard ? shard : dp / replicate;
    }
    replicate = ls_max(replicate, 1);
    shard = ls_max(shard, 1);
    if (dp > 0 && replicate * shard != dp)
        return plan_refuse(error, "parallel.dp", dp,
                           "parallel.dp_replicate = %ld times parallel.dp_shard = %ld is %ld",
                           (long)replicate, (long)shard, (long)(replicate * shard));
    size[LS_AXIS_PP] = keys->pp;
    size[LS_AXIS_DP_REPLICATE] = replicate;
    size[LS_AXIS_DP_SHARD] = shard;
    size[LS_AXIS_CP] = keys->cp;
    size[LS_AXIS_TP] = keys->tp;
    return LS_OK;
}

/* "parallel.tp=2 parallel.dp=4", as a user would say it. */
static void axes_text(const struct ls_layout_keys *keys, const int64_t size[LS_AXES], char *text,
                      size_t bytes)
{
    bool both = keys->dp > 0 && keys->dp_replicate == 0 && keys->dp_shard == 0;
    text[0] = '\0';
    for (int axis = 0; axis < LS_AXES; axis++) {
        bool data = axis == LS_AXIS_DP_REPLICATE || axis == LS_AXIS_DP_SHARD;
        if (size[axis] > 1)
            ls_string_add(text, bytes, " ", "parallel.%s=%ld",
                          data && both ? "dp" : ls_axis_name((enum ls_layout_axis)axis),
                          (long)size[axis]);
    }
    if (!*text)
        snprintf(text, bytes, "parallel.dp=1");
}

static int check_world(const struct ls_layout_request *request, struct ls_layout *layout,
                       struct ls_error *error)
{
    int status = ls_layout_axes(request->keys, layout->size, error);
    if (status)
        return status;
    layout->ranks = 1;
    for (int axis = 0; axis < LS_AXES; axis++) {
        if (layout->size[axis] < 1 || layout->size[axis] > RANKS_MAX / layout->ranks)
            return ls_error_set(
                error, LS_ELAYOUT,
                "the axes of parallel make more than 2^30 ranks: make them smaller");
        layout->ranks *= layout->size[axis];
    }
    if (request->world == 0 || request->world == layout->ranks)
        return LS_OK;
    char text[256];
    axes_text(request->keys, layout->size, text, sizeof text);
    return ls_error_set(error, LS_ELAYOUT, "the layout %s needs %s, but %ld %s started", text,
                        ls_counted(layout->ranks, "rank").text, (long)request->world,
                        request->world == 1 ? "was" : "were");
}

/* ---- tensor and context parallel ------------------------------------------------------------- */

static int check_tp(const struct ls_layout *layout, struct ls_error *error)
{
    struct ls_error why = {0};
    int64_t tp = layout->size[LS_AXIS_TP];
    if (ls_model_admits_tp(&layout->model, &layout->numerics, tp, &why))
        return plan_refuse(error, "parallel.tp", tp, "%s", why.text);
    return LS_OK;
}

static int check_cp(struct ls_layout *layout, struct ls_error *error)
{
    struct ls_numerics *n = &layout->numerics;
    struct ls_error why = {0};
    int64_t cp = layout->size[LS_AXIS_CP];
    if (n->fast) /* the recipe has no tiles: each rank's part is one */
        n->seq_tiles = cp;
    if (ls_cp_admits(cp, n->seq_tiles, layout->cp_method, &why) ||
        ls_seq_tiles_admit(n->seq_tiles, layout->sequence, n->leaf_sequences, &why))
        return plan_refuse(error, "parallel.cp", cp, "%s", why.text);
    return LS_OK;
}

/* ---- sequence parallel ----------------------------------------------------------------------- */

/* Whether each tp rank's rows of so many sequences are whole subtrees of their token sums. */
static bool rows_fit(const struct ls_layout *layout, int64_t sequences)
{
    const struct ls_numerics *n = &layout->numerics;
    int64_t tiles = sequences * (n->seq_tiles / layout->size[LS_AXIS_CP]);
    return n->fast ||
           ls_tp_admits(layout->size[LS_AXIS_TP], tiles, layout->sequence / n->seq_tiles);
}

/* Sequences of a micro-batch of such a step whose rows do not fit; 0: there is none. */
static int64_t rows_misfit(const struct ls_layout *layout, int64_t leaves)
{
    static const int64_t origin[LS_AXES];
    struct ls_dp_share share;
    ls_layout_share(layout, leaves, origin, &share);
    for (int64_t m = 0; m < share.micro_batches; m++) {
        struct ls_dp_micro micro = ls_dp_micro_batch(&share, m);
        if (!rows_fit(layout, micro.count))
            return micro.count;
    }
    return 0;
}

static int check_sp(const struct ls_layout_request *request, struct ls_layout *layout,
                    struct ls_error *error)
{
    int asked = request->keys->sp;
    int64_t tp = layout->size[LS_AXIS_TP];
    layout->sp = tp > 1 && asked != 0;
    if (asked == 1 && tp == 1)
        return ls_error_refuse(error, LS_ELAYOUT, "parallel.sp", "true",
                               "sequence parallel is over the tp ranks, and parallel.tp is 1");
    if (!layout->sp)
        return LS_OK;
    int64_t bad = 0, leaves = 0;
    while (!bad && (leaves = ls_ramp_next(&layout->ramp, leaves)))
        bad = rows_misfit(layout, leaves);
    if (bad == 0)
        return LS_OK;
    char why[360];
    snprintf(why, sizeof why,
             "%ld tp ranks cannot share the rows of a micro-batch of %s by whole subtrees of the "
             "token sums%s",
             (long)tp, ls_counted(bad, "sequence").text, plan_rampup_text(layout, leaves).text);
    layout->sp = false;
    if (asked == 1)
        return ls_error_refuse(error, LS_ELAYOUT, "parallel.sp", "true", "%s", why);
    ls_string_add(layout->note, sizeof layout->note, "; ", "sequence parallel is off: %s", why);
    return LS_OK;
}

/* ---- zero ------------------------------------------------------------------------------------ */

static int check_zero(const struct ls_layout *layout, struct ls_error *error)
{
    if (layout->zero < 3 || layout->sets[0].shard_ranks == 1)
        return LS_OK;
    for (int64_t rank = 0; rank < layout->size[LS_AXIS_PP]; rank++) {
        int64_t largest = 0;
        for (int64_t chunk = 0; chunk < layout->chunks; chunk++) {
            int stage = layout->rank_stage[rank * layout->chunks + chunk];
            for (int l = layout->stage_first[stage]; l < layout->stage_first[stage + 1]; l++)
                largest = ls_max(largest, ls_layer_param_elements_max(&layout->model, l,
                                                                      layout->size[LS_AXIS_TP]));
        }
        if (largest <= layout->persist)
            return plan_refuse(error, "parallel.persist", layout->persist,
                               "no tensor of pipeline rank %ld has more elements (the largest has "
                               "%ld), so parallel.zero = 3 would shard nothing",
                               (long)rank, (long)largest);
    }
    return LS_OK;
}

static void mesh_of(struct ls_mesh *mesh, int axes, const char *const *names, const int64_t *sizes)
{
    int status = ls_mesh_init(mesh, axes, names, sizes, NULL);
    LS_ASSERT(status == LS_OK);
}

void ls_layout_set_init(struct ls_layout *layout, int s, unsigned shard, unsigned replicate)
{
    struct ls_layout_set *set = &layout->sets[s];
    const int64_t *size = layout->mesh.size;
    *set = (struct ls_layout_set){.shard = shard, .replicate = replicate};
    mesh_of(&set->mesh, 4, (const char *const[]){"dp_replicate", "shard", "tp", "sharers"},
            (const int64_t[]){ls_mesh_group_size(&layout->mesh, replicate),
                              ls_mesh_group_size(&layout->mesh, shard), size[LS_AXIS_TP],
                              size[LS_AXIS_SHARERS]});
    set->shard_ranks = ls_group_size(layout, ls_set_group(s, LS_GROUP_SHARD));
    set->replicate_ranks = ls_group_size(layout, ls_set_group(s, LS_GROUP_REPLICATE));
}

static void groups_of(struct ls_layout *layout)
{
    const int64_t *size = layout->size;
    int64_t cp = size[LS_AXIS_CP];
    int64_t sharers = ls_tp_sharers(size[LS_AXIS_TP], layout->model.kv_heads);
    int64_t tp = size[LS_AXIS_TP] / sharers, replicate = size[LS_AXIS_DP_REPLICATE];
    mesh_of(
        &layout->mesh, LS_AXES + 1,
        (const char *const[]){"pp", "dp_replicate", "dp_shard", "cp", "tp", "sharers"},
        (const int64_t[]){size[LS_AXIS_PP], replicate, size[LS_AXIS_DP_SHARD], cp, tp, sharers});
    layout->set_count = 1;
    ls_layout_set_init(layout, 0, 1u << LS_AXIS_DP_SHARD | 1u << LS_AXIS_CP,
                       1u << LS_AXIS_DP_REPLICATE);
}

/* ---- all of it ------------------------------------------------------------------------------- */

int ls_layout_file(const struct ls_layout_keys *keys, struct ls_schedule *table,
                   struct ls_error *error)
{
    struct ls_error why = {0};
    int status = ls_schedule_read(table, keys->schedule_file, 0, 0, 0, &why);
    if (!status) {
        status = ls_schedule_validate(table, &why);
        if (status)
            ls_schedule_release(table);
    }
    if (status)
        ls_error_refuse(error, status, "parallel.schedule_file", keys->schedule_file, "%s",
                        why.text);
    return status;
}

int ls_layout_resolve(const struct ls_layout_request *request, struct ls_layout *layout,
                      struct ls_error *error)
{
    const struct ls_layout_keys *keys = request->keys;
    const struct ls_schedule *file = request->table;
    LS_ASSERT(request->ramp.full >= 1 && request->sequence >= 1 && request->world >= 0);
    LS_ASSERT((keys->schedule == LS_LAYOUT_CSV) == (file != NULL));
    memset(layout, 0, sizeof *layout);
    layout->zero = (int)keys->zero;
    layout->schedule = keys->schedule;
    layout->cp_method = (enum ls_cp_method)keys->cp_method;
    layout->bucket_bytes = request->bucket_bytes;
    layout->reduce = request->reduce;
    layout->matrices_meet = request->matrices_meet;
    layout->prefetch = keys->prefetch;
    layout->persist = keys->persist;
    layout->reshard_after_forward = keys->reshard_after_forward;
    layout->tp_overlap = keys->tp_overlap;
    layout->model = *request->model;
    layout->numerics = request->numerics;
    layout->sequence = request->sequence;
    layout->ramp = request->ramp;
    memcpy(layout->schedule_file, keys->schedule_file, sizeof layout->schedule_file);
    int status = check_world(request, layout, error);
    if (!status)
        status = check_tp(layout, error);
    if (!status)
        status = check_cp(layout, error);
    if (!status)
        status = plan_stages(keys, file, layout, error);
    if (status)
        return status;
    groups_of(layout);
    status = plan_batch(request, file, layout, error);
    if (!status)
        status = check_sp(request, layout, error);
    if (!status)
        status = plan_split(keys, layout, error);
    if (!status)
        status = check_zero(layout, error);
    return status ? status : plan_recompute(keys, layout, error);
}
