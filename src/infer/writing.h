/* Private to infer: texts under work. */
#ifndef INFER_WRITING_H
#define INFER_WRITING_H

#include "infer/infer_private.h"

/* A text that is being continued, in its place of the decoder. */
struct written {
    int64_t prompt;                        /* its number; -1: the place is free */
    int64_t sample;                        /* of the prompt */
    const struct ls_text_request *request; /* NULL: the place holds nothing of one */
    int32_t *ids;                          /* [count]: the prompt's, and what was drawn */
    float *logprobs;                       /* [count] */
    int64_t count, room, logprob_room;
    int64_t most;      /* tokens that it may come to */
    int64_t base, fed; /* the decoder holds tokens [base, base + fed); 0: it waits to begin */
    struct ls_detokenizer detokenizer;
    struct ls_text text; /* of what was drawn */
    size_t told;         /* of it, to the caller */
    enum ls_finish finish;
};

/* Texts that go to other ranks at the end. */
struct text_box {
    char *at; /* [used] */
    size_t used, room;
};

struct writing {
    struct ls_runner *r;
    const struct ls_generation *g;
    struct ls_generation_report *report;
    bool first; /* rank 0, which hears of texts */
    int64_t vocabulary;
    int64_t samples;       /* of each prompt */
    struct written *texts; /* [places] */
    int64_t places, active;
    int64_t *by_age;      /* [active]: places, by the number of their texts */
    int64_t *counts;      /* [places]: tokens of a step */
    int64_t next, all;    /* text: samples of a prompt follow each other */
    int64_t copy, copies; /* of the model, which have their own texts */
    bool tells;           /* this rank speaks for its copy */
    struct text_box box;
    struct ls_decoder_run *runs; /* of a step */
    int run_count;
    int32_t *ids, *targets; /* [rows] */
    int64_t row_count;
    uint64_t *found; /* [places + rows] */
    int32_t *drawn;  /* [places] */
    float *losses;   /* [places] */
    int32_t *order;  /* [vocabulary]: scratch of draws */
};
/* Local; vocabulary is set. Release it in each case. */
int writing_open(struct writing *w, const struct ls_decoder_size *size, struct ls_error *error);
void writing_release(struct writing *w);
/* Local. A text begins in its place, of which the decoder knows nothing yet. */
int writing_begin(struct writing *w, struct written *t, int64_t number, struct ls_error *error);
/* Local. The number of the first text from `number` on that is worked on here; w->all: none is. */
int64_t writing_next(const struct writing *w, int64_t number);
/* Local. Which copy of the model this rank is of. */
void writing_copies_init(struct writing *w);
/* Collective over the world where copies work together, or may be interrupted. Whether a round
 * follows. */
int writing_goes_on(const struct writing *w, int status, bool *any, struct ls_error *error);
/* Local. A text is kept until the end. */
int writing_keep(struct writing *w, const struct written *t, const struct ls_generated *text,
                 struct ls_error *error);
/* Collective over the world. What was kept comes to those who hear of it; the report is of all. */
int writing_gather(struct writing *w, struct ls_error *error);
/* Local. Free places get their texts; runs, ids and targets of a step are made; a text ended. */
int writing_fill(struct writing *w, struct ls_error *error);
void writing_plan(struct writing *w);
void writing_leave(struct writing *w, struct written *t);
/* Collective over those who work on the texts; the decoder is there. */
int writing_run(struct writing *w, struct ls_error *error);

#endif
