/* Any bytes as a JSONL record: what one pass reads, the parser of any record reads as the same
 * text.
 */
#include "data/data_private.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ls_text one = {0}, other = {0};
    char *line = malloc(size + 1);
    if (!line)
        return 0;
    memcpy(line, data, size);
    line[size] = '\0';
    bool plain = data_record_plain(line, size, "text", &one);
    int status = data_record_any(line, size, "text", &other, NULL);
    if (plain && (status || one.count != other.count ||
                  (one.count && memcmp(one.bytes, other.bytes, one.count) != 0)))
        abort();
    ls_text_release(&one);
    ls_text_release(&other);
    free(line);
    return 0;
}
