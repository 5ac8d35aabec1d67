/* Credentials of S3: from the environment, or from the file that AWS's tools read. */
#include "net/credentials.h"

#include <lockstep/base/file.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_BYTES_MAX = 1 << 20 };

const char *net_environment(const char *first, const char *second)
{
    const char *value = getenv(first);
    if ((!value || !*value) && second)
        value = getenv(second);
    return value ? value : "";
}

/* A part of a line, without blanks around. */
struct word {
    const char *text;
    size_t bytes;
};

static struct word trimmed(const char *text, size_t bytes)
{
    static const char blanks[] = " \t\r";
    while (bytes > 0 && *text && strchr(blanks, *text))
        text++, bytes--;
    while (bytes > 0 && text[bytes - 1] && strchr(blanks, text[bytes - 1]))
        bytes--;
    return (struct word){text, bytes};
}

static bool is(struct word word, const char *text)
{
    return word.bytes == strlen(text) && !memcmp(word.text, text, word.bytes);
}

static bool take(struct word value, char *out, size_t room)
{
    if (value.bytes >= room || memchr(value.text, '\0', value.bytes))
        return false;
    memcpy(out, value.text, value.bytes);
    out[value.bytes] = '\0';
    return true;
}

/* False: the value does not fit. Names that are not ours are passed over. */
static bool line_take(struct word line, struct ls_credentials *out)
{
    const char *equals = memchr(line.text, '=', line.bytes);
    if (!equals)
        return true;
    struct word name = trimmed(line.text, (size_t)(equals - line.text));
    struct word value = trimmed(equals + 1, (size_t)(line.text + line.bytes - equals - 1));
    if (is(name, "aws_access_key_id"))
        return take(value, out->key, sizeof out->key);
    if (is(name, "aws_secret_access_key"))
        return take(value, out->secret, sizeof out->secret);
    if (is(name, "aws_session_token"))
        return take(value, out->token, sizeof out->token);
    return true;
}

bool ls_credentials_parse(const char *text, size_t bytes, const char *profile,
                          struct ls_credentials *out)
{
    bool inside = false, good = true;
    memset(out, 0, sizeof *out);
    for (const char *at = text, *end = text + bytes; at < end && good;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        stop = stop ? stop : end;
        struct word line = trimmed(at, (size_t)(stop - at));
        if (line.bytes > 1 && line.text[0] == '[')
            inside = line.text[line.bytes - 1] == ']' &&
                     is(trimmed(line.text + 1, line.bytes - 2), profile);
        else if (inside && line.bytes > 0 && line.text[0] != '#' && line.text[0] != ';')
            good = line_take(line, out);
        at = stop + 1;
    }
    return good && out->key[0] && out->secret[0];
}

/* The file's path, "" if there is no home. */
static bool file_path(char path[PATH_MAX])
{
    const char *named = net_environment("AWS_SHARED_CREDENTIALS_FILE", NULL);
    const char *home = net_environment("HOME", NULL);
    const char *tail = *named ? "" : "/.aws/credentials";
    path[0] = '\0';
    return (!*named && !*home) ||
           snprintf(path, PATH_MAX, "%s%s", *named ? named : home, tail) < PATH_MAX;
}

static int file_read(const char *path, struct ls_credentials *out, struct ls_error *error)
{
    const char *profile = net_environment("AWS_PROFILE", "AWS_DEFAULT_PROFILE");
    char *text;
    size_t bytes;
    profile = *profile ? profile : "default";
    int status = ls_file_read(path, FILE_BYTES_MAX, LS_ECONFIG, &text, &bytes, error);
    if (status)
        return status;
    if (!ls_credentials_parse(text, bytes, profile, out))
        status = ls_error_set(error, LS_ECONFIG,
                              "%.300s: no usable profile [%.100s]: expected aws_access_key_id and "
                              "aws_secret_access_key in it. AWS_PROFILE names another",
                              path, profile);
    explicit_bzero(text, bytes);
    free(text);
    return status;
}

/* What the environment lacks. */
static int missing(const char *names, struct ls_error *error)
{
    return ls_error_set(error, LS_ECONFIG,
                        "S3 needs credentials: set %s in the environment of every rank, or put "
                        "them in ~/.aws/credentials",
                        names);
}

static int from_file(struct ls_credentials *out, struct ls_error *error)
{
    char path[PATH_MAX];
    struct ls_error why = {0};
    bool named = *net_environment("AWS_SHARED_CREDENTIALS_FILE", NULL) != '\0';
    if (!file_path(path))
        return ls_error_set(error, LS_ECONFIG, "the path of the credentials file is too long");
    int status = *path ? file_read(path, out, &why) : LS_EIO;
    if (status == LS_EIO && !named)
        return missing("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY", error);
    return status ? ls_error_set(error, LS_ECONFIG, "S3 needs credentials: %s", why.text) : LS_OK;
}

int net_credentials(struct ls_credentials *out, struct ls_error *error)
{
    const char *key = net_environment("AWS_ACCESS_KEY_ID", NULL);
    const char *secret = net_environment("AWS_SECRET_ACCESS_KEY", NULL);
    const char *token = net_environment("AWS_SESSION_TOKEN", NULL);
    memset(out, 0, sizeof *out);
    if (!*key && !*secret)
        return from_file(out, error);
    if (!*key || !*secret)
        return missing(*key ? "AWS_SECRET_ACCESS_KEY" : "AWS_ACCESS_KEY_ID", error);
    if (strlen(key) >= sizeof out->key || strlen(secret) >= sizeof out->secret ||
        strlen(token) >= sizeof out->token)
        return ls_error_set(error, LS_ECONFIG, "a value of AWS_* in the environment is too long");
    strcpy(out->key, key);
    strcpy(out->secret, secret);
    strcpy(out->token, token);
    return LS_OK;
}
