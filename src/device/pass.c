/* A pass over arrays in tiers: three windows on the device, of which one is worked on, one is being
 * read and one written. */
#include <lockstep/device/pass.h>

void ls_pass_init(struct ls_pass *pass, const size_t lane_bytes[LS_PASS_LANES],
                  struct ls_arena *arena)
{
    *pass = (struct ls_pass){0};
    for (int l = 0; l < LS_PASS_LANES; l++) {
        pass->lane_bytes[l] = (size_t)ls_round_up((int64_t)lane_bytes[l], LS_TIER_ALIGN);
        pass->window_bytes += pass->lane_bytes[l];
    }
    if (pass->window_bytes == 0)
        return;
    pass->buffer = ls_arena_take_aligned(arena, LS_PASS_SETS * pass->window_bytes, LS_TIER_ALIGN);
}

/* A window on the device. */
struct set {
    struct ls_window window;
    struct ls_transfer read[LS_PASS_LANES], write[LS_PASS_LANES];
};

struct pass_state {
    const struct ls_pass *pass;
    const struct ls_pass_work *work;
    struct set sets[LS_PASS_SETS];
    int64_t begun; /* windows */
    bool ended;    /* there are no more */
};

static int transfers_wait(struct ls_transfer transfers[LS_PASS_LANES], struct ls_error *error)
{
    int status = LS_OK;
    for (int l = 0; l < LS_PASS_LANES; l++) {
        int failed = ls_transfer_wait(&transfers[l], status ? NULL : error);
        status = status ? status : failed;
    }
    return status;
}

/* Starts to read the next window into the set that was written longest ago. */
static int window_begin(struct pass_state *run, struct ls_error *error)
{
    int place = (int)(run->begun % LS_PASS_SETS);
    struct set *set = &run->sets[place];
    int status = transfers_wait(set->write, error);
    set->window = (struct ls_window){0};
    if (status || !run->work->window(run->work->user, &set->window)) {
        run->ended = true;
        return status;
    }
    run->begun++;
    const struct ls_pass *pass = run->pass;
    unsigned char *data = pass->buffer + (size_t)place * pass->window_bytes;
    for (int l = 0; l < LS_PASS_LANES && !status; l++) {
        struct ls_lane *lane = &set->window.lane[l];
        LS_ASSERT(lane->bytes <= pass->lane_bytes[l]);
        lane->data = data;
        data += pass->lane_bytes[l];
        if (lane->tier && lane->access & LS_READS)
            status = ls_tier_read(lane->tier, lane->offset, lane->data, lane->bytes, &set->read[l],
                                  error);
    }
    return status;
}

static int window_write(struct set *set, struct ls_error *error)
{
    int status = LS_OK;
    for (int l = 0; l < LS_PASS_LANES && !status; l++) {
        const struct ls_lane *lane = &set->window.lane[l];
        if (lane->tier && lane->access & LS_WRITES)
            status = ls_tier_write(lane->tier, lane->offset, lane->data, lane->bytes,
                                   &set->write[l], error);
    }
    return status;
}

static int window_work(struct pass_state *run, struct set *set, struct ls_error *error)
{
    int status = transfers_wait(set->read, error);
    if (!status)
        status = run->work->work(run->work->user, &set->window, error);
    return status ? status : window_write(set, error);
}

int ls_pass_run(const struct ls_pass *pass, const struct ls_pass_work *work, struct ls_error *error)
{
    struct pass_state run = {.pass = pass, .work = work};
    int status = LS_OK;
    for (int64_t done = 0; !status; done++) {
        while (!status && !run.ended && run.begun < done + LS_PASS_SETS - 1)
            status = window_begin(&run, error);
        if (status || done == run.begun)
            break;
        status = window_work(&run, &run.sets[done % LS_PASS_SETS], error);
    }
    for (int s = 0; s < LS_PASS_SETS; s++) {
        int failed = transfers_wait(run.sets[s].read, status ? NULL : error);
        status = status ? status : failed;
        failed = transfers_wait(run.sets[s].write, status ? NULL : error);
        status = status ? status : failed;
    }
    return status;
}
