/* A finished run, opened for evaluation and generation in any layout. */
#include "infer/infer_private.h"

#include <lockstep/base/meter.h>
#include <lockstep/ckpt.h>
#include <lockstep/config/inputs.h>
#include <lockstep/dtensor.h>
#include <lockstep/interop.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- its configuration ----------------------------------------------------------------------- */

/* The keys that mean something if nothing is trained. */
static const struct {
    const char *name;
    bool text; /* to generation too */
} layout_keys[] = {
    {"parallel.tp", true},      {"parallel.pp", true},         {"parallel.split", true},
    {"parallel.threads", true}, {"comm.transport", true},      {"comm.timeout_s", true},
    {"comm.check", true},       {"parallel.dp", true},         {"parallel.cp", false},
    {"parallel.sp", false},     {"parallel.cp_method", false}, {"parallel.tp_overlap", false},
    {"numerics.isa", true},     {"data.tokenizer", true},
};

/* What a folder of another program does not say for certain: its weights' type is not the one that
 * they must be computed in. */
static bool is_of_folder(const char *word)
{
    return !strncmp(word, "numerics.precision=", strlen("numerics.precision="));
}

static int key_check(const char *word, enum ls_finished_use use, struct ls_error *error)
{
    char list[512] = "";
    size_t length = strcspn(word, "=");
    for (size_t i = 0; i < sizeof layout_keys / sizeof layout_keys[0]; i++) {
        const char *name = layout_keys[i].name;
        if (use == LS_TO_GENERATE && !layout_keys[i].text)
            continue;
        if (!strncmp(name, word, length) && !name[length])
            return LS_OK;
        ls_string_add(list, sizeof list, ", ", "%s", name);
    }
    return ls_error_set(error, LS_ECONFIG, "%.200s: %s: expected one of %s", word,
                        use == LS_TO_GENERATE
                            ? "generation cuts the model alone, and the rest is the run's"
                            : "an evaluation takes no step, and all but its layout is the run's",
                        list);
}

/* data.tokenizer was given for a model that has none. */
static int tokenizer_check(const struct ls_config *config, const struct ls_tokenizer *own,
                           struct ls_error *error)
{
    struct ls_tokenizer *given = NULL;
    int64_t vocabulary = config->model_keys.vocab;
    int status = own ? ls_config_reject(config, LS_ECONFIG, "data.tokenizer", error,
                                        "the model has a tokenizer of its own, and text of another "
                                        "means nothing to it: leave the key out")
                     : ls_config_tokenizer(config, &given, error);
    if (!status && given && ls_tokenizer_vocabulary_of(given, vocabulary) > vocabulary)
        status = ls_config_reject(config, LS_ECONFIG, "data.tokenizer", error,
                                  "it has %ld tokens, and the model %ld: expected the tokenizer "
                                  "that made the model's data",
                                  (long)ls_tokenizer_vocabulary(given), (long)vocabulary);
    ls_tokenizer_free(given);
    return status;
}

static bool is_run(const char *path)
{
    char run[PATH_MAX], config[PATH_MAX];
    return !ls_model_is_foreign(path) && !ls_checkpoint_run(path, run, NULL) &&
           !ls_path_join(config, run, "config.yaml", NULL) && access(config, F_OK) == 0;
}

/* The resolved configuration of a run, and its tokenizer: NULL if there is none. */
static int run_read(const char *path, struct ls_config *config, struct ls_tokenizer **tokenizer,
                    struct ls_error *error)
{
    char run[PATH_MAX];
    *tokenizer = NULL;
    int status = ls_checkpoint_run(path, run, error);
    return status ? status : ls_kept_read(run, config, tokenizer, error);
}

/* The same of another program's model. precision: a word, or NULL. */
static int foreign_read(const char *path, const char *precision, const struct ls_log *log,
                        struct ls_config *config, struct ls_tokenizer **tokenizer,
                        struct ls_error *error)
{
    struct ls_model_source *source;
    *tokenizer = NULL;
    int status = ls_model_source_open(&source, path, log, error);
    if (!status)
        status = ls_model_source_alone(source, &precision, precision ? 1 : 0, log, config, error);
    ls_model_source_close(source);
    return status ? status : ls_config_tokenizer(config, tokenizer, error);
}

int ls_finished_configure(const char *path, enum ls_finished_use use, const char *const *words,
                          int count, struct ls_config *config, struct ls_error *error)
{
    struct ls_tokenizer *tokenizer;
    const char *precision = NULL;
    bool foreign = !is_run(path); /* or neither, which its reader says */
    for (int i = 0; i < count && foreign; i++)
        if (is_of_folder(words[i]))
            precision = words[i];
    int status = foreign ? foreign_read(path, precision, NULL, config, &tokenizer, error)
                         : run_read(path, config, &tokenizer, error);
    if (!status)
        ls_config_layout_reset(config);
    for (int i = 0; i < count && !status; i++) {
        if (foreign && is_of_folder(words[i]))
            continue;
        status = ls_config_set(config, words[i], error);
        if (!status)
            status = key_check(words[i], use, error);
        if (!status && !strncmp(words[i], "data.tokenizer=", strlen("data.tokenizer=")))
            status = tokenizer_check(config, tokenizer, error);
    }
    ls_tokenizer_free(tokenizer);
    if (!status)
        ls_config_forward(config);
    return status;
}

/* ---- its parameters -------------------------------------------------------------------------- */

struct ls_finished {
    struct ls_config config;
    struct model_place place;
    struct ls_ops ops;
    struct ls_tokenizer *tokenizer;
    struct ls_runner *runner;
    int64_t step;
    enum ls_quantize quantize;
    struct ls_arena *kept; /* where the weights' memory goes in the end; NULL: it is released */
};

/* Parameter i is there: a sign of life of each rank, and rank 0 tells how far it is. */
static void parameter_told(const struct ls_finished *f, int i)
{
    ls_progress();
    if (ls_comm_rank(f->place.groups[LS_GROUP_WORLD]) == 0)
        ls_meter("tensors", i + 1, f->place.params.count);
}

/* Each rank reads its part. */
static int parameters_load(void *user, struct ls_checkpoint *checkpoint, struct ls_error *error)
{
    struct ls_finished *f = user;
    enum { PORTION = 1 << 18 };
    int64_t rank = ls_comm_rank(f->place.groups[LS_GROUP_WORLD]);
    float *portion = malloc(PORTION * sizeof *portion);
    int status = portion ? LS_OK : ls_no_memory(error, "to read a model");
    for (int i = 0; i < f->place.params.count && !status; i++) {
        const struct ls_dtensor_spec *spec = &f->place.params.list[i].spec;
        const struct ls_stored_tensor *tensor;
        struct ls_runs runs;
        struct ls_run run;
        status = ls_checkpoint_require(checkpoint, LS_CKPT_MODEL, f->place.params.list[i].name,
                                       LS_F32, spec->dims, spec->shape, &tensor, error);
        ls_runs_init(&runs, spec, rank % ls_mesh_ranks(&spec->mesh)); /* pp is the outermost axis */
        while (!status && ls_runs_next(&runs, &run))
            for (int64_t at = 0; at < run.count && !status; at += PORTION) {
                int64_t count = ls_min(PORTION, run.count - at);
                status =
                    ls_checkpoint_read(checkpoint, tensor, run.global + at, count, portion, error);
                if (!status)
                    held_weights_set(&f->place.weights, &f->ops, &f->place.params.list[i],
                                     run.local + at, count, portion);
            }
        if (!status)
            status = held_weights_end(&f->place.weights, &f->ops, &f->place.params.list[i], error);
        parameter_told(f, i);
    }
    free(portion);
    return status;
}

/* The same of another program's files. */
static int source_load(struct ls_finished *f, struct ls_model_source *source,
                       struct ls_error *error)
{
    enum { PIECE = 1 << 20 };
    float *piece = malloc(PIECE * sizeof *piece);
    int status = piece ? ls_model_source_check(source, &f->place.layout.model,
                                               &f->place.layout.numerics, error)
                       : ls_no_memory(error, "to read a model");
    for (int i = 0; i < f->place.params.count && !status; i++) {
        const struct ls_param *param = &f->place.params.list[i];
        int64_t elements = param->rows * param->cols;
        for (int64_t at = 0; at < elements && !status; at += PIECE) {
            int64_t count = ls_min(PIECE, elements - at);
            status = ls_model_source_fill(source, param, &f->ops, at, count, piece, error);
            if (!status)
                held_weights_set(&f->place.weights, &f->ops, param, at, count, piece);
        }
        if (!status)
            status = held_weights_end(&f->place.weights, &f->ops, param, error);
        parameter_told(f, i);
    }
    free(piece);
    return status;
}

static int foreign_load(struct ls_finished *f, const char *path, const struct ls_log *log,
                        struct ls_error *error)
{
    struct ls_comm *world = f->place.groups[LS_GROUP_WORLD];
    struct ls_model_source *source = NULL;
    struct ls_config alone;
    const struct ls_log *mine = ls_comm_rank(world) == 0 ? log : NULL;
    int status = foreign_read(path, NULL, mine, &alone, &f->tokenizer, error);
    if (!status)
        status = ls_model_source_open(&source, path, NULL, error);
    status = ls_comm_agree(world, status, error);
    if (!status)
        status = source_load(f, source, error);
    if (!status)
        ls_model_source_tell(source, log);
    ls_model_source_close(source);
    return ls_comm_agree(world, status, error); /* a file may change between two ranks' reads */
}

static int checkpoint_load(struct ls_finished *f, const char *path, const char *which,
                           const struct ls_log *log, struct ls_error *error)
{
    struct ls_config kept;
    struct ls_checkpoint *checkpoint = NULL;
    if (ls_model_is_foreign(path) && which)
        return ls_error_set(error, LS_ECONFIG, "%.300s: has no steps to choose from", path);
    if (ls_model_is_foreign(path))
        return foreign_load(f, path, log, error);
    struct ls_comm *world = f->place.groups[LS_GROUP_WORLD];
    const struct ls_log *mine = ls_comm_rank(world) == 0 ? log : NULL;
    int status = run_read(path, &kept, &f->tokenizer, error);
    if (!status)
        status = ls_checkpoint_choose(&checkpoint, path, which, mine, error);
    status = ls_checkpoint_load(&checkpoint, world, status, parameters_load, f, mine, error);
    if (!status)
        f->step = checkpoint->state.step;
    ls_checkpoint_close(checkpoint);
    return status;
}

/* ---- its ranks ------------------------------------------------------------------------------- */

static int place_open(struct ls_finished *f, struct ls_comm *world, struct ls_error *error)
{
    struct model_place *place = &f->place;
    int status = model_place_open(place, world, &f->ops.queue, error);
    return status ? status
                  : held_weights_init(&place->weights, &place->params, place->layout.numerics.act,
                                      f->quantize, NULL, error);
}

/* In the arithmetic of the run, on the fastest instruction set that there is. */
static int ops_open(struct ls_finished *f, struct ls_comm *world, struct ls_error *error)
{
    int threads = 1;
    int status = ls_config_threads(&f->config, world, &threads, error);
    status = ls_comm_agree(world, status, error);
    if (!status)
        status = ls_config_settle(&f->config, world, error);
    return status ? status : ls_config_ops(&f->config, world, threads, &f->ops, error);
}

static int runner_open(struct ls_finished *f, struct ls_error *error)
{
    int status = LS_OK;
    if (!f->tokenizer && f->config.data.tokenizer[0]) /* the model has none: one was given */
        status = ls_config_tokenizer(&f->config, &f->tokenizer, error);
    const struct ls_runner_parts parts = {.config = &f->config,
                                          .layout = &f->place.layout,
                                          .groups = f->place.groups,
                                          .ops = &f->ops,
                                          .tokenizer = f->tokenizer,
                                          .part = model_place_part(&f->place)};
    return status ? status : ls_runner_new(&parts, &f->runner, error);
}

int ls_finished_new(const struct ls_config *config, const char *path,
                    const struct ls_finished_choice *choice, struct ls_comm *world,
                    const struct ls_log *log, struct ls_finished **out, struct ls_error *error)
{
    *out = NULL;
    struct ls_finished *f = calloc(1, sizeof *f);
    int status = f ? LS_OK : ls_no_memory(error, "to open a run");
    if (f) {
        f->quantize = choice ? choice->quantize : LS_QUANTIZE_NONE;
        f->config = *config;
        status = ls_config_layout(&f->config, ls_comm_size(world), &f->place.layout, error);
    }
    status = ls_comm_agree(world, status, error);
    if (!status)
        status = ops_open(f, world, error);
    status = ls_comm_agree(world, status, error);
    if (!status)
        status = place_open(f, world, error);
    status = ls_comm_agree(world, status, error);
    if (!status)
        status = checkpoint_load(f, path, choice ? choice->which : NULL, log, error);
    if (!status)
        status = runner_open(f, error);
    status = ls_comm_agree(world, status, error);
    if (status) {
        ls_finished_free(f);
        return status;
    }
    *out = f;
    return LS_OK;
}

void ls_finished_free(struct ls_finished *f)
{
    if (!f)
        return;
    ls_groups_close(f->place.groups); /* what failed transfers use goes after them */
    ls_runner_free(f->runner);
    ls_tokenizer_free(f->tokenizer);
    if (f->kept) {
        *f->kept = f->place.weights.arena;
        f->place.weights.arena = (struct ls_arena){0};
    }
    model_place_release(&f->place);
    ls_ops_release(&f->ops);
    free(f);
}

struct ls_runner *ls_finished_runner(struct ls_finished *f)
{
    return f->runner;
}

const struct ls_model_config *ls_finished_model(const struct ls_finished *f)
{
    return &f->place.layout.model;
}

const struct ls_tokenizer *ls_finished_tokenizer(const struct ls_finished *f)
{
    return f->tokenizer;
}

int64_t ls_finished_step(const struct ls_finished *f)
{
    return f->step;
}

const struct ls_layout *ls_finished_layout(const struct ls_finished *f)
{
    return &f->place.layout;
}

const struct ls_params *ls_finished_params(const struct ls_finished *f)
{
    return &f->place.params;
}

enum ls_dtype ls_finished_dtype(const struct ls_finished *f)
{
    return f->place.weights.act;
}

int ls_finished_dtensor(const struct ls_finished *f, int i, struct ls_dtensor *out,
                        struct ls_error *error)
{
    const struct ls_param *param = &f->place.params.list[i];
    struct ls_dtensor_spec spec = param->spec;
    void *data = held_weights_data(&f->place.weights, param);
    spec.dtype = param->matrix ? f->place.weights.act : LS_F32;
    int64_t rank = ls_comm_rank(f->place.groups[LS_GROUP_WORLD]) % ls_mesh_ranks(&spec.mesh);
    if (!data || param->blocks)
        return ls_error_set(error, LS_EINVAL, "%s is kept in %s: it has no tensor", param->name,
                            data ? "blocks of few bits (lora.base)" : "int8");
    return ls_dtensor_init(out, &spec, rank, data, error);
}

void ls_finished_lend(struct ls_finished *f, struct ls_arena *kept)
{
    f->kept = kept;
}
