/* Words of which a value is one. */
#include <lockstep/base.h>
#include <lockstep/base/key.h>

#include <string.h>

bool ls_word_read(const struct ls_word *words, const char *text, int *value)
{
    for (const struct ls_word *word = words; word->word; word++)
        if (strcmp(word->word, text) == 0) {
            *value = word->value;
            return true;
        }
    return false;
}

const char *ls_word_of(const struct ls_word *words, int value)
{
    for (const struct ls_word *word = words; word->word; word++)
        if (word->value == value)
            return word->word;
    return "?";
}

void ls_words_expected(const struct ls_word *words, const char *text, char *expected, size_t bytes)
{
    enum { WORDS_MAX = 32 };
    const char *names[WORDS_MAX];
    size_t count = 0;
    expected[0] = '\0';
    for (const struct ls_word *word = words; word->word; word++) {
        ls_string_add(expected, bytes, word[1].word ? ", " : " or ", "%s", word->word);
        LS_ASSERT(count < WORDS_MAX);
        names[count++] = word->word;
    }
    const char *near = text ? ls_nearest(text, names, count) : NULL;
    ls_string_add(expected, bytes, "", "%s", ls_meant(near, "").text);
}

bool ls_word_next(const char **list, const char **word, size_t *length)
{
    *word = *list;
    *length = strcspn(*list, "|");
    *list += *length + ((*list)[*length] == '|');
    return *length > 0;
}

bool ls_word_among(const char *list, const char *word)
{
    const char *one;
    size_t length;
    while (ls_word_next(&list, &one, &length))
        if (strncmp(one, word, length) == 0 && !word[length])
            return true;
    return false;
}
