/* lockstep/data/choices.h - multiple choice in llm.c's format of HellaSwag and MMLU. Included by
 * lockstep/data.h.
 *
 * A file (magic 20240522, version 1) is a header of 256 int32: magic, version, examples, bytes of
 * the longest one; then uint16 for each example:
 *
 *     65535   bytes of the example, all of this   its number   label   endings
 *     count, tokens of the context   and for each ending   count, tokens
 */
#ifndef LOCKSTEP_DATA_CHOICES_H
#define LOCKSTEP_DATA_CHOICES_H

#include <lockstep/base.h>

LS_C_BEGIN

/* A context with one of its endings. */
struct ls_choice_text {
    const int32_t *ids;   /* [count]; the set's */
    int64_t count, first; /* tokens [first, count) are the ending */
};
struct ls_choice {
    int64_t text; /* texts[text + i] has ending i */
    int endings, label;
};
struct ls_choices {
    struct ls_choice *list;
    int64_t count;
    struct ls_choice_text *texts;
    int64_t texts_count;
    int32_t *ids;
    int64_t ids_count;
};
/* Local. LS_EDATA names the file, the example, what was found and what was expected. A context and
 * an ending have a token each at least, an example two endings. On failure there is nothing to
 * release. */
int ls_choices_read(const char *path, struct ls_choices *out, struct ls_error *error);
/* The same of file[bytes]; name is for texts. */
int ls_choices_parse(const char *name, const unsigned char *file, size_t bytes,
                     struct ls_choices *out, struct ls_error *error);
void ls_choices_release(struct ls_choices *choices);

LS_C_END
#endif
