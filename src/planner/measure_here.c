/* This machine as a cluster of one host, measured in short for one recipe. */
#include <lockstep/planner/measure.h>

/* One rank on one core and on all: shapes of other cuts are interpolated. */
static int works_measure(const struct ls_config *config, struct ls_measure *measure,
                         struct ls_error *error)
{
    struct ls_config one = *config;
    struct ls_layout layout;
    int cores = (int)measure->cluster->accelerators, status = LS_OK;
    ls_config_layout_reset(&one);
    for (int threads = 1; threads <= cores && !status;
         threads = threads < cores ? cores : cores + 1) {
        struct ls_measure_list list;
        one.parallel.threads = threads;
        status = ls_config_layout(&one, 0, &layout, error);
        if (status)
            break;
        status = ls_measure_list_record(&one, &layout, 0, threads, &list, error);
        if (!status)
            status = ls_measure_list_add(measure, &list, error);
        ls_measure_list_release(&list);
    }
    return status;
}

int ls_measure_here(const struct ls_config *config, struct ls_cluster *cluster,
                    struct ls_error *error)
{
    struct ls_measure measure = {.effort = ls_measure_effort_quick(), .cluster = cluster};
    *cluster = (struct ls_cluster){.hosts = 1};
    int status = ls_measure_machine(&measure, NULL, error);
    if (!status)
        status = works_measure(config, &measure, error);
    if (!status)
        status = ls_measure_moves(&measure, error);
    if (!status)
        ls_measure_finish(cluster);
    return status;
}
