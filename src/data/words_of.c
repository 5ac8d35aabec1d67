/* The words of a text, in any script. */
#include "data/corpus_private.h"
#include "data/tokenizer_private.h"

/* Scripts that do not part words by spaces: blocks of Unicode. Hangul does. */
static bool stands_alone(uint32_t code)
{
    static const struct {
        uint32_t first, last;
    } blocks[] = {{0x0e00, 0x0eff},    /* Thai, Lao */
                  {0x1000, 0x109f},    /* Myanmar */
                  {0x1780, 0x17ff},    /* Khmer */
                  {0x3040, 0x30ff},    /* Hiragana, Katakana */
                  {0x31f0, 0x31ff},    /* Katakana */
                  {0x3400, 0x4dbf},    /* Han */
                  {0x4e00, 0x9fff},    /* Han */
                  {0xf900, 0xfaff},    /* Han */
                  {0x20000, 0x3ffff}}; /* Han */
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        if (code >= blocks[i].first && code <= blocks[i].last)
            return data_category_within(data_category(code), "L");
    return false;
}

static inline bool ascii_letter(unsigned char c)
{
    return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
}

/* What the character is to a word. */
struct character {
    bool space, alone, letter, mark;
    size_t bytes;
};
static struct character character_at(const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    struct character c = {.bytes = 1};
    if (*at < 0x80) {
        c.space = data_is_ascii_space(*text);
        c.letter = ascii_letter(*at);
        return c;
    }
    uint32_t code = data_utf8_decode(at, &c.bytes);
    c.space = data_is_space(code);
    c.alone = code >= 0x0e00 && stands_alone(code);
    int category = data_category(code);
    c.letter = data_category_within(category, "L");
    c.mark = data_category_within(category, "M");
    return c;
}

/* Most characters: the ASCII ones of a word, from its end on. */
static void take_ascii(const char *text, size_t bytes, struct data_word *word)
{
    size_t at = word->end;
    bool letter = false;
    for (; at < bytes; at++) {
        unsigned char c = (unsigned char)text[at];
        if (c >= 0x80 || data_is_ascii_space(text[at]))
            break;
        letter |= ascii_letter(c);
    }
    word->characters += (int64_t)(at - word->end);
    word->alphabetic |= letter;
    word->end = at;
}

bool data_word_next(const char *text, size_t bytes, struct data_word *word)
{
    size_t at = word->end;
    struct character c = {0};
    while (at < bytes && (c = character_at(text + at)).space)
        at += c.bytes;
    *word = (struct data_word){.begin = at, .end = at};
    bool alone = false;
    while (word->end < bytes) {
        if (!alone)
            take_ascii(text, bytes, word);
        if (word->end == bytes)
            break;
        c = character_at(text + word->end);
        if (c.space || (word->end > at && (c.alone || (alone && !c.mark))))
            break;
        alone |= c.alone;
        word->end += c.bytes;
        word->characters++;
        word->alphabetic |= c.letter;
    }
    return word->end > at;
}
