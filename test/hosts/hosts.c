/* Makes two hosts of namespaces, and ends what runs on them. */
#include "hosts.h"
#include "../support/await.h"
#include "../support/child.h"
#include "../support/suite.h"

#include "../cmd/run_program.h"
#include "../support/scratch.h"

#include <lockstep/base.h>
#include <lockstep/device.h>

#include <dirent.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define NETWORK "10.77.0"
/* What a host runs has one core: ranks that wait leave it to each other. */
#define ENTER "taskset -c %d nsenter -t %ld -n -u env OMPI_MCA_mpi_yield_when_idle=1 "

char *hosts_directory, hosts_name[HOSTS][32];
static pid_t holders[HOSTS], relay;
static struct link_counts *counts; /* of the relay */
static const char *missing = "they were not made";

/* ---- the hosts ------------------------------------------------------------------------------- */

/* A process that holds a host and sleeps; 0 where the system does not let it. */
static pid_t holder_start(int host)
{
    int ready[2];
    char byte = 0;
    snprintf(hosts_name[host], sizeof hosts_name[host], "ls%c%ld", 'a' + host, (long)getpid());
    assert_int_equal(pipe(ready), 0);
    pid_t child = child_fork(SIGKILL);
    if (child == 0) {
        byte = unshare(CLONE_NEWNET | CLONE_NEWUTS) == 0 &&
               sethostname(hosts_name[host], strlen(hosts_name[host])) == 0;
        ssize_t told = write(ready[1], &byte, 1);
        while (byte && told == 1)
            pause();
        _exit(1);
    }
    close(ready[1]);
    bool made = read(ready[0], &byte, 1) == 1 && byte;
    close(ready[0]);
    if (made)
        return child;
    waitpid(child, NULL, 0);
    return 0;
}

static int run_on(int host, const char *command)
{
    char line[1024];
    snprintf(line, sizeof line, "nsenter -t %ld -n -u sh -c '%s'", (long)holders[host], command);
    return system(line);
}

/* The system carries packets some time after a cable is in. Of a TAP device it does not know more
 * than that it is not down. */
static void link_await(void)
{
    for (int up = 0; up < HOSTS; up++)
        while (run_on(up, relay ? "ip -o link show cable | grep -q \"state UNKNOWN\""
                                : "ip -o link show cable | grep -q \"state UP\"") != 0)
            await_pause();
}

/* Gives its ends their addresses. */
static bool cable_up(void)
{
    char line[128];
    for (int i = 0; i < HOSTS; i++) {
        snprintf(line, sizeof line,
                 "ip addr add " NETWORK ".%d/24 dev cable && ip link set cable up", i + 1);
        if (run_on(i, line) != 0)
            return false;
    }
    link_await();
    return true;
}

int hosts_core(int host)
{
    struct ls_core_set may;
    assert_true(ls_device_core_set(&may));
    int left = host % ls_device_cores_of(&may), core = 0;
    while (!(may.bits[core / 64] >> core % 64 & 1) || left-- > 0)
        core++;
    return core;
}

/* What stands in for ssh: `agent <host> <words>`. Like ssh it comes to the other host by the cable,
 * and waits for a host that was lost. */
static void agent_write(const char *path)
{
    char text[1024];
    int length = snprintf(
        text, sizeof text,
        "#!/bin/sh\ncase $1 in\n%s) holder=%ld core=%d ;;\n%s) holder=%ld core=%d ;;\n"
        "*) exit 255 ;;\nesac\nshift\n"
        "[ ! -e \"$0.deaf\" ] || exit 255\n"
        "nsenter -t $holder -n ip -o link show cable | grep -Eq 'state (UP|UNKNOWN)' || exit 255\n"
        "taskset -c $core nsenter -t $holder -n -u sh -c \"$*\"\ncode=$?\n"
        "[ ! -p \"$0.silent\" ] || read -r word < \"$0.silent\"\nexit $code\n",
        hosts_name[0], (long)holders[0], hosts_core(0), hosts_name[1], (long)holders[1],
        hosts_core(1));
    scratch_write(path, text, (size_t)length);
    assert_int_equal(chmod(path, 0755), 0);
}

static bool cable_plug(void)
{
    char line[128];
    snprintf(line, sizeof line, "ip link add cable type veth peer name cable netns %ld",
             (long)holders[1]);
    return run_on(0, line) == 0 && cable_up();
}

/* Why there are no hosts; NULL where they are up. The launcher that a lost cable leaves alone ends
 * when TCP gives up: after seconds here, not after a quarter of an hour. */
static const char *hosts_up(void)
{
#ifndef LS_WITH_MPI
    return "built without MPI";
#endif
    if (system("mpirun --version 2>/dev/null | grep -q 'Open MPI'") != 0)
        return "no mpirun of Open MPI (Debian: openmpi-bin)";
    if (system("command -v ip nsenter taskset >/dev/null") != 0)
        return "no ip, nsenter or taskset (Debian: iproute2, util-linux)";
    for (int i = 0; i < HOSTS; i++)
        if (!(holders[i] = holder_start(i)))
            return "this process may not make network namespaces (root with CAP_SYS_ADMIN may)";
    for (int i = 0; i < HOSTS; i++)
        if (run_on(i, "ip link set lo up && echo 5 > /proc/sys/net/ipv4/tcp_retries2") != 0)
            return "the network of a namespace cannot be set up";
    return cable_plug() ? NULL : "this system has no virtual cables (veth)";
}

int hosts_setup(void **state)
{
    int status = scratch_setup(state);
    hosts_directory = *state;
    program_corpus(*state);
    missing = hosts_up();
    if (!missing)
        agent_write(scratch_path(*state, "agent"));
    return status;
}

int hosts_teardown(void **state)
{
    for (int i = 0; i < HOSTS; i++) {
        if (holders[i] <= 0)
            continue;
        kill(holders[i], SIGKILL);
        waitpid(holders[i], NULL, 0);
    }
    return scratch_teardown(state);
}

void hosts_or_skip(void)
{
    if (!missing)
        return;
    print_message("SKIPPED: two hosts cannot be made here: %s\n", missing);
    skip();
}

void hosts_link(bool up)
{
    assert_int_equal(run_on(0, up ? "ip link set cable up" : "ip link set cable down"), 0);
    if (up)
        link_await();
}

const struct link_counts *hosts_cable(const struct link_faults *faults)
{
    if (relay) {
        kill(relay, SIGKILL);
        waitpid(relay, NULL, 0);
        relay = 0;
        munmap(counts, sizeof *counts);
    } else {
        assert_int_equal(run_on(0, "ip link del cable"), 0);
    }
    if (!faults) {
        assert_true(cable_plug());
        return NULL;
    }
    counts = mmap(NULL, sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(counts != MAP_FAILED);
    relay = link_relay_start(holders, "cable", faults, counts);
    if (relay) {
        assert_true(cable_up());
        return counts;
    }
    munmap(counts, sizeof *counts);
    assert_true(cable_plug());
    return NULL;
}

void hosts_silence(bool silent)
{
    const char *deaf = scratch_path(hosts_directory, "agent.deaf");
    counts->silent = silent;
    if (silent)
        scratch_write(deaf, "", 0);
    else
        assert_int_equal(unlink(deaf), 0);
}

bool hosts_shape(int mbit_per_s)
{
    char line[128];
    for (int i = 0; i < HOSTS; i++) {
        snprintf(line, sizeof line,
                 "tc qdisc replace dev cable root tbf rate %dmbit burst 16kb latency 100ms",
                 mbit_per_s);
        if (run_on(i, line) != 0)
            return false;
    }
    return true;
}

/* ---- jobs ------------------------------------------------------------------------------------ */

/* The ranks of the job that trains into directory/out; 0 for those that are not there. */
static int job_find(const char *directory, const char *out, pid_t pids[HOSTS_RANKS_MAX])
{
    char word[PATH_MAX];
    const char *words[] = {"train", word};
    snprintf(word, sizeof word, "train.out=%s/%s", directory, out);
    return program_ranks(NULL, words, 2, pids, HOSTS_RANKS_MAX);
}

pid_t hosts_start(const char *directory, int each, const char *out, const char *command)
{
    char line[4 * PATH_MAX];
    snprintf(line, sizeof line,
             "cd '%s' && exec " ENTER "OMP_WAIT_POLICY=passive "
             "ASAN_OPTIONS=detect_leaks=0 OMPI_ALLOW_RUN_AS_ROOT=1 "
             "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe "
             "--mca plm_rsh_agent '%s/agent' --mca oob_tcp_if_include " NETWORK ".0/24 "
             "--mca btl_tcp_if_include " NETWORK ".0/24 --host %s:%d,%s:%d -n %d %s > %s.log 2>&1",
             directory, hosts_core(0), (long)holders[0], directory, hosts_name[0], each,
             hosts_name[1], each, HOSTS * each, command, out);
    return program_start(line, SIGTERM);
}

/* What stands before the program and its --hosts, which the file `hosts` is for. */
static void launch_words(const char *directory, int first, int each, char words[4 * PATH_MAX])
{
    char list[128];
    int length = snprintf(list, sizeof list, "%s slots=%d\n%s slots=%d\n", hosts_name[first], each,
                          hosts_name[!first], each);
    scratch_write(scratch_path(directory, "hosts"), list, (size_t)length);
    snprintf(
        words, (size_t)4 * PATH_MAX,
        ENTER
        "OMP_WAIT_POLICY=passive "
        "ASAN_OPTIONS=detect_leaks=0 LOCKSTEP_PEAK_FLOPS=1e12 OMPI_MCA_plm_rsh_agent='%s/agent' "
        "OMPI_MCA_oob_tcp_if_include=" NETWORK ".0/24 OMPI_MCA_btl_tcp_if_include=" NETWORK ".0/24",
        hosts_core(0), (long)holders[0], directory);
}

pid_t hosts_launch(const char *directory, int first, int each, const char *out,
                   const char *arguments)
{
    char program[PATH_MAX], words[4 * PATH_MAX], line[8 * PATH_MAX];
    program_path(program, sizeof program);
    launch_words(directory, first, each, words);
    snprintf(line, sizeof line,
             "cd '%s' && exec %s '%s' launch --hosts hosts train.out=%s %s > %s.log 2>&1",
             directory, words, program, out, arguments, out);
    return program_start(line, SIGKILL);
}

int hosts_hold(int each)
{
    void *state;
    char words[4 * PATH_MAX], byte;
    int status = hosts_setup(&state);
    if (missing)
        fprintf(stderr, "two hosts cannot be made here: %s\n", missing);
    if (!status && !missing) {
        launch_words(hosts_directory, 0, each, words);
        printf("%s\n%s/hosts\n", words, hosts_directory);
        fflush(stdout);
        while (read(STDIN_FILENO, &byte, 1) > 0)
            continue;
    }
    hosts_teardown(&state);
    return status || missing;
}

pid_t hosts_train(const char *directory, int each, const char *out, const char *arguments)
{
    char program[PATH_MAX], command[3 * PATH_MAX];
    program_path(program, sizeof program);
    snprintf(command, sizeof command,
             "'%s' train data.train='%s/corpus_train' train.out='%s/%s' %s", program, directory,
             directory, out, arguments);
    return hosts_start(directory, each, out, command);
}

char *hosts_said(const char *directory, const char *out)
{
    char name[64];
    snprintf(name, sizeof name, "%s.log", out);
    return scratch_read(scratch_path(directory, name), NULL);
}

static void await_job(pid_t launcher, const char *directory, const char *out)
{
    char name[64];
    snprintf(name, sizeof name, "%s.log", out);
    program_await_job(launcher, scratch_path(directory, name));
}

void hosts_wait_steps(pid_t launcher, const char *directory, const char *out, int ranks,
                      pid_t *pids)
{
    char name[64];
    struct stat found;
    snprintf(name, sizeof name, "%s/metrics.jsonl", out);
    while (stat(scratch_path(directory, name), &found) != 0 || found.st_size == 0)
        await_job(launcher, directory, out);
    assert_int_equal(job_find(directory, out, pids), ranks);
}

int hosts_last_step(const char *directory, const char *out)
{
    char name[64];
    int last = 0, step;
    snprintf(name, sizeof name, "%s/checkpoints", out);
    DIR *list = opendir(scratch_path(directory, name));
    for (struct dirent *entry; list && (entry = readdir(list));)
        if (sscanf(entry->d_name, "step-%d", &step) == 1 && !strchr(entry->d_name, '.') &&
            step > last)
            last = step;
    if (list)
        closedir(list);
    return last;
}

void hosts_wait_checkpoint(pid_t launcher, const char *directory, const char *out)
{
    while (!hosts_last_step(directory, out))
        await_job(launcher, directory, out);
}

static void network_of(pid_t pid, char network[64])
{
    char name[64];
    snprintf(name, sizeof name, "/proc/%ld/ns/net", (long)pid);
    ssize_t bytes = readlink(name, network, 63);
    network[bytes > 0 ? bytes : 0] = '\0';
}

/* How many processes are on a host, but for the one that holds it: launchers, their daemons (which
 * outlive the launcher by a second) and ranks. They get the signal; 0: none. */
static int processes_of(int host, int signal)
{
    char network[64], other[64];
    int found = 0;
    network_of(holders[host], network);
    DIR *proc = opendir("/proc");
    assert_true(proc && network[0]);
    for (struct dirent *entry; (entry = readdir(proc));) {
        pid_t pid = (pid_t)atoi(entry->d_name);
        if (pid <= 0 || pid == holders[host])
            continue;
        network_of(pid, other);
        if (strcmp(network, other) != 0)
            continue;
        kill(pid, signal);
        found++;
    }
    closedir(proc);
    return found;
}

static bool hosts_busy(void)
{
    return processes_of(0, 0) + processes_of(1, 0) > 0;
}

void hosts_lose(const char *directory, int host)
{
    hosts_link(false);
    assert_int_equal(mkfifo(scratch_path(directory, "agent.silent"), 0600), 0);
    while (processes_of(host, SIGKILL))
        await_pause();
}

int hosts_end(pid_t launcher)
{
    int status;
    assert_int_equal(waitpid(launcher, &status, 0), launcher);
    while (hosts_busy())
        await_pause();
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
