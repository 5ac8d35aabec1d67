/* JSON lines that a command writes: to a file, which gets its name when it is whole, or to standard
 * output as they come. */
#ifndef CMD_LINES_H
#define CMD_LINES_H

#include "cmd.h"

#include <lockstep/base/file.h>
#include <lockstep/data.h>

struct cmd_lines {
    bool open, named;
    struct ls_atomic_file file; /* named */
    FILE *line;                 /* the one under work */
    char *text;
    size_t bytes;
    struct ls_text piece; /* scratch of a token's text */
};
/* path NULL or "-": standard output. A path that cannot be written is known here. */
int cmd_lines_open(struct cmd_lines *lines, const char *path, struct ls_error *error);
/* A line: begin, members in their order, end. The first failure shows at end. */
void cmd_lines_begin(struct cmd_lines *lines);
void cmd_lines_int(struct cmd_lines *lines, const char *key, int64_t value);
void cmd_lines_bool(struct cmd_lines *lines, const char *key, bool value);
/* 17 digits; null if value is not finite. */
void cmd_lines_double(struct cmd_lines *lines, const char *key, double value);
/* What is not UTF-8 becomes U+FFFD. */
void cmd_lines_text(struct cmd_lines *lines, const char *key, const char *bytes, size_t count);
void cmd_lines_ids(struct cmd_lines *lines, const char *key, const int32_t *ids, int64_t count);
/* "logprobs": 9 digits, which are the float's; "bits": its 8 hexadecimal digits. Those of tokens
 * [0, first) are null, as is what is not finite among the first. */
void cmd_lines_logprobs(struct cmd_lines *lines, const float *logprobs, int64_t first,
                        int64_t count);
int cmd_lines_end(struct cmd_lines *lines, struct ls_error *error);
/* Whether a line failed because the reader of standard output is gone. */
bool cmd_lines_refused(void);
/* Members "id", "text", "logprob" and "bits" of a token; known: it has a log-probability. tokenizer
 * NULL: without "text". */
void cmd_lines_token(struct cmd_lines *lines, const struct ls_tokenizer *tokenizer, int32_t id,
                     bool known, float logprob);
/* The file is whole, or what was printed has gone out. */
int cmd_lines_close(struct cmd_lines *lines, struct ls_error *error);
/* After a failure: nothing stays under the name. Does nothing behind a close. */
void cmd_lines_abort(struct cmd_lines *lines);

#endif
