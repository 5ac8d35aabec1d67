/* What the launcher does call by call: which hosts are this machine, what stays as it was because
 * nobody could be asked, the layout that it chooses, and what it hands on of a job's output. */
#include "../support/config_words.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/wrapped.h"
#include "launch/launch_private.h"

#include <lockstep/train/recorded.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* No process can be started to ask a host with. */
static bool full;
static int refusal = EAGAIN;
/* Nor behind so many of them, for so many times. */
static int started_first, then_refused;

WRAPPED(fork);
pid_t __wrap_fork(void)
{
    bool refused = full || (started_first-- <= 0 && then_refused-- > 0);
    errno = refusal;
    return refused ? -1 : __real_fork();
}

/* This machine has one without an address, one of IPv6, and this one of IPv4. */
static struct sockaddr_in6 six = {.sin6_family = AF_INET6};
static struct sockaddr_in four = {.sin_family = AF_INET};
static struct ifaddrs interfaces[] = {{.ifa_next = &interfaces[1]},
                                      {.ifa_next = &interfaces[2], .ifa_addr = (void *)&six},
                                      {.ifa_addr = (void *)&four}};

WRAPPED(getifaddrs);
int __wrap_getifaddrs(struct ifaddrs **list)
{
    assert_int_equal(inet_pton(AF_INET, "192.0.2.7", &four.sin_addr), 1);
    *list = interfaces;
    return 0;
}

WRAPPED(freeifaddrs);
void __wrap_freeifaddrs(struct ifaddrs *list)
{
    assert_true(!list || list == interfaces);
}

/* mpirun starts ranks there without an agent. 192.0.2.0/24 is for documentation. */
CASE_WITH(test_addresses_of_this_machine, scratch_setup, scratch_teardown)
{
    static const char list[] =
        "127.0.0.1 slots=2\n127.1.2.3\nlocalhost\n192.0.2.7\n192.0.2.255\n127.0.0\n";
    struct launch_hosts hosts = {0};
    struct ls_error error = {0};
    const char *path = scratch_path(*state, "hosts");
    scratch_write(path, list, sizeof list - 1);
    assert_ok(launch_hosts_read(&hosts, path, &error), error);
    assert_int_equal(hosts.count, 6);
    for (int i = 0; i < hosts.count; i++)
        assert_int_equal(hosts.list[i].here, i < 4);
    launch_hosts_release(&hosts);
}

/* What has no room says so. */
CASE(test_hosts_of_a_start)
{
    struct launch_host list[] = {{.name = "node1", .slots = 8, .up = true},
                                 {.name = "node2", .slots = 8},
                                 {.name = "node3", .slots = 8, .up = true}};
    const struct launch_hosts hosts = {.list = list, .count = 3};
    char text[16];
    assert_true(launch_hosts_text(&hosts, 9, text, sizeof text));
    assert_string_equal(text, "node1:8,node3:1");
    assert_false(launch_hosts_text(&hosts, 16, text, sizeof text - 1));
    assert_string_equal(text, "node1:8,nod...");
}

/* Of two hosts the second is lost; both are tried, and neither changes. */
static void expect_no_change(enum launch_kind kind)
{
    struct launch_host list[] = {{.name = "node1", .slots = 1, .up = true, .used = true},
                                 {.name = "node2", .slots = 1}};
    struct launch_hosts hosts = {.kind = kind, .list = list, .count = 2, .limit_s = 1};
    for (int down = 0; down < 2; down++) {
        bool changed[2] = {false};
        assert_false(launch_hosts_try(&hosts, down, changed));
        assert_false(changed[0] || changed[1]);
        assert_true(list[0].up && !list[1].up);
    }
}

CASE(test_no_process_to_ask_with)
{
    full = true;
    expect_no_change(LAUNCH_HOSTFILE);
    full = false;
}

static int job_start(const char *folder, struct launch_output *output, struct launch_job *job,
                     struct ls_error *error)
{
    struct launch_host list[] = {{.name = "localhost", .slots = 1, .here = true, .up = true}};
    const struct launch_hosts hosts = {.list = list, .count = 1, .open_mpi = true};
    const struct ls_config config =
        config_of_words("model.preset=gpt2-tiny model.vocab=50 train.out=%s", folder);
    const struct ls_launch launch = {.program = "lockstep", .config = &config};
    const struct launch_start start = {
        .launch = &launch, .hosts = &hosts, .output = output, .ranks = 1, .keys = ""};
    unsetenv("OMPI_MCA_btl_vader_backing_directory");
    return launch_job_start(job, &start, error);
}

/* Nor to start the job with: nothing is left of that in memory. */
CASE_WITH(test_no_process_for_the_job, scratch_setup, scratch_teardown)
{
    struct launch_output output = {.read_fd = -1, .write_fd = -1};
    static struct launch_job job;
    struct ls_error error = {0};
    full = true;
    refusal = ENOMEM; /* which no limit of processes explains */
    assert_int_equal(job_start(*state, &output, &job, &error), LS_ENOMEM);
    refusal = EAGAIN;
    full = false;
    assert_non_null(strstr(error.text, "gives it no process: "));
    assert_int_equal(job.pid, 0); /* a kill of -1 would be one of all processes */
    assert_true(job.segments[0] && access(job.segments, F_OK) != 0);
}

static pid_t child_sleeping(void)
{
    pid_t child = fork();
    assert_true(child >= 0);
    while (child == 0)
        pause();
    return child;
}

/* What a script began before it became the launcher is no part of the job, and lives on. */
CASE(test_children_of_others)
{
    pid_t other = child_sleeping();
    process_begin();
    pid_t own = child_sleeping();
    assert_int_equal(process_sweep(), 0);
    assert_int_equal(kill(own, 0), -1); /* it is waited for, too */
    assert_int_equal(waitpid(other, NULL, WNOHANG), 0);
    kill(other, SIGKILL);
    assert_int_equal(waitpid(other, NULL, 0), other);
}

/* PATH becomes the folder; what it was, to be given back by path_restore. */
static char *path_replace(const char *folder)
{
    const char *paths = getenv("PATH");
    char *before = strdup(paths ? paths : "");
    setenv("PATH", folder, 1);
    return before;
}

static void path_restore(char *before)
{
    setenv("PATH", before, 1);
    free(before);
}

static void script_write(const char *folder, const char *name, const char *text)
{
    scratch_write(scratch_path(folder, name), text, strlen(text));
    assert_int_equal(chmod(scratch_path(folder, name), 0755), 0);
}

static void skip_without_mpi(void)
{
#ifndef LS_WITH_MPI
    print_message("SKIPPED: launching: built without MPI\n");
    skip();
#endif
}

/* What a launcher comes to whose first starts get no process: its exit code. ends: the others'.
 * *status: its own. */
static int refused_starts(const char *folder, int retries, int refusals, int ends, int *status,
                          struct ls_error *error)
{
    char script[96];
    const volatile int asked = 0;
    int code = -1;
    const struct ls_config config =
        config_of_words("model.preset=gpt2-tiny model.vocab=50 launch.pause_s=0 "
                        "launch.retries=%d train.out=%s/run%d",
                        retries, folder, refusals);
    const struct ls_launch launch = {.program = "lockstep", .config = &config, .asked = &asked};
    snprintf(script, sizeof script, "#!/bin/sh\ncase $* in --version) ;; *) exit %d ;; esac\n",
             ends);
    script_write(folder, "mpirun", script);
    unsetenv("SLURM_JOB_NODELIST");
    char *before = path_replace(folder);
    started_first = refusals < 3; /* `mpirun --version` */
    then_refused = refusals;
    *status = ls_launch(&launch, &code, error);
    then_refused = 0;
    path_restore(before);
    return code;
}

/* A limit of processes may be reached for a while: the job is started again, as after a failure. */
CASE_WITH(test_starts_that_get_no_process, scratch_setup, scratch_teardown)
{
    static const char why[] =
        "\"kind\": \"other\", \"text\": \"the job cannot be started, because the "
        "system gives it no process (ulimit -u";
    struct ls_error error = {0};
    int status;
    skip_without_mpi();
    assert_int_equal(refused_starts(*state, 1, 1, 0, &status, &error), 0);
    assert_int_equal(status, LS_OK);
    char *events = scratch_read(scratch_path(*state, "run1/events.jsonl"), NULL);
    if (!strstr(events, why) || !strstr(events, "\"done\""))
        fail_msg("the launcher told: %s", events);
    free(events);
    assert_int_equal(refused_starts(*state, 1, 2, 0, &status, &error), ls_exit_code(LS_EIO));
    assert_int_equal(status, LS_OK);
    refused_starts(*state, 1, 3, 0, &status, &error);
    assert_int_equal(status, LS_EIO);
    assert_non_null(strstr(error.text, "cannot run mpirun --version, to find out which it is: "));
}

/* Nor to ask Slurm for the nodes with, which is no word on the allocation. */
CASE(test_no_process_to_ask_slurm_with)
{
    struct launch_hosts hosts = {0};
    struct ls_error error = {0};
    setenv("SLURM_JOB_NODELIST", "node[1-2]", 1);
    full = true;
    assert_int_equal(launch_hosts_slurm(&hosts, &error), LS_EIO);
    full = false;
    unsetenv("SLURM_JOB_NODELIST");
    assert_non_null(strstr(error.text, "cannot run scontrol, which names the nodes"));
    launch_hosts_release(&hosts);
}

/* The first that gets one finds another job at the run: no ranks of this launcher's, which would
 * end. */
CASE_WITH(test_a_run_that_is_held_behind_a_start_without_a_process, scratch_setup, scratch_teardown)
{
    struct ls_error error = {0};
    int busy = ls_exit_code(LS_EBUSY), status;
    skip_without_mpi();
    assert_int_equal(refused_starts(*state, 2, 1, busy, &status, &error), busy);
    char *events = scratch_read(scratch_path(*state, "run1/events.jsonl"), NULL);
    if (!strstr(events, "\"kind\": \"configuration\""))
        fail_msg("the launcher told: %s", events);
    free(events);
}

/* squeue answers, and sinfo does not. */
CASE_WITH(test_slurm_does_not_answer, scratch_setup, scratch_teardown)
{
    script_write(*state, "squeue", "#!/bin/sh\necho 7 node[1-2]\n");
    script_write(*state, "sinfo", "#!/bin/sh\nexit 1\n");
    char *before = path_replace(*state);
    setenv("SLURM_JOB_ID", "7", 1);
    expect_no_change(LAUNCH_SLURM);
    unsetenv("SLURM_JOB_ID");
    path_restore(before);
}

/* ---- input and output ------------------------------------------------------------------------ */

/* What the system admits of files in memory: with vm.memfd_noexec = 2 only what nobody executes,
 * which kernels before 6.3 do not know. */
static enum { ALL_FILES, NO_PROGRAMS, OLD_FILES, NO_FILES } memory_admits;

WRAPPED(memfd_create);
int __wrap_memfd_create(const char *name, unsigned flags)
{
    enum { NOEXEC = 8 };
    bool seals = flags & NOEXEC;
    errno = memory_admits == OLD_FILES ? EINVAL : EACCES;
    if (memory_admits == NO_FILES || (memory_admits == NO_PROGRAMS && !seals) ||
        (memory_admits == OLD_FILES && seals))
        return -1;
    return __real_memfd_create(name, flags & ~(unsigned)NOEXEC);
}

/* A program without input needs none. */
CASE(test_files_in_memory_that_the_system_admits)
{
    char *const words[] = {"cat", NULL};
    char said[8];
    for (memory_admits = NO_PROGRAMS; memory_admits < NO_FILES; memory_admits++) {
        assert_int_equal(process_run(words, "text", said, sizeof said, 1e9), 0);
        assert_string_equal(said, "text");
    }
    assert_int_equal(process_run(words, "text", said, sizeof said, 1e9), PROCESS_FAILED);
    assert_int_equal(process_run(words, NULL, said, sizeof said, 1e9), 0);
    assert_string_equal(said, "");
    memory_admits = ALL_FILES;
}

static int reader, stdout_before;

static void reader_fill(void)
{
    char page[PIPE_BUF];
    memset(page, '-', sizeof page);
    fcntl(STDOUT_FILENO, F_SETFL, O_NONBLOCK);
    while (write(STDOUT_FILENO, page, sizeof page) > 0)
        continue;
    fcntl(STDOUT_FILENO, F_SETFL, 0);
}

/* All that is there, without what reader_fill put in front of it. */
static const char *reader_take(void)
{
    static char text[1 << 18];
    size_t used = 0;
    for (ssize_t got; (got = read(reader, text + used, sizeof text - 1 - used)) > 0;)
        used += (size_t)got;
    text[used] = '\0';
    return text + strspn(text, "-");
}

/* Standard output is a pipe of which the reader has read nothing yet, and which is full. */
static int slow_setup(void **state)
{
    int ends[2];
    int status = scratch_setup(state);
    fflush(stdout);
    stdout_before = dup(STDOUT_FILENO);
    if (status || stdout_before < 0 || pipe2(ends, O_CLOEXEC | O_NONBLOCK))
        return -1;
    dup2(ends[1], STDOUT_FILENO);
    close(ends[1]);
    reader = ends[0];
    reader_fill();
    return 0;
}

static int slow_teardown(void **state)
{
    dup2(stdout_before, STDOUT_FILENO);
    close(stdout_before);
    close(reader);
    return scratch_teardown(state);
}

/* The reader is waited for only with something that it has not got, and until a signal comes; not
 * at all after a second one. */
CASE_WITH(test_a_reader_that_is_slow, slow_setup, slow_teardown)
{
    volatile int asked = 1; /* for which the job ended */
    struct launch_output output;
    launch_output_open(&output, &asked);
    launch_output_pass(&output);
    launch_output_close(&output);
    launch_output_open(&output, &asked);
    assert_int_equal(write(output.write_fd, "kept", 4), 4);
    launch_output_pass(&output);
    assert_string_equal(reader_take(), "");
    launch_output_pass(&output);
    assert_string_equal(reader_take(), "kept");
    reader_fill();
    assert_int_equal(write(output.write_fd, "lost", 4), 4);
    launch_output_pass(&output);
    asked = 0;
    launch_output_close(&output);
    assert_string_equal(reader_take(), "");
    launch_output_open(&output, &asked);
    reader_fill();
    assert_int_equal(write(output.write_fd, "lost", 4), 4);
    asked = 2;
    launch_output_pass(&output); /* the job went on meanwhile */
    launch_output_close(&output);
    assert_string_equal(reader_take(), "");
}

static const struct launch_output *printed; /* by a job as it ends; NULL: by none */

WRAPPED(process_sweep);
int __wrap_process_sweep(void)
{
    if (printed)
        assert_int_equal(write(printed->write_fd, "last", 4), 4);
    return __real_process_sweep();
}

/* Before the next start, which may come much later. */
CASE_WITH(test_what_a_job_prints_last, slow_setup, slow_teardown)
{
    const volatile int asked = 0;
    static struct launch_job job;
    struct launch_output output;
    script_write(*state, "mpirun", "#!/bin/sh\n");
    char *before = path_replace(*state);
    reader_take();
    launch_output_open(&output, &asked);
    assert_int_equal(job_start(*state, &output, &job, NULL), LS_OK);
    printed = &output;
    while (launch_job_look(&job))
        continue;
    printed = NULL;
    path_restore(before);
    assert_int_equal(job.code, 0);
    assert_string_equal(reader_take(), "last");
    launch_output_close(&output);
}

/* ---- the layout ------------------------------------------------------------------------------ */

static bool beyond; /* no step of four blocks can be simulated on two ranks */

WRAPPED(ls_record_works);
int __wrap_ls_record_works(const struct ls_config *config, const struct ls_layout *layout,
                           int64_t rank, struct ls_recording *recording, int64_t *second_at,
                           struct ls_error *error)
{
    if (beyond && layout->ranks * layout->model.layers >= 8)
        return ls_error_set(error, LS_ENOTSUP, "a rank does too much");
    return __real_ls_record_works(config, layout, rank, recording, second_at, error);
}

static char said[LS_CONFIG_TEXT_BYTES]; /* the newest warning */

static void said_keep(void *user, enum ls_log_level level, const char *line)
{
    (void)user;
    (void)level;
    snprintf(said, sizeof said, "%s", line);
}

/* With parallel.auto, for two ranks of which so many slots are left. */
static int layout_of_two(const char *words, int slots, int asked, char *keys, int64_t *ranks,
                         struct ls_error *error)
{
    struct launch_host list[] = {{.name = "localhost", .slots = slots, .here = true, .up = true}};
    const struct launch_hosts hosts = {.list = list, .count = 1};
    const struct launch_watch watch = {0};
    const struct ls_config config = config_of_words(
        "model.preset=gpt2-tiny model.vocab=50 batch.global=8 parallel.auto=true %s", words);
    const struct ls_log log = {.level_max = LS_LOG_WARNING, .write = said_keep};
    const struct ls_launch launch = {.config = &config, .log = &log, .asked = &asked};
    return launch_layout_choose(&launch, &hosts, &watch, 2, keys, ranks, error);
}

CASE(test_asked_while_a_layout_is_searched)
{
    char keys[LS_SEARCH_KEYS_BYTES];
    struct ls_error error = {0};
    int64_t ranks = 1;
    assert_int_equal(layout_of_two("", 2, 1, keys, &ranks, &error), LS_ESTOPPED);
    assert_int_equal(ranks, 1);
}

/* With parallel.auto keys of the command line stay: those that take ranks, unless hosts are lost;
 * the others, unless no layout is left then. */
CASE(test_keys_that_the_planner_leaves)
{
    static const struct {
        const char *words;
        int slots, status;
        const char *set, *left; /* in the keys, or the error; and not in the keys */
    } cases[] = {
        {"parallel.tp=2", 2, LS_OK, "parallel.auto=false", "parallel.tp="},
        {"parallel.tp=2", 1, LS_OK, "parallel.tp=1", "memory."},
        {"parallel.tp=3", 2, LS_ELAYOUT, "for 2 accelerators with parallel.tp=3", ""},
        {"parallel.tp=3", 1, LS_OK, "parallel.tp=1", "memory."},
        {"parallel.tp=2 memory.recompute=full", 1, LS_OK, "parallel.tp=1", "memory."},
        {"parallel.dp=2 parallel.zero=1", 1, LS_OK, "parallel.dp=0", "parallel.zero="},
        {"parallel.pp=2 memory.recompute=full@1", 1, LS_OK, "memory.recompute=\"none\"", "zero="},
        {"model.vocab=20000 parallel.dp_replicate=2 comm.bucket_mb=1", 2, LS_OK, "", "comm."},
        {"parallel.auto=false parallel.dp=2 memory.recompute=full", 1, LS_OK,
         "memory.recompute=\"none\"", "zero="},
        {"parallel.auto=false parallel.pp=2 model.layers=2 parallel.split=0,1", 1, LS_OK,
         "parallel.split=", "zero="},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char keys[LS_SEARCH_KEYS_BYTES] = "";
        struct ls_error error = {0};
        int64_t ranks = 0;
        int status = layout_of_two(cases[i].words, cases[i].slots, 0, keys, &ranks, &error);
        if (status != cases[i].status || ranks != (status ? 0 : cases[i].slots) ||
            !strstr(status ? error.text : keys, cases[i].set) ||
            (!status && strstr(keys, cases[i].left)))
            fail_msg("%s on %d: %d, %ld ranks, %s%s", cases[i].words, cases[i].slots, status,
                     (long)ranks, keys, error.text);
        struct ls_config config = config_of_words(
            "model.preset=gpt2-tiny model.vocab=50 batch.global=8 %s", cases[i].words);
        if (!status)
            assert_ok(ls_search_keys_set(&config, keys, &error), error);
    }
}

/* Of layouts that cannot be simulated one is taken, before fewer ranks are. */
CASE(test_layouts_that_cannot_be_simulated)
{
    char keys[LS_SEARCH_KEYS_BYTES];
    struct ls_error error = {0};
    int64_t ranks = 0;
    beyond = true;
    int status = layout_of_two("model.layers=4", 2, 0, keys, &ranks, &error);
    beyond = false;
    assert_ok(status, error);
    assert_int_equal(ranks, 2);
    const struct ls_config taken = config_of_words(
        "model.preset=gpt2-tiny model.vocab=50 batch.global=8 model.layers=4 %s", keys);
    assert_int_equal(ls_config_ranks(&taken), 2);
    assert_text_contains(said, "the layout for 2 ranks is the first by its estimate");
    assert_text_contains(said, "a rank does too much");
}

SUITE_MAIN(NULL, NULL)
