/* What a rank does, recorded from the trainer itself while it goes through the motions. */
#include <lockstep/train/recorded.h>

#include "trainer.h"

#include <stdlib.h>

/* begins: operations before each step; clocks: `at` of what comes first in it, or NULL. */
static int record(const struct ls_config *config, const struct ls_layout *layout, int64_t rank,
                  int steps, const int64_t *leaves, struct ls_recording *recording, int64_t *begins,
                  int64_t *clocks, struct ls_error *error)
{
    struct ls_comm *world;
    struct ls_trainer *t = NULL;
    int status = ls_comm_alone_new((int)rank, (int)layout->ranks, &world, error);
    if (!status)
        status = trainer_idle(config, layout, world, recording, &t, error);
    for (int i = 0; i < steps && !status; i++) {
        struct ls_step_report report;
        begins[i] = recording->count;
        if (clocks)
            clocks[i] = recording->clock;
        t->layout.ramp = (struct ls_ramp){.full = leaves[i]};
        status = ls_trainer_step(t, &report, error);
    }
    for (int g = 0; t && g < LS_GROUPS; g++)
        if (t->groups[g])
            ls_comm_set_recording(t->groups[g], NULL, 0);
    if (t)
        t->ops.watch = NULL;
    ls_trainer_free(t);
    ls_comm_free(world);
    if (!status && recording->incomplete)
        status = ls_error_set(error, LS_ENOMEM, "no memory to record what a rank computes");
    return status;
}

int ls_record_steps(const struct ls_config *config, const struct ls_layout *layout, int64_t rank,
                    int steps, const int64_t *leaves, struct ls_recording *recording,
                    int64_t *begins, struct ls_error *error)
{
    return record(config, layout, rank, steps, leaves, recording, begins, NULL, error);
}

int ls_record_works(const struct ls_config *config, const struct ls_layout *layout, int64_t rank,
                    struct ls_recording *recording, int64_t *second_at, struct ls_error *error)
{
    const int64_t leaves[] = {layout->ramp.full, layout->ramp.full};
    int64_t begins[2] = {0}, clocks[2] = {0};
    recording->wants_works = true;
    int status = record(config, layout, rank, 2, leaves, recording, begins, clocks, error);
    *second_at = clocks[1];
    return status;
}

int ls_record_bytes(const struct ls_config *config, const struct ls_layout *layout, int64_t rank,
                    int64_t bytes[LS_ACCOUNTS], struct ls_error *error)
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
        bytes[ls_account_of((enum ls_layout_group)move->group)] +=
            ls_move_bytes(layout, rank, move);
    }
    ls_recording_release(&recording);
    return status;
}

/* ---- the proof ------------------------------------------------------------------------------- */

/* The steps that are proved: each batch of the ramp-up, and the full one again, because the first
 * step expects its parameters in another order than those that follow. */
struct course {
    const struct ls_config *config;
    const struct ls_layout *layout;
    int64_t *leaves, *begins; /* [steps] */
    int steps;
};

static int course_init(struct course *course, const struct ls_config *config,
                       const struct ls_layout *layout, struct ls_error *error)
{
    *course = (struct course){.config = config, .layout = layout};
    int steps = 1;
    for (int64_t n = 0; (n = ls_ramp_next(&layout->ramp, n));)
        steps++;
    course->leaves = calloc((size_t)steps, sizeof *course->leaves);
    course->begins = calloc((size_t)steps, sizeof *course->begins);
    if (!course->leaves || !course->begins)
        return ls_error_set(error, LS_ENOMEM, "no memory for a list of %d steps", steps);
    for (int64_t n = 0; (n = ls_ramp_next(&layout->ramp, n));)
        course->leaves[course->steps++] = n;
    course->leaves[course->steps++] = layout->ramp.full;
    return LS_OK;
}

static int course_record(const struct course *course, int64_t rank, struct ls_recording *recording,
                         struct ls_error *error)
{
    ls_recording_init(recording);
    return ls_record_steps(course->config, course->layout, rank, course->steps, course->leaves,
                           recording, course->begins, error);
}

static int ranks_add(const struct course *course, struct ls_move_proof *proof,
                     struct ls_error *error)
{
    int status = LS_OK;
    for (int64_t rank = 0; rank < course->layout->ranks && !status; rank++) {
        struct ls_recording recording;
        if (ls_move_proof_alike(proof, rank) != rank)
            continue;
        status = course_record(course, rank, &recording, error);
        if (!status)
            status = ls_move_proof_add(proof, rank, &recording, error);
        ls_recording_release(&recording);
    }
    return status;
}

int ls_layout_check(const struct ls_config *config, const struct ls_layout *layout,
                    struct ls_layout_proof *out, struct ls_error *error)
{
    struct course course;
    struct ls_move_proof *proof = NULL;
    int status = course_init(&course, config, layout, error);
    if (!status)
        status = ls_move_proof_new(layout, true, &proof, error);
    if (!status)
        status = ranks_add(&course, proof, error);
    if (!status)
        status = ls_move_proof_finish(proof, out, error);
    ls_move_proof_free(proof);
    free(course.leaves);
    free(course.begins);
    return status;
}
