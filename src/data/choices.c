/* Examples of multiple choice from a file as llm.c writes it. */
#include <lockstep/data/choices.h>

#include "data/data_private.h"

#include <stdlib.h>

enum {
    FILE_BYTES_MAX = 1 << 30,
    MAGIC = 20240522,
    VERSION = 1,
    EXAMPLE_BEGIN = 65535,
    EXAMPLE_WORDS = 5, /* before the context */
    ENDINGS_MIN = 2,
};

struct reading {
    const char *name;
    const unsigned char *word; /* of the example, and what follows */
    int64_t words;             /* to the end of the file */
    int64_t example, count;
    struct ls_choices *out;
    int64_t list_room, texts_room, ids_room;
    struct ls_error *error;
};

static uint32_t u16_at(const struct reading *r, int64_t i)
{
    return (uint32_t)r->word[2 * i] | (uint32_t)r->word[2 * i + 1] << 8;
}

static int bad(const struct reading *r, const char *what, int64_t found, const char *expected)
{
    return ls_error_set(r->error, LS_EDATA, "%s: example %ld: %s is %ld: expected %s", r->name,
                        (long)r->example, what, (long)found, expected);
}

/* ---- tokens ---------------------------------------------------------------------------------- */

static int grow(const struct reading *r, void *list, int64_t count, int64_t *room, size_t bytes)
{
    return ls_list_grow(list, count, room, bytes)
               ? LS_OK
               : ls_error_set(r->error, LS_ENOMEM, "%s: no memory for %ld examples", r->name,
                              (long)r->count);
}

static int ids_add(struct reading *r, int64_t at, int64_t count)
{
    struct ls_choices *out = r->out;
    int status = LS_OK;
    for (int64_t i = 0; i < count && !status; i++) {
        status = grow(r, &out->ids, out->ids_count, &r->ids_room, sizeof *out->ids);
        if (!status)
            out->ids[out->ids_count++] = (int32_t)u16_at(r, at + i);
    }
    return status;
}

/* The count at word *at and the tokens behind it, which are inside the example's words. */
static int run_find(const struct reading *r, int64_t words, int64_t *at, int64_t *count)
{
    if (*at >= words)
        return bad(r, "its size in 2-byte words", words, "more: it ends inside");
    *count = u16_at(r, (*at)++);
    if (*count < 1)
        return bad(r, "a context's or an ending's number of tokens", *count, "at least 1");
    if (*count > words - *at)
        return bad(r, "a context's or an ending's number of tokens", *count,
                   "no more than the example has left");
    return LS_OK;
}

/* ---- examples -------------------------------------------------------------------------------- */

/* texts.ids is set at the end: the list of ids moves as it grows. */
static int endings_read(struct reading *r, int64_t words, int endings)
{
    struct ls_choices *out = r->out;
    int64_t at = EXAMPLE_WORDS, context_count, count;
    int status = run_find(r, words, &at, &context_count);
    int64_t context = at;
    at += status ? 0 : context_count;
    for (int i = 0; i < endings && !status; i++) {
        status = run_find(r, words, &at, &count);
        if (!status)
            status = grow(r, &out->texts, out->texts_count, &r->texts_room, sizeof *out->texts);
        if (!status)
            out->texts[out->texts_count++] =
                (struct ls_choice_text){.count = context_count + count, .first = context_count};
        if (!status)
            status = ids_add(r, context, context_count);
        if (!status)
            status = ids_add(r, at, count);
        at += count;
    }
    if (!status && at != words)
        status = bad(r, "its size in 2-byte words", words, "no more than its endings take");
    return status;
}

static int example_read(struct reading *r)
{
    struct ls_choices *out = r->out;
    if (r->words < EXAMPLE_WORDS)
        return ls_error_set(r->error, LS_EDATA,
                            "%s: truncated: it ends in example %ld of the %ld that its header "
                            "promises",
                            r->name, (long)r->example, (long)r->count);
    int64_t bytes = u16_at(r, 1), label = u16_at(r, 3), endings = u16_at(r, 4);
    if (u16_at(r, 0) != EXAMPLE_BEGIN)
        return bad(r, "the first word", u16_at(r, 0), "65535");
    if (bytes % 2 || bytes < 2 * EXAMPLE_WORDS || bytes > 2 * r->words)
        return bad(r, "its size in bytes", bytes, "an even number that fits the file");
    if (u16_at(r, 2) != (r->example & 0xffff))
        return bad(r, "its number", u16_at(r, 2), "examples to be numbered from 0");
    if (endings < ENDINGS_MIN)
        return bad(r, "the number of endings", endings, "at least 2");
    if (label >= endings)
        return bad(r, "the label", label, "less than the number of endings");
    int status = grow(r, &out->list, out->count, &r->list_room, sizeof *out->list);
    if (status)
        return status;
    out->list[out->count++] =
        (struct ls_choice){.text = out->texts_count, .endings = (int)endings, .label = (int)label};
    status = endings_read(r, bytes / 2, (int)endings);
    r->word += bytes;
    r->words -= bytes / 2;
    return status;
}

static int examples_read(struct reading *r)
{
    struct ls_choices *out = r->out;
    int status = LS_OK;
    for (; r->example < r->count && !status; r->example++)
        status = example_read(r);
    if (!status && r->words > 0)
        status =
            ls_error_set(r->error, LS_EDATA, "%s: %ld bytes after its %ld examples: expected none",
                         r->name, (long)(2 * r->words), (long)r->count);
    for (int64_t i = 0, at = 0; i < out->texts_count && !status; at += out->texts[i++].count)
        out->texts[i].ids = out->ids + at;
    return status;
}

/* ---- the file -------------------------------------------------------------------------------- */

int ls_choices_parse(const char *name, const unsigned char *file, size_t bytes,
                     struct ls_choices *out, struct ls_error *error)
{
    *out = (struct ls_choices){0};
    if (bytes < DATA_LLMC_HEADER_BYTES || bytes % 2)
        return ls_error_set(error, LS_EDATA,
                            "%s: %zu bytes: expected a header of %d and 2-byte words behind it",
                            name, bytes, DATA_LLMC_HEADER_BYTES);
    if (data_load_u32(file) != MAGIC || data_load_u32(file + 4) != VERSION)
        return ls_error_set(error, LS_EDATA,
                            "%s: begins with %u and version %u: expected %d and %d, an evaluation "
                            "file of llm.c",
                            name, data_load_u32(file), data_load_u32(file + 4), MAGIC, VERSION);
    struct reading r = {.name = name,
                        .word = file + DATA_LLMC_HEADER_BYTES,
                        .words = (int64_t)(bytes - DATA_LLMC_HEADER_BYTES) / 2,
                        .count = data_load_u32(file + 8),
                        .out = out,
                        .error = error};
    if (r.count == 0)
        return ls_error_set(error, LS_EDATA, "%s: its header promises no examples", name);
    int status = examples_read(&r);
    if (status)
        ls_choices_release(out);
    return status;
}

int ls_choices_read(const char *path, struct ls_choices *out, struct ls_error *error)
{
    char *file;
    size_t bytes;
    *out = (struct ls_choices){0};
    int status = ls_file_read(path, FILE_BYTES_MAX, LS_EDATA, &file, &bytes, error);
    if (!status)
        status = ls_choices_parse(path, (const unsigned char *)file, bytes, out, error);
    free(file);
    return status;
}

void ls_choices_release(struct ls_choices *choices)
{
    free(choices->list);
    free(choices->texts);
    free(choices->ids);
    *choices = (struct ls_choices){0};
}
