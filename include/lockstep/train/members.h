/* lockstep/train/members.h - which workers of a run take part in which outer step.
 *
 * With async.mode = diloco all workers take part at first. RUN/members.wanted asks for others: a
 * line such as "0-2,5" or "all". The run takes it up when its workers meet, and records it before
 * it counts, in RUN/members, a line a change:
 *
 *     {"outer_step": 12, "workers": "0-2"}
 *
 * A worker of which a rank died in a job that went on without it (doc/async.md) is named too, for
 * that outer step alone: "lost" took its samples and gave no delta, "renewed" gave its delta and
 * lost its optimizer. Either begins again behind the outer step, as one that joins does.
 *
 *     {"outer_step": 15, "workers": "0-2", "lost": "1"}
 *
 * That is the only input of a run that the recipe does not give. Everything here is Local. */
#ifndef LOCKSTEP_TRAIN_MEMBERS_H
#define LOCKSTEP_TRAIN_MEMBERS_H

#include <lockstep/base.h>

LS_C_BEGIN

enum { LS_MEMBERS_MAX = 258 }; /* workers of a run */
#define LS_MEMBERS_FILE   "members"
#define LS_MEMBERS_WANTED "members.wanted"

/* in[workers] of such a text; false: it is none, or names nobody, or a worker that is not there. */
bool ls_members_parse(const char *text, int workers, bool *in);
/* The shortest such text. */
void ls_members_text(const bool *in, int workers, char *text, size_t bytes);

struct ls_members_change {
    int64_t outer_step;
    const char *workers;
    const char *lost, *renewed; /* "": nobody; otherwise some of the workers, but not all lost */
};
/* Calls visit for each change of RUN/members, whose outer steps ascend; an absent file has none.
 * LS_EDATA names the entry that is no such line. */
typedef void ls_members_visitor(void *user, const struct ls_members_change *change);
int ls_members_each(const char *run, int workers, ls_members_visitor *visit, void *user,
                    struct ls_error *error);

LS_C_END
#endif
