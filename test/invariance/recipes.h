/* The recipes that layouts are compared on, and layouts drawn for them. */
#ifndef INVARIANCE_RECIPES_H
#define INVARIANCE_RECIPES_H

#include <lockstep/train.h>

enum { RECIPES = 4, RECIPE_STEPS_MAX = 64 };
extern const char *const recipe_names[RECIPES];

/* A run of a recipe: which layout, and where its files are. */
struct recipe_run {
    int recipe;
    int64_t steps;
    const char *folder;                /* holds tokens.bin */
    const struct ls_layout_keys *keys; /* NULL: one rank */
    int64_t micro_sequences;
    int threads;
    const char *out; /* of checkpoints, below folder; NULL: none */
    bool resume;
};
/* Ends the program where the recipe itself is wrong. */
void recipe_config(const struct recipe_run *run, struct ls_config *config);
void recipe_tokens_write(const char *folder);

/* Layout number `index`: a pair of axes, a schedule or a stage of ZeRO is asked for in turn, so
 * that INDEX_COVER layouts cover them all; the rest is drawn. */
enum { INDEX_COVER = 60 };
struct drawn {
    struct ls_layout_keys keys;
    int64_t micro_sequences;
    struct ls_layout layout;
    int threads;
    bool mpi;
};
/* False where the recipe admits no layout with what was asked for. */
bool layout_draw(const struct ls_config *recipe, uint64_t seed, uint64_t index, bool mpi,
                 struct drawn *drawn);
void layout_text(const struct drawn *drawn, char *text, size_t bytes);

/* What a set of layouts has in it: axes and pairs of axes with more than one rank, schedules,
 * stages of ZeRO. */
enum { COVER_AXES = 7 }; /* the mesh's five, sp, zero */
struct coverage {
    int pair[COVER_AXES][COVER_AXES];
    int schedule[LS_LAYOUT_CSV], zero[4], ring, threads, mpi, count;
};
void coverage_add(struct coverage *coverage, const struct drawn *drawn);
/* Prints it; the number of things that are missing. */
int coverage_print(const struct coverage *coverage, bool mpi);

#endif
