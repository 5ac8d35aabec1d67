/* What a rank does, recorded in a dry run of the trainer itself. */
#include <lockstep/train/recorded.h>

#include "train/trainer.h"

#include <lockstep/base/meter.h>

#include <math.h>
#include <stdlib.h>

/* Steps of so many leaves each. */
struct course {
    const struct ls_config *config;
    const struct ls_layout *layout;
    const int64_t *leaves; /* [steps] */
    int64_t *begins;       /* [steps]: operations before each */
    int64_t *clocks;       /* [steps]: `at` of what comes first in each; or NULL */
    int steps;
    bool tells; /* how many ranks are recorded */
};

static int record(const struct course *course, int64_t rank, struct ls_recording *recording,
                  struct ls_error *error)
{
    const struct ls_layout *layout = course->layout;
    struct ls_comm *world;
    struct ls_trainer *t = NULL;
    int status = ls_comm_alone_new((int)rank, (int)layout->ranks, &world, error);
    if (!status)
        status = trainer_idle(course->config, layout, world, recording, &t, error);
    for (int i = 0; i < course->steps && !status; i++) {
        struct ls_step_report report;
        course->begins[i] = recording->count;
        if (course->clocks)
            course->clocks[i] = recording->clock;
        t->layout.ramp = (struct ls_ramp){.full = course->leaves[i]};
        status = ls_trainer_step(t, &report, error);
    }
    if (t)
        t->ops.queue.watch = NULL;
    ls_trainer_free(t);
    ls_comm_free(world);
    if (!status && recording->incomplete)
        status = ls_no_memory(error, "to record what a rank does");
    return status;
}

int ls_record_steps(const struct ls_config *config, const struct ls_layout *layout, int64_t rank,
                    int steps, const int64_t *leaves, struct ls_recording *recording,
                    int64_t *begins, struct ls_error *error)
{
    const struct course course = {
        .config = config, .layout = layout, .leaves = leaves, .begins = begins, .steps = steps};
    return record(&course, rank, recording, error);
}

/* Leaves of a first step that is shorter than the full one: whole turns of the pipeline, each rank
 * in whole micro-batches. */
static int64_t shorter(const struct ls_layout *layout)
{
    static const int64_t origin[LS_AXES];
    struct ls_dp_share share;
    ls_layout_share(layout, layout->ramp.full, origin, &share);
    int64_t pp = layout->size[LS_AXIS_PP];
    int64_t turn = layout->schedule == LS_SCHEDULE_DUALPIPEV ? 2 * pp : pp;
    int64_t times = layout->micro_batches / turn;
    bool whole = layout->schedule != LS_LAYOUT_CSV && turn * times == layout->micro_batches &&
                 share.micro % share.leaf == 0 && share.count * share.leaf % share.micro == 0 &&
                 layout->ramp.increment == 0 && layout->ramp.full % ls_max(times, 1) == 0;
    return whole ? layout->ramp.full / times : layout->ramp.full;
}

int ls_record_works(const struct ls_config *config, const struct ls_layout *layout, int64_t rank,
                    struct ls_recording *recording, int64_t *second_at, struct ls_error *error)
{
    const int64_t leaves[] = {shorter(layout), layout->ramp.full};
    int64_t begins[2] = {0}, clocks[2] = {0};
    struct ls_layout both = *layout; /* with a ramp-up, so that both have their tables */
    if (leaves[0] < leaves[1])
        both.ramp = (struct ls_ramp){.full = leaves[1],
                                     .start = leaves[0],
                                     .increment = leaves[1] - leaves[0],
                                     .samples = 1};
    const struct course course = {.config = config,
                                  .layout = &both,
                                  .leaves = leaves,
                                  .begins = begins,
                                  .clocks = clocks,
                                  .steps = 2};
    recording->wants_works = true;
    int status = record(&course, rank, recording, error);
    *second_at = clocks[1];
    return status;
}

int ls_rehearse_steps(const struct ls_config *config, const struct ls_layout *layout,
                      struct ls_comm *world, const struct ls_queue_watch *watch, int steps,
                      double *step_s, struct ls_error *error)
{
    struct ls_trainer *t = NULL;
    int status = ls_comm_agree(world, trainer_idle(config, layout, world, NULL, &t, error), error);
    if (t)
        t->ops.queue.watch = watch;
    for (int i = 0; i < steps && !status; i++) {
        struct ls_step_report report;
        status = ls_trainer_step(t, &report, error);
        step_s[i] = report.step_s;
    }
    ls_trainer_free(t);
    return status;
}

bool ls_step_shorten(const struct ls_config *config, const struct ls_layout *layout,
                     int64_t micro_batches, struct ls_config *shorter, struct ls_layout *out)
{
    int64_t dp = layout->size[LS_AXIS_DP_REPLICATE] * layout->size[LS_AXIS_DP_SHARD];
    *shorter = *config;
    shorter->batch.global = micro_batches * dp * layout->micro_sequences;
    shorter->batch.micro = layout->micro_sequences;
    shorter->batch.rampup_start = shorter->batch.rampup_increment = shorter->batch.rampup_samples =
        0;
    return shorter->batch.global % config->numerics.leaf_sequences == 0 &&
           !ls_config_layout(shorter, 0, out, NULL) && out->micro_batches == micro_batches;
}

/* Of a full step, all of which is recorded. */
static int bytes_record(const struct ls_config *config, const struct ls_layout *layout,
                        int64_t rank, int64_t bytes[LS_ACCOUNTS], struct ls_error *error)
{
    struct ls_recording recording;
    const int64_t leaves[] = {layout->ramp.full, layout->ramp.full};
    int64_t begins[2] = {0};
    for (int a = 0; a < LS_ACCOUNTS; a++)
        bytes[a] = 0;
    ls_recording_init(&recording);
    int status = ls_record_steps(config, layout, rank, 2, leaves, &recording, begins, error);
    for (int64_t i = begins[1]; i < recording.count && !status; i++) {
        const struct ls_recorded *move = &recording.list[i];
        bytes[ls_account_of(layout, (enum ls_layout_group)move->group)] +=
            ls_move_bytes(layout, rank, move);
    }
    ls_recording_release(&recording);
    return status;
}

/* Of steps that are one, two and three parts: each some micro-batches for each stage, and whole
 * leaves of each rank. */
enum { PARTS = 3, PART_TURNS = 8 };
static int64_t part_of(const struct ls_layout *layout)
{
    int64_t leaf = layout->numerics.leaf_sequences, micro = layout->micro_sequences;
    int64_t whole = leaf % micro == 0 ? leaf / micro : leaf;
    return ls_round_up(PART_TURNS * layout->size[LS_AXIS_PP], whole);
}

/* The line through them. False if they are on none. */
static bool bytes_extend(int64_t part[PARTS][LS_ACCOUNTS], double further,
                         int64_t bytes[LS_ACCOUNTS])
{
    for (int a = 0; a < LS_ACCOUNTS; a++) {
        int64_t more = part[2][a] - part[1][a];
        double whole = (double)part[2][a] + further * (double)more;
        if (more != part[1][a] - part[0][a] || whole != floor(whole))
            return false;
        bytes[a] = (int64_t)whole;
    }
    return true;
}

/* A step of very many micro-batches goes on as a shorter one does. */
static int bytes_shorten(const struct ls_config *config, const struct ls_layout *layout,
                         int64_t rank, int64_t bytes[LS_ACCOUNTS], bool *extended,
                         struct ls_error *error)
{
    const int64_t turn = part_of(layout), m = layout->micro_batches;
    int64_t dp = layout->size[LS_AXIS_DP_REPLICATE] * layout->size[LS_AXIS_DP_SHARD];
    int64_t part[PARTS][LS_ACCOUNTS];
    struct ls_config shorter;
    struct ls_layout out;
    int status = LS_OK;
    bool even = config->batch.global == m * dp * layout->micro_sequences, admitted = even;
    *extended = false;
    for (int i = 0; i < PARTS && !status && admitted; i++) {
        admitted = ls_step_shorten(config, layout, (i + 1) * turn, &shorter, &out);
        if (admitted)
            status = bytes_record(&shorter, &out, rank, part[i], error);
    }
    if (!status && admitted)
        *extended = bytes_extend(part, (double)(m - PARTS * turn) / (double)turn, bytes);
    return status;
}

int ls_record_bytes(const struct ls_config *config, const struct ls_layout *layout, int64_t rank,
                    int64_t bytes[LS_ACCOUNTS], struct ls_error *error)
{
    enum { WORTH = 2 }; /* times what the parts take */
    int64_t parts = part_of(layout) * PARTS * (PARTS + 1) / 2;
    bool extended = false;
    int status = LS_OK;
    if (layout->micro_batches > WORTH * parts)
        status = bytes_shorten(config, layout, rank, bytes, &extended, error);
    return status || extended ? status : bytes_record(config, layout, rank, bytes, error);
}

/* ---- where matrices meet --------------------------------------------------------------------- */

/* The parameters of a stage, as any of its ranks shares them with the others. */
struct meeting {
    struct train_part part;
    struct ls_params params;
    struct ls_arena arena;
    struct ls_optimizer optimizer;
    struct ls_ops ops;
};

static void meeting_release(struct meeting *meeting)
{
    ls_optimizer_release(&meeting->optimizer);
    ls_arena_release(&meeting->arena);
    ls_params_release(&meeting->params);
    part_release(&meeting->part);
    ls_ops_release(&meeting->ops);
}

static int optimizer_make(const struct ls_config *config, struct meeting *meeting,
                          struct ls_arena *arena, struct ls_error *error)
{
    const struct ls_matrices matrices = {.params = &meeting->params};
    ls_optimizer_release(&meeting->optimizer);
    meeting->optimizer = (struct ls_optimizer){.config = ls_config_optim(config)};
    return ls_optimizer_meet(&meeting->optimizer, &matrices, arena, error);
}

static int meeting_init(struct meeting *meeting, const struct ls_config *config,
                        const struct ls_layout *layout, int64_t pp_rank, struct ls_error *error)
{
    struct ls_arena measure;
    *meeting = (struct meeting){0};
    ls_arena_measure(&measure);
    ls_ops_init_idle(&meeting->ops, LS_ISA_PLAIN);
    int status = part_init(&meeting->part, layout, pp_rank, error);
    if (!status)
        status = ls_layout_params(layout, 0, meeting->part.held, &meeting->params, error);
    if (!status)
        status = optimizer_make(config, meeting, &measure, error);
    if (!status)
        status = ls_arena_reserve(&meeting->arena, measure.used, error);
    return status ? status : optimizer_make(config, meeting, &meeting->arena, error);
}

/* Rank `rank` of `size`. */
static int rehearsal_record(struct meeting *meeting, int rank, int size,
                            struct ls_recording *recording, struct ls_error *error)
{
    struct ls_comm *comm;
    ls_recording_init(recording);
    int status = ls_comm_alone_new(rank, size, &comm, error);
    if (status)
        return status;
    const struct ls_queue_watch watch = ls_recording_watch(recording);
    ls_recording_group(recording, comm, LS_GROUP_MATRICES);
    meeting->ops.queue.watch = &watch;
    ls_comm_set_queue(comm, &meeting->ops.queue);
    status = ls_optimizer_rehearse(&meeting->optimizer, &meeting->ops, comm, error);
    meeting->ops.queue.watch = NULL;
    ls_comm_free(comm);
    if (!status && recording->incomplete)
        status = ls_no_memory(error, "to record where matrices meet");
    return status;
}

int ls_record_matrices(const struct ls_config *config, const struct ls_layout *layout,
                       int64_t pp_rank, ls_record_visit *visit, void *user, struct ls_error *error)
{
    int64_t at[LS_AXES] = {0};
    at[LS_AXIS_PP] = pp_rank;
    int64_t first = ls_layout_rank(layout, at), size = ls_group_size(layout, LS_GROUP_MATRICES);
    struct meeting meeting;
    int status = meeting_init(&meeting, config, layout, pp_rank, error);
    for (int i = 0; i < (int)size && !status; i++) {
        struct ls_recording recording;
        status = rehearsal_record(&meeting, i, (int)size, &recording, error);
        if (!status)
            status = visit(user, ls_group_member(layout, LS_GROUP_MATRICES, first, i), &recording,
                           error);
        ls_recording_release(&recording);
    }
    meeting_release(&meeting);
    return status;
}

/* ---- the proof ------------------------------------------------------------------------------- */

/* The steps that are proved: each batch of the ramp-up, and the full one again, because the first
 * step expects its parameters in another order than those that follow. *leaves and course->begins
 * are to be freed. */
static int course_init(struct course *course, int64_t **leaves, const struct ls_config *config,
                       const struct ls_layout *layout, struct ls_error *error)
{
    *course = (struct course){.config = config, .layout = layout};
    int steps = 1;
    for (int64_t n = 0; (n = ls_ramp_next(&layout->ramp, n));)
        steps++;
    *leaves = calloc((size_t)steps, sizeof **leaves);
    course->leaves = *leaves;
    course->begins = calloc((size_t)steps, sizeof *course->begins);
    if (!*leaves || !course->begins)
        return ls_no_memory(error, "for a list of %d steps", steps);
    for (int64_t n = 0; (n = ls_ramp_next(&layout->ramp, n));)
        (*leaves)[course->steps++] = n;
    (*leaves)[course->steps++] = layout->ramp.full;
    return LS_OK;
}

static int ranks_add(const struct course *course, struct ls_move_proof *proof,
                     struct ls_error *error)
{
    int status = LS_OK;
    for (int64_t rank = 0; rank < course->layout->ranks && !status; rank++) {
        struct ls_recording recording;
        if (course->tells)
            ls_meter("ranks", rank + 1, course->layout->ranks);
        if (ls_move_proof_alike(proof, rank) != rank)
            continue;
        ls_recording_init(&recording);
        status = record(course, rank, &recording, error);
        if (!status)
            status = ls_move_proof_add(proof, rank, &recording, error);
        ls_recording_release(&recording);
    }
    return status;
}

/* What ranks do but where matrices meet. */
static int lists_prove(const struct course *course, bool alike, struct ls_layout_proof *out,
                       struct ls_error *error)
{
    struct ls_move_proof *proof;
    int status = ls_move_proof_new(course->layout, alike, &proof, error);
    if (!status)
        status = ranks_add(course, proof, error);
    if (!status)
        status = ls_move_proof_finish(proof, out, error);
    ls_move_proof_free(proof);
    return status;
}

static int rank_add(void *proof, int64_t rank, const struct ls_recording *recording,
                    struct ls_error *error)
{
    return ls_move_proof_add(proof, rank, recording, error);
}

/* What they do there, the same in each step. */
static int matrices_prove(const struct course *course, struct ls_layout_proof *out,
                          struct ls_error *error)
{
    const struct ls_layout *layout = course->layout;
    struct ls_layout_proof step;
    struct ls_move_proof *proof;
    int status = ls_move_proof_new(layout, false, &proof, error);
    for (int64_t pp = 0; pp < layout->size[LS_AXIS_PP] && !status; pp++)
        status = ls_record_matrices(course->config, layout, pp, rank_add, proof, error);
    if (!status)
        status = ls_move_proof_finish(proof, &step, error);
    ls_move_proof_free(proof);
    if (!status)
        out->messages += course->steps * step.messages;
    return status;
}

int ls_layout_check(const struct ls_config *config, const struct ls_layout *layout, bool tells,
                    struct ls_layout_proof *out, struct ls_error *error)
{
    struct course course;
    int64_t *leaves = NULL;
    bool meet = layout->matrices_meet && ls_group_size(layout, LS_GROUP_MATRICES) > 1;
    int status = course_init(&course, &leaves, config, layout, error);
    course.tells = tells;
    if (!status)
        status = lists_prove(&course, true, out, error);
    if (!status && meet)
        status = matrices_prove(&course, out, error);
    if (status == LS_ELAYOUT && meet) /* a tiny matrix: alike ranks with and without a part of it */
        status = lists_prove(&course, false, out, error);
    free(leaves);
    free(course.begins);
    return status;
}
