/* Private to train: what a rank holds. */
#ifndef TRAIN_TRAINER_H
#define TRAIN_TRAINER_H

#include <lockstep/config/inputs.h>
#include <lockstep/device/check.h>
#include <lockstep/dtensor.h>
#include <lockstep/ops.h>
#include <lockstep/parallel/pipeline.h>
#include <lockstep/parallel/zero.h>
#include <lockstep/plan.h>
#include <lockstep/plan/recording.h>
#include <lockstep/trace.h>
#include <lockstep/train.h>

/* Seconds of ops by kind, measured while a rank works (log.profile). Two readings of the clock an
 * op. With a trace each op is a span of it, too. */
struct work_times {
    struct ls_trace *trace; /* borrowed; NULL: none */
    double begin_s;         /* of the op that is under way */
    double work_s[LS_WORK_KINDS];
    int64_t works[LS_WORK_KINDS];
};

/* times and trace (NULL: none) are borrowed by what watches. */
struct ls_queue_watch work_times_watch(struct work_times *times, struct ls_trace *trace);
void work_times_clear(struct work_times *times);

/* Which layers a rank holds: chunk i of the pipeline's virtual stages is layers [first, end). */
struct train_chunk {
    int first, end;
};
struct train_part {
    struct train_chunk *chunks;
    int chunk_count;
    bool *held, *chunk_first; /* [layers + 2] */
    bool head;                /* the head's layer is held */
    int lowest;               /* of all layers: below it no backward is needed */
};
int part_init(struct train_part *part, const struct ls_layout *layout, int64_t pp_rank,
              struct ls_error *error);
void part_release(struct train_part *part);

/* What workers exchange at an outer step, and the buffers that it passes through. Elements are
 * counted in the fragment: those of this rank's slices, one after the other. */
struct exchange {
    int64_t piece;   /* the most that a group owns of them; of a server gradients, */
    int64_t masters; /* and parameters */
    size_t bytes;    /* of all buffers */
    void *deltas;    /* [groups, workers of a group, piece]: block g goes to group g */
    void *came;      /* [workers, piece]: this group's share of all workers' deltas */
    void *sums;      /* [groups, piece] */
};

/* What one layout makes of the model on one rank, and the arena in which that and the unit of state
 * lie. It may be measuring. */
struct train_memory {
    struct ls_arena arena;
    struct ls_model *model;
    struct stage_tables *tables; /* the pipeline's */
    int slots;           /* micro-batches of a chunk between forward and the end of backward */
    int live;            /* of all chunks */
    bool split_backward; /* weight halves come on their own */
    struct ls_weights *weights;               /* [units] as the model reads them */
    struct ls_tier_room rooms[LS_TIER_KINDS]; /* what tiers hold */
    struct exchange exchange;                 /* of workers' deltas */
    struct ls_tier *tiers[LS_TIER_KINDS];     /* NULL: nothing lies there, or it is planned only */
};
struct memory_request;
/* Local. Takes or measures an exchange's buffers, once the units have their slices. */
void exchange_take(const struct memory_request *request, struct ls_arena *arena,
                   struct exchange *exchange);
/* What memory_take needs to know. */
struct memory_request {
    const struct ls_config *config;
    const struct ls_layout *layout;
    const int64_t *coordinates; /* [LS_AXES] */
    struct ls_state *units;     /* [unit_count] of state; what they borrow is set */
    int unit_count;
    const struct train_part *part;
    const struct ls_tp *tp;
    const struct ls_cp *cp;
};
/* Whether the trainer's queue checks (memory.check); debug builds always do. */
bool memory_checked(const struct ls_config *config);
/* Takes (or measures) all buffers in the order of the plan; memory's tiers are there before. */
int memory_take(const struct memory_request *request, struct ls_arena *arena,
                struct train_memory *memory, struct ls_memory_plan *plan, struct ls_error *error);
void memory_release(struct train_memory *memory);

/* A rank's memory with an arena that only counted: nothing of it may be touched. */
struct measured_memory {
    int64_t coordinates[LS_AXES];
    struct train_part part;
    struct ls_params params;
    struct ls_optim_config outer;
    struct ls_state *units;
    int unit_count;
    struct train_memory memory;
    struct ls_memory_plan plan;
};
/* After a failure there is nothing to release. */
int memory_measure(const struct ls_config *config, const struct ls_layout *layout, int64_t rank,
                   struct measured_memory *out, struct ls_error *error);
void memory_measure_release(struct measured_memory *measured);

/* Refuses more memory than this machine has (LS_ELAYOUT). Nothing is taken yet. *saves: as of
 * ls_memory_fit. */
int fit_check(const struct ls_config *config, const struct ls_layout *layout,
              const struct ls_comm *world, const struct ls_log *log, int64_t *saves,
              struct ls_error *error);
/* Local. LS_ENOSPC if this machine has no room for the snapshots of its ranks. holds: one is
 * there already. */
int fit_snapshots(const struct ls_config *config, const struct ls_layout *layout,
                  const struct ls_comm *world, bool holds, struct ls_error *error);

/* Whether what is done after every so many steps (0: never) follows that one. */
static inline bool train_due(int64_t step, int64_t every)
{
    return every > 0 && step % every == 0;
}

struct ls_trainer {
    struct ls_config config;
    struct ls_comm *whole; /* all ranks, borrowed */
    struct ls_comm *world; /* those of this rank's group of parallel.workers: often all */
    struct ls_comm *groups[LS_GROUPS];
    const struct ls_log *log;
    struct ls_layout layout;
    int64_t coordinates[LS_AXES]; /* of this rank */
    struct train_part part;
    struct train_memory memory;
    struct ls_memory_plan plan;
    struct ls_numerics numerics;
    struct ls_ops ops;
    struct ls_params params; /* of this rank's part */
    struct ls_state *units;  /* [unit_count]: one, or those of workers and behind
                              * them the outer one (src/train/workers.h) */
    int unit_count;
    struct ls_state *state;                 /* of these the one that is trained, or read */
    struct ls_optim_config outer;           /* of the outer one; of a server's workers */
    struct workers *workers;                /* NULL: there are none */
    struct ls_loss_scale_config loss_scale; /* how the state's changes */
    double gradient_scale;                  /* that of the last gradient */
    struct ls_tp tp;
    struct ls_cp cp;
    struct ls_training_data data;
    struct ls_token_store *valid_store;
    struct ls_tokenizer *tokenizer; /* NULL if none is known */
    struct ls_loader *loader;
    struct ls_token_segment *segments; /* of a sequence: the tokens of this rank */
    int segment_count;
    float *losses;              /* [2, sequences of the batch]: this rank's first, then all */
    int32_t *idle_starts;       /* of the documents of an idle step, if samples are packed */
    int sources;                /* that are trained on */
    double *source_weights;     /* [sources]: sums of the weights of a batch's targets */
    float *loss_sums;           /* [1 + sources]: of a batch, and of each source's part of it */
    struct ls_sample_run *runs; /* [micro-batches of a step]: what is asked of the loader */
    struct given *given;        /* a batch that the caller gave; NULL: none did */
    struct ls_runner *runner;   /* evaluations and samples */
    struct ls_rollout *rollout; /* in the layout of group rollout; NULL: none was asked for yet */
    struct ls_trace *trace;
    struct tensor_digests *digests; /* NULL: not asked for */
    struct ls_queue_watch watch;    /* of ops, where a recording or log.profile wants it */
    struct ls_check check;          /* of ops, with memory.check */
    struct work_times times;        /* of the step under way, with log.profile */
    double peak_flops;              /* of all ranks of this machine, 0 if not measured */
    char peak_of[256];              /* what was measured; "" if it was given */
    bool records_works;             /* to a recording: transfers too */
    bool rehearses;                 /* idle ops on real memory */
    struct ls_arena *kept;          /* where the memory goes in the end; NULL: it is released */
    struct step_waiting *waiting;   /* between a backward and its update; else NULL */
    bool blank;                     /* parameters have no values yet */
    bool failed;                    /* a step did: transfers may be under way that never end */
    bool posted;                    /* the next step's samples are on their way */
    int64_t ahead;                  /* samples before this were asked for ahead of that */
    int64_t saves;                  /* bytes of the copy on this machine of a checkpoint that is
                                     * written beside steps; 0 on all ranks: they wait for it */
    int64_t held_step;              /* the last that was replayed; 0: none was */
    struct ls_digest held;          /* of what this rank held after it */
    int64_t changes; /* how often a caller wrote parameters or states (ls_trainer_publish) */
};

/* Units of state that a rank holds: one, or one for each worker that it computes and the outer one;
 * and what all of them borrow alike. outer: of that one, filled here. */
int units_count(const struct ls_config *config);
void units_init(struct ls_state *units, int count, const struct ls_state *borrowed,
                const struct ls_config *config, struct ls_optim_config *outer);

/* ls_trainer_new in a layout that the keys do not say; NULL: in theirs. blank: parameters get no
 * first values, which take longer than a load: the caller gives all of them, or calls
 * ls_trainer_resume, which gives them where there is nothing to go on from. Workers get them. */
int trainer_new(const struct ls_config *config, const struct ls_layout *layout, bool blank,
                struct ls_comm *world, const struct ls_log *log, struct ls_trainer **out,
                struct ls_error *error);

/* ls_trainer_save; hash as of ls_state_save, or NULL. */
int trainer_save(struct ls_trainer *t, const struct ls_digest *hash, struct ls_error *error);
/* Local. The path of a checkpoint elsewhere that the run went on from, until it has saved one of
 * its own; NULL: the newest is in train.out, or there is none. */
const char *trainer_newest_elsewhere(const struct ls_trainer *t);

/* Local. A trainer that goes through the motions of its world's rank, over a transport that moves
 * nothing: idle ops, memory that is not there, no data, no values. From its first ls_zero_publish
 * on, what it does is recorded. With recording NULL world is a real one and memory is there,
 * zeroed, for collectives to move. *out is to be freed, also after a failure. */
int trainer_idle(const struct ls_config *config, const struct ls_layout *layout,
                 struct ls_comm *world, struct ls_recording *recording, struct ls_trainer **out,
                 struct ls_error *error);

/* Sleeps a while after a timeout: ranks that wait in other groups come to their own, and say who is
 * late there, before this one unwinds under them. */
void train_late_grace(double timeout_s);

/* Collective. LS_ECONFIG, on all ranks, names the first key of the recipe, or by which ranks decide
 * what they exchange and when, or the numerics.version, that one rank has otherwise than rank 0. To
 * be called before anything that goes by them. */
int recipe_agree(const struct ls_config *config, struct ls_comm *world, struct ls_error *error);
/* Collective. LS_EDATA, on all ranks, names the first file that one rank's list has otherwise than
 * rank 0's: by its name within its folder, its tokens, and those of them that count. valid may be
 * NULL. */
int data_agree(const struct ls_training_data *data, const struct ls_token_store *valid,
               struct ls_comm *world, struct ls_error *error);

#endif
