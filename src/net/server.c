/* Which server a URL names, and who asks there. */
#include "net/net_private.h"

#include <lockstep/base/file.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- who asks S3: the environment, or the file that AWS's tools read ------------------------- */

enum { FILE_BYTES_MAX = 1 << 20 };

/* The value of the first variable, or of the second (NULL: there is none), "" for none. */
static const char *net_environment(const char *first, const char *second)
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

/* LS_ECONFIG: there are none, and where they are expected. */
static int net_credentials(struct ls_credentials *out, struct ls_error *error)
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

bool net_credentials_renew(struct ls_server *server)
{
    struct ls_credentials now;
    bool other =
        server->is_signed && !net_credentials(&now, NULL) &&
        (strcmp(now.key, server->who.key) != 0 || strcmp(now.secret, server->who.secret) != 0 ||
         strcmp(now.token, server->who.token) != 0);
    if (other)
        server->who = now;
    explicit_bzero(&now, sizeof now);
    return other;
}

static bool only(const char *text, size_t length, const char *characters)
{
    return strspn(text, characters) >= length;
}

#define LETTERS  "abcdefghijklmnopqrstuvwxyz"
#define CAPITALS "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGITS   "0123456789"

/* ---- schemes --------------------------------------------------------------------------------- */

/* How long it is before "://"; 0: there is none. */
static size_t scheme_bytes(const char *name)
{
    size_t length = strspn(name, LETTERS CAPITALS DIGITS "+-.");
    bool is_one = strspn(name, LETTERS CAPITALS) > 0 && !strncmp(name + length, "://", 3);
    return is_one ? length : 0;
}

static bool scheme_is(const char *url, const char *scheme)
{
    size_t length = scheme_bytes(url);
    return length == strlen(scheme) && !strncasecmp(url, scheme, length);
}

static bool is_s3(const char *url)
{
    return scheme_is(url, "s3");
}

static bool is_web(const char *url)
{
    return scheme_is(url, "http") || scheme_is(url, "https");
}

bool ls_url_is(const char *name)
{
    return scheme_bytes(name) > 0;
}

/* Leaves one of the slashes that begin at `at`. */
static void slashes_join(char *at)
{
    size_t count = strspn(at, "/");
    if (count > 1)
        memmove(at + 1, at + count, strlen(at + count) + 1);
}

void ls_url_normalize(char *url)
{
    size_t scheme = scheme_bytes(url), length;
    for (size_t i = 0; i < scheme; i++)
        url[i] = (char)(url[i] | (url[i] >= 'A' && url[i] <= 'Z' ? 0x20 : 0));
    if (!scheme)
        return;
    char *host = url + scheme + strlen("://");
    slashes_join(host + strcspn(host, "/"));
    length = strlen(host);
    while (length > 1 && host[length - 1] == '/' && host[length - 2] == '/')
        host[--length] = '\0';
}

/* key = path without slashes around. */
static bool key_take(const char *path, char *key, size_t bytes)
{
    path += strspn(path, "/");
    size_t end = strlen(path);
    while (end > 0 && path[end - 1] == '/')
        end--;
    snprintf(key, bytes, "%.*s", (int)ls_min((int64_t)end, (int64_t)bytes - 1), path);
    return end < bytes;
}

/* ---- S3 -------------------------------------------------------------------------------------- */

/* s3://bucket/prefix; a bucket has 3 to 63 small letters, digits, dots and dashes. Of a prefix only
 * what needs no escape is taken. */
static int bucket_read(const char *url, char bucket[64], char *key, size_t key_bytes,
                       struct ls_error *error)
{
    const char *name = strstr(url, "://") + 3;
    size_t length = strcspn(name, "/");
    if (length < 3 || length > 63 || !only(name, length, LETTERS DIGITS ".-"))
        return ls_error_set(error, LS_ECONFIG,
                            "expected s3://bucket/prefix; a bucket's name has 3 to 63 of a-z, 0-9, "
                            "'.' and '-'");
    snprintf(bucket, 64, "%.*s", (int)length, name);
    if (!key_take(name + length, key, key_bytes) ||
        !only(key, strlen(key), LETTERS CAPITALS DIGITS "-._~/") || strstr(key, "//") ||
        strstr(key, "./"))
        return ls_error_set(error, LS_ECONFIG,
                            "the prefix may have letters, digits, and -._~ with single slashes "
                            "between names");
    return LS_OK;
}

static int bucket_open(struct ls_server *server, const char *url, struct ls_error *error)
{
    char bucket[64];
    const char *region = net_environment("AWS_REGION", "AWS_DEFAULT_REGION");
    const char *endpoint = net_environment("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL");
    region = *region ? region : "us-east-1";
    int status = bucket_read(url, bucket, server->key, sizeof server->key, error);
    status = status ? status : net_credentials(&server->who, error);
    if (status)
        return status;
    if (*endpoint && !is_web(endpoint))
        return ls_error_set(error, LS_ECONFIG,
                            "the endpoint in the environment is \"%.200s\", expected http:// or "
                            "https:// and a host",
                            endpoint);
    size_t length = strlen(endpoint);
    while (length > 0 && endpoint[length - 1] == '/')
        length--;
    size_t used, size = sizeof server->url;
    if (*endpoint)
        used = (size_t)snprintf(server->url, size, "%.*s/%s", (int)length, endpoint, bucket);
    else if (strchr(bucket, '.')) /* no certificate has such a host */
        used =
            (size_t)snprintf(server->url, size, "https://s3.%s.amazonaws.com/%s", region, bucket);
    else
        used =
            (size_t)snprintf(server->url, size, "https://%s.s3.%s.amazonaws.com", bucket, region);
    size_t signer =
        (size_t)snprintf(server->signer, sizeof server->signer, "aws:amz:%s:s3", region);
    if (used >= size || signer >= sizeof server->signer)
        return ls_error_set(error, LS_ECONFIG, "a value of AWS_* in the environment is too long");
    ls_url_normalize(server->url);
    server->is_signed = true;
    return LS_OK;
}

/* ---- the web --------------------------------------------------------------------------------- */

/* Where the host begins, and how long it is with its port. */
static const char *host_of(const char *url, size_t *length)
{
    const char *host = strstr(url, "://") + 3;
    *length = strcspn(host, "/?#");
    return host;
}

static int web_check(const char *url, struct ls_error *error)
{
    size_t length, visible = 0;
    const char *host = host_of(url, &length), *why = NULL;
    while ((unsigned char)url[visible] > ' ' && url[visible] != 0x7f)
        visible++;
    if (memchr(host, '@', length))
        why = "a URL with a user or a password would be kept in the run's files: put them in "
              "~/.netrc";
    else if (strpbrk(url, "?#"))
        why = "a URL with '?' or '#' is not taken: what follows may be a secret, which the run's "
              "files would keep. Credentials of a host go in ~/.netrc";
    else if (length == 0 || url[visible])
        why = "expected http://host/path, without blanks";
    return why ? ls_error_set(error, LS_ECONFIG, "%s", why) : LS_OK;
}

static int web_open(struct ls_server *server, const char *url, struct ls_error *error)
{
    size_t length;
    const char *host = host_of(url, &length), *netrc = net_environment("NETRC", NULL);
    int status = web_check(url, error);
    if (status)
        return status;
    size_t bytes = (size_t)(host - url) + length;
    if (bytes >= sizeof server->url || !key_take(host + length, server->key, sizeof server->key) ||
        snprintf(server->netrc, sizeof server->netrc, "%s", netrc) >= (int)sizeof server->netrc)
        return ls_error_set(error, LS_ECONFIG, "the URL, or NETRC, is too long");
    memcpy(server->url, url, bytes);
    ls_url_normalize(server->url);
    return LS_OK;
}

/* ---- both ------------------------------------------------------------------------------------ */

int ls_url_check(const char *url, struct ls_error *error)
{
    char bucket[64], key[sizeof((struct ls_server *)0)->key];
    if (is_s3(url))
        return bucket_read(url, bucket, key, sizeof key, error);
    if (is_web(url))
        return web_check(url, error);
    return ls_error_set(error, LS_ECONFIG, "%.*s%sexpected http://, https:// or s3://bucket/prefix",
                        (int)ls_min((int64_t)scheme_bytes(url), 32), url,
                        ls_url_is(url) ? ":// is not supported: " : "");
}

/* Whose certificates are trusted beside those that the system trusts. */
static int authorities_read(struct ls_server *server, struct ls_error *error)
{
    const char *file = server->is_signed ? net_environment("AWS_CA_BUNDLE", NULL) : "";
    file = *file ? file : net_environment("CURL_CA_BUNDLE", "SSL_CERT_FILE");
    size_t room = sizeof server->authorities;
    if (snprintf(server->authorities, room, "%s", file) < (int)room)
        return LS_OK;
    return ls_error_set(error, LS_ECONFIG, "the path of the file of certificates is too long");
}

static void options_fill(struct ls_net_options *o)
{
    o->tries = o->tries ? o->tries : 6;
    o->pause_s = o->pause_s > 0 ? o->pause_s : 0.5;
    o->patient_s = o->patient_s > 0 ? o->patient_s : 300;
    o->slow_s = o->slow_s > 0 ? o->slow_s : 30;
}

/* Not every libcurl counts its users by itself. */
static pthread_mutex_t users = PTHREAD_MUTEX_INITIALIZER;

static bool library_take(void)
{
    pthread_mutex_lock(&users);
    bool taken = !curl_global_init(CURL_GLOBAL_DEFAULT);
    pthread_mutex_unlock(&users);
    return taken;
}

static void library_give(void)
{
    pthread_mutex_lock(&users);
    curl_global_cleanup();
    pthread_mutex_unlock(&users);
}

int ls_server_open(struct ls_server **out, const char *url, const struct ls_net_options *options,
                   struct ls_error *error)
{
    *out = NULL;
    int status = ls_url_check(url, error);
    if (status)
        return status;
    struct ls_server *server = calloc(1, sizeof *server);
    if (!server)
        return ls_no_memory(error, "for libcurl");
    if (!library_take()) {
        free(server);
        return ls_error_set(error, LS_ENOTSUP, "libcurl cannot be loaded: install libcurl3-gnutls");
    }
    if (options)
        server->options = *options;
    options_fill(&server->options);
    server->curl = curl_easy_init();
    if (!server->curl)
        status = ls_no_memory(error, "for libcurl");
    else
        status = is_s3(url) ? bucket_open(server, url, error) : web_open(server, url, error);
    if (!status)
        status = authorities_read(server, error);
    if (status)
        ls_server_close(server);
    else
        *out = server;
    return status;
}

void ls_server_close(struct ls_server *server)
{
    if (!server)
        return;
    if (server->curl)
        curl_easy_cleanup(server->curl);
    explicit_bzero(&server->who, sizeof server->who);
    free(server);
    library_give();
}

const char *ls_server_url(const struct ls_server *server)
{
    return server->url;
}

const char *ls_server_key(const struct ls_server *server)
{
    return server->key;
}
