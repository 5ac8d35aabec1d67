/* lockstep/device/pass.h - one pass over arrays that lie in tiers, window by window: while the
 * caller works on one window, the next one is read and the last one written.
 *
 * A window is a range of up to LS_PASS_LANES arrays at once; a lane is its part of one of them. The
 * caller names the windows in their order (window), and works on each of them on the device (work).
 * Everything here is Local. */
#ifndef LOCKSTEP_DEVICE_PASS_H
#define LOCKSTEP_DEVICE_PASS_H

#include <lockstep/device.h>
#include <lockstep/device/tier.h>

LS_C_BEGIN

enum { LS_PASS_LANES = 5, LS_PASS_SETS = 3 };

/* A window's part of one array. Written bytes end at a multiple of LS_TIER_ALIGN or where the array
 * ends, so that no two windows share what a transfer moves. */
struct ls_lane {
    struct ls_tier *tier; /* NULL: nothing moves (while a layout is only recorded) */
    size_t offset, bytes; /* bytes 0: the window has no such lane */
    enum ls_access access;
    void *data; /* set by the pass: its place on the device */
};
struct ls_window {
    int64_t index, from, count; /* the caller's: what the window is of */
    struct ls_lane lane[LS_PASS_LANES];
};

/* Buffers of a pass: a plain value. */
struct ls_pass {
    unsigned char *buffer;            /* [LS_PASS_SETS] windows */
    size_t lane_bytes[LS_PASS_LANES]; /* of the largest window */
    size_t window_bytes;
};
/* Takes LS_PASS_SETS windows of lanes of up to so many bytes from arena, which may be measuring. */
void ls_pass_init(struct ls_pass *pass, const size_t lane_bytes[LS_PASS_LANES],
                  struct ls_arena *arena);

struct ls_pass_work {
    /* The next window; lanes are zero before. False: there is none. */
    bool (*window)(void *user, struct ls_window *window);
    int (*work)(void *user, const struct ls_window *window, struct ls_error *error);
    void *user;
};
/* Goes over all windows. Nothing moves any more when it returns. The first error ends the pass:
 * what was being written is then undefined. */
int ls_pass_run(const struct ls_pass *pass, const struct ls_pass_work *work,
                struct ls_error *error);

LS_C_END
#endif
