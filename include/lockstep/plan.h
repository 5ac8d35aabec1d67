/* lockstep/plan.h - the layout: how a recipe is cut over ranks, decided before anything is taken.
 *
 * Order of calls:
 *
 *   struct ls_layout layout;
 *   ls_layout_resolve(&request, &layout, &error)   what fits together, or why not
 *   ls_layout_coordinates, ls_layout_layers, ...   who is where
 *   ls_layout_share, ls_layout_table               who computes which leaves, and when
 *
 * (ls_config_layout in lockstep/config.h makes the request from a configuration.)
 *
 * The axes, outermost first: pp (pipeline stages), dp_replicate (copies of the state), dp_shard
 * (ranks that ZeRO shares the state among), cp (parts of a sequence), tp (parts of a layer).
 * Neighbours on tp are neighbouring ranks.
 *
 * Whatever a layout is, the result has the bits of one rank: what the recipe's tiles and leaves do
 * not admit is refused. Everything here is Local, and the same on every rank. */
#ifndef LOCKSTEP_PLAN_H
#define LOCKSTEP_PLAN_H

#include <lockstep/base.h>
#include <lockstep/base/words.h>
#include <lockstep/data.h>
#include <lockstep/mesh.h>
#include <lockstep/nn.h>
#include <lockstep/parallel.h>
#include <lockstep/parallel/param.h>
#include <lockstep/parallel/schedule.h>

LS_C_BEGIN

enum { LS_LAYOUT_TEXT_BYTES = 512, LS_LAYOUT_LAYERS_MAX = 4096 };

enum ls_layout_axis { LS_AXIS_PP, LS_AXIS_DP_REPLICATE, LS_AXIS_DP_SHARD, LS_AXIS_CP, LS_AXIS_TP };
enum { LS_AXES = 5, LS_AXIS_SHARERS = LS_AXES };
/* "pp", "dp_replicate", "dp_shard", "cp", "tp" */
const char *ls_axis_name(enum ls_layout_axis axis);

enum {
    LS_LAYOUT_AUTO = -1,
    LS_LAYOUT_CSV = LS_SCHEDULE_KINDS, /* a schedule from a file */
};

/* What a user says of the layout: group `parallel` of the configuration. */
struct ls_layout_keys {
    int64_t workers; /* groups of ranks, each with this layout, that train replicas */
    int64_t servers; /* groups of ranks, 0 or 1, that hold what the others update */
    int64_t pp, cp, tp;
    int64_t dp;                     /* all data-parallel ranks; 0: dp_replicate x dp_shard */
    int64_t dp_replicate, dp_shard; /* 0: what dp says: as dp_replicate with zero 0, as dp_shard
                                     * with zero 1 to 3, and 1 for the other */
    int sp; /* 0, 1, or LS_LAYOUT_AUTO: where tp > 1 and the token sums admit it */
    int64_t zero;
    int schedule; /* enum ls_schedule_kind or LS_LAYOUT_CSV */
    char schedule_file[LS_LAYOUT_TEXT_BYTES];
    int64_t chunks;                   /* virtual stages of a rank; 0: 2 where the schedule wants
                                       * several, or 1 */
    char split[LS_LAYOUT_TEXT_BYTES]; /* "0-5,6-11": layers of each stage; "": balanced by cost */
    int cp_method;                    /* enum ls_cp_method */
    int64_t prefetch;                 /* units gathered ahead (zero 3) */
    int64_t persist;                  /* tensors of up to this many elements stay whole (zero 3) */
    bool reshard_after_forward;       /* zero 3 */
    int64_t tp_overlap;               /* parts a row-parallel product is cut into */
    int64_t threads;                  /* of each rank; 0: cores / ranks on this machine */
    char recompute[LS_LAYOUT_TEXT_BYTES]; /* "full@0;selective@1-3" */
    bool partition_activations;           /* inputs that recomputed layers keep are cut over tp */
};

struct ls_layout_request {
    const struct ls_model_config *model;
    struct ls_numerics numerics;
    const struct ls_layout_keys *keys;
    int64_t world;           /* ranks that were started; 0: as many as the keys ask for */
    int64_t sequence;        /* T, tokens of a sequence */
    struct ls_ramp ramp;     /* each of its batches has to be admissible */
    int64_t micro_sequences; /* of a micro-batch; 0: chosen */
    int64_t bucket_bytes;    /* of gradients that are reduced at once */
    enum ls_dtype reduce;    /* what scattered gradients travel in; LS_BF16: numerics.fast only */
    bool matrices_meet;      /* the optimizer reads whole matrices (Muon): see LS_GROUP_MATRICES */
    const struct ls_schedule *table; /* ls_layout_file of LS_LAYOUT_CSV, else NULL */
};

/* Who has the parameters of a set, and who adds their gradients (lockstep/parallel/zero.h). Axes
 * are bits, as ls_mesh_split takes them. Set 0 has shard = dp_shard x cp and replicate =
 * dp_replicate. */
struct ls_layout_set {
    unsigned shard;     /* ZeRO 1 to 3 cut rows over these. In the order of ranks they have
                         * consecutive leaves: the innermost axes of dp x cp */
    unsigned replicate; /* the other axes of dp x cp: ranks that have copies of the shards */
    /* Ranks of its groups LS_GROUP_SHARD and LS_GROUP_REPLICATE: with zero 0, all and one. */
    int64_t shard_ranks, replicate_ranks;
    /* The ranks that hold the same layers, those of one pp coordinate in their order: dp_replicate
     * (replicate), shard, and tp and sharers as in the layout's mesh. What parameters lie over. */
    struct ls_mesh mesh;
};

/* A layout that is admissible. A plain value; text and arrays included, so copy it freely. */
struct ls_layout {
    int64_t size[LS_AXES]; /* by enum ls_layout_axis */
    int64_t ranks;         /* their product */
    /* The ranks by these axes in their order, but tp in two: the ranks that hold the same key/value
     * head (ls_tp_sharers of them, neighbours) are axis LS_AXIS_SHARERS, and LS_AXIS_TP has
     * tp / sharers. */
    struct ls_mesh mesh;
    bool sp;
    int zero;
    int schedule; /* enum ls_schedule_kind or LS_LAYOUT_CSV */
    char schedule_file[LS_LAYOUT_TEXT_BYTES];
    int64_t chunks, stages; /* stages = pp chunks */
    enum ls_cp_method cp_method;
    int64_t prefetch, persist, tp_overlap;
    int64_t bucket_bytes;
    enum ls_dtype reduce;
    bool matrices_meet;
    bool reshard_after_forward;

    struct ls_model_config model;
    struct ls_numerics numerics;
    int64_t sequence;        /* T */
    struct ls_ramp ramp;     /* leaves of each step's batch */
    int64_t micro_sequences; /* whole leaves, or a part of one */
    int64_t micro_batches;   /* of a step on each rank, at the full batch */

    /* Sets of parameters; today's models have one, of all. */
    struct ls_layout_set sets[LS_SETS_MAX];
    int set_count;
    unsigned char layer_set[LS_LAYOUT_LAYERS_MAX + 2]; /* by layer */

    /* Layers of stage s: [stage_first[s], stage_first[s + 1]) of 0 (embedding) to layers + 1
     * (head). */
    int stage_first[LS_LAYOUT_LAYERS_MAX + 3];
    int stage_rank[LS_LAYOUT_LAYERS_MAX + 2]; /* the pipeline rank that holds stage s */
    int rank_stage[LS_LAYOUT_LAYERS_MAX + 2]; /* stage of (rank, chunk) at rank * chunks + chunk */

    unsigned char recompute[LS_LAYOUT_LAYERS_MAX + 2]; /* enum ls_recompute of each layer */
    bool partition_activations;

    char note[400]; /* what was chosen other than one may expect; "" for nothing */
};

/* Rows of a micro-batch on a rank that batch.micro = 0 aims at, enough to fill the products'
 * blocks; and tokens of a leaf by default at most, so that it is computed in one micro-batch. */
enum { LS_MICRO_ROWS = 4096 };

/* The sizes of the axes that keys ask for. LS_ELAYOUT if dp contradicts the other two. */
int ls_layout_axes(const struct ls_layout_keys *keys, int64_t size[LS_AXES],
                   struct ls_error *error);
/* The table of keys->schedule_file, read and proved; release it with ls_schedule_release. LS_EDATA,
 * LS_EIO, and LS_ELAYOUT in its own words. */
int ls_layout_file(const struct ls_layout_keys *keys, struct ls_schedule *table,
                   struct ls_error *error);
/* LS_ELAYOUT if recipe and layout do not fit: the text begins with the key, "parallel.tp = 3: ",
 * and says why. Refused are: a world that is no product of the axes; dp that contradicts
 * dp_replicate x dp_shard; tp that does not divide tp_tiles (in mode fast: heads, ffn, padded
 * vocabulary), and where it exceeds kv_heads a heads / tp that is no power of two; sp where a
 * rank's rows are no subtree of the token sums; cp that is not seq_tiles over a power of two; more
 * stages than layers; chunks or micro-batches that the schedule does not take; a split that is no
 * partition; a memory.recompute that is no policy, or names a block or a stage that is not there; a
 * batch whose leaves dp does not divide; zero 3 with a threshold that shards nothing. */
int ls_layout_resolve(const struct ls_layout_request *request, struct ls_layout *layout,
                      struct ls_error *error);

/* ---- who is where --------------------------------------------------------------------------- */

/* The five coordinates of a rank, and back. */
void ls_layout_coordinates(const struct ls_layout *layout, int64_t rank,
                           int64_t coordinates[LS_AXES]);
int64_t ls_layout_rank(const struct ls_layout *layout, const int64_t coordinates[LS_AXES]);
/* The rank of that pipeline rank whose other coordinates are 0. */
static inline int64_t ls_layout_first_rank(const struct ls_layout *layout, int64_t pp_rank)
{
    return pp_rank * (layout->ranks / layout->size[LS_AXIS_PP]);
}
/* Local. Makes layout->sets[set] of its axes; set is below set_count. */
void ls_layout_set_init(struct ls_layout *layout, int set, unsigned shard, unsigned replicate);
/* The parameters of those layers (NULL: all) as that tp rank holds them, each with its spec over
 * its set's mesh, in float32: a vector has one dim, a matrix two. Copies are Replicate on
 * dp_replicate. On shard they are Replicate with zero 0; ZeRO 1 to 3 cut rows, Shard(0), or
 * StridedShard(0, n) where tp cuts dim 0 in n parts, of which ZeRO cuts each. On tp and sharers:
 * Shard(0) for rows by heads, ffn or vocabulary, and their biases; Shard(1) for the matrices that
 * come after those (attn.proj, mlp.down); Replicate for the others, and for key/value heads on
 * sharers. A tied table lies so over the first and over the last stage. Errors as of
 * ls_params_init. */
int ls_layout_params(const struct ls_layout *layout, int64_t tp_rank, const bool *layers,
                     struct ls_params *params, struct ls_error *error);
/* held[layers + 2]: the layers of that pipeline rank; first_of_chunk (may be NULL): those whose
 * input comes from another stage. */
void ls_layout_layers(const struct ls_layout *layout, int64_t pp_rank, bool *held,
                      bool *first_of_chunk);

/* The tokens of a sequence that a context-parallel rank holds, in the order of its rows; *segments
 * is to be freed. LS_ENOMEM. */
int ls_layout_segments(const struct ls_layout *layout, int64_t cp_rank,
                       struct ls_token_segment **segments, int *count, struct ls_error *error);

/* The virtual stage that computes layer. */
static inline int ls_layout_stage(const struct ls_layout *layout, int layer)
{
    int stage = 0;
    while (layout->stage_first[stage + 1] <= layer)
        stage++;
    return stage;
}

/* The pipeline rank that holds the head. */
static inline int ls_layout_head_rank(const struct ls_layout *layout)
{
    return layout->stage_rank[layout->stages - 1];
}

/* ---- who computes what ---------------------------------------------------------------------- */

/* The leaves of one rank in a step of that many (the full batch, or one of the ramp-up);
 * ls_dp_micro_batch gives those of a micro-batch. */
void ls_layout_share(const struct ls_layout *layout, int64_t leaves,
                     const int64_t coordinates[LS_AXES], struct ls_dp_share *share);
/* How each rank walks through a full step: "4 micro-batches of 2 sequences", or "3 micro-batches of
 * up to 4 sequences" where the last one is smaller. */
struct ls_batches_text {
    char text[144];
};
struct ls_batches_text ls_layout_batches(const struct ls_layout *layout);
/* The pipeline's table for a step of that many micro-batches, validated; release it with
 * ls_schedule_release. With one pipeline rank and one chunk: F0 B0 F1 B1 ... LS_ELAYOUT, LS_ENOMEM;
 * of a file, LS_EDATA and LS_EIO too. */
int ls_layout_table(const struct ls_layout *layout, int64_t micro_batches,
                    struct ls_schedule *schedule, struct ls_error *error);

/* What a forward and each half of a backward cost in stage s, costs[layout->stages]: a third of the
 * work of its layers each (ls_layer_flops_per_token), where 1 is the costliest stage's. What
 * figures and drawings of its schedule are of. */
void ls_layout_stage_costs(const struct ls_layout *layout, struct ls_stage_cost *costs);
/* The schedule of a full step as SVG, with these costs; width as in struct ls_schedule_picture.
 * Errors as of ls_layout_table. */
int ls_layout_draw_schedule(const struct ls_layout *layout, int width, FILE *file,
                            struct ls_error *error);

LS_C_END
#endif
