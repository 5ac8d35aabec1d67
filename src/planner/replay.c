/* Replays: the buffers on which recorded works are run again. Operands that a step finds in memory
 * go round a ring; what flows from op to op is found among the last outputs. */
#include "planner/replay.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGN = 4096 };
#define NOWHERE ((void *)(uintptr_t)64) /* of what is only counted */

/* ---- buffers --------------------------------------------------------------------------------- */

static bool is_taken(const struct ls_replay *r, const unsigned char *at, size_t bytes, size_t *end)
{
    for (int i = 0; i < r->taken_count; i++) {
        const struct replay_span *span = &r->taken[i];
        if (at < span->at + span->bytes && span->at < at + bytes) {
            *end = (size_t)(span->at + span->bytes - r->write.base);
            return true;
        }
    }
    return false;
}

static void *note(struct ls_replay *r, unsigned char *at, size_t bytes)
{
    LS_ASSERT(r->taken_count < REPLAY_TAKEN);
    r->taken[r->taken_count++] = (struct replay_span){at, bytes};
    return at;
}

static size_t room_of(size_t bytes)
{
    return (size_t)ls_round_up(ls_max((int64_t)bytes, 1), 64);
}

void *replay_read(struct ls_replay *r, size_t bytes)
{
    bytes = room_of(bytes);
    r->read_need += bytes;
    if (r->measuring)
        return NOWHERE;
    if (r->read_at + bytes > r->read.size)
        r->read_at = 0;
    void *at = r->read.base + r->read_at;
    r->read_at += bytes;
    return at;
}

void *replay_state(struct ls_replay *r, size_t bytes)
{
    size_t end;
    bytes = room_of(bytes);
    r->write_need += bytes;
    if (r->measuring)
        return NOWHERE;
    for (int wraps = 0; wraps < 2;) {
        if (r->write_at + bytes > r->write.size) {
            r->write_at = 0;
            wraps++;
        }
        if (!is_taken(r, r->write.base + r->write_at, bytes, &end))
            break;
        r->write_at = room_of(end);
    }
    unsigned char *at = r->write.base + r->write_at;
    r->write_at += bytes;
    return note(r, at, bytes);
}

void *replay_out(struct ls_replay *r, size_t bytes)
{
    void *at = replay_state(r, bytes);
    if (r->measuring)
        return at;
    memmove(r->recent + 1, r->recent, (REPLAY_RECENT - 1) * sizeof r->recent[0]);
    r->recent[0] = (struct replay_span){at, room_of(bytes)};
    return at;
}

void *replay_flow(struct ls_replay *r, size_t bytes)
{
    size_t end, room = room_of(bytes);
    r->flow_need += room;
    if (r->measuring)
        return NOWHERE;
    for (int i = 0; i < REPLAY_RECENT && !r->alone; i++)
        if (r->recent[i].bytes == room && !is_taken(r, r->recent[i].at, room, &end))
            return note(r, r->recent[i].at, room);
    unsigned char *at = replay_state(r, bytes);
    if (r->alone) {
        const struct ls_work_watch *watch = r->ops.watch;
        r->ops.watch = NULL;
        ls_copy(&r->ops, bytes, replay_read(r, bytes), at);
        r->ops.watch = watch;
    }
    return at;
}

void *replay_flow_part(struct ls_replay *r, size_t bytes)
{
    size_t end, room = room_of(bytes);
    for (int i = 0; i < REPLAY_RECENT && !r->alone && !r->measuring; i++) {
        size_t parts = r->recent[i].bytes / room;
        if (parts < 2)
            continue;
        unsigned char *at = r->recent[i].at + r->turn++ % parts * room;
        if (!is_taken(r, at, room, &end)) {
            r->flow_need += room;
            return note(r, at, room);
        }
    }
    return replay_flow(r, bytes);
}

const int32_t *replay_ids(struct ls_replay *r, int64_t count, int64_t below)
{
    r->ids_need = ls_max(r->ids_need, count);
    if (r->measuring)
        return NOWHERE;
    if (r->ids_below != below)
        r->ids_filled = 0;
    r->ids_below = below;
    for (int64_t i = r->ids_filled; i < count; i++)
        r->ids[i] = (int32_t)((uint64_t)i * 2654435761u % (uint64_t)below);
    r->ids_filled = ls_max(r->ids_filled, count);
    return r->ids;
}

bool replay_begins(struct ls_replay *r)
{
    r->begin_s = ls_now_s();
    return !r->measuring;
}

/* ---- a replay -------------------------------------------------------------------------------- */

/* What the op takes. */
static int measure(struct ls_replay *r, const struct ls_work *work, struct ls_error *error)
{
    r->read_need = r->write_need = r->flow_need = 0;
    r->taken_count = 0;
    r->measuring = true;
    int status = replay_work(r, work, error);
    r->measuring = false;
    r->taken_count = 0;
    return status;
}

/* Between -0.05 and 0.05 in float32, and in 16 bits near that: sums stay of that order. */
static void values_fill(struct ls_replay *r)
{
    float *values = (float *)(void *)r->read.base;
    const int64_t count = (int64_t)(r->read.size / sizeof *values);
    const bool half = r->hints.act != LS_F32;
#pragma omp parallel for num_threads(r->ops.threads) schedule(static)
    for (int64_t i = 0; i < count; i++) {
        float x = ((float)((uint64_t)i * 2654435761u >> 7 & 4095) / 2048 - 1) * 0.05f;
        uint32_t pair = ls_f32_to_half(half ? r->hints.act : LS_BF16, x);
        if (half)
            memcpy(&values[i], &(uint32_t){pair << 16 | pair}, sizeof pair);
        else
            values[i] = x;
    }
    size_t both = r->read.size < r->write.size ? r->read.size : r->write.size;
    memcpy(r->write.base, r->read.base, both);
}

static size_t size_max(size_t a, size_t b)
{
    return a > b ? a : b;
}

int ls_replay_new(const struct ls_replay_options *options, const struct ls_work *works,
                  int64_t count, struct ls_replay **out, struct ls_error *error)
{
    size_t read = options->read_bytes, write = options->write_bytes;
    struct ls_replay *r = calloc(1, sizeof *r);
    *out = NULL;
    if (!r)
        return ls_error_set(error, LS_ENOMEM, "no memory for a replay");
    r->hints = options->hints;
    r->alone = options->alone;
    int status = ls_ops_init(&r->ops, options->threads, options->isa, error);
    r->ops.arithmetic = options->arithmetic;
    for (int64_t i = 0; i < count && !status; i++) {
        status = measure(r, &works[i], error);
        size_t flow = r->flow_need;
        read = size_max(read, r->read_need + flow);
        write = size_max(write, r->write_need + 2 * flow);
    }
    r->ids_count = ls_max(r->ids_need, 1);
    r->ids = calloc((size_t)r->ids_count, sizeof *r->ids);
    if (!r->ids && !status)
        status = ls_error_set(error, LS_ENOMEM, "no memory for tokens of a replay");
    if (!status)
        status = ls_arena_init(&r->read, (size_t)ls_round_up((int64_t)read + ALIGN, ALIGN), error);
    if (!status)
        status =
            ls_arena_init(&r->write, (size_t)ls_round_up((int64_t)write + ALIGN, ALIGN), error);
    if (!status) {
        values_fill(r);
        *out = r;
        return LS_OK;
    }
    ls_replay_free(r);
    return status;
}

void ls_replay_free(struct ls_replay *r)
{
    if (!r)
        return;
    ls_arena_release(&r->read);
    ls_arena_release(&r->write);
    ls_ops_release(&r->ops);
    free(r->ids);
    free(r);
}

struct ls_ops *ls_replay_ops(struct ls_replay *r)
{
    return &r->ops;
}

int ls_replay_run(struct ls_replay *r, const struct ls_work *work, double *seconds,
                  struct ls_error *error)
{
    int status = measure(r, work, error);
    if (status)
        return status;
    /* All that one op takes lies behind each other. */
    if (r->read_at + r->read_need > r->read.size)
        r->read_at = 0;
    if (r->write_at + r->write_need > r->write.size)
        r->write_at = 0;
    status = replay_work(r, work, error);
    *seconds = ls_now_s() - r->begin_s;
    return status;
}
