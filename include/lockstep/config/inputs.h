/* lockstep/config/inputs.h - what a configuration names: tokens and their tokenizer; and what the
 * directory of a run keeps of them.
 *
 * A run's directory is enough to generate and to evaluate wherever it lies: it has config.yaml,
 * whose paths are relative to it, and in tokenizer/ the tokenizer's files with their digests.
 *
 * Everything here is Local.
 */
#ifndef LOCKSTEP_CONFIG_INPUTS_H
#define LOCKSTEP_CONFIG_INPUTS_H

#include <lockstep/config.h>
#include <lockstep/data.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The tokens that the key of that name tells of: "data.train" or "data.valid", packed as
 * data.packing says. Errors say where the key was given. */
int ls_config_tokens(const struct ls_config *config, const char *key, struct ls_token_store **out,
                     struct ls_error *error);
/* Samples of the store hold what data.packing says; of data.train and data.valid they do. */
int ls_config_pack(const struct ls_config *config, struct ls_token_store *store,
                   struct ls_error *error);
/* The tokenizer of data.tokenizer or of data.train; *out NULL (and LS_OK) where the data has none.
 */
int ls_config_tokenizer(const struct ls_config *config, struct ls_tokenizer **out,
                        struct ls_error *error);

/* What records call a run: the last part of the path of its directory, train.out. */
struct ls_run_name {
    char text[256];
};
struct ls_run_name ls_run_name(const char *out);
/* Writes the tokenizer's files and config.yaml to train.out. tokenizer may be NULL. begun: the run
 * goes on from a checkpoint. LS_ECONFIG where another tokenizer is kept there. */
int ls_kept_write(const struct ls_config *config, const struct ls_tokenizer *tokenizer, bool begun,
                  struct ls_error *error);
/* The resolved configuration of a run, and its tokenizer: NULL where there is none. To be freed,
 * also after a failure. */
int ls_kept_read(const char *run, struct ls_config *config, struct ls_tokenizer **tokenizer,
                 struct ls_error *error);

#ifdef __cplusplus
}
#endif
#endif
