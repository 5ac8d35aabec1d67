/* How much of a text is well-formed UTF-8. */
#include "data/data_private.h"

#include <string.h>

size_t data_utf8_valid(const unsigned char *text, size_t bytes)
{
    size_t at = 0;
    while (at < bytes) {
        uint64_t eight;
        if (bytes - at >= sizeof eight) {
            memcpy(&eight, text + at, sizeof eight);
            if ((eight & 0x8080808080808080u) == 0) {
                at += sizeof eight;
                continue;
            }
        }
        size_t character = ls_utf8_character((const char *)text + at, bytes - at);
        if (character == 0)
            break;
        at += character;
    }
    return at;
}
