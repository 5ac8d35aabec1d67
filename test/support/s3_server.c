/* A small S3 for tests: what a copy of checkpoints asks for, and the ways in which it fails. */
#include "s3_server.h"
#include "testing.h"

#include <lockstep/base/helper_thread.h>

#include <arpa/inet.h>
#include <ctype.h>
#include <netinet/in.h>
#include <nettle/hmac.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define KEY    "AKIDEXAMPLE"
#define SECRET "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
enum {
    OBJECTS_MAX = 256,
    UPLOADS_MAX = 64,
    PARTS_MAX = 64,
    PAGE = 2,
    HEADER_BYTES = 1 << 16,
    STALLED_MAX = 64
};

struct bytes {
    char *data;
    size_t count;
};
struct object {
    char key[512], etag[80];
    struct bytes bytes;
    int ranges; /* given out */
};
struct upload {
    bool open;
    char key[512];
    struct bytes parts[PARTS_MAX];
};
struct s3_server {
    int socket, stop[2];
    pthread_t thread;
    pthread_mutex_t lock;
    struct object objects[OBJECTS_MAX]; /* by key */
    int object_count;
    struct upload uploads[UPLOADS_MAX];
    enum s3_failure how;
    int n, requests, faults, torn, beside, port;
    size_t range_bytes;
    char password[128]; /* of the web, in base64 */
    bool all;
    int stalled[STALLED_MAX], stalled_count; /* clients that get no answer */
    const char *const *lists;                /* in the place of its own */
    int lists_count, listed;
};
struct request {
    char method[8], path[1024], query[4096], headers[HEADER_BYTES];
    struct bytes body;
};
struct answer {
    int code;
    char etag[80], range[128], location[256];
    struct bytes body;
    size_t length; /* of a HEAD */
};

/* ---- what is signed -------------------------------------------------------------------------- */

static void hmac(const void *key, size_t key_bytes, const char *text, uint8_t out[32])
{
    struct hmac_sha256_ctx context;
    hmac_sha256_set_key(&context, key_bytes, key);
    hmac_sha256_update(&context, strlen(text), (const uint8_t *)text);
    hmac_sha256_digest(&context, SHA256_DIGEST_SIZE, out);
}

static void sha256_text(const void *data, size_t bytes, char text[65])
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

/* The value of a header, "" for none. */
static void header(const struct request *request, const char *name, char value[2048])
{
    size_t length = strlen(name);
    value[0] = '\0';
    for (const char *line = strstr(request->headers, "\r\n"); line; line = strstr(line + 2, "\r\n"))
        if (!strncasecmp(line + 2, name, length) && line[2 + length] == ':') {
            const char *from = line + 3 + length;
            from += strspn(from, " ");
            snprintf(value, 2048, "%.*s", (int)strcspn(from, "\r\n"), from);
        }
}

static bool sorted(const char *query)
{
    char before[256] = "", name[256];
    for (const char *at = query; *at;) {
        size_t length = strcspn(at, "&");
        snprintf(name, sizeof name, "%.*s", (int)strcspn(at, "=&"), at);
        if (strcmp(before, name) > 0 || !memchr(at, '=', length))
            return false;
        strcpy(before, name);
        at += length + (at[length] == '&');
    }
    return true;
}

/* As "Signature Version 4" has it. */
static bool is_signed(const struct request *request)
{
    static const char *const must[] = {"host", "x-amz-content-sha256", "x-amz-date"};
    char given[2048], names[512], scope[128], signature[80], value[2048], date[2048], hex[65];
    static char canonical[1 << 16];
    char text[4096];
    uint8_t key[32];
    header(request, "Authorization", given);
    if (sscanf(given,
               "AWS4-HMAC-SHA256 Credential=" KEY "/%127[^,], SignedHeaders=%511[^,], "
               "Signature=%79s",
               scope, names, signature) != 3)
        return false;
    size_t used = (size_t)snprintf(canonical, sizeof canonical, "%s\n%s\n%s\n", request->method,
                                   request->path, request->query);
    char copy[512], *rest = NULL, date_of[16], region[64];
    snprintf(copy, sizeof copy, "%s", names);
    for (char *name = strtok_r(copy, ";", &rest); name; name = strtok_r(NULL, ";", &rest)) {
        header(request, name, value);
        used += (size_t)snprintf(canonical + used, sizeof canonical - used, "%s:%s\n", name, value);
    }
    for (size_t i = 0; i < sizeof must / sizeof *must; i++)
        if (!strstr(names, must[i]))
            return false;
    header(request, "x-amz-content-sha256", value);
    sha256_text(request->body.data, request->body.count, hex);
    snprintf(canonical + used, sizeof canonical - used, "\n%s\n%s", names, value);
    if (strcmp(hex, value) || !sorted(request->query))
        return false;
    header(request, "x-amz-date", date);
    sha256_text(canonical, strlen(canonical), hex);
    snprintf(text, sizeof text, "AWS4-HMAC-SHA256\n%s\n%s\n%s", date, scope, hex);
    if (sscanf(scope, "%15[^/]/%63[^/]/s3/aws4_request", date_of, region) != 2 ||
        strncmp(date, date_of, 8))
        return false;
    hmac("AWS4" SECRET, strlen("AWS4" SECRET), date_of, key);
    hmac(key, 32, region, key);
    hmac(key, 32, "s3", key);
    hmac(key, 32, "aws4_request", key);
    hmac(key, 32, text, key);
    for (int i = 0; i < 32; i++)
        snprintf(hex + 2 * i, 3, "%02x", key[i]);
    return !strcmp(hex, signature);
}

/* ---- objects --------------------------------------------------------------------------------- */

static int object_find(const struct s3_server *server, const char *key)
{
    for (int i = 0; i < server->object_count; i++)
        if (!strcmp(server->objects[i].key, key))
            return i;
    return -1;
}

static void object_remove(struct s3_server *server, int i)
{
    if (i < 0)
        return;
    free(server->objects[i].bytes.data);
    memmove(&server->objects[i], &server->objects[i + 1],
            (size_t)(--server->object_count - i) * sizeof *server->objects);
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const struct object *)a)->key, ((const struct object *)b)->key);
}

/* Takes the bytes. */
static void object_set(struct s3_server *server, const char *key, struct bytes bytes)
{
    object_remove(server, object_find(server, key));
    if (server->object_count == OBJECTS_MAX)
        abort();
    struct object *object = &server->objects[server->object_count++];
    char digest[65];
    sha256_text(bytes.data, bytes.count, digest);
    *object = (struct object){.bytes = bytes};
    snprintf(object->key, sizeof object->key, "%s", key);
    snprintf(object->etag, sizeof object->etag, "\"%.32s\"", digest);
    qsort(server->objects, (size_t)server->object_count, sizeof *object, by_key);
}

static struct bytes bytes_copy(const void *data, size_t count)
{
    struct bytes bytes = {malloc(count + 1), count};
    if (!bytes.data)
        abort();
    if (count > 0)
        memcpy(bytes.data, data, count);
    bytes.data[count] = '\0';
    return bytes;
}

static void text_answer(struct answer *answer, int code, const char *text)
{
    answer->code = code;
    free(answer->body.data);
    answer->body = bytes_copy(text, strlen(text));
}

/* At more length than whoever asked may have room for. */
static void refuse(struct answer *answer, int http, const char *code)
{
    enum { LENGTH = 100000 };
    char text[LENGTH + 256];
    snprintf(text, sizeof text,
             "<Error><Code>%s</Code><Message>for a test</Message><HostId>%0*d</HostId></Error>",
             code, LENGTH, 0);
    text_answer(answer, http, text);
}

static void elsewhere(struct answer *answer)
{
    refuse(answer, 301, "PermanentRedirect");
    snprintf(answer->location, sizeof answer->location, "x-amz-bucket-region: eu-west-9\r\n");
}

/* The parameter of that name, its escapes resolved; false if there is none. */
static bool parameter(const struct request *request, const char *name, char value[1024])
{
    char pair[1100];
    value[0] = '\0';
    for (const char *at = request->query; *at;) {
        size_t length = strcspn(at, "&"), stem = strlen(name), used = 0;
        snprintf(pair, sizeof pair, "%.*s", (int)length, at);
        at += length + (at[length] == '&');
        if (strncmp(pair, name, stem) || pair[stem] != '=')
            continue;
        for (const char *c = pair + stem + 1; *c; c++) {
            unsigned escaped;
            bool escape = *c == '%' && sscanf(c + 1, "%2x", &escaped) == 1;
            value[used++] = (char)(escape ? escaped : (unsigned char)*c);
            c += escape ? 2 : 0;
        }
        value[used] = '\0';
        return true;
    }
    return false;
}

/* ---- requests -------------------------------------------------------------------------------- */

/* As S3 escapes keys where it was asked to. */
static void key_escape(const char *key, bool escaped, char out[2048])
{
    size_t used = 0;
    for (; *key; key++)
        if (!escaped || isalnum((unsigned char)*key) || strchr("/-._*", *key))
            out[used++] = *key;
        else
            used +=
                (size_t)snprintf(out + used, 4, *key == ' ' ? "+" : "%%%02X", (unsigned char)*key);
    out[used] = '\0';
}

/* Whether the key is of what was asked for. */
static bool is_listed(const char *key, const char *prefix, const char *delimiter)
{
    size_t length = strlen(prefix);
    return !strncmp(key, prefix, length) && (!*delimiter || !strstr(key + length, delimiter));
}

static void list_objects(struct s3_server *server, const struct request *request,
                         struct answer *answer)
{
    char prefix[1024], token[1024], delimiter[1024], encoding[1024], key[2048], text[1 << 13];
    if (server->lists) {
        text_answer(answer, 200, server->lists[server->listed++ % server->lists_count]);
        return;
    }
    parameter(request, "prefix", prefix);
    parameter(request, "delimiter", delimiter);
    bool escaped = parameter(request, "encoding-type", encoding) && !strcmp(encoding, "url");
    int first = parameter(request, "continuation-token", token) ? atoi(token + 2) : 0, count = 0;
    int next = -1;
    size_t used = (size_t)snprintf(text, sizeof text, "<ListBucketResult xmlns=\"x\">%s",
                                   escaped ? "<EncodingType>url</EncodingType>" : "");
    for (int i = first; i < server->object_count && next < 0; i++) {
        const struct object *object = &server->objects[i];
        if (!is_listed(object->key, prefix, delimiter))
            continue;
        if (count++ == PAGE) {
            next = i;
            break;
        }
        key_escape(object->key, escaped, key);
        used += (size_t)snprintf(text + used, sizeof text - used,
                                 "<Contents><Key>%s</Key><Size>%zu</Size></Contents>", key,
                                 object->bytes.count);
    }
    if (next >= 0)
        used += (size_t)snprintf(text + used, sizeof text - used,
                                 "<NextContinuationToken>&amp;/%d</NextContinuationToken>", next);
    snprintf(text + used, sizeof text - used, "<IsTruncated>%s</IsTruncated></ListBucketResult>",
             next >= 0 ? "true" : "false");
    text_answer(answer, 200, text);
}

static void list_uploads(const struct s3_server *server, const struct request *request,
                         struct answer *answer)
{
    char prefix[1024], text[1 << 14];
    parameter(request, "prefix", prefix);
    size_t used = (size_t)snprintf(text, sizeof text, "<ListMultipartUploadsResult>");
    for (int i = 0; i < UPLOADS_MAX; i++)
        if (server->uploads[i].open && !strncmp(server->uploads[i].key, prefix, strlen(prefix)))
            used += (size_t)snprintf(text + used, sizeof text - used,
                                     "<Upload><Key>%s</Key><UploadId>id+%d</UploadId></Upload>",
                                     server->uploads[i].key, i);
    snprintf(text + used, sizeof text - used, "</ListMultipartUploadsResult>");
    text_answer(answer, 200, text);
}

static void upload_close(struct upload *upload)
{
    for (int i = 0; i < PARTS_MAX; i++)
        free(upload->parts[i].data);
    memset(upload, 0, sizeof *upload);
}

static void upload_begin(struct s3_server *server, const char *key, struct answer *answer)
{
    char text[128];
    int i = 0;
    while (i < UPLOADS_MAX && server->uploads[i].open)
        i++;
    if (i == UPLOADS_MAX)
        abort();
    server->uploads[i].open = true;
    snprintf(server->uploads[i].key, sizeof server->uploads[i].key, "%s", key);
    snprintf(text, sizeof text, "<R><UploadId>id+%d</UploadId></R>", i);
    text_answer(answer, 200, text);
}

static void upload_complete(struct s3_server *server, struct upload *upload,
                            const struct request *request, struct answer *answer)
{
    struct bytes all = bytes_copy("", 0);
    char part[256], digest[65];
    int i = 0;
    for (; i < PARTS_MAX && upload->parts[i].data; i++) {
        sha256_text(upload->parts[i].data, upload->parts[i].count, digest);
        snprintf(part, sizeof part, "<PartNumber>%d</PartNumber><ETag>\"%s\"</ETag>", i + 1,
                 digest);
        if (!strstr(request->body.data, part)) {
            refuse(answer, 400, "InvalidPart");
            free(all.data);
            return;
        }
        all.data = realloc(all.data, all.count + upload->parts[i].count + 1);
        memcpy(all.data + all.count, upload->parts[i].data, upload->parts[i].count);
        all.count += upload->parts[i].count;
    }
    object_set(server, upload->key, all);
    upload_close(upload);
    text_answer(answer, 200, "<CompleteMultipartUploadResult/>");
}

static void object_get(struct s3_server *server, const struct request *request, const char *key,
                       enum s3_failure how, struct answer *answer)
{
    char range[2048];
    unsigned long first = 0, last = 0;
    int i = object_find(server, key);
    if (i < 0) {
        refuse(answer, 404, "NoSuchKey");
        return;
    }
    struct object *object = &server->objects[i];
    const struct bytes *bytes = &object->bytes;
    header(request, "Range", range);
    bool part = sscanf(range, "bytes=%lu-%lu", &first, &last) == 2 && how != S3_WHOLE;
    answer->length = bytes->count;
    strcpy(answer->etag, object->etag);
    if (part && (first >= bytes->count || last < first)) {
        refuse(answer, 416, "InvalidRange");
        return;
    }
    last = part && last < bytes->count ? last : bytes->count - 1;
    if (part && how == S3_SHIFT) {
        first += first + 1 < bytes->count;
        last += last + 1 < bytes->count;
    }
    size_t count = part ? last - first + 1 : bytes->count;
    object->ranges += part;
    server->range_bytes += part ? count : 0;
    answer->code = part ? 206 : 200;
    if (part)
        snprintf(answer->range, sizeof answer->range, "Content-Range: bytes %lu-%lu/%zu\r\n", first,
                 last, bytes->count);
    free(answer->body.data);
    answer->body =
        bytes_copy(bytes->data + (part ? first : 0), part && how == S3_SHORT ? count / 2 : count);
    if (how == S3_LIE && count > 0)
        answer->body.data[count / 2] ^= 1;
}

/* Elsewhere, or where it was asked for. */
static void move(struct s3_server *server, const struct request *request, enum s3_failure how,
                 struct answer *answer)
{
    text_answer(answer, 307, "");
    snprintf(answer->location, sizeof answer->location, "Location: http://127.0.0.1:%d%s%.150s\r\n",
             server->port, how == S3_ROUND ? "" : "/web/moved", request->path);
}

/* What is below /web/, without a signature. */
static void web_get(struct s3_server *server, const struct request *request, const char *key,
                    enum s3_failure how, struct answer *answer)
{
    static const char moved[] = "moved/web/";
    char given[2048], expected[160];
    header(request, "Authorization", given);
    snprintf(expected, sizeof expected, "Basic %s", server->password);
    if (server->password[0] && strcmp(given, expected))
        text_answer(answer, 401, "");
    else if (!server->password[0] && given[0])
        server->faults++; /* a password that nobody asked for */
    else if (how == S3_MOVED || how == S3_ROUND)
        move(server, request, how, answer);
    else
        object_get(server, request,
                   strncmp(key, moved, sizeof moved - 1) ? key : key + sizeof moved - 1, how,
                   answer);
}

static void on_upload(struct s3_server *server, const struct request *request, const char *id,
                      struct answer *answer)
{
    char number[1024];
    int i = strncmp(id, "id+", 3) ? -1 : atoi(id + 3);
    struct upload *upload = i >= 0 && i < UPLOADS_MAX ? &server->uploads[i] : NULL;
    if (!upload || !upload->open) {
        refuse(answer, 404, "NoSuchUpload");
    } else if (!strcmp(request->method, "DELETE")) {
        upload_close(upload);
        text_answer(answer, 204, "");
    } else if (!strcmp(request->method, "POST")) {
        upload_complete(server, upload, request, answer);
    } else {
        parameter(request, "partNumber", number);
        struct bytes *part = &upload->parts[atoi(number) - 1];
        char digest[65];
        free(part->data);
        *part = bytes_copy(request->body.data, request->body.count);
        sha256_text(part->data, part->count, digest);
        snprintf(answer->etag, sizeof answer->etag, "\"%s\"", digest);
        text_answer(answer, 200, "");
    }
}

static void carry_out(struct s3_server *server, const struct request *request, enum s3_failure how,
                      struct answer *answer)
{
    static const char bucket[] = "/bucket/";
    char id[1024], ignored[1024];
    const char *key = request->path + sizeof bucket - 1, *method = request->method;
    if (strncmp(request->path, bucket, sizeof bucket - 1)) {
        refuse(answer, 404, "NoSuchBucket");
    } else if (parameter(request, "list-type", ignored)) {
        list_objects(server, request, answer);
    } else if (parameter(request, "uploads", ignored) && !*key) {
        list_uploads(server, request, answer);
    } else if (parameter(request, "uploads", ignored)) {
        upload_begin(server, key, answer);
    } else if (parameter(request, "uploadId", id)) {
        on_upload(server, request, id, answer);
    } else if (!strcmp(method, "GET") || !strcmp(method, "HEAD")) {
        object_get(server, request, key, how, answer);
    } else if (!strcmp(method, "PUT")) {
        object_set(server, key, bytes_copy(request->body.data, request->body.count));
        text_answer(answer, 200, "");
    } else if (!strcmp(method, "DELETE")) {
        object_remove(server, object_find(server, key));
        text_answer(answer, 204, "");
    } else {
        server->faults++;
        refuse(answer, 400, "Unknown");
    }
}

/* A manifest without all that belongs to it. */
static void look_for_torn(struct s3_server *server)
{
    static const char name[] = "manifest.json";
    for (int i = 0; i < server->object_count; i++) {
        const char *key = server->objects[i].key, *slash = strrchr(key, '/');
        int beside = 0;
        if (!slash || strcmp(slash + 1, name))
            continue;
        for (int j = 0; j < server->object_count; j++)
            beside += !strncmp(server->objects[j].key, key, (size_t)(slash + 1 - key));
        server->torn += beside - 1 < server->beside;
    }
}

/* ---- the connection -------------------------------------------------------------------------- */

/* False where the client hung up, or does not speak HTTP. */
static bool receive_header(int client, struct request *request, size_t *behind)
{
    char *end = NULL, target[5200];
    size_t used = 0;
    while (!end) {
        ssize_t got = used + 1 < HEADER_BYTES
                          ? recv(client, request->headers + used, HEADER_BYTES - 1 - used, 0)
                          : 0;
        if (got <= 0)
            return false;
        used += (size_t)got;
        request->headers[used] = '\0';
        end = strstr(request->headers, "\r\n\r\n");
    }
    char length[2048];
    header(request, "Content-Length", length);
    request->body =
        (struct bytes){calloc(strtoul(length, NULL, 10) + 1, 1), strtoul(length, NULL, 10)};
    *behind = used - (size_t)(end + 4 - request->headers);
    if (*behind > request->body.count)
        return false;
    memcpy(request->body.data, end + 4, *behind);
    end[2] = '\0';
    if (sscanf(request->headers, "%7s %5199s", request->method, target) != 2)
        return false;
    size_t path = strcspn(target, "?");
    snprintf(request->path, sizeof request->path, "%.*s", (int)path, target);
    snprintf(request->query, sizeof request->query, "%s", target[path] ? target + path + 1 : "");
    return true;
}

static bool receive_body(int client, struct request *request, size_t there)
{
    while (there < request->body.count) {
        ssize_t got = recv(client, request->body.data + there, request->body.count - there, 0);
        if (got <= 0)
            return false;
        there += (size_t)got;
    }
    return true;
}

static void answer_send(int client, const struct request *request, const struct answer *answer,
                        enum s3_failure how)
{
    char head[512], length[64];
    bool only_head = !strcmp(request->method, "HEAD"), cut = how == S3_CUT;
    bool named = *answer->etag && how != S3_PLAIN;
    snprintf(length, sizeof length, "Content-Length: %zu\r\n",
             only_head ? answer->length : answer->body.count);
    int bytes =
        snprintf(head, sizeof head, "HTTP/1.1 %d Of Test\r\n%sConnection: close\r\n%s%s%s%s%s\r\n",
                 answer->code, only_head && how == S3_BARE ? "" : length, named ? "ETag: " : "",
                 named ? answer->etag : "", named ? "\r\n" : "", answer->range, answer->location);
    if (cut) {
        send(client, head, (size_t)bytes / 2, MSG_NOSIGNAL);
        return;
    }
    send(client, head, (size_t)bytes, MSG_NOSIGNAL);
    for (size_t sent = 0; !only_head && sent < answer->body.count;) {
        ssize_t did =
            send(client, answer->body.data + sent, answer->body.count - sent, MSG_NOSIGNAL);
        if (did <= 0)
            return;
        sent += (size_t)did;
    }
}

/* True: the connection stays open, and the client waits. */
static bool serve(struct s3_server *server, int client)
{
    static const char web[] = "/web/";
    static struct request request; /* one at a time */
    struct answer answer = {0};
    size_t behind = 0;
    bool stalls = false;
    memset(&request, 0, sizeof request);
    if (receive_header(client, &request, &behind)) {
        pthread_mutex_lock(&server->lock);
        int now = ++server->requests;
        bool fails = server->n > 0 && (now == server->n || (server->all && now > server->n));
        enum s3_failure how = fails ? server->how : S3_SOUND;
        pthread_mutex_unlock(&server->lock);
        bool whole = how != S3_DROP && receive_body(client, &request, behind);
        stalls = whole && how == S3_STALL;
        pthread_mutex_lock(&server->lock);
        bool unsigned_web = !strncmp(request.path, web, sizeof web - 1);
        bool good = whole && (unsigned_web || is_signed(&request));
        server->faults += whole && !good;
        if (how == S3_BUSY)
            refuse(&answer, 503, "SlowDown");
        else if (whole && how == S3_REGION)
            elsewhere(&answer);
        else if (whole && (!good || how == S3_REFUSE))
            refuse(&answer, 403, good ? "AccessDenied" : "SignatureDoesNotMatch");
        else if (whole && !stalls && unsigned_web)
            web_get(server, &request, request.path + sizeof web - 1, how, &answer);
        else if (whole && !stalls)
            carry_out(server, &request, how, &answer);
        look_for_torn(server);
        pthread_mutex_unlock(&server->lock);
        if (whole && !stalls)
            answer_send(client, &request, &answer, how);
    }
    free(request.body.data);
    free(answer.body.data);
    return stalls;
}

static void stalled_add(struct s3_server *server, int client)
{
    pthread_mutex_lock(&server->lock);
    if (server->stalled_count == STALLED_MAX)
        abort();
    server->stalled[server->stalled_count++] = client;
    pthread_mutex_unlock(&server->lock);
}

/* Client i hung up. */
static void stalled_end(struct s3_server *server, int i)
{
    pthread_mutex_lock(&server->lock);
    close(server->stalled[i]);
    server->stalled[i] = server->stalled[--server->stalled_count];
    pthread_mutex_unlock(&server->lock);
}

static void *server_main(void *user)
{
    struct s3_server *server = user;
    for (;;) {
        struct pollfd ends[STALLED_MAX + 2] = {{server->socket, POLLIN, 0},
                                               {server->stop[0], POLLIN, 0}};
        int waiting = server->stalled_count; /* this thread's alone to change */
        for (int i = 0; i < waiting; i++)
            ends[i + 2] = (struct pollfd){server->stalled[i], POLLIN, 0};
        if (poll(ends, (nfds_t)waiting + 2, -1) < 0)
            continue;
        if (ends[1].revents) {
            while (server->stalled_count > 0)
                stalled_end(server, 0);
            return NULL;
        }
        for (int i = waiting - 1; i >= 0; i--)
            if (ends[i + 2].revents)
                stalled_end(server, i);
        int client = ends[0].revents ? accept(server->socket, NULL, NULL) : -1;
        if (client < 0)
            continue;
        if (serve(server, client))
            stalled_add(server, client);
        else
            close(client);
    }
}

struct s3_server *s3_server_start(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    char url[64];
    struct s3_server *server = calloc(1, sizeof *server);
    assert_non_null(server);
    pthread_mutex_init(&server->lock, NULL);
    server->socket = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(server->socket >= 0);
    assert_int_equal(bind(server->socket, (struct sockaddr *)&address, bytes), 0);
    assert_int_equal(listen(server->socket, 16), 0);
    assert_int_equal(getsockname(server->socket, (struct sockaddr *)&address, &bytes), 0);
    assert_int_equal(pipe(server->stop), 0);
    server->port = ntohs(address.sin_port);
    assert_int_equal(ls_helper_start(&server->thread, server_main, server), 0);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", server->port);
    setenv("AWS_ENDPOINT_URL", url, 1);
    unsetenv("AWS_ENDPOINT_URL_S3");
    setenv("AWS_ACCESS_KEY_ID", KEY, 1);
    setenv("AWS_SECRET_ACCESS_KEY", SECRET, 1);
    setenv("AWS_SESSION_TOKEN", "a/token+of=test", 1);
    setenv("AWS_REGION", "eu-test-1", 1);
    setenv("no_proxy", "127.0.0.1", 1);
    return server;
}

void s3_server_stop(struct s3_server *server)
{
    assert_int_equal(write(server->stop[1], "", 1), 1);
    pthread_join(server->thread, NULL);
    close(server->socket);
    close(server->stop[0]);
    close(server->stop[1]);
    while (server->object_count > 0)
        object_remove(server, 0);
    for (int i = 0; i < UPLOADS_MAX; i++)
        upload_close(&server->uploads[i]);
    pthread_mutex_destroy(&server->lock);
    free(server);
}

/* ---- what a test asks ------------------------------------------------------------------------ */

void s3_server_fail(struct s3_server *server, enum s3_failure how, int n, bool all)
{
    pthread_mutex_lock(&server->lock);
    server->how = how;
    server->n = how == S3_SOUND ? 0 : n;
    server->all = all;
    server->requests = 0;
    pthread_mutex_unlock(&server->lock);
}

static int locked(struct s3_server *server, const int *value)
{
    pthread_mutex_lock(&server->lock);
    int now = *value;
    pthread_mutex_unlock(&server->lock);
    return now;
}

int s3_server_requests(struct s3_server *server)
{
    return locked(server, &server->requests);
}

int s3_server_faults(struct s3_server *server)
{
    return locked(server, &server->faults);
}

int s3_server_torn(struct s3_server *server)
{
    return locked(server, &server->torn);
}

void s3_server_expect_beside(struct s3_server *server, int objects)
{
    pthread_mutex_lock(&server->lock);
    server->beside = objects;
    server->torn = 0;
    pthread_mutex_unlock(&server->lock);
}

int s3_server_uploads(struct s3_server *server)
{
    int count = 0;
    pthread_mutex_lock(&server->lock);
    for (int i = 0; i < UPLOADS_MAX; i++)
        count += server->uploads[i].open;
    pthread_mutex_unlock(&server->lock);
    return count;
}

int s3_server_objects(struct s3_server *server, const char *prefix)
{
    int count = 0;
    pthread_mutex_lock(&server->lock);
    for (int i = 0; i < server->object_count; i++)
        count += !strncmp(server->objects[i].key, prefix, strlen(prefix));
    pthread_mutex_unlock(&server->lock);
    return count;
}

void s3_server_place(struct s3_server *server, const char *key, const char *text)
{
    pthread_mutex_lock(&server->lock);
    object_set(server, key, bytes_copy(text, strlen(text)));
    pthread_mutex_unlock(&server->lock);
}

void s3_server_place_bytes(struct s3_server *server, const char *key, const void *data,
                           size_t bytes)
{
    pthread_mutex_lock(&server->lock);
    object_set(server, key, bytes_copy(data, bytes));
    pthread_mutex_unlock(&server->lock);
}

void s3_server_answer_lists(struct s3_server *server, const char *const *texts, int count)
{
    pthread_mutex_lock(&server->lock);
    server->lists = texts;
    server->lists_count = count;
    server->listed = 0;
    pthread_mutex_unlock(&server->lock);
}

void s3_server_remove(struct s3_server *server, const char *key)
{
    pthread_mutex_lock(&server->lock);
    object_remove(server, object_find(server, key));
    pthread_mutex_unlock(&server->lock);
}

int s3_server_ranges(struct s3_server *server, const char *key)
{
    pthread_mutex_lock(&server->lock);
    int i = object_find(server, key), ranges = i < 0 ? 0 : server->objects[i].ranges;
    pthread_mutex_unlock(&server->lock);
    return ranges;
}

size_t s3_server_range_bytes(struct s3_server *server)
{
    pthread_mutex_lock(&server->lock);
    size_t bytes = server->range_bytes;
    pthread_mutex_unlock(&server->lock);
    return bytes;
}

void s3_server_expect_password(struct s3_server *server, const char *base64)
{
    pthread_mutex_lock(&server->lock);
    snprintf(server->password, sizeof server->password, "%s", base64);
    pthread_mutex_unlock(&server->lock);
}

const char *s3_server_url(struct s3_server *server, const char *name)
{
    static char urls[4][512];
    static int next;
    char *url = urls[next++ % 4];
    snprintf(url, sizeof urls[0], "http://127.0.0.1:%d/web/%s", server->port, name);
    return url;
}

int s3_server_stalled(struct s3_server *server)
{
    return locked(server, &server->stalled_count);
}
