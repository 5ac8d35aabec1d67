/* Reads elements of a checkpoint's tensors out of the pieces that hold them. Files are mapped when
 * they are first needed; a piece is compared with its digest before anything of it is given away.
 */
#include "ckpt/format.h"
#include "ckpt/read_ahead.h"

#include <lockstep/base/meter.h>

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
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

/* At most PORTION_BYTES. */
static void portion_take(struct reading *reading, const unsigned char *from, size_t bytes)
{
    int64_t count = (int64_t)(bytes / reading->element);
    memcpy(reading->to, from, bytes);
    if (reading->arrived)
        reading->arrived(reading->user, reading->first, count, reading->to);
    reading->to += bytes;
    reading->first += count;
}

/* In portions, which reading (NULL: nobody) takes from the core's cache: reading a large piece
 * takes a while. ahead: the piece begins there; NULL: it is not there. */
static int digest_of(const unsigned char *data, size_t bytes, struct read_ahead *ahead,
                     struct reading *reading, char text[33], struct ls_error *error)
{
    XXH3_state_t *state = XXH3_createState();
    if (!state)
        return ls_no_memory(error, "for a digest");
    XXH3_128bits_reset(state);
    for (size_t at = 0, portion; at < bytes; at += portion) {
        const unsigned char *from = data + at;
        portion = bytes - at < PORTION_BYTES ? bytes - at : PORTION_BYTES;
        if (ahead)
            portion = (size_t)read_ahead_take(ahead, (int64_t)portion, &from);
        XXH3_128bits_update(state, from, portion);
        if (reading)
            portion_take(reading, from, portion);
        ls_progress_read(portion);
    }
    XXH128_hash_t hash = XXH3_128bits_digest(state);
    ls_digest_hex(&(struct ls_digest){.high = hash.high64, .low = hash.low64}, text);
    XXH3_freeState(state);
    return LS_OK;
}

/* By steps of what the system reads ahead at once, whatever the disk. */
static void bytes_expect(const unsigned char *data, size_t bytes)
{
    enum { STEP_BYTES = 1 << 20 };
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t at = (uintptr_t)data / page * page, end = (uintptr_t)data + bytes;
    for (; at < end; at += STEP_BYTES)
        madvise((void *)at, ls_min(STEP_BYTES, end - at), MADV_WILLNEED);
}

int ckpt_file_touch(struct ckpt_file *file, struct ls_error *error)
{
    char digest[33];
    if (file->map)
        return LS_OK;
    struct ls_safetensors *map = NULL;
    uint64_t size;
    int status = ckpt_file_size(file->path, &size, error);
    status = status ? status : ckpt_map(&map, file->path, error);
    if (!status && map->size != file->size)
        status = ls_error_set(error, LS_ECKPT, "%s: %zu bytes long, expected %llu", file->path,
                              map->size, (unsigned long long)file->size);
    if (!status) /* alone: a page that is missed would bring megabytes behind it */
        bytes_expect(map->bytes, (size_t)file->covered);
    status =
        status ? status : digest_of(map->bytes, (size_t)file->covered, NULL, NULL, digest, error);
    if (!status && strcmp(digest, file->digest))
        status = ls_error_set(error, LS_ECKPT,
                              "%s: the digest of its first %llu bytes is %s, expected %.40s: the "
                              "file is damaged",
                              file->path, (unsigned long long)file->covered, digest, file->digest);
    status = status ? status : ckpt_parse(map, file->path, error);
    if (status) {
        ls_safetensors_close(map);
        return status;
    }
    file->map = map;
    return LS_OK;
}

/* reading: takes all of a piece that is not verified yet. */
static int piece_touch(struct ckpt_opened *opened, const struct ls_stored_tensor *tensor,
                       struct ckpt_piece *piece, struct reading *reading, struct ls_error *error)
{
    struct ckpt_file *file = &opened->files[piece->file];
    const struct ls_tensor_view *view;
    char digest[33];
    if (piece->data)
        return LS_OK;
    int status = ckpt_file_touch(file, error);
    if (status)
        return status;
    status = ls_safetensors_require(file->map, tensor->fqn, tensor->dtype, tensor->dims,
                                    piece->shape, &view, error);
    if (status) {
        ls_error_prefix(error, "%s", file->path);
        return status;
    }
    bool is_ahead = reading && piece->ahead && read_ahead_begin(opened->ahead, piece->ahead);
    piece->ahead = 0;
    status =
        digest_of(view->data, view->bytes, is_ahead ? opened->ahead : NULL, reading, digest, error);
    if (!status && strcmp(digest, piece->digest))
        return ls_error_set(error, LS_ECKPT,
                            "%s: tensor %.200s: the digest is %s, expected %.40s: the file is "
                            "damaged",
                            file->path, tensor->fqn, digest, piece->digest);
    if (!status && !is_ahead) /* else the map's bytes were not looked at */
        piece->data = view->data;
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

/* Whether the system has it in memory, by its first, middle and last page. */
static bool is_cached(const unsigned char *data, size_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    bool cached = true;
    for (size_t i = 0; i < 3 && cached; i++) {
        uintptr_t at = ((uintptr_t)data + (bytes - 1) * i / 2) / page * page;
        unsigned char there = 1;
        cached = mincore((void *)at, 1, &there) || there & 1;
    }
    return cached;
}

/* Whether the piece is read past the page cache. */
static bool piece_read_ahead(struct ckpt_opened *opened, const struct ckpt_file *file,
                             const struct ls_tensor_view *view, struct ckpt_piece *piece)
{
    const unsigned char *data = view->data;
    int64_t offset = data - file->map->bytes;
    if (view->bytes < READ_AHEAD_BYTES_MIN || !view->dtype_known ||
        offset % (int64_t)ls_dtype_bytes(view->dtype) || is_cached(data, view->bytes))
        return false;
    opened->ahead = opened->ahead ? opened->ahead : read_ahead_new();
    if (opened->ahead)
        piece->ahead =
            read_ahead_add(opened->ahead, file->path, offset, (int64_t)view->bytes, data);
    return piece->ahead != 0;
}

/* alone: nobody else reads it, and all of it is taken. */
static void piece_expect(struct ckpt_opened *opened, const struct ls_stored_tensor *tensor,
                         struct ckpt_piece *piece, bool alone)
{
    struct ckpt_file *file = &opened->files[piece->file];
    if (ckpt_file_touch(file, NULL)) /* whoever reads it is told */
        return;
    const struct ls_tensor_view *view = ls_safetensors_find(file->map, tensor->fqn);
    if (view && !(alone && piece_read_ahead(opened, file, view, piece)))
        bytes_expect(view->data, view->bytes);
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
        if (piece && !piece->expected && !piece->data)
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
    bool streams = reading->to && !piece->data && run == piece_elements(tensor, piece);
    int status = piece_touch(opened, tensor, piece, streams ? reading : NULL, error);
    if (status || streams || !reading->to)
        return status;
    const unsigned char *from = piece->data + (size_t)at * reading->element;
    for (; bytes > 0; from += portion, bytes -= portion) {
        portion = ls_min(bytes, PORTION_BYTES);
        portion_take(reading, from, portion);
    }
    return LS_OK;
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
    if (status == LS_ECKPT)
        checkpoint->damaged = true;
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
        ls_stored_tensor_forget(&list[i]);
        ls_meter("tensors", (int64_t)i + 1, (int64_t)count);
    }
    return status;
}

void ls_stored_tensor_forget(const struct ls_stored_tensor *tensor)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < tensor->count; i++) {
        const struct ckpt_piece *piece = &tensor->pieces[i];
        size_t bytes = ls_dtype_bytes(tensor->dtype) * (size_t)piece_elements(tensor, piece);
        if (!piece->data)
            continue;
        uintptr_t begin = (uintptr_t)piece->data, first = begin / page * page;
        madvise((void *)first, begin + bytes - first, MADV_DONTNEED); /* a hint */
    }
}

size_t ls_checkpoint_tensors(const struct ls_checkpoint *checkpoint, enum ls_checkpoint_part part,
                             const struct ls_stored_tensor **list)
{
    const struct ckpt_opened *opened = (const struct ckpt_opened *)checkpoint;
    *list = opened->tensors[part];
    return opened->tensor_count[part];
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
