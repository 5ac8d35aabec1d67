/* Requests by libcurl, which signs those to S3: retries, limits of time, and what errors say. */
#include "net/net_private.h"

#include <math.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

/* ---- one try --------------------------------------------------------------------------------- */

/* Of an answer that is none of success this much is kept, which says why. */
enum { REFUSAL_BYTES = 4096 };

/* The one thing that is wrong in an answer and would be so in the next one, too. */
static const char no_ranges[] = "the server does not serve ranges of a file: it answered 200 with "
                                "all of it, expected 206. Use a "
                                "server that does, such as nginx, or copy the data to a local disk";

struct trying {
    struct ls_server *server;
    struct ls_http_request *request;
    curl_off_t moved;
    uint64_t first, last; /* of Content-Range */
    bool has_range;
};

/* Of a range that was asked for, whether these are its bytes: 206 and the same range, or all of an
 * object that is the range. */
static bool range_comes(const struct trying *trying)
{
    struct ls_http_request *request = trying->request;
    curl_off_t length = -1;
    if (request->range_bytes == 0)
        return true;
    uint64_t first = request->range_first, last = first + request->range_bytes - 1;
    curl_easy_getinfo(trying->server->curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    if (request->code == 206 && trying->has_range)
        return trying->first == first && trying->last == last;
    return request->code == 200 && first == 0 && length == (curl_off_t)request->range_bytes;
}

static size_t take_body(char *data, size_t size, size_t count, void *user)
{
    const struct trying *trying = user;
    struct ls_http_request *request = trying->request;
    size_t bytes = size * count;
    curl_easy_getinfo(trying->server->curl, CURLINFO_RESPONSE_CODE, &request->code);
    bool refusal = request->code >= 300;
    if (!refusal && !range_comes(trying)) {
        request->wrong = request->code == 200 ? no_ranges : "the server sends another range";
        return 0;
    }
    size_t room = (refusal ? REFUSAL_BYTES : request->limit) - request->bytes;
    size_t kept = ls_min(bytes, room);
    if (kept < bytes && !refusal) {
        request->wrong = "the answer is longer than expected";
        return 0;
    }
    memcpy(request->text + request->bytes, data, kept);
    request->bytes += kept;
    request->text[request->bytes] = '\0';
    ls_progress();
    return bytes;
}

/* value = the header's, if the line is of that name. */
static bool header_is(const char *line, size_t bytes, const char *name, char *value, size_t room)
{
    size_t at = strlen(name);
    if (bytes < at || strncasecmp(line, name, at))
        return false;
    while (at < bytes && line[at] == ' ')
        at++;
    size_t end = bytes;
    while (end > at && (unsigned char)line[end - 1] <= ' ')
        end--;
    snprintf(value, room, "%.*s", (int)(end - at), line + at);
    return true;
}

static size_t take_header(char *data, size_t size, size_t count, void *user)
{
    struct trying *trying = user;
    struct ls_http_request *request = trying->request;
    size_t bytes = size * count;
    unsigned long long first, last, whole;
    char range[128];
    request->ended = data[0] == '\r' || data[0] == '\n';
    if (bytes >= 5 && !memcmp(data, "HTTP/", 5)) { /* behind a redirect another answer begins */
        request->etag[0] = request->modified[0] = '\0';
        request->whole = 0;
        trying->has_range = false;
    }
    header_is(data, bytes, "etag:", request->etag, sizeof request->etag);
    header_is(data, bytes, "last-modified:", request->modified, sizeof request->modified);
    header_is(data, bytes, "x-amz-bucket-region:", trying->server->region,
              sizeof trying->server->region);
    if (!header_is(data, bytes, "content-range:", range, sizeof range))
        return bytes;
    int read = sscanf(range, "bytes %llu-%llu/%llu", &first, &last, &whole);
    trying->has_range = read >= 2;
    trying->first = read >= 2 ? first : 0;
    trying->last = read >= 2 ? last : 0;
    request->whole = read == 3 ? whole : 0;
    return bytes;
}

static int on_progress(void *user, curl_off_t down_all, curl_off_t down, curl_off_t up_all,
                       curl_off_t up)
{
    struct trying *trying = user;
    (void)down_all;
    (void)up_all;
    if (down + up != trying->moved)
        ls_progress();
    trying->moved = down + up;
    return ls_net_ends(&trying->server->options);
}

static bool header_add(struct curl_slist **list, const char *format, const char *value)
{
    char line[4200];
    snprintf(line, sizeof line, format, value);
    struct curl_slist *more = curl_slist_append(*list, line);
    *list = more ? more : *list;
    return more != NULL;
}

static void sha256_text(const void *data, size_t bytes, char text[2 * SHA256_DIGEST_SIZE + 1])
{
    uint8_t digest[SHA256_DIGEST_SIZE];
    struct sha256_ctx context;
    sha256_init(&context);
    if (bytes > 0)
        sha256_update(&context, bytes, data);
    sha256_digest(&context, sizeof digest, digest);
    for (size_t i = 0; i < sizeof digest; i++)
        snprintf(text + 2 * i, 3, "%02x", digest[i]);
}

/* What is signed beside host and date, and what range is asked for. */
static bool headers_make(const struct ls_server *server, const struct ls_http_request *request,
                         struct curl_slist **list)
{
    char digest[2 * SHA256_DIGEST_SIZE + 1], range[64];
    bool good = true;
    if (server->is_signed) {
        sha256_text(request->body, request->body_bytes, digest);
        good = header_add(list, "x-amz-content-sha256: %s", digest);
    }
    if (server->who.token[0])
        good &= header_add(list, "x-amz-security-token: %s", server->who.token);
    if (request->body)
        good &= header_add(list, "Content-Type: %s", "application/octet-stream");
    if (request->range_bytes) {
        snprintf(range, sizeof range, "%llu-%llu", (unsigned long long)request->range_first,
                 (unsigned long long)(request->range_first + request->range_bytes - 1));
        good &= header_add(list, "Range: bytes=%s", range);
    }
    return good;
}

static void identity_set(CURL *curl, const struct ls_server *server)
{
    enum { REDIRECTS_MAX = 5 };
    bool secure = !strncmp(server->url, "https://", 8);
    if (server->authorities[0])
        curl_easy_setopt(curl, CURLOPT_CAINFO, server->authorities);
    if (server->is_signed) {
        curl_easy_setopt(curl, CURLOPT_AWS_SIGV4, server->signer);
        curl_easy_setopt(curl, CURLOPT_USERNAME, server->who.key);
        curl_easy_setopt(curl, CURLOPT_PASSWORD, server->who.secret);
        return;
    }
    curl_easy_setopt(curl, CURLOPT_NETRC, (long)CURL_NETRC_OPTIONAL);
    if (server->netrc[0])
        curl_easy_setopt(curl, CURLOPT_NETRC_FILE, server->netrc);
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(curl, CURLOPT_MAXREDIRS, (long)REDIRECTS_MAX);
    curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, secure ? "https" : "http,https");
}

static void body_set(CURL *curl, const struct ls_http_request *request)
{
    /* The body goes at once: not every server answers "100 Continue". */
    curl_easy_setopt(curl, CURLOPT_EXPECT_100_TIMEOUT_MS, 1L);
    if (request->body) {
        curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->body_bytes);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request->body);
    }
    if (!strcmp(request->method, "HEAD"))
        curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
    else
        curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, request->method);
}

static void answer_clear(struct ls_http_request *request)
{
    request->bytes = 0;
    request->text[0] = request->etag[0] = request->modified[0] = '\0';
    request->code = 0;
    request->whole = 0;
    request->ended = false;
    request->wrong = NULL;
}

static const char *or_none(const char *text)
{
    return text ? text : "";
}

static CURLcode try_once(struct ls_server *server, struct ls_http_request *request,
                         char why[CURL_ERROR_SIZE])
{
    CURL *curl = server->curl;
    struct curl_slist *headers = NULL;
    curl_off_t length = -1;
    struct trying trying = {.server = server, .request = request};
    char url[4096];
    const char *query = or_none(request->query);
    long slow_s = (long)ceil(server->options.slow_s);
    long patient_s = (long)ceil(server->options.patient_s);
    answer_clear(request);
    server->region[0] = '\0';
    if (snprintf(url, sizeof url, "%s/%s%s%s", server->url, or_none(request->key),
                 *query ? "?" : "", query) >= (int)sizeof url)
        return CURLE_URL_MALFORMAT;
    curl_easy_reset(curl);
    if (!headers_make(server, request, &headers)) {
        curl_slist_free_all(headers);
        return CURLE_OUT_OF_MEMORY;
    }
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, why);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, slow_s);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, request->patient ? patient_s : slow_s);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, request->patient ? 1L : 1024L);
    identity_set(curl, server);
    body_set(curl, request);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &trying);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, take_header);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, &trying);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &trying);
    why[0] = '\0';
    CURLcode result = curl_easy_perform(curl);
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &request->code);
    curl_easy_getinfo(curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    request->has_length = length >= 0;
    request->length = length > 0 ? (uint64_t)length : 0;
    curl_slist_free_all(headers);
    if (!result && request->code < 300 && request->bytes < request->range_bytes)
        request->wrong = "the server sends less than the range";
    /* libcurl takes an answer that ends within its headers for one without a body. */
    return result || request->ended ? result : CURLE_RECV_ERROR;
}

/* ---- what an answer means -------------------------------------------------------------------- */

/* The network failed, or may have. */
static bool passes(CURLcode result)
{
    return result != CURLE_OK && result != CURLE_URL_MALFORMAT &&
           result != CURLE_UNSUPPORTED_PROTOCOL && result != CURLE_PEER_FAILED_VERIFICATION &&
           result != CURLE_SSL_CACERT_BADFILE && result != CURLE_TOO_MANY_REDIRECTS &&
           result != CURLE_OUT_OF_MEMORY;
}

/* S3 may answer a long request with 200 and say in the body that it failed. */
static bool says_error(const struct ls_http_request *request)
{
    return request->patient && strstr(request->text, "<Error>") != NULL;
}

static bool succeeded(const struct ls_http_request *request)
{
    return (request->code >= 200 && request->code < 300 && !says_error(request)) ||
           (request->absent_is_fine && request->code == 404);
}

static const char own_authority[] =
    ". The name in the URL must be the certificate's. If its authority is not one that the system "
    "trusts, name a file with the authority's certificate in the environment: CURL_CA_BUNDLE=FILE";

/* What S3 leaves to guess: an answer to a HEAD has no text. */
static void refusal_explain(const struct ls_server *server, const struct ls_http_request *request,
                            struct ls_error *error)
{
    char signer[sizeof server->region + 16];
    snprintf(signer, sizeof signer, "aws:amz:%s:s3", server->region);
    if (server->is_signed && server->region[0] && strcmp(signer, server->signer) != 0)
        ls_error_suffix(error, ". The bucket is in another region: set AWS_REGION=%s",
                        server->region);
    else if (server->is_signed && !strcmp(request->method, "HEAD") &&
             (request->code == 400 || request->code == 403))
        ls_error_suffix(error, "%s",
                        ". S3 gives no reason for a HEAD: see whether the credentials are right, "
                        "have not expired, and may read this object");
}

static int refused(const struct ls_server *server, const struct ls_http_request *request,
                   CURLcode result, const char *why, int tries, struct ls_error *error)
{
    char code[64] = "", message[256] = "", times[48] = "";
    const char *key = or_none(request->key);
    if (tries > 1)
        snprintf(times, sizeof times, ", tried %d times", tries);
    if (result || request->wrong) {
        int status = ls_error_set(error, result == CURLE_OUT_OF_MEMORY ? LS_ENOMEM : LS_EIO,
                                  "%s %s/%s: %s%s", request->method, server->url, key,
                                  request->wrong ? request->wrong
                                  : *why         ? why
                                                 : curl_easy_strerror(result),
                                  times);
        if (!request->wrong && result == CURLE_PEER_FAILED_VERIFICATION)
            ls_error_suffix(error, "%s", own_authority);
        if (!request->wrong && result == CURLE_SSL_CACERT_BADFILE)
            ls_error_suffix(error, ": %s, which the environment names", server->authorities);
        return status;
    }
    ls_xml_element(request->text, "Code", code, sizeof code);
    ls_xml_element(request->text, "Message", message, sizeof message);
    ls_error_set(error, LS_EIO, "%s %s/%s: HTTP %ld%s%s%s%s%s%s", request->method, server->url, key,
                 request->code, *code ? " " : "", code, *message ? " (" : "", message,
                 *message ? ")" : "", times);
    refusal_explain(server, request, error);
    return LS_EIO;
}

/* Credentials of a file expire, and whoever keeps it writes new ones there in time. */
static bool expired(struct ls_server *server, const struct ls_http_request *request)
{
    return (request->code == 400 || request->code == 403) && net_credentials_renew(server);
}

static void pause_for(const struct ls_net_options *options, double seconds)
{
    enum { LOOK_NS = 50000000 };
    double until_s = ls_now_s() + seconds;
    for (double left_s; !ls_net_ends(options) && (left_s = until_s - ls_now_s()) > 0;) {
        nanosleep(&(struct timespec){.tv_nsec = (long)fmin(1e9 * left_s, LOOK_NS)}, NULL);
        ls_progress();
    }
}

int ls_http_send(struct ls_server *server, struct ls_http_request *request, struct ls_error *error)
{
    enum { PAUSE_S_MAX = 30 };
    char why[CURL_ERROR_SIZE];
    double pause_s = server->options.pause_s;
    free(request->text);
    request->text = malloc(ls_max(request->limit, (size_t)REFUSAL_BYTES) + 1);
    if (!request->text)
        return ls_no_memory(error, "for an answer of %s", server->url);
    for (int tries = 1;; tries++) {
        CURLcode result = try_once(server, request, why);
        request->tries = tries;
        if (!result && !request->wrong && succeeded(request))
            return LS_OK;
        if (ls_net_ends(&server->options))
            return ls_error_set(error, LS_ESTOPPED, "%s: given up", server->url);
        bool again = request->wrong ? request->wrong != no_ranges
                     : result       ? passes(result)
                                    : request->code >= 500 || request->code == 429 ||
                                    request->code == 408 || says_error(request) ||
                                    strstr(request->text, "<Code>RequestTimeout</Code>") ||
                                    expired(server, request);
        if (!again || tries >= server->options.tries)
            return refused(server, request, result, why, tries, error);
        pause_for(&server->options, fmin(pause_s, PAUSE_S_MAX));
        pause_s *= 2;
    }
}

void ls_http_request_release(struct ls_http_request *request)
{
    free(request->text);
    request->text = NULL;
}

/* ---- texts ----------------------------------------------------------------------------------- */

bool ls_url_escape(const char *text, char *out, size_t bytes)
{
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    size_t used = 0;
    for (; *text && used + 4 <= bytes; text++)
        used += (size_t)snprintf(out + used, bytes - used, strchr(plain, *text) ? "%c" : "%%%02X",
                                 (unsigned char)*text);
    if (bytes > 0)
        out[used < bytes ? used : bytes - 1] = '\0';
    return !*text;
}

/* The character of "&amp;" and its like at text; *length of it. */
static char entity(const char *text, size_t *length)
{
    static const struct {
        const char *name;
        char is;
    } entities[] = {{"&amp;", '&'},   {"&lt;", '<'},  {"&gt;", '>'},  {"&quot;", '"'},
                    {"&apos;", '\''}, {"&#34;", '"'}, {"&#39;", '\''}};
    for (size_t i = 0; i < sizeof entities / sizeof *entities; i++) {
        *length = strlen(entities[i].name);
        if (!strncmp(text, entities[i].name, *length))
            return entities[i].is;
    }
    *length = 1;
    return *text;
}

const char *ls_xml_element(const char *xml, const char *name, char *value, size_t bytes)
{
    char begin[64], end[64];
    size_t used = 0;
    snprintf(begin, sizeof begin, "<%s>", name);
    snprintf(end, sizeof end, "</%s>", name);
    value[0] = '\0';
    const char *at = strstr(xml, begin);
    const char *stop = at ? strstr(at, end) : NULL;
    if (!stop)
        return NULL;
    for (at += strlen(begin); at < stop;) {
        size_t length;
        char next = entity(at, &length);
        if (used + 1 >= bytes)
            return NULL;
        value[used++] = next;
        at += length;
    }
    value[used] = '\0';
    return stop + strlen(end);
}
