/* The arena: memory taken once and cut from front to back, or only counted. */
#include <lockstep/device.h>

#include <sys/mman.h>

void ls_arena_measure(struct ls_arena *arena)
{
    *arena = (struct ls_arena){.measuring = true};
}

static int block_map(struct ls_arena *arena, size_t size, int protection, struct ls_error *error)
{
    *arena = (struct ls_arena){.size = size};
    if (size == 0)
        return LS_OK;
    void *block = mmap(NULL, size, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (block == MAP_FAILED)
        return ls_error_set(error, LS_ENOMEM, "cannot reserve %.1f MiB of memory",
                            (double)size / 0x1p20);
    arena->base = block;
    return LS_OK;
}

int ls_arena_init(struct ls_arena *arena, size_t size, struct ls_error *error)
{
    int status = block_map(arena, size, PROT_READ | PROT_WRITE, error);
    /* Huge pages where the system grants them; refusal costs only speed. */
    if (arena->base)
        madvise(arena->base, size, MADV_HUGEPAGE);
    return status;
}

int ls_arena_reserve(struct ls_arena *arena, size_t size, struct ls_error *error)
{
    int status = block_map(arena, size, PROT_NONE, error);
    arena->measuring = true;
    return status;
}

void ls_arena_release(struct ls_arena *arena)
{
    if (arena->base)
        munmap(arena->base, arena->size);
    *arena = (struct ls_arena){0};
}

enum { PIECE_ALIGN = 64, ALIGN_MAX = 4096 }; /* a block begins at a page */

/* a rounded up to align, a power of two. */
static size_t round_up(size_t a, size_t align)
{
    LS_ASSERT(a <= SIZE_MAX - (align - 1));
    return (a + align - 1) & ~(align - 1);
}

void *ls_arena_take_aligned(struct ls_arena *arena, size_t bytes, size_t align)
{
    LS_ASSERT(align >= PIECE_ALIGN && align <= ALIGN_MAX && ls_is_pow2((int64_t)align));
    LS_ASSERT(align == PIECE_ALIGN || (uintptr_t)arena->base % align == 0);
    size_t offset = round_up(arena->used, align);
    size_t end;
    LS_ASSERT(ls_size_add(offset, bytes, &end));
    end = round_up(end, PIECE_ALIGN);
    LS_ASSERT((arena->measuring && !arena->base) || end <= arena->size);
    arena->used = end;
    if (arena->peak < end)
        arena->peak = end;
    return arena->base ? arena->base + offset : NULL;
}

void *ls_arena_take(struct ls_arena *arena, size_t bytes)
{
    return ls_arena_take_aligned(arena, bytes, PIECE_ALIGN);
}

void ls_arena_reset(struct ls_arena *arena, size_t mark)
{
    LS_ASSERT(mark <= arena->used);
    arena->used = mark;
}
