/* lockstep/base/words.h - counts and numbers as people read them. */
#ifndef LOCKSTEP_BASE_WORDS_H
#define LOCKSTEP_BASE_WORDS_H

#include <lockstep/base/linkage.h>

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

LS_C_BEGIN

struct ls_counted {
    char text[64];
};
/* "1 rank", "2 ranks", "1 micro-batch", "4 micro-batches", "0 copies": the noun, or the last word
 * of it, in the plural where n is not 1. */
struct ls_counted ls_counted(int64_t n, const char *noun);

/* "512 B", "15.6 GiB". */
struct ls_counted ls_bytes(double bytes);

/* A time of so many seconds: "0 s", "56.7 ms", "1.234 s", "45 min", "7.45 h", "540 days". */
struct ls_counted ls_duration(double s);
/* "12.3 k", "4.56 M". */
struct ls_counted ls_amount(double n);

/* "[2, 3]": of up to 8 dims. */
struct ls_shape_text {
    char text[192];
};
struct ls_shape_text ls_shape_text(int dims, const int64_t *shape);

/* The value, if it is not a number without a sign: printf then writes nan, never -nan. */
double ls_shown(double value);

/* How many bytes of a line of UTF-8 fit into that many columns of a terminal: whole characters,
 * wide ones (Chinese, Japanese, Korean, emoji) with two columns. A byte that is no UTF-8 counts as
 * one. */
size_t ls_columns_fit(const char *line, int columns);

/* Text in lines of at most so many columns behind an indent; an empty line separates paragraphs. */
void ls_print_wrapped(FILE *file, const char *text, int indent, int width);
/* Text for troff, which reads a leading dot or quote, a backslash and a hyphen as its own. */
void ls_print_troff(FILE *file, const char *text);

LS_C_END
#endif
