/* lockstep/parallel/param.h - what describes a parameter, once.
 *
 * struct ls_param says what a parameter is called, which part of it a rank holds, where that lies
 * in its unit and its gradient in a region, what is done to it, and over which ranks it is cut
 * (spec). ls_params_init (lockstep/nn.h) makes the list for a model, ls_layout_params
 * (lockstep/plan.h) one with specs. From then on it is locked: the list is const, and nobody can
 * change it. ZeRO, optimizers, hash, checkpoints and exports read it, and keep no copy: they point
 * at it, or have its index in the list. */
#ifndef LOCKSTEP_PARALLEL_PARAM_H
#define LOCKSTEP_PARALLEL_PARAM_H

#include <lockstep/base.h>
#include <lockstep/dtensor.h>
#include <lockstep/ops.h>

LS_C_BEGIN

enum { LS_PARAM_NAME_MAX = 63 };
enum ls_init { LS_INIT_ZERO, LS_INIT_ONE, LS_INIT_NORMAL };

/* Where a gradient is written: element (0, 0) at offset of a region. */
struct ls_gradient_place {
    int region; /* index in params.regions, or one of these */
    int64_t offset;
};
enum {
    LS_REGION_NONE = -1,
    LS_REGION_OUTSIDE = -2 /* other ranks compute it: there is room for this rank's part, which the
                            * caller fills before it is read */
};

/* One parameter as this rank holds it when it is whole over data parallel: [rows, cols] are rows
 * [first_row, first_row + rows) and columns [first_col, first_col + cols) of the model's. */
struct ls_param {
    char name[LS_PARAM_NAME_MAX + 1]; /* "h.0.attn.q.weight" */
    int64_t rows, cols;               /* a vector has rows == 1 */
    int64_t global_rows, global_cols;
    int64_t first_row, first_col;
    bool owned;     /* where several ranks hold the same part, the one that answers for it: in
                     * norms, hashes and checkpoints */
    int unit;       /* index in params.units */
    int64_t offset; /* of element (0, 0) in its unit */
    struct ls_gradient_place gradient; /* LS_REGION_NONE: it takes none */
    /* Of a tied table: where the embedding layer's gradient of it goes, if both layers are held
     * here; LS_REGION_OUTSIDE on the first and the last stage, if one of them is. Its readers add
     * the two. LS_REGION_NONE for all others. */
    struct ls_gradient_place second;
    bool frozen; /* not trained: it has no gradient and no optimizer states. One that is read in one
                  * product with others that are trained has room for a gradient */
    bool adapts; /* of an adapter */
    /* Its adapters, by index; 0: none. One A may serve several matrices. */
    int lora_a, lora_b;
    bool matrix; /* read in the compute type; vectors (norms, biases) are read in float32 */
    bool hidden; /* a matrix of a block: neither a table nor a vector */
    bool decay;  /* weight decay: matrices, not norms and biases */
    enum ls_init init;
    float init_std;
    /* Of a hidden matrix: the tiles that a contraction over its columns, as far as held here, is
     * summed in (S2; 1 if tp does not cut it), and where its scales [rows, tiles] are among its
     * unit's, which int8 has. */
    int64_t tiles, first_scale;
    /* Of a frozen matrix that is kept in few bits: in what, and the elements of the compute type
     * that a row of blocks takes. Its offset and its unit's sizes count such elements; all else
     * counts values. */
    enum ls_blocks blocks;
    int64_t row_room;
    int64_t live_rows; /* rows of the whole model's parameter that are trained: padding of the
                        * vocabulary is not, and stays zero */
    /* Who holds which rows and columns of it. The axis "shard" cuts rows (of a vector, elements),
     * if ZeRO cuts it. */
    struct ls_dtensor_spec spec;
};
/* Of the part held here. */
static inline int64_t ls_param_elements(const struct ls_param *param)
{
    return param->rows * param->cols;
}

/* The elements of the compute type that so many values take, whole rows if they are in blocks. */
static inline int64_t ls_param_room(const struct ls_param *param, int64_t values)
{
    return param->blocks ? values / param->cols * param->row_room : values;
}

/* Parameters that share their groups are a set: the same ranks add their gradients, and have parts
 * of them. Sets are numbered from 0; what they are is the layout's to say (lockstep/plan.h). */
enum { LS_SETS_MAX = 2 };

/* The parameters of one layer and set: a flat range of elements, matrices first, then vectors. What
 * ZeRO gathers and frees at once. */
struct ls_unit {
    int layer;
    int set;
    int64_t elements;        /* padding between parameters included */
    int64_t matrix_elements; /* [0, matrix_elements) are matrices; a multiple of 16 */
    int first_param, param_count;
    int64_t scales; /* of its hidden matrices in int8 */
};

/* Gradients come in regions: a region is written at one moment of the backward and is final after
 * it. Every unit's parameters form one region, but the head's matrix, whose gradient the head's
 * forward makes, is one of its own. */
struct ls_region {
    int64_t elements;
    int layer; /* whose backward or (head_region) forward writes it */
    int set;   /* of its parameters */
};

struct ls_params {
    const struct ls_param *list; /* unit by unit, in the order of offsets */
    int count;
    const struct ls_unit *units; /* of the layers held, ascending; one without parameters: none */
    int unit_count;
    const struct ls_region *regions; /* in the order of layers */
    int region_count;
    int64_t elements; /* of all units */
    int64_t weights;  /* values of the part held here, */
    int64_t trained;  /* and those of them that are trained */
    int tied_param;   /* the table that is also the head, where both layers are held: -1 if not */
    int shared_param; /* the tied table where only one of its two layers is held: -1 if not. The
                       * first and the last stage add their gradients of it and update it alike */
    int head_region;  /* of the head's matrix, -1 if it is not held, or frozen */
};

LS_C_END
#endif
