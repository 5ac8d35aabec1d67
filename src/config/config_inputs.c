/* The tokens and the tokenizer that a configuration names. */
#include <lockstep/config/inputs.h>

#include <stdlib.h>

/* Samples of the store hold what data.packing says. */
static int pack(const struct ls_config *config, struct ls_token_store *store,
                struct ls_error *error)
{
    if (config->data.packing == LS_CONFIG_STREAM || config->data.sequence == 0)
        return LS_OK;
    return config->data.packing == LS_CONFIG_BEST_FIT
               ? ls_token_store_pack_best_fit(store, config->data.sequence, error)
               : ls_token_store_pack(store, config->data.sequence, error);
}

int ls_config_store(const struct ls_config *config, const char *spec, struct ls_token_store **out,
                    struct ls_error *error)
{
    const struct ls_store_options options = {.cache = config->data.cache_dir,
                                             .cache_bytes = config->data.cache_size};
    int status = ls_token_store_open_with(spec, &options, out, error);
    if (!status)
        status = pack(config, *out, error);
    if (status) {
        ls_token_store_close(*out);
        *out = NULL;
    }
    return status;
}

int ls_config_valid(const struct ls_config *config, struct ls_token_store **out,
                    struct ls_error *error)
{
    int status = ls_config_store(config, config->data.valid, out, error);
    if (status)
        ls_config_blame(config, "data.valid", error);
    return status;
}

int ls_config_tokenizer(const struct ls_config *config, struct ls_tokenizer **out,
                        struct ls_error *error)
{
    *out = NULL;
    if (config->data.tokenizer[0]) {
        int status = ls_tokenizer_new(config->data.tokenizer, out, error);
        if (status)
            ls_config_blame(config, "data.tokenizer", error);
        return status;
    }
    struct ls_config_source *entries;
    int count, status = ls_config_sources(config, &entries, &count, error);
    if (status || count == 0)
        return status;
    /* Foreign stores come without one: then another source tells, or nothing is decoded. */
    for (int i = 0; i < count && !status && !*out; i++)
        status = ls_tokenizer_new_for_store(entries[i].source, out, error);
    if (!status && !*out) {
        struct ls_token_store *store;
        status = ls_token_store_open(entries[0].source, &store, error);
        ls_token_store_close(store);
    }
    free(entries);
    if (status)
        ls_config_blame(config, ls_config_data_key(config), error);
    return status;
}
