/* Sizes and names of number types; products and sums of sizes that say when they overflow; lists
 * that grow. */
#include <lockstep/base.h>

#include <stdlib.h>

enum { LIST_ROOM_MIN = 64, BYTES_ROOM_MIN = 256 };

static const size_t dtype_bytes[] = {4, 2, 2, 8, 1, 1, 2, 2, 4, 8, 8};
static const char *const dtype_names[] = {"F32", "BF16", "F16", "F64", "U8", "I8",
                                          "U16", "I16",  "I32", "I64", "U64"};

size_t ls_dtype_bytes(enum ls_dtype dtype)
{
    return dtype_bytes[dtype];
}
const char *ls_dtype_name(enum ls_dtype dtype)
{
    return dtype_names[dtype];
}

bool ls_size_mul(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}
bool ls_size_add(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

bool ls_list_grow(void *list, int64_t count, int64_t *room, size_t bytes)
{
    void **at = list;
    size_t size;
    if (count < *room)
        return true;
    int64_t wanted = ls_max(2 * *room, LIST_ROOM_MIN);
    void *grown = ls_size_mul((size_t)wanted, bytes, &size) ? realloc(*at, size) : NULL;
    if (!grown)
        return false;
    *at = grown;
    *room = wanted;
    return true;
}

bool ls_bytes_grow(void *bytes, size_t need, size_t *room)
{
    void **at = bytes;
    if (need <= *room)
        return true;
    size_t half = *room + *room / 2, wanted = half > need ? half : need;
    wanted = wanted < BYTES_ROOM_MIN ? BYTES_ROOM_MIN : wanted;
    void *grown = realloc(*at, wanted);
    if (!grown)
        return false;
    *at = grown;
    *room = wanted;
    return true;
}
