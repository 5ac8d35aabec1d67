/* Any bytes as a configuration file and as overrides: refused or read, never more. What is read and
 * resolved is written and read back to the same recipe. */
#include <lockstep/config.h>

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void write_and_read_back(const struct ls_config *config)
{
    char *text = NULL;
    size_t bytes = 0;
    struct ls_error error = {0};
    struct ls_config again;
    FILE *file = open_memstream(&text, &bytes);
    if (!file)
        return;
    LS_ASSERT(ls_config_write(config, file, &error) == LS_OK);
    fclose(file);
    ls_config_defaults(&again);
    LS_ASSERT(ls_config_load_text(&again, "again.yaml", text, bytes, &error) == LS_OK);
    LS_ASSERT(ls_config_resolve(&again, 257, &error) == LS_OK);
    LS_ASSERT(ls_config_recipe_diff(config, &again, NULL, 0) == 0);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ls_config config;
    struct ls_error error = {0};
    ls_config_defaults(&config);
    if (ls_config_load_text(&config, "fuzz.yaml", (const char *)data, size, &error) == LS_OK) {
        if (ls_config_resolve(&config, 257, &error) == LS_OK)
            write_and_read_back(&config);
    } else {
        LS_ASSERT(error.text[0] != '\0');
    }
    char *assignment = malloc(size + 1);
    if (assignment) {
        memcpy(assignment, data, size);
        assignment[size] = '\0';
        ls_config_set(&config, assignment, &error);
    }
    free(assignment);
    return 0;
}
