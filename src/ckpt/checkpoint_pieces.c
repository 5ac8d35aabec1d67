/* Reads elements of a checkpoint's tensors out of the pieces that hold them. Files are opened when
 * they are first needed; a piece is compared with its digest before anything of it is given away.
 */
#include "ckpt/format.h"
#include "ckpt/read_ahead.h"

#include <lockstep/base/meter.h>

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { PORTION_BYTES = 512 << 10 };

/* Where what is read goes. */
struct reading {
    char *to; /* NULL: nowhere */
    int64_t first;
    size_t element; /* bytes */
    ls_checkpoint_arrived *arrived;
    void *user;
};

/* So many bytes are where they go to. */
static void portion_told(struct reading *reading, size_t bytes)
{
    int64_t count = (int64_t)(bytes / reading->element);
    if (reading->arrived)
        reading->arrived(reading->user, reading->first, count, reading->to);
    reading->to += bytes;
    reading->first += count;
}

/* Of a file's bytes from `at` on the next of a portion: *bytes becomes how many. ahead (NULL: not)
 * may have them. */
static int portion_read(struct ls_stored_file *file, int64_t at, size_t *bytes,
                        struct read_ahead *ahead, char *to, struct ls_error *error)
{
    const unsigned char *there = NULL;
    if (ahead)
        *bytes = (size_t)read_ahead_take(ahead, (int64_t)*bytes, &there);
    if (!there)
        return ls_stored_file_read(file, at, (int64_t)*bytes, to, error);
    memcpy(to, there, *bytes);
    return LS_OK;
}

/* Of a file's bytes from `at` on, which go to reading (NULL: nowhere) in portions: reading a large
 * piece takes a while. ahead: begins with them; NULL: it does not have them. */
static int digest_of(struct ls_stored_file *file, int64_t at, size_t bytes,
                     struct read_ahead *ahead, struct reading *reading, char text[33],
                     struct ls_error *error)
{
    XXH3_state_t *state = XXH3_createState();
    char *room = reading ? NULL : malloc(ls_min(bytes, PORTION_BYTES) + 1);
    int status = state && (reading || room) ? LS_OK : ls_no_memory(error, "for a digest");
    if (!status)
        XXH3_128bits_reset(state);
    for (size_t done = 0, portion; done < bytes && !status; done += portion) {
        char *to = reading ? reading->to : room;
        portion = ls_min(bytes - done, PORTION_BYTES);
        status = portion_read(file, at + (int64_t)done, &portion, ahead, to, error);
        if (status)
            break;
        ckpt_digest_add(state, to, portion);
        if (reading)
            portion_told(reading, portion);
        ls_progress_read(portion);
    }
    if (!status) {
        XXH128_hash_t hash = XXH3_128bits_digest(state);
        ls_digest_hex(&(struct ls_digest){.high = hash.high64, .low = hash.low64}, text);
    }
    free(room);
    XXH3_freeState(state);
    return status;
}

/* The size and the digest of its header. */
static int header_check(const struct ckpt_file *file, struct ls_stored_file *opened,
                        struct ls_error *error)
{
    char digest[33];
    uint64_t size = (uint64_t)ls_stored_file_bytes(opened);
    if (size != file->size)
        return ls_error_set(error, LS_ECKPT, "%s: %llu bytes long, expected %llu", file->path,
                            (unsigned long long)size, (unsigned long long)file->size);
    /* That alone: a page that is missed would bring megabytes behind it. */
    ls_stored_file_expect(opened, 0, (int64_t)file->covered);
    int status = digest_of(opened, 0, (size_t)file->covered, NULL, NULL, digest, error);
    return status || !strcmp(digest, file->digest)
               ? status
               : ls_error_set(error, LS_ECKPT,
                              "%s: the digest of its first %llu bytes is %s, expected %.40s: the "
                              "file is damaged",
                              file->path, (unsigned long long)file->covered, digest, file->digest);
}

int ckpt_file_touch(struct ckpt_file *file, struct ls_error *error)
{
    struct ls_stored_file *opened;
    uint64_t size;
    if (file->tensors)
        return LS_OK;
    int status = ckpt_file_size(file->path, &size, error);
    status = status ? status : ls_stored_file_open(&opened, file->path, LS_ECKPT, error);
    if (status)
        return status;
    status = header_check(file, opened, error);
    if (!status)
        return ckpt_parse(&file->tensors, opened, error);
    ls_stored_file_close(opened);
    return status;
}

/* reading: takes all of a piece that is not verified yet. */
static int piece_touch(struct ckpt_opened *opened, const struct ls_stored_tensor *tensor,
                       struct ckpt_piece *piece, struct reading *reading, struct ls_error *error)
{
    struct ckpt_file *file = &opened->files[piece->file];
    const struct ls_tensor_view *view;
    char digest[33];
    if (piece->at)
        return LS_OK;
    int status = ckpt_file_touch(file, error);
    if (status)
        return status;
    status = ls_safetensors_require(file->tensors, tensor->fqn, tensor->dtype, tensor->dims,
                                    piece->shape, &view, error);
    if (status) {
        ls_error_prefix(error, "%s", file->path);
        return status;
    }
    bool is_ahead = reading && piece->ahead && read_ahead_begin(opened->ahead, piece->ahead);
    piece->ahead = 0;
    status = digest_of(file->tensors->file, view->at, view->bytes, is_ahead ? opened->ahead : NULL,
                       reading, digest, error);
    if (!status && strcmp(digest, piece->digest))
        return ls_error_set(error, LS_ECKPT,
                            "%s: tensor %.200s: the digest is %s, expected %.40s: the file is "
                            "damaged",
                            file->path, tensor->fqn, digest, piece->digest);
    if (!status && !is_ahead) /* else what the page cache has was not looked at */
        piece->at = view->at;
    return status;
}

static int64_t piece_elements(const struct ls_stored_tensor *tensor, const struct ckpt_piece *piece)
{
    int64_t elements = 1;
    for (int dim = 0; dim < tensor->dims; dim++)
        elements *= piece->shape[dim];
    return elements;
}

/* Where element `index` lies in the piece, and *run, how many of the whole's follow on from there
 * in it; -1: not in this piece. */
static int64_t locate(const struct ls_stored_tensor *tensor, const struct ckpt_piece *piece,
                      const int64_t *index, int64_t *run)
{
    int64_t at = 0, inner = 1;
    bool follows = true; /* the piece has all of the dims below */
    for (int dim = 0; dim < tensor->dims; dim++) {
        int64_t in = index[dim] - piece->offset[dim];
        if (in < 0 || in >= piece->shape[dim])
            return -1;
        at = at * piece->shape[dim] + in;
    }
    *run = 1;
    for (int dim = tensor->dims - 1; dim >= 0 && follows; dim--) {
        int64_t in = index[dim] - piece->offset[dim];
        *run += (piece->shape[dim] - in - 1) * inner;
        inner *= piece->shape[dim];
        follows = piece->shape[dim] == tensor->shape[dim];
    }
    return at;
}

/* The piece that has the element, looked for from *from on; NULL: none has. */
static struct ckpt_piece *find(const struct ls_stored_tensor *tensor, int64_t element, size_t *from,
                               int64_t *at, int64_t *run)
{
    int64_t index[LS_TENSOR_DIMS_MAX];
    for (int dim = tensor->dims - 1; dim >= 0; dim--) {
        index[dim] = element % tensor->shape[dim];
        element /= tensor->shape[dim];
    }
    for (size_t i = 0; i < tensor->count; i++) {
        struct ckpt_piece *piece = &tensor->pieces[(*from + i) % tensor->count];
        *at = locate(tensor, piece, index, run);
        if (*at >= 0) {
            *from = (*from + i) % tensor->count;
            return piece;
        }
    }
    return NULL;
}

void ls_checkpoint_need(const struct ls_stored_tensor *tensor, int64_t first, int64_t count,
                        bool *needed)
{
    size_t from = 0;
    while (count > 0) {
        int64_t at = 0, run = 1;
        const struct ckpt_piece *piece = find(tensor, first, &from, &at, &run);
        if (piece)
            needed[piece->file] = true;
        run = ls_min(run, count);
        first += run;
        count -= run;
    }
}

/* Whether the piece is read past the page cache. */
static bool piece_read_ahead(struct ckpt_opened *opened, const struct ckpt_file *file,
                             const struct ls_tensor_view *view, struct ckpt_piece *piece)
{
    int64_t bytes = (int64_t)view->bytes;
    if (bytes < READ_AHEAD_BYTES_MIN || !view->dtype_known ||
        view->at % (int64_t)ls_dtype_bytes(view->dtype) ||
        ls_stored_file_cached(file->tensors->file, view->at, bytes))
        return false;
    opened->ahead = opened->ahead ? opened->ahead : read_ahead_new();
    if (opened->ahead)
        piece->ahead = read_ahead_add(opened->ahead, file->path, view->at, bytes);
    return piece->ahead != 0;
}

/* alone: nobody else reads it, and all of it is taken. */
static void piece_expect(struct ckpt_opened *opened, const struct ls_stored_tensor *tensor,
                         struct ckpt_piece *piece, bool alone)
{
    struct ckpt_file *file = &opened->files[piece->file];
    if (ckpt_file_touch(file, NULL)) /* whoever reads it is told */
        return;
    const struct ls_tensor_view *view = ls_safetensors_find(file->tensors, tensor->fqn);
    if (view && !(alone && piece_read_ahead(opened, file, view, piece)))
        ls_stored_file_expect(file->tensors->file, view->at, (int64_t)view->bytes);
}

void ls_checkpoint_expect(struct ls_checkpoint *checkpoint, const struct ls_stored_tensor *tensor,
                          int64_t first, int64_t count, bool alone)
{
    struct ckpt_opened *opened = (struct ckpt_opened *)checkpoint;
    size_t from = 0;
    while (count > 0) {
        int64_t at, run = 1;
        struct ckpt_piece *piece = find(tensor, first, &from, &at, &run);
        run = ls_min(run, count);
        if (piece && !piece->expected && !piece->at)
            piece_expect(opened, tensor, piece, alone && run == piece_elements(tensor, piece));
        if (piece)
            piece->expected = true;
        first += run;
        count -= run;
    }
}

/* `run` elements of a piece, from `at` on. */
static int piece_take(struct ckpt_opened *opened, const struct ls_stored_tensor *tensor,
                      struct ckpt_piece *piece, int64_t at, int64_t run, struct reading *reading,
                      struct ls_error *error)
{
    size_t bytes = (size_t)run * reading->element, portion;
    bool streams = reading->to && !piece->at && run == piece_elements(tensor, piece);
    int status = piece_touch(opened, tensor, piece, streams ? reading : NULL, error);
    if (status || streams || !reading->to)
        return status;
    struct ls_stored_file *file = opened->files[piece->file].tensors->file;
    int64_t from = piece->at + at * (int64_t)reading->element;
    for (; bytes > 0 && !status; from += (int64_t)portion, bytes -= portion) {
        portion = ls_min(bytes, PORTION_BYTES);
        status = ls_stored_file_read(file, from, (int64_t)portion, reading->to, error);
        if (!status)
            portion_told(reading, portion);
    }
    return status;
}

int ls_checkpoint_take(struct ls_checkpoint *checkpoint, const struct ls_stored_tensor *tensor,
                       int64_t first, int64_t count, void *values, ls_checkpoint_arrived *arrived,
                       void *user, struct ls_error *error)
{
    struct ckpt_opened *opened = (struct ckpt_opened *)checkpoint;
    struct reading reading = {values, first, ls_dtype_bytes(tensor->dtype), arrived, user};
    size_t from = 0;
    int status = LS_OK;
    while (count > 0 && !status) {
        int64_t at = 0, run = 0;
        struct ckpt_piece *piece = find(tensor, first, &from, &at, &run);
        run = ls_min(run, count);
        if (piece)
            status = piece_take(opened, tensor, piece, at, run, &reading, error);
        else
            status =
                ls_error_set(error, LS_ECKPT, "%s: tensor %.200s: no piece has its element %lld",
                             checkpoint->directory, tensor->name, (long long)first);
        first += run;
        count -= run;
    }
    if (status == LS_ECKPT) /* of several threads any */
        __atomic_store_n(&checkpoint->damaged, true, __ATOMIC_RELAXED);
    return status;
}

int ls_checkpoint_read(struct ls_checkpoint *checkpoint, const struct ls_stored_tensor *tensor,
                       int64_t first, int64_t count, void *values, struct ls_error *error)
{
    return ls_checkpoint_take(checkpoint, tensor, first, count, values, NULL, NULL, error);
}

int ls_checkpoint_verify(struct ls_checkpoint *checkpoint, enum ls_checkpoint_part part,
                         struct ls_error *error)
{
    const struct ls_stored_tensor *list;
    size_t count = ls_checkpoint_tensors(checkpoint, part, &list);
    int status = LS_OK;
    for (size_t i = 0; i < count && !status; i++) {
        int64_t elements = 1;
        for (int dim = 0; dim < list[i].dims; dim++)
            elements *= list[i].shape[dim];
        status = ls_checkpoint_read(checkpoint, &list[i], 0, elements, NULL, error);
        ls_meter("tensors", (int64_t)i + 1, (int64_t)count);
    }
    return status;
}

size_t ls_checkpoint_tensors(const struct ls_checkpoint *checkpoint, enum ls_checkpoint_part part,
                             const struct ls_stored_tensor **list)
{
    const struct ckpt_opened *opened = (const struct ckpt_opened *)checkpoint;
    *list = opened->tensors[part];
    return opened->tensor_count[part];
}

int64_t ls_checkpoint_files(const struct ls_checkpoint *checkpoint)
{
    return (int64_t)((const struct ckpt_opened *)checkpoint)->file_count;
}

static int by_name(const void *name, const void *tensor)
{
    return strcmp(name, ((const struct ls_stored_tensor *)tensor)->name);
}

int ls_checkpoint_require(const struct ls_checkpoint *checkpoint, enum ls_checkpoint_part part,
                          const char *name, enum ls_dtype dtype, int dims, const int64_t *shape,
                          const struct ls_stored_tensor **tensor, struct ls_error *error)
{
    const struct ls_stored_tensor *list, *found;
    size_t count = ls_checkpoint_tensors(checkpoint, part, &list);
    found = bsearch(name, list, count, sizeof *list, by_name);
    int status =
        ckpt_expect(name, found ? ls_dtype_name(found->dtype) : NULL, found ? found->dims : 0,
                    found ? found->shape : NULL, dtype, dims, shape, error);
    *tensor = status ? NULL : found;
    return status;
}
