/* Strings of a chat template: UTF-8, counted in characters, with Python's white space. */
#include "chat/chat_private.h"

#include <utf8proc.h>

struct chat_string chat_string_of(const char *text)
{
    return (struct chat_string){text, strlen(text)};
}

size_t chat_character(struct chat_string text)
{
    unsigned char first = (unsigned char)text.bytes[0];
    size_t bytes = first < 0xc0 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    return bytes < text.count ? bytes : text.count;
}

uint32_t chat_code_point(struct chat_string character)
{
    const unsigned char *at = (const unsigned char *)character.bytes;
    uint32_t code = character.count == 1 ? at[0] : at[0] & (0x7f >> character.count);
    for (size_t i = 1; i < character.count; i++)
        code = code << 6 | (at[i] & 0x3f);
    return code;
}

size_t chat_encode(uint32_t c, char *to)
{
    return (size_t)utf8proc_encode_char((utf8proc_int32_t)c, (utf8proc_uint8_t *)to);
}

int64_t chat_characters(struct chat_string text)
{
    int64_t count = 0;
    for (size_t i = 0; i < text.count; i++)
        count += ((unsigned char)text.bytes[i] & 0xc0) != 0x80;
    return count;
}

/* As str.isspace has it: blanks, and what separates words or paragraphs in bidirectional text. */
size_t chat_space(struct chat_string text)
{
    utf8proc_int32_t code;
    utf8proc_ssize_t bytes =
        utf8proc_iterate((const utf8proc_uint8_t *)text.bytes, (utf8proc_ssize_t)text.count, &code);
    const utf8proc_property_t *of = utf8proc_get_property(code);
    bool space = of->category == UTF8PROC_CATEGORY_ZS || of->bidi_class == UTF8PROC_BIDI_CLASS_WS ||
                 of->bidi_class == UTF8PROC_BIDI_CLASS_B || of->bidi_class == UTF8PROC_BIDI_CLASS_S;
    return bytes > 0 && space ? (size_t)bytes : 0;
}

/* Whether the character is one to strip. */
static bool stripped(struct chat_string character, const struct chat_string *of)
{
    return of ? chat_find(*of, character, 0) != SIZE_MAX : chat_space(character) > 0;
}

struct chat_string chat_strip(struct chat_string text, const struct chat_string *of, int sides)
{
    while (sides & CHAT_LEFT && text.count > 0) {
        size_t bytes = chat_character(text);
        if (!stripped((struct chat_string){text.bytes, bytes}, of))
            break;
        text.bytes += bytes;
        text.count -= bytes;
    }
    while (sides & CHAT_RIGHT && text.count > 0) {
        size_t begin = text.count - 1;
        while (begin > 0 && ((unsigned char)text.bytes[begin] & 0xc0) == 0x80)
            begin--;
        if (!stripped((struct chat_string){text.bytes + begin, text.count - begin}, of))
            break;
        text.count = begin;
    }
    return text;
}

size_t ls_text_rstrip(const char *text, size_t bytes)
{
    return chat_strip((struct chat_string){text, bytes}, NULL, CHAT_RIGHT).count;
}

size_t chat_find(struct chat_string text, struct chat_string part, size_t from)
{
    if (from > text.count || part.count > text.count - from)
        return SIZE_MAX;
    if (part.count == 0)
        return from;
    const char *found = memmem(text.bytes + from, text.count - from, part.bytes, part.count);
    return found ? (size_t)(found - text.bytes) : SIZE_MAX;
}
