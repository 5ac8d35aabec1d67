/* What the launcher makes of a job's end, with an mpirun that ends as it is told to; and its errors
 * about what it is given. */
/* check: waits */
#include "../cmd/run_program.h"
#include "../support/await.h"
#include "../support/config_words.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "launch/launch_private.h"
#include "launched.h"

#include <lockstep/base.h>
#include <lockstep/base/file.h>

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char *folder;
static char enter[PATH_MAX + 64];

static void script_write(const char *name, const char *text)
{
    scratch_write(scratch_path(folder, name), text, strlen(text));
    assert_int_equal(chmod(scratch_path(folder, name), 0755), 0);
}

/* What a rank hands out as it ends. */
#define END(c, rank, why)       "{\"lockstep_end\":" #c ",\"rank\":" rank ",\"text\":\"" why "\"}"
#define LATE(rank, cause, text) END(19, #rank ",\"cause\":\"" cause "\"", text)
#define FAULTY(text)            END(20, "1,\"cause\":\"faulty\"", text)

/* bin/mpirun says `said` on stderr and ends with `code`. */
static void mpirun_write(const char *said, int code)
{
    char text[1024];
    snprintf(text, sizeof text,
             "#!/bin/sh\ncase \"$*\" in *--version*) echo Open MPI; exit 0 ;; esac\n"
             "cat >&2 <<'END'\n%s\nEND\nexit %d\n",
             said, code);
    script_write("bin/mpirun", text);
}

static int setup(void **state)
{
    int status = scratch_setup(state);
    folder = *state;
    program_corpus(folder);
    mkdir(scratch_path(folder, "bin"), 0755);
    mpirun_write("", 0);
    snprintf(enter, sizeof enter, "cd '%s'; unset SLURM_JOB_NODELIST; PATH=\"$PWD/bin:$PATH\"",
             folder);
    return status;
}

static void skip_without_mpi(void)
{
#ifndef LS_WITH_MPI
    print_message("SKIPPED: launching: built without MPI\n");
    skip();
#endif
}

/* ---- what they start ------------------------------------------------------------------------- */

static void expect_started(char **save, const char *hosts, const char *keys)
{
    const char *line = strtok_r(NULL, "\n", save);
    if (!line || !strstr(line, hosts) || !strstr(line, keys))
        fail_msg("started: %s\nexpected: %s and: %s", line ? line : "nothing", hosts, keys);
}

CASE(test_words_that_mpirun_gets)
{
    static const struct {
        const char *environment, *words, *without;
    } cases[] = {
        {"", " train -- -odd.yaml ", NULL}, /* a file, and no option */
        {"", " --bind-to none ", NULL},     /* else it binds two ranks to one core each */
        {"OMPI_MCA_hwloc_base_binding_policy=core", " -n 1 ", "--bind-to"},
        {"OMPI_MCA_rmaps_base_mapping_policy=slot:PE=2", " -n 1 ", "--bind-to"},
        {"", " --mca ras ^slurm,tm,lsf,gridengine,alps ", NULL}, /* --ranks: here */
        {"OMPI_MCA_ras=simulator", " -n 1 ", "--mca ras"},
    };
    skip_without_mpi();
    script_write("bin/mpirun",
                 "#!/bin/sh\ncase \"$*\" in *--version*) echo Open MPI; exit 0 ;; esac\n"
                 "echo \"$*\" > words\n");
    script_write("-odd.yaml", "data: {train: corpus_train}\nmodel: {preset: gpt2-tiny}\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char before[2 * PATH_MAX];
        snprintf(before, sizeof before,
                 "%s; unset OMPI_MCA_hwloc_base_binding_policy OMPI_MCA_rmaps_base_mapping_policy "
                 "OMPI_MCA_ras; %s",
                 enter, cases[i].environment);
        program_expect_under(before, "launch --ranks 1 -- -odd.yaml train.out=words_of", 0, "");
        char *words = scratch_read(scratch_path(folder, "words"), NULL);
        assert_text_contains(words, cases[i].words);
        assert_true(!cases[i].without || !strstr(words, cases[i].without));
        free(words);
    }
}

/* Slurm's programs, of which squeue knows when the allocation ends, or ends with a failure. The job
 * records what is in `records`. */
static void slurm_write(const char *left)
{
    char text[256];
    script_write("bin/scontrol", "#!/bin/sh\necho node1\n");
    script_write("bin/sinfo", "#!/bin/sh\necho node1 idle\n");
    script_write("bin/srun", "#!/bin/sh\ncase \"$*\" in --version|--mpi=list) exit 0 ;; esac\n"
                             "trap 'rm slurm/lock; exit 21' USR1\n[ -p never ] || mkfifo never\n"
                             "[ ! -e records ] || cp records slurm/metrics.jsonl\n"
                             "echo host node7 pid 4711 started 1 since now > slurm/lock\n"
                             "cat never &\nwait $!\n");
    snprintf(text, sizeof text, "#!/bin/sh\n%s\n", left);
    script_write("bin/squeue", text);
}

/* ---- ends ------------------------------------------------------------------------------------ */

/* Each end, what it is called, and how often the job is started with launch.retries=2. */
CASE(test_what_an_end_means)
{
    static const struct {
        int code;
        const char *said, *kind, *text;
        int starts;
    } ends[] = {
        {16, END(16, "0", "out: full of errors"), "disk", "out: full of errors", 1},
        {17, END(17, "0", "no space left"), "disk", "no space left", 1},
        {20, END(20, "0", "step 3 is not finite"), "nonfinite", "step 3 is not finite", 2},
        {20, FAULTY("the state of rank 1 differs"), "mismatch", "the state of rank 1 differs", 3},
        /* Words decide nothing, and what mpirun puts before lines, neither. */
        {20, END(20, "1", "memory of rank 1 is faulty"), "nonfinite", "memory of rank 1", 2},
        {20, "[1,1]<stderr>:" FAULTY("step 3 was computed twice"), "mismatch",
         "step 3 was computed twice", 3},
        {15, END(15, "0", "step-3 is damaged"), "checkpoint", "step-3 is damaged", 1},
        {2, END(2, "0", "no such key"), "configuration", "no such key", 1},
        {13, END(13, "0", "3 ranks"), "configuration", "3 ranks", 1},
        {14, "", "configuration", "the job ended with 14", 1},
        {22, "", "configuration", "the job ended with 22", 1},
        {23, "", "configuration", "the job ended with 23", 1},
        {18, END(18, "0", "no memory for it"), "memory", "no memory for it", 3},
        {19, LATE(3, "late", "late are two") "\n" LATE(0, "late_one", "late is rank 1"), "late",
         "rank 0: late is rank 1", 3},
        {19, LATE(3, "other", "it timed out in words"), "communication", "rank 3: it timed out", 3},
        {137,
         "mpirun noticed that process rank 2 with PID 0 on node vm exited on signal 9 (Killed).",
         "killed", "rank 2 on vm was ended by signal 9", 3},
        {134, "", "killed", "the job ended with 134", 3},
        {1, "", "other", "the job ended with 1", 3},
    };
    skip_without_mpi();
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        char arguments[512];
        mpirun_write(ends[i].said, ends[i].code);
        snprintf(arguments, sizeof arguments,
                 "launch " LAUNCHED_KEYS "train.out=end%zu launch.retries=2 launch.pause_s=0", i);
        program_expect_under(enter, arguments, ends[i].code, ends[i].text);
        char name[32];
        snprintf(name, sizeof name, "end%zu", i);
        char kind[64];
        snprintf(kind, sizeof kind, "\"kind\": \"%s\"", ends[i].kind);
        if (launched_events(folder, name, "failed", kind) != ends[i].starts ||
            launched_events(folder, name, "start", NULL) != ends[i].starts ||
            launched_events(folder, name, "gave_up", ends[i].text) != 1)
            fail_msg("end %zu (%d): %s", i, ends[i].code,
                     scratch_read(scratch_path(folder, strcat(name, "/events.jsonl")), NULL));
    }
}

/* A job goes on if nobody reads any more what it prints, and mpirun would end at that. What it
 * prints is handed on otherwise. */
CASE(test_a_reader_of_the_output_that_is_gone)
{
    char words[PATH_MAX + 128];
    skip_without_mpi();
    script_write("bin/mpirun",
                 "#!/bin/sh\ncase \"$*\" in *--version*) echo Open MPI; exit 0 ;; esac\n"
                 "for i in 1 2 3; do echo $i of 3 || exit 1; done\n");
    snprintf(words, sizeof words, "%s; mkfifo deaf; exec 4<>deaf 5>deaf 4>&-;", enter);
    program_expect_under(words, "launch " LAUNCHED_KEYS "train.out=deaf.run launch.retries=0 >&5",
                         0, "");
    assert_int_equal(launched_events(folder, "deaf.run", "failed", NULL), 0);
    program_expect_under(enter, "launch " LAUNCHED_KEYS "train.out=read.run launch.retries=0", 0,
                         "1 of 3\n2 of 3\n3 of 3\n");
}

/* A pipe of 4096 bytes, a page, that is full: its end to read from. */
static int slow_open(const char *path)
{
    char page[PIPE_BUF];
    memset(page, '-', sizeof page);
    assert_int_equal(mkfifo(path, 0600), 0);
    int fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    assert_true(fcntl(fd, F_SETPIPE_SZ, PIPE_BUF) >= PIPE_BUF);
    while (write(fd, page, sizeof page) > 0)
        continue;
    return fd;
}

/* With an mpirun that is this script, and with such a pipe as its output. */
static pid_t slow_start(const char *out, const char *script, const char *arguments, int *reader)
{
    char program[PATH_MAX], line[4 * PATH_MAX], text[1024], path[64];
    snprintf(text, sizeof text,
             "#!/bin/sh\ncase \"$*\" in *--version*) echo Open MPI; exit 0 ;; esac\n%s", script);
    script_write("bin/mpirun", text);
    snprintf(path, sizeof path, "%s.reader", out);
    *reader = slow_open(scratch_path(folder, path));
    program_path(program, sizeof program);
    snprintf(line, sizeof line,
             "%s OMPI_MCA_plm_rsh_agent=./slow_agent exec '%s' launch " LAUNCHED_KEYS
             "train.out=%s %s > %s 2> %s.log",
             enter, program, out, arguments, path, out);
    return program_start(line, SIGKILL);
}

/* Until it waits for nothing but the reader: asleep, without its lock. */
static void slow_await(pid_t launcher, const char *out)
{
    char lock[64], log[64], who[256], stat[64], text[512] = "";
    snprintf(lock, sizeof lock, "%s/launch", out);
    snprintf(log, sizeof log, "%s.log", out);
    snprintf(stat, sizeof stat, "/proc/%ld/stat", (long)launcher);
    while (ls_lock_look(scratch_path(folder, lock), who, sizeof who) == LS_LOCK_HELD)
        program_await_job(launcher, scratch_path(folder, log));
    do
        program_await_job(launcher, scratch_path(folder, log));
    while (ls_file_head(stat, text, sizeof text) && !strstr(text, ") S "));
}

static void slow_drain(int reader)
{
    char text[PIPE_BUF];
    for (int page = fcntl(reader, F_GETPIPE_SZ) / PIPE_BUF; page > 0; page--)
        assert_int_equal(read(reader, text, PIPE_BUF), PIPE_BUF); /* the word may be behind */
}

/* A reader that is slow gets all, and holds up no other launcher of the run. */
CASE(test_a_reader_of_the_output_that_is_slow)
{
    char text[PIPE_BUF];
    int reader;
    skip_without_mpi();
    pid_t launcher = slow_start("late.run", "echo the last word\n", "", &reader);
    launched_await_event(launcher, folder, "late.run", "done", 1);
    slow_await(launcher, "late.run");
    slow_drain(reader);
    assert_int_equal(launched_end(launcher), 0);
    ssize_t got = read(reader, text, sizeof text - 1);
    text[ls_max(got, 0)] = '\0';
    assert_string_equal(text, "the last word\n");
    close(reader);
}

/* The next signal ends the wait for the reader, whatever the first was: the terminal may be closed
 * while the job runs. */
CASE(test_a_reader_that_is_slow_and_a_signal)
{
    char text[PIPE_BUF];
    int reader;
    skip_without_mpi();
    void (*before)(int) = signal(SIGHUP, SIG_DFL); /* the tests may run under nohup */
    pid_t launcher = slow_start("hangs_up", "echo unread\nkill -HUP $PPID\n", "", &reader);
    signal(SIGHUP, before);
    launched_await_event(launcher, folder, "hangs_up", "done", 1);
    assert_int_equal(launched_ask(launcher), 0);
    slow_drain(reader);
    assert_int_equal(read(reader, text, sizeof text), -1);
    close(reader);
}

/* The launcher hands on while it waits, for the next start or for a host: of two pages the first.
 * The signal that ends that does not end the wait for the reader. */
CASE(test_a_reader_that_is_slow_between_starts)
{
    static const char *const waits[] = {"launch.pause_s=600", "--hosts slow_host"};
    skip_without_mpi();
    scratch_write(scratch_path(folder, "slow_host"), "a slots=2\n", 10);
    script_write("slow_agent", "#!/bin/sh\n! [ -e printed ]\n");
    for (int i = 0; i < 2; i++) {
        char page[PIPE_BUF], out[] = "between0", log[] = "between0.log";
        int reader;
        out[7] = log[7] = (char)('0' + i);
        unlink(scratch_path(folder, "printed"));
        pid_t launcher = slow_start(out,
                                    "if ! [ -e printed ]; then\n    printf %4096s 1\n"
                                    "    printf %4096s 2\nfi\n: > printed\nexit 1\n",
                                    waits[i], &reader);
        launched_await_event(launcher, folder, out, i ? "host_lost" : "failed", i ? 1 : 2);
        slow_drain(reader);
        for (int there = 0; !ioctl(reader, FIONREAD, &there) && !there;)
            program_await_job(launcher, scratch_path(folder, log));
        assert_int_equal(kill(launcher, SIGTERM), 0);
        launched_await_event(launcher, folder, out, "stopped", 1);
        assert_int_equal(read(reader, page, sizeof page), sizeof page);
        assert_int_equal(page[PIPE_BUF - 1], '1');
        assert_int_equal(launched_end(launcher), ls_exit_code(LS_ESTOPPED));
        assert_int_equal(read(reader, page, sizeof page), sizeof page);
        assert_int_equal(page[PIPE_BUF - 1], '2');
        close(reader);
    }
}

/* Neither does a signal that comes while hosts are asked, before the launcher gives up. */
CASE(test_a_reader_that_is_slow_as_the_launcher_gives_up)
{
    char text[PIPE_BUF] = "";
    int reader;
    skip_without_mpi();
    scratch_write(scratch_path(folder, "slow_host"), "a slots=2\n", 10);
    script_write("slow_agent", "#!/bin/sh\n[ ! -e gave_out/failed ] || kill -TERM $PPID\n");
    pid_t launcher = slow_start("gave_out", "echo the last word\n: > gave_out/failed\nexit 1\n",
                                "--hosts slow_host launch.retries=0", &reader);
    launched_await_event(launcher, folder, "gave_out", "gave_up", 1);
    slow_await(launcher, "gave_out");
    slow_drain(reader);
    assert_int_equal(launched_end(launcher), 1);
    assert_true(read(reader, text, sizeof text - 1) > 0);
    assert_string_equal(text, "the last word\n");
    close(reader);
}

/* An mpirun that has told of a rank's end, and does not end itself, is ended. */
CASE(test_an_mpirun_that_hangs_as_it_ends)
{
    skip_without_mpi();
    script_write(
        "bin/mpirun",
        "#!/bin/sh\ncase \"$*\" in *--version*) echo Open MPI; exit 0 ;; esac\n"
        "[ ! -e hung ] || exit 0\ntouch hung\n"
        "echo 'mpirun noticed that process rank 0 with PID 0 on node vm exited on signal 9 "
        "(Killed).' >&2\ntrap '' TERM\nmkfifo never\nread -r word < never\n");
    program_expect_under(enter, "launch " LAUNCHED_KEYS "train.out=hangs launch.pause_s=0", 0,
                         "rank 0 on vm was ended by signal 9");
    assert_int_equal(launched_events(folder, "hangs", "failed", "\"kind\": \"killed\""), 1);
    assert_int_equal(launched_events(folder, "hangs", "done", NULL), 1);
}

/* A start may take ten times as long: mpirun here records at once that the job began, but on a busy
 * machine it is slow. */
#define PATIENT LAUNCHED_KEYS "comm.timeout_s=1 "

/* The run has recorded how it ended; what it recorded counts, not the mpirun that never ends. */
CASE(test_an_mpirun_that_does_not_end)
{
    static const struct {
        const char *how;
        int code;
        const char *event;
    } ends[] = {{"done", 0, "done"}, {"stopped", 21, "stopped"}, {"failed", 137, "gave_up"}};
    skip_without_mpi();
    for (int i = 0; i < 3; i++) {
        char text[1024], arguments[512], says[128];
        const char *out = ends[i].how;
        snprintf(text, sizeof text,
                 "#!/bin/sh\ncase \"$*\" in *--version*) echo Open MPI; exit 0 ;; esac\n"
                 "cat > lingers_%s/metrics.jsonl <<'END'\n"
                 "{\"time\": 1, \"event\": \"start\", \"step\": 0, \"ranks\": 1}\n"
                 "{\"time\": 2, \"step\": 1, \"loss_bits\": \"40000000\", \"step_s\": 1.0}\n"
                 "{\"time\": 3, \"event\": \"end\", \"step\": 1, \"how\": \"%s\"}\nEND\n"
                 "kill -STOP $$\n",
                 out, out);
        script_write("bin/mpirun", text);
        snprintf(arguments, sizeof arguments,
                 "launch " PATIENT "train.out=lingers_%s launch.pause_s=0 launch.retries=0", out);
        snprintf(says, sizeof says, "the run has recorded its end (%s), and mpirun (process ", out);
        program_expect_under(enter, arguments, ends[i].code, says);
        snprintf(text, sizeof text, "lingers_%s", out);
        assert_int_equal(launched_events(folder, text, "start", NULL), 1);
        assert_int_equal(launched_events(folder, text, ends[i].event, NULL), 1);
    }
}

/* Of a job in the run's folder that has begun: what follows is no fault of its start. */
#define BEGUN(out)                                                                                 \
    "echo '{\"time\": 1, \"event\": \"start\", \"step\": 0, \"ranks\": 1}' > " out                 \
    "/metrics.jsonl\n"

/* Nobody would hear how its ranks end. */
CASE(test_an_mpirun_that_is_stopped)
{
    skip_without_mpi();
    script_write("bin/mpirun",
                 "#!/bin/sh\ncase \"$*\" in *--version*) echo Open MPI; exit 0 ;; esac\n"
                 "[ ! -e halted ] || exit 0\ntouch halted\n" BEGUN("halts") "kill -STOP $$\n");
    program_expect_under(enter, "launch " PATIENT "train.out=halts launch.pause_s=0", 0,
                         " is stopped (SIGSTOP)");
    assert_int_equal(launched_events(folder, "halts", "failed", "\"kind\": \"late\""), 1);
    assert_int_equal(launched_events(folder, "halts", "done", NULL), 1);
}

/* No rank is left that could say so, and mpirun waits for them. */
CASE(test_ranks_that_are_all_stopped)
{
    skip_without_mpi();
    script_write("bin/mpirun",
                 "#!/bin/sh\ncase \"$*\" in *--version*) echo Open MPI; exit 0 ;; esac\n"
                 "[ ! -e all_halted ] || exit 0\ntouch all_halted\n" BEGUN(
                     "all_halt") "for rank in 0 1; do sh -c 'kill -STOP $$' & done\nwait\n");
    program_expect_under(enter, "launch " PATIENT "train.out=all_halt launch.pause_s=0", 0,
                         "s, and all ranks are stopped (SIGSTOP)");
    assert_int_equal(launched_events(folder, "all_halt", "failed", "\"kind\": \"late\""), 1);
    assert_int_equal(launched_events(folder, "all_halt", "done", NULL), 1);
}

/* On another host rank 0 is asked for. It is stopped, runs, and is stopped again: a single look
 * says nothing of the others, who would name it if they ran. One that takes too long on a busy
 * machine does not count, so there may be more than four. */
static void all_stopped_on(const char *out, const char *program, const char *agent,
                           const char *before, const char *hosts)
{
    char text[2048], name[64], words[PATH_MAX + 256], arguments[512];
    snprintf(
        text, sizeof text,
        "#!/bin/sh\ncase \"$*\" in\n*--version*) echo Open MPI; exit 0 ;;\n--mpi=list) exit 0 ;;\n"
        "*' grep -qi ^state:.t /proc/4711/status') exec ./%s \"$@\" ;;\nesac\n"
        "[ ! -e %s/begun ] || exit 0\ntouch %s/begun\n"
        "echo host b pid 4711 started 1 since now > %s/lock\n"
        "echo '{\"time\": 1, \"event\": \"start\", \"step\": 0, \"ranks\": 2}' > "
        "%s/metrics.jsonl\nmkfifo %s/never\nread -r word < %s/never\n",
        agent, out, out, out, out, out, out);
    snprintf(name, sizeof name, "bin/%s", program);
    script_write(name, text);
    snprintf(text, sizeof text,
             "#!/bin/sh\ncase \"$*\" in *grep*) echo \"$*\" >> %s/asked\n"
             "    [ $(wc -l < %s/asked) -ne 2 ] ;;\nesac\n",
             out, out);
    script_write(agent, text);
    snprintf(words, sizeof words, "%s %s", enter, before);
    snprintf(arguments, sizeof arguments, "launch %s " PATIENT "train.out=%s launch.pause_s=0",
             hosts, out);
    program_expect_under(words, arguments, 0,
                         "s, and rank 0 on b (process 4711) is stopped (SIGSTOP)");
    assert_int_equal(launched_events(folder, out, "failed", "\"kind\": \"late\""), 1);
    assert_int_equal(launched_events(folder, out, "done", NULL), 1);
    snprintf(name, sizeof name, "%s/asked", out);
    char *asked = scratch_read(scratch_path(folder, name), NULL), *save = asked;
    for (int i = 0; i < 4 || (save && *save); i++)
        expect_started(&save, program[0] == 'm' ? "b grep " : " --nodelist=b grep ", "");
    free(asked);
}

CASE(test_ranks_that_are_all_stopped_elsewhere)
{
    skip_without_mpi();
    scratch_write(scratch_path(folder, "b"), "b slots=1\n", 10);
    all_stopped_on("far", "mpirun", "asks", "OMPI_MCA_plm_rsh_agent=./asks", "--hosts b");
    slurm_write("exit 1");
    script_write("bin/scontrol", "#!/bin/sh\necho b\n");
    script_write("bin/sinfo", "#!/bin/sh\necho b idle\n");
    all_stopped_on("node_b", "srun", "srun_asks", "SLURM_JOB_ID=7 SLURM_JOB_NODELIST=b", "");
}

/* Nothing is recorded of a start, and no rank can say why. Where the limit is short, a start that
 * does not hang may be taken for one on a busy machine, and follows again. */
static void start_that_hangs(const char *out, const char *rank, const char *timeout,
                             const char *says)
{
    char text[1024], arguments[512];
    snprintf(text, sizeof text,
             "#!/bin/sh\ncase \"$*\" in *--version*) echo Open MPI; exit 0 ;; esac\n"
             "[ ! -e %s/hung ] || exit 0\ntouch %s/hung\n%s\n"
             "mkfifo %s/never\nread -r word < %s/never\n",
             out, out, rank, out, out);
    script_write("bin/mpirun", text);
    snprintf(arguments, sizeof arguments,
             "launch " LAUNCHED_KEYS "train.out=%s comm.timeout_s=%s launch.pause_s=0 "
             "launch.retries=1000",
             out, timeout);
    program_expect_under(enter, arguments, 0, says);
    assert_true(launched_events(folder, out, "failed", "\"kind\": \"late\"") > 0);
    assert_int_equal(launched_events(folder, out, "failed", NULL),
                     launched_events(folder, out, "failed", "\"kind\": \"late\""));
    assert_int_equal(launched_events(folder, out, "done", NULL), 1);
}

/* No rank is begun; or the only one is, and is stopped. */
CASE(test_starts_of_which_no_rank_gets_through)
{
    skip_without_mpi();
    start_that_hangs("no_start", "", "0.05", "s: 0 of 1 rank began, and none got through it");
    start_that_hangs("silent_start",
                     "echo host x process 1 beat 1 > silent_start/starting/rank-00000", "1",
                     "no rank has shown life for ");
}

/* The first start records that it began; the next two cannot, and end with `code`. */
static void starts_refuse(const char *out, const char *last, int code, int ends, const char *line)
{
    char script[1024], keys[512];
    snprintf(script, sizeof script,
             "#!/bin/sh\ncase \"$*\" in *--version*) echo Open MPI; exit 0 ;; esac\n"
             "echo >> %s.crowd\ncase $(wc -l < %s.crowd) in\n"
             "1) echo '{\"time\": 1, \"event\": \"start\", \"step\": 0, \"ranks\": 1}' > "
             "%s/metrics.jsonl; exit 137 ;;\n"
             "2|3) echo '%s' >&2; exit %d ;;\nesac\n",
             out, out, out, last, code);
    script_write("bin/mpirun", script);
    snprintf(keys, sizeof keys,
             "launch " LAUNCHED_KEYS "train.out=%s launch.pause_s=0 launch.retries=1", out);
    program_expect_under(enter, keys, ends, line);
}

/* And are tried again. */
static void starts_refused(const char *out, const char *last, int code, const char *line)
{
    starts_refuse(out, last, code, 0, line);
    assert_int_equal(launched_events(folder, out, "start", NULL), 4);
    assert_int_equal(launched_events(folder, out, "failed", NULL), 1);
    assert_int_equal(launched_events(folder, out, "done", NULL), 1);
}

CASE(test_a_disk_that_is_full_for_a_while)
{
    skip_without_mpi();
    starts_refused("crowded", END(17, "0", "no space left"), 17, "no space left: make room");
    assert_int_equal(launched_events(folder, "crowded", "disk_full", "no space left"), 1);
}

CASE(test_a_disk_that_is_read_only_for_a_while)
{
    static const char says[] = "locked/lock: no writing here";
    skip_without_mpi();
    starts_refused("locked", END(16, "0,\"cause\":\"read_only\"", "locked/lock: no writing here"),
                   16, "locked/lock: no writing here: mount it for writing");
    assert_int_equal(launched_events(folder, "locked", "disk_read_only", says), 1);
    /* By the cause alone: other errors of a disk end the job, whatever they say. */
    starts_refuse("errno", END(16, "0", "errno/lock: Read-only file system"), 16, 16, "Read-only");
    assert_int_equal(launched_events(folder, "errno", "disk_read_only", NULL), 0);
}

/* Ranks that cannot show life there would seem to hang. */
CASE(test_starts_on_a_full_disk_are_not_judged)
{
    struct rlimit before, none;
    char text[256], run[PATH_MAX];
    snprintf(run, sizeof run, "%s", scratch_path(folder, "roomless"));
    assert_int_equal(mkdir(run, 0755), 0);
    struct launch_starting *starting = launch_starting_open(run, 2);
    assert_true(starting && !access(scratch_path(folder, "roomless/starting/rank-00001"), W_OK));
    launch_starting_close(starting);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = before.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    starting = launch_starting_open(run, 2);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_DFL);
    assert_true(access(scratch_path(folder, "roomless/starting"), F_OK));
    assert_false(launch_starting_frozen(starting, 1e-9, text, sizeof text));
    launch_starting_close(starting);
}

/* SIGTERM, by which it hears of its launcher's end, does not end it. */
CASE(test_an_mpirun_that_outlives_its_launcher)
{
    char stat[64], text[512] = "";
    skip_without_mpi();
    script_write("bin/mpirun",
                 "#!/bin/sh\ncase \"$*\" in *--version*) echo Open MPI; exit 0 ;; esac\n"
                 "trap '' TERM\nmkfifo outlived/never\n"
                 "echo $$ > outlived/new && mv outlived/new outlived/pid\n"
                 "read -r word < outlived/never\n");
    pid_t launcher = launched_start(folder, "PATH=\"$PWD/bin:$PATH\"", "outlived", LAUNCHED_KEYS);
    while (access(scratch_path(folder, "outlived/pid"), F_OK))
        program_await_job(launcher, scratch_path(folder, "outlived.log"));
    char *pid = scratch_read(scratch_path(folder, "outlived/pid"), NULL);
    snprintf(stat, sizeof stat, "/proc/%ld/stat", atol(pid));
    free(pid);
    assert_int_equal(kill(launcher, SIGKILL), 0);
    assert_int_equal(launched_end(launcher), 128 + SIGKILL);
    while (ls_file_head(stat, text, sizeof text) && !strstr(text, ") Z"))
        await_pause();
}

/* Ranks that are asked to end before they know each other fail: nothing is lost by that. */
CASE(test_a_start_that_is_asked_to_end)
{
    skip_without_mpi();
    script_write("bin/mpirun",
                 "#!/bin/sh\ncase \"$*\" in *--version*) echo Open MPI; exit 0 ;; esac\n"
                 "kill -TERM $PPID\nexit 137\n");
    program_expect_under(enter, "launch " LAUNCHED_KEYS "train.out=early", 21, "");
    assert_int_equal(launched_events(folder, "early", "stopped", NULL), 1);
}

/* A job that writes to stderr without a pause is watched all the same. */
CASE(test_a_job_that_never_stops_talking)
{
    skip_without_mpi();
    script_write("bin/mpirun",
                 "#!/bin/sh\ncase \"$*\" in *--version*) echo Open MPI; exit 0 ;; esac\n"
                 "yes | head -c 200000 >&2\nkill -TERM $PPID\nkill -USR1 $PPID\n"
                 "yes | head -c 1000000000 >&2\n");
    program_expect_under(enter, "launch " LAUNCHED_KEYS "train.out=talks 2>/dev/null", 21, "");
    assert_int_equal(launched_events(folder, "talks", "stopped", NULL), 1);
}

/* Ranks that were killed just before they are asked to end: what they saved is there, as after a
 * job that saved more. One that failed too often is given up as ever. */
CASE(test_a_failed_job_that_is_asked_to_end)
{
    skip_without_mpi();
    script_write("bin/mpirun",
                 "#!/bin/sh\ncase \"$*\" in *--version*) echo Open MPI; exit 0 ;; esac\n"
                 "for run in dies gives_up; do [ ! -d $run ] || echo '{\"time\": 1, \"event\": "
                 "\"start\", \"step\": 0, \"ranks\": 1}' > $run/metrics.jsonl; done\n"
                 "kill -TERM $PPID\nexit 137\n");
    program_expect_under(enter, "launch " LAUNCHED_KEYS "train.out=dies", 21, "");
    assert_int_equal(launched_events(folder, "dies", "failed", "\"kind\": \"killed\""), 1);
    assert_int_equal(launched_events(folder, "dies", "stopped", NULL), 1);
    program_expect_under(enter, "launch " LAUNCHED_KEYS "train.out=gives_up launch.retries=0", 137,
                         "");
    assert_int_equal(launched_events(folder, "gives_up", "gave_up", NULL), 1);
}

/* Beside workers of a server by the clock no step is computed again: that is said before MPI
 * starts. */
CASE(test_replays_that_no_job_begins_with)
{
    program_expect_under(enter,
                         "launch --ranks 3 " LAUNCHED_KEYS
                         "train.out=never_begun check.replay=1 async.mode=server async.workers=2 "
                         "async.order=clock parallel.workers=2 parallel.servers=1",
                         ls_exit_code(LS_ECONFIG),
                         "check.replay = 1: with parallel.servers the clock decides");
    assert_int_equal(access(scratch_path(folder, "never_begun"), F_OK), -1);
}

/* No other rank is left that could compute a step again: the keys have check.replay=0 then, and
 * only then. Which layout two ranks get follows from what the machine was measured to do. */
CASE(test_replays_end_with_the_last_but_one_rank)
{
    static const struct {
        const char *keys;
        int slots;
        const char *layout; /* is in the keys */
        bool ends;          /* and check.replay=0 */
    } cases[] = {
        {"parallel.dp=4 check.replay=0.5", 2, "parallel.", false},
        {"parallel.dp=2 check.replay=0.5", 1, "", true},
        {"parallel.dp=2", 1, "", false},
        {"async.mode=diloco async.workers=2 async.sync_every=4 train.steps=8 parallel.workers=2 "
         "check.replay=0.5",
         1, "parallel.workers=1 ", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_config config = config_of_words(
            "model.preset=gpt2-tiny model.vocab=50 batch.global=4 %s", cases[i].keys);
        volatile int asked = 0;
        const struct ls_launch launch = {.config = &config, .asked = &asked};
        const struct launch_watch watch = {0};
        struct launch_hosts hosts = {0};
        struct ls_error error = {0};
        char keys[LS_SEARCH_KEYS_BYTES] = "";
        int64_t ranks, wanted = ls_config_ranks(&config);
        assert_ok(launch_hosts_here(&hosts, cases[i].slots, &error), error);
        assert_ok(launch_layout_choose(&launch, &hosts, &watch, wanted, keys, &ranks, &error),
                  error);
        assert_int_equal(ranks, cases[i].slots);
        const char *replay = strstr(keys, "check.replay");
        if (!strstr(keys, cases[i].layout) || (replay != NULL) != cases[i].ends ||
            (replay && strcmp(replay, "check.replay=0") != 0))
            fail_msg("%s: %s", cases[i].keys, keys);
        launch_hosts_release(&hosts);
    }
}

/* Nobody is late then, and a job that hangs is the user's to end. */
CASE(test_a_job_that_waits_for_ever)
{
    skip_without_mpi();
    mpirun_write("", 0);
    program_expect_under(enter, "launch " LAUNCHED_KEYS "train.out=waits comm.timeout_s=0", 0,
                         "comm.timeout_s = 0: a rank that hangs is waited for until a second "
                         "signal or launch.deadline_s ends the job");
}

/* The second start follows the first at once, the third after a pause. */
CASE(test_starts_that_fail_at_once)
{
    skip_without_mpi();
    mpirun_write("", 1);
    pid_t launcher = launched_start(folder, "PATH=\"$PWD/bin:$PATH\"", "pauses",
                                    LAUNCHED_KEYS "launch.pause_s=600");
    launched_await_event(launcher, folder, "pauses", "failed", 2);
    launched_stop(launcher, folder, "pauses");
    assert_int_equal(launched_events(folder, "pauses", "start", NULL), 2);
}

/* The command hears of every event; one that fails is a warning. */
CASE(test_on_event)
{
    size_t heard, recorded;
    skip_without_mpi();
    mpirun_write("", 1);
    program_expect_under(enter,
                         "launch " LAUNCHED_KEYS
                         "train.out=hook launch.on_event='cat >> heard; exit 3' launch.retries=0",
                         1, "launch.on_event: cat >> heard; exit 3 ended with 3");
    char *got = scratch_read(scratch_path(folder, "heard"), &heard);
    char *expected = scratch_read(scratch_path(folder, "hook/events.jsonl"), &recorded);
    assert_int_equal(heard, recorded);
    assert_memory_equal(got, expected, heard);
    program_expect_under(enter,
                         "launch " LAUNCHED_KEYS
                         "train.out=hook launch.on_event='kill -9 $$' launch.retries=0",
                         1, "launch.on_event: kill -9 $$ was ended by a signal: ");
}

static void line_keep(void *user, enum ls_log_level level, const char *line)
{
    (void)level;
    snprintf(user, LS_CONFIG_TEXT_BYTES, "%s", line);
}

/* No command is said to have been ended that the system did not start, or whose end it does not
 * tell. */
CASE(test_on_event_that_is_not_run)
{
    struct ls_config config = config_of_words(
        "model.preset=gpt2-tiny model.vocab=50 batch.global=4 launch.on_event=true train.out=%s",
        folder);
    char said[LS_CONFIG_TEXT_BYTES] = "";
    const struct ls_log log = {.level_max = LS_LOG_WARNING, .write = line_keep, .user = said};
    const struct ls_launch launch = {.config = &config, .log = &log};
    struct launch_events events;
    struct ls_error error = {0};
    struct rlimit before, none;
    assert_ok(launch_events_open(&events, &launch, &error), error);
    getrlimit(RLIMIT_NOFILE, &before);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = before.rlim_max};
    launch_events_begin(&events, "start", 0);
    setrlimit(RLIMIT_NOFILE, &none);
    launch_events_end(&events);
    setrlimit(RLIMIT_NOFILE, &before);
    assert_string_equal(said, "launch.on_event: true may not have run: Too many open files");
    launch_events_begin(&events, "done", 0);
    signal(SIGCHLD, SIG_IGN); /* the system forgets children as they end */
    launch_events_end(&events);
    signal(SIGCHLD, SIG_DFL);
    assert_string_equal(said, "launch.on_event: true may not have run: No child processes");
    ls_jsonl_close(events.file, NULL);
}

/* More than a pipe holds: who does not read it ends nobody and holds nobody up, who reads gets all.
 */
CASE(test_input_of_a_program)
{
    enum { BYTES = 1 << 20 };
    char *input = malloc(BYTES + 1), said[32];
    char *const ignores[] = {"true", NULL}, *const counts[] = {"wc", "-c", NULL};
    assert_non_null(input);
    memset(input, 'a', BYTES);
    input[BYTES] = '\0';
    assert_int_equal(process_run(ignores, input, NULL, 0, 1e9), 0);
    assert_int_equal(process_run(counts, input, said, sizeof said, 1e9), 0);
    assert_int_equal(atoi(said), BYTES);
    assert_int_equal(process_run(counts, NULL, said, sizeof said, 1e9), 0);
    assert_string_equal(said, "0\n");
    free(input);
}

/* Of a full disk it hears too. */
CASE(test_on_event_of_a_full_disk)
{
    skip_without_mpi();
    mpirun_write(END(17, "0", "no space left"), 17);
    mkdir(scratch_path(folder, "full"), 0755);
    assert_int_equal(symlink("/dev/full", scratch_path(folder, "full/events.jsonl")), 0);
    program_expect_under(
        enter, "launch " LAUNCHED_KEYS "train.out=full launch.on_event='cat >> told'", 17,
        "full/events.jsonl: this event waits in memory until it can be recorded: ");
    char *told = scratch_read(scratch_path(folder, "told"), NULL);
    if (!strstr(told, "\"event\": \"start\"") || !strstr(told, "\"event\": \"failed\"") ||
        !strstr(told, "\"event\": \"gave_up\""))
        fail_msg("told: %s", told);
    free(told);
}

/* mpirun does not say that it is the disk: its own files are in TMPDIR. */
CASE(test_no_room_for_the_files_of_mpirun)
{
    char under[PATH_MAX + 200];
    skip_without_mpi();
    mkdir(scratch_path(folder, "small"), 0755);
    if (system("unshare -m mount -t tmpfs none /mnt 2> /dev/null")) {
        print_message("skipped: no small file system can be mounted here (needs root)\n");
        skip();
    }
    mpirun_write("", 1);
    snprintf(under, sizeof under,
             "%s unshare -m sh -c 'mount -t tmpfs -o size=64k none small && TMPDIR=small exec "
             "\"$@\"' sh",
             enter);
    program_expect_under(under, "launch " LAUNCHED_KEYS "train.out=mpis launch.retries=0", 17,
                         "disk, after step 0: MPI did not start: small, where mpirun keeps its "
                         "files, has no room for 8 MiB");
}

/* ---- hosts ----------------------------------------------------------------------------------- */

/* Four starts: b is gone after the first, back after the second; all are gone after the third,
 * until a has been tried some times. */
CASE(test_hosts_come_and_go)
{
    static const char hosts[] = "a slots=2\nb slots=2\nc slots=1 # a spare\n";
    skip_without_mpi();
    scratch_write(scratch_path(folder, "abc"), hosts, sizeof hosts - 1);
    script_write("agent",
                 "#!/bin/sh\nif [ $1 = a ] && [ -e all ]; then\n    echo >> tries\n"
                 "    [ $(wc -l < tries) -lt 10 ] || mv bc down\nfi\n! grep -qsx \"$1\" down\n");
    script_write("bin/mpirun",
                 "#!/bin/sh\ncase \"$*\" in *--version*) echo Open MPI; exit 0 ;; esac\n"
                 "echo \"$@\" >> started\ncase $(wc -l < started) in\n"
                 "1) printf 'b\\nc\\n' > down; exit 1 ;;\n2) rm down; exit 1 ;;\n"
                 "3) printf 'b\\nc\\n' > bc; printf 'a\\nb\\nc\\n' > down; touch all; exit 1 ;;\n"
                 "esac\n");
    char with_agent[2 * PATH_MAX];
    snprintf(with_agent, sizeof with_agent, "%s OMPI_MCA_plm_rsh_agent=./agent", enter);
    program_expect_under(with_agent,
                         "launch --hosts abc " LAUNCHED_KEYS
                         "train.out=come parallel.dp=4 launch.pause_s=0",
                         0, "answers again");
    char *text = scratch_read(scratch_path(folder, "started"), NULL), *save = text;
    expect_started(&save, "--host a:2,b:2 -n 4 ", " train.resume=auto");
    expect_started(&save, "--host a:2 -n 2 ", " parallel.dp=0 ");
    expect_started(&save, "--host a:2,b:2 -n 4 ", " train.resume=auto");
    expect_started(&save, "--host a:2 -n 2 ", " parallel.dp=0 ");
    assert_null(strtok_r(NULL, "\n", &save));
    free(text);
    assert_int_equal(launched_events(folder, "come", "host_lost", NULL), 5);
    assert_int_equal(launched_events(folder, "come", "host_back", NULL), 3);
    assert_int_equal(launched_events(folder, "come", "layout", "\"ranks\": 2,"), 2);
    assert_int_equal(launched_events(folder, "come", "layout", "\"ranks\": 4,"), 1);
    assert_int_equal(launched_events(folder, "come", "done", NULL), 1);
}

/* b is asked again while the job goes on, and says nothing: the launcher hands a signal on
 * meanwhile. */
CASE(test_a_host_that_says_nothing_holds_up_nobody)
{
    static const char hosts[] = "a slots=2\nb slots=2\n";
    skip_without_mpi();
    scratch_write(scratch_path(folder, "ab"), hosts, sizeof hosts - 1);
    script_write("agent",
                 "#!/bin/sh\ncase \"$*\" in\n"
                 "'b true') [ -e mute/begun ] || exit 1\n"
                 "    echo $$ > mute/asks; mkfifo mute/never; read -r word < mute/never ;;\n"
                 "'a kill -USR1 4711') kill -0 $(cat mute/asks) && touch mute/meanwhile\n"
                 "    echo > mute/told ;;\nesac\n");
    script_write("bin/mpirun",
                 "#!/bin/sh\ncase \"$*\" in *--version*) echo Open MPI; exit 0 ;; esac\n"
                 "mkfifo mute/told\ncat > mute/metrics.jsonl <<'END'\n"
                 "{\"time\": 1, \"event\": \"start\", \"step\": 0, \"ranks\": 2}\n"
                 "{\"time\": 2, \"step\": 1, \"loss_bits\": \"40000000\", \"step_s\": 1.0}\n"
                 "END\necho host a pid 4711 started 1 since now > mute/lock\ntouch mute/begun\n"
                 "read -r word < mute/told\nrm mute/lock\nexit 21\n");
    pid_t launcher =
        launched_start(folder, "PATH=\"$PWD/bin:$PATH\" OMPI_MCA_plm_rsh_agent=./agent", "mute",
                       LAUNCHED_KEYS "--hosts ab parallel.dp=4 launch.pause_s=0");
    while (access(scratch_path(folder, "mute/never"), F_OK))
        program_await_job(launcher, scratch_path(folder, "mute.log"));
    launched_stop(launcher, folder, "mute");
    assert_int_equal(access(scratch_path(folder, "mute/meanwhile"), F_OK), 0);
    assert_int_equal(launched_events(folder, "mute", "host_lost", "\"host\": \"b\""), 1);
    assert_int_equal(launched_events(folder, "mute", "start", "\"hosts\": \"a:2\""), 1);
}

/* b and c come back one after the other, while the job goes on: it is started once for both. */
CASE(test_hosts_that_come_back_together)
{
    static const char hosts[] = "a slots=2\nb slots=1\nc slots=1\n";
    skip_without_mpi();
    scratch_write(scratch_path(folder, "both"), hosts, sizeof hosts - 1);
    script_write("agent",
                 "#!/bin/sh\ncase \"$*\" in\n"
                 "'a kill -USR1 4711') echo > pair/told ;;\n"
                 "'b true') [ -e pair/begun ] || exit 1\n"
                 "    [ -e pair/goes ] || { mkfifo pair/goes; read -r word < pair/goes; } ;;\n"
                 "'c true') [ -p pair/goes ] || exit 1\n"
                 "    [ -e pair/went ] || { touch pair/went; echo > pair/goes; exit 1; } ;;\n"
                 "esac\n");
    script_write("bin/mpirun",
                 "#!/bin/sh\ncase \"$*\" in *--version*) echo Open MPI; exit 0 ;; esac\n"
                 "echo \"$@\" >> pair/started\n[ ! -e pair/begun ] || exit 0\n"
                 "mkfifo pair/told\ncat > pair/metrics.jsonl <<'END'\n"
                 "{\"time\": 1, \"event\": \"start\", \"step\": 0, \"ranks\": 2}\n"
                 "{\"time\": 2, \"step\": 1, \"loss_bits\": \"40000000\", \"step_s\": 1.0}\n"
                 "END\necho host a pid 4711 started 1 since now > pair/lock\ntouch pair/begun\n"
                 "read -r word < pair/told\nrm pair/lock\nexit 21\n");
    pid_t launcher =
        launched_start(folder, "PATH=\"$PWD/bin:$PATH\" OMPI_MCA_plm_rsh_agent=./agent", "pair",
                       LAUNCHED_KEYS "--hosts both parallel.dp=4 launch.pause_s=1");
    assert_int_equal(launched_end(launcher), 0);
    char *text = scratch_read(scratch_path(folder, "pair/started"), NULL), *save = text;
    expect_started(&save, "--host a:2 -n 2 ", " parallel.dp=0 ");
    expect_started(&save, "--host a:2,b:1,c:1 -n 4 ", " train.resume=auto");
    assert_null(strtok_r(NULL, "\n", &save));
    free(text);
}

/* How often the log says that b cannot be left. */
static int said_it_stays(const char *log)
{
    static const char words[] = "host b is slow, but stays: without it, ";
    int count = 0;
    char *text = scratch_read(log, NULL);
    for (const char *at = text; (at = strstr(at, words)); at++)
        count++;
    free(text);
    return count;
}

/* A run of which rank 2, on host b, takes so long where others take 1 s. expected: of the second
 * start; NULL: there is none. keys: with which no layout fits on fewer ranks; "": none. */
static void slow_run(const char *out, const char *hosts, double took_s, const char *keys,
                     const char *expected)
{
    char text[2048], log[64];
    snprintf(log, sizeof log, "%s.log", out);
    snprintf(
        text, sizeof text,
        "#!/bin/sh\ncase \"$*\" in *--version*) echo Open MPI; exit 0 ;; esac\n"
        "mkdir -p %s\necho \"$@\" >> %s/started\n[ ! -p %s/told ] || {\n"
        "cat >> %s/metrics.jsonl <<'END'\n"
        "{\"time\": 4, \"event\": \"resume\", \"step\": 1, \"ranks\": 2}\n"
        "{\"time\": 5, \"step\": 8, \"loss_bits\": \"40000000\", \"step_s\": 1.5}\n"
        "END\nexit 0\n}\nmkfifo %s/told\n"
        "cat > %s/metrics.jsonl <<'END'\n"
        "{\"time\": 1, \"event\": \"start\", \"step\": 0, \"ranks\": 4}\n"
        "{\"time\": 2, \"event\": \"drift\", \"step\": 1, \"kind\": \"slow_rank\", \"rank\": 2, "
        "\"took_s\": %.1f, \"expected_s\": 1.0, \"host\": \"b.cluster\", \"text\": \"slow\"}\n"
        "{\"time\": 3, \"step\": 1, \"loss_bits\": \"40000000\", \"step_s\": 2.0}\n"
        "END\necho host a pid 4711 started 1 since now > %s/lock\n"
        "read -r word < %s/told\nrm %s/lock\nexit 21\n",
        out, out, out, out, out, out, took_s, out, out, out);
    script_write("bin/mpirun", text);
    snprintf(text, sizeof text,
             "#!/bin/sh\ncase \"$*\" in *true) ;; 'a kill -USR1 4711') echo > %s/told ;; esac\n",
             out);
    script_write("agent", text);
    scratch_write(scratch_path(folder, "slow"), hosts, strlen(hosts));
    snprintf(text, sizeof text,
             LAUNCHED_KEYS "--hosts slow parallel.dp=4 launch.pause_s=0 launch.slow=0.5 %s", keys);
    pid_t launcher =
        launched_start(folder, "PATH=\"$PWD/bin:$PATH\" OMPI_MCA_plm_rsh_agent=./agent", out, text);
    launched_await_step(launcher, folder, out, 1);
    while (*keys && said_it_stays(scratch_path(folder, log)) == 0)
        program_await_job(launcher, scratch_path(folder, log));
    if (expected)
        assert_int_equal(launched_end(launcher), 0);
    else
        launched_stop(launcher, folder, out);
    assert_int_equal(launched_events(folder, out, "start", NULL), expected ? 2 : 1);
    assert_int_equal(launched_events(folder, out, "host_slow", "\"host\": \"b\""),
                     expected != NULL);
    assert_true(!expected || launched_events(folder, out, "start", expected) == 1);
    assert_int_equal(launched_events(folder, out, "gained", "\"step_s\": 1.5, \"before_s\": 2,"),
                     expected != NULL);
    assert_int_equal(said_it_stays(scratch_path(folder, log)), *keys != '\0');
}

/* A slow host is left for a spare, or for fewer ranks if that is faster; otherwise it stays, as
 * where no layout fits without it. */
CASE(test_a_slow_host)
{
    skip_without_mpi();
    slow_run("spare", "a slots=2\nb slots=2\nc slots=2\n", 1.8, "", "a:2,c:2");
    slow_run("fewer", "a slots=2\nb slots=2\n", 3, "", "\"hosts\": \"a:2\"");
    slow_run("stays", "a slots=2\nb slots=2\n", 1.8, "", NULL);
    slow_run("usual", "a slots=2\nb slots=2\nc slots=2\n", 1.4, "", NULL);
    slow_run("large", "a slots=2\nb slots=2\n", 3,
             "model.channels=16384 model.heads=64 model.layers=96", NULL);
}

/* What start n of a job in two stages records: <out>.n. Steps of which the last takes step_s, and
 * what stages take. */
static void stages_write(const char *out, int n, int from, int to, const char *stages_s,
                         double step_s)
{
    char name[64], text[2048] = "";
    snprintf(name, sizeof name, "%s.%d", out, n);
    ls_string_add(text, sizeof text, "",
                  "{\"time\": %d, \"event\": \"%s\", \"step\": %d, \"ranks\": 2}\n", n,
                  from ? "resume" : "start", from);
    ls_string_add(text, sizeof text, "",
                  "{\"time\": %d, \"event\": \"drift\", \"step\": %d, \"kind\": "
                  "\"unbalanced_stage\", \"stage\": 0, \"stages_s\": \"%s\"}\n",
                  n, from, stages_s);
    for (int step = from + 1; step <= to; step++)
        ls_string_add(text, sizeof text, "",
                      "{\"time\": %d, \"step\": %d, \"loss_bits\": \"40000000\", \"step_s\": %g}\n",
                      n, step, step_s);
    scratch_write(scratch_path(folder, name), text, strlen(text));
}

#define SPLIT "0-1,2-7"

/* A job of which start n records <out>.n and goes on until it is asked to end; one without such a
 * record finds no room for its layout. */
static pid_t stages_start(const char *out)
{
    char text[1024];
    snprintf(text, sizeof text,
             "#!/bin/sh\ncase \"$*\" in *--version*) echo Open MPI; exit 0 ;; esac\n"
             "mkdir -p %s\necho \"$@\" >> %s/started\nn=$(wc -l < %s/started)\n"
             "[ -e %s.$n ] || { echo '%s' >&2; exit 13; }\n[ -p %s/told ] || mkfifo %s/told\n"
             "cat %s.$n >> %s/metrics.jsonl\n"
             "echo host a pid 4711 started 1 since now > %s/lock\n"
             "read -r word < %s/told\nrm %s/lock\nexit 21\n",
             out, out, out, out, END(13, "0", "no room for that layout"), out, out, out, out, out,
             out, out);
    script_write("bin/mpirun", text);
    snprintf(text, sizeof text,
             "#!/bin/sh\ncase \"$*\" in *true) ;; 'a kill -USR1 4711') echo > %s/told ;; esac\n",
             out);
    script_write("agent", text);
    /* More slots than this machine has memory for: what counts is how many ranks are there. */
    scratch_write(scratch_path(folder, "stages"), "a slots=65536\n", 14);
    return launched_start(folder, "PATH=\"$PWD/bin:$PATH\" OMPI_MCA_plm_rsh_agent=./agent", out,
                          LAUNCHED_KEYS "--hosts stages model.layers=6 parallel.pp=2 "
                                        "launch.pause_s=0 launch.slow=0.5");
}

static void stages_end(pid_t launcher, const char *out, int starts, int with_split)
{
    launched_stop(launcher, folder, out);
    assert_int_equal(launched_events(folder, out, "start", NULL), starts);
    assert_int_equal(launched_events(folder, out, "start", "parallel.split=" SPLIT), with_split);
    assert_int_equal(launched_events(folder, out, "stage_slow", "\"split\": \"" SPLIT "\""),
                     with_split);
    assert_int_equal(launched_events(folder, out, "failed", NULL), 0);
}

/* The layers of a slow stage go to the other one, once. If that gains nothing, or is refused, they
 * come back for good. */
CASE(test_a_slow_stage)
{
    skip_without_mpi();
    stages_write("gains", 1, 0, 1, "3,1", 2);
    stages_write("gains", 2, 1, 9, "3,1", 1.5); /* no change soon after a change */
    pid_t launcher = stages_start("gains");
    launched_await_event(launcher, folder, "gains", "gained", 1);
    stages_end(launcher, "gains", 2, 1);
    assert_int_equal(launched_events(folder, "gains", "gained",
                                     "\"stage\": 0, \"step_s\": 1.5, \"before_s\": 2,"),
                     1);

    stages_write("loses", 1, 0, 1, "3,1", 2);
    stages_write("loses", 2, 1, 9, "3,1", 2.5);
    stages_write("loses", 3, 9, 20, "3,1", 2);
    launcher = stages_start("loses");
    launched_await_step(launcher, folder, "loses", 20);
    stages_end(launcher, "loses", 3, 1);
    assert_int_equal(launched_events(folder, "loses", "gained", "\"step_s\": 2.5,"), 1);

    stages_write("lacks", 1, 0, 1, "3,1", 2);
    stages_write("lacks", 3, 1, 9, "3,1", 2);
    launcher = stages_start("lacks");
    launched_await_step(launcher, folder, "lacks", 9);
    stages_end(launcher, "lacks", 3, 1);
    assert_int_equal(launched_events(folder, "lacks", "split_refused", "no room for that"), 1);

    stages_write("even", 1, 0, 1, "1.3,1", 2); /* below launch.slow */
    launcher = stages_start("even");
    launched_await_step(launcher, folder, "even", 1);
    stages_end(launcher, "even", 1, 0);
}

/* A rank that computed wrongly names its host, which is left if a layout fits on the others. */
CASE(test_a_suspect_host)
{
    static const struct {
        const char *out, *host, *expected;
    } cases[] = {{"wrong", "b.cluster", "a:2,c:2"}, {"either", "", "a:2,b:2"}};
    skip_without_mpi();
    scratch_write(scratch_path(folder, "three"), "a slots=2\nb slots=2\nc slots=2\n", 30);
    script_write("agent", "#!/bin/sh\n");
    for (int i = 0; i < 2; i++) {
        const char *out = cases[i].out;
        char text[1024];
        snprintf(text, sizeof text,
                 "#!/bin/sh\ncase \"$*\" in *--version*) echo Open MPI; exit 0 ;; esac\n"
                 "[ ! -e %s/begun ] || exit 0\nmkdir -p %s\ntouch %s/begun\n"
                 "echo '{\"lockstep_end\":20,\"cause\":\"faulty\",\"host\":\"%s\"}' >&2\nexit %d\n",
                 out, out, out, cases[i].host, ls_exit_code(LS_ENUMERIC));
        script_write("bin/mpirun", text);
        snprintf(text, sizeof text, LAUNCHED_KEYS "--hosts three parallel.dp=4 launch.pause_s=0");
        pid_t launcher = launched_start(
            folder, "PATH=\"$PWD/bin:$PATH\" OMPI_MCA_plm_rsh_agent=./agent", out, text);
        assert_int_equal(launched_end(launcher), 0);
        assert_int_equal(launched_events(folder, out, "failed", "\"kind\": \"mismatch\""), 1);
        assert_int_equal(launched_events(folder, out, "host_suspect", "\"host\": \"b\""), i == 0);
        assert_int_equal(launched_events(folder, out, "start", NULL), 2);
        assert_int_equal(launched_events(folder, out, "start", cases[i].expected), i == 0 ? 1 : 2);
    }
}

static void expect_nobody(const char *out, const char *before, const char *hosts,
                          const char *expected)
{
    char arguments[512], log_name[64];
    snprintf(arguments, sizeof arguments, LAUNCHED_KEYS "%slaunch.pause_s=0.1", hosts);
    snprintf(log_name, sizeof log_name, "%s.log", out);
    pid_t launcher = launched_start(folder, before, out, arguments);
    launched_await_event(launcher, folder, out, "host_lost", 1);
    for (bool said = false; !said;) {
        program_await_job(launcher, scratch_path(folder, log_name));
        char *log = scratch_read(scratch_path(folder, log_name), NULL);
        said = strstr(log, expected);
        free(log);
    }
    launched_stop(launcher, folder, out);
    assert_int_equal(launched_events(folder, out, "start", NULL), 0);
    assert_int_equal(launched_events(folder, out, "stopped", NULL), 1);
}

/* A signal while it waits for hosts: that is recorded too. */
CASE(test_asked_while_no_host_answers)
{
    skip_without_mpi();
    scratch_write(scratch_path(folder, "away"), "away slots=2\n", 13);
    expect_nobody("nobody", "OMPI_MCA_plm_rsh_agent=false", "--hosts away ",
                  "waiting for hosts: none answers to `false HOST true`");
    slurm_write("echo 7 node1");
    script_write("bin/sinfo", "#!/bin/sh\necho node1 down\n");
    expect_nobody("no_node", "PATH=\"$PWD/bin:$PATH\" SLURM_JOB_ID=7 SLURM_JOB_NODELIST=node1", "",
                  "waiting for hosts: Slurm (squeue, sinfo) tells of none that responds");
}

/* Rank 0's host calls itself otherwise than the list does, by which alone it is reached. */
CASE(test_a_host_with_two_names)
{
    skip_without_mpi();
    scratch_write(scratch_path(folder, "names"), "spare\n10.0.0.7 slots=2\n", 23);
    script_write("bin/mpirun",
                 "#!/bin/sh\ncase \"$*\" in *--version*) echo Open MPI; exit 0 ;; esac\n"
                 "mkfifo asked\n"
                 "echo host node7.cluster pid 4711 started 1 since now > names.out/lock\n"
                 "read -r word < asked\nrm names.out/lock\nexit 21\n");
    script_write("agent", "#!/bin/sh\ncase \"$*\" in\nspare*) exit 1 ;;\n'10.0.0.7 true') ;;\n"
                          "'10.0.0.7 kill -USR1 4711') echo > asked ;;\n*) exit 1 ;;\nesac\n");
    pid_t launcher =
        launched_start(folder, "PATH=\"$PWD/bin:$PATH\" OMPI_MCA_plm_rsh_agent=./agent",
                       "names.out", LAUNCHED_KEYS "--hosts names parallel.dp=2");
    launched_await_event(launcher, folder, "names.out", "start", 1);
    launched_stop(launcher, folder, "names.out");
    assert_int_equal(launched_events(folder, "names.out", "stopped", NULL), 1);
}

/* Ranks of a launcher that was killed may still end as the next one begins, and what it had half
 * written goes. */
CASE(test_after_a_killed_launcher)
{
    static const char lock[] = "host node7\npid 4711\nstarted 1\nsince now\n";
    skip_without_mpi();
    mkdir(scratch_path(folder, "after"), 0755);
    mkdir(scratch_path(folder, "after/launch"), 0755);
    scratch_write(scratch_path(folder, "after/launch/lock"), lock, sizeof lock - 1);
    scratch_write(scratch_path(folder, "after/launch.prom.tmp-7"), "#", 1);
    script_write("bin/mpirun",
                 "#!/bin/sh\ncase \"$*\" in *--version*) echo Open MPI; exit 0 ;; esac\n"
                 "if [ -e after/held ]; then exit 0; fi\ntouch after/held\nexit 23\n");
    program_expect_under(enter, "launch " LAUNCHED_KEYS "train.out=after launch.pause_s=0", 0,
                         "ranks that were lost still hold the run");
    assert_int_equal(launched_events(folder, "after", "start", NULL), 2);
    assert_int_equal(launched_events(folder, "after", "failed", NULL), 0);
    assert_int_equal(access(scratch_path(folder, "after/launch.prom"), F_OK), 0);
    assert_int_equal(access(scratch_path(folder, "after/launch.prom.tmp-7"), F_OK), -1);
}

/* On one machine mpirun neither searches for networks nor leaves shared memory behind, unless the
 * user has a wish. */
CASE(test_what_mpirun_is_told)
{
    static const char *const words[] = {"--mca pml ob1 ",
                                        "--mca btl_vader_backing_directory /dev/shm/lockstep-"};
    static const char at_once[] = "--mca odls_base_sigkill_timeout 0 ";
    skip_without_mpi();
    script_write("bin/mpirun",
                 "#!/bin/sh\ncase \"$*\" in *--version*) echo Open MPI; exit 0 ;; esac\n"
                 "echo \"$*\" > told\n");
    for (int wish = 0; wish < 2; wish++) {
        char before[PATH_MAX + 256];
        snprintf(before, sizeof before, "%s %s", enter,
                 wish ? "OMPI_MCA_pml=cm OMPI_MCA_btl_vader_backing_directory=/tmp" : "");
        program_expect_under(before, "launch " LAUNCHED_KEYS "train.out=told_run", 0, "");
        char *told = scratch_read(scratch_path(folder, "told"), NULL);
        for (int i = 0; i < 2; i++)
            assert_int_equal(strstr(told, words[i]) != NULL, !wish);
        assert_non_null(strstr(told, at_once)); /* ranks that are left are killed without a pause */
        free(told);
    }
    /* This machine alone is that too where a file says so. Of several each start has a folder. */
    script_write("agent", "#!/bin/sh\n");
    for (int several = 0; several < 2; several++) {
        static const char *const hosts[] = {"localhost slots=2\n", "localhost\nb\n"};
        char before[PATH_MAX + 256];
        scratch_write(scratch_path(folder, "hosts"), hosts[several], strlen(hosts[several]));
        snprintf(before, sizeof before, "%s OMPI_MCA_plm_rsh_agent=./agent", enter);
        program_expect_under(before,
                             "launch --hosts hosts " LAUNCHED_KEYS "train.out=told_run "
                             "parallel.dp=2",
                             0, "");
        char *told = scratch_read(scratch_path(folder, "told"), NULL);
        assert_int_equal(strstr(told, words[0]) != NULL, !several);
        const char *name = strstr(told, words[1]);
        assert_non_null(name);
        name += strlen(words[1]);
        int dashes = 0;
        for (size_t i = 0; i < strcspn(name, " "); i++)
            dashes += name[i] == '-';
        assert_int_equal(dashes, several ? 5 : 3); /* launch-UID-DEVICE-FOLDER-PID-START */
        free(told);
    }
}

/* deadline: in its event; NULL: anything. */
static void expect_slurm(const char *before, int starts, const char *deadline)
{
    char words[PATH_MAX + 256];
    snprintf(words, sizeof words, "%s SLURM_JOB_ID=7 SLURM_JOB_NODELIST=node1 %s", enter, before);
    program_expect_under(words, "launch " LAUNCHED_KEYS "train.out=slurm", 21,
                         "s are left, and to save may take");
    assert_int_equal(launched_events(folder, "slurm", "start", NULL), starts);
    assert_int_equal(launched_events(folder, "slurm", "deadline", deadline), 1);
    assert_int_equal(launched_events(folder, "slurm", "stopped", NULL), 1);
    unlink(scratch_path(folder, "slurm/events.jsonl"));
}

/* The end of an allocation is asked for in each form, among tasks of an array; one that is over, of
 * which Slurm may say INVALID, has no time for a start. Time for an evaluation is needed too. */
CASE(test_the_end_of_an_allocation)
{
    static const char records[] = "{\"time\": 1, \"event\": \"start\", \"step\": 0, \"ranks\": 1}\n"
                                  "{\"step\": 1, \"loss_bits\": \"40000000\", \"step_s\": 1.0}\n"
                                  "{\"event\": \"save\", \"step\": 1, \"save_s\": 0.5}\n"
                                  "{\"step\": 1, \"validation_loss\": 2.0, \"eval_s\": 70.0}\n"
                                  "{\"step\": 2, \"loss_bits\": \"40000000\", \"step_s\": 1.0}\n"
                                  "{\"step\": 2, \"validation_loss\": 2.0, \"eval_s\": 60.0}\n";
    skip_without_mpi();
    slurm_write("printf '8 1:00:00\\n7 0:00\\n'");
    expect_slurm("", 0, NULL);
    slurm_write("echo 7 INVALID");
    expect_slurm("", 0, NULL);
    slurm_write("exit 1");
    expect_slurm("SLURM_JOB_END_TIME=1", 0, NULL);
    scratch_write(scratch_path(folder, "records"), records, sizeof records - 1);
    slurm_write("echo 7 1:00");
    expect_slurm("", 1, "\"needed\": 72");
    slurm_write("printf '8 0:00\\n7 0-00:01:00\\n'");
    expect_slurm("SLURM_JOB_END_TIME=1", 1, "\"needed\": 72");
    unlink(scratch_path(folder, "records"));
}

/* An allocation without a limit, or of which Slurm knows none, asks for no end, whatever the
 * environment said. What is no time at all is none either. */
CASE(test_an_allocation_without_an_end)
{
    static const char *const lefts[] = {"UNLIMITED", "NOT_SET", "0:00x"};
    char words[PATH_MAX + 256], line[64];
    skip_without_mpi();
    for (size_t i = 0; i < sizeof lefts / sizeof *lefts; i++) {
        snprintf(line, sizeof line, "echo 7 %s", lefts[i]);
        slurm_write(line);
        script_write("bin/srun", "#!/bin/sh\nexit 0\n");
        snprintf(words, sizeof words,
                 "%s SLURM_JOB_ID=7 SLURM_JOB_NODELIST=node1 SLURM_JOB_END_TIME=1", enter);
        program_expect_under(words, "launch " LAUNCHED_KEYS "train.out=endless", 0, "");
        assert_int_equal(launched_events(folder, "endless", "deadline", NULL), 0);
        assert_int_equal(launched_events(folder, "endless", "done", NULL), (int)i + 1);
    }
}

/* A job that was told to begin with another run's checkpoint, and is killed with a snapshot but no
 * checkpoint of its own, goes on from the snapshot; without one it begins as it was told. */
CASE(test_a_snapshot_is_gone_on_from)
{
    char command[PATH_MAX + 512];
    skip_without_mpi();
    script_write("bin/mpirun",
                 "#!/bin/sh\ncase \"$*\" in *--version*) echo Open MPI; exit 0 ;; esac\n"
                 "for word in \"$@\"; do before=$last last=$word; done\n"
                 "echo \"$before $last\" >> resumed\n"
                 "[ ! -e shot ] || exit 0\ntouch shot\n"
                 "printf 'run %032d start 1 folder %d\\n' 7 $(stat -c %i shots) > shots/start\n"
                 "[ -e bare ] || mkdir -p memory/lockstep-$(id -u)-$(printf %016d 0)-$(uname -n)/"
                 "checkpoints/step-00000001\n"
                 "exit 1\n");
    for (int bare = 0; bare < 2; bare++) {
        snprintf(command, sizeof command,
                 "cd '%s' && rm -rf shots shot memory resumed bare && mkdir memory && %s", folder,
                 bare ? "touch bare" : ":");
        assert_int_equal(system(command), 0);
        program_expect_under(enter,
                             "launch " LAUNCHED_KEYS "train.out=shots train.resume=other/step-1 "
                             "snapshot.every=1 snapshot.folder=memory",
                             0, "");
        char *resumed = scratch_read(scratch_path(folder, "resumed"), NULL);
        assert_string_equal(resumed, "train.resume_else=other/step-1 train.resume=auto\n"
                                     "train.resume_else=other/step-1 train.resume=auto\n");
        free(resumed);
    }
}

static void expect_unused(const char *keys, bool unused)
{
    static char output[PROGRAM_OUTPUT_BYTES];
    char words[1024];
    snprintf(words, sizeof words, "launch " LAUNCHED_KEYS "train.out=kept %s", keys);
    assert_int_equal(program_run(enter, words, output), 0);
    bool told = strstr(output, "train.resume = archive is not used, because kept goes on from its "
                               "own step 0. ") != NULL;
    if (told != unused)
        fail_msg("%s: %s", keys, output);
}

/* A run with a checkpoint of its own goes on from that, and says so if another one was named. */
CASE(test_a_checkpoint_elsewhere_is_not_used)
{
    skip_without_mpi();
    mpirun_write("", 0);
    expect_unused("train.resume=archive", false);
    program_expect_under(enter, "train " LAUNCHED_KEYS "train.out=kept train.steps=0", 0, "");
    expect_unused("train.resume=archive", true);
    expect_unused("train.resume=auto train.resume_else=archive", false);
    expect_unused("train.resume=kept", false);
}

/* Who asks for a new run does not get an older one: `train` refuses it, until the job has begun.
 * Files that runs keep have `never` too. */
CASE(test_a_new_run_is_asked_for)
{
    char *resumed;
    skip_without_mpi();
    script_write("bin/mpirun",
                 "#!/bin/sh\ncase \"$*\" in *--version*) echo Open MPI; exit 0 ;; esac\n"
                 "for word in \"$@\"; do last=$word; done\necho \"$last\" >> last_words\n"
                 "starts=$(wc -l < last_words)\n[ $starts -lt 3 ] || exit 0\n"
                 "[ $starts -lt 2 ] || " BEGUN("fresh") "exit 137\n");
    program_expect_under(
        enter, "launch " LAUNCHED_KEYS "train.out=fresh train.resume=never launch.pause_s=0", 0,
        "");
    program_expect_under(enter, "train " LAUNCHED_KEYS "train.out=fresh train.steps=0", 0, "");
    program_expect_under(enter, "status fresh", 0, "checkpoint");
    program_expect_under(enter, "launch fresh/config.yaml", 0, "");
    resumed = scratch_read(scratch_path(folder, "last_words"), NULL);
    assert_string_equal(resumed, "train.resume=never\ntrain.resume=never\ntrain.resume=auto\n"
                                 "train.resume=auto\n");
    free(resumed);
}

/* A job goes on from the newest; whatever path leads to that, or to the run, names it too. */
CASE(test_an_older_checkpoint_of_its_own_is_refused)
{
    skip_without_mpi();
    mpirun_write("", 0);
    program_expect_under(
        enter, "train " LAUNCHED_KEYS "train.out=two train.steps=1 train.save_first=true", 0, "");
    program_expect_under(enter,
                         "launch " LAUNCHED_KEYS "train.out=two "
                         "train.resume=two/checkpoints/step-00000000",
                         2, "this run has the newer two/checkpoints/step-00000001");
    program_expect_under(enter,
                         "launch " LAUNCHED_KEYS "train.out=two "
                         "train.resume=$PWD/two/checkpoints/step-00000001",
                         0, "");
    program_expect_under(enter, "launch " LAUNCHED_KEYS "train.out=two train.resume=./two/", 0, "");
}

/* A rank that cannot go on: the step is ended by its name, which squeue tells of this job alone. */
CASE(test_the_tasks_of_a_step_that_is_killed)
{
    char words[PATH_MAX + 256];
    size_t length;
    skip_without_mpi();
    slurm_write("case \"$*\" in\n"
                "*--steps*--jobs=7*) echo 7.2 other; echo 7.3 $(cat step_name) ;;\n"
                "*--steps*) echo 7.4 $(cat step_name) ;;\n*) exit 1 ;;\nesac");
    script_write("bin/scancel", "#!/bin/sh\necho \"$@\" >> cancelled\n");
    script_write("bin/srun",
                 "#!/bin/sh\ncase \"$*\" in --version|--mpi=list) exit 0 ;; esac\n"
                 "for word in \"$@\"; do\n    case $word in --job-name=*) "
                 "echo ${word#--job-name=} > step_name ;; esac\ndone\n"
                 "echo '" LATE(0, "other", "it gave up") "' >&2\n"
                                                         "mkfifo never\nread -r word < never\n");
    snprintf(words, sizeof words, "%s SLURM_JOB_ID=7 SLURM_JOB_NODELIST=node1", enter);
    program_expect_under(words, "launch " LAUNCHED_KEYS "train.out=killed launch.retries=0", 137,
                         "communication, after step 0: rank 0: it gave up");
    char *cancelled = scratch_read(scratch_path(folder, "cancelled"), &length);
    static const char expected[] = "--signal=KILL 7.3\n";
    assert_int_equal(length, sizeof expected - 1);
    assert_memory_equal(cancelled, expected, length);
    free(cancelled);
}

/* A node that did not start its tasks: srun ends with 0 then, as if all had been done. */
CASE(test_a_step_that_did_not_begin)
{
    char words[PATH_MAX + 256];
    skip_without_mpi();
    slurm_write("exit 1");
    script_write("bin/srun", "#!/bin/sh\ncase \"$*\" in --version|--mpi=list) exit 0 ;; esac\n"
                             "[ ! -e step/begun ] || exit 0\ntouch step/begun\n"
                             "echo 'srun: error: task 0 launch failed: Unspecified error' >&2\n");
    snprintf(words, sizeof words, "%s SLURM_JOB_ID=7 SLURM_JOB_NODELIST=node1", enter);
    program_expect_under(words, "launch " LAUNCHED_KEYS "train.out=step", 0,
                         "other, after step 0: srun: error: task 0 launch failed");
    assert_int_equal(launched_events(folder, "step", "start", NULL), 2);
    assert_int_equal(launched_events(folder, "step", "failed", "\"code\": 0"), 1);
    assert_int_equal(launched_events(folder, "step", "done", NULL), 1);
}

/* Node2 fails, and is up again: the allocation has it no more, and srun refuses it. */
CASE(test_a_node_that_left_the_allocation)
{
    char words[PATH_MAX + 256];
    skip_without_mpi();
    slurm_write("[ -e node/begun ] && echo 7 node1 || echo 7 node[1-2]");
    script_write("bin/scontrol", "#!/bin/sh\necho node1\necho node2\n");
    script_write("bin/sinfo", "#!/bin/sh\ncase \"$*\" in\n*'--nodes=node[1-2] '*) echo node1 idle; "
                              "echo node2 idle ;;\n*--nodes=node1' '*) echo node1 idle ;;\nesac\n");
    script_write("bin/srun",
                 "#!/bin/sh\ncase \"$*\" in --version|--mpi=list) exit 0 ;; esac\n"
                 "echo \"$@\" >> node/started\n"
                 "[ ! -e node/begun ] || case \"$*\" in *node2*)\n"
                 "    echo 'srun: error: Requested node configuration is not available' "
                 ">&2; exit 1 ;;\n*) exit 0 ;;\nesac\n"
                 "touch node/begun\nexit 137\n");
    snprintf(words, sizeof words,
             "%s SLURM_JOB_ID=7 SLURM_JOB_NODELIST='node[1-2]' SLURM_TASKS_PER_NODE='1(x2)'",
             enter);
    program_expect_under(words,
                         "launch " LAUNCHED_KEYS "train.out=node parallel.dp=2 launch.pause_s=0", 0,
                         "host node2 does not answer");
    char *text = scratch_read(scratch_path(folder, "node/started"), NULL), *save = text;
    expect_started(&save, "--nodelist=node1,node2 ", "");
    expect_started(&save, "--nodelist=node1 ", "");
    assert_null(strtok_r(NULL, "\n", &save));
    free(text);
}

CASE(test_a_step_that_is_refused)
{
    char words[PATH_MAX + 256];
    skip_without_mpi();
    slurm_write("exit 1");
    script_write("bin/srun", "#!/bin/sh\ncase \"$*\" in --version|--mpi=list) exit 0 ;; esac\n"
                             "echo 'srun: error: Unable to create step for job 7' >&2\nexit 1\n");
    snprintf(words, sizeof words, "%s SLURM_JOB_ID=7 SLURM_JOB_NODELIST=node1", enter);
    program_expect_under(words, "launch " LAUNCHED_KEYS "train.out=refused launch.retries=0", 1,
                         "other, after step 0: srun: error: Unable to create step for job 7");
}

/* A run of which this host sees a lock, and no record yet. */
CASE(test_status_of_a_run_that_starts)
{
    static const char lock[] = "host node7\npid 4711\nstarted 1\nsince now\n";
    mkdir(scratch_path(folder, "starts"), 0755);
    program_expect_under(enter, "status starts", ls_exit_code(LS_EIO), "config.yaml");
    scratch_write(scratch_path(folder, "starts/lock"), lock, sizeof lock - 1);
    program_expect_under(enter, "status starts", 0,
                         "state       starting: process 4711 on node7, since now; seen from here "
                         "only by its lock\n");
}

/* A text that is longer than there is room for ends with a whole character. */
CASE(test_status_as_json)
{
    enum { CHARACTERS = 600, FIT = 511 };
    static const char keys[] = "model: {preset: gpt2-tiny, vocab: 50}\ntrain: {steps: 4}\n";
    char text[2 * CHARACTERS + 1] = "", record[2 * sizeof text];
    mkdir(scratch_path(folder, "worded"), 0755);
    scratch_write(scratch_path(folder, "worded/config.yaml"), keys, sizeof keys - 1);
    for (int i = 0; i < CHARACTERS; i++)
        memcpy(text + 2 * i, "\xc3\xa9", 3);
    snprintf(record, sizeof record,
             "{\"time\": 1, \"event\": \"end\", \"how\": \"failed\", \"text\": \"%s\"}\n", text);
    scratch_write(scratch_path(folder, "worded/metrics.jsonl"), record, strlen(record));
    snprintf(record, sizeof record,
             "{\"state\": \"failed\", \"who\": null, \"elsewhere\": false, \"text\": \"%.*s\", "
             "\"heard\": 1.0, \"step\": 0, \"steps\": 4, \"loss\": null, \"step_time\": null, "
             "\"checkpoint\": null, \"snapshot\": null, \"layout\": null, \"ranks\": null, "
             "\"failures\": {}, ",
             2 * FIT, text);
    program_expect_under(enter, "status worded --json", 0, record);
}

/* ---- what it is given ------------------------------------------------------------------------ */

CASE(test_bad_input)
{
    static const struct {
        const char *arguments, *words;
        int code;
    } bad[] = {
        {"launch", "expected a configuration: lockstep launch RUN.yaml", 2},
        {"launch none.yaml", "none.yaml", 16},
        {"launch train none.yaml", "leave the word train out", 2},
        {"launch /dev/null", "/dev/null is no regular file", 2},
        {"launch --ranks 0 " LAUNCHED_KEYS, "--ranks = 0: expected", 2},
        {"launch --ranks 2 --hosts hosts " LAUNCHED_KEYS, "give one of them", 2},
        {"launch --ranks 3 parallel.dp=2 " LAUNCHED_KEYS, "--ranks 3, but the layout has 2 ranks",
         13},
        {"launch --hosts none " LAUNCHED_KEYS, "none", 16},
        {"launch --hosts empty " LAUNCHED_KEYS, "it names no host: expected lines such as", 2},
        {"launch --hosts words " LAUNCHED_KEYS,
         "words:2: node2 slots=two: expected HOST slots=N, with N from 1 to 65536", 2},
        {"launch --hosts option " LAUNCHED_KEYS, "option:1: -oProxyCommand=x: this is no name", 2},
        {"launch --hosts twice " LAUNCHED_KEYS, "twice:3: host node1 is already listed", 2},
        {"launch parallel.dp=3 " LAUNCHED_KEYS, "parallel.dp", 13},
        {"status", "expected a run's folder", 2},
        {"status none", "none is no run's folder", 16},
        {"status bin", "bin", 16},
    };
    skip_without_mpi();
    scratch_write(scratch_path(folder, "hosts"), "node1\n", 6);
    scratch_write(scratch_path(folder, "empty"), "# nothing\n\n", 11);
    scratch_write(scratch_path(folder, "words"), "node1 # one\nnode2 slots=two\n", 29);
    scratch_write(scratch_path(folder, "option"), "-oProxyCommand=x slots=1\n", 25);
    scratch_write(scratch_path(folder, "twice"), "node1\n\nnode1 slots=2\n", 21);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        program_expect_under(enter, bad[i].arguments, bad[i].code, bad[i].words);
}

CASE(test_no_mpirun)
{
    char nowhere[PATH_MAX + 64];
    skip_without_mpi();
    snprintf(nowhere, sizeof nowhere, "cd '%s'; PATH=/nowhere", folder);
    program_expect_under(nowhere, "launch " LAUNCHED_KEYS, ls_exit_code(LS_ENOTSUP),
                         "mpirun was not found in PATH: install Open MPI");
}

SUITE_MAIN(setup, scratch_teardown)
