/* Starts the ranks of a configuration, and says what became of them. */
#include "rank_start.h"
#include "cmd.h"

#include <lockstep/base/words.h>
#include <lockstep/launch.h>

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The operations of the ranks, if no run directory took them. */
static void operations_print(struct ls_comm *world)
{
    if (ls_comm_size(world) > 1 && ls_comm_dump_claim(world))
        ls_comm_dump(world, stderr);
}

static char **program_arguments;

void ranks_arguments(char **arguments)
{
    program_arguments = arguments;
}

/* OpenMP's threads spin while they wait for each other. They do not know of other processes: where
 * the ranks of a machine are given more threads than it has cores, those that spin keep cores from
 * those that they wait for, and a step can take twenty times as long. The variable that lets them
 * sleep is read when the program is loaded. So it is loaded again, once, before MPI begins; not
 * where a configuration comes through a pipe, which cannot be read twice, or where the user has
 * chosen. */
static void waiting_threads_sleep(const struct ls_config *config)
{
    static const char *const chosen[] = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"};
    int64_t given = config->parallel.threads * ls_mpi_machine_ranks();
    struct stat file;
    for (size_t i = 0; i < sizeof chosen / sizeof *chosen; i++)
        if (getenv(chosen[i]))
            return;
    if (config->parallel.threads <= 1 || given <= ls_device_cores_online() ||
        (config->path[0] && (stat(config->path, &file) || !S_ISREG(file.st_mode))))
        return;
    setenv(chosen[0], "passive", 1);
    cmd_flush();
    execv("/proc/self/exe", program_arguments);
}

static int mpi_run(const struct ls_config *config, ranks_body *body, void *user,
                   struct ls_error *error)
{
    struct ls_comm *world;
    waiting_threads_sleep(config);
    int status = ls_comm_mpi_new(&world, error);
    if (status)
        return status;
    ls_comm_set_check(world, config->comm.check);
    ls_comm_set_timeout(world, config->comm.timeout_s);
    status = body(world, user, error);
    if (status == LS_ECOMM) {
        /* Others live on without a rank that died, and are not to be ended. */
        bool lives = ls_mpi_survives() && ls_comm_lost(world, 0, ls_comm_size(world)) >= 0;
        ls_launch_end_tell(status, lives, error);
        fprintf(stderr, "lockstep: %s%d: %s\n",
                lives ? "a job without all of its ranks: " : "rank ", ls_comm_rank(world),
                error->text);
        if (!lives)
            operations_print(world);
        cmd_flush();
        fflush(stderr);
        if (!lives)
            ls_mpi_abort(ls_exit_code(status));
    }
    /* Ending MPI in good order waits for every process. After a failure the others may be stuck:
     * this one just exits, which makes the launcher end them. */
    if (status)
        return status;
    ls_comm_free(world);
    ls_mpi_finish();
    return LS_OK;
}

/* On the heap, and never freed if a rank was given up: it still uses this. */
struct thread_run {
    const struct ls_config *config;
    ranks_body *body;
    void *user;
    struct ls_error errors[]; /* [ranks] */
};

static int thread_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct thread_run *run = user;
    ls_comm_set_check(world, run->config->comm.check);
    ls_comm_set_timeout(world, run->config->comm.timeout_s);
    int status = run->body(world, run->user, error);
    if (status == LS_ECOMM) {
        run->errors[ls_comm_rank(world)] = *error;
        operations_print(world);
    }
    return status;
}

/* Each rank's own words, as processes print them; what ls_world_run tells begins with one's. */
static void told_print(const struct thread_run *run, int ranks, const struct ls_error *told)
{
    for (int i = 0; i < ranks; i++)
        if (run->errors[i].code && told->number != 1 + i)
            fprintf(stderr, "lockstep: rank %d: %s\n", i, run->errors[i].text);
}

int ranks_run(const struct ls_config *config, ranks_body *body, void *user, struct ls_error *error)
{
    bool mpi = config->comm.transport == LS_TRANSPORT_MPI ||
               (config->comm.transport == LS_CONFIG_AUTO && ls_mpi_launched());
    if (mpi)
        return mpi_run(config, body, user, error);
    struct ls_layout layout; /* refused here, before a rank is there to refuse it */
    int status = ls_config_layout(config, 0, &layout, error);
    if (status)
        return status;
    int ranks = (int)(layout.ranks * ls_config_groups(config));
    struct thread_run *run = calloc(1, sizeof *run + (size_t)ranks * sizeof run->errors[0]);
    if (!run)
        return ls_no_memory(error, "for %d ranks", ranks);
    run->config = config;
    run->body = body;
    run->user = user;
    status = ls_world_run(ranks, thread_body, run, error);
    if (status == LS_ECOMM)
        told_print(run, ranks, error);
    if (error->cause != LS_CAUSE_GIVEN_UP)
        free(run);
    return status;
}

static bool is_key_name(const char *word)
{
    const struct ls_config_key *key = ls_config_keys(NULL);
    while (key->name && strcmp(key->name, word) != 0)
        key++;
    return key->name;
}

static int config_read(struct ls_config *config, const char *const *defaults,
                       const char *const *words, int count, struct ls_error *error)
{
    if (count == 0 && !defaults)
        return ls_error_set(error, LS_ECONFIG,
                            "expected a configuration: lockstep %s RUN.yaml, or keys such as "
                            "model.preset=gpt2-124m data.train=PREFIX",
                            cmd_name());
    ls_config_defaults(config);
    int status = LS_OK, files = 0;
    for (; defaults && *defaults && !status; defaults++)
        status = ls_config_set(config, *defaults, error);
    for (int i = 0; i < count && !status; i++) {
        if (strchr(words[i], '='))
            continue;
        if (files++)
            return ls_error_set(error, LS_ECONFIG,
                                is_key_name(words[i])
                                    ? "%s: expected a value: %s=VALUE, without blanks"
                                    : "%s: one configuration file is expected; overrides are "
                                      "written key=value",
                                words[i], words[i]);
        status = ls_config_load_file(config, words[i], error);
    }
    for (int i = 0; i < count && !status; i++)
        if (strchr(words[i], '='))
            status = ls_config_set(config, words[i], error);
    return status ? status : ls_train_resolve(config, error);
}

/* missing NULL: data has to be there. */
static int plan_read(struct ls_config *config, const char *const *words, int count,
                     struct ls_error *missing, struct ls_error *error)
{
    const char *more[CMD_WORDS_MAX];
    int status = config_read(config, NULL, words, count, error);
    if (missing)
        *missing = (struct ls_error){0};
    if (status != LS_EIO || count > CMD_WORDS_MAX - 2 || !missing)
        return status;
    memcpy(more, words, (size_t)count * sizeof *more);
    more[count] = "data.train=";
    more[count + 1] = "data.tokenizer=";
    *missing = *error;
    return config_read(config, NULL, more, count + 2, error);
}

int ranks_config(struct ls_config *config, const char *const *defaults, const char *const *words,
                 int count, struct ls_error *error)
{
    int status = config_read(config, defaults, words, count, error);
    config->rollout = (struct ls_config_rollout){0};
    return status;
}

int ranks_plan_config(struct ls_config *config, const char *const *words, int count,
                      struct ls_error *missing, struct ls_error *error)
{
    int status = plan_read(config, words, count, missing, error);
    config->rollout = (struct ls_config_rollout){0};
    return status;
}

int ranks_layouts(struct ls_config *config, const char *const *words, int count,
                  struct ls_layout *layout, struct ls_error *missing, struct ls_error *error)
{
    int status = plan_read(config, words, count, missing, error);
    if (!status)
        status = ls_config_layout(config, 0, layout, error);
    return status ? status : ls_config_rollout_check(config, ls_config_ranks(config), NULL, error);
}

/* What could be changed so that the ranks fit. */
static void changes_print(const char *before, const struct ls_config *config,
                          const struct ls_layout *layout, const struct ls_memory_fit *fit)
{
    struct ls_memory_change changes[LS_MEMORY_CHANGES_MAX];
    enum ls_fit fits = ls_memory_fits(fit);
    int64_t limit = fits == LS_FITS           ? 0
                    : fits == LS_FITS_NOT_NOW ? fit->machine.free
                                              : fit->machine.total;
    int count = ls_memory_changes(config, layout, NULL, limit, changes);
    printf("%s%s\n", before,
           count ? "enough would be, the cheapest first:"
                 : "no change of memory.recompute, memory.offload, parallel.zero and batch.micro "
                   "is enough");
    for (int i = 0; i < count; i++)
        printf("%s  %-60s %s\n", before, changes[i].keys, ls_bytes((double)changes[i].bytes).text);
}

void ranks_memory_head(void)
{
    for (int kind = 0; kind < LS_MEMORY_KINDS; kind++)
        printf(" %13s", ls_memory_name((enum ls_memory_kind)kind));
    printf(" %13s   live micro-batches\n", "in all");
}

void ranks_bytes_print(const size_t bytes[LS_MEMORY_KINDS], size_t all)
{
    for (int kind = 0; kind < LS_MEMORY_KINDS; kind++)
        printf(" %13s", cmd_size((int64_t)bytes[kind]).text);
    printf(" %13s", cmd_size((int64_t)all).text);
}

void ranks_memory_row(const struct ls_memory_plan *plan)
{
    const struct ls_tiers_text tiers = ls_memory_tiers_text(plan);
    ranks_bytes_print(plan->bytes, plan->total);
    printf("   %d", plan->live);
    if (*tiers.text)
        printf("  (and %s)", tiers.text);
    putchar('\n');
}

bool ranks_fit_starts(const struct ls_config *config, const struct ls_memory_fit *fit)
{
    return ls_memory_keeps_budget(config, fit) &&
           (ls_memory_fits(fit) != LS_FITS_NOT || config->train.overcommit);
}

int ranks_fit_print(const char *before, const struct ls_config *config,
                    const struct ls_layout *layout, bool *starts, struct ls_error *error)
{
    static const char *const verdicts[] = {
        [LS_FITS] = "fits",
        [LS_FITS_NOT_NOW] = "DOES NOT FIT now: end other programs first",
        [LS_FITS_NOT] = ("DOES NOT FIT: use more machines (`lockstep plan --cluster FILE` is "
                         "for those of a cluster), or keep less")};
    struct ls_memory_fit fit;
    int status = ls_memory_fit(config, layout, NULL, &fit, error);
    if (status)
        return status;
    printf(
        "%s%s on this machine alone would take %s of memory; it has %s, of which %s is free: %s\n",
        before, ls_counted(fit.ranks, "rank").text, ls_bytes((double)fit.bytes).text,
        ls_bytes((double)fit.machine.total).text, ls_bytes((double)fit.machine.free).text,
        verdicts[ls_memory_fits(&fit)]);
    if (config->check.replay > 0)
        printf("%sof that %s for check.replay, whose second trainer takes as much as the first\n",
               before, ls_bytes((double)(fit.bytes - fit.snapshots - fit.saves) / 2).text);
    if (fit.snapshots > 0)
        printf("%sof that %s in %s for up to three snapshots (snapshot.every)\n", before,
               ls_bytes((double)fit.snapshots).text, config->snapshot.folder);
    if (fit.saves > 0)
        printf("%sof that %s for the copy from which checkpoints are written beside steps "
               "(checkpoint.async)\n",
               before, ls_bytes((double)fit.saves).text);
    else if (ls_memory_saves(config))
        printf("%ssteps will wait while checkpoints are written: a copy of the state does not fit "
               "too (checkpoint.async=auto)\n",
               before);
    printf("%sbeside that at most %s: libraries, tables, workspace of ops\n", before,
           ls_bytes((double)fit.beside).text);
    bool keeps = ls_memory_keeps_budget(config, &fit);
    if (!keeps)
        printf("%sa rank's device: %s of a budget of %s: DOES NOT FIT\n", before,
               ls_bytes((double)fit.rank_bytes).text,
               ls_bytes((double)config->memory.device_budget).text);
    *starts = ranks_fit_starts(config, &fit);
    if (!keeps || ls_memory_fits(&fit) != LS_FITS)
        changes_print(before, config, layout, &fit);
    return LS_OK;
}

bool ranks_are_left(int status, const struct ls_error *error)
{
    return status == LS_ECOMM || (status && error->cause == LS_CAUSE_GIVEN_UP);
}

void ranks_end(int status, const struct ls_error *error)
{
    if (!ranks_are_left(status, error))
        return;
    int code = cmd_fail(status, error);
    cmd_flush();
    fflush(stderr);
    _exit(code);
}
