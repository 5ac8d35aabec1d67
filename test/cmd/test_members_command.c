/* `lockstep members`: what it shows of a run, requests that a run takes up, and those that it
 * refuses; and audits of a run whose workers left and came, in another layout. */
#include "../support/scratch.h"
#include "../support/suite.h"
#include "runs.h"

#include <lockstep/base.h>

#include <string.h>

#define WORKERS                                                                                    \
    "$L train $C model.layers=2 batch.global=2 log.hash_every=2 train.save_every=2 train.keep=9 "  \
    "numerics.tp_tiles=4 async.mode=diloco async.workers=4 async.sync_every=2 "

/* Steps 1 and 2 with three workers, 3 and 4 with all, 5 and 6 with two; in two layouts. */
static int run_setup(void **state)
{
    if (corpus_setup(state))
        return -1;
    expect("mkdir run && echo 0-2 > run/members.wanted && " WORKERS "train.steps=2 train.out=run",
           0, "from step 1 on workers 0-2 train");
    return 0;
}

CASE(test_requests_are_taken_up)
{
    expect("$L members run", 0, "from outer step 1: workers 0-2\n");
    expect("$L members run 1", 0, "run: asked for workers 1; they train once the workers have met");
    expect("$L members run all", 0, "asked for workers all"); /* in its place */
    expect(WORKERS
           "train.steps=2 train.extend=2 train.resume=auto parallel.workers=2 train.out=run",
           0, "from step 3 on workers 0-3 train");
    assert_false(exists("run/members.wanted"));
    expect("$L members run 3,1 && " WORKERS
           "train.steps=2 train.extend=4 train.resume=auto parallel.tp=2 "
           "parallel.workers=2 train.out=run",
           0, "from step 5 on workers 1,3 train");
    expect("$L members run", 0,
           "from outer step 1: workers 0-2\nfrom outer step 2: workers 0-3\n"
           "from outer step 3: workers 1,3\n");
}

CASE(test_what_is_refused)
{
    expect("$L members", 2, "expected a run's folder: lockstep members RUN");
    expect("$L members run 0 1", 2, "1 is one argument too many");
    expect("$L members nowhere", ls_exit_code(LS_EIO), "there is no folder nowhere");
    expect("$L members run 2-4", 2,
           "2-4: expected workers by their numbers, below 4, such as 0-2,5, or all");
    expect("$L members run ''", 2, "expected workers by their numbers");
    assert_false(exists("run/members.wanted"));
    expect("$L train $C model.layers=2 train.steps=1 train.out=sync && $L members sync 0", 2,
           "sync: its async.mode is not diloco, so all of it trains");
    expect(WORKERS "train.steps=2 async.follow=run train.out=follows parallel.dp=2 && "
                   "$L members follows 0",
           2, "follows: its workers are those of async.follow = follows/../run: ask that run");
    expect(WORKERS "train.steps=2 train.out=whole && $L members whole", 0,
           "all 4 workers take part\n");
}

/* Its order is not that of the configuration alone. */
CASE(test_samples_of_steps)
{
    expect("$L data order run/config.yaml", 0, "the samples are those of all 4 workers");
    expect("$L data order run/config.yaml async.mode=server", 2,
           "a step takes the samples of the worker that pushes");
}

CASE(test_audits_know_the_members)
{
    expect("$L audit run --steps 1..6", 0, "steps 1 to 6: equal; compared: 6 losses");
    expect("$L audit run parallel.workers=4 parallel.pp=2", 0, "steps 5 to 6: equal");
    /* Without keys, other groups compute the workers than in the run. */
    expect(WORKERS "train.steps=2 train.out=one && $L audit one", 0, " parallel.workers=");
    expect(WORKERS "train.steps=2 parallel.workers=2 train.out=two && $L audit two | grep "
                   "computing",
           0, "computing steps 1 to 2 again from the start, with parallel.");
    assert_null(strstr(output, "parallel.workers=2"));
    /* Other members than those that trained are found. */
    expect("sed -i 's/1,3/0,3/' run/members && $L audit run", 1, "step 6 differs");
    expect("echo no >> run/members && $L audit run", ls_exit_code(LS_EDATA), "run/members:4: ");
    expect("$L members run", ls_exit_code(LS_EDATA), "run/members:4: expected one JSON object");
}

/* A folder within a run's says which folder to give. */
CASE(test_the_status_of_a_worker)
{
    expect("$L status run", 0, "state       done");
    expect("$L status run/workers/0001/", ls_exit_code(LS_EIO),
           "run/workers/0001/ is the folder of a worker of a run: expected the run itself, /");
    expect("cd run/workers/0001 && $L status .", ls_exit_code(LS_EIO),
           "expected the run itself, /");
    expect("$L status run/checkpoints/step-00000002", ls_exit_code(LS_EIO),
           "is the folder of a checkpoint of a run: expected the run itself, /");
}

/* Processes that do not fit the groups say how many to start. */
CASE(test_processes_that_do_not_fit)
{
    mpi_or_skip();
    expect(MPIRUN WORKERS "train.steps=2 parallel.workers=4 train.out=few", 13,
           "parallel.workers = 4: 4 groups of 1 rank each need 4, but 2 were started: start 4");
    expect(MPIRUN WORKERS "train.steps=2 parallel.workers=2 train.out=fit && "
                          "$L audit fit parallel.workers=1 --steps 1..2",
           0, "equal");
}

SUITE_MAIN(run_setup, scratch_teardown)
