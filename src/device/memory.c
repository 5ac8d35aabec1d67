#include <lockstep/device.h>

#include <sys/mman.h>

void ls_arena_measure(struct ls_arena *arena)
{
    *arena = (struct ls_arena){.measuring = true};
}

int ls_arena_init(struct ls_arena *arena, size_t size, struct ls_error *error)
{
    *arena = (struct ls_arena){.size = size};
    if (size == 0)
        return LS_OK;
    void *block = mmap(NULL, size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (block == MAP_FAILED)
        return ls_error_set(error, LS_ENOMEM, "cannot reserve %.1f MiB of memory",
                            (double)size / 0x1p20);
    /* Huge pages where the system grants them; refusal costs only speed. */
    madvise(block, size, MADV_HUGEPAGE);
    arena->base = block;
    return LS_OK;
}

void ls_arena_release(struct ls_arena *arena)
{
    if (arena->base)
        munmap(arena->base, arena->size);
    *arena = (struct ls_arena){0};
}

void *ls_arena_take(struct ls_arena *arena, size_t bytes)
{
    size_t offset = arena->used;
    size_t end;
    LS_ASSERT(ls_size_add(offset, bytes, &end) && end <= SIZE_MAX - 63);
    end = (end + 63) & ~(size_t)63;
    LS_ASSERT(arena->measuring || end <= arena->size);
    arena->used = end;
    if (arena->peak < end)
        arena->peak = end;
    return arena->base ? arena->base + offset : NULL;
}

void ls_arena_reset(struct ls_arena *arena, size_t mark)
{
    LS_ASSERT(mark <= arena->used);
    arena->used = mark;
}
