/* Any bytes as config.json: refused with words, or read; what is read and resolved is written, and
 * says the same model again (interop_keys_export checks that by itself). */
#include "interop/interop_private.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct ls_config config, scratch;
    struct ls_error error = {0};
    json_t *description = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL);
    struct interop_keys keys = {.name = "fuzz",
                                .description = description,
                                .config = &config,
                                .scratch = &scratch,
                                .error = &error};
    ls_config_defaults(&config);
    ls_config_defaults(&scratch);
    int status = interop_family(description, "fuzz", &keys.arch, &error);
    if (!status) {
        interop_keys_unknown(description, keys.arch, "fuzz", NULL);
        status = interop_keys_import(&keys);
    }
    LS_ASSERT(!status || error.text[0]);
    if (!status && ls_config_resolve(&config, 0, &error) == LS_OK) {
        json_t *written = json_object();
        if (interop_keys_export(&config, written, &error))
            LS_ASSERT(error.text[0]);
        json_decref(written);
    }
    json_decref(description);
    return 0;
}
