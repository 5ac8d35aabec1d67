/* What the files of the converter share: the entries that a source was read into, and what the
 * translation of a project asks and says. */
#ifndef CONVERT_CONVERT_PRIVATE_H
#define CONVERT_CONVERT_PRIVATE_H

#include <lockstep/base/key.h>
#include <lockstep/config.h>
#include <lockstep/convert.h>

#include <jansson.h>

/* ---- entries: a source as a flat list ------------------------------------------------------- */

#define CONVERT_BLANK '\1'
enum convert_kind {
    CONVERT_TEXT,
    CONVERT_NUMBER,
    CONVERT_BOOL, /* "true" or "false" */
    CONVERT_NULL,
    CONVERT_LIST, /* elements with spaces between, and CONVERT_BLANK for those within one */
    CONVERT_EMPTY /* a table without keys */
};
struct convert_entry {
    char *key; /* "optimizer.params.lr", "--lr" */
    char *text;
    enum convert_kind kind;
    int line;    /* from 1 */
    bool hidden; /* null, auto, or of a section that is off: as if it were absent */
    bool told;   /* an item of the result names it */
    const struct ls_convert_rule *rule; /* NULL for an unknown key */
};
struct convert_entries {
    struct convert_entry *at;
    size_t count;
    int64_t room;
    json_t *places; /* of each key, the first */
};
/* Takes copies. LS_ENOMEM; LS_ECONFIG if there are more than a configuration has. */
int convert_entries_add(struct convert_entries *entries, const struct convert_entry *entry,
                        struct ls_error *error);
/* The same, or of a key that is there: the entry becomes this one. */
int convert_entries_set(struct convert_entries *entries, const struct convert_entry *entry,
                        struct ls_error *error);
void convert_entries_release(struct convert_entries *entries);
/* The entry of that key, NULL for none; it takes no longer when there are more. */
struct convert_entry *convert_entries_find(const struct convert_entries *entries, const char *key);

/* Readers: text[bytes], terminated, as entries. LS_ECONFIG names name:line. A TOML table that is
 * given twice, and a JSON key, is an error; an argument that is given twice has its last value. */
typedef int convert_reader(struct convert_entries *entries, const char *name, const char *text,
                           size_t bytes, const struct ls_convert_options *options,
                           struct ls_error *error);
convert_reader convert_json_read, convert_toml_read, convert_shell_read;
/* In place of the arguments that a branch may have put in a shell's variable is "--$VARIABLE=",
 * this, which no script holds, and the $VARIABLE that the condition asks for, if one does. */
#define CONVERT_DOUBTED '\3'

/* The text of a shell's variable, NULL for none. */
typedef const char *convert_variable(const void *user, const char *name);
/* The length of the "$((sum))" that text[terminated] begins with, and what it comes to; 0 if a
 * variable is not known, is no whole number, or an operator is none of + - * / %. */
size_t convert_arithmetic(const char *text, convert_variable *variable, const void *user,
                          int64_t *out);

/* The words of a command of a script. */
struct convert_words {
    struct convert_word {
        char *text;
        int line;
    } * at;
    size_t count;
    int64_t room;
};
/* How many of them begin with -- */
size_t convert_options_of(const struct convert_words *words);
/* Whether one is an argument that the table has: sbatch has options of its own. */
bool convert_is_training(const struct convert_words *words);
/* Arguments, with what follows each, as entries of the source `name`. */
int convert_options_add(struct convert_entries *entries, const struct convert_words *words,
                        const char *name, struct ls_error *error);

/* What of a script runs: its if and case, and commands between && and ||, word by word. */
enum convert_truth { CONVERT_FALSE, CONVERT_TRUE, CONVERT_OPEN };
/* What is behind a command. */
enum convert_joint { CONVERT_END, CONVERT_AND, CONVERT_OR, CONVERT_PIPE };
enum { CONVERT_BRANCHES = 32 }; /* within each other; what is deeper is open */
struct convert_branch {
    enum convert_truth ran, runs;   /* branches before; this one */
    enum convert_truth status;      /* of the list of commands, so far */
    enum convert_joint joint;       /* behind them */
    bool group, choice;             /* of { }; of case */
    char cause[64], list_cause[64]; /* the $VARIABLE that is asked for, "" for none */
};
struct convert_branches {
    struct convert_branch level[CONVERT_BRANCHES + 2]; /* [0] the script, the last: all deeper */
    int depth;
    bool testing; /* between if and then */
    bool doubled; /* between [[ and ]] */
    bool piped;   /* behind a | */
};
/* The first word of a command. Whether it is one such as then, behind which a command begins. */
bool convert_branches_word(struct convert_branches *b, const char *word);
/* A { begins, whose commands run or not. */
void convert_branches_group(struct convert_branches *b, enum convert_truth runs);
/* A command ends, or what is behind a } or fi does. assigned: what it comes to if it has no words
 * but sets variables; CONVERT_FALSE: it sets none. */
void convert_branches_command(struct convert_branches *b, const struct convert_words *words,
                              enum convert_truth assigned, enum convert_joint joint);
/* Whether what comes next runs; open: *cause, if it is not NULL, is the variable that would tell,
 * or "". */
enum convert_truth convert_branches_run(const struct convert_branches *b, const char **cause);

/* ---- a translation under way ---------------------------------------------------------------- */

struct convert {
    struct ls_convert *result;
    const struct ls_convert_options *options;
    const char *name; /* of the source */
    struct convert_entries entries;
    struct ls_error *error;
    int status;          /* the first failure; what follows does nothing */
    const char *unset;   /* the first argument with a variable that must be given */
    char variables[512]; /* all of them, as NAME=VALUE */
    const char *command; /* the first argument that only a run would know */
};

struct convert_project {
    const char *name, *title;
    convert_reader *read;
    const struct ls_convert_rule *rules; /* to a NULL `theirs` */
    const char *remark;                  /* what no key says, and differs all the same */
    void (*derive)(struct convert *);    /* what the rows that are READ become */
    bool flags; /* keys are --arguments, and "auto" is a value like others */
};
extern const struct convert_project convert_deepspeed, convert_megatron, convert_torchtitan;
const struct convert_project *convert_project_of(enum ls_convert_project project);

extern const struct ls_convert_rule convert_deepspeed_rules[], convert_megatron_rules[],
    convert_torchtitan_rules[];

/* The row of that key, exact before *, and the longest * before shorter ones; NULL for none. */
const struct ls_convert_rule *convert_rule_of(const struct convert_project *project,
                                              const char *key);
/* The known key that was probably meant; false for none. */
bool convert_nearest(const struct convert_project *project, const char *key,
                     char near[LS_CONVERT_KEY_BYTES]);

/* As convert_entries_find, but NULL if it is hidden too. */
const struct convert_entry *convert_find(const struct convert *c, const char *key);
/* Whether it is given; then *out is its value. A value of another kind, or out of bounds, is an
 * error that names the key, and false. */
bool convert_int(struct convert *c, const char *key, int64_t min, int64_t *out);
bool convert_real(struct convert *c, const char *key, double *out);
/* The value, or `initial` where it is absent. */
bool convert_flag(struct convert *c, const char *key, bool initial);
const char *convert_word(const struct convert *c, const char *key, const char *initial);
/* Element i of a list, or of one value: false past the last. */
bool convert_element(const struct convert_entry *entry, int i, char *out, size_t bytes);
/* The number that text is, whole; false for anything else. */
bool convert_number(const char *text, double *out);
/* a * b, and a share of b rounded, at most 2^53: no product of what files say overflows. */
int64_t convert_times(int64_t a, int64_t b);
int64_t convert_share(double share, int64_t of);
/* One of the words of `words` (with | between), whatever the case. */
bool convert_among(const char *word, const char *words);

/* Our key gets a value; theirs is the key that it comes from. */
void convert_keep(struct convert *c, const char *ours, const char *theirs, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The same of a default there that is not ours; does nothing if our key has a value already. */
void convert_assume(struct convert *c, const char *ours, const char *theirs, const char *format,
                    ...) __attribute__((format(printf, 4, 5)));
/* The first of the two if their key is given, else the second. */
void convert_settle(struct convert *c, const char *ours, const char *theirs, const char *format,
                    ...) __attribute__((format(printf, 4, 5)));
/* Our key gets the value of theirs, or `initial` as a default there; NULL: then ours stands. */
void convert_take(struct convert *c, const char *ours, const char *theirs, const char *initial);
void convert_keep_int(struct convert *c, const char *ours, const char *theirs, int64_t value);
/* As convert_int, from 1; what is given is kept. */
bool convert_take_int(struct convert *c, const char *ours, const char *theirs, int64_t *out);
/* Our key gets the one of its words that `word` is, whatever the case, if there is one; otherwise
 * theirs is lost, with those that there are. */
bool convert_choose(struct convert *c, const char *ours, const char *theirs, const char *word);
bool convert_has(const struct convert *c, const char *ours);
/* Whether their key is "auto". */
bool convert_is_auto(const struct convert *c, const char *theirs);
/* A key goes, with a reason. */
void convert_drop(struct convert *c, const char *theirs, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* lacks: as in struct ls_convert_rule. ASKED: the code has asked the tables that the reason names,
 * just before. Where it is here after all, the reason says so instead. */
#define ASKED ""
void convert_lose(struct convert *c, const char *theirs, const char *lacks, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void convert_advise(struct convert *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* "ds.json:3: optimizer.params.lr = "x": <what was expected>"; theirs need not be there. */
void convert_fail(struct convert *c, const char *theirs, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Data-parallel ranks: options.ranks over those of the model; 0 if ranks are not known. */
int64_t convert_dp(struct convert *c, int64_t model_ranks, const char *axes);
/* parallel.tp, and the tiles that admit more than 8; parallel.cp and its tiles. */
void convert_tp(struct convert *c, const char *theirs, int64_t ranks);
void convert_cp(struct convert *c, const char *theirs, int64_t ranks);
/* comm.bucket_mb of so many fp32 elements. */
void convert_bucket(struct convert *c, const char *theirs, double elements);
/* The type that gradients travel in. */
void convert_reduce(struct convert *c, const char *theirs, const char *type);
/* Attention stays within a document. */
void convert_documents(struct convert *c, const char *theirs);
/* First weights that are the project's: model.from has them on the command line, or they go. */
void convert_first_weights(struct convert *c, const char *theirs);

/* Rows of a table; `...` is why, and perhaps what lacks. */
#define RULE(theirs_, kind_, ours_, off_, ...)                                                     \
    {                                                                                              \
        .theirs = (theirs_), .kind = LS_RULE_##kind_, .ours = (ours_), .off = (off_),              \
        .why = __VA_ARGS__                                                                         \
    }
#define COPY(theirs, ours, why) RULE(theirs, COPY, ours, "", why)
#define READ(theirs, ours, why) RULE(theirs, READ, ours, "", why)
#define DROP(theirs, ...)       RULE(theirs, DROP, "", "", __VA_ARGS__)
#define LOSE(theirs, off, ...)  RULE(theirs, LOSE, "", off, __VA_ARGS__)

/* What several projects have and is not here: the reason, and its patterns. */
#define EXPERTS     "there are no experts", "*expert*|*moe*|*: *router*"
#define NO_FP8      "nothing is trained in FP8", "*fp8*|*float8*"
#define NO_FP4      "nothing is trained in FP4", "*fp4*"
#define QUANTISED   "nothing is quantised in training", "*quant*|*precision=int8|*=int4"
#define MASTERS     "master weights are fp32", "*master*|*param*dtype*|*param*type*"
#define NO_RL       "there is no reinforcement learning", "rl.*|*grpo*|*ppo*|*reward*"
#define WHOLE_STATE "a run goes on with its whole state", "train.*load*|train.*reset*"

/* ---- writing -------------------------------------------------------------------------------- */

/* The configuration of the items and its text; c->result->text on success. */
int convert_write(struct convert *c);

#endif
