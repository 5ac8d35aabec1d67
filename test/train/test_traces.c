/* A run's trace says where each step went: every span has its place, every collective its group and
 * bytes, and these are the ones that the layout says. */
#include "../../src/train/trainer.h"

#include <lockstep/train/recorded.h>

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/config_words.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "tokens.h"
#include "trace_read.h"

enum { STEPS = 4, RANKS_MAX = 8 };

#define COMMON                                                                                     \
    "model.layers=4 model.channels=64 model.heads=4 model.vocab=50 model.context=32 "              \
    "batch.global=8 train.steps=4 eval.every=4 eval.samples=12 log.trace=true "
#define CP "data.sequence=256 model.context=256 numerics.seq_tiles=2 model.arch=llama "

static const char *const layouts[] = {
    COMMON "",
    COMMON "parallel.dp=2 parallel.zero=3 parallel.persist=100 batch.micro=2",
    COMMON "parallel.dp=2 parallel.zero=2 batch.micro=1 parallel.pp=2 parallel.schedule=zbv "
           "log.profile=true",
    COMMON "parallel.tp=2 batch.micro=2 parallel.tp_overlap=2 parallel.dp=2",
    COMMON "parallel.pp=3 batch.micro=1 parallel.schedule=zb-h1",
    COMMON CP "batch.global=4 parallel.cp=2 parallel.cp_method=ring parallel.dp=2 parallel.zero=1",
    COMMON CP "batch.global=4 parallel.cp=2 model.kv_heads=1 parallel.tp=2 parallel.pp=2",
};
enum { LAYOUTS = sizeof layouts / sizeof layouts[0] };

static struct ls_config config_of(const char *directory, int number)
{
    return config_of_words(
        "%s data.train=u16:%s/tokens.bin data.valid=u16:%s/tokens.bin train.out=%s/run%d",
        layouts[number], directory, directory, directory, number);
}

static int run_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    return ls_run(user, world, NULL, NULL, error);
}

/* ---- every event has its place --------------------------------------------------------------- */

static void fail_event(const json_t *event, const char *why)
{
    char *text = json_dumps(event, JSON_SORT_KEYS);
    fail_msg("%s: %s", why, text);
}

static void check_args(const json_t *event)
{
    const json_t *args = json_object_get(event, "args");
    bool train = is(args, "phase", "train"), evaluation = is(args, "phase", "evaluate");
    bool transfer =
        is(event, "cat", "comm") || is(event, "cat", "wait") || is(event, "cat", "start");
    if (!*text_of(args, "phase") || !*text_of(event, "cat"))
        fail_event(event, "no phase or category");
    if ((train || evaluation) && number_of(args, "step") < 1)
        fail_event(event, "no step");
    if (strstr("forward backward backward, input backward, weights block head embedding",
               text_of(event, "name")) &&
        (number_of(args, "micro_batch") < 0 || number_of(args, "chunk") < 0 ||
         number_of(args, "stage") < 0))
        fail_event(event, "no micro-batch, chunk or stage");
    if (strstr("block head embedding", text_of(event, "name")) && number_of(args, "layer") < 0)
        fail_event(event, "no layer");
    if (transfer &&
        (!*text_of(args, "group") || !*text_of(args, "operation") || number_of(args, "bytes") < 0 ||
         json_array_size(json_object_get(args, "ranks")) != (size_t)number_of(args, "size")))
        fail_event(event, "no group, operation, bytes or ranks");
    if (transfer && (is(args, "operation", "send") || is(args, "operation", "recv")) &&
        number_of(args, "peer") < 0)
        fail_event(event, "no peer");
}

static void check_names(const json_t *root, int rank)
{
    static const char *const wanted[] = {"process_name", "process_sort_index", "thread_name",
                                         "thread_sort_index"};
    char process[32];
    snprintf(process, sizeof process, "rank %d on ", rank);
    for (size_t i = 0; i < 4; i++) {
        const json_t *event = json_array_get(root, i);
        const json_t *args = json_object_get(event, "args");
        assert_string_equal(text_of(event, "name"), wanted[i]);
        assert_int_equal(number_of(event, "pid"), rank);
        if (i == 0)
            assert_memory_equal(text_of(args, "name"), process, strlen(process));
        if (i == 1)
            assert_int_equal(number_of(args, "sort_index"), rank);
    }
    const json_t *sums = json_array_get(root, json_array_size(root) - 1);
    assert_string_equal(text_of(sums, "name"), "events");
    assert_int_equal(number_of(json_object_get(sums, "args"), "dropped"), 0);
}

/* ---- spans nest ------------------------------------------------------------------------------ */

/* Fails where a span did not end, lacks what says its place, or overlaps another that does not hold
 * it. */
static void check_nesting(const struct span *spans, size_t count)
{
    const struct span *open[32];
    int depth = 0;
    for (size_t i = 0; i < count; i++) {
        check_args(spans[i].event);
        assert_null(json_object_get(json_object_get(spans[i].event, "args"), "unfinished"));
        while (depth && open[depth - 1]->end <= spans[i].begin)
            depth--;
        if (depth && spans[i].end > open[depth - 1]->end + 1e-3)
            fail_event(spans[i].event, "it overlaps another span");
        assert_true(depth < 32);
        open[depth++] = &spans[i];
    }
}

/* ---- transfers in the background ------------------------------------------------------------- */

static void check_background(const json_t *root)
{
    json_t *begun = json_object(), *event;
    size_t i;
    EACH_EVENT(root, i, event)
    {
        if (is(event, "ph", "b")) {
            check_args(event);
            assert_null(json_object_get(begun, text_of(event, "id")));
            json_object_set(begun, text_of(event, "id"), event);
        }
    }
    EACH_EVENT(root, i, event)
    {
        if (!is(event, "ph", "e"))
            continue;
        const json_t *from = json_object_get(begun, text_of(event, "id"));
        if (!from || number_of(event, "ts") < number_of(from, "ts") ||
            strcmp(text_of(from, "name"), text_of(event, "name")) != 0)
            fail_event(event, "an end without its begin");
        json_object_del(begun, text_of(event, "id"));
    }
    assert_int_equal(json_object_size(begun), 0);
    json_decref(begun);
}

/* Each arrow's end has its begin on another rank, earlier. */
static void check_arrows(json_t *const *roots, int ranks)
{
    json_t *begun = json_object(), *event;
    size_t i, arrows = 0;
    for (int rank = 0; rank < ranks; rank++)
        EACH_EVENT(roots[rank], i, event)
        {
            if (!is(event, "ph", "s"))
                continue;
            assert_null(json_object_get(begun, text_of(event, "id")));
            json_object_set(begun, text_of(event, "id"), event);
            arrows++;
        }
    for (int rank = 0; rank < ranks; rank++)
        EACH_EVENT(roots[rank], i, event)
        {
            if (!is(event, "ph", "f"))
                continue;
            const json_t *from = json_object_get(begun, text_of(event, "id"));
            if (!from || number_of(from, "pid") == rank ||
                number_of(from, "ts") > number_of(event, "ts"))
                fail_event(event, "an arrow without its begin");
            arrows--;
        }
    assert_int_equal(arrows, 0); /* every message that was sent has arrived */
    json_decref(begun);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

struct bytes {
    int64_t of[STEPS + 1][LS_GROUPS][LS_COMM_KINDS];
};

static int group_named(const char *name)
{
    for (int g = 0; g < LS_GROUPS; g++)
        if (strcmp(ls_group_name((enum ls_layout_group)g), name) == 0)
            return g;
    return -1;
}

static int kind_named(const char *name)
{
    for (int k = 0; k < LS_COMM_KINDS; k++)
        if (strcmp(ls_comm_kind_name((enum ls_comm_kind)k), name) == 0)
            return k;
    return -1;
}

static void traced_bytes(const json_t *root, struct bytes *bytes)
{
    size_t i;
    json_t *event;
    memset(bytes, 0, sizeof *bytes);
    EACH_EVENT(root, i, event)
    {
        const json_t *args = json_object_get(event, "args");
        if (!is(event, "cat", "comm") || is(event, "ph", "e") || !is(args, "phase", "train"))
            continue;
        int step = (int)number_of(args, "step"), group = group_named(text_of(args, "group"));
        int kind = kind_named(text_of(args, "kind"));
        if (group < 0 || kind < 0 || step < 1 || step > STEPS)
            fail_event(event, "an unknown group, kind or step");
        bytes->of[step][group][kind] += (int64_t)number_of(args, "bytes");
    }
}

static void check_bytes(const json_t *root, const struct ls_config *config,
                        const struct ls_layout *layout, int rank)
{
    static struct bytes traced, planned;
    struct ls_error error = {0};
    struct ls_recording recording;
    int64_t leaves[STEPS], begins[STEPS];
    memset(&planned, 0, sizeof planned);
    traced_bytes(root, &traced);
    for (int i = 0; i < STEPS; i++)
        leaves[i] = layout->ramp.full;
    ls_recording_init(&recording);
    assert_ok(ls_record_steps(config, layout, rank, STEPS, leaves, &recording, begins, &error),
              error);
    for (int64_t i = begins[0], step = 0; i < recording.count; i++) {
        const struct ls_recorded *move = &recording.list[i];
        while (step < STEPS && i >= begins[step])
            step++;
        planned.of[step][move->group][move->operation.kind] += ls_move_bytes(layout, rank, move);
    }
    ls_recording_release(&recording);
    /* The first step finds gathered what was initialised. */
    for (int step = 2; step <= STEPS; step++)
        for (int g = 0; g < LS_GROUP_OWNERS; g++)
            for (int k = 0; k < LS_COMM_OTHER; k++)
                if (traced.of[step][g][k] != planned.of[step][g][k])
                    fail_msg("rank %d, step %d, %s by %s: the trace has %ld bytes, the record %ld",
                             rank, step, ls_group_name((enum ls_layout_group)g),
                             ls_comm_kind_name((enum ls_comm_kind)k), (long)traced.of[step][g][k],
                             (long)planned.of[step][g][k]);
}

/* ---- ops ------------------------------------------------------------------------------------- */

struct op_counts {
    double of[STEPS + 1][LS_WORK_KINDS];
};

static void traced_ops(const json_t *root, struct op_counts *counts)
{
    size_t i;
    json_t *event;
    EACH_EVENT(root, i, event)
    {
        const json_t *args = json_object_get(event, "args");
        if (!is(event, "cat", "op") || !is(args, "phase", "train") || number_of(args, "step") < 1)
            continue;
        int kind = ls_work_of_name(text_of(event, "name"));
        double m = number_of(args, "m"), n = number_of(args, "n"), k = number_of(args, "k");
        if (kind < 0 || !*text_of(args, "dtype") || m < 0 || n < 1 || k < 1 ||
            number_of(args, "bytes") < 0 || (m == 0 && kind != LS_WORK_FILL))
            fail_event(event, "an op without kind, type, shape or bytes");
        if (kind == LS_WORK_PRODUCT && number_of(args, "flops") != 2 * m * n * k)
            fail_event(event, "a product of another number of operations");
        counts->of[(int)number_of(args, "step")][kind]++;
    }
}

/* The trace has as many ops of each kind as the records count. */
static void check_ops(const struct ls_config *config, const struct op_counts *counts, int ranks)
{
    for (int kind = 0; kind < LS_WORK_KINDS; kind++) {
        char path[1200], key[64];
        const char *keys[] = {key};
        struct ls_series series;
        struct ls_error error = {0};
        snprintf(path, sizeof path, "%s/metrics.jsonl", config->train.out);
        snprintf(key, sizeof key, "op_%s_count", ls_work_name((enum ls_work_kind)kind));
        if (ls_series_read(&series, path, "step", keys, 1, &error))
            fail_msg("%s", error.text);
        for (size_t i = 0; i < series.count; i++) {
            double traced = counts->of[(int)series.x[i]][kind];
            if (traced != ranks * series.y[i])
                fail_msg("step %g: the trace has %g of %s, the record %d times %g", series.x[i],
                         traced, key, ranks, series.y[i]);
        }
        assert_true(series.count == STEPS || (kind != LS_WORK_PRODUCT && kind != LS_WORK_UPDATE));
        ls_series_release(&series);
    }
}

/* ---- tests ----------------------------------------------------------------------------------- */

static int count_phase(const json_t *root, const char *phase, const char *name)
{
    size_t i;
    int count = 0;
    json_t *event;
    EACH_EVENT(root, i, event)
    count += is(json_object_get(event, "args"), "phase", phase) && is(event, "name", name);
    return count;
}

/* Groups of ranks train workers: each rank of the run has a trace, by its number in the run. */
CASE_WITH(test_ranks_of_workers_have_traces_of_their_own, tokens_setup, scratch_teardown)
{
    enum { WORKERS = 2 };
    struct ls_error error = {0};
    struct ls_config config = config_of_words(
        "model.layers=1 model.channels=16 model.heads=2 model.vocab=50 model.context=16 "
        "batch.global=2 train.steps=2 log.trace=true parallel.threads=1 async.mode=diloco "
        "async.workers=%d async.sync_every=2 parallel.workers=%d data.train=u16:%s/tokens.bin "
        "train.out=%s/run",
        WORKERS, WORKERS, (char *)*state, (char *)*state);
    assert_ok(ls_world_run(WORKERS, run_body, &config, &error), error);
    for (int rank = 0; rank < WORKERS; rank++) {
        json_t *root = trace_of(&config, rank);
        check_names(root, rank);
        assert_int_equal(count_phase(root, "train", "step"), 2);
        json_decref(root);
    }
}

CASE_WITH(test_traces_of_layouts, tokens_setup, scratch_teardown)
{
    enum { ROOM = 20000 };
    struct span *spans = calloc(ROOM, sizeof *spans);
    for (int n = 0; n < LAYOUTS; n++) {
        struct ls_config config = config_of(*state, n);
        static struct ls_layout layout;
        struct ls_error error = {0};
        json_t *roots[RANKS_MAX];
        int ranks = (int)ls_config_ranks(&config);
        if (ls_world_run(ranks, run_body, &config, &error) ||
            ls_config_layout(&config, ranks, &layout, &error))
            fail_msg("%s\n%s", layouts[n], error.text);
        struct op_counts ops = {0};
        for (int rank = 0; rank < ranks; rank++) {
            roots[rank] = trace_of(&config, rank);
            check_names(roots[rank], rank);
            size_t count = spans_of(roots[rank], spans, ROOM);
            check_nesting(spans, count);
            check_background(roots[rank]);
            check_bytes(roots[rank], &config, &layout, rank);
            traced_ops(roots[rank], &ops);
            assert_int_equal(count_phase(roots[rank], "train", "step"), STEPS);
            assert_true(count_phase(roots[rank], "train", "backward, weights") +
                            count_phase(roots[rank], "train", "backward") >=
                        STEPS);
            assert_int_equal(count_phase(roots[rank], "evaluate", "evaluate"), 1);
            assert_true(count_phase(roots[rank], "evaluate", "forward") > 0);
            assert_int_equal(count_phase(roots[rank], "evaluate", "backward"), 0);
            assert_true(count_phase(roots[rank], "save", "save") > 0);
        }
        check_arrows(roots, ranks);
        if (config.log.profile)
            check_ops(&config, &ops, ranks);
        for (int rank = 0; rank < ranks; rank++)
            json_decref(roots[rank]);
    }
    free(spans);
}

/* A run that fails leaves its trace, with the step that did not end. */
CASE_WITH(test_trace_of_a_failed_run, tokens_setup, scratch_teardown)
{
    struct ls_config config = config_of(*state, 0);
    struct ls_error error = {0};
    config.optim.lr = 1e30;
    config.optim.clip = 0;
    assert_int_equal(ls_world_run(1, run_body, &config, &error), LS_ENUMERIC);
    json_t *root = trace_of(&config, 0), *event;
    size_t i;
    int unfinished = 0;
    EACH_EVENT(root, i, event)
    {
        if (json_is_true(json_object_get(json_object_get(event, "args"), "unfinished"))) {
            assert_string_equal(text_of(event, "name"), "step");
            assert_true(number_of(event, "dur") > 0);
            unfinished++;
        }
    }
    assert_int_equal(unfinished, 1);
    json_decref(root);
}

SUITE_MAIN(NULL, NULL)
