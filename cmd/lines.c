/* JSON lines, member by member. */
#include "lines.h"

#include <lockstep/base/json.h>
#include <lockstep/base/meter.h>
#include <lockstep/base/temporary.h>

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool refused;

bool cmd_lines_refused(void)
{
    return __atomic_load_n(&refused, __ATOMIC_RELAXED);
}

int cmd_lines_open(struct cmd_lines *lines, const char *path, struct ls_error *error)
{
    *lines = (struct cmd_lines){.named = path && strcmp(path, "-") != 0};
    int status = lines->named ? ls_atomic_file_open(&lines->file, path, NULL, error) : LS_OK;
    lines->open = !status;
    if (lines->named && lines->open)
        ls_atomic_file_hold(&lines->file);
    if (!lines->named && isatty(STDOUT_FILENO)) /* the lines themselves show how far it is */
        ls_meter_show(NULL);
    lines->line = open_memstream(&lines->text, &lines->bytes);
    if (!status && !lines->line)
        status = ls_no_memory(error, "for a line");
    return status;
}

void cmd_lines_begin(struct cmd_lines *lines)
{
    rewind(lines->line);
    fputc('{', lines->line);
}

int cmd_lines_end(struct cmd_lines *lines, struct ls_error *error)
{
    fputs("}\n", lines->line);
    if (fflush(lines->line) || ferror(lines->line))
        return ls_no_memory(error, "for a line");
    if (lines->named) {
        int status = ls_atomic_file_write(&lines->file, lines->text, lines->bytes);
        if (status)
            *error = lines->file.error;
        return status;
    }
    bool taken = fwrite(lines->text, 1, lines->bytes, stdout) == lines->bytes;
    int failure = taken ? cmd_flush() : errno;
    if (failure == EPIPE)
        __atomic_store_n(&refused, true, __ATOMIC_RELAXED);
    if (failure)
        return ls_error_errno(error, failure, "standard output cannot be written");
    return LS_OK;
}

static void line_release(struct cmd_lines *lines)
{
    if (lines->line)
        fclose(lines->line);
    free(lines->text);
    ls_text_release(&lines->piece);
    lines->line = NULL;
    lines->text = NULL;
}

int cmd_lines_close(struct cmd_lines *lines, struct ls_error *error)
{
    line_release(lines);
    lines->open = false;
    return lines->named ? ls_atomic_file_commit(&lines->file, error) : LS_OK;
}

void cmd_lines_abort(struct cmd_lines *lines)
{
    line_release(lines);
    if (lines->open && lines->named)
        ls_atomic_file_abort(&lines->file);
    *lines = (struct cmd_lines){0};
}

/* ---- members --------------------------------------------------------------------------------- */

static FILE *member(struct cmd_lines *lines, const char *key)
{
    if (ftell(lines->line) > 1)
        fputc(',', lines->line);
    fprintf(lines->line, "\"%s\":", key);
    return lines->line;
}

void cmd_lines_int(struct cmd_lines *lines, const char *key, int64_t value)
{
    fprintf(member(lines, key), "%ld", (long)value);
}

void cmd_lines_bool(struct cmd_lines *lines, const char *key, bool value)
{
    fputs(value ? "true" : "false", member(lines, key));
}

void cmd_lines_double(struct cmd_lines *lines, const char *key, double value)
{
    ls_json_number(member(lines, key), value, 17);
}

void cmd_lines_text(struct cmd_lines *lines, const char *key, const char *bytes, size_t count)
{
    ls_json_string(member(lines, key), bytes, count);
}

void cmd_lines_ids(struct cmd_lines *lines, const char *key, const int32_t *ids, int64_t count)
{
    FILE *line = member(lines, key);
    for (int64_t i = 0; i < count; i++)
        fprintf(line, "%c%d", i ? ',' : '[', ids[i]);
    fputs(count ? "]" : "[]", line);
}

static void bits_put(FILE *line, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    fprintf(line, "\"%08x\"", bits);
}

void cmd_lines_logprobs(struct cmd_lines *lines, const float *logprobs, int64_t first,
                        int64_t count)
{
    for (int part = 0; part < 2; part++) {
        FILE *line = member(lines, part ? "bits" : "logprobs");
        for (int64_t i = 0; i < count; i++) {
            fputc(i ? ',' : '[', line);
            if (i < first)
                fputs("null", line);
            else if (part)
                bits_put(line, logprobs[i]);
            else
                ls_json_number(line, (double)logprobs[i], 9);
        }
        fputs(count ? "]" : "[]", line);
    }
}

void cmd_lines_token(struct cmd_lines *lines, const struct ls_tokenizer *tokenizer, int32_t id,
                     bool known, float logprob)
{
    struct ls_error ignored = {0};
    lines->piece.count = 0;
    cmd_lines_int(lines, "id", id);
    /* A model may have more rows than its tokenizer has tokens. */
    if (tokenizer && !ls_decode(tokenizer, &id, 1, &lines->piece, &ignored))
        cmd_lines_text(lines, "text", lines->piece.bytes, lines->piece.count);
    FILE *line = member(lines, "logprob");
    ls_json_number(line, known ? (double)logprob : NAN, 9);
    if (known)
        bits_put(member(lines, "bits"), logprob);
    else
        fputs("null", member(lines, "bits"));
}
