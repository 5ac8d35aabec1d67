/* lockstep/compare/verify.h - a recipe in many layouts, each against one rank.
 *
 *     ls_verify_open(&verify, &request, error)       checks the recipe, settles its arithmetic
 *     ls_verify_run(&verify, error)                  trains one rank, then each layout; tells of
 * each ls_verify_release(&verify)
 *
 * doc/verify.md says what this proves. All of it is Local: ranks are threads of this process. */
#ifndef LOCKSTEP_COMPARE_VERIFY_H
#define LOCKSTEP_COMPARE_VERIFY_H

#include <lockstep/compare.h>

LS_C_BEGIN

/* What became of a layout. */
enum ls_verified_as {
    LS_VERIFY_BEGINS, /* nothing yet: it is about to be trained */
    LS_VERIFY_EQUAL,
    LS_VERIFY_DIFFERS,
    LS_VERIFY_FAILED,
};
struct ls_verified {
    enum ls_verified_as as;
    const struct ls_config *config; /* in that layout; borrowed for the call */
    int64_t number;                 /* 0: one rank, which all are held against; then from 1 */
    char layout[1024];              /* its keys, as on a command line, or "one rank" */
    double bytes, seconds;          /* that it takes of this machine's memory; that it took */
    int64_t step;                   /* DIFFERS: the first step that does, */
    uint32_t loss_bits, one_bits;   /* the bits of its loss here and on one rank, */
    char tensor[256];               /* and the first tensor, or why that is not known */
    bool traced;
    struct ls_digest hash; /* of number 0: of the state after the last step */
    char why[1024];        /* FAILED */
};

struct ls_verify_request {
    const struct ls_config *config; /* resolved */
    int64_t layouts, ranks, steps;  /* to try; the most of a layout; to train */
    uint64_t seed;                  /* of what is drawn */
    const volatile int *stop;       /* not zero: no further layout is begun; may be NULL */
    void (*told)(void *user, const struct ls_verified *layout);
    void *user;
};
struct ls_verify {
    struct ls_verify_request request; /* borrowed config */
    struct ls_config config, one;
    struct ls_proof *reference, *proof; /* [steps] */
    uint64_t *seen;                     /* [layouts + 2]: hashes of the layouts' texts */
    struct ls_draw_cover cover;
    int64_t ran, differ, failed, too_large; /* too_large: for this machine's memory, left out */
};

/* Zero verify first; release it in any case. LS_ECONFIG: no data,
 * numerics.mode=fast, async.order=clock without async.follow. */
int ls_verify_open(struct ls_verify *verify, const struct ls_verify_request *request,
                   struct ls_error *error);
/* LS_OK also if layouts differ or fail: the counts say so. LS_ECOMM ends it, and so does a rank
 * that did not return (LS_CAUSE_GIVEN_UP): its thread goes on, with nothing of what verify holds,
 * and the process should end soon. LS_ESTOPPED. */
int ls_verify_run(struct ls_verify *verify, struct ls_error *error);
/* Whether the recipe admits no layout that cuts anything but the list of layers, of those that were
 * drawn. */
bool ls_verify_only_pipelines(const struct ls_verify *verify);
void ls_verify_release(struct ls_verify *verify);

LS_C_END
#endif
