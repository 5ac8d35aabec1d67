/* lockstep/state/unit_snapshots.h - snapshots of units of state that groups of ranks hold
 * (workers).
 *
 * Each unit has a checkpoint of its own, in a folder of its own. The ranks of all groups write and
 * read it together, so that any machine may have a copy of its files, and any group go on from it:
 *
 *     ls_saving_begin_among; ls_saving_keep; if stored, later ls_saving_store_among;
 *     ls_saving_free
 *     ls_state_collect, ls_state_load_collected, ls_checkpoint_close */
#ifndef LOCKSTEP_STATE_UNIT_SNAPSHOTS_H
#define LOCKSTEP_STATE_UNIT_SNAPSHOTS_H

#include <lockstep/ckpt.h>
#include <lockstep/state.h>

LS_C_BEGIN

struct ls_unit_snapshots {
    struct ls_comm *comm; /* the ranks of all groups; first those of the unit's, in their order */
    bool holds; /* this rank is one of these; otherwise only the step of its state is read */
    const char *folder; /* of the unit, on each machine; it exists */
    int64_t start;      /* ls_run_token.start, which the folder has too; 0: not known */
};

/* Collective over of->comm. ls_saving_begin, with the hash of the unit, which the holders give.
 * ls_saving_keep is Collective over of->comm, too. */
int ls_saving_begin_among(struct ls_saving **out, struct ls_state *state,
                          const struct ls_unit_snapshots *of, int64_t newest, int64_t spare,
                          bool stored, const struct ls_digest *hash, struct ls_error *error);
/* Collective over the unit's ranks, of what is stored: ls_saving_store, if status is 0. Otherwise
 * another unit that belongs to it could not be stored: it is given up, and the status returned. */
int ls_saving_store_among(struct ls_saving *saving, int status, struct ls_error *error);
/* Collective over of->comm. ls_checkpoint_collect of what the holders need. */
int ls_state_collect(struct ls_checkpoint **out, struct ls_state *state,
                     const struct ls_unit_snapshots *of, struct ls_checkpoint_saved than,
                     const struct ls_log *log, struct ls_error *error);
/* Collective over the unit's ranks: loads it. LS_ECKPT if it is not what was hashed. */
int ls_state_load_collected(struct ls_state *state, struct ls_checkpoint *checkpoint,
                            struct ls_error *error);

LS_C_END
#endif
