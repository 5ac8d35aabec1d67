/* A session: orders and what they refuse, a run step by step with the bits of ls_run, batches of
 * the caller's own, texts with the bits of training, and tensors that are written between two
 * steps. */
#include "../support/mpirun.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/wrapped.h"

#include <lockstep/base/file.h>
#include <lockstep/base/json.h>
#include <lockstep/session.h>
#include <lockstep/train.h>

#include <fenv.h>
#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { VOCAB = 96, SEQUENCES = 4, TOKENS = 32 };

/* ---- twins ----------------------------------------------------------------------------------- */

/* What is written through a view stays with the rank that has it. */
static bool lets_go; /* of pointers, before the next order */
static atomic_bool kept_to_itself;

static atomic_bool holds; /* a rank stays where it writes a tensor, */
static sem_t arrived, go; /* until it may go on */

WRAPPED(ls_distribute_replicated);
int __wrap_ls_distribute_replicated(struct ls_dtensor *tensor, const void *full,
                                    struct ls_error *error)
{
    if (holds) {
        sem_post(&arrived);
        sem_wait(&go);
    }
    return kept_to_itself ? LS_OK : __real_ls_distribute_replicated(tensor, full, error);
}

/* Of a world with one rank, which does not return: it is given up once it writes a tensor. */
static struct {
    int (*body)(struct ls_comm *comm, void *user, struct ls_error *error);
    void *user;
    pthread_t thread;
} left;

static void *left_main(void *unused)
{
    struct ls_comm *world;
    struct ls_error error = {0};
    (void)unused;
    assert_int_equal(ls_comm_self_new(&world, &error), LS_OK);
    left.body(world, left.user, &error);
    ls_comm_free(world);
    return NULL;
}

WRAPPED(ls_world_run);
int __wrap_ls_world_run(int size,
                        int (*body)(struct ls_comm *comm, void *user, struct ls_error *error),
                        void *user, struct ls_error *error)
{
    if (!holds)
        return __real_ls_world_run(size, body, user, error);
    left.body = body;
    left.user = user;
    assert_int_equal(pthread_create(&left.thread, NULL, left_main, NULL), 0);
    sem_wait(&arrived);
    ls_error_set(error, LS_ECOMM, "rank 0 did not return");
    return ls_error_blame(error, LS_CAUSE_GIVEN_UP, "");
}

/* ---- asking ---------------------------------------------------------------------------------- */

static struct ls_session *session_new(void)
{
    struct ls_session *s;
    struct ls_error error = {0};
    assert_int_equal(ls_session_new(&s, &error), LS_OK);
    return s;
}

static void ok(struct ls_session *s, const char *verb, const char *options,
               const struct ls_array *arrays, int count)
{
    struct ls_error error = {0};
    if (ls_session_call(s, verb, options, arrays, count, &error))
        fail_msg("%s: %s", verb, error.text);
}

static void refused(struct ls_session *s, const char *verb, const char *options,
                    const struct ls_array *arrays, int count, int status, const char *text)
{
    struct ls_error error = {0};
    assert_int_equal(ls_session_call(s, verb, options, arrays, count, &error), status);
    if (!strstr(error.text, text))
        fail_msg("%s: \"%s\" is not in: %s", verb, text, error.text);
}

/* A text of the answer, valid until the second next call. */
static const char *answer_text(struct ls_session *s, const char *key)
{
    static char texts[2][64];
    static int turn;
    json_error_t where;
    const char *answer = ls_session_answer(s);
    json_t *object = ls_json_load(answer, strlen(answer), 0, &where);
    const char *text = json_string_value(json_object_get(object, key));
    turn = !turn;
    snprintf(texts[turn], sizeof texts[turn], "%s", text ? text : "");
    json_decref(object);
    return texts[turn];
}

/* The keys of a run in DIRECTORY/NAME, with more behind. */
static const char *keys_of(void **state, const char *name, const char *more)
{
    static char text[2048];
    snprintf(text, sizeof text,
             "{\"keys\": {\"model\": {\"arch\": \"gpt2\", \"vocab\": %d, \"layers\": 2, "
             "\"channels\": 32, \"heads\": 4, \"context\": 64}, \"data\": {\"sequence\": %d}, "
             "\"batch\": {\"global\": %d}, \"optim\": {\"lr\": 0.01}, \"train\": {\"steps\": 4, "
             "\"out\": \"%s\"}, \"log\": {\"tensorboard\": false}%s}}",
             VOCAB, TOKENS, SEQUENCES, scratch_path(*state, name), more);
    return text;
}

static const char *const layouts[] = {
    ", \"parallel\": {\"threads\": 1}",
    ", \"parallel\": {\"threads\": 1, \"dp\": 2, \"tp\": 2}",
    ", \"parallel\": {\"threads\": 1, \"pp\": 2, \"dp\": 2, \"zero\": 1}",
    ", \"parallel\": {\"threads\": 1, \"dp\": 4, \"zero\": 3}",
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

/* ---- a batch --------------------------------------------------------------------------------- */

struct batch {
    int32_t inputs[SEQUENCES * TOKENS], targets[SEQUENCES * TOKENS];
    float weights[SEQUENCES * TOKENS];
    struct ls_array arrays[3];
};

static struct batch batch_of(struct batch *b, uint32_t number)
{
    for (uint32_t i = 0; i < SEQUENCES * TOKENS; i++) {
        uint32_t bits[4];
        ls_philox(ls_philox_key_of(number, "batch"), (uint32_t[4]){i, 0, 0, 0}, bits);
        b->inputs[i] = (int32_t)(bits[0] % VOCAB);
        b->targets[i] = bits[1] % 5 ? (int32_t)(bits[1] % VOCAB) : -1;
        b->weights[i] = ls_uniform_of(bits[2]);
    }
    b->arrays[0] = (struct ls_array){"inputs", "i4", 2, {SEQUENCES, TOKENS}, b->inputs};
    b->arrays[1] = (struct ls_array){"targets", "i4", 2, {SEQUENCES, TOKENS}, b->targets};
    b->arrays[2] = (struct ls_array){"weights", "f4", 2, {SEQUENCES, TOKENS}, b->weights};
    return *b;
}

/* ---- what is refused ------------------------------------------------------------------------- */

CASE_WITH(test_refused, scratch_setup, scratch_teardown)
{
    struct ls_session *s = session_new();
    struct batch b;
    struct ls_error error = {0};
    batch_of(&b, 1);
    refused(s, "stepp", NULL, NULL, 0, LS_EINVAL, "did you mean step?");
    refused(s, "step", NULL, NULL, 0, LS_EINVAL, "nothing is open");
    refused(s, "open", "{\"key\": 1}", NULL, 0, LS_EINVAL, "expected config|keys");
    refused(s, "open", "{", NULL, 0, LS_EINVAL, "not JSON");
    refused(s, "open", "{\"keys\": {\"optim\": {\"lr\": -1}}}", NULL, 0, LS_ECONFIG, "optim.lr");
    ok(s, "open", keys_of(state, "refused", layouts[1]), NULL, 0);
    refused(s, "open", keys_of(state, "twice", ""), NULL, 0, LS_EINVAL, "close what is open first");
    refused(s, "step", NULL, NULL, 0, LS_ECONFIG, "data.train");
    refused(s, "step", "{\"sum\": true}", NULL, 0, LS_EINVAL, "sum: expected a batch");
    b.inputs[5] = VOCAB;
    refused(s, "step", NULL, b.arrays, 2, LS_EDATA, "token 5");
    b.arrays[1].shape[1]--;
    refused(s, "step", NULL, b.arrays, 2, LS_EINVAL, "the shape of inputs");
    b.arrays[1].dtype = "i8";
    refused(s, "step", NULL, b.arrays, 2, LS_EINVAL, "array of i4");
    refused(s, "step", NULL, b.arrays, 1, LS_EINVAL, "targets");
    refused(s, "tensor", "{\"name\": \"h.9.none\"}", NULL, 0, LS_EINVAL, "no parameter");
    refused(s, "generate", "{\"prompts\": [\"text\"]}", NULL, 0, LS_ECONFIG, "tokenizer");
    refused(s, "generate", "{\"prompts\": [\"text\"]}",
            &(struct ls_array){"ids", "u1", 2, {-1, 4}, NULL}, 1, LS_EINVAL, "not both");
    /* What was refused has changed nothing. */
    batch_of(&b, 1);
    ok(s, "step", NULL, b.arrays, 3);
    ok(s, "close", NULL, NULL, 0);
    refused(s, "hash", NULL, NULL, 0, LS_EINVAL, "nothing is open");
    assert_int_equal(ls_session_wait(s, 0, NULL, &error), LS_OK); /* that of "close" */
    ls_session_free(s);
}

CASE_WITH(test_fork, scratch_setup, scratch_teardown)
{
    struct ls_session *s = session_new();
    struct ls_session_report report;
    struct batch b;
    batch_of(&b, 1);
    ok(s, "open", keys_of(state, "fork", layouts[0]), NULL, 0);
    ok(s, "step", NULL, b.arrays, 2);
    pid_t child = fork();
    if (child == 0) {
        struct ls_error error = {0};
        int status = ls_session_ask(s, "hash", NULL, NULL, 0, &error);
        _exit(status == LS_EINVAL && strstr(error.text, "fork") && !ls_session_report(s, &report)
                  ? 0
                  : 1);
    }
    assert_true(ls_session_report(s, &report));
    int ended;
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_int_equal(ended, 0);
    ok(s, "hash", NULL, NULL, 0);
    ls_session_free(s); /* not closed: the ranks end all the same */
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* Two steps on batches, one in two parts, and the hash. */
static void steps_take(struct ls_session *s, char hash[33])
{
    struct batch b;
    batch_of(&b, 1);
    ok(s, "step", "{}", b.arrays, 3);
    batch_of(&b, 2);
    ok(s, "backward", "{\"sum\": true}", b.arrays, 3);
    ok(s, "step", NULL, NULL, 0);
    struct ls_session_report report;
    assert_true(ls_session_report(s, &report));
    assert_true(report.step > 1 && report.loss > 0);
    ok(s, "hash", NULL, NULL, 0);
    assert_false(ls_session_report(s, &report)); /* of the last order alone */
    snprintf(hash, 33, "%s", answer_text(s, "hash"));
}

/* So do callers: the last one rounds upwards. */
CASE_WITH(test_layouts_agree, scratch_setup, scratch_teardown)
{
    char first[33] = "", hash[33];
    for (int i = 0; i < LAYOUTS; i++) {
        fesetround(i == LAYOUTS - 1 ? FE_UPWARD : FE_TONEAREST);
        struct ls_session *s = session_new();
        char name[16];
        snprintf(name, sizeof name, "layout-%d", i);
        ok(s, "open", keys_of(state, name, layouts[i]), NULL, 0);
        steps_take(s, hash);
        if (i == 0)
            memcpy(first, hash, sizeof first);
        assert_string_equal(hash, first);
        ok(s, "close", NULL, NULL, 0);
        ls_session_free(s);
    }
    fesetround(FE_TONEAREST);
}

/* Closed after two of four steps, and opened again in another layout: as without that. */
CASE_WITH(test_goes_on, scratch_setup, scratch_teardown)
{
    char whole[33] = "", parts[33] = "", ignored[33];
    for (int apart = 0; apart < 2; apart++) {
        struct ls_session *s = session_new();
        const char *name = apart ? "parts" : "whole";
        ok(s, "open", keys_of(state, name, layouts[0]), NULL, 0);
        steps_take(s, ignored);
        if (apart) {
            char more[256];
            ok(s, "close", NULL, NULL, 0);
            snprintf(more, sizeof more, "%s", layouts[2]);
            char *keys = strdup(keys_of(state, name, more));
            char *out = strstr(keys, "\"steps\": 4");
            memcpy(out, "\"steps\":4 ", strlen("\"steps\":4 "));
            char resumed[2304];
            snprintf(resumed, sizeof resumed, "%.*s, \"resume\": \"auto\"%s",
                     (int)(strstr(keys, "}, \"log\"") - keys), keys, strstr(keys, "}, \"log\""));
            ok(s, "open", resumed, NULL, 0);
            free(keys);
        }
        steps_take(s, apart ? parts : whole);
        ok(s, "close", NULL, NULL, 0);
        ls_session_free(s);
    }
    assert_string_equal(whole, parts);
}

static int count_of(const char *text, const char *word)
{
    int count = 0;
    for (const char *at = text; (at = strstr(at, word)); at += strlen(word))
        count++;
    return count;
}

/* Each save without a step between is copied, or passed over, and the records say so. */
CASE_WITH(test_saves_without_steps, scratch_setup, scratch_teardown)
{
    enum { SAVES = 12, MOST = 1 << 20 };
    char more[512], *records;
    size_t bytes;
    struct ls_session *s = session_new();
    snprintf(more, sizeof more, "%s, \"checkpoint\": {\"also\": \"%.400s\"}", layouts[0],
             scratch_path(*state, "copies"));
    ok(s, "open", keys_of(state, "saves", more), NULL, 0);
    for (int i = 0; i < SAVES; i++)
        ok(s, "save", NULL, NULL, 0);
    ok(s, "close", NULL, NULL, 0);
    assert_int_equal(ls_file_read(scratch_path(*state, "saves/metrics.jsonl"), MOST, LS_EDATA,
                                  &records, &bytes, NULL),
                     LS_OK);
    assert_int_equal(count_of(records, "\"event\": \"save\""), SAVES);
    assert_int_equal(count_of(records, "\"event\": \"copy\""), SAVES);
    free(records);
    ls_session_free(s);
}

CASE_WITH(test_stop, scratch_setup, scratch_teardown)
{
    struct ls_session *s = session_new();
    struct batch b;
    batch_of(&b, 1);
    ok(s, "open", keys_of(state, "stop", layouts[1]), NULL, 0);
    ls_session_stop(s);
    ok(s, "step", NULL, b.arrays, 2);
    assert_non_null(strstr(ls_session_answer(s), "\"ended\":true"));
    refused(s, "step", NULL, b.arrays, 2, LS_EINVAL, "stopped after step 1 of 4");
    ok(s, "close", NULL, NULL, 0);
    assert_non_null(strstr(ls_session_answer(s), "\"stopped\":true"));
    ls_session_free(s);
}

CASE_WITH(test_events, scratch_setup, scratch_teardown)
{
    struct ls_session *s = session_new();
    struct ls_error error = {0};
    const char *event;
    int turn, started = 0;
    assert_int_equal(ls_session_wait(s, 0, &event, &error), LS_OK);
    assert_int_equal(
        ls_session_ask(s, "open", keys_of(state, "events", layouts[0]), NULL, 0, &error), LS_OK);
    assert_int_equal(ls_session_ask(s, "hash", NULL, NULL, 0, &error), LS_EINVAL);
    assert_non_null(strstr(error.text, "\"open\" is under way"));
    while ((turn = ls_session_wait(s, 60, &event, &error)) > 0)
        started += turn == LS_SESSION_EVENT && strstr(event, "\"started\"");
    assert_int_equal(turn, LS_OK);
    assert_int_equal(started, 1);
    ls_session_free(s);
}

/* ---- texts ----------------------------------------------------------------------------------- */

CASE_WITH(test_texts, scratch_setup, scratch_teardown)
{
    int32_t ids[2][3] = {{5, 6, 7}, {9, 0, 0}}, lengths[] = {3, 1};
    struct ls_array prompts[] = {{"ids", "i4", 2, {2, 3}, ids}, {"lengths", "i4", 1, {2}, lengths}};
    int32_t *first = NULL;
    for (int i = 0; i < LAYOUTS; i++) {
        struct ls_session *s = session_new();
        struct ls_array made, said, counts;
        char name[16];
        snprintf(name, sizeof name, "texts-%d", i);
        ok(s, "open", keys_of(state, name, layouts[i]), NULL, 0);
        ok(s, "generate", "{\"samples\": 2, \"max_tokens\": 9, \"seed\": 4, \"ends\": []}", prompts,
           2);
        assert_true(ls_session_array(s, "ids", &made));
        assert_true(ls_session_array(s, "lengths", &counts));
        assert_true(ls_session_array(s, "logprobs", &said));
        assert_int_equal(made.shape[0], 4);
        assert_int_equal(made.shape[1], 12);
        size_t bytes = sizeof(int32_t) * 4 * 12;
        int32_t all[4 * 12], count[4];
        float logprobs[4 * 12];
        memcpy(all, made.data, bytes);
        memcpy(count, counts.data, sizeof count);
        memcpy(logprobs, said.data, bytes);
        if (!first)
            first = memcpy(malloc(3 * bytes), all, bytes), memcpy(first + 4 * 12, logprobs, bytes);
        assert_memory_equal(first, all, bytes);
        assert_memory_equal(first + 4 * 12, logprobs, bytes);
        for (int k = 0; k < 4 * 12; k++)
            all[k] = all[k] < 0 ? 0 : all[k];
        struct ls_array again[] = {{"ids", "i4", 2, {4, 12}, all},
                                   {"lengths", "i4", 1, {4}, count}};
        ok(s, "logprobs", NULL, again, 2);
        assert_true(ls_session_array(s, "logprobs", &said));
        assert_memory_equal(said.data, logprobs, bytes);
        assert_false(ls_session_array(s, "entropy", &said));
        ok(s, "logprobs", "{\"entropy\": true}", again, 2);
        assert_true(ls_session_array(s, "logprobs", &said));
        assert_memory_equal(said.data, logprobs, bytes);
        assert_true(ls_session_array(s, "entropy", &said));
        memcpy(logprobs, said.data, bytes);
        if (i == 0)
            memcpy(first + 2 * 4 * 12, logprobs, bytes);
        assert_memory_equal(first + 2 * 4 * 12, logprobs, bytes);
        assert_true(logprobs[0] == 0 && logprobs[1] > 0 && logprobs[1] < logf(VOCAB));
        ok(s, "close", NULL, NULL, 0);
        ls_session_free(s);
    }
    free(first);
}

/* ---- tensors --------------------------------------------------------------------------------- */

static const char name_q[] = "{\"name\": \"h.0.attn.q.weight\"}";

CASE_WITH(test_tensors, scratch_setup, scratch_teardown)
{
    char first[33] = "", hash[33];
    for (int i = 0; i < LAYOUTS; i++) {
        struct ls_session *s = session_new();
        struct ls_array value;
        float values[32 * 32];
        char name[16];
        snprintf(name, sizeof name, "tensors-%d", i);
        ok(s, "open", keys_of(state, name, layouts[i]), NULL, 0);
        ok(s, "tensor", name_q, NULL, 0);
        assert_true(ls_session_array(s, "value", &value));
        assert_int_equal(value.shape[0] * value.shape[1], 32 * 32);
        memcpy(values, value.data, sizeof values);
        values[33] = 0.5f;
        ok(s, "tensor_set", name_q, &(struct ls_array){"value", "f4", 2, {32, 32}, values}, 1);
        ok(s, "tensor", name_q, NULL, 0);
        assert_true(ls_session_array(s, "value", &value));
        assert_memory_equal(value.data, values, sizeof values);
        refused(s, "tensor_set", name_q, &(struct ls_array){"value", "f4", 2, {16, 64}, values}, 1,
                LS_EINVAL, "expected f4 of 32 x 32");
        steps_take(s, hash);
        if (i == 0)
            memcpy(first, hash, sizeof first);
        assert_string_equal(hash, first);
        ls_session_free(s);
    }
}

CASE_WITH(test_a_damaged_model_writes_nothing, scratch_setup, scratch_teardown)
{
    static const char *const how[] = {"{\"temperature\": 0}", "{\"max_tokens\": 2}"};
    int32_t ids[] = {5, 6, 7}, length = 3;
    const struct ls_array prompt[] = {{"ids", "i4", 2, {1, 3}, ids},
                                      {"lengths", "i4", 1, {1}, &length}};
    for (int i = 0; i < LAYOUTS; i++) {
        struct ls_session *s = session_new();
        float values[32 * 32] = {NAN};
        char name[16];
        snprintf(name, sizeof name, "damaged-%d", i);
        ok(s, "open", keys_of(state, name, layouts[i]), NULL, 0);
        ok(s, "tensor_set", name_q, &(struct ls_array){"value", "f4", 2, {32, 32}, values}, 1);
        refused(s, "generate", how[i % 2], prompt, 2, LS_ENUMERIC,
                "prompt 0, token 3: the model's logits are not finite");
        ls_session_free(s);
    }
}

/* Writes to the memory itself; the other copy follows, or the hash tells that it did not. */
static void view_write(void **state, const char *name, const char *layout, char hash[33])
{
    struct ls_session *s = session_new();
    struct ls_array value;
    ok(s, "open", keys_of(state, name, layout), NULL, 0);
    ok(s, "tensor", "{\"name\": \"h.0.attn.q.weight\", \"how\": \"view\"}", NULL, 0);
    assert_true(ls_session_array(s, "value", &value));
    ((float *)value.data)[33] = 0.5f;
    if (lets_go) { /* of the parameter's pointer; that of a state went first */
        ok(s, "tensor", "{\"name\": \"h.0.attn.q.weight\", \"kind\": \"state\", \"how\": \"view\"}",
           NULL, 0);
        ls_session_unview(s, "h.0.attn.q.weight");
        ok(s, "hash", NULL, NULL, 0);
        ((float *)value.data)[34] = 0.25f;
        ls_session_unview(s, "h.0.attn.q.weight");
    } else
        ((float *)value.data)[34] = 0.25f;
    if (kept_to_itself) {
        refused(s, "hash", NULL, NULL, 0, LS_ENUMERIC, "differs from rank 0");
    } else {
        steps_take(s, hash);
        ok(s, "close", NULL, NULL, 0);
    }
    ((float *)value.data)[33] = 1; /* the memory stays until the session goes */
    ls_session_free(s);
}

CASE_WITH(test_views, scratch_setup, scratch_teardown)
{
    char one[33], two[33];
    view_write(state, "view-1", layouts[0], one);
    view_write(state, "view-2", ", \"parallel\": {\"threads\": 1, \"dp\": 2}", two);
    assert_string_equal(one, two);
    lets_go = true;
    view_write(state, "view-4", layouts[0], two);
    assert_string_equal(one, two);
    view_write(state, "view-5", ", \"parallel\": {\"threads\": 1, \"dp\": 2}", two);
    assert_string_equal(one, two);
    lets_go = false;
    kept_to_itself = true;
    view_write(state, "view-3", ", \"parallel\": {\"threads\": 1, \"dp\": 2}", two);
    kept_to_itself = false;
}

/* ---- a rank that does not return ------------------------------------------------------------- */

/* It works on with the session's memory, whatever becomes of the session. */
CASE_WITH(test_a_rank_that_is_given_up, scratch_setup, scratch_teardown)
{
    static float values[32 * 32];
    const struct ls_array value = {"value", "f4", 2, {32, 32}, values};
    const char *keys = keys_of(state, "left", layouts[0]);
    struct ls_session *s = session_new();
    sem_init(&arrived, 0, 0);
    sem_init(&go, 0, 0);
    holds = true;
    ok(s, "open", keys, NULL, 0);
    refused(s, "tensor_set", "{\"name\": \"h.0.attn.q.weight\"}", &value, 1, LS_ECOMM,
            "rank 0 did not return");
    holds = false;
    refused(s, "open", keys, NULL, 0, LS_ECOMM, "its thread still uses this session: use another");
    refused(s, "configure", keys, NULL, 0, LS_ECOMM, "its thread still uses this session");
    struct ls_error error = {0}; /* who left that order before it was over learns it here */
    assert_int_equal(ls_session_call(s, "close", NULL, NULL, 0, &error), LS_ECOMM);
    assert_int_equal(error.cause, LS_CAUSE_GIVEN_UP);
    assert_string_equal(ls_session_answer(s), "{}");
    ls_session_free(s);
    sem_post(&go);
    assert_int_equal(pthread_join(left.thread, NULL), 0);
    sem_destroy(&go);
    sem_destroy(&arrived);
}

/* ---- a model --------------------------------------------------------------------------------- */

CASE_WITH(test_model, scratch_setup, scratch_teardown)
{
    struct ls_session *s = session_new();
    char hash[33], options[512];
    struct ls_array value;
    ok(s, "open", keys_of(state, "model", layouts[0]), NULL, 0);
    steps_take(s, hash);
    ok(s, "tensor", name_q, NULL, 0);
    assert_true(ls_session_array(s, "value", &value));
    float weight = ((float *)value.data)[7];
    ok(s, "close", NULL, NULL, 0);
    snprintf(options, sizeof options, "{\"path\": \"%s\", \"keys\": {\"parallel\": {\"tp\": 2}}}",
             scratch_path(*state, "model"));
    ok(s, "open_model", options, NULL, 0);
    refused(s, "step", NULL, NULL, 0, LS_EINVAL, "it is not trained");
    ok(s, "tensor", name_q, NULL, 0);
    assert_true(ls_session_array(s, "value", &value));
    assert_string_equal(value.dtype, "bf16");
    assert_int_equal(((ls_bf16 *)value.data)[7], ls_f32_to_bf16(weight));
    ok(s, "parameters", NULL, NULL, 0);
    ok(s, "close", NULL, NULL, 0);
    ls_session_free(s);
}

/* ---- processes ------------------------------------------------------------------------------- */

/* Each process has a session, and asks the same: the answer of both. No layout is given. */
static int rank_main(char *directory)
{
    void *state = directory;
    char hash[33];
    struct ls_session *s = session_new();
    int32_t ids[1][2] = {{5, 6}}, lengths[] = {2};
    struct ls_array value,
        prompts[] = {{"ids", "i4", 2, {1, 2}, ids}, {"lengths", "i4", 1, {1}, lengths}};
    ok(s, "open", keys_of(&state, "processes", ""), NULL, 0);
    steps_take(s, hash);
    ok(s, "generate", "{\"max_tokens\": 3, \"ends\": []}", prompts, 2);
    assert_true(ls_session_array(s, "ids", &value));
    int32_t last = ((int32_t *)value.data)[4];
    ok(s, "tensor", "{\"name\": \"h.0.attn.q.weight\", \"how\": \"view\"}", NULL, 0);
    ok(s, "share", NULL, &(struct ls_array){"value", "u1", 1, {1}, last ? "a" : "b"}, 1);
    /* What one process alone gives wrongly is refused by both. */
    static float weights[32 * 32];
    bool wrong = ls_mpi_launched_rank() == 1;
    refused(s, "share", NULL, &(struct ls_array){"value", wrong ? "f4" : "u1", 1, {1}, weights}, 1,
            LS_EINVAL, "share: value: expected bytes");
    refused(s, "tensor_set", "{\"name\": \"h.0.attn.q.weight\"}",
            &(struct ls_array){"value", "f4", 2, {32, wrong ? 31 : 32}, weights}, 1, LS_EINVAL,
            "expected f4 of 32 x 32 elements");
    lengths[0] = wrong ? 3 : 2;
    refused(s, "logprobs", NULL, prompts, 2, LS_EINVAL, "text 0 has 3 tokens");
    lengths[0] = 2;
    ok(s, "logprobs", NULL, prompts, 2);
    ok(s, "logprobs", /* the same, said in another order */
       wrong ? "{\"entropy\": true, \"temperature\": 2}"
             : "{\"temperature\": 2, \"entropy\": true}",
       prompts, 2);
    refused(s, wrong ? "close" : "hash", NULL, NULL, 0, LS_EINVAL, "different things");
    refused(s, "close", wrong ? "{\"none\": 1}" : NULL, NULL, 0, LS_EINVAL, "no such option");
    ok(s, "close", NULL, NULL, 0);
    ls_session_free(s);
    ls_session_leave();
    printf("[%s %d]\n", hash, last);
    return 0;
}

static const char *program;

CASE_WITH(test_processes, scratch_setup, scratch_teardown)
{
    char output[8192], expected[64], hash[33];
    int32_t ids[1][2] = {{5, 6}}, lengths[] = {2};
    struct ls_array value,
        prompts[] = {{"ids", "i4", 2, {1, 2}, ids}, {"lengths", "i4", 1, {1}, lengths}};
    mpirun_or_skip();
    struct ls_session *s = session_new();
    ok(s, "open", keys_of(state, "threads", layouts[0]), NULL, 0);
    steps_take(s, hash);
    ok(s, "generate", "{\"max_tokens\": 3, \"ends\": []}", prompts, 2);
    assert_true(ls_session_array(s, "ids", &value));
    snprintf(expected, sizeof expected, "[%s %d]", hash, ((int32_t *)value.data)[4]);
    ls_session_free(s);
    int code = mpirun(program, 2, *state, output, sizeof output);
    char *first = strstr(output, expected);
    if (code || !first || !strstr(first + 1, expected))
        fail_msg("expected twice %s, code 0: code %d, %s", expected, code, output);
}

int main(int count, char **arguments)
{
    program = arguments[0];
    if (getenv(MPIRUN_MODE))
        return rank_main(getenv(MPIRUN_MODE));
    return suite_run(NULL, NULL);
}
