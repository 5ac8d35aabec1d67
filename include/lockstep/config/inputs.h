/* lockstep/config/inputs.h - what a configuration names: tokens and their tokenizer; and what the
 * directory of a run keeps of them.
 *
 * A run's directory is enough to generate and to evaluate wherever it lies: it has config.yaml,
 * whose paths are relative to it, and in tokenizer/ the tokenizer's files with their digests.
 *
 * Everything here is Local. */
#ifndef LOCKSTEP_CONFIG_INPUTS_H
#define LOCKSTEP_CONFIG_INPUTS_H

#include <lockstep/config.h>
#include <lockstep/data.h>

LS_C_BEGIN

/* A store of that name, read as data.cache.dir says and packed as data.packing says. */
int ls_config_store(const struct ls_config *config, const char *spec, struct ls_token_store **out,
                    struct ls_error *error);
/* The tokens of data.valid, packed as data.packing says. Errors say where the key was given. */
int ls_config_valid(const struct ls_config *config, struct ls_token_store **out,
                    struct ls_error *error);
/* What a run is trained on: the stores of data.train or data.blend, each packed as data.packing
 * says, and which sample of which comes when. */
struct ls_training_source {
    char name[LS_CONFIG_TEXT_BYTES]; /* without folders, as records have it */
    int64_t samples;                 /* of an epoch */
    double epochs;                   /* 0: no limit */
    char digest[33];                 /* of its store, by ls_training_data_digest; "" before */
};
/* The name of an entry's source, of the list of ls_config_sources. Records tell sources apart by
 * it: of two that are called "corpus", in two folders, the later one is "corpus (2)". */
void ls_config_source_named(const struct ls_config_source *entries, int entry,
                            char name[LS_CONFIG_TEXT_BYTES]);
struct ls_training_data {
    int count; /* sources */
    struct ls_training_source *sources;
    struct ls_token_store **stores;
    struct ls_blend *blend;
};
/* Of a resolved configuration. tokenizer: the one of data.tokenizer, where that is set; NULL: the
 * stores' are not compared with it. LS_ECONFIG if they surely differ, weights sum up to 0, or the
 * data ends before the last step; errors say where the key was given. */
int ls_training_data_open(const struct ls_config *config, const struct ls_tokenizer *tokenizer,
                          struct ls_training_data *data, struct ls_error *error);
/* Also after a failure. */
void ls_training_data_close(struct ls_training_data *data);
/* What tells the data from others: ls_token_store_digest of one source, and a digest of those of
 * several, each of which is then in its source. */
int ls_training_data_digest(const struct ls_training_data *data, char text[33],
                            struct ls_error *error);
/* LS_EDATA if the tokens are others than a run recorded: all = the digest of all of them, and
 * each[count] those of sources; "" or NULL: not known. remedy: what to do, the error's last
 * sentence. */
int ls_training_data_check(const struct ls_training_data *data, const struct ls_config *config,
                           const char *all, char (*each)[33], const char *remedy,
                           struct ls_error *error);
/* "data.blend" or "data.train": the key that names what is trained on. */
const char *ls_config_data_key(const struct ls_config *config);
/* Samples of the first `steps` steps of all workers: with a ramp-up of batches fewer than steps x
 * batch.global x workers. */
int64_t ls_config_samples(const struct ls_config *config, int64_t steps);
/* Sources that the configuration names, at least 1. */
int ls_config_source_count(const struct ls_config *config);

/* The tokenizer of data.tokenizer, or of the first store that is trained on; *out NULL (and LS_OK)
 * where the data has none. */
int ls_config_tokenizer(const struct ls_config *config, struct ls_tokenizer **out,
                        struct ls_error *error);
/* LS_ECONFIG if a store that is trained on, or data.valid, was surely made by another tokenizer
 * than that of the model of model.from. What cannot be read is left to who opens it. */
int ls_config_model_tokenizer_check(const struct ls_config *config,
                                    const struct ls_tokenizer *tokenizer, struct ls_error *error);

/* Relative paths of one file or folder (train.out, checkpoint.also, ...; not of data, which is
 * opened at the start) become absolute, so that a run goes on if the working directory changes.
 * They keep their names; one that would be too long, or no UTF-8, stays as it is. */
void ls_config_anchor(struct ls_config *config);

/* What records call a run: the last part of the path of its directory, train.out; of "." and ".."
 * that of the folder that they stand for. */
struct ls_run_name {
    char text[256];
};
struct ls_run_name ls_run_name(const char *out);
/* Writes the tokenizer's files and config.yaml to train.out. tokenizer may be NULL. begun: the run
 * goes on from a checkpoint. LS_ECONFIG if another tokenizer is kept there. */
int ls_kept_write(const struct ls_config *config, const struct ls_tokenizer *tokenizer, bool begun,
                  struct ls_error *error);
/* The resolved configuration of a run, and its tokenizer: NULL if there is none. To be freed,
 * also after a failure. */
int ls_kept_read(const char *run, struct ls_config *config, struct ls_tokenizer **tokenizer,
                 struct ls_error *error);
/* Whether RUN/hf, what came with the model, has the tokenizer that the run keeps, with the same
 * template for chats; true if one of them has none. */
bool ls_kept_hf_fits(const char *run);

LS_C_END
#endif
