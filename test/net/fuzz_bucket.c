/* A page of a bucket's list, as any server may answer it: any bytes. */
#include "net/net_private.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct net_page page;
    struct net_object object;
    bool there = true;
    char *text = malloc(bytes + 1);
    if (!text)
        return 0;
    memcpy(text, data, bytes);
    text[bytes] = '\0';
    const char *wrong = net_page_open(&page, text, bytes, "d/");
    LS_ASSERT(strlen(page.next) < sizeof page.next);
    while (!wrong && there) {
        wrong = net_page_next(&page, &object, &there);
        LS_ASSERT(wrong || !there || !strncmp(object.key, "d/", 2));
    }
    free(text);
    return 0;
}
