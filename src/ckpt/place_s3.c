/* Copies of checkpoints in a bucket of S3. */
#include "ckpt/format.h"
#include "ckpt/place_kind.h"
#include "ckpt/s3_request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ANSWER_BYTES = 1 << 16, LIST_BYTES = 8 << 20, PARTS_MAX = 10000, KEY_BYTES = 2048 };

/* ---- who, and where -------------------------------------------------------------------------- */

static const char *environment(const char *first, const char *second)
{
    const char *value = getenv(first);
    if ((!value || !*value) && second)
        value = getenv(second);
    return value ? value : "";
}

static bool only(const char *text, size_t length, const char *characters)
{
    return strspn(text, characters) >= length;
}

#define LETTERS "abcdefghijklmnopqrstuvwxyz"
#define DIGITS  "0123456789"

/* s3://bucket/prefix; a bucket has 3 to 63 small letters, digits, dots and dashes. Of a prefix only
 * what needs no escape is taken. */
static int where_read(struct s3 *s3, const char *where, char bucket[64], struct ls_error *error)
{
    static const char scheme[] = "s3://";
    const char *name = where + sizeof scheme - 1;
    bool good = !strncmp(where, scheme, sizeof scheme - 1);
    size_t length = good ? strcspn(name, "/") : 0;
    good = good && length >= 3 && length <= 63 && only(name, length, LETTERS DIGITS ".-");
    if (!good)
        return ls_error_set(error, LS_ECONFIG,
                            "expected a directory or s3://bucket/prefix; a bucket's name has 3 to "
                            "63 of a-z, 0-9, '.' and '-'");
    snprintf(bucket, 64, "%.*s", (int)length, name);
    const char *prefix = name + length;
    while (*prefix == '/')
        prefix++;
    size_t end = strlen(prefix);
    while (end > 0 && prefix[end - 1] == '/')
        end--;
    if (!only(prefix, end, LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZ" DIGITS "-._~/") ||
        strstr(prefix, "//") || strstr(prefix, "./") || end + 2 > sizeof s3->prefix)
        return ls_error_set(error, LS_ECONFIG,
                            "the prefix may have letters, digits, and -._~ with single slashes "
                            "between names");
    snprintf(s3->prefix, sizeof s3->prefix, "%.*s%s", (int)end, prefix, end ? "/" : "");
    return LS_OK;
}

static int environment_read(struct s3 *s3, const char *bucket, struct ls_error *error)
{
    const char *key = environment("AWS_ACCESS_KEY_ID", NULL);
    const char *secret = environment("AWS_SECRET_ACCESS_KEY", NULL);
    const char *token = environment("AWS_SESSION_TOKEN", NULL);
    const char *region = environment("AWS_REGION", "AWS_DEFAULT_REGION");
    const char *endpoint = environment("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL");
    if (!*region)
        region = "us-east-1";
    if (!*key || !*secret)
        return ls_error_set(error, LS_ECONFIG,
                            "S3 needs credentials: set %s in the environment of rank 0",
                            *key      ? "AWS_SECRET_ACCESS_KEY"
                            : *secret ? "AWS_ACCESS_KEY_ID"
                                      : "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY");
    if (*endpoint && strncmp(endpoint, "http://", 7) && strncmp(endpoint, "https://", 8))
        return ls_error_set(error, LS_ECONFIG,
                            "the endpoint in the environment is \"%.200s\", expected http:// or "
                            "https:// and a host",
                            endpoint);
    size_t length = strlen(endpoint);
    while (length > 0 && endpoint[length - 1] == '/')
        length--;
    size_t used, size = sizeof s3->url;
    if (*endpoint)
        used = (size_t)snprintf(s3->url, size, "%.*s/%s", (int)length, endpoint, bucket);
    else if (strchr(bucket, '.')) /* no certificate has such a host */
        used = (size_t)snprintf(s3->url, size, "https://s3.%s.amazonaws.com/%s", region, bucket);
    else
        used = (size_t)snprintf(s3->url, size, "https://%s.s3.%s.amazonaws.com", bucket, region);
    size_t signer = (size_t)snprintf(s3->signer, sizeof s3->signer, "aws:amz:%s:s3", region);
    if (used >= size || signer >= sizeof s3->signer || strlen(key) >= sizeof s3->key ||
        strlen(secret) >= sizeof s3->secret || strlen(token) >= sizeof s3->token)
        return ls_error_set(error, LS_ECONFIG, "a value of AWS_* in the environment is too long");
    strcpy(s3->key, key);
    strcpy(s3->secret, secret);
    strcpy(s3->token, token);
    return LS_OK;
}

/* ---- lists ----------------------------------------------------------------------------------- */

typedef int key_visitor(void *user, const char *name, uint64_t size, struct ls_error *error);

/* Visits the objects whose keys begin with prefix/under, by the rest of their keys behind prefix.
 */
static int keys_visit(struct s3 *s3, const char *under, key_visitor *visit, void *user,
                      struct ls_error *error)
{
    char key[KEY_BYTES], size[32], token[2048] = "", query[8192], prefix[KEY_BYTES];
    size_t skip = strlen(s3->prefix);
    int status = LS_OK;
    snprintf(prefix, sizeof prefix, "%s%s", s3->prefix, under);
    struct s3_request request = {.method = "GET", .key = "", .query = query, .limit = LIST_BYTES};
    do {
        char *next = curl_easy_escape(s3->curl, token, 0);
        char *escaped = curl_easy_escape(s3->curl, prefix, 0);
        snprintf(query, sizeof query, "%s%s%slist-type=2&prefix=%s",
                 *token ? "continuation-token=" : "", *token && next ? next : "", *token ? "&" : "",
                 escaped ? escaped : "");
        status = next && escaped ? s3_request(s3, &request, error)
                                 : ls_error_set(error, LS_ENOMEM, "no memory for a list");
        curl_free(next);
        curl_free(escaped);
        const char *at = status ? NULL : request.text;
        while (at && !status && (at = strstr(at, "<Contents>"))) {
            const char *end = strstr(at, "</Contents>");
            if (end && s3_element(at, "Key", key, sizeof key) &&
                s3_element(at, "Size", size, sizeof size) && strlen(key) > skip)
                status = visit(user, key + skip, strtoull(size, NULL, 10), error);
            at = end;
        }
        if (!status && !s3_element(request.text, "NextContinuationToken", token, sizeof token))
            token[0] = '\0';
    } while (!status && *token);
    s3_request_release(&request);
    return status;
}

/* The step of "step-%08d/name"; *file is the name. -1 for other keys. */
static int64_t step_and_file(const char *name, const char **file)
{
    char step[32];
    const char *slash = strchr(name, '/');
    if (!slash || slash - name >= (int)sizeof step)
        return -1;
    snprintf(step, sizeof step, "%.*s", (int)(slash - name), name);
    *file = slash + 1;
    return ckpt_step_of(step);
}

static int step_visit(void *user, const char *name, uint64_t size, struct ls_error *error)
{
    const char *file;
    int64_t step = step_and_file(name, &file);
    (void)size;
    return step < 0 || !ckpt_describes(file) ? LS_OK : steps_add(user, step, error);
}

static int list(struct ls_place *place, struct steps_found *found, struct ls_error *error)
{
    return keys_visit(place->s3, "step-", step_visit, found, error);
}

/* The objects of a copy. */
struct objects {
    size_t count;
    struct object {
        char *name;
        uint64_t size;
    } * list;
};

static int object_visit(void *user, const char *name, uint64_t size, struct ls_error *error)
{
    struct objects *objects = user;
    struct object *more = realloc(objects->list, (objects->count + 1) * sizeof *more);
    objects->list = more ? more : objects->list;
    char *copy = more ? strdup(strchr(name, '/') + 1) : NULL;
    if (!copy)
        return ls_error_set(error, LS_ENOMEM, "no memory for the files of a copy");
    objects->list[objects->count++] = (struct object){copy, size};
    return LS_OK;
}

static void objects_release(struct objects *objects)
{
    for (size_t i = 0; i < objects->count; i++)
        free(objects->list[i].name);
    free(objects->list);
}

static int objects_list(struct s3 *s3, int64_t step, struct objects *objects,
                        struct ls_error *error)
{
    char under[40];
    *objects = (struct objects){0};
    snprintf(under, sizeof under, CKPT_STEP_FORMAT "/", (long long)step);
    return keys_visit(s3, under, object_visit, objects, error);
}

static void key_make(const struct s3 *s3, int64_t step, const char *name, char key[KEY_BYTES])
{
    snprintf(key, KEY_BYTES, "%s" CKPT_STEP_FORMAT "/%s", s3->prefix, (long long)step, name);
}

/* ---- objects --------------------------------------------------------------------------------- */

static int object_delete(struct s3 *s3, const char *key, struct ls_error *error)
{
    struct s3_request request = {
        .method = "DELETE", .key = key, .query = "", .limit = ANSWER_BYTES, .absent_is_fine = true};
    int status = s3_request(s3, &request, error);
    s3_request_release(&request);
    return status;
}

static int object_put(struct s3 *s3, const char *key, const char *query, const void *body,
                      size_t bytes, char etag[128], struct ls_error *error)
{
    struct s3_request request = {.method = "PUT",
                                 .key = key,
                                 .query = query,
                                 .body = body,
                                 .body_bytes = bytes,
                                 .limit = ANSWER_BYTES};
    int status = s3_request(s3, &request, error);
    if (etag)
        memcpy(etag, request.etag, sizeof request.etag);
    s3_request_release(&request);
    return status;
}

/* ---- uploads in parts ------------------------------------------------------------------------ */

/* Whoever cannot begin an upload, or end it, leaves parts that are paid for. id is escaped. */
static int upload_abort(struct s3 *s3, const char *key, const char *id, struct ls_error *error)
{
    char query[2200];
    snprintf(query, sizeof query, "uploadId=%s", id);
    struct s3_request request = {.method = "DELETE",
                                 .key = key,
                                 .query = query,
                                 .limit = ANSWER_BYTES,
                                 .absent_is_fine = true};
    int status = s3_request(s3, &request, error);
    s3_request_release(&request);
    return status;
}

/* Aborts the uploads of keys that begin with prefix, which killed processes and lost answers left,
 * but for the one with this id (escaped; "" for none). */
static int uploads_sweep(struct s3 *s3, const char *prefix, const char *but, struct ls_error *error)
{
    char key[KEY_BYTES], id[1024], query[8192];
    char *escaped = curl_easy_escape(s3->curl, prefix, 0);
    snprintf(query, sizeof query, "prefix=%s&uploads=", escaped ? escaped : "");
    curl_free(escaped);
    struct s3_request request = {.method = "GET", .key = "", .query = query, .limit = LIST_BYTES};
    int status = s3_request(s3, &request, error);
    if (status && (request.code == 403 || request.code == 501))
        status = LS_OK; /* who may not list them, or has none */
    for (const char *at = request.text; !status && (at = strstr(at, "<Upload>"));) {
        const char *end = strstr(at, "</Upload>");
        bool named = end && s3_element(at, "Key", key, sizeof key) &&
                     s3_element(at, "UploadId", id, sizeof id) &&
                     !strncmp(key, prefix, strlen(prefix));
        escaped = named ? curl_easy_escape(s3->curl, id, 0) : NULL;
        if (escaped && strcmp(escaped, but))
            status = upload_abort(s3, key, escaped, error);
        curl_free(escaped);
        at += strlen("<Upload>");
    }
    s3_request_release(&request);
    return status;
}

/* An upload in parts. */
struct upload {
    char key[KEY_BYTES], id[2048]; /* escaped */
    char *parts;                   /* CompleteMultipartUpload */
    size_t used, size;
};

static int upload_begin(struct s3 *s3, struct upload *upload, struct ls_error *error)
{
    char id[1024];
    struct s3_request request = {.method = "POST",
                                 .key = upload->key,
                                 .query = "uploads=",
                                 .body = "",
                                 .limit = ANSWER_BYTES};
    int status = s3_request(s3, &request, error);
    char *escaped = NULL;
    if (!status &&
        (!s3_element(request.text, "UploadId", id, sizeof id) || !*id ||
         !(escaped = curl_easy_escape(s3->curl, id, 0)) || strlen(escaped) >= sizeof upload->id))
        status = ls_error_set(error, LS_EIO, "%s/%s: the server began no upload in parts", s3->url,
                              upload->key);
    if (!status)
        strcpy(upload->id, escaped);
    curl_free(escaped);
    if (!status && request.tries > 1) /* an earlier try may have begun one too */
        status = uploads_sweep(s3, upload->key, upload->id, error);
    s3_request_release(&request);
    return status;
}

static int upload_parts(struct s3 *s3, struct upload *upload, const struct ls_held *held,
                        const struct held_file *file, void *buffer, size_t part_bytes,
                        struct ls_error *error)
{
    char query[2200], etag[128];
    int status = LS_OK, number = 1;
    upload->used = (size_t)snprintf(upload->parts, upload->size, "<CompleteMultipartUpload>");
    for (uint64_t offset = 0; offset < file->size && !status; number++) {
        size_t bytes = ls_min(file->size - offset, part_bytes);
        snprintf(query, sizeof query, "partNumber=%d&uploadId=%s", number, upload->id);
        status = held_read(held, file, offset, buffer, bytes, error);
        status = status ? status : object_put(s3, upload->key, query, buffer, bytes, etag, error);
        if (!status)
            upload->used += (size_t)snprintf(
                upload->parts + upload->used, upload->size - upload->used,
                "<Part><PartNumber>%d</PartNumber><ETag>%s</ETag></Part>", number, etag);
        offset += bytes;
    }
    upload->used += (size_t)snprintf(upload->parts + upload->used, upload->size - upload->used,
                                     "</CompleteMultipartUpload>");
    return status;
}

static int upload_end(struct s3 *s3, const struct upload *upload, uint64_t size,
                      struct ls_error *error)
{
    char query[2200];
    snprintf(query, sizeof query, "uploadId=%s", upload->id);
    struct s3_request request = {.method = "POST",
                                 .key = upload->key,
                                 .query = query,
                                 .body = upload->parts,
                                 .body_bytes = upload->used,
                                 .limit = ANSWER_BYTES,
                                 .patient = true,
                                 .absent_is_fine = true};
    struct s3_request look = {
        .method = "HEAD", .key = upload->key, .query = "", .limit = ANSWER_BYTES};
    int status = s3_request(s3, &request, error);
    if (!status && request.code == 404) { /* the answer to an earlier try was lost */
        status = s3_request(s3, &look, error);
        if (!status && look.length != size)
            status = ls_error_set(error, LS_EIO, "%s/%s has %llu bytes, %llu were sent", s3->url,
                                  upload->key, (unsigned long long)look.length,
                                  (unsigned long long)size);
    }
    s3_request_release(&request);
    s3_request_release(&look);
    return status;
}

static int in_parts(struct s3 *s3, const char *key, const struct ls_held *held,
                    const struct held_file *file, void *buffer, size_t part_bytes,
                    struct ls_error *error)
{
    enum { PART_TEXT = 256 };
    struct upload *upload = calloc(1, sizeof *upload);
    if (upload) {
        strcpy(upload->key, key);
        upload->size = PART_TEXT * (file->size / part_bytes + 2);
        upload->parts = malloc(upload->size);
    }
    int status = upload && upload->parts
                     ? upload_begin(s3, upload, error)
                     : ls_error_set(error, LS_ENOMEM, "%s: no memory to send it", key);
    if (!status) {
        status = upload_parts(s3, upload, held, file, buffer, part_bytes, error);
        status = status ? status : upload_end(s3, upload, file->size, error);
        if (status)
            upload_abort(s3, key, upload->id, NULL);
    }
    if (upload)
        free(upload->parts);
    free(upload);
    return status;
}

/* ---- to the bucket --------------------------------------------------------------------------- */

/* The bytes of a part: as given, or as many as make PARTS_MAX parts of the file. */
static size_t part_bytes_of(const struct ls_place *place, uint64_t size)
{
    return ls_max(place->options.part_bytes, (size_t)ls_ceil_div((int64_t)size, PARTS_MAX));
}

static int file_put(struct ls_place *place, const struct ls_held *held,
                    const struct held_file *file, struct ls_error *error)
{
    char key[KEY_BYTES];
    size_t part_bytes = part_bytes_of(place, file->size);
    char *buffer = malloc(ls_min(part_bytes, file->size) + 1);
    if (!buffer)
        return ls_error_set(error, LS_ENOMEM, "%s: no memory to send it", file->name);
    key_make(place->s3, held->step, file->name, key);
    int status;
    if (file->size > part_bytes) {
        status = in_parts(place->s3, key, held, file, buffer, part_bytes, error);
    } else {
        status = held_read(held, file, 0, buffer, file->size, error);
        status = status ? status : object_put(place->s3, key, "", buffer, file->size, NULL, error);
    }
    free(buffer);
    return status;
}

static int take_away(struct ls_place *place, int64_t step, struct ls_error *error)
{
    char key[KEY_BYTES];
    struct objects objects;
    int status = objects_list(place->s3, step, &objects, error);
    for (int describes = 1; describes >= 0; describes--)
        for (size_t i = 0; i < objects.count && !status; i++) {
            key_make(place->s3, step, objects.list[i].name, key);
            if (ckpt_describes(objects.list[i].name) == describes)
                status = object_delete(place->s3, key, error);
        }
    objects_release(&objects);
    return status;
}

/* *same: a whole copy with this manifest is there. */
static int look(struct ls_place *place, const struct ls_held *held, bool *same,
                struct ls_error *error)
{
    char key[KEY_BYTES];
    const struct held_file *last = &held->files[held->count - 1];
    *same = false;
    char *mine = malloc(last->size + 1);
    if (!mine)
        return ls_error_set(error, LS_ENOMEM, "%s: no memory to compare it", last->name);
    key_make(place->s3, held->step, last->name, key);
    struct s3_request head = {
        .method = "HEAD", .key = key, .query = "", .limit = ANSWER_BYTES, .absent_is_fine = true};
    struct s3_request get = {.method = "GET", .key = key, .query = "", .limit = last->size};
    int status = s3_request(place->s3, &head, error);
    if (!status && head.code != 404 && head.length == last->size) {
        status = held_read(held, last, 0, mine, last->size, error);
        status = status ? status : s3_request(place->s3, &get, error);
        *same = !status && get.bytes == last->size && !memcmp(get.text, mine, get.bytes);
    }
    s3_request_release(&head);
    s3_request_release(&get);
    free(mine);
    return status;
}

static int put(struct ls_place *place, const struct ls_held *held, uint64_t *bytes,
               struct ls_error *error)
{
    bool same;
    int status = look(place, held, &same, error);
    if (status || same)
        return status;
    status = take_away(place, held->step, error); /* what is there of it */
    for (size_t i = 0; i < held->count && !status; i++) {
        status = file_put(place, held, &held->files[i], error);
        *bytes += held->files[i].size;
    }
    if (status)
        take_away(place, held->step, NULL);
    return status;
}

/* ---- from it --------------------------------------------------------------------------------- */

struct reading {
    struct s3 *s3;
    char key[KEY_BYTES];
};

static int object_read(void *user, uint64_t offset, void *buffer, size_t bytes,
                       struct ls_error *error)
{
    struct reading *reading = user;
    struct s3_request request = {.method = "GET",
                                 .key = reading->key,
                                 .query = "",
                                 .range_first = offset,
                                 .range_bytes = bytes,
                                 .limit = bytes};
    int status = s3_request(reading->s3, &request, error);
    if (!status && request.bytes != bytes)
        status = ls_error_set(error, LS_EIO, "%s/%s: the server sent %zu bytes of %zu",
                              reading->s3->url, reading->key, request.bytes, bytes);
    if (!status)
        memcpy(buffer, request.text, bytes);
    s3_request_release(&request);
    return status;
}

static int get(struct ls_place *place, int64_t step, const char *to, struct ls_error *error)
{
    struct objects objects;
    struct reading reading = {.s3 = place->s3};
    int status = objects_list(place->s3, step, &objects, error);
    for (size_t i = 0; i < objects.count && !status; i++) {
        const char *name = objects.list[i].name;
        const struct place_read from = {object_read, &reading, objects.list[i].size};
        if (strchr(name, '/') || name[0] == '.' || !*name || strlen(name) > NAME_MAX / 2)
            status = ls_error_set(error, LS_ECKPT, "%s: \"%.100s\" is no file of a checkpoint",
                                  place->where, name);
        key_make(place->s3, step, name, reading.key);
        status = status ? status : place_file_write(place, to, name, &from, error);
    }
    objects_release(&objects);
    return status;
}

/* ---- what was left --------------------------------------------------------------------------- */

/* Keys come in order, so a step's are one after the other. */
static int any_step_visit(void *user, const char *name, uint64_t size, struct ls_error *error)
{
    struct steps_found *found = user;
    const char *file;
    int64_t step = step_and_file(name, &file);
    (void)size;
    if (step < 0 || (found->count > 0 && found->steps[found->count - 1] == step))
        return LS_OK;
    return steps_add(found, step, error);
}

static int sweep(struct ls_place *place, struct ls_error *error)
{
    char prefix[KEY_BYTES];
    struct steps_found all = {0}, whole = {0};
    int status = keys_visit(place->s3, "step-", any_step_visit, &all, error);
    status = status ? status : list(place, &whole, error);
    for (size_t i = 0; i < all.count && !status; i++) {
        bool is_whole = false;
        for (size_t j = 0; j < whole.count; j++)
            is_whole |= whole.steps[j] == all.steps[i];
        if (!is_whole)
            status = take_away(place, all.steps[i], error);
    }
    free(all.steps);
    free(whole.steps);
    snprintf(prefix, sizeof prefix, "%sstep-", place->s3->prefix);
    return status ? status : uploads_sweep(place->s3, prefix, "", error);
}

static int owner_get(struct ls_place *place, char owner[LS_PLACE_OWNER_BYTES],
                     struct ls_error *error)
{
    char key[KEY_BYTES];
    snprintf(key, sizeof key, "%s" PLACE_OWNER, place->s3->prefix);
    struct s3_request request = {
        .method = "GET", .key = key, .query = "", .limit = ANSWER_BYTES, .absent_is_fine = true};
    int status = s3_request(place->s3, &request, error);
    if (!status && request.code != 404)
        snprintf(owner, LS_PLACE_OWNER_BYTES, "%.64s", request.text);
    s3_request_release(&request);
    return status;
}

static int owner_put(struct ls_place *place, const char *owner, struct ls_error *error)
{
    char key[KEY_BYTES];
    snprintf(key, sizeof key, "%s" PLACE_OWNER, place->s3->prefix);
    return object_put(place->s3, key, "", owner, strlen(owner), NULL, error);
}

static void s3_close(struct ls_place *place)
{
    curl_easy_cleanup(place->s3->curl);
    free(place->s3);
    curl_global_cleanup();
}

static const struct place_kind s3_kind = {.list = list,
                                          .put = put,
                                          .get = get,
                                          .remove = take_away,
                                          .sweep = sweep,
                                          .owner = owner_get,
                                          .own = owner_put,
                                          .close = s3_close};

/* What it takes later is tried now: to list, to put, to delete. */
static int probe(struct ls_place *place, struct ls_error *error)
{
    char key[KEY_BYTES];
    struct steps_found found = {0};
    int status = list(place, &found, error);
    free(found.steps);
    snprintf(key, sizeof key, "%s.lockstep-probe", place->s3->prefix);
    status = status ? status : object_put(place->s3, key, "", "", 0, NULL, error);
    return status ? status : object_delete(place->s3, key, error);
}

int place_s3_open(struct ls_place *place, struct ls_error *error)
{
    char bucket[64];
    struct s3 *s3 = calloc(1, sizeof *s3);
    if (!s3)
        return ls_error_set(error, LS_ENOMEM, "%s: no memory for libcurl", place->where);
    if (curl_global_init(CURL_GLOBAL_DEFAULT)) {
        free(s3);
        return ls_error_set(error, LS_ENOTSUP,
                            "%s: libcurl cannot be loaded: install libcurl3-gnutls", place->where);
    }
    place->s3 = s3;
    place->kind = &s3_kind;
    s3->options = &place->options;
    s3->curl = curl_easy_init();
    if (!s3->curl)
        return ls_error_set(error, LS_ENOMEM, "%s: no memory for libcurl", place->where);
    int status = where_read(s3, place->where, bucket, error);
    status = status ? status : environment_read(s3, bucket, error);
    return status ? status : probe(place, error);
}
