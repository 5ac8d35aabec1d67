/* A tiny model cut over cp x tp thread ranks, its losses, input gradients and weight gradients
 * compared bit by bit, slice by slice, with those of one rank. */
#ifndef TEST_NN_CUT_H
#define TEST_NN_CUT_H

#include <lockstep/nn.h>

struct cut {
    /* The recipe. */
    enum ls_arch arch;
    enum ls_dtype act;
    int64_t kv_heads; /* of 8 heads */
    int64_t seq_tiles;
    int64_t tokens;    /* 0: 32, or 128 a tile where there are several */
    int64_t sequences; /* of the micro-batch */
    int64_t leaf_sequences;
    float dropout;
    bool tied;
    bool documents; /* packed in the sequences */
    bool fast;      /* then values are compared, to a tolerance */
    /* The layout. */
    int tp, cp;
    bool sequence; /* parallel */
    int chunks;
    enum ls_cp_method method;
    bool split;      /* the backward in halves, weights last */
    bool forward;    /* no backward, no gradients */
    bool accumulate; /* the same micro-batch again, added */
    bool counted;    /* the bytes that each rank sends are those of doc/parallel/ */
    bool own_norm;   /* the broken twin: the final norm's gradient is that of a rank's own rows */
};
/* Recipe i of a family, and a cut of it: by tensor and sequence parallel, by context parallel and
 * those. */
struct cut cut_tensor(enum ls_arch arch, int i);
struct cut cut_context(enum ls_arch arch, int i);
/* 0 where all ranks hold the one rank's bits; else where the first difference is, in text. */
int cut_run(const struct cut *cut, char *text, size_t bytes);
/* Fails the test where bits differ. */
void cut_check(struct cut cut);

#endif
