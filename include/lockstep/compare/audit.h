/* lockstep/compare/audit.h - steps of a run computed again, and compared with its records.
 *
 *     ls_audit_open(&audit, &request, error)        reads the run, chooses checkpoint and layout
 *     ls_rerun_new(&audit.config, audit.checkpoint, INT64_MAX, audit.to, &again, error)
 *     ls_audit_judge(&audit, again, &verdict, error)
 *
 * doc/audit.md says what this proves. Everything here is Local. */
#ifndef LOCKSTEP_COMPARE_AUDIT_H
#define LOCKSTEP_COMPARE_AUDIT_H

#include <lockstep/compare.h>

LS_C_BEGIN

enum { LS_AUDIT_THREADS_MAX = 8 };

struct ls_audit_request {
    const char *run;         /* its directory, or one of its checkpoints */
    int64_t from, to;        /* steps; 0 and 0: those after the newest checkpoint but one */
    const char *const *keys; /* [key_count] "parallel.tp=2"; where the data lies now may be there */
    int key_count;
    bool whole; /* a replay: all steps from the beginning of the run or, if it went on from another
                 * one that is gone, from the oldest checkpoint of its own. from and to are 0 */
};
/* Borrowed from nobody. */
struct ls_audit {
    struct ls_run_record run;
    struct ls_config config; /* the run's, in the layout that computes */
    int64_t from, to;
    /* Where computing begins: a checkpoint before `from`; "" and 0: the start. */
    char checkpoint[PATH_MAX];
    int64_t checkpoint_step;
};
/* Zero audit first; release it in any case. The layout is that of the keys of kind layout, other
 * such keys having their defaults. Without any it is drawn, the same each time: of those that fit
 * this machine's memory and take at most LS_AUDIT_THREADS_MAX threads, one that differs from the
 * run's in parallel.workers, as many axes, then as many keys, as can be found. If the recipe admits
 * one layout, that.
 *
 * LS_ECONFIG: steps that were not recorded, and keys of the recipe. LS_ELAYOUT: the layout is not
 * admitted. LS_EIO and LS_EDATA: the data are not there, or are not those that the run recorded.
 * LS_ECKPT: a run that went on from another one's checkpoint has none before `from`. */
int ls_audit_open(struct ls_audit *audit, const struct ls_audit_request *request,
                  struct ls_error *error);
void ls_audit_release(struct ls_audit *audit);

struct ls_audit_verdict {
    struct ls_rerun_check check;
    /* A checkpoint strays (ls_recorded_step_strays), of those from where computing begins up to the
     * last step; the first one's step. */
    bool checkpoint_differs;
    int64_t checkpoint_step;
    bool equal; /* nothing differs, and the chain is whole */
};
/* LS_EDATA: nothing was compared, which is no verdict. */
int ls_audit_judge(const struct ls_audit *audit, const struct ls_rerun *again,
                   struct ls_audit_verdict *verdict, struct ls_error *error);

LS_C_END
#endif
