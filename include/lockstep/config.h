/* lockstep/config.h - what to train and how: one struct, one table of keys.
 *
 * Every key is declared once, in the table that ls_config_keys returns: name, type, default, bounds
 * or words, help, and whether it belongs to the recipe (may change the bits of the result) or to
 * the layout (may not). Reading, writing, `lockstep train --help-config`, the man page and
 * doc/configuration.md all derive from that table.
 *
 * Order of calls:
 *
 *   struct ls_config config;
 *   ls_config_defaults(&config);
 *   ls_config_load_file(&config, "run.yaml", &error)     any number of files; later ones win
 *   ls_config_set(&config, "optim.lr=3e-4", &error)      overrides; they win over files
 *   ls_config_resolve(&config, tokenizer_vocab, &error)  fills what is automatic, checks the whole
 *   ... config.model, config.optim.lr, ...
 *
 * The file is YAML 1.2 (so JSON too). `optim.lr: 3e-4` and `optim: {lr: 3e-4}` are the same key. An
 * unknown key, a key given twice, a value of the wrong type or out of range and combinations that
 * cannot be honoured are LS_ECONFIG; the text names file:line:column, key, value, what was
 * expected. A relative path is looked up from the current folder; in a file, ${here} in a path is
 * that file's folder, and A|B beside it is the first that exists.
 *
 * The struct is a plain value: copy it freely. Everything here but ls_config_settle and
 * ls_config_ops is Local. */
#ifndef LOCKSTEP_CONFIG_H
#define LOCKSTEP_CONFIG_H

#include <lockstep/base.h>
#include <lockstep/base/key.h>
#include <lockstep/comm.h>
#include <lockstep/nn.h>
#include <lockstep/optim.h>
#include <lockstep/plan.h>

#include <stdio.h>

LS_C_BEGIN

enum {
    LS_CONFIG_TEXT_BYTES = LS_LAYOUT_TEXT_BYTES,   /* a text value with its terminator */
    LS_CONFIG_BLEND_BYTES = 16 << 10,              /* that of data.blend */
    LS_CONFIG_VALUE_BYTES = LS_CONFIG_BLEND_BYTES, /* holds any value as it is written in a file */
    LS_CONFIG_SOURCES_MAX = 256,
    LS_CONFIG_KEYS_MAX = 192,
    LS_CONFIG_AUTO = -1, /* "auto" of an enumerated key */
};

enum ls_config_mode { LS_CONFIG_ORDERED, LS_CONFIG_FAST };
enum ls_config_packing { LS_CONFIG_STREAM, LS_CONFIG_DOCUMENTS, LS_CONFIG_BEST_FIT };
enum ls_config_nonfinite { LS_CONFIG_STOP, LS_CONFIG_SKIP };
enum ls_config_async_mode { LS_CONFIG_SYNC, LS_CONFIG_DILOCO, LS_CONFIG_SERVER };
enum ls_config_staleness_lr { LS_CONFIG_EQUAL, LS_CONFIG_INVERSE };
enum ls_config_order { LS_CONFIG_BY_TIMES, LS_CONFIG_BY_CLOCK };
enum ls_config_outer { LS_CONFIG_NESTEROV, LS_CONFIG_OUTER_SGD, LS_CONFIG_OUTER_ADAMW };
enum ls_config_progress { LS_CONFIG_LIVE, LS_CONFIG_PLAIN, LS_CONFIG_OFF }; /* or LS_CONFIG_AUTO */

/* Group `model` as it is written. Zero and LS_CONFIG_AUTO stand for what ls_config_resolve fills
 * in, here and in struct ls_config's `model`. */
struct ls_config_model {
    char preset[LS_CONFIG_TEXT_BYTES];
    char from[LS_CONFIG_TEXT_BYTES]; /* where keys and initial weights come from
                                      * (lockstep/interop.h); "": nowhere */
    int arch;                        /* enum ls_arch */
    int64_t vocab, vocab_multiple, layers, channels, heads, kv_heads, head_dim, ffn, context;
    int tied, bias; /* 0, 1 or LS_CONFIG_AUTO */
    int activation; /* enum ls_activation or LS_CONFIG_AUTO */
    double norm_epsilon, rope_theta, rope_local_theta;
    double rope_factor, rope_low_freq_factor, rope_high_freq_factor;
    int64_t rope_original_context;
    int rope_scaling; /* enum ls_rope_kind */
    double rope_beta_fast, rope_beta_slow, rope_attention_factor;
    int64_t window;
    int window_layers, rope_layers; /* enum ls_layers or LS_CONFIG_AUTO */
    double attention_softcap, logit_softcap, query_scale;
    double dropout, init_std;
    int64_t seed;
};

struct ls_config_lora {
    int64_t rank; /* 0: none */
    double alpha; /* 0: rank */
    char targets[LS_CONFIG_TEXT_BYTES];
    int base;                        /* enum ls_blocks */
    char from[LS_CONFIG_TEXT_BYTES]; /* a folder of PEFT's (lockstep/interop.h); "": none */
};

struct ls_config_data {
    char train[LS_CONFIG_TEXT_BYTES];     /* prefix of .bin/.idx, or an llm.c token file */
    char blend[LS_CONFIG_BLEND_BYTES];    /* ls_config_sources reads it; "" for none */
    bool changed;                         /* go on with another blend than the checkpoint's */
    char valid[LS_CONFIG_TEXT_BYTES];     /* the same, "" for none */
    char tokenizer[LS_CONFIG_TEXT_BYTES]; /* "" = found beside the data */
    char cache_dir[LS_CONFIG_TEXT_BYTES]; /* of blocks of data elsewhere, "" for none */
    int64_t cache_size;                   /* bytes of it */
    int64_t sequence;                     /* tokens of a sequence */
    bool shuffle;
    int packing; /* enum ls_config_packing */
    int64_t seed;
};

struct ls_config_batch {
    int64_t global; /* sequences of one optimizer step */
    int64_t micro;  /* sequences of one micro-batch of one rank; 0 = chosen by the trainer */
    int64_t rampup_start, rampup_increment, rampup_samples; /* sequences; 0 = no ramp-up */
};

struct ls_config_optim {
    enum ls_optimizer_kind name;
    double lr, beta1, beta2, epsilon, weight_decay, momentum;
    bool nesterov;
    int64_t ns_steps; /* muon, as what follows */
    enum ls_muon_scale muon_scale;
    double adamw_lr;       /* 0 = lr */
    enum ls_dtype moments; /* LS_F32 or LS_BF16 */
    double clip;           /* global norm; 0 = off */
    enum ls_lr_schedule schedule;
    int64_t warmup_steps, decay_steps, cooldown_steps;
    double min_ratio;
};

/* Workers that train replicas of the model by themselves and meet now and then (doc/async.md). */
struct ls_config_async {
    int mode;                    /* enum ls_config_async_mode */
    int64_t workers, sync_every; /* steps between two turns of a fragment */
    int64_t fragments, delay;    /* delay: steps from a delta's start on its way to its use */
    int outer;                   /* enum ls_config_outer */
    double outer_lr, outer_momentum, outer_beta2, outer_epsilon;
    double mixing; /* what a worker keeps of its own parameters */
    int delta;     /* enum ls_delta_type */
    /* Of a parameter server. */
    int order;                         /* enum ls_config_order */
    char follow[LS_CONFIG_TEXT_BYTES]; /* the run whose order is that of this one; "": none */
    int64_t staleness;                 /* clocks that a worker may be ahead, LS_BOUND_FREE: any */
    char times[LS_CONFIG_TEXT_BYTES];  /* "1,1,1,4": of a gradient, by worker; "": alike */
    double compensation;               /* lambda of DC-ASGD */
    int staleness_lr;                  /* enum ls_config_staleness_lr */
};

struct ls_config_numerics {
    enum ls_dtype precision; /* LS_F32, LS_BF16 or LS_F16 */
    enum ls_config_mode mode;
    int64_t tp_tiles, seq_tiles, leaf_sequences;
    enum ls_dtype reduce; /* what gradients travel in; LS_BF16 only in mode fast */
    int arithmetic;       /* enum ls_arithmetic or LS_CONFIG_AUTO: see ls_config_settle */
    int isa;              /* enum ls_isa or LS_CONFIG_AUTO */
    double loss_scale;    /* LS_F16 only, as what follows; 0: dynamic */
    int64_t initial_scale_power, loss_scale_window, hysteresis;
    bool consecutive_hysteresis;
    double min_loss_scale;
};

struct ls_config_comm {
    int transport; /* enum ls_transport or LS_CONFIG_AUTO */
    int64_t bucket_mb;
    double timeout_s; /* 0: never */
    bool check;
};

/* What may be kept in a memory tier instead of on the device; how much of it. */
enum ls_offload {
    LS_OFFLOAD_OPTIMIZER,
    LS_OFFLOAD_GRADIENTS,
    LS_OFFLOAD_PARAMETERS,
    LS_OFFLOAD_ACTIVATIONS,
    LS_OFFLOADS
};
struct ls_config_offload {
    int to; /* enum ls_tier_kind */
    double ratio;
};
struct ls_config_memory {
    bool check;
    int64_t device_budget; /* bytes of a rank; 0: none */
    struct ls_config_offload offload[LS_OFFLOADS];
    char file[LS_CONFIG_TEXT_BYTES]; /* the folder of the file tier, "" for none */
};

struct ls_config_train {
    int64_t steps, extend;                  /* extend: after those, on the same schedule */
    char out[LS_CONFIG_TEXT_BYTES];         /* the run's directory */
    char resume[LS_CONFIG_TEXT_BYTES];      /* "never", "auto" or the path of a checkpoint */
    char resume_else[LS_CONFIG_TEXT_BYTES]; /* of auto: a checkpoint's path, or "" */
    char frozen[LS_CONFIG_TEXT_BYTES];      /* patterns of parameters' names */
    char plan[LS_CONFIG_TEXT_BYTES];        /* a cluster file; "": there is no plan */
    bool auto_layout;                       /* parallel.auto: the program plans the layout */
    int64_t save_every, keep;
    bool save_first, keep_best;
    enum ls_config_nonfinite on_nonfinite;
    bool overcommit;
};

struct ls_config_checkpoint {
    char also[LS_CONFIG_TEXT_BYTES]; /* a directory or s3://bucket/prefix, "" for none */
    int async;                       /* written beside steps: 0, 1, LS_CONFIG_AUTO */
};

struct ls_config_eval {
    int64_t every, samples; /* steps; sequences */
};

struct ls_config_sample {
    int64_t every; /* steps */
    char prompt[LS_CONFIG_TEXT_BYTES];
    int64_t tokens;
    double temperature;
    int64_t top_k;
    double top_p;
};

/* The layout in which a run generates and scores (lockstep/infer/rollout.h); 0: from the others. */
struct ls_config_rollout {
    int64_t pp, dp, tp;
};

struct ls_config_check {
    double replay; /* probability that a step is computed twice */
};

struct ls_config_log {
    int64_t hash_every;  /* steps; 0 = only steps that are saved */
    int64_t drift_every; /* steps; 0 = never */
    bool tensorboard, trace, profile;
    int progress; /* enum ls_config_progress or LS_CONFIG_AUTO */
    enum ls_log_level level;
};

struct ls_config_snapshot {
    int64_t every;                     /* steps; 0 = none are taken; LS_CONFIG_AUTO */
    double failures;                   /* an hour of one machine, for LS_CONFIG_AUTO */
    int64_t replicas;                  /* other machines that have a copy of each file */
    char folder[LS_CONFIG_TEXT_BYTES]; /* a file system in memory */
};

struct ls_config_launch {
    int64_t retries;
    double pause_s, deadline_s, slow;
    char on_event[LS_CONFIG_TEXT_BYTES]; /* a command, "" for none */
};

/* Where a key's value was given: line > 0 a file, LS_CONFIG_FROM_OVERRIDE an override,
 * LS_CONFIG_FROM_MODEL what model.from names, 0 nowhere (it is the default, a preset's, or was
 * filled in). */
struct ls_config_origin {
    int line, column; /* from 1 */
};
enum { LS_CONFIG_FROM_OVERRIDE = -1, LS_CONFIG_FROM_MODEL = -2 };

struct ls_config {
    struct ls_model_config model; /* valid after ls_config_resolve */
    struct ls_config_model model_keys;
    struct ls_config_lora lora;
    struct ls_config_data data;
    struct ls_config_batch batch;
    struct ls_config_optim optim;
    struct ls_config_async async;
    struct ls_config_numerics numerics;
    struct ls_layout_keys parallel; /* as they are written: ls_config_layout reads them */
    struct ls_config_memory memory;
    struct ls_config_comm comm;
    struct ls_config_train train;
    struct ls_config_checkpoint checkpoint;
    struct ls_config_eval eval;
    struct ls_config_sample sample;
    struct ls_config_rollout rollout;
    struct ls_config_check check;
    struct ls_config_snapshot snapshot;
    struct ls_config_log log;
    struct ls_config_launch launch;

    char path[LS_CONFIG_TEXT_BYTES];                    /* the file last loaded, "" for none */
    struct ls_config_origin origin[LS_CONFIG_KEYS_MAX]; /* by index of the table */
};

/* "optimizer", ...: behind "memory.offload." the key. */
const char *ls_offload_name(enum ls_offload what);
/* The tier in which it lies, LS_TIER_DEVICE for none; and whether anything lies in that one. */
enum ls_tier_kind ls_config_tier(const struct ls_config *config, enum ls_offload what);
bool ls_config_uses_tier(const struct ls_config *config, enum ls_tier_kind kind);

/* ---- the table ------------------------------------------------------------------------------ */

enum ls_config_type {
    LS_CONFIG_INT,    /* int64_t: a whole number, or one of words */
    LS_CONFIG_BYTES,  /* int64_t: a number of bytes, "2GiB" */
    LS_CONFIG_REAL,   /* double */
    LS_CONFIG_BOOL,   /* bool */
    LS_CONFIG_WORD,   /* int: one of words */
    LS_CONFIG_STRING, /* char[LS_CONFIG_TEXT_BYTES] */
    LS_CONFIG_PATH,   /* the same: a path */
    LS_CONFIG_PATHS,  /* the same: a path, or a list of paths with commas between */
    LS_CONFIG_BLEND,  /* char[LS_CONFIG_BLEND_BYTES]: a list of sources with weights */
    /* Of other tables, such as a cluster's: */
    LS_CONFIG_NAME, /* char[max]: printable ASCII */
    LS_CONFIG_PAIR, /* int64_t[2]: [128, 256] */
    /* double, with a unit: */
    LS_CONFIG_FLOPS,
    LS_CONFIG_SIZE,
    LS_CONFIG_RATE,
    LS_CONFIG_SECONDS,
    LS_CONFIG_WATTS
};

enum ls_config_part {
    LS_CONFIG_RECIPE, /* may change the bits of the result */
    LS_CONFIG_LAYOUT, /* may not */
    LS_CONFIG_RUN,    /* how long, where to, what to show: no part of either */
};

struct ls_config_key {
    const char *name; /* "group.key" */
    enum ls_config_type type;
    enum ls_config_part part;
    const char *initial; /* the default, as it is written in a file */
    double min, max;     /* of numbers: bounds, inclusive unless open */
    bool min_open, max_open;
    const struct ls_word *words; /* LS_CONFIG_WORD; LS_CONFIG_INT that may be a word too, or NULL */
    const char *help;            /* as ls_config_key_help reads it */
    size_t offset;               /* in struct ls_config */
};

/* One value of a table's key, in its slot; the configuration's are read and written by these too.
 * Reads text into the slot; false leaves it as it was and says in why (of bytes) what was expected.
 * quoted: the text stood in quotes, so it is neither a number nor true. */
bool ls_config_parse(const struct ls_config_key *key, void *slot, const char *text, bool quoted,
                     char *why, size_t bytes);
/* The shortest text that is read as the same value; texts are in quotes. */
void ls_config_format(const struct ls_config_key *key, const void *slot, char *text, size_t bytes);
/* "a whole number from 1 to 64", "a rate from 1 B/s to 1 EB/s, such as 450 GB/s" */
void ls_config_expected(const struct ls_config_key *key, char *text, size_t bytes);

/* Index of the key of that name, or of the first key of that group, in a table that ends with a
 * NULL name; -1: there is none. */
int ls_config_key_index(const struct ls_config_key *keys, const char *name);
int ls_config_group_index(const struct ls_config_key *keys, const char *name);

/* The table, in the order of the groups; it ends with a NULL name. count may be NULL. */
const struct ls_config_key *ls_config_keys(size_t *count);
/* The key of that name, which the table has. */
const struct ls_config_key *ls_config_key_of(const char *name);
/* What the key means, with what families of models say of it and the presets by name. */
enum { LS_CONFIG_HELP_BYTES = 2048 };
void ls_config_key_help(const struct ls_config_key *key, char text[LS_CONFIG_HELP_BYTES]);
/* Names of the presets, index 0, 1, ...; NULL past the last. */
const char *ls_config_preset_name(int index);
/* LS_ECONFIG, with the nearest name, if there is no such preset. */
int ls_config_preset_check(const char *name, struct ls_error *error);

/* ---- reading -------------------------------------------------------------------------------- */

void ls_config_defaults(struct ls_config *config);
/* Reads a YAML file over what is there. On failure config may be partly filled. */
int ls_config_load_file(struct ls_config *config, const char *path, struct ls_error *error);
/* The same from memory; name stands for the file in error texts and in config->path. */
int ls_config_load_text(struct ls_config *config, const char *name, const char *text, size_t bytes,
                        struct ls_error *error);
/* "group.key=value", the value as in a file, except that a text needs no quotes. */
int ls_config_set(struct ls_config *config, const char *assignment, struct ls_error *error);

/* Fills what is automatic and checks every combination that has nothing to do with the layout.
 * Where tiles, leaves and batch do not fit each other, the text ends with the nearest values that
 * do, in a layout that works. tokenizer_vocab: the tokenizer's tokens, 0 if there is none (then
 * model.vocab must be given). Fills config->model; resolving twice changes nothing. data.train may
 * be empty: the trainer asks for it with ls_config_require. */
int ls_config_resolve(struct ls_config *config, int64_t tokenizer_vocab, struct ls_error *error);
/* train.out, where it is empty, as ls_config_resolve names it: runs/demo for configs/demo.yaml. */
void ls_config_name_out(struct ls_config *config);
/* LS_ECONFIG if the text key of that name is empty. */
int ls_config_require(const struct ls_config *config, const char *name, struct ls_error *error);
/* Whether a file, the command line or a model gave the key of that name, which there is. */
bool ls_config_is_given(const struct ls_config *config, const char *name);
/* The checkpoint that the run begins from if it has none of its own, or in any case:
 * train.resume_else, or train.resume where that is a path; NULL: none. */
const char *ls_config_resume_path(const struct ls_config *config);
/* "run.yaml:3:7", "command line" or "default": where the key of that name got its value. */
void ls_config_where(const struct ls_config *config, const char *name, char *text, size_t bytes);
/* LS_ECONFIG (or another code) about a key, in the form of all configuration errors:
 * "run.yaml:3:7: optim.lr = 4: <what was expected and what to do>". Returns code. */
int ls_config_reject(const struct ls_config *config, int code, const char *name,
                     struct ls_error *error, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* Puts where the key of that name was given before an error about what it names, a file for
 * instance: "run.yaml:3:10: data.train: runs/code: ...". Returns error's code. */
int ls_config_blame(const struct ls_config *config, const char *name, struct ls_error *error);

/* What is trained on: the entries of data.blend, as given, or data.train as the only one, of weight
 * 1; none if neither is set. An entry holds until the next one of the same source (the same
 * text) begins; weight 0 ends it. *out: to be freed.
 *
 * Sources are numbered in the order in which they first stand: 0, 1, 0, 2. */
struct ls_config_source {
    char source[LS_CONFIG_TEXT_BYTES];
    int index;             /* of its source */
    double weight, epochs; /* epochs 0: no limit */
    int64_t from_step;     /* steps before it */
};
int ls_config_sources(const struct ls_config *config, struct ls_config_source **out, int *count,
                      struct ls_error *error);
/* Of a step's samples the share whose source is at http://, https:// or s3://, or a list with such
 * a name in it, by the weights of the stage that has most; 0 without data. */
double ls_config_elsewhere(const struct ls_config *config);
/* Whether `then` and `now` train on the same samples up to the end of step `step`: entries that
 * begin later may differ unless they change the order of sources or the epochs of one that has
 * begun, and data.train is a blend of one. */
bool ls_config_blend_goes_on(const struct ls_config *now, const struct ls_config *then,
                             int64_t step);
/* LS_ECONFIG if neither data.train nor data.blend is set. */
int ls_config_require_data(const struct ls_config *config, struct ls_error *error);
static inline bool ls_config_has_data(const struct ls_config *config)
{
    return config->data.train[0] || config->data.blend[0];
}

/* ---- the layout ----------------------------------------------------------------------------- */

/* The recipe's order of sums as layers take it. Resolved configurations only, here and below. */
struct ls_numerics ls_config_numerics(const struct ls_config *config);
/* Groups of ranks that each have the layout of one worker: those that compute workers, and the one
 * of servers. */
int64_t ls_config_groups(const struct ls_config *config);
/* Ranks that the keys ask for: groups x pp x dp x cp x tp. */
int64_t ls_config_ranks(const struct ls_config *config);
/* Whether a key that says how many ranks lie along an axis is given (ls_config_is_given). */
bool ls_config_axis_given(const struct ls_config *config);
/* ls_layout_resolve of lockstep/plan.h for this configuration: the layout of one worker, of which
 * ls_config_groups are side by side. world: the ranks that were started, of all of them, 0 for as
 * many as the keys ask for. LS_ELAYOUT, and LS_ECONFIG for keys that need each other, say
 * where the key was given, and end with the nearest layout that works: "near" is few keys changed,
 * by small factors, over the same number of ranks where world says how many. It is judged like the
 * refused one, with all other keys as they are. A text that names none says why. Searching takes
 * time: with error NULL there is none. LS_EDATA and LS_EIO of a schedule's file. */
int ls_config_layout(const struct ls_config *config, int64_t world, struct ls_layout *layout,
                     struct ls_error *error);
/* Every layout key has its default again: one rank. */
void ls_config_layout_reset(struct ls_config *config);
/* A layout that takes no step: micro-batches of some rows, one on each rank. */
void ls_config_forward(struct ls_config *config);
/* False if no key of group rollout is set: the run generates in its own layout. Otherwise *out,
 * unless out is NULL, is the configuration of its rollouts: the layout of that group over config's
 * ranks. */
bool ls_config_rollout(const struct ls_config *config, struct ls_config *out);
/* LS_ELAYOUT if group rollout has a layout that is not admitted over all ranks of the run, with the
 * nearest that works; otherwise *layout, unless layout is NULL, is that layout. Only who generates
 * in it, or plans that, asks: others take no notice of the group, so a run that had one goes on,
 * and is read, in any layout. */
int ls_config_rollout_check(const struct ls_config *config, int64_t ranks, struct ls_layout *layout,
                            struct ls_error *error);
/* The layout keys that are not as they are in `one`, as one writes them on a command line:
 * "batch.micro=2 parallel.tp=2 parallel.zero=1"; "one rank" if none is. one NULL: those of group
 * parallel and batch.micro that are not the default, threads left out. */
void ls_config_layout_text(const struct ls_config *config, const struct ls_config *one, char *text,
                           size_t bytes);

/* parallel.threads, or the cores of this process divided among so many ranks that share them. */
int ls_rank_threads(const struct ls_config *config, int core_ranks);
/* The same of a world. LS_ELAYOUT for more than make sense. */
int ls_config_threads(const struct ls_config *config, const struct ls_comm *world, int *threads,
                      struct ls_error *error);
/* Collective over world. Where numerics.arithmetic is auto, it becomes the one that is faster on
 * the best instruction set that all ranks have, as rank 0 measures it. numerics.isa has no say,
 * since no key of the layout may change bits. */
int ls_config_settle(struct ls_config *config, struct ls_comm *world, struct ls_error *error);
/* Collective over world. What a rank computes with: so many threads, the arithmetic, which is
 * settled, and the instruction set of all ranks: the configured one, or the fastest one in this
 * arithmetic that all have (ls_isa_fastest, on rank 0). LS_ENOTSUP if a machine lacks it. */
int ls_config_ops(const struct ls_config *config, struct ls_comm *world, int threads,
                  struct ls_ops *ops, struct ls_error *error);

/* What the optimizer is told of a resolved configuration. */
struct ls_optim_config ls_config_optim(const struct ls_config *config);
/* The same of the outer optimizer of async.mode = diloco. */
struct ls_optim_config ls_config_outer_optim(const struct ls_config *config);
/* async.times of a resolved configuration, by worker: times[workers]. LS_ECONFIG. */
int ls_config_times(const struct ls_config *config, int64_t *times, struct ls_error *error);
/* Steps between two meetings of workers, async.sync_every / async.fragments; 1 without workers. */
int64_t ls_config_interval(const struct ls_config *config);
/* Replicas that are trained: async.workers, or 1; and of them those that one group of ranks
 * computes in turn. */
int64_t ls_config_workers(const struct ls_config *config);
int64_t ls_config_workers_each(const struct ls_config *config);
/* Batches of batch.global sequences that a step takes: with diloco those of all workers. */
int64_t ls_config_batches(const struct ls_config *config);
/* And of the loss's scale; 1 for ever where precision is not LS_F16. */
struct ls_loss_scale_config ls_config_loss_scale(const struct ls_config *config);
/* "fp32", "bf16", "fp16": numerics.precision as it is written. */
const char *ls_config_precision(const struct ls_config *config);

/* ---- writing -------------------------------------------------------------------------------- */

/* All keys as YAML; reading it gives the same values. */
int ls_config_write(const struct ls_config *config, FILE *file, struct ls_error *error);
/* The same as a text, to be freed, and as a file, written aside and renamed. */
int ls_config_text(const struct ls_config *config, char **text, struct ls_error *error);
int ls_config_save(const struct ls_config *config, const char *path, struct ls_error *error);
/* The same for a file that may be moved: paths are written as seen from its folder, and beside that
 * absolute where they lead out of it. */
int ls_config_save_portable(const struct ls_config *config, const char *path,
                            struct ls_error *error);
/* One key's value as it is written in a file. bytes >= LS_CONFIG_VALUE_BYTES holds any. */
void ls_config_value(const struct ls_config *config, const struct ls_config_key *key, char *text,
                     size_t bytes);

/* The table for readers: plain text (--help-config), a section of a man page (troff), Markdown. */
void ls_config_help(FILE *file);
void ls_config_man(FILE *file);
void ls_config_markdown(FILE *file);

/* ---- the recipe ----------------------------------------------------------------------------- */

/* Steps that a run takes in all. */
static inline int64_t ls_config_steps(const struct ls_config *config)
{
    return config->train.steps + config->train.extend;
}

/* A key's value for comparison. Where a file lies does not matter, only which one it is: of each
 * path in a list with commas, the folders (and what says how to read it) are left out. */
void ls_config_compared_value(const struct ls_config *config, const struct ls_config_key *key,
                              char *text, size_t bytes);
/* A store as records and texts name it: the value of data.train as it is compared, in place. */
void ls_config_source_name(char source[LS_CONFIG_TEXT_BYTES]);
/* Digest of the recipe's keys as resolved (of data.train, the file's name without its folder). */
void ls_config_recipe_digest(const struct ls_config *config, struct ls_digest *digest);
/* Lists the recipe keys whose values differ, "key: <a's> here, <b's> there", separated by "; ", cut
 * at bytes. Returns how many differ. */
int ls_config_recipe_diff(const struct ls_config *a, const struct ls_config *b, char *text,
                          size_t bytes);

LS_C_END
#endif
