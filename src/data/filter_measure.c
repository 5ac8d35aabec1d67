/* What the filter's rules measure of a document: its words, lines, paragraphs and sentences. */
#include "data/filter_measure.h"
#include "data/tokenizer_private.h"

#include <string.h>
#include <strings.h>
#include <xxhash.h>

/* ---- pieces of text -------------------------------------------------------------------------- */

static int64_t characters_of(const char *text, size_t bytes)
{
    int64_t count = 0;
    for (size_t i = 0; i < bytes; i++)
        count += ((unsigned char)text[i] & 0xc0) != 0x80;
    return count;
}

struct span {
    const char *text;
    size_t bytes;
};

/* The next line without white space around it, which may be empty; false at the end. */
static bool next_line(const struct ls_text *text, size_t *at, struct span *line)
{
    if (*at >= text->count)
        return false;
    const char *begin = text->bytes + *at, *end = memchr(begin, '\n', text->count - *at);
    size_t bytes = end ? (size_t)(end - begin) : text->count - *at;
    *at += bytes + 1;
    while (bytes > 0 && data_is_ascii_space(begin[bytes - 1]))
        bytes--;
    while (bytes > 0 && data_is_ascii_space(*begin)) {
        begin++;
        bytes--;
    }
    *line = (struct span){begin, bytes};
    return true;
}

static bool begins(struct span of, const char *with)
{
    size_t bytes = strlen(with);
    return of.bytes >= bytes && memcmp(of.text, with, bytes) == 0;
}

static bool ends(struct span of, const char *with)
{
    size_t bytes = strlen(with);
    return of.bytes >= bytes && memcmp(of.text + of.bytes - bytes, with, bytes) == 0;
}

static bool any(struct span of, bool (*test)(struct span, const char *), const char *const *list)
{
    for (; *list; list++)
        if (test(of, *list))
            return true;
    return false;
}

static int64_t occurrences(const struct ls_text *text, const char *of)
{
    int64_t count = 0;
    size_t bytes = strlen(of);
    for (size_t i = 0; i + bytes <= text->count; i++)
        if ((text->bytes[i] | 0x20) == (*of | 0x20) && /* most are not */
            strncasecmp(text->bytes + i, of, bytes) == 0) {
            count++;
            i += bytes - 1;
        }
    return count;
}

/* ---- words ----------------------------------------------------------------------------------- */

/* English words that any text has: Rae et al. The bit of a word, 0 of another. */
static unsigned stop_word(struct span word)
{
    static const char *const list[] = {"the", "be", "to", "of", "and", "that", "have", "with"};
    while (word.bytes > 0 && strchr(".,;:!?\"'()", word.text[word.bytes - 1]))
        word.bytes--;
    while (word.bytes > 0 && strchr("\"'(", *word.text)) {
        word.text++;
        word.bytes--;
    }
    for (unsigned i = 0; i < sizeof list / sizeof *list; i++)
        if (strlen(list[i]) == word.bytes && strncasecmp(list[i], word.text, word.bytes) == 0)
            return 1u << i;
    return 0;
}

static int measure_words(struct filter_scratch *scratch, const struct ls_text *text, double *value,
                         struct ls_error *error)
{
    struct data_word word = {0};
    int64_t characters = 0, alphabetic = 0;
    unsigned stop_words = 0;
    int status = LS_OK;
    scratch->count = 0;
    while (!status && data_word_next(text->bytes, text->count, &word)) {
        const struct span at = {text->bytes + word.begin, word.end - word.begin};
        characters += word.characters;
        alphabetic += word.alphabetic;
        stop_words |= stop_word(at);
        status = filter_piece_add(scratch, XXH3_64bits(at.text, at.bytes), word.characters, error);
    }
    double words = (double)ls_max(scratch->count, 1);
    value[FILTER_WORDS_MIN] = value[FILTER_WORDS_MAX] = (double)scratch->count;
    value[FILTER_WORD_LENGTH_MIN] = value[FILTER_WORD_LENGTH_MAX] = (double)characters / words;
    value[FILTER_HASHES] = (double)occurrences(text, "#") / words;
    value[FILTER_ELLIPSES] =
        (double)(occurrences(text, "...") + occurrences(text, "\xe2\x80\xa6")) / words;
    value[FILTER_ALPHABETIC] = (double)alphabetic / words;
    value[FILTER_STOP_WORDS] = __builtin_popcount(stop_words);
    return status;
}

static int measure_grams(struct filter_scratch *scratch, const bool *used, double *value,
                         struct ls_error *error)
{
    int status = LS_OK;
    for (int n = 2; n <= 4 && !status; n++)
        if (used[FILTER_TOP_2_GRAM + n - 2])
            status = filter_top_gram(scratch, n, &value[FILTER_TOP_2_GRAM + n - 2], error);
    for (int n = 5; n <= 10 && !status; n++)
        if (used[FILTER_DUPLICATE_5_GRAMS + n - 5])
            status =
                filter_duplicate_grams(scratch, n, &value[FILTER_DUPLICATE_5_GRAMS + n - 5], error);
    return status;
}

/* ---- lines and paragraphs -------------------------------------------------------------------- */

static int measure_lines(struct filter_scratch *scratch, const struct ls_text *text, double *value,
                         struct ls_error *error)
{
    static const char *const bullets[] = {
        "-", "*", "\xe2\x80\xa2", "\xe2\x80\xa3", "\xe2\x97\xa6", "\xe2\x96\xaa", "\xe2\x97\x8f",
        NULL};
    static const char *const ellipses[] = {"...", "\xe2\x80\xa6", NULL};
    int64_t bullet = 0, ellipsis = 0;
    size_t at = 0;
    struct span line;
    int status = LS_OK;
    scratch->count = 0;
    while (!status && next_line(text, &at, &line)) {
        if (line.bytes == 0)
            continue;
        bullet += any(line, begins, bullets);
        ellipsis += any(line, ends, ellipses);
        status = filter_piece_add(scratch, XXH3_64bits(line.text, line.bytes),
                                  characters_of(line.text, line.bytes), error);
    }
    double lines = (double)ls_max(scratch->count, 1);
    value[FILTER_BULLET_LINES] = (double)bullet / lines;
    value[FILTER_ELLIPSIS_LINES] = (double)ellipsis / lines;
    return status ? status
                  : filter_repeats(scratch, &value[FILTER_DUPLICATE_LINES],
                                   &value[FILTER_DUPLICATE_LINE_CHARACTERS], error);
}

/* A paragraph is a run of lines that are not empty. */
static int measure_paragraphs(struct filter_scratch *scratch, const struct ls_text *text,
                              double *value, struct ls_error *error)
{
    const char *begin = NULL;
    size_t at = 0, bytes = 0;
    struct span line;
    int status = LS_OK;
    scratch->count = 0;
    for (bool more = true; more && !status;) {
        more = next_line(text, &at, &line);
        if (more && line.bytes > 0) {
            begin = begin ? begin : line.text;
            bytes = (size_t)(line.text + line.bytes - begin);
        } else if (begin) {
            status = filter_piece_add(scratch, XXH3_64bits(begin, bytes),
                                      characters_of(begin, bytes), error);
            begin = NULL;
        }
    }
    return status ? status
                  : filter_repeats(scratch, &value[FILTER_DUPLICATE_PARAGRAPHS],
                                   &value[FILTER_DUPLICATE_PARAGRAPH_CHARACTERS], error);
}

/* ---- C4 -------------------------------------------------------------------------------------- */

static const char *const terminals[] = {".",
                                        "!",
                                        "?",
                                        "\xe3\x80\x82", /* ideographic full stop */
                                        "\xef\xbc\x81", /* full-width exclamation mark */
                                        "\xef\xbc\x9f", /* full-width question mark */
                                        NULL};
static const char *const quotes[] = {"\"", "\xe2\x80\x9d", "\xe2\x80\x99", "\xe3\x80\x8d", NULL};

static int64_t words_in(struct span line)
{
    struct data_word word = {0};
    int64_t count = 0;
    while (data_word_next(line.text, line.bytes, &word))
        count++;
    return count;
}

/* Runs of terminal marks behind which white space, a quotation mark or the end comes; those of
 * scripts without spaces need none. */
static int64_t sentences_in(struct span line)
{
    int64_t count = 0;
    for (size_t i = 0; i < line.bytes;) {
        struct span rest = {line.text + i, line.bytes - i};
        if (!any(rest, begins, terminals)) {
            i++;
            continue;
        }
        bool wide = (unsigned char)*rest.text >= 0x80;
        do {
            i += (unsigned char)line.text[i] >= 0x80 ? 3 : 1;
            rest = (struct span){line.text + i, line.bytes - i};
        } while (any(rest, begins, terminals));
        count +=
            wide || rest.bytes == 0 || data_is_ascii_space(*rest.text) || any(rest, begins, quotes);
    }
    return count;
}

/* Sentences in the lines that C4 keeps (Raffel et al., "Exploring the Limits of Transfer Learning
 * with a Unified Text-to-Text Transformer", 2020, 2.2): they end with a terminal mark or a
 * quotation mark, have five words and do not speak of Javascript. */
static double measure_sentences(const struct ls_text *text)
{
    int64_t count = 0;
    size_t at = 0;
    struct span line;
    while (next_line(text, &at, &line)) {
        struct ls_text of = {.bytes = (char *)line.text, .count = line.bytes};
        if ((any(line, ends, terminals) || any(line, ends, quotes)) && words_in(line) >= 5 &&
            occurrences(&of, "javascript") == 0)
            count += ls_max(sentences_in(line), 1);
    }
    return (double)count;
}

/* ---- all of it ------------------------------------------------------------------------------- */

int filter_measure(struct filter_scratch *scratch, const bool *used, const struct ls_text *text,
                   double *value, struct ls_error *error)
{
    value[FILTER_CHARACTERS_MIN] = value[FILTER_CHARACTERS_MAX] =
        (double)characters_of(text->bytes, text->count);
    int status = measure_words(scratch, text, value, error);
    if (!status)
        status = measure_grams(scratch, used, value, error);
    if (!status)
        status = measure_lines(scratch, text, value, error);
    if (!status)
        status = measure_paragraphs(scratch, text, value, error);
    if (used[FILTER_SENTENCES])
        value[FILTER_SENTENCES] = measure_sentences(text);
    value[FILTER_LOREM_IPSUM] = (double)occurrences(text, "lorem ipsum");
    value[FILTER_BRACES] = (double)(occurrences(text, "{") + occurrences(text, "}"));
    return status;
}
