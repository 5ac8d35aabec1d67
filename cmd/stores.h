/* What the commands of `lockstep data` share: which stores a path means, and bad records. */
#ifndef CMD_STORES_H
#define CMD_STORES_H

#include <lockstep/base.h>

struct cmd_args;
struct ls_corpus_config;

/* Calls visit for the store; or, if path is what `data prepare` was told as --output, for
 * PATH_train and PATH_valid (if it is there). The first failure ends it. */
int stores_each(const char *path, int (*visit)(void *user, const char *store, struct ls_error *),
                void *user, struct ls_error *error);

/* Tells of the first bad records that are passed over; user counts them, an int64_t. */
void records_skipped(void *user, const char *why);
/* Says how many these were, if there were any. */
void records_print_skipped(int64_t count);
/* What commands are told that read records: inputs and --output (LS_ECONFIG if one is missing;
 * output says what the latter is: "--output FILE"), --json-keys, --on-error, --workers. Bad records
 * are told of, and counted in *skipped. */
int records_config(const struct cmd_args *args, const char *output, struct ls_corpus_config *config,
                   int64_t *skipped, struct ls_error *error);
/* --workers, or one for each core. */
int records_workers(const struct cmd_args *args, int *workers, struct ls_error *error);
/* --on-error: whether a bad record is skipped. */
int records_skip(const struct cmd_args *args, bool *skips, struct ls_error *error);

/* Packs them into sequences of so many tokens (ls_store_pack), and prints what came of it. */
int stores_pack(const char *path, int64_t tokens, const volatile int *stop, struct ls_error *error);

#endif
