#include "data/private.h"

#include <string.h>

/* Bytes of the well-formed character at text, 0 where there is none. */
static size_t character_bytes(const unsigned char *text, size_t left)
{
    unsigned lead = text[0];
    if (lead < 0x80)
        return 1;
    size_t bytes = lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
    if (bytes == 0 || bytes > left)
        return 0;
    unsigned second_min = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    unsigned second_max = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    if (text[1] < second_min || text[1] > second_max)
        return 0;
    for (size_t i = 2; i < bytes; i++)
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    return bytes;
}

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
        size_t character = character_bytes(text + at, bytes - at);
        if (character == 0)
            break;
        at += character;
    }
    return at;
}
