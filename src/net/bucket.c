/* The objects of a bucket: ListObjectsV2, page by page. */
#include "net/net_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE_BYTES = 8 << 20, PAGES_MAX = 100000, TOKEN_BYTES = 2048, SIZE_DIGITS_MAX = 18 };

static const char begin[] = "<ListBucketResult", end[] = "</ListBucketResult>";

/* ---- a page ---------------------------------------------------------------------------------- */

static int digit_of(char digit)
{
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    const char *at = digit ? strchr(digits, digit) : NULL;
    return at ? (int)(at - digits) % 16 : -1;
}

/* In place: "%XX" is a byte, "+" a blank. False for what is no escape, and for a byte 0. */
static bool unescape(char *text)
{
    char *out = text;
    for (; *text; text++) {
        char byte = *text == '+' ? ' ' : *text;
        if (*text == '%') {
            int high = digit_of(text[1]), low = high < 0 ? -1 : digit_of(text[2]);
            if (low < 0 || high + low == 0)
                return false;
            byte = (char)(16 * high + low);
            text += 2;
        }
        *out++ = byte;
    }
    *out = '\0';
    return true;
}

static bool bytes_read(const char *text, uint64_t *bytes)
{
    size_t digits = strspn(text, "0123456789");
    *bytes = strtoull(text, NULL, 10);
    return digits > 0 && digits <= SIZE_DIGITS_MAX && !text[digits];
}

/* The object in text, which is that of one <Contents>. NULL, or what is wrong with it. */
static const char *object_read(const char *text, const char *prefix, bool escaped,
                               struct net_object *object)
{
    char size[32];
    if (!ls_xml_element(text, "Key", object->key, sizeof object->key))
        return "an object without a <Key> of at most 3071 bytes";
    if (!ls_xml_element(text, "Size", size, sizeof size) || !bytes_read(size, &object->bytes))
        return "an object without a <Size> in bytes";
    if (escaped && !unescape(object->key))
        return "a <Key> with a % that begins no escape";
    return strncmp(object->key, prefix, strlen(prefix)) ? "a <Key> that was not asked for" : NULL;
}

static bool is_true(const char *page, const char *name)
{
    char value[8];
    return ls_xml_element(page, name, value, sizeof value) && !strcmp(value, "true");
}

const char *net_page_open(struct net_page *page, char *text, size_t bytes, const char *prefix)
{
    char encoding[8];
    *page = (struct net_page){.prefix = prefix};
    char *first = strlen(text) == bytes ? strstr(text, begin) : NULL;
    char *last = first ? strstr(first, end) : NULL;
    if (!last)
        return "no whole <ListBucketResult>";
    *last = '\0';
    page->at = first;
    page->escaped = ls_xml_element(first, "EncodingType", encoding, sizeof encoding) &&
                    !strcmp(encoding, "url");
    const char *token = strstr(first, "<NextContinuationToken>");
    if (token && (!ls_xml_element(token, "NextContinuationToken", page->next, sizeof page->next) ||
                  !*page->next))
        return "an unusable <NextContinuationToken>";
    if (is_true(first, "IsTruncated") && !*page->next)
        return "<IsTruncated>true without a <NextContinuationToken>";
    return NULL;
}

const char *net_page_next(struct net_page *page, struct net_object *object, bool *there)
{
    static const char open[] = "<Contents>", close[] = "</Contents>";
    char *from = strstr(page->at, open), *to = from ? strstr(from, close) : NULL;
    *there = from != NULL;
    if (!from)
        return NULL;
    if (!to)
        return "a <Contents> without an end";
    *to = '\0';
    page->at = to + sizeof close - 1;
    return object_read(from + sizeof open - 1, page->prefix, page->escaped, object);
}

/* ---- all pages ------------------------------------------------------------------------------- */

struct listing {
    const char *prefix;
    bool flat;
    ls_object_visitor *visit;
    void *user;
    int64_t pages;
    char token[TOKEN_BYTES]; /* of the page that is asked for, "" for the first */
    char seen[TOKEN_BYTES];  /* of the page whose number was a power of two last */
};

static bool query_make(const struct listing *l, char *query, size_t bytes)
{
    char prefix[3 * LS_OBJECT_KEY_BYTES], token[3 * TOKEN_BYTES];
    return ls_url_escape(l->prefix, prefix, sizeof prefix) &&
           ls_url_escape(l->token, token, sizeof token) &&
           snprintf(query, bytes, "%s%s%s%sencoding-type=url&list-type=2&prefix=%s",
                    *token ? "continuation-token=" : "", token, *token ? "&" : "",
                    l->flat ? "delimiter=%2F&" : "", prefix) < (int)bytes;
}

/* Pages whose tokens run in a circle would never end: sooner or later one is that of the page which
 * was remembered (Brent). */
static const char *turn(struct listing *l, const struct net_page *page)
{
    if (*page->next && (!strcmp(page->next, l->seen) || l->pages >= PAGES_MAX))
        return "pages without an end";
    memcpy(l->token, page->next, sizeof l->token);
    l->pages++;
    if ((l->pages & (l->pages - 1)) == 0)
        memcpy(l->seen, l->token, sizeof l->seen);
    return NULL;
}

static int page_take(struct listing *l, const struct ls_server *server,
                     const struct ls_http_request *request, struct ls_error *error)
{
    struct net_page page;
    struct net_object object;
    int status = LS_OK;
    const char *wrong = net_page_open(&page, request->text, request->bytes, l->prefix);
    for (bool there = true; !wrong && !status;) {
        wrong = net_page_next(&page, &object, &there);
        if (wrong || !there)
            break;
        status = l->visit(l->user, object.key, object.bytes, error);
    }
    wrong = wrong || status ? wrong : turn(l, &page);
    return wrong ? ls_error_set(error, LS_EIO,
                                "%s: the server's list of objects is damaged, or none of S3: page "
                                "%lld has %s",
                                ls_server_url(server), (long long)l->pages + 1, wrong)
                 : status;
}

int ls_bucket_list(struct ls_server *server, const char *prefix, bool flat,
                   ls_object_visitor *visit, void *user, struct ls_error *error)
{
    char query[3 * (LS_OBJECT_KEY_BYTES + TOKEN_BYTES) + 128];
    struct listing l = {.prefix = prefix, .flat = flat, .visit = visit, .user = user};
    struct ls_http_request request = {
        .method = "GET", .key = "", .query = query, .limit = PAGE_BYTES};
    int status = LS_OK;
    do {
        if (!query_make(&l, query, sizeof query))
            status = ls_error_set(error, LS_ECONFIG, "%s: a prefix of %zu bytes: too long to list",
                                  ls_server_url(server), strlen(prefix));
        if (!status)
            status = ls_http_send(server, &request, error);
        if (status && request.code == 403)
            ls_error_suffix(error, ". A list of objects needs the permission s3:ListBucket");
        if (!status)
            status = page_take(&l, server, &request, error);
    } while (!status && *l.token);
    ls_http_request_release(&request);
    return status;
}
