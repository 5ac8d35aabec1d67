/* lockstep/infer/defaults.h - how a model's own folder says that its texts are drawn and end:
 * generation_config.json, and config.json where that is silent, as transformers reads them.
 * Included by lockstep/infer.h. */
#ifndef LOCKSTEP_INFER_DEFAULTS_H
#define LOCKSTEP_INFER_DEFAULTS_H

#include <lockstep/base.h>
#include <lockstep/comm.h>
#include <lockstep/nn.h>

LS_C_BEGIN

enum { LS_ENDS_MAX = 64 };
struct ls_generation_defaults {
    bool sampled; /* `sampling` is the file's: do_sample is there. False means temperature 0 */
    struct ls_sampling sampling;
    int32_t ends[LS_ENDS_MAX]; /* eos_token_id, one or a list */
    int end_count;             /* 0: no file says */
    int64_t tokens;            /* max_new_tokens; 0: the file does not say */
    int64_t length;            /* max_length, with the prompt; 0: it does not say, or tokens does */
    /* "repetition_penalty = 1.1, num_beams = 4": what changes texts, unsupported; "": none */
    char unsupported[400];
};
/* Local. A folder without these files is LS_OK with nothing in *out. With do_sample, a key that is
 * absent has transformers' default: temperature 1, top_k 50, top_p 1. LS_ECONFIG names file, key
 * and what was expected. Ids of vocabulary and above are left out. */
int ls_generation_defaults_read(const char *folder, int64_t vocabulary,
                                struct ls_generation_defaults *out, struct ls_error *error);
/* Collective: rank 0 reads them, because a run's folder may be on its host alone. Of the model of
 * path: another program's folder, or a run, which keeps the files of the model that it began from
 * (RUN/hf); they count where ls_kept_hf_fits. */
int ls_generation_defaults_share(const char *path, int64_t vocabulary, struct ls_comm *world,
                                 struct ls_generation_defaults *out, struct ls_error *error);
/* Local. One more token ends texts, unless it is -1 or does already. */
void ls_generation_ends_add(struct ls_generation_defaults *defaults, int32_t id);

LS_C_END
#endif
