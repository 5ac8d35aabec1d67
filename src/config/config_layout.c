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
    int index = config_index(name);
    if (index < 0 || config->origin[index].line == 0)
        return code;
    ls_config_where(config, name, where, sizeof where);
    return ls_error_prefix(error, "%s", where);
}

int ls_config_layout(const struct ls_config *config, int64_t world, struct ls_layout *layout,
                     struct ls_error *error)
{
    const struct ls_config_batch *batch = &config->batch;
    int64_t leaf = config->numerics.leaf_sequences;
    const struct ls_layout_request request = {
        .model = &config->model,
        .numerics = ls_config_numerics(config),
        .keys = &config->parallel,
        .world = world,
        .sequence = config->data.sequence,
        .ramp = {.full = batch->global / leaf,
                 .start = batch->rampup_start / leaf,
                 .increment = batch->rampup_increment / leaf,
                 .samples = batch->rampup_samples},
        .micro_sequences = batch->micro,
        .bucket_bytes = config->comm.bucket_mb << 20,
        .reduce = config->numerics.reduce,
    };
    return locate(config, ls_layout_resolve(&request, layout, error), error);
}

void ls_config_layout_reset(struct ls_config *config)
{
    size_t count;
    const struct ls_config_key *keys = ls_config_keys(&count);
    for (size_t i = 0; i < count; i++) {
        char why[256];
        if (keys[i].part != LS_CONFIG_LAYOUT)
            continue;
        LS_ASSERT(config_parse(config, &keys[i], keys[i].initial, false, why, sizeof why));
        config->origin[i] = (struct ls_config_origin){0};
    }
}

void ls_config_layout_text(const struct ls_config *config, const struct ls_config *one, char *text,
                           size_t bytes)
{
    struct ls_config *defaults = &(struct ls_config){0};
    size_t count, used = 0;
    const struct ls_config_key *keys = ls_config_keys(&count);
    ls_config_defaults(defaults);
    snprintf(text, bytes, "one rank");
    for (size_t i = 0; i < count; i++) {
        char value[4 * LS_CONFIG_TEXT_BYTES], initial[4 * LS_CONFIG_TEXT_BYTES];
        bool cuts = !strncmp(keys[i].name, "memory.", 7) ||
                    (!strncmp(keys[i].name, "parallel.", 9) &&
                     strcmp(keys[i].name, "parallel.threads") != 0) ||
                    !strcmp(keys[i].name, "batch.micro");
        if (one ? keys[i].part != LS_CONFIG_LAYOUT : !cuts)
            continue;
        ls_config_value(config, &keys[i], value, sizeof value);
        ls_config_value(one ? one : defaults, &keys[i], initial, sizeof initial);
        if (strcmp(value, initial) && used < bytes)
            used += (size_t)snprintf(text + used, bytes - used, "%s%s=%s", used ? " " : "",
                                     keys[i].name, value);
    }
}
