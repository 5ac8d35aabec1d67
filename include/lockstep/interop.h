/* lockstep/interop.h - models of other programs: in and out.
 *
 *   struct ls_model_source   a model that lies in files: its configuration and its weights
 *   ls_model_from            model.from: the configuration takes them from there
 *   ls_import                a run's directory of them
 *   ls_export                a model as files of others
 *
 * A source is a folder of Hugging Face's (config.json and safetensors, in one file or in shards
 * with an index), llm.c's model_*.bin (versions 3 and 5), or a run of Lockstep (its newest
 * checkpoint; the directory of a checkpoint names that one). What is read is checked first: names,
 * shapes and types, whether all is there, and whether anything is there that the model has no place
 * for. Errors are LS_ECONFIG for a model that is not supported (family, feature, contradiction)
 * and LS_ECKPT for files that are missing or damaged; both name file, key or tensor and what was
 * expected.
 *
 * Weights pass through bounded buffers: no tensor is ever whole in memory. A file that is cut or
 * written to while it is read is an error.
 * Everything here is Local.
 */
#ifndef LOCKSTEP_INTEROP_H
#define LOCKSTEP_INTEROP_H

#include <lockstep/base.h>
#include <lockstep/base/file.h>
#include <lockstep/comm.h>
#include <lockstep/config.h>
#include <lockstep/nn.h>
#include <lockstep/ops.h>

LS_C_BEGIN

/* ---- in -------------------------------------------------------------------------------------- */

struct ls_model_source;

/* Whether path is what another program wrote: a folder with config.json that is no run (config.yaml
 * and checkpoints/), or an llm.c model. */
bool ls_model_is_foreign(const char *path);
/* Reads the description and opens the weights; headers of all files are checked. Keys that are not
 * known and change no result are warnings in log (NULL: none). */
int ls_model_source_open(struct ls_model_source **out, const char *path, const struct ls_log *log,
                         struct ls_error *error);
/* The same with one of a run's checkpoints (ls_checkpoint_choose). */
int ls_model_source_choose(struct ls_model_source **out, const char *path, const char *which,
                           const struct ls_log *log, struct ls_error *error);
/* Collective. How the opening of one path went on each rank: where a run saved between their looks,
 * all get the checkpoint that rank 0 found. */
int ls_model_source_agree(struct ls_model_source **source, struct ls_comm *world, int status,
                          struct ls_error *error);
void ls_model_source_close(struct ls_model_source *source); /* NULL is allowed */
/* Whether the files hold each parameter of the model, in its shape, and no other tensor. A head's
 * matrix beside a table that it is tied to must be equal to it. */
int ls_model_source_check(struct ls_model_source *source, const struct ls_model_config *model,
                          const struct ls_numerics *numerics, struct ls_error *error);
/* ls_param_fill with the source's values, once it was checked: elements [first, first + count) of
 * the part of the parameter that is held. values [count]. */
int ls_model_source_fill(struct ls_model_source *source, const struct ls_param *param,
                         struct ls_ops *ops, int64_t first, int64_t count, float *values,
                         struct ls_error *error);
/* What was read and is no number (NaN) or infinite: a warning in log for each tensor that has such,
 * with the first of them. The values stay what they are. */
void ls_model_source_tell(const struct ls_model_source *source, const struct ls_log *log);
/* Before ls_model_source_check: adapters of the model (struct ls_model_config's lora) have the
 * values of a folder of PEFT's; otherwise they are random, as ls_param_fill has them. A run that
 * has adapters itself is a source of the merged model: W + alpha / rank B A. */
int ls_model_source_adapt(struct ls_model_source *source, const char *folder,
                          struct ls_error *error);
/* Copies what belongs to the model but is no weight (tokenizer, generation_config.json,
 * config.json) to RUN/hf; what an earlier start kept there of another model goes. source: NULL: of
 * a model that begins from none. */
int ls_model_source_keep(const struct ls_model_source *source, const char *run,
                         const struct ls_fault *fault, struct ls_error *error);

/* Where model.from is set: its keys become those of group model, with origin LS_CONFIG_FROM_MODEL;
 * LS_ECONFIG if one was given that says something else. The source is not opened where
 * train.resume lets the run of train.out go on that began from it: then the keys are those that the
 * run kept. Where lora.from is set, the keys of group lora become those of its adapter_config.json;
 * LS_ECONFIG for a kind of adapters that is not supported, with the key. Without data,
 * data.tokenizer becomes the source's, if it is known here. Before ls_config_resolve. */
int ls_model_from(struct ls_config *config, const struct ls_log *log, struct ls_error *error);
/* A resolved configuration that runs the source's model without training: with defaults, the
 * precision of the weights, sequences of at most 1024 tokens, and the source's tokenizer, if it has
 * one that is known here; otherwise log says why. words ("batch.global=4") win. */
int ls_model_source_alone(const struct ls_model_source *source, const char *const *words, int count,
                          const struct ls_log *log, struct ls_config *config,
                          struct ls_error *error);

/* A run of the source's model: RUN/config.yaml, a checkpoint of step 0 without optimizer state
 * (ls_checkpoint_state.fresh), and RUN/hf. RUN must not exist, or be empty; it appears complete or
 * not at all. words: as above. */
struct ls_import {
    const char *from, *run;
    const char *const *words;
    int count;
    /* Of several models, which must be alike in all that ls_model_source_alone says of them, the
     * mean: value i of a parameter is, in double and rounded to float once at the end, the sum of
     * weights[m] x value i of model m, by fma in the order of m, over the sum of weights in the
     * same order. others[other_count] come after from. weights[1 + other_count]; NULL: each 1. */
    const char *const *others;
    int other_count;
    const double *weights;
    const struct ls_log *log;     /* may be NULL */
    const struct ls_fault *fault; /* may be NULL */
};
struct ls_import_report {
    struct ls_model_config model;
    int64_t parameters;
};
int ls_import(const struct ls_import *what, struct ls_import_report *report,
              struct ls_error *error);

/* The same training in the files that another layout would have written: RUN/config.yaml with that
 * layout, what goes with the model, and one checkpoint with step, state and hash of the one that
 * from and which mean (ls_checkpoint_choose). RUN as above. keys: of the layout ("parallel.dp=8");
 * those that are not given have their defaults, so that none means one rank. LS_ECONFIG: a key of
 * the recipe, or RUN exists. LS_ELAYOUT: the recipe does not admit it. LS_ECKPT: damage. */
struct ls_reshard {
    const char *from, *which, *run; /* which may be NULL */
    const char *const *keys;
    int count;
    const struct ls_log *log;     /* may be NULL */
    const struct ls_fault *fault; /* may be NULL */
};
struct ls_reshard_report {
    int64_t step, ranks;
    char layout[1024]; /* the keys that are not as for one rank */
    char hash[33];
};
int ls_reshard(const struct ls_reshard *what, struct ls_reshard_report *report,
               struct ls_error *error);

/* ---- out ------------------------------------------------------------------------------------- */

enum ls_export_format {
    LS_EXPORT_HF,   /* a folder: config.json, safetensors, and the files of RUN/hf */
    LS_EXPORT_PEFT, /* a folder of PEFT's: the adapters of a run alone */
    LS_EXPORT_LLMC, /* llm.c's model_*.bin: GPT-2 in fp32 (version 3) or bf16 (version 5) */
    LS_EXPORT_GGUF, /* a file of ggml and llama.cpp, with the tokenizer of RUN/hf if it can say it
                     */
};
/* Any source's model (of a run: the checkpoint that from and which mean, as ls_checkpoint_choose
 * has them) in files of others. The padding of the vocabulary is left out, and is that of the
 * format where it has one. out must not exist (or be an empty folder); it appears complete or not
 * at all. LS_ECONFIG for a model that the format cannot represent, with the key.
 *
 * Q8_0 is ggml's int8: blocks of 32 values of a row with one scale in fp16. Vectors and learned
 * positions stay float32, and a matrix whose rows are not whole blocks is fp16, with a warning:
 * what llama.cpp does.
 *
 * LS_EDATA names tensor and row of a weight that the type cannot represent: of int8 also one that
 * is not finite, of fp16 and bf16 a finite one that would become infinite. */
struct ls_export {
    const char *from, *which; /* which may be NULL */
    enum ls_export_format format;
    enum ls_dtype dtype; /* LS_F32, LS_BF16 or LS_F16; of GGUF also LS_I8, for Q8_0 */
    const char *out;
    int64_t shard_bytes;          /* of a file of weights at most, unless one tensor has more; 0:
                                   * LS_SHARD_BYTES */
    const struct ls_log *log;     /* may be NULL */
    const struct ls_fault *fault; /* may be NULL */
};
#define LS_SHARD_BYTES 5000000000
struct ls_export_report {
    int64_t tensors, bytes, files; /* of weights */
};
int ls_export(const struct ls_export *what, struct ls_export_report *report,
              struct ls_error *error);

LS_C_END
#endif
