/* The characters of UTF-8. */
#include "data/tokenizer_private.h"

size_t data_utf8_before(const unsigned char *text, size_t at)
{
    do
        at--;
    while ((text[at] & 0xc0) == 0x80);
    return at;
}

uint32_t data_utf8_decode(const unsigned char *text, size_t *bytes)
{
    if (text[0] < 0x80) {
        *bytes = 1;
        return text[0];
    }
    if (text[0] < 0xe0) {
        *bytes = 2;
        return (uint32_t)(text[0] & 0x1f) << 6 | (text[1] & 0x3f);
    }
    if (text[0] < 0xf0) {
        *bytes = 3;
        return (uint32_t)(text[0] & 0x0f) << 12 | (uint32_t)(text[1] & 0x3f) << 6 |
               (text[2] & 0x3f);
    }
    *bytes = 4;
    return (uint32_t)(text[0] & 0x07) << 18 | (uint32_t)(text[1] & 0x3f) << 12 |
           (uint32_t)(text[2] & 0x3f) << 6 | (text[3] & 0x3f);
}
