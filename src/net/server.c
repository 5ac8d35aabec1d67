/* Which server a URL names, and who asks there. */
#include "net/credentials.h"
#include "net/net_private.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

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
        return ls_error_set(error, LS_ENOMEM, "no memory for libcurl");
    if (!library_take()) {
        free(server);
        return ls_error_set(error, LS_ENOTSUP, "libcurl cannot be loaded: install libcurl3-gnutls");
    }
    if (options)
        server->options = *options;
    options_fill(&server->options);
    server->curl = curl_easy_init();
    if (!server->curl)
        status = ls_error_set(error, LS_ENOMEM, "no memory for libcurl");
    else
        status = is_s3(url) ? bucket_open(server, url, error) : web_open(server, url, error);
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
