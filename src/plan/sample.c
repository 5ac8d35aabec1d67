/* Admissible layouts drawn at random. */
#include <lockstep/plan.h>

/* A stream of random numbers for one (seed, index, attempt). */
struct draws {
    struct ls_philox_key key;
    uint32_t counter[4], words[4];
    int used;
};

static struct draws draws_begin(uint64_t seed, uint64_t index, uint32_t attempt)
{
    return (struct draws){.key = ls_philox_key_of(seed, "layout"),
                          .counter = {0, attempt, (uint32_t)index, (uint32_t)(index >> 32)},
                          .used = 4};
}

static int64_t pick(struct draws *d, const int64_t *values, int64_t count)
{
    if (d->used == 4) {
        ls_philox(d->key, d->counter, d->words);
        d->counter[0]++;
        d->used = 0;
    }
    return values[d->words[d->used++] % (uint64_t)count];
}
#define PICK(d, ...)                                                                               \
    pick(d, (const int64_t[]){__VA_ARGS__},                                                        \
         sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

/* An axis: what was asked for at least, or a small size, mostly a power of two. */
static int64_t axis(struct draws *d, int64_t least, int64_t *room)
{
    int64_t size = PICK(d, 1, 1, 1, 1, 2, 2, 2, 3, 4);
    if (size < least)
        size = least * PICK(d, 1, 1, 2);
    *room /= size;
    return size;
}

static void draw(struct draws *d, const struct ls_layout_sample *sample, int64_t ranks_max,
                 struct ls_layout_keys *keys, int64_t *micro_sequences, bool *fits)
{
    int64_t room = ranks_max;
    *keys = (struct ls_layout_keys){0};
    keys->tp = axis(d, sample->least[LS_AXIS_TP], &room);
    keys->cp = axis(d, sample->least[LS_AXIS_CP], &room);
    keys->dp_shard = axis(d, sample->least[LS_AXIS_DP_SHARD], &room);
    keys->dp_replicate = axis(d, sample->least[LS_AXIS_DP_REPLICATE], &room);
    keys->pp = axis(d, sample->least[LS_AXIS_PP], &room);
    *fits = room >= 1;
    keys->sp = keys->tp > 1 ? (int)PICK(d, 0, 1) : 0;
    keys->zero = sample->zero >= 0 ? sample->zero : PICK(d, 0, 1, 2, 3);
    keys->schedule = sample->schedule >= 0 ? sample->schedule
                                           : (int)PICK(d, LS_SCHEDULE_GPIPE, LS_SCHEDULE_1F1B,
                                                       LS_SCHEDULE_INTERLEAVED, LS_SCHEDULE_ZB_H1,
                                                       LS_SCHEDULE_ZBV, LS_SCHEDULE_DUALPIPEV);
    keys->chunks = keys->schedule == LS_SCHEDULE_INTERLEAVED ? PICK(d, 2, 2, 3) : 0;
    keys->cp_method = (int)PICK(d, LS_CP_ALL_GATHER, LS_CP_RING);
    keys->prefetch = PICK(d, 0, 1, 2);
    keys->persist = PICK(d, 0, 0, 100, 2000);
    keys->reshard_after_forward = PICK(d, 0, 1) != 0;
    keys->tp_overlap = PICK(d, 1, 1, 2, 3);
    *micro_sequences = PICK(d, 0, 1, 1, 2, 3, 4, 8);
}

bool ls_layout_sample(const struct ls_layout_request *recipe, const struct ls_layout_sample *sample,
                      struct ls_layout_keys *keys, int64_t *micro_sequences,
                      struct ls_layout *layout)
{
    enum { ATTEMPTS_MAX = 20000 };
    uint32_t attempts = sample->attempts > 0 ? (uint32_t)sample->attempts : ATTEMPTS_MAX;
    for (uint32_t attempt = 0; attempt < attempts; attempt++) {
        struct draws d = draws_begin(sample->seed, sample->index, attempt);
        bool fits;
        draw(&d, sample, sample->ranks_max, keys, micro_sequences, &fits);
        struct ls_layout_request request = *recipe;
        request.keys = keys;
        request.world = 0;
        request.micro_sequences = *micro_sequences;
        /* Without a text: the search for the nearest that works would take most of the time. */
        if (fits && !ls_layout_resolve(&request, layout, NULL))
            return true;
    }
    return false;
}
