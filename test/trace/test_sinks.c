/* TensorBoard and Perfetto. */
#include <lockstep/trace.h>

#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../support/await.h"
#include "../support/scratch.h"
#include "../support/suite.h"

/* ---- TensorBoard ---- */

/* What the Python package tensorboard 2.21 writes for Event(wall_time=1.5, file_version=
 * "brain.Event:2"), Event(wall_time=1.5, step=200, session_log=SessionLog(status=START)) and
 * Event(wall_time=2.5, step=300, summary=the two scalars below). */
static const char golden_version[] =
    "\x18\x00\x00\x00\x00\x00\x00\x00\xa3\x7f\x4b\x22\x09\x00\x00\x00\x00\x00\x00\xf8\x3f\x1a\x0d"
    "brain.Event:2\x2a\x28\x64\x6c";
static const char golden_purge[] =
    "\x10\x00\x00\x00\x00\x00\x00\x00\x95\xfb\xfe\x18\x09\x00\x00\x00\x00\x00\x00\xf8\x3f\x10\xc8"
    "\x01\x3a\x02\x08\x01\xcc\x9d\xc2\x14";
static const char golden_scalars[] =
    "\x42\x00\x00\x00\x00\x00\x00\x00\x79\xf3\x6e\xaa\x09\x00\x00\x00\x00\x00\x00\x04\x40\x10\xac"
    "\x02\x2a\x34\x0a\x23\x0a\x1closs_metrics/global_avg_loss\x15\x00\x00\x10\x40\x0a\x0d\x0a\x06"
    "mfu(%)\x15\x00\x00\x80\xbf\xe0\xd1\x0d\x63";

/* The bytes of the directory's only file, to be freed. */
static char *only_file(const char *directory, size_t *bytes)
{
    struct dirent **entries;
    assert_int_equal(scandir(directory, &entries, NULL, alphasort), 3); /* with . and .. */
    assert_memory_equal(entries[2]->d_name, "events.out.tfevents.0000000001.", 31);
    char *data = scratch_read(scratch_path(directory, entries[2]->d_name), bytes);
    for (int i = 0; i < 3; i++)
        free(entries[i]);
    free(entries);
    return data;
}

CASE_WITH(test_tensorboard_bytes, scratch_setup, scratch_teardown)
{
    struct ls_error error = {0};
    struct ls_tensorboard *board;
    assert_ok(ls_tensorboard_open(&board, *state, 1.5, 200, &error), error);
    struct ls_scalar scalars[] = {{"loss_metrics/global_avg_loss", 2.25f}, {"mfu(%)", -1}};
    assert_int_equal(ls_tensorboard_scalars(board, 2.5, 300, scalars, 2, &error), LS_OK);
    assert_int_equal(ls_tensorboard_close(board, &error), LS_OK);
    size_t bytes;
    char *data = only_file(*state, &bytes);
    size_t version = sizeof golden_version - 1, purge = sizeof golden_purge - 1,
           values = sizeof golden_scalars - 1;
    assert_int_equal(bytes, version + purge + values);
    assert_memory_equal(data, golden_version, version);
    assert_memory_equal(data + version, golden_purge, purge);
    assert_memory_equal(data + version + purge, golden_scalars, values);
    free(data);
}

CASE_WITH(test_tensorboard_without_purge_and_twice, scratch_setup, scratch_teardown)
{
    struct ls_error error = {0};
    struct ls_tensorboard *first, *second;
    assert_int_equal(ls_tensorboard_open(&first, *state, 1.5, -1, &error), LS_OK);
    size_t bytes;
    free(only_file(*state, &bytes));
    assert_int_equal(bytes, sizeof golden_version - 1);
    /* The same second, the same process: another file. */
    assert_int_equal(ls_tensorboard_open(&second, *state, 1.5, -1, &error), LS_OK);
    assert_int_equal(scratch_count(*state), 2);
    char *tag = calloc(1, 20000);
    memset(tag, 't', 19999);
    struct ls_scalar too_long = {tag, 1};
    assert_int_equal(ls_tensorboard_scalars(first, 1, 1, &too_long, 1, &error), LS_EINVAL);
    free(tag);
    ls_tensorboard_close(first, NULL);
    ls_tensorboard_close(second, NULL);
    assert_int_equal(ls_tensorboard_open(&first, scratch_path(*state, "absent"), 1.5, -1, &error),
                     LS_EIO);
    assert_null(first);
}

/* ---- spans ---- */

static const char *text_of(const json_t *event, const char *key)
{
    return json_string_value(json_object_get(event, key));
}

static double number_of(const json_t *event, const char *key)
{
    return json_number_value(json_object_get(event, key));
}

static json_t *load(const char *path)
{
    json_error_t where;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &where);
    if (!root)
        fail_msg("%s:%d: %s", path, where.line, where.text);
    return root;
}

/* One file of them, from first to last. */
static void write_whole(const char *path, struct ls_trace *const *traces, size_t count)
{
    struct ls_error error = {0};
    struct ls_trace_file *file;
    if (ls_trace_file_open(&file, path, traces, count, &error) || ls_trace_file_close(file, &error))
        fail_msg("%s", error.text);
}

CASE_WITH(test_trace_is_chrome_json, scratch_setup, scratch_teardown)
{
    const char *path = scratch_path(*state, "trace.json");
    struct ls_error error = {0};
    struct ls_trace *traces[2];
    assert_int_equal(ls_trace_new(&traces[0], 3, "main", 16, &error), LS_OK);
    assert_int_equal(ls_trace_new(&traces[1], 3, "comm \"x\"", 16, &error), LS_OK);
    ls_trace_phase(traces[0], "train");
    ls_trace_begin(traces[0], "step", "step");
    ls_trace_set(traces[0], LS_TRACE_LAYER, 7);
    ls_trace_begin(traces[0], "forward", "compute");
    await_pause();
    ls_trace_end(traces[0]);
    ls_trace_end(traces[0]);
    write_whole(path, traces, 2);
    ls_trace_free(traces[0]);
    ls_trace_free(traces[1]);

    json_t *root = load(path);
    const json_t *events = root;
    assert_int_equal(json_array_size(events), 4 + 4 + 2 + 1);
    const json_t *process = json_array_get(events, 0), *thread = json_array_get(events, 2);
    assert_string_equal(text_of(process, "name"), "process_name");
    assert_memory_equal(text_of(json_object_get(process, "args"), "name"), "rank 3", 6);
    assert_string_equal(text_of(thread, "name"), "thread_name");
    assert_string_equal(text_of(thread, "ph"), "M");
    const json_t *forward = json_array_get(events, 8), *step = json_array_get(events, 9);
    assert_string_equal(text_of(forward, "name"), "forward");
    assert_string_equal(text_of(forward, "cat"), "compute");
    assert_string_equal(text_of(forward, "ph"), "X");
    assert_true(number_of(forward, "dur") >= 2000);
    assert_true(number_of(forward, "pid") == 3 && number_of(forward, "tid") == 0);
    assert_true(number_of(json_object_get(forward, "args"), "layer") == 7);
    assert_null(json_object_get(json_object_get(step, "args"), "layer"));
    assert_string_equal(text_of(json_object_get(step, "args"), "phase"), "train");
    assert_string_equal(text_of(step, "name"), "step");
    assert_true(number_of(step, "ts") <= number_of(forward, "ts"));
    assert_true(number_of(step, "ts") + number_of(step, "dur") + 1e-3 >=
                number_of(forward, "ts") + number_of(forward, "dur"));
    thread = json_array_get(events, 6);
    assert_string_equal(text_of(json_object_get(thread, "args"), "name"), "comm \"x\"");
    json_decref(root);
}

static void put_spans(struct ls_trace *trace, int count)
{
    for (int i = 0; i < count; i++) {
        ls_trace_set(trace, LS_TRACE_STEP, i);
        ls_trace_begin(trace, "step", "step");
        ls_trace_end(trace);
    }
}

CASE_WITH(test_trace_keeps_the_newest, scratch_setup, scratch_teardown)
{
    const char *path = scratch_path(*state, "ring.json");
    struct ls_error error = {0};
    struct ls_trace *trace;
    assert_int_equal(ls_trace_new(&trace, 0, "main", 4, &error), LS_OK);
    put_spans(trace, 10);
    write_whole(path, &trace, 1);
    ls_trace_free(trace);
    json_t *root = load(path);
    assert_int_equal(json_array_size(root), 4 + 4 + 1);
    for (size_t i = 0; i < 4; i++) {
        const json_t *args = json_object_get(json_array_get(root, 4 + i), "args");
        assert_int_equal(number_of(args, "step"), 6 + i);
    }
    const json_t *sums = json_object_get(json_array_get(root, 8), "args");
    assert_int_equal(number_of(sums, "dropped"), 6);
    assert_int_equal(number_of(sums, "kept"), 4);
    json_decref(root);
}

static void count_span(void *user, const struct ls_trace_span *span)
{
    int64_t *next = user;
    assert_int_equal(span->step, *next);
    ++*next;
}

/* Whatever came before, a write adds the events since the last one, and the ring is free for more:
 * a small ring takes a long run, and what is in the file stays there. */
CASE_WITH(test_a_trace_only_grows, scratch_setup, scratch_teardown)
{
    enum { RING = 8, ROUNDS = 50 };
    const char *path = scratch_path(*state, "grows.json");
    struct ls_error error = {0};
    struct ls_trace *trace;
    struct ls_trace_file *file;
    size_t before = 0;
    char *earlier = NULL;
    assert_int_equal(ls_trace_new(&trace, 0, "main", RING, &error), LS_OK);
    assert_int_equal(ls_trace_file_open(&file, path, &trace, 1, &error), LS_OK);
    for (int round = 0; round < ROUNDS; round++) {
        size_t bytes;
        for (int i = 0; i < RING; i++) {
            ls_trace_set(trace, LS_TRACE_STEP, round * RING + i);
            ls_trace_begin(trace, "step", "step");
            ls_trace_end(trace);
        }
        assert_true(ls_trace_half_full(trace));
        assert_int_equal(ls_trace_file_write(file, &error), LS_OK);
        assert_false(ls_trace_half_full(trace));
        char *now = scratch_read(path, &bytes);
        assert_true(bytes > before && (round == 0 || bytes - before < (RING + 1) * 200));
        if (earlier)
            assert_memory_equal(now, earlier, before);
        free(earlier);
        earlier = now;
        before = bytes;
    }
    struct ls_trace_sums sums;
    int64_t next = 0;
    assert_int_equal(ls_trace_read(path, count_span, &next, &sums, &error), LS_OK);
    assert_int_equal(next, ROUNDS * RING); /* though the list is not closed yet */
    assert_int_equal(ls_trace_file_close(file, &error), LS_OK);
    next = 0;
    assert_int_equal(ls_trace_read(path, count_span, &next, &sums, &error), LS_OK);
    assert_int_equal(next, ROUNDS * RING);
    assert_int_equal(sums.dropped, 0);
    assert_true(sums.written_s > 1e9 && sums.written_s < 1e10); /* seconds since 1970 */
    json_decref(load(path));
    free(earlier);
    ls_trace_free(trace);
}

/* Transfers: a blocking one is a span, one in the background goes beside them, its wait is a span,
 * and a message has the same arrow on both ranks. What is open is there as unfinished. */
CASE_WITH(test_transfers, scratch_setup, scratch_teardown)
{
    const char *path = scratch_path(*state, "transfers.json");
    struct ls_error error = {0};
    struct ls_trace *traces[2];
    const int ranks[2] = {4, 9};
    const struct ls_trace_transfer sum = {"all_reduce",
                                          "all_reduce",
                                          0,
                                          -1,
                                          0,
                                          false,
                                          false,
                                          96,
                                          24,
                                          "F32",
                                          "a \"tensor\" with a name that is cut"};
    for (int i = 0; i < 2; i++) {
        struct ls_trace_transfer message = {"send", "send", 0,  ranks[!i], 5,   i == 0,
                                            i == 1, 64,     16, "F32",     NULL};
        int group;
        assert_int_equal(ls_trace_new(&traces[i], ranks[i], "main", 16, &error), LS_OK);
        assert_int_equal(ls_trace_group(traces[i], "pp", ranks, 2, &group, &error), LS_OK);
        message.operation = i ? "recv" : "send";
        ls_trace_begin(traces[i], "step", "step");
        ls_trace_transfer(traces[i], &sum);
        ls_trace_end(traces[i]);
        int number = ls_trace_start(traces[i], &message);
        ls_trace_end(traces[i]);
        assert_int_equal(ls_trace_start(traces[i], &sum), number + 1); /* never waited for */
        ls_trace_end(traces[i]);
        ls_trace_wait(traces[i], number);
        await_pause();
        ls_trace_end(traces[i]);
        ls_trace_finish(traces[i], number);
        assert_int_equal(ls_trace_start(NULL, &message), 0);
    }
    write_whole(path, traces, 2);
    json_t *root = load(path), *event;
    size_t index;
    const char *arrows[2] = {"", ""};
    int unfinished = 0, waits = 0;
    json_array_foreach(root, index, event)
    {
        const json_t *args = json_object_get(event, "args");
        unfinished += json_is_true(json_object_get(args, "unfinished"));
        if (strcmp(text_of(event, "ph"), "s") == 0)
            arrows[0] = text_of(event, "id");
        if (strcmp(text_of(event, "ph"), "f") == 0)
            arrows[1] = text_of(event, "id");
        if (strcmp(text_of(event, "cat") ? text_of(event, "cat") : "", "wait") != 0)
            continue;
        waits++;
        assert_true(number_of(event, "dur") >= 1000);
        assert_true(number_of(args, "bytes") == 64);
        assert_string_equal(text_of(args, "group"), "pp");
        assert_true(json_array_size(json_object_get(args, "ranks")) == 2);
    }
    assert_int_equal(waits, 2);
    assert_int_equal(unfinished, 4); /* the step and the sum, of each rank */
    assert_string_equal(arrows[0], arrows[1]);
    assert_int_equal(strlen(arrows[0]), 16);
    json_decref(root);
    ls_trace_free(traces[0]);
    ls_trace_free(traces[1]);
}

/* Wherever a run is killed, the spans that are whole in its file can be read. */
CASE_WITH(test_a_cut_trace_is_read, scratch_setup, scratch_teardown)
{
    const char *path = scratch_path(*state, "cut.json");
    struct ls_error error = {0};
    struct ls_trace *trace;
    size_t bytes;
    struct ls_trace_sums sums;
    int64_t last = 0;
    assert_int_equal(ls_trace_new(&trace, 0, "main", 16, &error), LS_OK);
    put_spans(trace, 10);
    write_whole(path, &trace, 1);
    ls_trace_free(trace);
    char *text = scratch_read(path, &bytes);
    for (size_t cut = 1; cut <= bytes; cut++) {
        int64_t next = 0;
        if (ls_trace_read_text("cut.json", text, cut, count_span, &next, &sums, &error))
            fail_msg("cut after %zu of %zu bytes: %s", cut, bytes, error.text);
        assert_true(next >= last && next <= last + 1);
        last = next;
    }
    assert_int_equal(last, 10);
    free(text);
}

CASE(test_no_trace_is_off)
{
    ls_trace_begin(NULL, "a", "b");
    ls_trace_end(NULL);
    ls_trace_free(NULL);
}

SUITE_MAIN(NULL, NULL)
