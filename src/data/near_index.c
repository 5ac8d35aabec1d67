/* Signatures by bands: which were near a given one. */
#include "data/minhash.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { SLOTS_MIN = 1 << 10 };

void data_near_init(struct data_near_index *index, int hashes, int bands, int rows)
{
    *index = (struct data_near_index){.hashes = hashes, .bands = bands, .rows = rows};
}

void data_near_release(struct data_near_index *index)
{
    free(index->signatures);
    free(index->links);
    free(index->seen);
    free(index->tables);
    *index = (struct data_near_index){0};
}

int data_kept_admit(int64_t count, struct ls_error *error)
{
    return count < DATA_KEPT_MAX
               ? LS_OK
               : ls_error_set(error, LS_EDATA,
                              "more than %lld documents are kept: expected at most so many, as "
                              "many as are found again; cut the input into parts (lockstep data "
                              "split), and remove the duplicates of each",
                              (long long)DATA_KEPT_MAX);
}

/* One band of all values: two entries of it would be equal, of which the later one is not kept. */
static bool is_whole(const struct data_near_index *index)
{
    return index->rows == index->hashes;
}

static const uint32_t *band_of(const struct data_near_index *index, const uint32_t *signature,
                               int band)
{
    return signature + (ptrdiff_t)band * index->rows;
}

static const uint32_t *signature_of(const struct data_near_index *index, int64_t entry)
{
    return index->signatures + entry * index->hashes;
}

/* Where the entries with these values of a band are, or may be put. */
static uint32_t *slot_of(const struct data_near_index *index, const uint32_t *signature, int band)
{
    const uint32_t *values = band_of(index, signature, band);
    size_t bytes = (size_t)index->rows * sizeof *values;
    uint32_t *table = index->tables + band * index->slots;
    uint64_t at = XXH3_64bits(values, bytes) & (uint64_t)(index->slots - 1);
    while (table[at] &&
           memcmp(band_of(index, signature_of(index, table[at] - 1), band), values, bytes) != 0)
        at = (at + 1) & (uint64_t)(index->slots - 1);
    return &table[at];
}

static void put(struct data_near_index *index, int64_t entry)
{
    for (int band = 0; band < index->bands; band++) {
        uint32_t *slot = slot_of(index, signature_of(index, entry), band);
        if (index->links)
            index->links[entry * index->bands + band] = *slot;
        *slot = (uint32_t)entry + 1;
    }
}

static int no_memory(const struct data_near_index *index, struct ls_error *error)
{
    return ls_no_memory(error, "for the signatures of %lld documents", (long long)index->count);
}

/* Larger tables, and all entries in them. */
static int grow_tables(struct data_near_index *index, struct ls_error *error)
{
    int64_t slots = ls_max(SLOTS_MIN, 2 * index->slots);
    uint32_t *tables = calloc((size_t)(slots * index->bands), sizeof *tables);
    if (!tables)
        return no_memory(index, error);
    free(index->tables);
    index->tables = tables;
    index->slots = slots;
    for (int64_t entry = 0; entry < index->count; entry++)
        put(index, entry);
    return LS_OK;
}

static bool resize(uint32_t **list, int64_t room, int each)
{
    uint32_t *more = realloc(*list, (size_t)(room * each) * sizeof **list);
    *list = more ? more : *list;
    return more != NULL;
}

int data_near_add(struct data_near_index *index, const uint32_t *signature, struct ls_error *error)
{
    if (index->count == index->room) {
        int64_t room = ls_min(ls_max(256, index->room * 3 / 2), DATA_KEPT_MAX);
        if (!resize(&index->signatures, room, index->hashes) ||
            (!is_whole(index) &&
             (!resize(&index->links, room, index->bands) || !resize(&index->seen, room, 1))))
            return no_memory(index, error);
        index->room = room;
    }
    if (2 * (index->count + 1) > index->slots) {
        int status = grow_tables(index, error);
        if (status)
            return status;
    }
    memcpy(index->signatures + index->count * index->hashes, signature,
           (size_t)index->hashes * sizeof *signature);
    if (index->seen)
        index->seen[index->count] = 0;
    put(index, index->count++);
    return LS_OK;
}

int64_t data_near_bytes(const struct data_near_index *index)
{
    int more = is_whole(index) ? 0 : index->bands + 1;
    return (index->room * (index->hashes + more) + index->slots * index->bands) *
           (int64_t)sizeof(uint32_t);
}

static int equal_values(const uint32_t *a, const uint32_t *b, int count)
{
    int equal = 0;
    for (int i = 0; i < count; i++)
        equal += a[i] == b[i];
    return equal;
}

int64_t data_near_find(struct data_near_index *index, const uint32_t *signature, int equal,
                       int *values)
{
    int64_t first = -1;
    if (index->slots == 0)
        return first;
    if (is_whole(index)) {
        *values = index->hashes;
        return (int64_t)*slot_of(index, signature, 0) - 1;
    }
    if (++index->queries == 0) { /* after 2^32 queries the marks begin again */
        memset(index->seen, 0, (size_t)index->count * sizeof *index->seen);
        index->queries = 1;
    }
    for (int band = 0; band < index->bands; band++)
        for (int64_t at = *slot_of(index, signature, band); at > 0;
             at = index->links[(at - 1) * index->bands + band]) {
            int64_t entry = at - 1;
            if (index->seen[entry] == index->queries || (first >= 0 && entry > first))
                continue;
            index->seen[entry] = index->queries;
            int found = equal_values(signature_of(index, entry), signature, index->hashes);
            if (found >= equal) {
                first = entry;
                *values = found;
            }
        }
    return first;
}
