/* What the tools for corpora share: documents judged by threads and taken in their order, outputs
 * in parts, words. */
#ifndef DATA_CORPUS_PRIVATE_H
#define DATA_CORPUS_PRIVATE_H

#include "data/data_private.h"

#include <lockstep/data/corpus_tools.h>

/* ---- documents (documents.c) ----------------------------------------------------------------- */

struct data_document {
    int64_t number; /* in the order of the input */
    struct data_place place;
    struct ls_text text; /* UTF-8: of a file's other bytes each is U+FFFD. Borrowed, as the line */
    struct ls_text line; /* of JSONL, without its end; empty: a file */
    void *result;        /* [result_bytes], what work made of it */
};
struct data_documents {
    struct data_corpus *corpus; /* opened with keep_lines */
    int64_t skip;               /* so many at the beginning are read, and no more */
    int64_t *read;              /* becomes how many there are, those too; NULL: not asked for */
    int workers;
    const volatile int *stop;
    size_t result_bytes;
    /* On any thread: worker says which, from 0. It fills result, and may change the text. NULL:
     * nothing is judged. */
    int (*work)(void *user, int worker, struct data_document *document, struct ls_error *error);
    /* On the calling thread, in order. */
    int (*take)(void *user, const struct data_document *document, struct ls_error *error);
    void *user;
};
int data_documents_run(const struct data_documents *config, struct ls_error *error);
/* "FILE:LINE" or "FILE" of a place. */
void data_place_text(const struct data_corpus *corpus, struct data_place place,
                     char text[PATH_MAX + 32]);

/* ---- outputs (corpus_output.c) --------------------------------------------------------------- */

/* What becomes of the documents: one file, or a folder of parts. Of a folder, part i has what
 * remains of documents [i * part_documents, (i + 1) * part_documents), and gets its name when it is
 * whole, behind the list of those that were removed. */
struct data_corpus_output {
    const struct ls_corpus_config *config;
    struct data_inputs inputs;
    struct data_folder folder;
    bool removes; /* parts have lists of what was removed: true, unless set after the opening */
    struct ls_atomic_file kept, removed;
    bool kept_open, removed_open;
};
struct data_inputs data_corpus_inputs(const struct data_corpus *corpus);
/* list: of removed documents, for a file; NULL: none. job says what is done, and how; a folder with
 * parts of another job is LS_EINVAL. *skip = documents whose part is there. Release it whatever
 * this returns; it takes zeros too. */
int data_corpus_output_open(struct data_corpus_output *output,
                            const struct ls_corpus_config *config, const struct data_inputs *inputs,
                            const char *list, const char *job, int64_t *skip,
                            struct ls_error *error);
/* The document remains (why NULL), or is removed from a corpus: why writes the members of its
 * object in the list that follow its number and its name. Nothing happens if its part is there. */
int data_corpus_output_put(struct data_corpus_output *output, const struct data_document *document,
                           ls_writer *why, const void *context, struct ls_error *error);
/* Gives the last files their names. */
int data_corpus_output_commit(struct data_corpus_output *output, struct ls_error *error);
void data_corpus_output_release(struct data_corpus_output *output);

/* ---- words (words_of.c) ---------------------------------------------------------------------- */

/* A word: a run of characters that are no white space; of scripts that do not part words by spaces
 * (Han, Hiragana, Katakana, Thai, Lao, Khmer, Myanmar) each letter is a word. */
struct data_word {
    size_t begin, end; /* bytes of the text */
    int64_t characters;
    bool alphabetic; /* has a letter */
};
/* The first word that begins at or behind word->end (0 at first); false: there is none. */
bool data_word_next(const char *text, size_t bytes, struct data_word *word);

#endif
