/* Every layout of 2 to 4 MPI processes that small recipes admit, by its axes, ZeRO's stage, sp and
 * the method of cp, repeats the losses and the state's hash of one rank, bit for bit.
 *
 *   test_layouts_mpi         one in four of the first recipe's, one in twelve of the others', with
 *                            CHECK=all all
 *
 * Transports move bytes in different ways and add what came in different memory, so what rank
 * threads do (test_exhaustive.c) says little of processes. Under a launcher this program is one
 * rank; by itself it starts itself under mpirun. */
#include "../support/extent.h"
#include "../support/mpirun.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "recipes.h"
#include "twins.h"

#include <lockstep/compare.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 4, SMALL = 4, STEPS = 2 };

#define COMMON                                                                                     \
    "model.vocab=300", "model.vocab_multiple=16", "model.channels=32", "model.heads=4",            \
        "model.ffn=64", "model.layers=4", "numerics.tp_tiles=4", "optim.lr=1e-2",                  \
        "optim.clip=0.5", "train.steps=64"
#define SHORT COMMON, "model.context=16", "data.sequence=16"

/* Of one leaf for each rank at most, and of several. */
static const struct small {
    const char *name, *keys[20];
} smalls[SMALL] = {
    {"gpt2, 4 sequences", {SHORT, "model.arch=gpt2", "batch.global=4"}},
    {"gpt2, 12 sequences", {SHORT, "model.arch=gpt2", "batch.global=12"}},
    {"llama, 4 parts of a sequence, 2 sequences",
     {COMMON, "model.arch=llama", "model.kv_heads=2", "model.context=512", "data.sequence=512",
      "numerics.seq_tiles=4", "batch.global=2"}},
    {"llama with muon, 4 sequences",
     {SHORT, "model.arch=llama", "model.kv_heads=2", "optim.name=muon", "batch.global=4"}},
};

struct session {
    struct ls_comm *world, *first[RANKS + 1]; /* first[n]: ranks 0 to n - 1 of it */
    char folder[256];
    struct ls_config one; /* on one rank */
    struct ls_proof reference[STEPS];
    int64_t every, admitted, ran, refused, differ;
    bool twin; /* stops at the first that differs */
};

static const char *program;

static int small_config(struct session *s, int recipe, struct ls_error *error)
{
    char key[400];
    ls_config_defaults(&s->one);
    snprintf(key, sizeof key, "data.train=u16:%s/tokens.bin", s->folder);
    int status = ls_config_set(&s->one, key, error);
    snprintf(key, sizeof key, "train.out=%s/none", s->folder);
    status = status ? status : ls_config_set(&s->one, key, error);
    for (int i = 0; smalls[recipe].keys[i] && !status; i++)
        status = ls_config_set(&s->one, smalls[recipe].keys[i], error);
    if (!status)
        status = ls_train_resolve(&s->one, error);
    return status ? status : ls_proof_threads(&s->one, STEPS, s->reference, error);
}

/* Collective over all processes, of which the layout's first do the work. *step: the first that
 * differs. */
static int layout_prove(struct session *s, const struct ls_config *config, int64_t *step,
                        struct ls_error *error)
{
    struct ls_proof proof[STEPS];
    int ranks = (int)ls_config_ranks(config), status = LS_OK;
    *step = 0;
    if (ls_comm_rank(s->world) < ranks) {
        status = ls_proof_make(config, s->first[ranks], STEPS, proof, error);
        *step = status ? 0 : ls_proof_differs(s->reference, proof, STEPS);
    }
    status = ls_comm_agree(s->world, status, error);
    return status ? status : ls_all_reduce_max(s->world, step, error);
}

static int layout_visit(struct session *s, const struct ls_config *config, struct ls_error *error)
{
    struct ls_layout layout;
    char text[1024];
    int64_t step;
    if (s->twin && s->differ > 0)
        return LS_OK;
    if (ls_config_layout(config, 0, &layout, NULL)) {
        s->refused++;
        return LS_OK;
    }
    if (s->admitted++ % s->every)
        return LS_OK;
    s->ran++;
    ls_config_layout_text(config, &s->one, text, sizeof text);
    int status = layout_prove(s, config, &step, error);
    if (status)
        ls_error_prefix(error, "%s", text);
    if (status || !step)
        return status;
    s->differ++;
    if (ls_comm_rank(s->world) == 0)
        printf("%s%s: differs from one rank at step %ld\n", s->twin ? "broken twin: " : "", text,
               (long)step);
    return LS_OK;
}

/* The layouts of one product of axes. */
static int kinds_walk(struct session *s, struct ls_config *config, struct ls_error *error)
{
    struct ls_layout_keys *keys = &config->parallel;
    int stages = keys->dp_replicate * keys->dp_shard > 1 ? 3 : 0, status = LS_OK;
    for (int zero = 0; zero <= stages; zero++)
        for (int sp = 0; sp <= (keys->tp > 1); sp++)
            for (int ring = 0; ring <= (keys->cp > 1) && !status; ring++) {
                keys->zero = zero;
                keys->sp = keys->tp > 1 ? sp : LS_LAYOUT_AUTO;
                keys->cp_method = ring ? LS_CP_RING : LS_CP_ALL_GATHER;
                status = layout_visit(s, config, error);
            }
    return status;
}

static int layouts_walk(struct session *s, struct ls_error *error)
{
    struct ls_config config = s->one;
    struct ls_layout_keys *keys = &config.parallel;
    int status = LS_OK;
    for (keys->pp = 1; keys->pp <= RANKS; keys->pp++)
        for (keys->dp_replicate = 1; keys->dp_replicate <= RANKS; keys->dp_replicate++)
            for (keys->dp_shard = 1; keys->dp_shard <= RANKS; keys->dp_shard++)
                for (keys->cp = 1; keys->cp <= RANKS; keys->cp++)
                    for (keys->tp = 1; keys->tp <= RANKS; keys->tp++) {
                        int64_t ranks = ls_config_ranks(&config);
                        if (ranks > 1 && ranks <= RANKS && !status)
                            status = kinds_walk(s, &config, error);
                    }
    return status;
}

static int recipes_walk(struct session *s, struct ls_error *error)
{
    int status = LS_OK;
    for (int recipe = 0; recipe < SMALL && !status; recipe++) {
        s->every = check_all() ? 1 : recipe == 0 ? 4 : 12;
        int64_t admitted = s->admitted, ran = s->ran, refused = s->refused;
        status = small_config(s, recipe, error);
        status = status ? status : layouts_walk(s, error);
        if (!status && ls_comm_rank(s->world) == 0)
            printf("%s: %ld layouts refused, %ld admitted, %ld of them ran; %d steps each\n",
                   smalls[recipe].name, (long)(s->refused - refused),
                   (long)(s->admitted - admitted), (long)(s->ran - ran), STEPS);
    }
    return status;
}

/* A rank's leaf is counted twice: the first recipe shows it. */
static int twin_check(struct session *s, struct ls_error *error)
{
    struct session twin = *s;
    twin.twin = true;
    twin.every = 1;
    twin.differ = 0;
    int status = small_config(&twin, 0, error);
    twin_set(TWIN_COUNTED_TWICE);
    status = status ? status : layouts_walk(&twin, error);
    twin_set(-1);
    if (!status && twin.differ == 0)
        status = ls_error_set(error, LS_ENUMERIC, "the broken twin was not seen");
    return status;
}

static int rank_run(struct ls_comm *world, struct ls_error *error)
{
    struct session s = {.world = world};
    int status = LS_OK;
    snprintf(s.folder, sizeof s.folder, "%s", getenv(MPIRUN_MODE));
    for (int n = 2; n <= RANKS && !status; n++)
        status =
            ls_comm_split(world, ls_comm_rank(world) >= n, ls_comm_rank(world), &s.first[n], error);
    status = status ? status : recipes_walk(&s, error);
    status = status ? status : twin_check(&s, error);
    if (!status && s.differ > 0)
        status = ls_error_set(error, LS_ENUMERIC, "%ld of %ld layouts differ from one rank",
                              (long)s.differ, (long)s.ran);
    for (int n = 2; n <= RANKS; n++)
        ls_comm_free(s.first[n]);
    return status;
}

CASE_WITH(test_layouts_of_processes_have_one_ranks_bits, scratch_setup, scratch_teardown)
{
    static char output[1 << 16];
    mpirun_or_skip();
    recipe_tokens_write(*state);
    int status = mpirun(program, RANKS, *state, output, sizeof output);
    printf("%s", output);
    if (status)
        fail_msg("the job ended with %d", status);
    assert_non_null(strstr(output, "broken twin: "));
}

int main(int count, char **arguments)
{
    (void)count;
    program = arguments[0];
    setenv("OMP_WAIT_POLICY", "passive", 0);
    if (getenv(MPIRUN_MODE))
        return mpirun_rank(rank_run);
    return suite_run(NULL, NULL);
}
