/* lockstep/convert.h - configurations of other trainers, translated key by key into ours.
 *
 *   struct ls_convert result;
 *   struct ls_convert_options options = {.ranks = 8};
 *   ls_convert_file(&result, LS_CONVERT_DEEPSPEED, "ds_config.json", &options, &error)
 *   ... result.text is YAML that ls_config_load_text reads ...
 *   ls_convert_release(&result)                    after a failure too
 *
 * Each key of the source has one of the fates below; none is passed over in silence. A key that
 * changes results and has no counterpart here, and a key that nobody knows, is refused: the call
 * fails with LS_ECONFIG, and the items say which keys and why. With options.allow_loss they are
 * left out, and the text names them.
 *
 * Where a key is absent there and its default is not ours, theirs is written out: the file means
 * what it meant. What is read:
 *
 *   DeepSpeed   JSON; comments (#, //, and C's) are taken too
 *   Megatron    arguments of pretrain_gpt.py, or a shell script that calls it: quotes, line ends
 *               with a backslash, comments, and variables and arrays that the script itself sets
 *   torchtitan  TOML, of the older and the newer layout of its keys
 *
 * Everything here is Local. */
#ifndef LOCKSTEP_CONVERT_H
#define LOCKSTEP_CONVERT_H

#include <lockstep/base.h>

LS_C_BEGIN

enum ls_convert_project { LS_CONVERT_DEEPSPEED, LS_CONVERT_MEGATRON, LS_CONVERT_TORCHTITAN };
/* "deepspeed", "megatron", "torchtitan"; NULL past the last. And as people write them. */
const char *ls_convert_project_name(int project);
const char *ls_convert_project_title(enum ls_convert_project project);

/* ---- the tables ----------------------------------------------------------------------------- */

enum ls_convert_rule_kind {
    LS_RULE_COPY, /* the value is that of our key */
    LS_RULE_READ, /* our key follows from it, perhaps with others */
    LS_RULE_DROP, /* has no effect on results, and no counterpart: left out */
    LS_RULE_LOSE, /* changes results, and has no counterpart: refused, unless it is off */
};
struct ls_convert_rule {
    /* "fp16.enabled", "--lr", with | between; one with a * at its end: all that begin so. */
    const char *theirs;
    enum ls_convert_rule_kind kind;
    const char *ours; /* COPY, READ: our key, or keys with commas between; "" for none */
    const char *off;  /* LOSE: values, with | between, with which it changes nothing; "" for none */
    const char *why;  /* what a reader has to know; "" for nothing */
    /* LOSE: what would have to be here, as patterns of ls_convert_here; else NULL, or the same of a
     * DROP whose reason is that it is not here. */
    const char *lacks;
};
/* All keys of that project that are known, to a NULL `theirs`. */
const struct ls_convert_rule *ls_convert_rules(enum ls_convert_project project);
/* Key i of a row; false behind its last. */
enum { LS_CONVERT_KEY_BYTES = 128 };
bool ls_convert_rule_key(const struct ls_convert_rule *rule, int i, char key[LS_CONVERT_KEY_BYTES]);

/* Local. Whether anything is here that one of the patterns (as in fnmatch(3), whatever the case,
 * with | between) names: a key of the configuration ("optim.lr"), a word of one ("optim.name=lion",
 * "model.arch=qwen3") or a preset ("model.preset=qwen3-4b"). Patterns with ": " are for what keys
 * say ("model.from: *llm.c*") and for the steps of families ("qwen3: norm of heads"). Then found is
 * the name of it. So a reason that names something as missing is found out when it is added. */
enum { LS_CONVERT_HERE_BYTES = 128 };
bool ls_convert_here(const char *patterns, char found[LS_CONVERT_HERE_BYTES]);

/* ---- converting ----------------------------------------------------------------------------- */

enum ls_convert_fate {
    LS_CONVERT_KEPT,    /* key = value */
    LS_CONVERT_ASSUMED, /* the same; absent there, and the default there is not ours */
    LS_CONVERT_DROPPED, /* no effect on results */
    LS_CONVERT_AUTO,    /* "auto" there: our default stands */
    LS_CONVERT_LOST,    /* changes results, and has no counterpart */
    LS_CONVERT_UNKNOWN, /* no such key is known */
    LS_CONVERT_ADVICE,  /* left to do */
};
struct ls_convert_item {
    enum ls_convert_fate fate;
    char *theirs;      /* "" for what has no key there */
    int line;          /* of it, from 1; 0 for none */
    char *key, *value; /* ours, "" unless KEPT or ASSUMED */
    char *why;         /* "" for nothing to say */
};

struct ls_convert_options {
    int64_t ranks;            /* all ranks of the job, 0 if that is not known */
    bool allow_loss;          /* leave out what changes results, and say so */
    const char *preset;       /* of our model.preset; NULL for none */
    const char *const *words; /* "group.key=value" of ours, which win */
    size_t word_count;
    const char *const *variables; /* "NAME=VALUE" of a shell script, which win too */
    size_t variable_count;
};

/* Owned by ls_convert; ls_convert_release frees it. */
struct ls_convert {
    enum ls_convert_project project;
    struct ls_convert_item *items; /* in the order of the source */
    size_t count;
    int64_t room;
    char *text; /* the configuration as YAML; NULL if it was refused */
};

/* Converts text[bytes]; name stands for the file in errors and in the text. LS_ECONFIG: malformed,
 * a value that is not what the key takes, numbers that contradict each other, or (with the items
 * filled) a loss that is not allowed. LS_ENOMEM. */
int ls_convert_text(struct ls_convert *result, enum ls_convert_project project, const char *name,
                    const char *text, size_t bytes, const struct ls_convert_options *options,
                    struct ls_error *error);
/* The same of a file of at most 1 MiB. LS_EIO too. */
int ls_convert_file(struct ls_convert *result, enum ls_convert_project project, const char *path,
                    const struct ls_convert_options *options, struct ls_error *error);
void ls_convert_release(struct ls_convert *result);

/* Items that are LOST or UNKNOWN. */
size_t ls_convert_losses(const struct ls_convert *result);

LS_C_END
#endif
