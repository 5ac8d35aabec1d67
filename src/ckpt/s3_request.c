/* Requests to S3 by libcurl, which signs them: retries, limits of time, and what errors say. */
#include "ckpt/s3_request.h"

#include "ckpt/place_kind.h"

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

struct trying {
    const struct s3 *s3;
    struct s3_request *request;
    curl_off_t moved;
};

static size_t take_body(char *data, size_t size, size_t count, void *user)
{
    const struct trying *trying = user;
    struct s3_request *request = trying->request;
    size_t bytes = size * count;
    curl_easy_getinfo(trying->s3->curl, CURLINFO_RESPONSE_CODE, &request->code);
    bool refusal = request->code >= 300;
    size_t room = (refusal ? REFUSAL_BYTES : request->limit) - request->bytes;
    size_t kept = ls_min(bytes, room);
    if (kept < bytes && !refusal)
        return 0;
    memcpy(request->text + request->bytes, data, kept);
    request->bytes += kept;
    request->text[request->bytes] = '\0';
    ls_progress();
    return bytes;
}

static size_t take_header(char *data, size_t size, size_t count, void *user)
{
    static const char name[] = "etag:";
    struct s3_request *request = ((const struct trying *)user)->request;
    size_t bytes = size * count, at = sizeof name - 1;
    request->ended = data[0] == '\r' || data[0] == '\n';
    if (bytes < at || strncasecmp(data, name, at))
        return bytes;
    while (at < bytes && data[at] == ' ')
        at++;
    size_t end = bytes;
    while (end > at && (unsigned char)data[end - 1] <= ' ')
        end--;
    snprintf(request->etag, sizeof request->etag, "%.*s", (int)(end - at), data + at);
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
    return place_ends(trying->s3->options);
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

/* What is signed beside host and date. */
static bool headers_make(const struct s3 *s3, const struct s3_request *request,
                         struct curl_slist **list)
{
    char digest[2 * SHA256_DIGEST_SIZE + 1], range[64];
    sha256_text(request->body, request->body_bytes, digest);
    bool good = header_add(list, "x-amz-content-sha256: %s", digest);
    if (s3->token[0])
        good &= header_add(list, "x-amz-security-token: %s", s3->token);
    if (request->body)
        good &= header_add(list, "Content-Type: %s", "application/octet-stream");
    if (request->range_bytes) {
        snprintf(range, sizeof range, "%llu-%llu", (unsigned long long)request->range_first,
                 (unsigned long long)(request->range_first + request->range_bytes - 1));
        good &= header_add(list, "Range: bytes=%s", range);
    }
    return good;
}

static CURLcode try_once(struct s3 *s3, struct s3_request *request, char why[CURL_ERROR_SIZE])
{
    CURL *curl = s3->curl;
    struct curl_slist *headers = NULL;
    curl_off_t length = -1;
    struct trying trying = {.s3 = s3, .request = request};
    char url[4096];
    long slow_s = (long)ceil(s3->options->slow_s);
    long patient_s = (long)ceil(s3->options->patient_s);
    if (snprintf(url, sizeof url, "%s/%s%s%s", s3->url, request->key, *request->query ? "?" : "",
                 request->query) >= (int)sizeof url)
        return CURLE_URL_MALFORMAT;
    request->bytes = 0;
    request->text[0] = request->etag[0] = '\0';
    request->code = 0;
    request->ended = false;
    curl_easy_reset(curl);
    if (!headers_make(s3, request, &headers)) {
        curl_slist_free_all(headers);
        return CURLE_OUT_OF_MEMORY;
    }
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, why);
    curl_easy_setopt(curl, CURLOPT_AWS_SIGV4, s3->signer);
    curl_easy_setopt(curl, CURLOPT_USERNAME, s3->key);
    curl_easy_setopt(curl, CURLOPT_PASSWORD, s3->secret);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, slow_s);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, request->patient ? patient_s : slow_s);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, request->patient ? 1L : 1024L);
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
    request->length = length > 0 ? (uint64_t)length : 0;
    curl_slist_free_all(headers);
    /* libcurl takes an answer that ends within its headers for one without a body. */
    return result || request->ended ? result : CURLE_RECV_ERROR;
}

/* ---- what an answer means -------------------------------------------------------------------- */

/* The network failed, or may have. */
static bool passes(CURLcode result)
{
    return result != CURLE_OK && result != CURLE_URL_MALFORMAT &&
           result != CURLE_UNSUPPORTED_PROTOCOL && result != CURLE_PEER_FAILED_VERIFICATION &&
           result != CURLE_WRITE_ERROR && result != CURLE_OUT_OF_MEMORY;
}

/* S3 may answer a long request with 200 and say in the body that it failed. */
static bool says_error(const struct s3_request *request)
{
    return request->patient && strstr(request->text, "<Error>") != NULL;
}

static bool succeeded(const struct s3_request *request)
{
    return (request->code >= 200 && request->code < 300 && !says_error(request)) ||
           (request->absent_is_fine && request->code == 404);
}

static int refused(const struct s3 *s3, const struct s3_request *request, CURLcode result,
                   const char *why, int tries, struct ls_error *error)
{
    char code[64] = "", message[256] = "", times[48] = "";
    const char *key = *request->key ? request->key : "";
    if (tries > 1)
        snprintf(times, sizeof times, ", tried %d times", tries);
    if (result)
        return ls_error_set(error, result == CURLE_OUT_OF_MEMORY ? LS_ENOMEM : LS_EIO,
                            "%s %s/%s: %s%s", request->method, s3->url, key,
                            result == CURLE_WRITE_ERROR ? "the answer is longer than expected"
                            : *why                      ? why
                                                        : curl_easy_strerror(result),
                            times);
    s3_element(request->text, "Code", code, sizeof code);
    s3_element(request->text, "Message", message, sizeof message);
    return ls_error_set(error, LS_EIO, "%s %s/%s: HTTP %ld%s%s%s%s%s%s", request->method, s3->url,
                        key, request->code, *code ? " " : "", code, *message ? " (" : "", message,
                        *message ? ")" : "", times);
}

static void pause_for(const struct ls_place_options *options, double seconds)
{
    enum { LOOK_NS = 50000000 };
    double until_s = ls_now_s() + seconds;
    for (double left_s; !place_ends(options) && (left_s = until_s - ls_now_s()) > 0;) {
        nanosleep(&(struct timespec){.tv_nsec = (long)ls_min(1e9 * left_s, LOOK_NS)}, NULL);
        ls_progress();
    }
}

int s3_request(struct s3 *s3, struct s3_request *request, struct ls_error *error)
{
    enum { PAUSE_S_MAX = 30 };
    char why[CURL_ERROR_SIZE];
    double pause_s = s3->options->pause_s;
    free(request->text);
    request->text = malloc(ls_max(request->limit, (size_t)REFUSAL_BYTES) + 1);
    if (!request->text)
        return ls_error_set(error, LS_ENOMEM, "no memory for an answer of %s", s3->url);
    for (int tries = 1;; tries++) {
        CURLcode result = try_once(s3, request, why);
        request->tries = tries;
        if (!result && succeeded(request))
            return LS_OK;
        if (place_ends(s3->options))
            return ls_error_set(error, LS_ESTOPPED, "%s: given up", s3->url);
        bool again = result ? passes(result)
                            : request->code >= 500 || request->code == 429 ||
                                  request->code == 408 || says_error(request) ||
                                  strstr(request->text, "<Code>RequestTimeout</Code>");
        if (!again || tries >= s3->options->tries)
            return refused(s3, request, result, why, tries, error);
        pause_for(s3->options, ls_min(pause_s, PAUSE_S_MAX));
        pause_s *= 2;
    }
}

void s3_request_release(struct s3_request *request)
{
    free(request->text);
    request->text = NULL;
}

/* ---- XML ------------------------------------------------------------------------------------- */

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

const char *s3_element(const char *xml, const char *name, char *value, size_t bytes)
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
