/* A credentials file of AWS's tools: any bytes. */
#include <lockstep/net.h>

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct ls_credentials found;
    char *text = malloc(bytes + 1); /* not terminated, so that reads behind it are seen */
    if (!text)
        return 0;
    memcpy(text, data, bytes);
    char *exact = realloc(text, bytes ? bytes : 1);
    text = exact ? exact : text;
    bool good = ls_credentials_parse(text, bytes, "default", &found);
    LS_ASSERT(!good || (found.key[0] && found.secret[0]));
    LS_ASSERT(strlen(found.key) < sizeof found.key && strlen(found.token) < sizeof found.token);
    free(text);
    return 0;
}
