/* What the files of the configuration share. */
#ifndef CONFIG_CONFIG_PRIVATE_H
#define CONFIG_CONFIG_PRIVATE_H

#include <lockstep/base/yaml.h>
#include <lockstep/config.h>

/* Index in the table, -1 if no key has this name. */
int config_index(const char *name);
/* The value's place in config. */
void *config_slot(const struct ls_config *config, const struct ls_config_key *key);
/* ls_config_parse into the key's place. */
bool config_parse(struct ls_config *config, const struct ls_config_key *key, const char *text,
                  bool quoted, char *why, size_t bytes);
/* The value in double quotes, as both YAML and JSON read them. */
void config_quote(const char *value, char *text, size_t bytes);
/* Whether the value is a text. */
bool config_is_text(const struct ls_config_key *key);
/* Whether it is a path, or a list of paths. */
bool config_is_path(const struct ls_config_key *key);
/* True if the key has its default value. */
bool config_is_initial(const struct ls_config *config, const struct ls_config_key *key);
/* Resolves ${here} and the alternatives of a path, or of a list of them, that the file gave (see
 * config_paths.c); false if the result is too long. */
bool config_here(const char *file, bool list, char value[LS_CONFIG_TEXT_BYTES]);
/* data.blend (config_blend.c). Of a text, as the command line has it: false, and why. Of a YAML
 * list, whose start is the current event, in a file. And each source changed in place: false if
 * the result is too long. */
bool config_blend_parse(const char *text, char slot[LS_CONFIG_BLEND_BYTES], char *why,
                        size_t bytes);
int config_blend_read(struct ls_yaml *yaml, const char *file, char slot[LS_CONFIG_BLEND_BYTES]);
bool config_blend_map(char blend[LS_CONFIG_BLEND_BYTES], void (*map)(void *user, char *source),
                      void *user);
/* Whether a key that takes a path was given one of the words that may stand in its place. */
bool config_path_word(const char *value);
/* The table's names, for suggestions. Returns how many. */
size_t config_names(const char *names[LS_CONFIG_KEYS_MAX]);
/* Refuses it: "unknown key optim.learning_rate; did you mean optim.lr?" */
int config_unknown(const char *name, struct ls_error *error);
/* Puts where its key was given, if it was, before an error that refuses one; returns code. */
int config_locate(const struct ls_config *config, int code, struct ls_error *error);
/* Names of keys in other programs, index 0, 1, ...; false past the last. */
enum { CONFIG_ALIAS_BYTES = 64 };
bool config_alias(size_t index, char theirs[CONFIG_ALIAS_BYTES], const char **ours);
/* The assignments of a preset, "layers=12 channels=768", and its family; NULL if there is no
 * such preset. */
const char *config_preset(const char *name, enum ls_arch *arch);
/* Of config_resolve what concerns the model, which comes first. */
int config_resolve_model(struct ls_config *config, int64_t tokenizer_vocab, struct ls_error *error);
/* ls_config_resolve, whose refusals name no value that works. mends: where a key of the recipe does
 * not fit the others, the nearest value that does is put in its place instead. */
int config_resolve(struct ls_config *config, int64_t tokenizer_vocab, bool mends,
                   struct ls_error *error);
/* Whether config_resolve may mend this key, which was given. */
bool config_is_mended(const struct ls_config *config, const struct ls_config_key *key);
/* What judges the layout of a resolved configuration, and all that is suggested in its place.
 * table: of parallel.schedule_file, if that is to be read. Refusals name no layout that works. */
int config_admit(const struct ls_config *config, int64_t world, const struct ls_schedule *table,
                 struct ls_layout *layout, struct ls_error *error);
/* Appends to error, which says why refused is refused, the nearest configuration that works, or
 * why there is none. mended: refused as config_resolve mends it. */
void config_suggest(const struct ls_config *refused, const struct ls_config *mended, int64_t world,
                    struct ls_error *error);
struct config_refusal {
    const struct ls_config *refused;
    int64_t world;
    const struct ls_schedule *table; /* of its parallel.schedule_file; NULL: there is none */
};
/* Whether the refused configuration works with the values of the layout's keys and the mended ones
 * that `to` has, resolved and admitted as a run's is. These are the changes that are named. */
bool config_works(const struct config_refusal *refusal, const struct ls_config *to);
/* *nearest = mended with the fewest and smallest changes of the layout that work; false if none was
 * found. */
bool config_nearest(const struct config_refusal *refusal, const struct ls_config *mended,
                    struct ls_config *nearest);

#endif
