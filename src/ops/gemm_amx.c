/* The bf16 matrix product on AMX tiles.
 *
 * Why ours: the order in which one element is summed has to be ours to fix, and the library's
 * changes with m and with the number of threads. Here it is one chain of steps, ascending; the
 * order of the 32 products inside a step is that of one TDPBF16PS (Intel 64 and IA-32 manual,
 * volume 2). */
/* cflags: -mavx512f -mamx-tile -mamx-bf16 -O3 */
#include "ops/gemm_bf16.h"

#if defined(__x86_64__)
#include <immintrin.h>

/* Eight tile registers, each 16 rows of 64 bytes. Constant, because gcc's _tile_loadconfig does not
 * say that it reads the whole of it. */
static const struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config __attribute__((aligned(64))) = {
    .palette = 1,
    .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
    .rows = {16, 16, 16, 16, 16, 16, 16, 16},
};

static void tiles_configure(void)
{
    _tile_loadconfig(&tile_config);
}

/* A block of C is 2 x 2 tile registers, or the upper two where no more rows are wanted. */
static void product(const unsigned char *a, const unsigned char *b, int64_t rows, int64_t steps,
                    const float *from, float *to, struct gemm_ahead ahead)
{
    enum { HALF = 16 * GEMM_EDGE, LD = GEMM_EDGE * sizeof(float) };
    bool whole = rows > 16;
    if (from) {
        _tile_loadd(0, from, LD);
        _tile_loadd(1, from + 16, LD);
        _tile_loadd(2, from + HALF, LD);
        _tile_loadd(3, from + HALF + 16, LD);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t step = 0; step < steps; step++) {
        gemm_fetch(ahead, steps, step);
        /* A passes by L1, B stays there. */
        _tile_stream_loadd(4, a, 64);
        _tile_loadd(6, b, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, b + BF16_TILE_BYTES, 64);
        _tile_dpbf16ps(1, 4, 7);
        if (whole) {
            _tile_stream_loadd(5, a + BF16_TILE_BYTES, 64);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
        a += BF16_BLOCK_BYTES;
        b += BF16_BLOCK_BYTES;
    }
    _tile_stored(0, to, LD);
    _tile_stored(1, to + 16, LD);
    _tile_stored(2, to + HALF, LD);
    _tile_stored(3, to + HALF + 16, LD);
}

static void tiles_release(void)
{
    _tile_release();
}

const struct gemm_kernel gemm_kernel_amx = {.block_bytes = BF16_BLOCK_BYTES,
                                            .chunk_bytes = 32 << 10,
                                            .begin = tiles_configure,
                                            .end = tiles_release,
                                            .pack = bf16_pack,
                                            .product = product};
#endif
