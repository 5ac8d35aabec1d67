/* Lockstep under Slurm: srun, a batch script that Slurm signals ahead of its time limit and that
 * asks to be queued again, and a batch script without srun. The cluster is this machine, as two
 * nodes: private daemons with ports, key, socket, folders and numbers of jobs of their own, which
 * end with this program. Slurm's signal comes after a minute at the soonest: CHECK=all alone waits
 * for it. */
/* check: network waits disk */
#include "../cmd/run_program.h"
#include "../launch/launched.h"
#include "../support/await.h"
#include "../support/child.h"
#include "../support/extent.h"
#include "../support/scratch.h"
#include "../support/testing.h"

#include <lockstep/base.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* The rate of the learning rate's decay, and so the bits, do not depend on the steps. */
#define KEYS                                                                                       \
    "data.train=corpus_train model.preset=gpt2-tiny batch.global=8 parallel.threads=1 "            \
    "optim.decay_steps=1000 log.tensorboard=false log.progress=plain "

/* A job of two ranks that trains on for ever; launched by the script's own process, whose number is
 * in launcher.txt. */
#define LAUNCH   "'%s' launch " LAUNCHED_KEYS "parallel.dp=2 train.steps=1000000 "
#define LAUNCHER "echo $$ > launcher.txt\nexec " LAUNCH

enum { NODES = 2, DAEMONS = 2 + NODES };
static const char *const nodes[NODES] = {"node", "weak"};

static char *directory;
static char program[PATH_MAX];
static pid_t daemons[DAEMONS];
static const char *missing; /* why there is no cluster */

/* Whether a daemon runs. */
static bool runs(pid_t daemon)
{
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)daemon, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && !info.si_pid;
}

/* ---- the cluster ----------------------------------------------------------------------------- */

/* In the directory, with the environment of the cluster. Its output follows that of others in
 * said.txt. Returns the exit code. */
static int run(const char *command)
{
    char line[3 * PATH_MAX];
    snprintf(line, sizeof line,
             "cd '%s' && { SLURM_CONF='%s/slurm.conf' OMP_WAIT_POLICY=passive "
             "ASAN_OPTIONS=detect_leaks=0 %s ; } >> said.txt 2>&1",
             directory, directory, command);
    int status = system(line);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static char *said(void)
{
    return scratch_read(scratch_path(directory, "said.txt"), NULL);
}

static int free_port(void)
{
    struct sockaddr_in self = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof self;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&self, sizeof self) == 0 &&
                getsockname(fd, (struct sockaddr *)&self, &length) == 0);
    close(fd);
    return ntohs(self.sin_port);
}

/* A job that is cancelled has as long as it needs to save, and no other may wait for Slurm to kill
 * what is left of it: that never comes. */
static void files_write(void)
{
    char text[4096], host[64] = "", key[1024];
    FILE *random = fopen("/dev/urandom", "re");
    assert_non_null(random);
    assert_int_equal(fread(key, 1, sizeof key, random), sizeof key);
    fclose(random);
    scratch_write(scratch_path(directory, "munge.key"), key, sizeof key);
    assert_int_equal(chmod(scratch_path(directory, "munge.key"), 0600), 0);
    gethostname(host, sizeof host - 1);
    host[strcspn(host, ".")] = '\0';
    int length = snprintf(
        text, sizeof text,
        "ClusterName=lockstep\nSlurmctldHost=%s(127.0.0.1)\nSlurmUser=root\nSlurmctldPort=%d\n"
        "AuthType=auth/munge\nAuthInfo=socket=%s/munge.sock\n"
        "TmpFS=%s/%%n\nStateSaveLocation=%s\nSlurmdSpoolDir=%s/spool.%%n\nSlurmctldPidFile=%s/"
        "slurmctld.pid\n"
        "SlurmdPidFile=%s/slurmd.%%n.pid\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n"
        "FirstJobId=%d\n" /* Open MPI and PMIx name files in /tmp and /dev/shm by it */
        "JobAcctGatherType=jobacct_gather/none\nAccountingStorageType=accounting_storage/none\n"
        "SelectType=select/cons_tres\nMpiDefault=none\nReturnToService=2\nKillWait=65000\n"
        "NodeName=node NodeHostname=%s NodeAddr=127.0.0.1 Port=%d CPUs=2 State=UNKNOWN\n"
        "NodeName=weak NodeHostname=%s NodeAddr=127.0.0.1 Port=%d CPUs=2 State=UNKNOWN\n"
        "PartitionName=all Nodes=node Default=YES OverSubscribe=FORCE:4 State=UP\n"
        "PartitionName=both Nodes=ALL OverSubscribe=FORCE:4 State=UP\n",
        host, free_port(), directory, directory, directory, directory, directory, directory,
        1 + 16 * (int)(getpid() % 1000000), host, free_port(), host, free_port());
    assert_in_range(length, 1, sizeof text - 1);
    scratch_write(scratch_path(directory, "slurm.conf"), text, (size_t)length);
    for (int i = 0; i < NODES; i++) /* PMIx has a folder of its own for each step of a node */
        assert_int_equal(mkdir(scratch_path(directory, nodes[i]), 0755), 0);
}

/* Runs in the foreground, and dies with this program. Keeps the true time under `prove-check.sh
   clock`: Slurm's own timers, which are not tested here, never end with one that leaps. */
static pid_t daemon_start(const char *name, const char *command)
{
    char line[3 * PATH_MAX];
    pid_t child = child_fork(SIGKILL);
    if (child)
        return child;
    snprintf(line, sizeof line,
             "cd '%s' && unset LD_PRELOAD && export SLURM_CONF='%s/slurm.conf' && exec %s > %s.log "
             "2>&1",
             directory, directory, command, name);
    execl("/bin/sh", "sh", "-c", line, (char *)NULL);
    _exit(127);
}

/* Why there is no cluster; NULL where it is up. */
static const char *cluster_up(void)
{
    char line[2048];
#ifndef LS_WITH_MPI
    return "built without MPI";
#endif
    if (system("command -v srun sbatch slurmctld slurmd munged >/dev/null") != 0)
        return "Slurm is not installed (Debian: slurm-wlm, munge)";
    if (geteuid() != 0)
        return "Slurm's daemons need root";
    if (system("mpirun --version 2>/dev/null | grep -q 'Open MPI'") != 0)
        return "Slurm's pmix is for Open MPI, which is not installed";
    files_write();
    snprintf(line, sizeof line,
             "munged --force --foreground --num-threads=1 --key-file='%s/munge.key' "
             "--socket='%s/munge.sock' --pid-file='%s/munged.pid' --log-file='%s/munge.txt' "
             "--seed-file='%s/munge.seed'",
             directory, directory, directory, directory, directory);
    daemons[0] = daemon_start("munged", line);
    while (runs(daemons[0]) && access(scratch_path(directory, "munge.sock"), F_OK))
        await_pause();
    daemons[1] = daemon_start("slurmctld", "slurmctld -D");
    daemons[2] = daemon_start("slurmd", "slurmd -D -N node");
    daemons[3] = daemon_start("slurmd_weak", "slurmd -D -N weak");
    while (run("sinfo --noheader --Node --partition=both --format=%T | uniq -c | grep -qx ' *2 "
               "idle'") != 0) {
        for (int i = 0; i < DAEMONS; i++)
            if (!runs(daemons[i]))
                return "a daemon of Slurm ended as it began";
        await_rest();
    }
    return run("srun --mpi=list 2>&1 | grep -qw pmix") == 0
               ? NULL
               : "this Slurm has no pmix (srun --mpi=list)";
}

static int setup(void **state)
{
    int status = scratch_setup(state);
    directory = *state;
    program_path(program, sizeof program);
    program_corpus(directory);
    missing = cluster_up();
    return status;
}

static int teardown(void **state)
{
    if (!missing)
        run("scancel --user=root");
    for (int i = DAEMONS - 1; i >= 0; i--) {
        if (daemons[i] <= 0)
            continue;
        kill(daemons[i], SIGTERM);
        waitpid(daemons[i], NULL, 0);
    }
    return scratch_teardown(state);
}

static void cluster_or_skip(void)
{
    if (!missing)
        return;
    print_message("SKIPPED: no Slurm to try: %s\n", missing);
    skip();
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static void hash_find(const char *text, char hash[33])
{
    const char *at = NULL;
    for (const char *next = text; (next = strstr(next, "hash ")); next++)
        at = next;
    if (!at)
        fail_msg("no hash in:\n%s", text);
    snprintf(hash, 33, "%.32s", at + 5);
}

static void hash_of_one_rank(const char *steps, char hash[33])
{
    static char output[PROGRAM_OUTPUT_BYTES];
    char enter[PATH_MAX], keys[512];
    snprintf(enter, sizeof enter, "cd '%s'; rm -rf one;", directory);
    snprintf(keys, sizeof keys, "train " KEYS "train.out=one %s", steps);
    assert_int_equal(program_run(enter, keys, output), 0);
    hash_find(output, hash);
}

static void test_srun(void **state)
{
    char hash[33], got[33], line[2 * PATH_MAX];
    cluster_or_skip();
    hash_of_one_rank("train.steps=4", hash);
    snprintf(line, sizeof line,
             "srun --mpi=pmix -n 2 --overcommit '%s' train " KEYS
             "train.steps=4 parallel.dp=2 parallel.zero=1 train.out=srun > srun.txt",
             program);
    int code = run(line);
    if (code)
        fail_msg("srun ended with %d:\n%s", code, said());
    char *text = scratch_read(scratch_path(directory, "srun.txt"), NULL);
    hash_find(text, got);
    free(text);
    assert_string_equal(got, hash);
}

/* Whether the script has written the words to the file. */
static bool has_said(const char *name, const char *words)
{
    if (access(scratch_path(directory, name), R_OK))
        return false;
    char *text = scratch_read(scratch_path(directory, name), NULL);
    bool there = strstr(text, words) != NULL;
    free(text);
    return there;
}

/* Fails, with what the cluster says, which is more than cmocka's messages hold. */
static void cluster_fail(const char *name, const char *words)
{
    run("scontrol show job; sinfo --list-reasons; sinfo; tail -n 30 slurmctld.log slurmd.log");
    fprintf(stderr, "the cluster said:\n%s\n", said());
    if (access(scratch_path(directory, name), R_OK) == 0)
        fprintf(stderr, "%s is:\n%s\n", name, scratch_read(scratch_path(directory, name), NULL));
    fail_msg("'%s' did not come", words);
}

/* Waits for the words of the job that job.txt names; asks Slurm for it at every 500th look alone,
 * which costs three processes. */
static void await_words(const char *name, const char *words)
{
    for (int look = 1; !has_said(name, words); look++) {
        if (look % 500 == 0 && run("squeue --noheader --jobs=$(cat job.txt) | grep -q .") != 0 &&
            !has_said(name, words))
            cluster_fail(name, words);
        await_pause();
    }
}

/* Submits a script of these lines as NAME.sh, with output in NAME.txt; job.txt has its number. */
__attribute__((format(printf, 3, 4))) static void submit(const char *name, const char *options,
                                                         const char *format, ...)
{
    char text[4096], line[128];
    va_list list;
    size_t length = (size_t)snprintf(
        text, sizeof text, "#!/bin/sh\n#SBATCH --ntasks=2 %s --output=%s.txt\n", options, name);
    va_start(list, format);
    length += (size_t)vsnprintf(text + length, sizeof text - length, format, list);
    va_end(list);
    assert_in_range(length, 1, sizeof text - 1);
    snprintf(line, sizeof line, "%s.sh", name);
    scratch_write(scratch_path(directory, line), text, length);
    snprintf(line, sizeof line, "sbatch --parsable %s.sh > job.txt", name);
    if (run(line))
        fail_msg("sbatch: %s", said());
}

/* Slurm's signal comes up to a minute before the time that is asked for: a minute's limit less 40 s
 * is soon. The first life trains on for ever; the second, in which the job has more time, ends two
 * steps after the checkpoint that it finds. */
static void test_a_batch_job_is_signalled_and_queued_again(void **state)
{
    char hash[33], got[33], steps[64];
    cluster_or_skip();
    submit("batch", "--overcommit --time=1 --signal=USR1@40 --requeue --open-mode=append",
           "steps=1000000\n"
           "[ \"${SLURM_RESTART_COUNT:-0}\" -gt 0 ] &&\n"
           "    steps=$(($(ls batch/checkpoints | sed -n 's/^step-0*//p' | sort -n | tail -n "
           "1) + 2))\n"
           "srun --mpi=pmix --overcommit '%s' train " KEYS
           "parallel.dp=2 train.out=batch train.resume=auto train.steps=$steps\n"
           "code=$?\n"
           "echo \"life ${SLURM_RESTART_COUNT:-0} of $steps steps ended with $code\"\n"
           "[ $code -eq 21 ] && scontrol requeue $SLURM_JOB_ID\n"
           "exit $code\n",
           program);
    await_words("batch.txt", "ended with 21");
    /* Slurm would wait for two minutes before it begins again. It is told to begin soon, but only
     * some seconds after the job has left the node: a node refuses what was granted before it heard
     * that the job is to end, and Slurm then takes the job for finished. */
    while (run("squeue --noheader --jobs=$(cat job.txt) --format=%T | grep -qx PENDING"))
        await_rest();
    while (run("sinfo --noheader --format=%T | grep -qx idle"))
        await_rest();
    run("scontrol update jobid=$(cat job.txt) starttime=now+5 timelimit=10");
    await_words("batch.txt", "going on after step ");
    await_words("batch.txt", "life 1 of ");
    char *batch = scratch_read(scratch_path(directory, "batch.txt"), NULL);
    const char *life = strstr(batch, "life 1 of ");
    int last = atoi(life + strlen("life 1 of "));
    if (!strstr(life, "ended with 0\n") || !strstr(batch, "going on after step "))
        fail_msg("the job said:\n%s", batch);
    hash_find(batch, got);
    free(batch);
    snprintf(steps, sizeof steps, "train.steps=%d", last);
    hash_of_one_rank(steps, hash);
    assert_string_equal(got, hash);
}

/* A script's own processes are ranks of nobody, whatever its variables say. */
static void test_a_batch_job_without_srun(void **state)
{
    char hash[33], got[33];
    cluster_or_skip();
    hash_of_one_rank("train.steps=2", hash);
    submit("threads", "--overcommit --time=2",
           "'%s' train " KEYS "parallel.dp=2 train.steps=2 train.out=threads\n"
           "echo \"train: $?\"\n"
           "'%s' audit threads --steps 1 parallel.dp=2 > audit.txt\n"
           "echo \"audit: $?\"\n",
           program, program);
    await_words("threads.txt", "audit: ");
    char *threads = scratch_read(scratch_path(directory, "threads.txt"), NULL);
    assert_text_contains(threads, "train: 0\n");
    assert_text_contains(threads, "audit: 0\n");
    hash_find(threads, got);
    free(threads);
    assert_string_equal(got, hash);
}

/* The process of rank 0, by the lock of the run's folder. */
static pid_t rank_0(const char *out)
{
    char name[64];
    long pid = 0;
    snprintf(name, sizeof name, "%s/lock", out);
    char *text = scratch_read(scratch_path(directory, name), NULL);
    assert_int_equal(sscanf(text, "host %*s pid %ld", &pid), 1);
    free(text);
    return (pid_t)pid;
}

/* One step of srun after the other inside the allocation: a rank is killed, and the job goes on. */
static void test_a_launched_job(void **state)
{
    cluster_or_skip();
    submit("launched", "--overcommit --time=10", LAUNCHER "train.out=launched train.save_every=4\n",
           program);
    await_words("launched/metrics.jsonl", "\"step\": 6,");
    assert_int_equal(kill(rank_0("launched"), SIGKILL), 0);
    await_words("launched/events.jsonl", "\"going_on\"");
    assert_int_equal(run("kill -TERM $(cat launcher.txt)"), 0);
    await_words("launched/events.jsonl", "\"stopped\"");
    assert_int_equal(launched_events(directory, "launched", "failed", "\"kind\": \"killed\""), 1);
    assert_int_equal(launched_events(directory, "launched", "going_on", "\"from\": 0,"), 0);
    launched_expect_same(directory, "launched");
}

/* An administrator sets a node DOWN under a job, which goes on on the other one, also once the node
 * is up again: it is no more of the allocation. asked.txt has a line each time that the launcher
 * asks for nodes. */
static void test_a_node_that_is_set_down(void **state)
{
    cluster_or_skip();
    assert_int_equal(run("mkdir asks && echo \"#!/bin/sh\necho >> $PWD/asked.txt\n"
                         "exec $(command -v sinfo) \\\"\\$@\\\"\" > asks/sinfo && "
                         "chmod +x asks/sinfo"),
                     0);
    submit("down", "--partition=both --nodes=2 --no-kill --time=10",
           "export OMPI_MCA_btl_tcp_if_include=lo PATH=\"$PWD/asks:$PATH\"\n" LAUNCHER
           "launch.pause_s=0.2 train.out=down train.save_every=4\n",
           program);
    await_words("down/metrics.jsonl", "\"step\": 6,");
    assert_int_equal(run("scontrol update nodename=weak state=DOWN reason=test"), 0);
    await_words("down/events.jsonl", "\"going_on\"");
    run("scontrol update nodename=weak state=RESUME"); /* refused, if it came back by itself */
    while (run("sinfo --noheader --Node --partition=both --format='%N %T' | grep -qx 'weak idle'"))
        await_rest();
    assert_int_equal(run("cp asked.txt before.txt"), 0);
    while (run("test $(wc -l < asked.txt) -gt $(wc -l < before.txt)"))
        await_rest();
    assert_int_equal(launched_events(directory, "down", "host_back", NULL), 0);
    assert_int_equal(run("kill -TERM $(cat launcher.txt)"), 0);
    await_words("down/events.jsonl", "\"stopped\"");
    assert_int_equal(launched_events(directory, "down", "host_lost", "\"weak\""), 1);
    assert_int_equal(launched_events(directory, "down", "start", "\"hosts\": \"node:1\""), 1);
    assert_int_equal(launched_events(directory, "down", "going_on", "\"from\": 0,"), 0);
    launched_expect_same(directory, "down");
}

/* Neither srun nor Slurm sees that all ranks are stopped. */
static void test_a_launched_job_that_is_stopped(void **state)
{
    const char *words[] = {"train", "train.out=halted"};
    pid_t ranks[2];
    cluster_or_skip();
    submit("halted", "--overcommit --time=10",
           LAUNCHER "train.out=halted train.save_every=4 comm.timeout_s=3\n", program);
    await_words("halted/metrics.jsonl", "\"step\": 6,");
    assert_int_equal(program_ranks(directory, words, 2, ranks, 2), 2);
    for (int i = 0; i < 2; i++)
        assert_int_equal(kill(ranks[i], SIGSTOP), 0);
    await_words("halted/events.jsonl", "\"going_on\"");
    assert_int_equal(run("kill -TERM $(cat launcher.txt)"), 0);
    await_words("halted/events.jsonl", "\"stopped\"");
    assert_int_equal(launched_events(directory, "halted", "failed", "and rank 0 on "), 1);
    launched_expect_same(directory, "halted");
}

/* Slurm signals the launcher and the ranks, and the launcher asks rank 0 too: it saves all the
 * same. */
static void test_a_launched_job_that_is_cancelled(void **state)
{
    cluster_or_skip();
    submit("cancelled", "--overcommit --time=10", LAUNCHER "train.out=cancelled\n", program);
    await_words("cancelled/metrics.jsonl", "\"step\": 2,");
    assert_int_equal(run("scancel $(cat job.txt)"), 0);
    await_words("cancelled/events.jsonl", "\"stopped\"");
    assert_int_equal(launched_events(directory, "cancelled", "failed", NULL), 0);
    launched_expect_same(directory, "cancelled");
}

/* Rank 0 cannot save, so the second signal ends the step: on all nodes, though srun is killed. The
 * allocation lives until no step is left in it. */
static void test_a_step_that_is_ended(void **state)
{
    cluster_or_skip();
    assert_int_equal(mkfifo(scratch_path(directory, "looked"), 0600), 0);
    submit("ended", "--overcommit --time=10",
           LAUNCH "train.out=ended & echo $! > launcher.txt\n"
                  "wait $!\necho \"launcher: $?\"\n"
                  "read -r word < looked\n",
           program);
    await_words("ended/metrics.jsonl", "\"step\": 2,");
    assert_int_equal(kill(rank_0("ended"), SIGSTOP), 0);
    assert_int_equal(run("kill -TERM $(cat launcher.txt)"), 0);
    assert_int_equal(run("kill -USR1 $(cat launcher.txt)"), 0);
    await_words("ended.txt", "launcher: 143");
    while (run("squeue --noheader --steps --format=%j | grep -q ^lockstep") == 0)
        await_rest();
    assert_int_equal(run("echo none is left > looked"), 0);
}

/* Nobody signals it: the launcher knows when the allocation ends, and saves before. */
static void test_the_end_of_an_allocation(void **state)
{
    cluster_or_skip();
    submit("minute", "--overcommit --time=1",
           LAUNCH "train.out=minute train.save_every=8\necho \"launcher: $?\"\n", program);
    await_words("minute.txt", "launcher: 21");
    assert_int_equal(launched_events(directory, "minute", "deadline", NULL), 1);
    assert_int_equal(launched_events(directory, "minute", "failed", "killed"), 0);
    launched_expect_same(directory, "minute");
}

int main(void)
{
    const struct CMUnitTest usual[] = {
        cmocka_unit_test(test_srun),
        cmocka_unit_test(test_a_launched_job),
        cmocka_unit_test(test_a_launched_job_that_is_cancelled),
        cmocka_unit_test(test_a_step_that_is_ended),
        cmocka_unit_test(test_a_batch_job_without_srun),
    };
    const struct CMUnitTest all[] = {
        cmocka_unit_test(test_srun),
        cmocka_unit_test(test_a_launched_job),
        cmocka_unit_test(test_a_launched_job_that_is_cancelled),
        cmocka_unit_test(test_a_step_that_is_ended),
        cmocka_unit_test(test_a_batch_job_without_srun),
        cmocka_unit_test(test_a_node_that_is_set_down),
        cmocka_unit_test(test_a_launched_job_that_is_stopped),
        cmocka_unit_test(test_the_end_of_an_allocation),
        cmocka_unit_test(test_a_batch_job_is_signalled_and_queued_again),
    };
    return check_all() ? cmocka_run_group_tests_name("slurm", all, setup, teardown)
                       : cmocka_run_group_tests_name("slurm", usual, setup, teardown);
}
