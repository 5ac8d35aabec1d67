/* lockstep/compare/diff.h - two runs of a recipe: the first step, and the first tensor, in which
 * they diverge.
 *
 *     ls_diff_open(&diff, a, b, false, error)        reads both runs and compares their records
 *     ls_diff_rerun(&diff, told, user, error)        both again, if losses or hashes differ
 *     ls_diff_release(&diff)
 *
 * doc/verify.md says how to read the result. Everything here is Local: ranks are threads of this
 * process, and nothing is written. */
#ifndef LOCKSTEP_COMPARE_DIFF_H
#define LOCKSTEP_COMPARE_DIFF_H

#include <lockstep/compare.h>

LS_C_BEGIN

struct ls_diff_run {
    struct ls_run_record record;
    /* Where it is computed again from: after this step, from this checkpoint ("": the seed). That
     * is the newest at which both runs are equal. Without one, and for two recipes, each run is
     * computed from its own beginning. */
    int64_t from;
    char checkpoint[PATH_MAX];
    struct ls_rerun *again;      /* NULL until ls_diff_rerun */
    struct ls_rerun_check check; /* of again beside the record */
};
struct ls_diff {
    struct ls_diff_run run[2];
    char recipe[700];               /* the keys in which the recipes differ; "": one recipe */
    struct ls_run_difference found; /* of the records; step 0: they agree */
    int64_t step;                   /* the first step in which the reruns diverge, 0: none */
    char tensor[256];               /* its first tensor */
};

/* Zero diff first; release it in any case. LS_ECONFIG: two recipes, unless forced. LS_EDATA: no
 * step that both recorded. Otherwise as ls_run_record_read. */
int ls_diff_open(struct ls_diff *diff, const char *a, const char *b, bool forced,
                 struct ls_error *error);
/* told is called before each of the two runs (0, 1) is computed, with the bytes of memory that this
 * takes; it may be NULL. LS_ENOTSUP as ls_run_record_repeats; LS_ECKPT: a run went on from a
 * checkpoint of another one that is gone; LS_ENOMEM: a run does not fit this machine. A rank that
 * is given up (ls_world_run) uses nothing that diff holds. */
int ls_diff_rerun(struct ls_diff *diff,
                  void (*told)(void *user, const struct ls_diff *diff, int run, double bytes),
                  void *user, struct ls_error *error);
void ls_diff_release(struct ls_diff *diff);

LS_C_END
#endif
