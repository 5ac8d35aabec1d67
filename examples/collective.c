/* An all-reduce among 8 rank threads of one process: no launcher, no network.
 *
 *   make examples && build/examples/collective
 *
 * The sum is taken by the binary tree over rank index, so every rank holds the same bits, and they
 * are the bits that 8 MPI processes would hold. */
#include <lockstep/comm.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 8, COUNT = 100000 };

/* Values whose float32 sum depends on the order of additions. */
static float value(int rank, int64_t i)
{
    return (float)(i % 1000 + 1) * (rank % 2 ? -1e-3f : 1e3f) / (float)(rank + 1);
}

/* Every rank runs this in its own thread, with its own communicator. */
static int rank_main(struct ls_comm *comm, void *user, struct ls_error *error)
{
    (void)user;
    int rank = ls_comm_rank(comm);
    float *buffer = malloc(COUNT * sizeof *buffer);
    if (!buffer)
        return ls_error_set(error, LS_ENOMEM, "no memory for %d floats", COUNT);
    for (int64_t i = 0; i < COUNT; i++)
        buffer[i] = value(rank, i);

    /* Start the sum, compute something else meanwhile, then wait. ls_all_reduce does both at once.
     */
    struct ls_request request;
    int status = ls_all_reduce_start(comm, buffer, COUNT, &request, LS_HERE, error);
    double meanwhile = 0;
    for (int i = 1; i < 1000000; i++)
        meanwhile += 1.0 / i;
    if (status == LS_OK)
        status = ls_wait(&request, error);

    /* What the sum must be: the tree over the eight values, computed here once more. */
    for (int64_t i = 0; status == LS_OK && i < COUNT; i++) {
        float leaves[RANKS];
        for (int r = 0; r < RANKS; r++)
            leaves[r] = value(r, i);
        float expected = ls_tree_sum(leaves, RANKS);
        if (memcmp(&expected, &buffer[i], sizeof expected) != 0)
            status = ls_error_set(error, LS_ENUMERIC, "element %lld is %a, expected %a",
                                  (long long)i, (double)buffer[i], (double)expected);
    }
    if (status == LS_OK && rank == 0)
        printf("%d ranks, %d elements: every bit as expected (and %.3f computed meanwhile)\n",
               RANKS, COUNT, meanwhile);
    free(buffer);
    return status;
}

int main(void)
{
    struct ls_error error = {0};
    int status = ls_world_run(RANKS, rank_main, NULL, &error);
    if (status != LS_OK)
        fprintf(stderr, "%s\n", error.text);
    return ls_exit_code(status);
}
