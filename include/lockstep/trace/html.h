/* lockstep/trace/html.h - pages that a browser shows without a network: HTML that is XML too.
 *
 *   ls_html_begin(file, "title")
 *   ls_html_section_begin(file, "losses", "Losses"), ..., ls_html_section_end
 *   ls_html_print(file, "p", NULL, "%ld steps", steps)
 *   ls_html_table_begin(&table, file, ...), ls_html_cell(&table, "%.3f", loss) ..., _end
 *   pictures of lockstep/trace/picture.h
 *   ls_html_end(file)
 *
 * The style is in the page: light or dark as the reader has chosen, from 320 units of width on; a
 * table that is wider scrolls in its own box, or becomes a stack. There are no scripts. Classes
 * that callers use:
 *
 *   wide, narrow   one of the two is shown: a picture drawn for either; narrow ones fill the width,
 *                  or with `own` keep theirs
 *   cards, card    figures side by side: div.cards holds div.card, which hold b and span
 *   pair           blocks side by side if there is room
 *   tall           holds a long table, which then scrolls in its own box
 *   note, warn     paragraphs
 *   verdict        a paragraph that says what is the matter
 *   soft, mono     less important; fixed width
 *   key, legend    a small square before a name, with ls-part<i> its colour; square and name
 *   ls-part<i>     fill and background of part i of LS_HTML_PARTS, in charts of parts
 *
 * All text is escaped. Writing fails as FILEs do: check ferror or fclose at the end. Everything
 * here is Local. */
#ifndef LOCKSTEP_TRACE_HTML_H
#define LOCKSTEP_TRACE_HTML_H

#include <lockstep/base.h>

#include <stdio.h>

LS_C_BEGIN

enum { LS_HTML_PARTS = 13 };

void ls_html_begin(FILE *file, const char *title);
void ls_html_end(FILE *file);
/* A part of the page with its heading; id: letters and dashes. */
void ls_html_section_begin(FILE *file, const char *id, const char *heading);
void ls_html_section_end(FILE *file);
/* <element class="classes">text</element>; classes may be NULL. Less than 4096 bytes of text; what
 * is longer is cut. */
void ls_html_print(FILE *file, const char *element, const char *classes, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

enum ls_html_cells {
    LS_HTML_TEXT,
    LS_HTML_WORD,   /* is not broken over lines */
    LS_HTML_NUMBER, /* to the right, digits below each other */
};
struct ls_html_column {
    const char *name;
    enum ls_html_cells cells;
};
/* Fields are private. */
struct ls_html_table {
    FILE *file;
    const struct ls_html_column *columns;
    int count, column;
};
/* caption says what the table holds; it is read out, and shown above. */
void ls_html_table_begin(struct ls_html_table *table, FILE *file, const char *caption,
                         const struct ls_html_column *columns, int count);
/* The same of many columns, or of wide ones: in a narrow window each row is a block, in which every
 * cell stands under the name of its column, without quotes. */
enum { LS_HTML_STACK_MAX = 9 }; /* columns */
void ls_html_stack_begin(struct ls_html_table *table, FILE *file, const char *caption,
                         const struct ls_html_column *columns, int count);
/* The next cell; the first of a row names it. "" is an empty one. */
void ls_html_cell(struct ls_html_table *table, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The same, of any length. */
void ls_html_cell_text(struct ls_html_table *table, const char *text);
/* The same with a square of part i's colour before it. */
void ls_html_cell_part(struct ls_html_table *table, int part, const char *text);
void ls_html_table_end(struct ls_html_table *table);

/* Text whose lines and spaces stay; of any length. */
void ls_html_pre(FILE *file, const char *text);
/* A fold: closed until the reader opens it. */
void ls_html_fold_begin(FILE *file, const char *summary);
void ls_html_fold_end(FILE *file);

LS_C_END
#endif
