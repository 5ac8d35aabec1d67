/* libFuzzer: any bytes as each kind of source. What is converted is read by our own reader; what is
 * refused has a text. */
#include <lockstep/config.h>
#include <lockstep/convert.h>

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void convert(enum ls_convert_project project, const char *text, size_t size)
{
    static const struct ls_convert_options options = {.ranks = 8, .allow_loss = true};
    struct ls_convert result;
    struct ls_error error = {0};
    int status = ls_convert_text(&result, project, "fuzz", text, size, &options, &error);
    LS_ASSERT(status == LS_OK || (status == LS_ECONFIG && error.text[0]));
    LS_ASSERT((status == LS_OK) == (result.text != NULL));
    if (result.text) {
        struct ls_config config;
        ls_config_defaults(&config);
        LS_ASSERT(ls_config_load_text(&config, "fuzz.yaml", result.text, strlen(result.text),
                                      &error) == LS_OK);
    }
    ls_convert_release(&result);
}

/* The first byte chooses the project, so that a corpus keeps to one. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    char *text = size ? malloc(size) : NULL;
    if (!text)
        return 0;
    memcpy(text, bytes + 1, size - 1);
    text[size - 1] = '\0';
    convert((enum ls_convert_project)(bytes[0] % 3), text, size - 1);
    free(text);
    return 0;
}
