/* The state of a run in every layout: one hash, the same tensors in its checkpoint, from each
 * layout into each; what ranks hold alike and does not agree is found; samples need no layout. No
 * step is taken here: the state is invented, every element a function of its place in the whole
 * model. */
#include "../support/checkpoints.h"
#include "../support/extent.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/wrapped.h"
#include "train/trainer.h"

#include <lockstep/ckpt.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 4096, KEYS_MAX = 9, ROOM = 600 };

typedef const char *keys_t[KEYS_MAX];

/* A Llama with a tied table, whose key/value heads tp 4 shares; matrices with rows that 3 ranks do
 * not divide. */
static const char *const recipe[] = {
    "model.arch=llama",     "model.tied=true",    "model.vocab_multiple=8", "model.layers=2",
    "model.channels=32",    "model.heads=4",      "model.kv_heads=2",       "model.ffn=56",
    "model.context=256",    "data.sequence=256",  "data.tokenizer=byte",    "numerics.tp_tiles=4",
    "numerics.seq_tiles=2", "batch.global=8",     "train.steps=8",          "log.tensorboard=false",
    "train.resume=auto",    "parallel.threads=1", "sample.tokens=12",       "sample.temperature=1"};

static const keys_t layouts[] = {
    {NULL},
    {"parallel.tp=2"},
    {"parallel.tp=4", "parallel.sp=true"},
    {"parallel.pp=2"},
    {"parallel.cp=2"},
    {"parallel.dp=2"},
    {"parallel.dp_shard=4", "parallel.zero=1"},
    {"parallel.dp_shard=2", "parallel.dp_replicate=2", "parallel.zero=2"},
    {"parallel.dp_shard=8", "parallel.zero=3", "parallel.persist=32"},
    {"parallel.pp=2", "parallel.tp=2", "parallel.dp_shard=2", "parallel.zero=3"},
    {"parallel.cp=2", "parallel.tp=2", "parallel.dp_replicate=2", "parallel.zero=1"},
    {"parallel.pp=2", "parallel.tp=4", "parallel.dp=2"},
};
enum { LAYOUTS = sizeof layouts / sizeof layouts[0] };

static int data_setup(void **state)
{
    if (scratch_setup(state))
        return -1;
    uint16_t tokens[TOKENS];
    for (uint32_t i = 0; i < TOKENS; i++)
        tokens[i] = (uint16_t)(i * 7 % 97);
    scratch_write(scratch_path(*state, "tokens.bin"), tokens, sizeof tokens);
    return 0;
}

static void set(struct ls_config *config, const char *key)
{
    struct ls_error error = {0};
    if (ls_config_set(config, key, &error))
        fail_msg("%s: %s", key, error.text);
}

/* The recipe in a layout, with its checkpoints in <directory>/<run>. */
static struct ls_config config_make(const char *directory, const char *run, const char *precision,
                                    const keys_t keys)
{
    struct ls_config config;
    struct ls_error error = {0};
    char data[ROOM], out[ROOM], numbers[ROOM];
    snprintf(data, sizeof data, "data.train=u16:%s/tokens.bin", directory);
    snprintf(out, sizeof out, "train.out=%s/%s", directory, run);
    snprintf(numbers, sizeof numbers, "numerics.precision=%s", precision);
    ls_config_defaults(&config);
    set(&config, data);
    snprintf(data, sizeof data, "data.valid=u16:%s/tokens.bin", directory);
    set(&config, data);
    set(&config, out);
    set(&config, numbers);
    for (size_t i = 0; i < sizeof recipe / sizeof recipe[0]; i++)
        set(&config, recipe[i]);
    for (int i = 0; i < KEYS_MAX && keys[i]; i++)
        set(&config, keys[i]);
    assert_ok(ls_train_resolve(&config, &error), error);
    return config;
}

/* "pp=2 tp=2", for texts. */
static const char *layout_text(const keys_t keys)
{
    static char text[ROOM];
    snprintf(text, sizeof text, "one rank");
    for (int i = 0, at = 0; i < KEYS_MAX && keys[i]; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, "%s ", keys[i] + strlen("parallel."));
    return text;
}

/* ---- an invented state ----------------------------------------------------------------------- */

/* Element `index` of the whole parameter in one array. */
static float invented(const char *name, int state, int64_t index)
{
    uint64_t hash = ls_hash64(name, strlen(name), (uint64_t)(index * 4 + state + 1));
    return (float)(int32_t)(hash >> 40) * 0x1p-26f - 0.1f;
}

struct inventing {
    const struct ls_param *param;
    int64_t first; /* of the slice in this rank's part */
    int state;
    bool half;
};

static int piece_invent(void *user, const struct ls_slice_piece *piece, struct ls_error *error)
{
    const struct inventing *v = user;
    const struct ls_param *p = v->param;
    float *values = piece->values;
    ls_bf16 *halves = piece->values;
    for (int64_t j = 0; j < piece->count; j++) {
        int64_t at = v->first + piece->from + j;
        int64_t row = p->first_row + at / p->cols, col = p->first_col + at % p->cols;
        float value = invented(p->name, v->state, row * p->global_cols + col);
        if (v->half)
            halves[j] = ls_f32_to_bf16(value);
        else
            values[j] = value;
    }
    return LS_OK;
}

static int state_invent(struct ls_trainer *t, struct ls_error *error)
{
    for (int s = LS_STATE_PARAMETERS; s < ls_optimizer_states_most(&t->state->optimizer.config);
         s++)
        for (int i = 0; i < t->params.count; i++) {
            struct inventing inventing = {&t->params.list[i], t->state->slices[i].part->first, s,
                                          ls_state_type(t->state, s) == LS_BF16};
            if (s >= ls_state_arrays(t->state, inventing.param))
                continue;
            int status = ls_slice_visit_array(&t->state->optimizer, &t->state->slices[i], s + 1,
                                              LS_WRITES, piece_invent, &inventing, error);
            if (status)
                return status;
        }
    t->state->step = 7;
    t->state->samples = 56;
    return ls_state_publish(t->state, error);
}

/* What the ranks of one layout do, and what comes out of rank 0. */
struct task {
    struct ls_config config;
    int (*act)(struct ls_trainer *t, struct task *task, struct ls_error *error);
    char hash[33];
    char *text;
    /* of damage */
    int rank, state;
    const char *name;
};

static int hash_put(struct ls_trainer *t, struct task *task, struct ls_error *error)
{
    struct ls_digest digest = {0, 0};
    int status = ls_trainer_hash(t, &digest, error);
    if (!status && ls_comm_rank(t->world) == 0)
        ls_digest_hex(&digest, task->hash);
    return status;
}

static int task_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct task *task = user;
    struct ls_trainer *t;
    int status = ls_trainer_new(&task->config, world, NULL, &t, error);
    if (!status)
        status = task->act(t, task, error);
    ls_trainer_free(t);
    return status;
}

static int task_try(struct task *task, struct ls_error *error)
{
    *error = (struct ls_error){0};
    return ls_world_run((int)ls_config_ranks(&task->config), task_body, task, error);
}

static void task_run(struct task *task, const char *what)
{
    struct ls_error error;
    if (task_try(task, &error))
        fail_msg("%s: %s", what, error.text);
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

static int act_save(struct ls_trainer *t, struct task *task, struct ls_error *error)
{
    int status = state_invent(t, error);
    if (!status)
        status = ls_trainer_save(t, error);
    return status ? status : hash_put(t, task, error);
}

static int act_resume(struct ls_trainer *t, struct task *task, struct ls_error *error)
{
    bool resumed = false;
    int status = ls_trainer_resume(t, &resumed, error);
    if (!status && (!resumed || t->state->step != 7 || t->state->samples != 56))
        status = ls_error_set(error, LS_ECKPT, "resumed %d at step %ld, sample %ld", (int)resumed,
                              (long)t->state->step, (long)t->state->samples);
    return status ? status : hash_put(t, task, error);
}

/* DIRECTORY/RUN/checkpoints/step-00000007; lives until the second call after. */
static const char *saved_in(const char *directory, const char *run)
{
    static char paths[2][2 * ROOM];
    static int turn;
    snprintf(paths[++turn % 2], sizeof paths[0], "%s/%s/checkpoints/step-00000007", directory, run);
    return paths[turn % 2];
}

static void expect_type(const char *directory, enum ls_checkpoint_part part, const char *name,
                        enum ls_dtype dtype)
{
    struct ls_checkpoint *checkpoint = checkpoint_open(saved_in(directory, "one"));
    const struct ls_stored_tensor *tensor;
    free(checkpoint_tensor(checkpoint, part, name, &tensor));
    assert_int_equal(tensor->dtype, dtype);
    ls_checkpoint_close(checkpoint);
}

/* The keys of a layout, and more of them. */
static void keys_join(keys_t keys, const keys_t layout, const keys_t more)
{
    int count = 0;
    for (; layout[count]; count++)
        keys[count] = layout[count];
    for (int k = 0; more[k]; k++)
        keys[count++] = more[k];
}

static void check_resume(const char *directory, const char *run, const keys_t keys,
                         const char *hash)
{
    struct task resume = {.config = config_make(directory, run, "fp32", keys), .act = act_resume};
    task_run(&resume, layout_text(keys));
    if (strcmp(resume.hash, hash))
        fail_msg("%s: resumed with hash %s, saved was %s", layout_text(keys), resume.hash, hash);
}

/* Every layout writes the tensors of one rank, and goes on from what the layout before it wrote;
 * layouts 0, step, 2 step... */
static void check_checkpoints(const char *directory, const keys_t more, int step)
{
    char hash[33] = "", names[2][16] = {"", "one"};
    for (int i = 0; i < LAYOUTS; i += step) {
        const char *what = layout_text(layouts[i]), *run = names[(i / step + 1) % 2];
        keys_t keys = {NULL};
        keys_join(keys, layouts[i], more);
        snprintf(names[i / step % 2], sizeof names[0], i ? "run%d" : "one", i);
        struct task save = {.config = config_make(directory, names[i / step % 2], "fp32", keys),
                            .act = act_save};
        task_run(&save, what);
        if (i == 0)
            memcpy(hash, save.hash, sizeof hash);
        if (strcmp(save.hash, hash))
            fail_msg("%s: hash %s, of one rank %s", what, save.hash, hash);
        expect_same_checkpoints(saved_in(directory, "one"),
                                saved_in(directory, names[i / step % 2]), what);
        check_resume(directory, i ? run : "one", keys, hash);
    }
    /* What version 1 wrote is gone on from. */
    if (step > 1)
        return;
    char old[2 * ROOM];
    snprintf(old, sizeof old, "%s/old", directory);
    old_checkpoint_copy(saved_in(directory, "one"), old);
    for (int i = 0; i < LAYOUTS; i += 3) {
        keys_t keys = {NULL};
        keys_join(keys, layouts[i], more);
        check_resume(directory, "old", keys, hash);
    }
}

CASE_WITH(test_checkpoints_do_not_know_the_layout, data_setup, scratch_teardown)
{
    check_checkpoints(*state, (keys_t){"optim.moments=fp32"}, 1);
    expect_type(*state, LS_CKPT_OPTIMIZER, "exp_avg.wte.weight", LS_F32);
    check_checkpoints(*state, (keys_t){"optim.moments=bf16"}, check_every(3, 3));
    expect_type(*state, LS_CKPT_MODEL, "wte.weight", LS_F32);
    expect_type(*state, LS_CKPT_OPTIMIZER, "exp_avg.wte.weight", LS_BF16);
    expect_type(*state, LS_CKPT_OPTIMIZER, "exp_avg_sq.h.1.mlp.down.weight", LS_BF16);
}

/* ---- what is read ahead ---------------------------------------------------------------------- */

WRAPPED(ls_checkpoint_expect);
WRAPPED(ls_checkpoint_take);
static _Thread_local struct {
    const struct ls_stored_tensor *list[1024];
    int count;
} ahead; /* tensors that this rank has expected */
static atomic_int surprises;
static atomic_int expected_alone, expected_by_others; /* calls */
static int large_behind; /* tensors ahead of the first large one when that is read */
static int64_t large_bytes;
static bool blind; /* the twin expects nothing */

static bool is_ahead(const struct ls_stored_tensor *tensor)
{
    int i = 0;
    while (i < ahead.count && ahead.list[i] != tensor)
        i++;
    return i < ahead.count;
}

void __wrap_ls_checkpoint_expect(struct ls_checkpoint *checkpoint,
                                 const struct ls_stored_tensor *tensor, int64_t first,
                                 int64_t count, bool alone)
{
    if (blind)
        return;
    expected_alone += alone;
    expected_by_others += !alone;
    if (!is_ahead(tensor) && ahead.count < 1024)
        ahead.list[ahead.count++] = tensor;
    __real_ls_checkpoint_expect(checkpoint, tensor, first, count, alone);
}

int __wrap_ls_checkpoint_take(struct ls_checkpoint *checkpoint,
                              const struct ls_stored_tensor *tensor, int64_t first, int64_t count,
                              void *values, ls_checkpoint_arrived *arrived, void *user,
                              struct ls_error *error)
{
    surprises += !is_ahead(tensor);
    if (large_bytes && count * (int64_t)sizeof(float) >= large_bytes) {
        large_bytes = 0;
        for (int i = 0; i < ahead.count; i++)
            large_behind = ahead.list[i] == tensor ? ahead.count - i - 1 : large_behind;
    }
    return __real_ls_checkpoint_take(checkpoint, tensor, first, count, values, arrived, user,
                                     error);
}

/* Whatever a rank reads of a checkpoint it has asked for before, so that the disk does not wait. */
CASE_WITH(test_the_disk_is_asked_in_advance, data_setup, scratch_teardown)
{
    const keys_t wrote = {"parallel.tp=2"}, keys = {"parallel.dp_shard=2", "parallel.zero=1"};
    struct task save = {.config = config_make(*state, "run", "fp32", wrote), .act = act_save};
    task_run(&save, "save");
    for (int twin = 0; twin < 2; twin++) {
        blind = twin;
        surprises = 0;
        check_resume(*state, "run", keys, save.hash);
        assert_int_equal(surprises > 0, twin);
    }
    blind = false;
}

/* What each rank reads by itself goes past the page cache, and what is the same for several through
 * it: the disk reads it once. Tensor parallel cuts matrices, not norms. */
CASE_WITH(test_the_page_cache_is_for_what_ranks_share, data_setup, scratch_teardown)
{
    static const keys_t layouts[] = {{"parallel.dp_shard=2", "parallel.zero=1"},
                                     {"parallel.dp_shard=2", "parallel.zero=0"},
                                     {"parallel.dp_replicate=2", "parallel.zero=3"},
                                     {"parallel.tp=2"}};
    static const bool alone[] = {true, false, false, true}, shared[] = {false, true, true, true};
    struct task save = {.config = config_make(*state, "run", "fp32", layouts[0]), .act = act_save};
    task_run(&save, "save");
    for (int i = 0; i < 4; i++) {
        expected_alone = expected_by_others = 0;
        check_resume(*state, "run", layouts[i], save.hash);
        assert_int_equal(expected_alone > 0, alone[i]);
        assert_int_equal(expected_by_others > 0, shared[i]);
    }
}

/* While a tensor is read that is larger than what is asked for in advance, the disk has the next
 * ones to read. */
CASE_WITH(test_the_disk_is_asked_beyond_a_large_tensor, data_setup, scratch_teardown)
{
    const keys_t keys = {"model.vocab_multiple=65536", "model.channels=288"};
    if (!check_all())
        return;
    struct task save = {.config = config_make(*state, "run", "fp32", keys), .act = act_save};
    task_run(&save, "save");
    for (int twin = 0; twin < 2; twin++) {
        blind = twin;
        large_behind = 0;
        large_bytes = 64 << 20;
        memset(&ahead, 0, sizeof ahead);
        check_resume(*state, "run", keys, save.hash);
        assert_int_equal(large_bytes, 0);
        assert_int_equal(large_behind > 0, !twin);
    }
    blind = false;
}

/* ---- damage in files ------------------------------------------------------------------------- */

struct warned {
    int count;
    char last[1024];
};

static void warning_note(void *user, enum ls_log_level level, const char *line)
{
    struct warned *warned = user;
    if (level != LS_LOG_WARNING)
        return;
    warned->count++;
    snprintf(warned->last, sizeof warned->last, "%s", line);
}

/* The step after is there, too, and damaged in a piece that one rank alone reads. */
static int act_save_two(struct ls_trainer *t, struct task *task, struct ls_error *error)
{
    int status = act_save(t, task, error);
    t->state->step = 8;
    return status ? status : ls_trainer_save(t, error);
}

static int act_resume_warned(struct ls_trainer *t, struct task *task, struct ls_error *error)
{
    static struct warned warned;
    const struct ls_log log = {LS_LOG_INFO, warning_note, &warned};
    if (ls_comm_rank(t->world) == 0) {
        warned = (struct warned){0};
        t->state->log = &log;
    }
    int status = act_resume(t, task, error);
    t->state->log = NULL;
    if (!status && ls_comm_rank(t->world) == 0 &&
        (warned.count != 1 || !strstr(warned.last, "skipping a damaged checkpoint: ") ||
         !strstr(warned.last, "step-00000008")))
        status = ls_error_set(error, LS_EINVAL, "%d warnings: %.900s", warned.count, warned.last);
    return status;
}

static void file_damage(const char *directory, const char *name)
{
    char path[2 * ROOM];
    size_t size;
    snprintf(path, sizeof path, "%s/run/checkpoints/step-00000008/%s", directory, name);
    char *data = scratch_read(path, &size);
    data[size - 5] ^= 4;
    scratch_write(path, data, size);
    free(data);
}

/* All ranks go on from the older checkpoint, whoever finds the damage. */
CASE_WITH(test_damage_that_one_rank_finds, data_setup, scratch_teardown)
{
    static const char *const files[] = {"shard-00001-model-00001-of-00001.safetensors",
                                        "shard-00004-model-00001-of-00001.safetensors",
                                        "shard-00004-optimizer-00001-of-00001.safetensors"};
    const keys_t keys = {"parallel.tp=2", "parallel.dp_shard=2", "parallel.zero=3", "train.keep=2"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct task save = {.config = config_make(*state, "run", "fp32", keys),
                            .act = act_save_two};
        struct task resume = {.config = save.config, .act = act_resume_warned};
        task_run(&save, "save");
        file_damage(*state, files[i]);
        task_run(&resume, files[i]);
        save.act = act_save;
        task_run(&save, "save");
        assert_string_equal(resume.hash, save.hash);
        /* Its twin: of a checkpoint that is named, there is no older one. */
        struct ls_error error;
        snprintf(resume.config.train.resume, sizeof resume.config.train.resume,
                 "%s/run/checkpoints/step-00000008", (const char *)*state);
        assert_int_equal(task_try(&resume, &error), LS_ECKPT);
        if (!strstr(error.text, files[i]) || !strstr(error.text, "train.resume"))
            fail_msg("%s: %s", files[i], error.text);
    }
}

/* Tensors of which a slice is visited in several pieces: the table, cut by rows, and matrices that
 * tp cuts by rows and by columns; on the device, and of bf16 moments in a tier. */
CASE_WITH(test_tensors_of_several_pieces, data_setup, scratch_teardown)
{
    if (check_all())
        check_checkpoints(*state, (keys_t){"model.vocab_multiple=33000", "model.ffn=32800"}, 3);
    check_checkpoints(*state,
                      (keys_t){"model.vocab_multiple=33000", "model.ffn=32800",
                               "optim.moments=bf16", "memory.offload.optimizer=host"},
                      9);
}

/* The second rank looks elsewhere. */
static int act_resume_apart(struct ls_trainer *t, struct task *task, struct ls_error *error)
{
    if (ls_comm_rank(t->world) == 1)
        t->config.train.out[strlen(t->config.train.out) - 1] = '0';
    return act_resume(t, task, error);
}

CASE_WITH(test_ranks_that_find_different_checkpoints_stop, data_setup, scratch_teardown)
{
    struct task save = {.config = config_make(*state, "run", "fp32", layouts[0]), .act = act_save};
    struct task resume = {.config = config_make(*state, "run", "fp32", layouts[5]),
                          .act = act_resume_apart};
    struct ls_error error;
    task_run(&save, "save");
    assert_int_equal(task_try(&resume, &error), LS_ECKPT);
    assert_non_null(strstr(error.text, "different checkpoints"));
}

/* Where rank 0 cannot write, every rank hears of it and none waits for the next tensor. */
CASE_WITH(test_a_save_that_fails_ends_on_every_rank, data_setup, scratch_teardown)
{
    scratch_write(scratch_path(*state, "file"), "", 0);
    for (int i = 0; i < LAYOUTS; i++) {
        struct task save = {.config = config_make(*state, "file/run", "fp32", layouts[i]),
                            .act = act_save};
        struct ls_error error;
        int status = task_try(&save, &error);
        if (status != LS_EIO)
            fail_msg("%s: %d, expected LS_EIO (%s)", layout_text(layouts[i]), status, error.text);
    }
}

/* ---- damage ---------------------------------------------------------------------------------- */

static int last_negate(void *user, const struct ls_slice_piece *piece, struct ls_error *error)
{
    float *values = piece->values;
    (void)user, (void)error;
    values[piece->count - 1] = -values[piece->count - 1];
    return LS_OK;
}

static int act_damage(struct ls_trainer *t, struct task *task, struct ls_error *error)
{
    int status = state_invent(t, error);
    if (status || ls_comm_rank(t->world) != task->rank)
        return status ? status : hash_put(t, task, error);
    const struct ls_param *p = task->name ? ls_params_find(&t->params, task->name) : NULL;
    if (!task->name) {
        t->state->samples++;
    } else if (p) {
        status = ls_slice_visit_array(&t->state->optimizer, &t->state->slices[p - t->params.list],
                                      task->state + 1, LS_READS_WRITES, last_negate, NULL, error);
        if (status)
            return status;
    }
    if (task->name && !p)
        return ls_error_set(error, LS_EINVAL, "rank %d does not hold %s", task->rank, task->name);
    return hash_put(t, task, error);
}

CASE_WITH(test_damage_is_found_where_ranks_hold_the_same, data_setup, scratch_teardown)
{
    static const struct {
        keys_t keys;
        int rank, state;
        const char *name;
        int other;  /* the rank it is compared with; -1: nobody holds it too */
        bool named; /* most hold something else */
    } cases[] = {
        {{"parallel.dp=2"}, 1, LS_STATE_PARAMETERS, "h.0.attn.q.weight", 0, false},
        {{"parallel.dp=4"}, 2, 0, "h.1.mlp.down.weight", 0, true},
        {{"parallel.dp=4"}, 0, 1, "h.1.mlp.down.weight", 1, true},
        {{"parallel.dp=2"}, 1, 0, NULL, 0, false}, /* the position */
        {{"parallel.cp=2"}, 1, LS_STATE_PARAMETERS, "norm_f.weight", 0, false},
        {{"parallel.dp_replicate=2", "parallel.dp_shard=2", "parallel.zero=1"},
         3,
         1,
         "h.1.mlp.down.weight",
         1,
         false},
        {{"parallel.tp=2"}, 1, LS_STATE_PARAMETERS, "h.0.norm_1.weight", 0, false},
        {{"parallel.tp=4"}, 3, LS_STATE_PARAMETERS, "norm_f.weight", 0, true},
        {{"parallel.tp=4"}, 3, LS_STATE_PARAMETERS, "h.1.attn.k.weight", 2, false},
        {{"parallel.tp=4"}, 1, 1, "h.0.attn.v.weight", 0, false},
        {{"parallel.pp=2"}, 1, LS_STATE_PARAMETERS, "wte.weight", 0, false},
        {{"parallel.pp=2", "parallel.dp_shard=2", "parallel.tp=2", "parallel.zero=3"},
         6,
         1,
         "wte.weight",
         2,
         false},
        {{NULL}, 0, LS_STATE_PARAMETERS, "wte.weight", -1, false},
        {{"parallel.tp=2"}, 1, LS_STATE_PARAMETERS, "h.0.attn.q.weight", -1, false},
        {{"parallel.pp=2"}, 1, LS_STATE_PARAMETERS, "norm_f.weight", -1, false},
        {{"parallel.dp_shard=4", "parallel.zero=1"}, 2, 0, "wte.weight", -1, false},
    };
    struct task sound = {
        .config = config_make(*state, "run", "fp32", layouts[0]), .act = act_damage, .rank = -1};
    task_run(&sound, "no damage");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct task task = {.config = config_make(*state, "run", "fp32", cases[i].keys),
                            .act = act_damage,
                            .rank = cases[i].rank,
                            .state = cases[i].state,
                            .name = cases[i].name};
        struct ls_error error;
        char want[ROOM], what[2 * ROOM], who[32] = "one of them";
        int status = task_try(&task, &error);
        snprintf(what, sizeof what, "%s, %s of rank %d", layout_text(cases[i].keys),
                 cases[i].name ? cases[i].name : "position", cases[i].rank);
        if (cases[i].other < 0) { /* only the hash can tell */
            if (status || !strcmp(task.hash, sound.hash))
                fail_msg("%s: %d, hash %s, without damage %s", what, status, task.hash, sound.hash);
            continue;
        }
        if (cases[i].named)
            snprintf(who, sizeof who, "rank %d", cases[i].rank);
        snprintf(
            want, sizeof want,
            "the state of rank %d differs from rank %d's: memory or arithmetic of %s is faulty",
            cases[i].rank, cases[i].other, who);
        if (status != LS_ENUMERIC || !strstr(error.text, want))
            fail_msg("%s: %d \"%s\", expected \"%s\"", what, status, error.text, want);
    }
}

/* ---- samples --------------------------------------------------------------------------------- */

static int act_sample(struct ls_trainer *t, struct task *task, struct ls_error *error)
{
    char *text = NULL;
    int status = state_invent(t, error);
    for (int turn = 0; turn < 2 && !status; turn++) { /* the second uses the first's buffers */
        free(text);
        status = ls_trainer_sample(t, "to be", &text, error);
    }
    if (!status && (text != NULL) != (ls_comm_rank(t->world) == 0))
        status = ls_error_set(error, LS_EINVAL, "text on the wrong rank");
    if (ls_comm_rank(t->world) == 0)
        task->text = text;
    else
        free(text);
    return status;
}

CASE_WITH(test_samples_are_the_same_in_every_layout, data_setup, scratch_teardown)
{
    static const char *const precisions[] = {"fp32", "bf16"};
    for (int p = 0; p < 2; p++) {
        char *one = NULL;
        for (int i = 0; i<LAYOUTS; i += i> 0 ? 2 : p + 1) {
            struct task task = {.config = config_make(*state, "run", precisions[p], layouts[i]),
                                .act = act_sample};
            task_run(&task, layout_text(layouts[i]));
            if (!one)
                one = task.text;
            else if (strcmp(one, task.text))
                fail_msg("%s, %s: \"%s\", of one rank \"%s\"", layout_text(layouts[i]),
                         precisions[p], task.text, one);
            if (one != task.text)
                free(task.text);
        }
        assert_true(strlen(one) > strlen("to be"));
        free(one);
    }
}

SUITE_MAIN(NULL, NULL)
