/* Units of state whose gradients are invented, each element a function of seed, step, leaf,
 * parameter and place: steps without a model. */
#ifndef TEST_STATE_UNIT_H
#define TEST_STATE_UNIT_H

#include <lockstep/state.h>

/* A small model with a tied table; each leaf is one micro-batch. keys: more of them, to NULL; out:
 * where checkpoints go. Not from a rank's thread. */
struct ls_config unit_config(const char *const *keys, const char *out);

/* What the units of a rank share. */
struct seat {
    struct ls_layout layout;
    struct ls_comm *groups[LS_GROUPS];
    struct ls_params params; /* of this rank's part */
    struct ls_ops ops;
    struct ls_tier *tiers[LS_TIER_KINDS]; /* none */
    struct ls_tier_room rooms[LS_TIER_KINDS];
    int64_t rank;
};
/* Collective. config is settled here; edit (may be NULL) changes the layout that it asks for. */
int seat_open(struct seat *seat, struct ls_config *config, void (*edit)(struct ls_layout *),
              struct ls_comm *world, struct ls_error *error);
void seat_close(struct seat *seat);

struct unit {
    struct ls_config config;
    struct ls_state state;
    uint64_t seed;
    double norm; /* of the last step's gradient */
};
/* Local. Before unit_take; the unit's config is settled as the seat's. */
void unit_init(struct unit *unit, const struct ls_config *config, uint64_t seed, struct seat *seat);
/* Collective. First values, each a function of the seed. */
int unit_fill(struct unit *unit, struct ls_error *error);
/* Collective. One step, after which another unit may have its turn. */
int unit_step(struct unit *unit, struct ls_error *error);

#endif
