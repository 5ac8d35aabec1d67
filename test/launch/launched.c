/* Runs `lockstep launch`, and reads what it recorded. */
#include "launched.h"
#include "../support/testing.h"

#include "../cmd/run_program.h"
#include "../support/await.h"
#include "../support/scratch.h"

#include <lockstep/base.h>
#include <lockstep/trace.h>

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *file_of(const char *folder, const char *out, const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s%s", out, name);
    return scratch_path(folder, path);
}

pid_t launched_start(const char *folder, const char *before, const char *out, const char *arguments)
{
    char program[PATH_MAX], line[4 * PATH_MAX];
    program_path(program, sizeof program);
    snprintf(line, sizeof line,
             "cd '%s' && %s OMP_WAIT_POLICY=passive ASAN_OPTIONS=detect_leaks=0 exec '%s' launch "
             "train.out=%s %s > %s.log 2>&1",
             folder, before, program, out, arguments, out);
    return program_start(line, SIGKILL);
}

/* Whether the file is another one than at the last look, which it keeps: what did not change since
 * then is not read again. */
static bool is_changed(const char *path, struct stat *last)
{
    struct stat now;
    if (stat(path, &now))
        now = (struct stat){0};
    bool changed = now.st_ino != last->st_ino || now.st_size != last->st_size ||
                   now.st_mtim.tv_sec != last->st_mtim.tv_sec ||
                   now.st_mtim.tv_nsec != last->st_mtim.tv_nsec;
    *last = now;
    return changed;
}

int64_t launched_await_step(pid_t launcher, const char *folder, const char *out, int64_t step)
{
    struct stat look = {0};
    for (;;) {
        if (is_changed(file_of(folder, out, "/metrics.jsonl"), &look)) {
            struct launched_steps steps;
            launched_steps_read(&steps, folder, out);
            int64_t last = steps.last;
            launched_steps_release(&steps);
            if (last >= step)
                return last;
        }
        program_await_job(launcher, file_of(folder, out, ".log"));
    }
}

int launched_events(const char *folder, const char *out, const char *event, const char *words)
{
    char name[64];
    int count = 0;
    if (access(file_of(folder, out, "/events.jsonl"), R_OK))
        return 0;
    snprintf(name, sizeof name, "\"event\": \"%s\"", event);
    char *text = scratch_read(file_of(folder, out, "/events.jsonl"), NULL), *save = NULL;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        count += strstr(line, name) && (!words || strstr(line, words));
    free(text);
    return count;
}

void launched_await_event(pid_t launcher, const char *folder, const char *out, const char *event,
                          int count)
{
    struct stat look = {0};
    while (!is_changed(file_of(folder, out, "/events.jsonl"), &look) ||
           launched_events(folder, out, event, NULL) < count)
        program_await_job(launcher, file_of(folder, out, ".log"));
}

int launched_ranks(const char *folder, const char *out, pid_t pids[LAUNCHED_RANKS])
{
    char word[64];
    const char *words[] = {"train", word};
    snprintf(word, sizeof word, "train.out=%s", out);
    return program_ranks(folder, words, 2, pids, LAUNCHED_RANKS);
}

int launched_end(pid_t launcher)
{
    int status;
    assert_int_equal(waitpid(launcher, &status, 0), launcher);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int launched_ask(pid_t launcher)
{
    assert_int_equal(kill(launcher, SIGTERM), 0);
    return launched_end(launcher);
}

void launched_stop(pid_t launcher, const char *folder, const char *out)
{
    int code = launched_ask(launcher);
    if (code != ls_exit_code(LS_ESTOPPED))
        fail_msg("the launcher ended with %d:\n%s", code,
                 scratch_read(file_of(folder, out, ".log"), NULL));
}

/* ---- what is recorded ------------------------------------------------------------------------ */

static void step_visit(void *user, const struct ls_record *record)
{
    struct launched_steps *steps = user;
    const char *bits = ls_record_text(record, "loss_bits"), *hash = ls_record_text(record, "hash");
    double step;
    if (!bits || !ls_record_number(record, "step", &step))
        return;
    int64_t at = (int64_t)step;
    assert_int_equal(at, steps->last + 1); /* each step once, none left out */
    assert_true(ls_list_grow(&steps->loss_bits, at, &steps->room, sizeof *steps->loss_bits));
    steps->last = at;
    steps->loss_bits[at] = (uint32_t)strtoul(bits, NULL, 16);
    snprintf(steps->hash, sizeof steps->hash, "%s", hash ? hash : "");
}

void launched_steps_read(struct launched_steps *steps, const char *folder, const char *out)
{
    bool torn;
    *steps = (struct launched_steps){0};
    assert_true(ls_list_grow(&steps->loss_bits, 0, &steps->room, sizeof *steps->loss_bits));
    ls_jsonl_each(file_of(folder, out, "/metrics.jsonl"), step_visit, steps, &torn, NULL);
}

void launched_steps_release(struct launched_steps *steps)
{
    free(steps->loss_bits);
}

bool launched_steps_agree(const struct launched_steps *a, const struct launched_steps *b)
{
    if (a->last > b->last)
        return false;
    for (int64_t step = 1; step <= a->last; step++)
        if (a->loss_bits[step] != b->loss_bits[step])
            return false;
    return a->last < b->last || !a->hash[0] || strcmp(a->hash, b->hash) == 0;
}

void launched_reference(struct launched_steps *steps, const char *folder, const char *keys_more,
                        int64_t last)
{
    static char output[PROGRAM_OUTPUT_BYTES];
    char enter[PATH_MAX], keys[1024];
    snprintf(enter, sizeof enter, "cd '%s'; rm -rf reference; LOCKSTEP_PEAK_FLOPS=1e12", folder);
    snprintf(keys, sizeof keys, "train " LAUNCHED_KEYS "%s train.out=reference train.steps=%ld",
             keys_more, (long)last);
    int code = program_run(enter, keys, output);
    if (code)
        fail_msg("the reference ended with %d:\n%s", code, output);
    launched_steps_read(steps, folder, "reference");
    assert_int_equal(steps->last, last);
}

int64_t launched_expect_same(const char *folder, const char *out)
{
    return launched_expect_same_of(folder, out, "");
}

int64_t launched_expect_same_of(const char *folder, const char *out, const char *keys)
{
    struct launched_steps got, expected;
    launched_steps_read(&got, folder, out);
    launched_reference(&expected, folder, keys, got.last);
    if (!got.hash[0] || !launched_steps_agree(&got, &expected))
        fail_msg("%s ends at step %ld with hash %s, one rank with %s:\n%s", out, (long)got.last,
                 got.hash, expected.hash, scratch_read(file_of(folder, out, ".log"), NULL));
    int64_t last = got.last;
    launched_steps_release(&got);
    launched_steps_release(&expected);
    return last;
}
