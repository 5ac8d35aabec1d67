/* The tokens and the tokenizer that a configuration names. */
#include <lockstep/config/inputs.h>

#include <stdio.h>
#include <string.h>

int ls_config_tokens(const struct ls_config *config, const char *key, struct ls_token_store **out,
                     struct ls_error *error)
{
    bool train = strcmp(key, "data.train") == 0;
    const char *stores = train ? config->data.train : config->data.valid;
    char all[2 * sizeof config->data.train + 2];
    snprintf(all, sizeof all, "%s%s%s", config->data.train, config->data.valid[0] ? "," : "",
             config->data.valid);
    *out = NULL;
    int status = ls_tokenizer_stores_check(NULL, all, error);
    if (!status)
        status = ls_token_store_open(stores, out, error);
    if (!status)
        status = ls_config_pack(config, *out, error);
    if (status) {
        ls_config_blame(config, key, error);
        ls_token_store_close(*out);
        *out = NULL;
    }
    return status;
}

int ls_config_pack(const struct ls_config *config, struct ls_token_store *store,
                   struct ls_error *error)
{
    bool packs = config->data.packing == LS_CONFIG_DOCUMENTS && config->data.sequence > 0;
    return packs ? ls_token_store_pack(store, config->data.sequence, error) : LS_OK;
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
    if (!config->data.train[0])
        return LS_OK;
    /* Foreign stores come without one: then nothing is decoded. */
    struct ls_error absent = {0};
    int status = ls_tokenizer_new_for_store(config->data.train, out, &absent);
    if (status == LS_EIO) {
        struct ls_token_store *store;
        status = ls_config_tokens(config, "data.train", &store, error);
        ls_token_store_close(store);
    } else if (status && error) {
        *error = absent;
        ls_config_blame(config, "data.train", error);
    }
    return status;
}
