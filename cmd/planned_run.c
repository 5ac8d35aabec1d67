/* What a run asks of the planner: its layout, and how fast it should be. */
#include "planned_run.h"

#include "cmd.h"
#include "planned.h"

#include <lockstep/base/words.h>

#include <stdio.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- parallel.auto --------------------------------------------------------------------------- */

enum { SECONDS = 8 };

int planned_auto(struct ls_config *config, bool tells, struct ls_error *error)
{
    struct ls_cluster cluster = {0};
    struct ls_search search = {0};
    if (!config->train.auto_layout)
        return LS_OK;
    if (ls_mpi_launched())
        return ls_config_reject(config, LS_ECONFIG, "parallel.auto", error,
                                "it plans for rank threads of one process; under a launcher "
                                "write the layout first: lockstep plan --apply FILE");
    config->train.auto_layout = false; /* what the run keeps is the layout */
    const char *path = *config->train.plan ? config->train.plan : NULL;
    int status = planned_cluster(path, config, &cluster, error);
    const struct ls_search_options options = {.config = config,
                                              .cluster = &cluster,
                                              .top = 1,
                                              .seconds = SECONDS,
                                              .pinned = ls_search_given};
    if (!status)
        status = ls_search_run(&options, &search, error);
    if (status == LS_ELAYOUT && search.unproven > 0)
        ls_string_add(error->text, sizeof error->text, ". ",
                      "parallel.auto searches for %d s: to search longer, write the layout first: "
                      "lockstep plan --seconds %d --apply FILE",
                      SECONDS, 10 * SECONDS);
    if (!status)
        status = ls_search_apply(&search.plans[0], config, error);
    if (!status && tells)
        cmd_print("parallel.auto: %s, %s a step by forecast\n", search.plans[0].keys,
                  ls_duration(search.plans[0].forecast.step_s).text);
    ls_search_release(&search);
    ls_cluster_release(&cluster);
    return status;
}

/* ---- the plan of a run under way (train.plan) ------------------------------------------------ */

enum { SEARCH_SECONDS = 2, SEARCH_RANKS_MAX = 256, NICEST = 19 };

int planned_run_plan(struct planned_run *p, const struct ls_config *config, int threads,
                     struct ls_run_plan *plan, struct ls_error *error)
{
    p->config = *config;
    p->threads = threads;
    int status = ls_cluster_read(config->train.plan, &p->cluster, error);
    if (!status)
        status = ls_run_plan_make(config, threads, &p->cluster, plan, error);
    p->ready = !status;
    return status;
}

static void *search(void *user)
{
    struct planned_run *p = user;
    struct ls_error error = {0};
    /* Of Linux, a thread has a niceness of its own; where it cannot be had the search is short. */
    (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICEST);
    if (ls_run_plan_advise(&p->config, p->threads, &p->cluster, &p->drift, SEARCH_SECONDS,
                           &p->advice, &error))
        snprintf(p->advice.text, sizeof p->advice.text, "no other layout was found: %.400s",
                 error.text);
    atomic_store(&p->done, true);
    return NULL;
}

void planned_run_drifted(struct planned_run *p, const struct ls_drift *drift)
{
    if (!p->ready || p->searching || p->asked[drift->kind])
        return;
    p->asked[drift->kind] = true;
    p->drift = *drift;
    if (ls_config_ranks(&p->config) > SEARCH_RANKS_MAX) {
        snprintf(p->advice.text, sizeof p->advice.text,
                 "for a layout that would be faster: lockstep plan %.180s/config.yaml --cluster "
                 "%.180s",
                 p->config.train.out, p->config.train.plan);
        atomic_store(&p->done, true);
        return;
    }
    p->searching = pthread_create(&p->thread, NULL, search, p) == 0;
}

bool planned_run_advice(struct planned_run *p, char *text, size_t bytes)
{
    if (!atomic_load(&p->done))
        return false;
    if (p->searching)
        pthread_join(p->thread, NULL);
    p->searching = false;
    atomic_store(&p->done, false);
    snprintf(text, bytes, "%s", p->advice.text);
    return true;
}

void planned_run_close(struct planned_run *p)
{
    if (p->searching)
        pthread_join(p->thread, NULL);
    p->searching = false;
    ls_cluster_release(&p->cluster);
}
