/* Errors: their texts, codes and exit codes; the log. */
#include <lockstep/base.h>
#include <lockstep/base/formatted.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of "scheme://user:password@host/x?key=value" what is secret becomes "***", whoever quoted it. */
static void secrets_hide(char *text)
{
    static const char hidden[] = "***";
    for (char *at = text; (at = strstr(at, "://"));) {
        at += strlen("://");
        size_t host = strcspn(at, "/?#, \t\"'");
        char *user_end = memrchr(at, '@', host);
        size_t secret = user_end ? (size_t)(user_end - at) : 0;
        if (secret >= sizeof hidden - 1) {
            memcpy(at, hidden, sizeof hidden - 1);
            memmove(at + sizeof hidden - 1, user_end, strlen(user_end) + 1);
        } else if (secret > 0) {
            memset(at, '*', secret);
        }
        size_t path = strcspn(at, "?, \t\"'");
        size_t query = at[path] == '?' ? strcspn(at + path, ", \t\"'") : 0;
        if (query > sizeof hidden && memchr(at + path, '=', query)) {
            char *behind = at + path + query;
            memcpy(at + path + 1, hidden, sizeof hidden - 1);
            memmove(at + path + sizeof hidden, behind, strlen(behind) + 1);
        }
    }
}

/* Becomes what is written, and refuses no key. */
static void error_write(struct ls_error *error, int code, const char *format, va_list args)
{
    if (!error)
        return;
    /* The arguments may point into error->text. What they quote may come from anywhere, and ends on
     * a terminal: this is the one place where it is escaped. Escaped text stays as it is. */
    char text[sizeof error->text];
    vsnprintf(text, sizeof text, format, args);
    secrets_hide(text);
    *error = (struct ls_error){.code = code};
    ls_escape(text, strlen(text), "", error->text, sizeof error->text);
}

/* The parts of an error whose text is so many bytes further behind now, and may have been cut. */
static void parts_take(struct ls_error *error, const struct ls_error *from, int shift)
{
    struct ls_error taken = *from;
    int end = (int)strlen(error->text);
    memcpy(taken.text, error->text, sizeof taken.text);
    taken.reason = taken.key[0] ? (int)ls_min(taken.reason + shift, end) : taken.reason;
    taken.file = taken.line ? (int)ls_min(taken.file + shift, end) : taken.file;
    taken.file_bytes = (int)ls_min(taken.file_bytes, end - taken.file);
    *error = taken;
}

/* Puts "PREFIX: " before the text; returns the bytes that it takes there. */
static int text_push(struct ls_error *error, const char *prefix)
{
    struct ls_error before = *error;
    ls_error_set(error, before.code, "%s: ", prefix);
    int shift = (int)strlen(error->text);
    ls_error_set(error, before.code, "%s%s", error->text, before.text);
    before.unfiled = 0;
    parts_take(error, &before, shift);
    return shift;
}

int ls_error_set(struct ls_error *error, int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    error_write(error, code, format, args);
    va_end(args);
    return code;
}

int ls_error_line(struct ls_error *error, int code, const char *file, int64_t line,
                  const char *format, ...)
{
    va_list args;
    va_start(args, format);
    error_write(error, code, format, args);
    va_end(args);
    ls_error_at(error, file, line, 0);
    return code;
}

int ls_error_copy(struct ls_error *error, int code, const struct ls_error *from)
{
    if (error && error != from)
        *error = *from;
    if (error)
        error->code = code;
    return code;
}

int ls_error_refuse(struct ls_error *error, int code, const char *key, const char *value,
                    const char *format, ...)
{
    if (!error)
        return code;
    char reason[sizeof error->text];
    LS_FORMAT(reason, format);
    ls_error_set(error, code, "%s = %.200s: ", key, value);
    int begins = (int)strlen(error->text);
    ls_error_set(error, code, "%s%s", error->text, reason);
    return ls_error_about(error, key, (size_t)begins);
}

int ls_no_memory(struct ls_error *error, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    error_write(error, LS_ENOMEM, format, args);
    va_end(args);
    return error ? ls_error_set(error, LS_ENOMEM, "no memory %s", error->text) : LS_ENOMEM;
}

int ls_error_prefix(struct ls_error *error, const char *format, ...)
{
    if (!error)
        return LS_EINVAL;
    char prefix[401];
    LS_FORMAT(prefix, format);
    text_push(error, prefix);
    return error->code;
}

int ls_error_suffix(struct ls_error *error, const char *format, ...)
{
    if (!error)
        return LS_EINVAL;
    struct ls_error before = *error;
    char suffix[sizeof error->text];
    LS_FORMAT(suffix, format);
    ls_error_set(error, before.code, "%.*s%s", (int)(sizeof error->text - 1 - strlen(suffix)),
                 before.text, suffix);
    parts_take(error, &before, 0);
    return before.code;
}

int ls_error_at(struct ls_error *error, const char *file, int64_t line, int64_t column)
{
    enum { WHOLE = 500, END = WHOLE - 3 };
    char place[48] = "", prefix[WHOLE + 80];
    if (!error)
        return LS_EINVAL;
    size_t bytes = strlen(file), gone = bytes > WHOLE ? bytes - END : 0;
    while (gone && (file[gone] & 0xc0) == 0x80) /* not within a character */
        gone++;
    if (column > 0)
        snprintf(place, sizeof place, ":%lld", (long long)column);
    snprintf(prefix, sizeof prefix, "%s%s:%lld%s", gone ? "..." : "", file + gone, (long long)line,
             place);
    int shift = text_push(error, prefix);
    int behind = snprintf(NULL, 0, ":%lld%s: ", (long long)line, place);
    error->file = 0;
    error->file_bytes = shift - behind;
    error->line = line;
    return error->code;
}

int ls_error_about(struct ls_error *error, const char *key, size_t reason)
{
    if (!error)
        return LS_EINVAL;
    snprintf(error->key, sizeof error->key, "%s", key);
    error->reason = (int)reason;
    return error->code;
}

int ls_error_blame(struct ls_error *error, enum ls_error_cause cause, const char *host)
{
    if (!error)
        return LS_EINVAL;
    error->cause = (int)cause;
    snprintf(error->host, sizeof error->host, "%s", host);
    return error->code;
}

int64_t ls_error_place(const struct ls_error *error, char *file, size_t bytes)
{
    if (file)
        snprintf(file, bytes, "%.*s", error->file_bytes, error->text + error->file);
    return error->line;
}

void ls_error_unplace(struct ls_error *error)
{
    size_t gone = (size_t)error->unfiled;
    memmove(error->text, error->text + gone, strlen(error->text + gone) + 1);
    error->reason -= error->key[0] ? (int)gone : 0;
    error->file -= error->line ? (int)gone : 0;
    error->unfiled = 0;
}

int ls_error_errno(struct ls_error *error, int errno_value, const char *format, ...)
{
    int code = errno_value == ENOSPC || errno_value == EDQUOT ? LS_ENOSPC
               : errno_value == ENOMEM                        ? LS_ENOMEM
                                                              : LS_EIO;
    va_list args;
    va_start(args, format);
    error_write(error, code, format, args);
    va_end(args);
    if (error)
        ls_error_set(error, code, "%.900s: %s%s", error->text, strerror(errno_value),
                     errno_value == EMFILE ? " (raise ulimit -n)" : "");
    if (errno_value == EROFS)
        ls_error_blame(error, LS_CAUSE_READ_ONLY, "");
    return code;
}

const char *ls_status_name(int code)
{
    static const char *const names[] = {"LS_OK",      "LS_EINVAL", "LS_ECONFIG",  "LS_ELAYOUT",
                                        "LS_EDATA",   "LS_ECKPT",  "LS_EIO",      "LS_ENOSPC",
                                        "LS_ENOMEM",  "LS_ECOMM",  "LS_ENUMERIC", "LS_ESTOPPED",
                                        "LS_ENOTSUP", "LS_EBUSY"};
    int count = (int)(sizeof names / sizeof names[0]);
    return code <= 0 && -code < count ? names[-code] : "unknown status";
}

int ls_exit_code(int code)
{
    if (code == LS_OK)
        return 0;
    if (code == LS_ECONFIG || code == LS_EINVAL)
        return 2;
    return code < 0 && code >= LS_EBUSY ? 10 - code : 1;
}

void ls_panic(const char *file, int line, const char *format, ...)
{
    fprintf(stderr, "lockstep: internal error at %s:%d: ", file, line);
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputs("\nThis is a defect of Lockstep; please report it with the command that led here.\n",
          stderr);
    abort();
}

void ls_log(const struct ls_log *log, enum ls_log_level level, const char *format, ...)
{
    if (!log || !log->write || level > log->level_max)
        return;
    char line[2048], shown[2048];
    LS_FORMAT(line, format);
    secrets_hide(line);
    ls_escape(line, strlen(line), "", shown, sizeof shown);
    log->write(log->user, level, shown);
}
