/* From a configuration to a layout. */
#include "config_private.h"

#include <string.h>

struct ls_numerics ls_config_numerics(const struct ls_config *config)
{
    const struct ls_config_numerics *n = &config->numerics;
    bool fast = n->mode == LS_CONFIG_FAST;
    return (struct ls_numerics){.act = n->precision,
                                .tp_tiles = fast ? 1 : n->tp_tiles,
                                .seq_tiles = fast ? 1 : n->seq_tiles,
                                .leaf_sequences = n->leaf_sequences,
                                .fast = fast};
}

int64_t ls_config_ranks(const struct ls_config *config)
{
    const struct ls_layout_keys *keys = &config->parallel;
    int64_t dp = ls_max(keys->dp_replicate, 1) * ls_max(keys->dp_shard, 1);
    return keys->pp * ls_max(keys->dp, dp) * keys->cp * keys->tp;
}

/* Puts where the key was given before a text that begins with the key's name. */
static int locate(const struct ls_config *config, int code, struct ls_error *error)
{
    char name[64], where[LS_CONFIG_TEXT_BYTES + 32];
    if (!error || !code)
        return code;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(error->text, " "), error->text);
    int index = train_config_index(name);
    if (index < 0 || config->origin[index].line == 0)
        return code;
    ls_config_where(config, name, where, sizeof where);
    return ls_error_prefix(error, "%s", where);
}

void ls_config_layout_request(const struct ls_config *config, int64_t world,
                              struct ls_layout_request *request)
{
    const struct ls_config_batch *batch = &config->batch;
    int64_t leaf = config->numerics.leaf_sequences;
    bool ramp = batch->rampup_start > 0 && batch->rampup_increment > 0;
    *request = (struct ls_layout_request){
        .model = &config->model,
        .numerics = ls_config_numerics(config),
        .keys = &config->parallel,
        .world = world,
        .sequence = config->data.sequence,
        .leaves = batch->global / leaf,
        .leaves_start = ramp ? batch->rampup_start / leaf : 0,
        .leaves_increment = ramp ? batch->rampup_increment / leaf : 0,
        .micro_sequences = batch->micro,
        .bucket_bytes = config->comm.bucket_mb << 20,
        .reduce = config->numerics.reduce,
    };
}

int ls_config_layout(const struct ls_config *config, int64_t world, struct ls_layout *layout,
                     struct ls_error *error)
{
    struct ls_layout_request request;
    ls_config_layout_request(config, world, &request);
    return locate(config, ls_layout_resolve(&request, layout, error), error);
}
