/* Copies of checkpoints in a bucket of S3. */
#include "ckpt/format.h"
#include "ckpt/place_kind.h"

#include <lockstep/net.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { ANSWER_BYTES = 1 << 16, LIST_BYTES = 8 << 20, PARTS_MAX = 10000, KEY_BYTES = 2048 };

/* A bucket, and what keys begin with there. */
struct s3 {
    struct ls_server *server;
    char prefix[1024]; /* "", or with a slash at its end */
};

/* ---- lists ----------------------------------------------------------------------------------- */

/* Visits keys by what follows the prefix. */
struct keys {
    size_t skip;
    ls_object_visitor *visit;
    void *user;
};

static int key_visit(void *user, const char *key, uint64_t size, struct ls_error *error)
{
    const struct keys *keys = user;
    return keys->visit(keys->user, key + keys->skip, size, error);
}

/* Those of the objects whose keys begin with prefix/under. */
static int keys_visit(struct s3 *s3, const char *under, ls_object_visitor *visit, void *user,
                      struct ls_error *error)
{
    char prefix[KEY_BYTES];
    struct keys keys = {strlen(s3->prefix), visit, user};
    snprintf(prefix, sizeof prefix, "%s%s", s3->prefix, under);
    return ls_bucket_list(s3->server, prefix, false, key_visit, &keys, error);
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
    int64_t count, room;
    struct object {
        char *name;
        uint64_t size;
    } * list;
};

static int object_visit(void *user, const char *name, uint64_t size, struct ls_error *error)
{
    struct objects *objects = user;
    bool fits = ls_list_grow(&objects->list, objects->count, &objects->room, sizeof *objects->list);
    char *copy = fits ? strdup(strchr(name, '/') + 1) : NULL;
    if (!copy)
        return ls_no_memory(error, "for the files of a copy");
    objects->list[objects->count++] = (struct object){copy, size};
    return LS_OK;
}

static void objects_release(struct objects *objects)
{
    for (int64_t i = 0; i < objects->count; i++)
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

static int object_delete(struct s3 *s3, const char *key, const char *query, struct ls_error *error)
{
    struct ls_http_request request = {.method = "DELETE",
                                      .key = key,
                                      .query = query,
                                      .limit = ANSWER_BYTES,
                                      .absent_is_fine = true};
    int status = ls_http_send(s3->server, &request, error);
    ls_http_request_release(&request);
    return status;
}

static int object_put(struct s3 *s3, const char *key, const char *query, const void *body,
                      size_t bytes, char etag[128], struct ls_error *error)
{
    struct ls_http_request request = {.method = "PUT",
                                      .key = key,
                                      .query = query,
                                      .body = body,
                                      .body_bytes = bytes,
                                      .limit = ANSWER_BYTES};
    int status = ls_http_send(s3->server, &request, error);
    if (etag)
        memcpy(etag, request.etag, sizeof request.etag);
    ls_http_request_release(&request);
    return status;
}

/* ---- uploads in parts ------------------------------------------------------------------------ */

/* Whoever cannot begin an upload, or end it, leaves parts that are paid for. id is escaped. */
static int upload_abort(struct s3 *s3, const char *key, const char *id, struct ls_error *error)
{
    char query[2200];
    snprintf(query, sizeof query, "uploadId=%s", id);
    return object_delete(s3, key, query, error);
}

/* Aborts the uploads of keys that begin with prefix, which killed processes and lost answers left,
 * but for the one with this id (escaped; "" for none). */
static int uploads_sweep(struct s3 *s3, const char *prefix, const char *but, struct ls_error *error)
{
    char key[KEY_BYTES], id[1024], id_escaped[2048], escaped[3 * KEY_BYTES];
    char query[sizeof escaped + 32];
    ls_url_escape(prefix, escaped, sizeof escaped);
    snprintf(query, sizeof query, "prefix=%s&uploads=", escaped);
    struct ls_http_request request = {
        .method = "GET", .key = "", .query = query, .limit = LIST_BYTES};
    int status = ls_http_send(s3->server, &request, error);
    if (status && (request.code == 403 || request.code == 501))
        status = LS_OK; /* who may not list them, or has none */
    for (const char *at = request.text; !status && (at = strstr(at, "<Upload>"));) {
        const char *end = strstr(at, "</Upload>");
        bool named = end && ls_xml_element(at, "Key", key, sizeof key) &&
                     ls_xml_element(at, "UploadId", id, sizeof id) &&
                     !strncmp(key, prefix, strlen(prefix)) &&
                     ls_url_escape(id, id_escaped, sizeof id_escaped);
        if (named && strcmp(id_escaped, but))
            status = upload_abort(s3, key, id_escaped, error);
        at += strlen("<Upload>");
    }
    ls_http_request_release(&request);
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
    struct ls_http_request request = {.method = "POST",
                                      .key = upload->key,
                                      .query = "uploads=",
                                      .body = "",
                                      .limit = ANSWER_BYTES};
    int status = ls_http_send(s3->server, &request, error);
    if (!status && (!ls_xml_element(request.text, "UploadId", id, sizeof id) || !*id ||
                    !ls_url_escape(id, upload->id, sizeof upload->id)))
        status = ls_error_set(error, LS_EIO, "%s/%s: the server began no upload in parts",
                              ls_server_url(s3->server), upload->key);
    if (!status && request.tries > 1) /* an earlier try may have begun one too */
        status = uploads_sweep(s3, upload->key, upload->id, error);
    ls_http_request_release(&request);
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
    struct ls_http_request request = {.method = "POST",
                                      .key = upload->key,
                                      .query = query,
                                      .body = upload->parts,
                                      .body_bytes = upload->used,
                                      .limit = ANSWER_BYTES,
                                      .patient = true,
                                      .absent_is_fine = true};
    struct ls_http_request look = {
        .method = "HEAD", .key = upload->key, .query = "", .limit = ANSWER_BYTES};
    int status = ls_http_send(s3->server, &request, error);
    if (!status && request.code == 404) { /* the answer to an earlier try was lost */
        status = ls_http_send(s3->server, &look, error);
        if (!status && look.length != size)
            status = ls_error_set(error, LS_EIO, "%s/%s has %llu bytes, %llu were sent",
                                  ls_server_url(s3->server), upload->key,
                                  (unsigned long long)look.length, (unsigned long long)size);
    }
    ls_http_request_release(&request);
    ls_http_request_release(&look);
    return status;
}

static int in_parts(struct s3 *s3, const char *key, const struct ls_held *held,
                    const struct held_file *file, void *buffer, size_t part_bytes,
                    struct ls_error *error)
{
    enum { PART_TEXT = 256 };
    struct upload upload = {.size = PART_TEXT * (file->size / part_bytes + 2)};
    upload.parts = malloc(upload.size);
    strcpy(upload.key, key);
    int status = upload.parts ? upload_begin(s3, &upload, error)
                              : ls_error_set(error, LS_ENOMEM, "%s: no memory to send it", key);
    if (!status) {
        status = upload_parts(s3, &upload, held, file, buffer, part_bytes, error);
        status = status ? status : upload_end(s3, &upload, file->size, error);
        if (status)
            upload_abort(s3, key, upload.id, NULL);
    }
    free(upload.parts);
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

static int objects_delete(struct s3 *s3, int64_t step, const struct objects *objects,
                          struct ls_error *error)
{
    char key[KEY_BYTES];
    int status = LS_OK;
    for (int describes = 1; describes >= 0; describes--)
        for (int64_t i = 0; i < objects->count && !status; i++) {
            key_make(s3, step, objects->list[i].name, key);
            if (ckpt_describes(objects->list[i].name) == describes)
                status = object_delete(s3, key, "", error);
        }
    return status;
}

static int take_away(struct ls_place *place, int64_t step, struct ls_error *error)
{
    struct objects objects;
    int status = objects_list(place->s3, step, &objects, error);
    status = status ? status : objects_delete(place->s3, step, &objects, error);
    objects_release(&objects);
    return status;
}

/* *same: a whole copy with this manifest is among the objects. */
static int look(struct ls_place *place, const struct ls_held *held, const struct objects *objects,
                bool *same, struct ls_error *error)
{
    char key[KEY_BYTES];
    const struct held_file *last = &held->files[held->count - 1];
    bool there = false;
    *same = false;
    for (int64_t i = 0; i < objects->count; i++)
        there |= !strcmp(objects->list[i].name, last->name) && objects->list[i].size == last->size;
    if (!there)
        return LS_OK;
    char *mine = malloc(last->size + 1);
    if (!mine)
        return ls_error_set(error, LS_ENOMEM, "%s: no memory to compare it", last->name);
    key_make(place->s3, held->step, last->name, key);
    struct ls_http_request get = {.method = "GET", .key = key, .query = "", .limit = last->size};
    int status = held_read(held, last, 0, mine, last->size, error);
    status = status ? status : ls_http_send(place->s3->server, &get, error);
    *same = !status && get.bytes == last->size && !memcmp(get.text, mine, get.bytes);
    ls_http_request_release(&get);
    free(mine);
    return status;
}

static int put(struct ls_place *place, const struct ls_held *held, uint64_t *bytes,
               struct ls_error *error)
{
    bool same = false;
    struct objects objects;
    int status = objects_list(place->s3, held->step, &objects, error);
    status = status ? status : look(place, held, &objects, &same, error);
    if (!status && !same)
        status = objects_delete(place->s3, held->step, &objects, error); /* what is there of it */
    objects_release(&objects);
    if (status || same)
        return status;
    for (int64_t i = 0; i < held->count && !status; i++) {
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
    struct ls_http_request request = {.method = "GET",
                                      .key = reading->key,
                                      .query = "",
                                      .range_first = offset,
                                      .range_bytes = bytes,
                                      .limit = bytes};
    int status = ls_http_send(reading->s3->server, &request, error);
    if (!status)
        memcpy(buffer, request.text, bytes);
    ls_http_request_release(&request);
    return status;
}

static int get(struct ls_place *place, int64_t step, const char *to, struct ls_error *error)
{
    struct objects objects;
    struct reading reading = {.s3 = place->s3};
    int status = objects_list(place->s3, step, &objects, error);
    for (int64_t i = 0; i < objects.count && !status; i++) {
        const char *name = objects.list[i].name;
        const struct place_read from = {object_read, &reading, objects.list[i].size, false};
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
    for (int64_t i = 0; i < all.count && !status; i++) {
        bool is_whole = false;
        for (int64_t j = 0; j < whole.count; j++)
            is_whole |= whole.steps[j] == all.steps[i];
        if (!is_whole)
            status = take_away(place, all.steps[i], error);
    }
    free(all.steps);
    free(whole.steps);
    snprintf(prefix, sizeof prefix, "%sstep-", place->s3->prefix);
    return status ? status : uploads_sweep(place->s3, prefix, "", error);
}

static int owner_get(struct ls_place *place, char owner[PLACE_OWNER_BYTES], struct ls_error *error)
{
    char key[KEY_BYTES];
    snprintf(key, sizeof key, "%s" PLACE_OWNER, place->s3->prefix);
    struct ls_http_request request = {
        .method = "GET", .key = key, .query = "", .limit = ANSWER_BYTES, .absent_is_fine = true};
    int status = ls_http_send(place->s3->server, &request, error);
    if (!status && request.code != 404)
        snprintf(owner, PLACE_OWNER_BYTES, "%s", request.text);
    ls_http_request_release(&request);
    return status;
}

static int owner_put(struct ls_place *place, const char *owner, struct ls_error *error)
{
    char key[KEY_BYTES];
    snprintf(key, sizeof key, "%s" PLACE_OWNER, place->s3->prefix);
    return object_put(place->s3, key, "", owner, strlen(owner), NULL, error);
}

void place_s3_close(struct s3 *s3)
{
    ls_server_close(s3->server);
    free(s3);
}

static const struct place_kind s3_kind = {.list = list,
                                          .put = put,
                                          .get = get,
                                          .remove = take_away,
                                          .sweep = sweep,
                                          .owner = owner_get,
                                          .own = owner_put};

/* What it takes later is tried now: to list, to put, to delete. */
static int probe(struct ls_place *place, struct ls_error *error)
{
    char key[KEY_BYTES];
    struct steps_found found = {0};
    int status = list(place, &found, error);
    free(found.steps);
    snprintf(key, sizeof key, "%s.lockstep-probe", place->s3->prefix);
    status = status ? status : object_put(place->s3, key, "", "", 0, NULL, error);
    return status ? status : object_delete(place->s3, key, "", error);
}

int place_s3_open(struct ls_place *place, struct ls_error *error)
{
    place->kind = &s3_kind;
    if (strncasecmp(place->where, "s3://", 5))
        return ls_error_set(error, LS_ECONFIG, "expected a directory or s3://bucket/prefix");
    struct s3 *s3 = place->s3 = calloc(1, sizeof *s3);
    if (!s3)
        return ls_error_set(error, LS_ENOMEM, "%s: no memory to open it", place->where);
    int status = ls_server_open(&s3->server, place->where, &place->options.net, error);
    if (status == LS_ENOTSUP || status == LS_ENOMEM)
        ls_error_prefix(error, "%s", place->where);
    if (status)
        return status;
    const char *key = ls_server_key(s3->server);
    if (strlen(key) + 2 > sizeof s3->prefix)
        return ls_error_set(error, LS_ECONFIG, "the prefix is longer than %zu bytes",
                            sizeof s3->prefix - 2);
    snprintf(s3->prefix, sizeof s3->prefix, "%s%s", key, *key ? "/" : "");
    return probe(place, error);
}
