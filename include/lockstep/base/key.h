/* lockstep/base/key.h - words of which a value is one, as people write them. Configurations,
 * clusters and options of the program read them here. Everything here is Local. */
#ifndef LOCKSTEP_BASE_KEY_H
#define LOCKSTEP_BASE_KEY_H

#include <lockstep/base/linkage.h>

#include <stdbool.h>
#include <stddef.h>

LS_C_BEGIN

struct ls_word {
    const char *word; /* NULL ends a list */
    int value;
};

/* False, and *value as it was, where text is none of the words. */
bool ls_word_read(const struct ls_word *words, const char *text, int *value);
/* The first word of that value, "?" if there is none. */
const char *ls_word_of(const struct ls_word *words, int value);
/* "adamw, sgd or lion", and then "; did you mean lion?" where text is nearly that; NULL: none. */
void ls_words_expected(const struct ls_word *words, const char *text, char *expected, size_t bytes);

/* Whether a list of words with | between, "cosine|linear", has this one. */
bool ls_word_among(const char *list, const char *word);
/* The next word of such a list, and its length: *list moves behind it. False at the end. */
bool ls_word_next(const char **list, const char **word, size_t *length);

LS_C_END
#endif
