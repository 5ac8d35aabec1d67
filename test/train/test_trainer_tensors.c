/* The trainer's tensors as distributed ones: in every layout each rank's part has the size and the
 * place of the slice it trains, and the parts together are what one rank has, bit for bit: after
 * two steps, parameters, gradients and optimizer states. */
#include "../support/extent.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "train/trainer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 8192, STEPS = 2, KEYS_MAX = 7, ROOM = 600, KINDS = LS_TENSOR_STATE + 2 };

static const char *const kind_names[KINDS] = {"parameter", "gradient", "gradient of the table",
                                              "state 0", "state 1"};

typedef const char *keys_t[KEYS_MAX];

static const char *const common[] = {
    "model.layers=2",        "model.channels=32", "model.heads=4",           "model.context=256",
    "model.vocab=90",        "data.sequence=256", "numerics.tp_tiles=4",     "numerics.seq_tiles=2",
    "batch.global=16",       "train.steps=4",     "numerics.precision=fp32", "optim.lr=3e-3",
    "log.tensorboard=false", "parallel.threads=1"};
/* Tied and with biases; 90 tokens pad to 96 rows, which 16 ranks under tp do not divide evenly. */
static const keys_t gpt2 = {"model.vocab_multiple=32"};
/* Two key/value heads, which tp 4 shares; a quarter of 56 rows over 8 ranks leaves one with none.
 */
static const keys_t llama = {"model.arch=llama", "model.kv_heads=2", "model.ffn=56",
                             "model.vocab_multiple=8", "model.tied=false"};

static const keys_t layouts[] = {
    {"parallel.tp=2"},
    {"parallel.tp=4", "parallel.sp=true"},
    {"parallel.dp_shard=2", "parallel.dp_replicate=2"},
    {"parallel.dp_shard=2", "parallel.zero=1"},
    {"parallel.dp_shard=4", "parallel.zero=2"},
    {"parallel.dp_shard=16", "parallel.zero=3", "parallel.persist=32"},
    {"parallel.cp=2"},
    {"parallel.cp=2", "parallel.dp_shard=4", "parallel.zero=3", "parallel.persist=32"},
    {"parallel.dp_shard=8", "parallel.tp=2", "parallel.zero=1"},
    {"parallel.dp_shard=2", "parallel.cp=2", "parallel.tp=2", "parallel.zero=2"},
    {"parallel.dp_shard=4", "parallel.tp=4", "parallel.zero=3", "parallel.sp=true"},
    {"parallel.dp_replicate=2", "parallel.dp_shard=2", "parallel.tp=4", "parallel.zero=1"},
    {"parallel.pp=2", "parallel.dp_replicate=2", "parallel.cp=2"},
    {"parallel.pp=2", "parallel.dp_shard=2", "parallel.tp=4", "parallel.zero=3"},
    {"parallel.pp=2", "parallel.schedule=zbv", "parallel.dp_shard=2", "parallel.zero=2"},
    {"parallel.pp=4", "parallel.dp_shard=2", "parallel.dp_replicate=2", "parallel.zero=1"},
};
enum { LAYOUTS = sizeof layouts / sizeof layouts[0] };

static int data_setup(void **state)
{
    if (scratch_setup(state))
        return -1;
    uint16_t tokens[TOKENS];
    for (uint32_t i = 0; i < TOKENS; i++)
        tokens[i] = (uint16_t)((i * 7 + i * i % 11) % 90);
    scratch_write(scratch_path(*state, "tokens.bin"), tokens, sizeof tokens);
    return 0;
}

static void set_all(struct ls_config *config, const char *const *keys, int count)
{
    struct ls_error error = {0};
    for (int i = 0; i < count && keys[i]; i++)
        if (ls_config_set(config, keys[i], &error))
            fail_msg("%s: %s", keys[i], error.text);
}

static struct ls_config config_make(const char *directory, const keys_t model, const keys_t keys)
{
    struct ls_config config;
    struct ls_error error = {0};
    char data[ROOM];
    const char *const train[] = {data};
    snprintf(data, sizeof data, "data.train=u16:%s/tokens.bin", directory);
    ls_config_defaults(&config);
    set_all(&config, train, 1);
    set_all(&config, common, sizeof common / sizeof common[0]);
    set_all(&config, model, KEYS_MAX);
    set_all(&config, keys, KEYS_MAX);
    assert_ok(ls_train_resolve(&config, &error), error);
    return config;
}

/* ---- what one rank has ----------------------------------------------------------------------- */

struct whole {
    struct ls_params params;
    float *(*values)[KINDS]; /* [params.count]; NULL where there is no such tensor */
};

/* What is done wrong to one tensor, to be found. */
enum fault { SOUND, ROW_OFF, PLAIN_SHARD };

struct task {
    struct ls_config config;
    struct whole *whole; /* made by one rank, compared with by others */
    enum fault fault;
    const char *name; /* of the parameter that fault is done to */
};

static int steps_take(struct ls_trainer *t, struct ls_error *error)
{
    struct ls_step_report report;
    int status = LS_OK;
    for (int i = 0; i < STEPS && !status; i++)
        status = ls_trainer_step(t, &report, error);
    return status;
}

static int whole_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct task *task = user;
    struct whole *whole = task->whole;
    struct ls_trainer *t;
    int status = ls_trainer_new(&task->config, world, NULL, &t, error);
    if (!status)
        status = steps_take(t, error);
    if (!status)
        status = ls_params_init(&whole->params, &t->config.model, &t->numerics, NULL, error);
    whole->values = calloc((size_t)whole->params.count, sizeof *whole->values);
    for (int i = 0; i < whole->params.count && !status; i++)
        for (int kind = 0; kind < KINDS && !status; kind++) {
            struct ls_dtensor tensor;
            status = ls_trainer_dtensor(t, i, (enum ls_tensor_kind)kind, &tensor, error);
            if (status && kind == LS_TENSOR_TABLE_GRADIENT && i != t->params.tied_param) {
                status = LS_OK;
                continue;
            }
            if (status)
                break;
            size_t bytes = (size_t)tensor.local_count * sizeof(float);
            whole->values[i][kind] = malloc(bytes);
            memcpy(whole->values[i][kind], tensor.data, bytes);
        }
    ls_trainer_free(t);
    return status;
}

static void whole_make(struct whole *whole, const struct ls_config *config)
{
    struct task task = {.config = *config, .whole = whole};
    struct ls_error error = {0};
    *whole = (struct whole){0};
    if (ls_world_run(1, whole_body, &task, &error))
        fail_msg("one rank: %s", error.text);
}

static void whole_free(struct whole *whole)
{
    for (int i = 0; i < whole->params.count; i++)
        for (int kind = 0; kind < KINDS; kind++)
            free(whole->values[i][kind]);
    free(whole->values);
    ls_params_release(&whole->params);
}

/* ---- what the ranks of a layout have --------------------------------------------------------- */

/* The ranks that hold the same layers, and the communicators of their mesh. */
struct stage {
    struct ls_comm *comm;
    struct ls_mesh_comms mesh;
};

/* The part is as large as the slice, and begins where it does. */
static int place_check(const struct ls_trainer *t, int i, const struct ls_dtensor *tensor,
                       struct ls_error *error)
{
    const struct ls_param *param = &t->params.list[i];
    const struct ls_zero_slice *slice = t->state->slices[i].part;
    int64_t row = param->matrix ? param->cols : 1, offset[LS_DTENSOR_DIMS_MAX];
    int64_t first = (param->matrix ? param->first_row : param->first_col) + slice->first / row;
    if (tensor->local_count != slice->count ||
        (slice->count > 0 && tensor->local_shape[0] != slice->count / row))
        return ls_error_set(error, LS_EINVAL, "%s: %ld rows and %ld elements, the slice has %ld",
                            param->name, (long)tensor->local_shape[0], (long)tensor->local_count,
                            (long)slice->count);
    ls_dtensor_offset(&tensor->spec, tensor->rank, offset);
    if (slice->count > 0 &&
        (offset[0] != first || (param->matrix && offset[1] != param->first_col)))
        return ls_error_set(error, LS_EINVAL, "%s: begins at row %ld, the slice at %ld",
                            param->name, (long)offset[0], (long)first);
    return LS_OK;
}

/* Bit for bit. */
static int values_check(const char *name, int kind, int64_t count, const float *got,
                        const float *want, struct ls_error *error)
{
    for (int64_t j = 0; j < count; j++)
        if (memcmp(&got[j], &want[j], sizeof *got))
            return ls_error_set(error, LS_EINVAL, "%s of %s: element %ld is %a, of one rank %a",
                                kind_names[kind], name, (long)j, (double)got[j], (double)want[j]);
    return LS_OK;
}

/* The last rank of the mesh holds rows that are another's by one; or everybody takes ZeRO's parts
 * for parts of the whole, where they are parts of tp's. */
static void fault_do(enum fault fault, struct ls_dtensor *tensor, float *shifted)
{
    int64_t row = tensor->spec.shape[1], count = tensor->local_count;
    if (fault == PLAIN_SHARD)
        tensor->spec.placement[1] = ls_shard(0);
    if (fault != ROW_OFF || tensor->rank < ls_mesh_ranks(&tensor->spec.mesh) - 1)
        return;
    const float *data = tensor->data;
    memcpy(shifted, data + row, (size_t)(count - row) * sizeof *data);
    memcpy(shifted + count - row, data, (size_t)row * sizeof *data);
    tensor->data = shifted;
}

/* Collective over the stage. */
static int tensor_check(struct ls_trainer *t, const struct task *task, struct stage *stage, int i,
                        int kind, struct ls_error *error)
{
    const struct ls_param *param = &t->params.list[i];
    ptrdiff_t index = ls_params_find(&task->whole->params, param->name) - task->whole->params.list;
    const float *want = task->whole->values[index][kind];
    int64_t count = param->global_rows * param->global_cols;
    struct ls_dtensor tensor;
    int status = ls_trainer_dtensor(t, i, (enum ls_tensor_kind)kind, &tensor, error);
    if (!want)
        return status == LS_EINVAL
                   ? LS_OK
                   : ls_error_set(error, LS_EINVAL, "%s of %s: there is none on one rank",
                                  kind_names[kind], param->name);
    if (!status)
        status = place_check(t, i, &tensor, error);
    status = ls_comm_agree(stage->comm, status, error);
    if (status)
        return status;
    float *full = malloc(2 * (size_t)count * sizeof *full);
    if (task->fault && !strcmp(param->name, task->name))
        fault_do(task->fault, &tensor, full + count);
    status = ls_full_tensor(&tensor, full, &stage->mesh, error);
    if (!status)
        status = values_check(param->name, kind, count, full, want, error);
    free(full);
    return ls_comm_agree(stage->comm, status, error);
}

static int all_check(struct ls_trainer *t, const struct task *task, struct stage *stage,
                     struct ls_error *error)
{
    int status = LS_OK;
    for (int i = 0; i < ls_trainer_params(t)->count && !status; i++)
        for (int kind = 0; kind < KINDS && !status; kind++)
            status =
                ls_comm_agree(stage->comm, tensor_check(t, task, stage, i, kind, error), error);
    return status;
}

static int check_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    const struct task *task = user;
    struct stage stage = {0};
    struct ls_trainer *t;
    int status = ls_trainer_new(&task->config, world, NULL, &t, error);
    if (!status)
        status = steps_take(t, error);
    if (!status)
        status = ls_comm_split(world, (int)t->coordinates[LS_AXIS_PP], ls_comm_rank(world),
                               &stage.comm, error);
    if (!status)
        status = ls_mesh_comms_init(&stage.mesh, &t->layout.sets[0].mesh, stage.comm, error);
    if (!status)
        status = all_check(t, task, &stage, error);
    ls_mesh_comms_release(&stage.mesh);
    ls_comm_free(stage.comm);
    ls_trainer_free(t);
    return status;
}

static const char *keys_text(const keys_t keys)
{
    static char text[ROOM];
    for (int i = 0, at = 0; i < KEYS_MAX && keys[i]; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, "%s ", keys[i] + strlen("parallel."));
    return text;
}

static void check_layouts(const char *directory, const keys_t model, int turn)
{
    struct whole whole;
    struct ls_config one = config_make(directory, model, (keys_t){NULL});
    whole_make(&whole, &one);
    for (int i = 0; i < LAYOUTS; i++) {
        if (!check_pair(i, turn, 4))
            continue;
        struct task task = {.config = config_make(directory, model, layouts[i]), .whole = &whole};
        struct ls_error error = {0};
        if (ls_world_run((int)ls_config_ranks(&task.config), check_body, &task, &error))
            fail_msg("%s: %s", keys_text(layouts[i]), error.text);
    }
    whole_free(&whole);
}

CASE_WITH(test_gpt2, data_setup, scratch_teardown)
{
    check_layouts(*state, gpt2, 0);
}

CASE_WITH(test_llama_with_shared_heads, data_setup, scratch_teardown)
{
    check_layouts(*state, llama, 1);
}

CASE_WITH(test_broken_twins_are_found, data_setup, scratch_teardown)
{
    static const keys_t keys = {"parallel.dp_shard=4", "parallel.tp=2", "parallel.zero=2"};
    static const struct {
        enum fault fault;
        const char *name;
    } twins[] = {{ROW_OFF, "h.1.mlp.up.weight"},
                 {ROW_OFF, "h.0.attn.proj.weight"},
                 {PLAIN_SHARD, "h.0.attn.q.weight"}};
    struct whole whole;
    struct ls_config one = config_make(*state, gpt2, (keys_t){NULL});
    whole_make(&whole, &one);
    for (size_t i = 0; i < sizeof twins / sizeof twins[0]; i++) {
        struct task task = {.config = config_make(*state, gpt2, keys),
                            .whole = &whole,
                            .fault = twins[i].fault,
                            .name = twins[i].name};
        struct ls_error error = {0};
        char want[ROOM];
        int status = ls_world_run((int)ls_config_ranks(&task.config), check_body, &task, &error);
        snprintf(want, sizeof want, "parameter of %s: element", twins[i].name);
        if (status != LS_EINVAL || !strstr(error.text, want))
            fail_msg("twin %zu: %d \"%s\", expected \"%s\"", i, status, error.text, want);
    }
    whole_free(&whole);
}

/* ---- questions without an answer ------------------------------------------------------------- */

static int refusals_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    const struct task *task = user;
    struct ls_trainer *t;
    struct ls_dtensor tensor;
    struct ls_error refused = {0};
    int status = ls_trainer_new(&task->config, world, NULL, &t, error);
    if (status)
        return status;
    if (ls_trainer_dtensor(t, 0, LS_TENSOR_GRADIENT, &tensor, &refused) != LS_EINVAL ||
        !strstr(refused.text, "no step"))
        status =
            ls_error_set(error, LS_ECKPT, "a gradient before the first step: %s", refused.text);
    else if (ls_trainer_dtensor(t, t->params.count, LS_TENSOR_PARAMETER, &tensor, NULL) !=
                 LS_EINVAL ||
             ls_trainer_dtensor(t, -1, LS_TENSOR_PARAMETER, &tensor, NULL) != LS_EINVAL)
        status = ls_error_set(error, LS_ECKPT, "a parameter that is not there");
    else if (ls_trainer_dtensor(t, 0, LS_TENSOR_STATE, &tensor, NULL) ||
             ls_trainer_dtensor(t, 0, LS_TENSOR_STATE + 1, &tensor, NULL) != LS_EINVAL)
        status = ls_error_set(error, LS_ECKPT, "SGD with momentum has one state");
    ls_trainer_free(t);
    return status;
}

CASE_WITH(test_what_is_not_there_is_refused, data_setup, scratch_teardown)
{
    static const keys_t keys = {"optim.name=sgd", "optim.momentum=0.9"};
    struct task task = {.config = config_make(*state, gpt2, keys)};
    struct ls_error error = {0};
    assert_ok(ls_world_run(1, refusals_body, &task, &error), error);
}

SUITE_MAIN(NULL, NULL)
