/* What the trainer does is what is recorded beforehand, rank by rank, operation by operation. */
#include "../support/config_words.h"
#include "../support/extent.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/wrapped.h"
#include "comm/internal.h"
#include "tokens.h"
#include "train/trainer.h"

#include <lockstep/train/recorded.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GPT2                                                                                       \
    "model.arch=gpt2 model.vocab=50 model.vocab_multiple=16 model.layers=3 model.channels=32 "     \
    "model.heads=4 model.context=32 batch.global=8 parallel.threads=1 "
#define LLAMA                                                                                      \
    "model.arch=llama model.vocab=50 model.vocab_multiple=16 model.layers=2 model.channels=32 "    \
    "model.heads=4 model.kv_heads=2 model.ffn=64 model.context=256 batch.global=4 "                \
    "parallel.threads=1 "

/* ---- layouts --------------------------------------------------------------------------------- */

static const char *const layouts[] = {
    GPT2 "parallel.dp=3 batch.global=12 numerics.precision=fp32",
    GPT2 "parallel.dp=2 parallel.zero=1 batch.micro=2",
    GPT2 "parallel.dp_replicate=2 parallel.dp_shard=2 parallel.zero=2 batch.micro=1",
    GPT2 "parallel.dp=4 parallel.zero=3 batch.micro=1 parallel.prefetch=0",
    GPT2 "parallel.dp=2 parallel.zero=3 batch.micro=2 parallel.persist=100 model.tied=false",
    GPT2 "parallel.dp=2 parallel.zero=3 batch.micro=2 parallel.reshard_after_forward=false",
    GPT2 "parallel.dp=2 parallel.zero=2 batch.micro=3 batch.global=6 numerics.mode=fast "
         "numerics.reduce=bf16",
    GPT2 "parallel.dp=2 parallel.zero=2 batch.micro=4 batch.global=12",
    GPT2 "parallel.dp=2 parallel.zero=3 batch.micro=2 batch.global=10 parallel.pp=2",
    GPT2 "parallel.tp=2 batch.micro=4 batch.global=6",
    GPT2 "parallel.tp=4 parallel.sp=false batch.micro=4",
    GPT2 "parallel.tp=2 batch.micro=2 parallel.tp_overlap=2",
    GPT2 "parallel.pp=3 batch.micro=1",
    GPT2 "parallel.pp=2 batch.micro=2 parallel.schedule=interleaved",
    GPT2 "parallel.pp=2 batch.micro=1 parallel.schedule=zbv parallel.tp=2",
    GPT2 "parallel.pp=2 batch.micro=1 parallel.schedule=zb-h1 parallel.dp=2 parallel.zero=3",
    LLAMA "parallel.cp=2 numerics.seq_tiles=2 parallel.dp=2",
    LLAMA "parallel.cp=2 numerics.seq_tiles=2 parallel.cp_method=ring parallel.dp=2 "
          "parallel.zero=1",
    LLAMA "parallel.cp=4 numerics.seq_tiles=4 parallel.cp_method=ring data.sequence=512 "
          "model.context=512 parallel.pp=2",
    LLAMA "parallel.tp=4",
    LLAMA "parallel.tp=4 parallel.cp=2 numerics.seq_tiles=2",
    LLAMA "parallel.tp=4 parallel.cp=2 numerics.seq_tiles=2 parallel.cp_method=ring",
    LLAMA "parallel.tp=2 parallel.cp=2 parallel.pp=2 numerics.seq_tiles=2 parallel.zero=2",
    GPT2 "parallel.tp=2 memory.recompute=full batch.micro=2 parallel.dp=2 parallel.zero=3",
    LLAMA "parallel.tp=2 parallel.cp=2 numerics.seq_tiles=2 memory.recompute=selective "
          "parallel.cp_method=ring parallel.pp=2 parallel.schedule=zb-h1",
    GPT2 "parallel.tp=2 memory.recompute=full memory.partition_activations=true parallel.sp=false",
    GPT2 "parallel.dp_replicate=2 parallel.dp_shard=2 parallel.zero=1 batch.global=16 "
         "batch.micro=1 comm.bucket_mb=1 parallel.prefetch=2",
    GPT2 "optim.name=muon parallel.dp=3 batch.global=12",
    GPT2 "optim.name=muon parallel.dp_replicate=2 parallel.dp_shard=2 parallel.zero=1",
    LLAMA "optim.name=muon parallel.tp=4",
    LLAMA "optim.name=muon parallel.tp=2 parallel.pp=2 parallel.dp=2 parallel.zero=3",
    GPT2 "parallel.dp=2 parallel.zero=2 parallel.pp=2 batch.micro=1 batch.rampup_start=4 "
         "batch.rampup_increment=4 batch.rampup_samples=12 batch.global=12",
};
enum { LAYOUTS = sizeof layouts / sizeof layouts[0] };

static struct ls_config config_of(const char *directory, const char *words)
{
    return config_of_words("data.train=u16:%s/tokens.bin train.out=%s/run %s", directory, directory,
                           words);
}

/* ---- a run and its recording ----------------------------------------------------------------- */

enum { STEPS = 4 };

/* What is done to this test's ranks: they find no transfer ended before they wait for it, so that
 * what depends on time does not; and the recording of a rank that is alone lacks an operation. */
static bool patient;
static bool early;            /* a rank that is alone finds each transfer ended, as others may */
static int64_t left_out = -1; /* number of the operation that is, from now on */
enum { ENDED = 1024 };
static struct ls_request ended[ENDED]; /* their waits are not told: they were done with before */
static int64_t ended_count;

WRAPPED(ls_test);
bool __wrap_ls_test(struct ls_request *request)
{
    struct ls_comm *comm = request->comm;
    if (early && request->ticket && ls_comm_transport(comm) == LS_TRANSPORT_ALONE) {
        struct ls_request *place = &ended[ended_count++ % ENDED];
        *place = *request;
        return true;
    }
    return !patient && __real_ls_test(request);
}

static bool has_ended(const struct ls_request *request)
{
    for (int i = 0; i < ENDED; i++)
        if (ended[i].comm == request->comm && ended[i].ticket == request->ticket)
            return true;
    return false;
}

/* As a rank that is alone is told of its commands. */
static int64_t commands; /* that were looked at */
WRAPPED(ls_comm_command);
bool __wrap_ls_comm_command(const struct ls_command *command, struct ls_comm_told *out)
{
    commands++;
    if (!__real_ls_comm_command(command, out))
        return false;
    if (ls_comm_transport(out->request.comm) != LS_TRANSPORT_ALONE ||
        ls_comm_size(out->request.comm) == 1)
        return true;
    if (out->waits)
        return !early || !has_ended(&out->request);
    return left_out < 0 || left_out-- != 0;
}

/* A rank's steps as it ran them, and as they were recorded alone. */
struct pair {
    struct ls_recording ran, alone;
    int64_t first; /* of alone: what follows ls_trainer_new */
    struct ls_comm_stats before[LS_GROUPS], after[LS_GROUPS];
};

/* The leaves of each step of the run. */
static void leaves_of(const struct ls_layout *layout, int64_t leaves[STEPS])
{
    int64_t samples = 0;
    for (int i = 0; i < STEPS; i++) {
        leaves[i] = ls_ramp_at(&layout->ramp, samples);
        samples += leaves[i] * layout->numerics.leaf_sequences;
    }
}

static int run_recorded(struct ls_trainer *t, struct pair *pair, struct ls_error *error)
{
    struct ls_step_report report;
    int status = LS_OK;
    ls_trainer_stats(t, pair->before);
    const struct ls_queue_watch watch = ls_recording_watch(&pair->ran);
    for (int g = 0; g < LS_GROUPS; g++)
        if (t->groups[g])
            ls_recording_group(&pair->ran, t->groups[g], g);
    t->ops.queue.watch = &watch;
    for (int step = 0; step < STEPS && !status; step++)
        status = ls_trainer_step(t, &report, error);
    ls_trainer_stats(t, pair->after);
    t->ops.queue.watch = NULL;
    return status;
}

static int pair_make(const struct ls_config *config, struct ls_comm *world, struct pair *pair,
                     struct ls_error *error)
{
    struct ls_trainer *t = NULL;
    int64_t leaves[STEPS], begins[STEPS] = {0};
    memset(pair, 0, sizeof *pair);
    int status = ls_trainer_new(config, world, NULL, &t, error);
    if (!status)
        status = run_recorded(t, pair, error);
    if (!status) {
        leaves_of(&t->layout, leaves);
        status = ls_record_steps(config, &t->layout, ls_comm_rank(world), STEPS, leaves,
                                 &pair->alone, begins, error);
    }
    pair->first = begins[0];
    ls_trainer_free(t);
    return status;
}

static void pair_release(struct pair *pair)
{
    ls_recording_release(&pair->ran);
    ls_recording_release(&pair->alone);
}

/* ---- comparison ------------------------------------------------------------------------------ */

static bool text_same(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool moves_same(const struct ls_recorded *a, const struct ls_recorded *b)
{
    return a->group == b->group && a->operation.name == b->operation.name &&
           a->operation.kind == b->operation.kind && a->operation.dtype == b->operation.dtype &&
           a->operation.count == b->operation.count &&
           a->operation.receive == b->operation.receive && a->operation.peer == b->operation.peer &&
           a->operation.tag == b->operation.tag &&
           text_same(a->operation.label, b->operation.label) &&
           text_same(a->operation.site.file, b->operation.site.file) &&
           a->operation.site.line == b->operation.site.line;
}

static int differ(struct ls_error *error, int64_t i, const struct ls_recorded *ran,
                  const struct ls_recorded *alone)
{
    return ls_error_set(
        error, LS_ECOMM,
        "operation %ld of %s: %s of %ld [%s] (%s:%d) until %ld was run, "
        "%s of %ld [%s] (%s:%d) until %ld recorded",
        (long)i, ls_group_name((enum ls_layout_group)ran->group), ran->operation.name,
        (long)ran->operation.count, ran->operation.label ? ran->operation.label : "",
        ran->operation.site.file, ran->operation.site.line, (long)ran->until, alone->operation.name,
        (long)alone->operation.count, alone->operation.label ? alone->operation.label : "",
        alone->operation.site.file, alone->operation.site.line, (long)alone->until);
}

/* Every operation of all groups in one order, and when each is waited for. */
static int compare_all(const struct pair *pair, struct ls_error *error)
{
    int64_t first = pair->first;
    for (int64_t i = 0; i < pair->ran.count && first + i < pair->alone.count; i++) {
        const struct ls_recorded *ran = &pair->ran.list[i], *alone = &pair->alone.list[first + i];
        bool same = ran->until == LS_RECORDED_PENDING ? alone->until == LS_RECORDED_PENDING
                                                      : ran->until == alone->until - first;
        if (!same || !moves_same(ran, alone))
            return differ(error, i, ran, alone);
    }
    if (pair->ran.count != pair->alone.count - first)
        return ls_error_set(error, LS_ECOMM, "%ld operations were run, %ld recorded",
                            (long)pair->ran.count, (long)(pair->alone.count - first));
    return LS_OK;
}

/* Each group's operations in their order. */
static int compare_groups(const struct pair *pair, struct ls_error *error)
{
    for (int g = 0; g < LS_GROUPS; g++) {
        int64_t i = 0, k = pair->first;
        for (;; i++, k++) {
            while (i < pair->ran.count && pair->ran.list[i].group != g)
                i++;
            while (k < pair->alone.count && pair->alone.list[k].group != g)
                k++;
            if (i == pair->ran.count || k == pair->alone.count)
                break;
            if (!moves_same(&pair->ran.list[i], &pair->alone.list[k]))
                return differ(error, i, &pair->ran.list[i], &pair->alone.list[k]);
        }
        if (i < pair->ran.count || k < pair->alone.count)
            return ls_error_set(error, LS_ECOMM, "%s: more was %s",
                                ls_group_name((enum ls_layout_group)g),
                                i < pair->ran.count ? "run" : "recorded");
    }
    return LS_OK;
}

/* What was recorded is what was counted where bytes are handed over. */
static int compare_bytes(const struct pair *pair, const struct ls_layout *layout, int64_t rank,
                         struct ls_error *error)
{
    int64_t sent[LS_GROUPS] = {0}, operations[LS_GROUPS] = {0};
    for (int64_t i = pair->first; i < pair->alone.count; i++) {
        const struct ls_recorded *move = &pair->alone.list[i];
        sent[move->group] += ls_move_bytes(layout, rank, move);
        operations[move->group]++;
    }
    for (int g = 0; g < LS_GROUPS; g++) {
        const struct ls_comm_stats *a = &pair->after[g], *b = &pair->before[g];
        int64_t other = a->kind[LS_COMM_OTHER].sent_bytes - b->kind[LS_COMM_OTHER].sent_bytes;
        if (ls_group_size(layout, (enum ls_layout_group)g) > 1 &&
            (a->sent_bytes - b->sent_bytes - other != sent[g] ||
             a->operations - b->operations != operations[g]))
            return ls_error_set(
                error, LS_ECOMM,
                "%s: %ld operations of %ld bytes were counted, "
                "%ld of %ld recorded",
                ls_group_name((enum ls_layout_group)g), (long)(a->operations - b->operations),
                (long)(a->sent_bytes - b->sent_bytes - other), (long)operations[g], (long)sent[g]);
    }
    return LS_OK;
}

static int steps_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    const struct ls_config *config = user;
    static _Thread_local struct ls_layout layout;
    struct pair pair;
    int status = pair_make(config, world, &pair, error);
    if (!status)
        status = patient ? compare_all(&pair, error) : compare_groups(&pair, error);
    if (!status)
        status = ls_config_layout(config, 0, &layout, error);
    if (!status)
        status = compare_bytes(&pair, &layout, ls_comm_rank(world), error);
    pair_release(&pair);
    return status;
}

/* As a run is: in each group the same operations. And where no transfer is found ended early: the
 * same in one order, waits too. */
CASE_WITH(test_a_run_does_what_was_recorded, tokens_setup, scratch_teardown)
{
    for (int i = 0; i < LAYOUTS; i++)
        for (int k = 0; k < 2; k++) {
            if (!check_pair(i, k, 4))
                continue;
            struct ls_config config = config_of(*state, layouts[i]);
            struct ls_error error = {0};
            patient = k > 0;
            int status = ls_world_run((int)ls_config_ranks(&config), steps_body, &config, &error);
            patient = false;
            if (status)
                fail_msg("%s\n%s", layouts[i], error.text);
        }
}

/* ---- broken twins ---------------------------------------------------------------------------- */

static int twins_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    const struct ls_config *config = user;
    struct ls_error caught;
    struct pair pair;
    int status = pair_make(config, world, &pair, error);
    struct ls_recorded *list = pair.alone.list + pair.first;
    for (int64_t i = 0; i + 1 < pair.ran.count && !status; i++) {
        struct ls_recorded kept = list[i];
        if (moves_same(&list[i], &list[i + 1]))
            continue;
        list[i] = list[i + 1];
        list[i + 1] = kept;
        bool seen = compare_all(&pair, &caught) != LS_OK;
        bool group = list[i].group != list[i + 1].group || compare_groups(&pair, &caught) != LS_OK;
        list[i + 1] = list[i];
        list[i] = kept;
        list[i].until += 1;
        seen = seen && compare_all(&pair, &caught) != LS_OK;
        list[i] = kept;
        if (!seen || !group)
            status =
                ls_error_set(error, LS_ECOMM, "a change of operation %ld went unnoticed", (long)i);
    }
    pair_release(&pair);
    return status;
}

static int lacking_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    const struct ls_config *config = user;
    struct ls_trainer *t = NULL;
    struct pair pair = {.first = 0};
    struct ls_error caught;
    int64_t leaves[STEPS], begins[STEPS] = {0};
    int status = ls_trainer_new(config, world, NULL, &t, error);
    if (!status)
        status = run_recorded(t, &pair, error);
    for (int64_t at = 0; !status && ls_comm_rank(world) == 1; at += 7) {
        ls_recording_release(&pair.alone);
        leaves_of(&t->layout, leaves);
        left_out = at;
        status = ls_record_steps(config, &t->layout, 1, STEPS, leaves, &pair.alone, begins, error);
        pair.first = begins[0];
        if (left_out >= 0) { /* past the end; what is left out before `first` is a gather of it */
            left_out = -1;
            break;
        }
        if (!status && at > pair.first && compare_groups(&pair, &caught) == LS_OK)
            status =
                ls_error_set(error, LS_ECOMM, "operation %ld left out went unnoticed", (long)at);
    }
    ls_trainer_free(t);
    pair_release(&pair);
    return status;
}

CASE_WITH(test_what_is_not_recorded_right_is_seen, tokens_setup, scratch_teardown)
{
    static const int some[] = {2, 7, 9, 17};
    patient = true;
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        struct ls_config config = config_of(*state, layouts[some[i]]);
        struct ls_error error = {0};
        int ranks = (int)ls_config_ranks(&config);
        if (ls_world_run(ranks, twins_body, &config, &error) ||
            ls_world_run(ranks, lacking_body, &config, &error))
            fail_msg("%s\n%s", layouts[some[i]], error.text);
    }
    patient = false;
}

/* ---- what depends on time -------------------------------------------------------------------- */

/* Ranks that find transfers ended at once, among such that do not until they wait for them, prove
 * together: nobody waits for what another puts off. */
CASE_WITH(test_early_and_late_ranks_meet, tokens_setup, scratch_teardown)
{
    for (int i = 0; i < LAYOUTS; i++) {
        struct ls_config config = config_of(*state, layouts[i]);
        static struct ls_layout layout;
        struct ls_layout_proof out;
        struct ls_error error = {0};
        struct ls_move_proof *proof;
        int64_t leaves[STEPS], begins[STEPS];
        if (ls_config_layout(&config, 0, &layout, &error) ||
            ls_move_proof_new(&layout, false, &proof, &error))
            fail_msg("%s", error.text);
        leaves_of(&layout, leaves);
        for (int64_t rank = 0; rank < layout.ranks; rank++) {
            struct ls_recording list;
            ls_recording_init(&list);
            early = rank % 3 == 0;
            memset(ended, 0, sizeof ended);
            int status =
                ls_record_steps(&config, &layout, rank, STEPS, leaves, &list, begins, &error);
            early = false;
            if (status || ls_move_proof_add(proof, rank, &list, &error))
                fail_msg("%s\n%s", layouts[i], error.text);
            ls_recording_release(&list);
        }
        if (ls_move_proof_finish(proof, &out, &error))
            fail_msg("%s\n%s", layouts[i], error.text);
        ls_move_proof_free(proof);
    }
}

/* ---- ranks that are alike -------------------------------------------------------------------- */

/* Takes out what a rank does where matrices meet. */
static void matrices_drop(struct ls_recording *recording)
{
    int64_t *before = calloc((size_t)recording->count + 1, sizeof *before), kept = 0;
    assert_non_null(before);
    for (int64_t i = 0; i < recording->count; i++) {
        before[i] = kept;
        if (recording->list[i].group != LS_GROUP_MATRICES)
            recording->list[kept++] = recording->list[i];
    }
    before[recording->count] = kept;
    for (int64_t i = 0; i < kept; i++)
        if (recording->list[i].until != LS_RECORDED_PENDING)
            recording->list[i].until = before[recording->list[i].until];
    recording->count = kept;
    free(before);
}

/* Each rank does what is recorded of the one that stands for it in a proof, but where matrices
 * meet. */
CASE_WITH(test_ranks_that_are_alike_do_the_same, tokens_setup, scratch_teardown)
{
    for (int i = 0; i < LAYOUTS; i++) {
        struct ls_config config = config_of(*state, layouts[i]);
        static struct ls_layout layout;
        struct ls_error error = {0};
        struct ls_move_proof *proof;
        if (ls_config_layout(&config, 0, &layout, &error) ||
            ls_move_proof_new(&layout, true, &proof, &error))
            fail_msg("%s", error.text);
        for (int64_t rank = 0; rank < layout.ranks; rank++) {
            struct pair pair = {.first = 0};
            int64_t leaves[STEPS], begins[STEPS], stands = ls_move_proof_alike(proof, rank);
            leaves_of(&layout, leaves);
            if (ls_record_steps(&config, &layout, rank, STEPS, leaves, &pair.ran, begins, &error) ||
                ls_record_steps(&config, &layout, stands, STEPS, leaves, &pair.alone, begins,
                                &error))
                fail_msg("%s\n%s", layouts[i], error.text);
            matrices_drop(&pair.ran);
            matrices_drop(&pair.alone);
            if (compare_all(&pair, &error))
                fail_msg("%s\nranks %ld and %ld: %s", layouts[i], (long)rank, (long)stands,
                         error.text);
            pair_release(&pair);
        }
        ls_move_proof_free(proof);
    }
}

/* ---- where matrices meet --------------------------------------------------------------------- */

struct rehearsal {
    const struct ls_config *config;
    const struct ls_layout *layout;
    int64_t ranks, moves;
};

/* The first operation from i on where matrices meet, or that is of something else. */
static int64_t matrices_find(const struct ls_recording *list, int64_t i, bool matrices)
{
    while (i < list->count && (list->list[i].group == LS_GROUP_MATRICES) != matrices)
        i++;
    return i;
}

/* In each step a rank does in a row what was rehearsed. */
static int rehearsal_compare(void *user, int64_t rank, const struct ls_recording *rehearsed,
                             struct ls_error *error)
{
    struct rehearsal *r = user;
    struct pair pair = {.ran = *rehearsed};
    int64_t leaves[STEPS], begins[STEPS], meetings = 0;
    leaves_of(r->layout, leaves);
    ls_recording_init(&pair.alone);
    int status =
        ls_record_steps(r->config, r->layout, rank, STEPS, leaves, &pair.alone, begins, error);
    int64_t all = pair.alone.count;
    while (!status && (pair.first = matrices_find(&pair.alone, pair.first, true)) < all) {
        pair.alone.count = matrices_find(&pair.alone, pair.first, false);
        int64_t end = pair.alone.count;
        status = compare_all(&pair, error);
        pair.alone.count = all;
        pair.first = end;
        meetings++;
    }
    if (!status && meetings != (rehearsed->count ? STEPS : 0))
        status = ls_error_set(error, LS_ECOMM, "matrices met %ld times", (long)meetings);
    r->ranks++;
    r->moves += rehearsed->count;
    ls_recording_release(&pair.alone);
    return status;
}

CASE_WITH(test_matrices_meet_as_was_rehearsed, tokens_setup, scratch_teardown)
{
    int64_t moves = 0;
    for (int i = 0; i < LAYOUTS; i++) {
        struct ls_config config = config_of(*state, layouts[i]);
        static struct ls_layout layout;
        struct ls_error error = {0};
        int status = ls_config_layout(&config, 0, &layout, &error);
        if (!status && !layout.matrices_meet)
            continue;
        struct rehearsal r = {.config = &config, .layout = &layout};
        for (int64_t pp = 0; pp < layout.size[LS_AXIS_PP] && !status; pp++)
            status = ls_record_matrices(&config, &layout, pp, rehearsal_compare, &r, &error);
        if (status)
            fail_msg("%s\n%s", layouts[i], error.text);
        assert_int_equal(r.ranks, layout.ranks);
        moves += r.moves;
    }
    assert_true(moves > 0);
}

/* Bytes of a full step, each of whose operations is added. */
static int bytes_of_all(const struct ls_config *config, const struct ls_layout *layout,
                        int64_t rank, int64_t bytes[LS_ACCOUNTS], struct ls_error *error)
{
    struct ls_recording recording;
    const int64_t leaves[] = {layout->ramp.full, layout->ramp.full};
    int64_t begins[2] = {0};
    ls_recording_init(&recording);
    int status = ls_record_steps(config, layout, rank, 2, leaves, &recording, begins, error);
    memset(bytes, 0, LS_ACCOUNTS * sizeof *bytes);
    for (int64_t i = begins[1]; i < recording.count && !status; i++) {
        const struct ls_recorded *move = &recording.list[i];
        bytes[ls_account_of(layout, (enum ls_layout_group)move->group)] +=
            ls_move_bytes(layout, rank, move);
    }
    ls_recording_release(&recording);
    return status;
}

/* The bytes of a step of many micro-batches, of which shorter ones are recorded, are those of all
 * of its operations. */
CASE_WITH(test_bytes_of_many_micro_batches, tokens_setup, scratch_teardown)
{
    static const char *const many[] = {
        GPT2 "parallel.dp=2 parallel.zero=3 parallel.pp=2 batch.micro=1 "
             "numerics.leaf_sequences=1 batch.global=1000",
        GPT2 "parallel.dp=2 parallel.zero=2 parallel.tp=2 batch.micro=1 "
             "numerics.leaf_sequences=4 batch.global=600",
        GPT2 "parallel.dp=2 parallel.zero=1 batch.micro=6 numerics.leaf_sequences=3 "
             "batch.global=4212",
        GPT2 "parallel.pp=2 batch.micro=2 parallel.schedule=interleaved numerics.leaf_sequences=1 "
             "batch.global=600",
        LLAMA "parallel.cp=2 numerics.seq_tiles=2 batch.micro=1 batch.global=300"};
    for (size_t i = 0; i < sizeof many / sizeof *many; i++) {
        struct ls_config config = config_of(*state, many[i]);
        static struct ls_layout layout;
        struct ls_error error = {0};
        int64_t bytes[LS_ACCOUNTS] = {0}, all[LS_ACCOUNTS] = {0}, before = commands;
        int64_t rank = 0, sum = 0;
        int status = ls_config_layout(&config, 0, &layout, &error);
        rank = layout.ranks - 1;
        status = status ? status : ls_record_bytes(&config, &layout, rank, bytes, &error);
        int64_t took = commands - before;
        status = status ? status : bytes_of_all(&config, &layout, rank, all, &error);
        if (status)
            fail_msg("%s\n%s", many[i], error.text);
        if (2 * took > commands - before)
            fail_msg("%s: %ld commands, of %ld in all", many[i], (long)took,
                     (long)(commands - before));
        for (int a = 0; a < LS_ACCOUNTS; a++) {
            if (bytes[a] != all[a])
                fail_msg("%s\naccount %d: %ld bytes, expected %ld", many[i], a, (long)bytes[a],
                         (long)all[a]);
            sum += bytes[a];
        }
        assert_true(sum > 0);
    }
}

SUITE_MAIN(NULL, NULL)
