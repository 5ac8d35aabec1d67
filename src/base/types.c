/* Sizes and names of number types; products and sums of sizes that say when they overflow. */
#include <lockstep/base.h>

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
