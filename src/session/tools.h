/* What the verbs without ranks share: plans, comparisons, files. */
#ifndef SESSION_TOOLS_H
#define SESSION_TOOLS_H

#include "session/session_private.h"

#include <lockstep/base/file.h>

extern const struct verb verbs_plan[], verbs_compare[], verbs_files[];

/* FILE.yaml of the option "config", and over it the keys of "keys", which win and stay where a
 * search would choose; resolved. plan: needs no data; where they are not there, the configuration
 * without them. */
int tool_config(struct ls_session *session, bool plan, struct ls_config *config,
                struct ls_error *error);

/* What write writes, as a text of the answer. */
int tool_answer_text(struct ls_session *session, const char *key, ls_writer *write,
                     const void *context, struct ls_error *error);

/* A list of texts, borrowed, [*count]; to be freed. LS_EINVAL says what is expected. */
int tool_need_texts(struct ls_session *session, const char *name, const char *expected,
                    const char ***texts, int *count, struct ls_error *error);

#endif
