/* What is left of ranks that waited too long: who was late, and the last operations of all. */
#include "train/trainer.h"

#include <lockstep/base/file.h>

#include <stdio.h>
#include <time.h>
#include <unistd.h>

static int text_open(FILE **out, const char *directory, const char *what, int rank,
                     struct ls_error *error)
{
    char path[LS_CONFIG_TEXT_BYTES + 128];
    snprintf(path, sizeof path, "%s/%s-%05d.txt", directory, what, rank);
    *out = fopen(path, "we");
    return *out ? LS_OK : ls_error_set(error, LS_EIO, "%s: cannot be written", path);
}

int ls_run_late(const char *directory, struct ls_comm *world, const struct ls_error *why,
                struct ls_error *error)
{
    char path[LS_CONFIG_TEXT_BYTES + 64];
    int rank = ls_comm_rank(world);
    FILE *file;
    if (access(directory, W_OK) != 0)
        return ls_error_set(error, LS_EIO, "%s is not a directory that can be written to",
                            directory);
    snprintf(path, sizeof path, "%s/log", directory);
    int status = ls_directory_add(path, NULL, error);
    if (!status)
        status = text_open(&file, path, "rank", rank, error);
    if (status)
        return status;
    fprintf(file, "%s\n", why->text);
    fclose(file);
    if (!ls_comm_dump_claim(world))
        return LS_OK;
    status = text_open(&file, path, "operations", rank, error);
    if (status)
        return status;
    ls_comm_dump(world, file);
    fclose(file);
    return LS_OK;
}

void train_late_grace(double timeout_s)
{
    /* A rank's patience begins anew with each sign of life that it sees, so ranks time out one
     * after the other. */
    enum { GRACE_MS_MAX = 5000 };
    int64_t ms = ls_min((int64_t)(timeout_s * 1000), GRACE_MS_MAX);
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}
