/* lockstep/planner/measure.h - how fast this machine is: ops, collectives, copies, the disk.
 *
 * Commands that were recorded (lockstep/device/queue.h) are submitted again by a replay, on memory
 * of its own:
 *
 *   ls_replay_new(&options, &commands, &replay, error)
 *   ls_replay_run(replay, i, &seconds, error)       commands in the order of the step
 *   ls_replay_free(replay)
 *
 * How long an op takes depends on where its operands are. In a step most of them come from memory:
 * weights, saved activations, gradients and states were last touched a step ago. What the op before
 * wrote is still in a cache. A replay does the same, because its operands lie to each other as
 * those of the recorded step.
 *
 * Measurements run on all cores: cores / threads teams at once, each of which does the same, as
 * ranks of one machine do. They fill the lists of a struct ls_cluster. */
#ifndef LOCKSTEP_PLANNER_MEASURE_H
#define LOCKSTEP_PLANNER_MEASURE_H

#include <lockstep/config.h>
#include <lockstep/plan/recording.h>
#include <lockstep/planner/cluster.h>

LS_C_BEGIN

/* ---- replays: Local -------------------------------------------------------------------------- */

struct ls_replay_options {
    int threads;
    enum ls_isa isa;
    enum ls_arithmetic arithmetic;
    enum ls_dtype act; /* values are such as this type has them */
    struct ls_recorded_memory memories[LS_RECORDED_MEMORIES]; /* of the operands */
};
struct ls_replay;
/* commands is borrowed for the call. LS_ENOMEM; LS_ENOTSUP for an instruction set that is not
 * here. */
int ls_replay_new(const struct ls_replay_options *options, const struct ls_command_list *commands,
                  struct ls_replay **out, struct ls_error *error);
/* Runs command i; *seconds is what it took. */
int ls_replay_run(struct ls_replay *replay, int64_t i, double *seconds, struct ls_error *error);
void ls_replay_free(struct ls_replay *replay);

/* ---- measuring: Local, on all cores of this process ------------------------------------------ */

/* How thorough it is. */
struct ls_measure_effort {
    int cores;         /* that are kept busy; 0: all of this process */
    double works_s;    /* seconds for the works of one list, about */
    double once_s;     /* works of a grid that take longer are run once */
    double moves_s;    /* and for messages between hosts */
    int64_t bytes_max; /* of a move */
    int ranks_max;     /* of a move over threads */
    bool coarse;       /* a grid of few shapes */
    int64_t elements;  /* the most of a pass of a grid; 0: as many as lie beyond every cache */
};
struct ls_measure_effort ls_measure_effort_full(void);
struct ls_measure_effort ls_measure_effort_quick(void);

struct ls_measure {
    struct ls_measure_effort effort;
    struct ls_cluster *cluster; /* what is measured is added to it */
};

/* Commands in the order of a step. What one computes is works[order[i]]; -1: it only prepares the
 * next one, and is not measured. */
struct ls_measure_list {
    struct ls_replay_options options;
    struct ls_command_list commands;
    int32_t *order;        /* [commands.count] */
    struct ls_work *works; /* [count], each once */
    int64_t count;
    bool alone; /* they do not follow each other: what takes long may be run once */
};
/* The second step of `rank`, as recorded, to be released. threads of the rank; isa and arithmetic
 * are those that the configuration has or, for auto, that are fastest here. */
int ls_measure_list_record(const struct ls_config *config, const struct ls_layout *layout,
                           int64_t rank, int threads, struct ls_measure_list *list,
                           struct ls_error *error);
void ls_measure_list_release(struct ls_measure_list *list);

/* seconds[count]: of each work of the list, the mean over where it stands in the step of the median
 * over several replays. */
int ls_measure_works(const struct ls_measure *measure, const struct ls_measure_list *list,
                     double *seconds, struct ls_error *error);
/* The same into the cluster's works, a row each. Works that differ in operations alone share one:
 * their mean, by how often they come. */
int ls_measure_list_add(const struct ls_measure *measure, const struct ls_measure_list *list,
                        struct ls_error *error);
/* Every kind of work over a grid of shapes that models have, of type act on so many threads: rows
 * of all bytes. */
int ls_measure_grid(const struct ls_measure *measure, enum ls_dtype act, int threads,
                    struct ls_error *error);

/* Peaks (ls_gemm_peak on all cores, of one core), bandwidth of memory, memory, cores, the rate of
 * copies to host memory and, with a folder, the disk's. */
int ls_measure_machine(const struct ls_measure *measure, const char *folder,
                       struct ls_error *error);

/* Names the link that joins a host's cores, with what messages of two ranks take, and sets the
 * shares of peak that products and attention reach, from the rows that are there. */
void ls_measure_finish(struct ls_cluster *cluster);

/* Each kind of collective over 2, 4, ... effort.ranks_max thread ranks. */
int ls_measure_moves(const struct ls_measure *measure, struct ls_error *error);
/* The same over the ranks of a communicator, 2, 4, ... all of them. Collective; rows go to the
 * cluster of its rank 0. */
int ls_measure_moves_of(const struct ls_measure *measure, struct ls_comm *world,
                        struct ls_error *error);

/* This machine for one recipe, in a few seconds: the above with ls_measure_effort_quick, and the
 * works of one rank, on one core and on all. Fills cluster, to be released also after an error. */
int ls_measure_here(const struct ls_config *config, struct ls_cluster *cluster,
                    struct ls_error *error);

/* What a host of a job was found to be; figures of one core while all work. */
struct ls_measured_host {
    char name[64];
    int64_t cores, processes;
    double flops[2]; /* a second: fp32, bf16 */
    double bytes_per_s;
    double slower; /* what its works take, to what they take on the hosts' median; 1 alone */
};
struct ls_measured_hosts {
    struct ls_measured_host *host; /* [count], in the order of ranks; NULL but on rank 0 */
    int count;
};
/* More than 10 % slower than the median: of an even number of hosts the faster one in the middle,
 * so that of two hosts one can be slow. */
bool ls_measured_host_slow(const struct ls_measured_host *host);
/* Collective over the world, after one rank of each host (the first there) has filled its cluster.
 * Adds collectives of the processes of each host, all hosts at once; then, if there are several
 * hosts, the medians over them and the link between them: messages of all processes to those of
 * another host, at once. The cluster of rank 0 is whole then. LS_ECONFIG if hosts have other
 * cores or other numbers of processes. hosts is to be released. */
int ls_measure_hosts(const struct ls_measure *measure, struct ls_comm *world,
                     struct ls_measured_hosts *hosts, struct ls_error *error);
/* The same without a job: this host alone. */
int ls_measure_host(const struct ls_measure *measure, struct ls_measured_hosts *hosts,
                    struct ls_error *error);
void ls_measured_hosts_release(struct ls_measured_hosts *hosts);

/* All of a tier's bytes once, piece by piece, through as many buffers as are under way at a time:
 * to the tier, or back. Errors are those of transfers. */
enum { LS_MEASURE_BUFFERS_MAX = 4 };
struct ls_measure_pass {
    unsigned char *memory; /* [buffers, piece] */
    int buffers;
    int64_t piece, bytes; /* bytes: whole pieces */
    bool writes;
};
int ls_measure_tier_pass(struct ls_tier *tier, const struct ls_measure_pass *pass,
                         struct ls_error *error);
/* Adds rows, keeping lists sorted; a row that is there is replaced. LS_ENOMEM. */
int ls_measure_add_work(struct ls_cluster *cluster, const struct ls_measured_work *row,
                        struct ls_error *error);
int ls_measure_add_move(struct ls_cluster *cluster, const struct ls_measured_move *row,
                        struct ls_error *error);

/* ---- the sum of works beside a real step ----------------------------------------------------- */

struct ls_measure_check {
    double step_s;                /* of the real step, without waits for data; a median */
    double replay_s;              /* of the works replayed in turns with these steps */
    double ratio;                 /* the median of replay over step, turn by turn */
    double kind_s[LS_WORK_KINDS]; /* of the replay, by kind */
    int64_t kind_count[LS_WORK_KINDS];
    double file_s[LS_WORK_KINDS]; /* by the rows of the cluster */
    double file_total_s;          /* 0: no cluster was given */
    int64_t missing;              /* works that it interpolates */
};
/* One rank (the layout keys are reset) on so many threads, on all cores at once: `turns` steps in
 * turns with replays of them. config has data. cluster may be NULL. */
int ls_measure_check(const struct ls_measure *measure, const struct ls_config *config, int threads,
                     int turns, struct ls_measure_check *check, struct ls_error *error);

LS_C_END
#endif
