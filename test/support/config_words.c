/* A configuration from one text. */
#include "config_words.h"
#include "testing.h"

#include <stdlib.h>
#include <string.h>

struct ls_config config_of_words(const char *format, ...)
{
    struct ls_config config;
    struct ls_error error = {0};
    char *text, *save = NULL;
    va_list arguments;
    va_start(arguments, format);
    assert_true(vasprintf(&text, format, arguments) >= 0);
    va_end(arguments);
    ls_config_defaults(&config);
    int status = LS_OK;
    for (char *word = strtok_r(text, " ", &save); word && !status;
         word = strtok_r(NULL, " ", &save))
        status = ls_config_set(&config, word, &error);
    free(text);
    if (status || ls_train_resolve(&config, &error))
        fail_msg("%s", error.text);
    return config;
}
