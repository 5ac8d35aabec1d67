/* A queue's mode check: commands that touch what does not live, or more than they say, and a host
 * that reads before it waited, are found; what is right is not. At once, and by a queue that is
 * behind. */
#include "../support/suite.h"

#include <lockstep/device/check.h>

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 100, ZONE = 28, PAGES = 4 * 4096 };

/* ---- a queue that may be behind -------------------------------------------------------------- */

static struct ls_command_list list;

static int keep(struct ls_queue *queue, const struct ls_command *command, struct ls_error *error)
{
    (void)queue;
    (void)error;
    assert_true(ls_command_list_add(&list, command));
    return LS_OK;
}

static int run_kept(struct ls_queue *queue, struct ls_error *error)
{
    int status = LS_OK;
    for (int64_t i = 0; i < list.count && !status; i++) {
        const struct ls_command command = ls_command_list_get(&list, i);
        status = ls_command_run(queue, &command, error);
    }
    ls_command_list_release(&list);
    return status;
}

/* ---- a command: bytes become 1 --------------------------------------------------------------- */

struct ones {
    unsigned char *at;
    size_t bytes, told; /* what it writes, and what it says */
};

static void ones_operands(const struct ls_queue *queue, const struct ls_command *command,
                          struct ls_operands *out)
{
    const struct ones *e = command->arguments;
    (void)queue;
    ls_operand_add(out, e, &e->at, e->told, LS_WRITES);
}

static int ones_run(struct ls_queue *queue, const struct ls_command *command,
                    struct ls_error *error)
{
    const struct ones *e = command->arguments;
    (void)queue;
    (void)error;
    memset(e->at, 1, e->bytes);
    return LS_OK;
}

static void ones(struct ls_queue *queue, unsigned char *at, size_t bytes, size_t told)
{
    static const struct ls_op op = {sizeof(struct ones), ones_operands, ones_run};
    struct ls_error error = {0};
    const struct ones e = {at, bytes, told};
    assert_ok(ls_submit(queue, &(struct ls_command){&op, &e}, &error), error);
}

/* ---- a queue that checks --------------------------------------------------------------------- */

static void names(const void *of, const void *what, char name[LS_CHECK_TEXT])
{
    snprintf(name, LS_CHECK_TEXT, "%s of %s", (const char *)what, (const char *)of);
}

static struct ls_arena arena; /* buffer "a" lies at its beginning, "b" behind a's zone */
static struct ls_check check;
static struct ls_queue queue;
static unsigned char *a, *b;

static void open_queue(bool behind)
{
    struct ls_error error = {0};
    assert_ok(ls_arena_init(&arena, PAGES, &error), error);
    a = arena.base;
    b = a + BYTES + ZONE;
    check = (struct ls_check){0};
    queue = (struct ls_queue){.check = &check};
    if (behind) {
        queue.submit = keep;
        queue.synchronise = run_kept;
    }
    ls_check_list(&check, names, "test");
    ls_check_add(&check, a, BYTES, ZONE, false, "a");
    ls_check_add(&check, b, BYTES, ZONE, false, "b");
    snprintf(check.where, sizeof check.where, "step 1");
}

static void lives(int buffer)
{
    struct ls_error error = {0};
    assert_ok(ls_check_begin(&queue, buffer, &error), error);
}

/* A look finds this, or nothing (NULL). */
static void expect_found(const char *text)
{
    struct ls_error error = {0};
    int status = ls_check_look(&queue, &error);
    if (!status)
        status = ls_queue_synchronise(&queue, &error);
    assert_int_equal(status, text ? LS_EINVAL : LS_OK);
    if (text)
        assert_string_equal(error.text, text);
}

/* Each case at once, and behind. */
static void both(void (*body)(void))
{
    for (int behind = 0; behind < 2; behind++) {
        open_queue(behind);
        body();
        ls_arena_release(&arena);
    }
}

/* ---- buffers --------------------------------------------------------------------------------- */

static void what_lives_may_be_written(void)
{
    lives(0);
    ones(&queue, a, BYTES, BYTES);
    ones(&queue, a + 2 * PAGES / 4, BYTES, BYTES); /* in no buffer */
    expect_found(NULL);
    assert_int_equal(a[BYTES - 1], 1);
}

CASE(test_what_lives_may_be_written)
{
    both(what_lives_may_be_written);
}

static void what_is_dead_may_not(void)
{
    struct ls_error error = {0};
    ones(&queue, a, 4, 4);
    expect_found("step 1: a of test is read or written when it does not live");
    lives(0);
    ones(&queue, a, 4, 4);
    expect_found(NULL);
    assert_ok(ls_check_end(&queue, 0, &error), error);
    ls_check_use(&check, "b");
    expect_found("step 1: b of test is read or written when it does not live");
}

CASE(test_what_is_dead_may_not)
{
    both(what_is_dead_may_not);
}

static void operands_end_with_their_buffer(void)
{
    lives(0);
    lives(1);
    ones(&queue, a, BYTES, BYTES + 1);
    expect_found("step 1: a of test is read or written past its end");
}

CASE(test_operands_end_with_their_buffer)
{
    both(operands_end_with_their_buffer);
}

/* The op says less than it writes. */
static void a_red_zone_finds_what_operands_hide(void)
{
    lives(0);
    ones(&queue, a, BYTES + 1, BYTES);
    expect_found("step 1: a of test was written past its end");
}

CASE(test_a_red_zone_finds_what_operands_hide)
{
    both(a_red_zone_finds_what_operands_hide);
}

static void what_begins_and_ends_is_poison(void)
{
    struct ls_error error = {0};
    lives(0);
    expect_found(NULL);
    assert_int_equal(a[0], 0xff);
    assert_int_equal(a[BYTES - 1], 0xff);
    ones(&queue, a, BYTES, BYTES);
    assert_ok(ls_check_end(&queue, 0, &error), error);
    assert_ok(ls_queue_synchronise(&queue, &error), error);
    assert_int_equal(a[0], 0xff);
}

CASE(test_what_begins_and_ends_is_poison)
{
    both(what_begins_and_ends_is_poison);
}

/* ---- the host -------------------------------------------------------------------------------- */

/* In a process of its own: its status. Or it waits, and submits once more. */
static int host_reads(bool waits, bool again)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct ls_error error = {0};
        signal(SIGSEGV, SIG_DFL);
        ls_check_memory(&check, arena.base, PAGES);
        ones(&queue, a + BYTES * 8, 1, 1);
        if (waits && ls_queue_synchronise(&queue, &error))
            _exit(2);
        if (again)
            ones(&queue, a + BYTES * 8, 1, 1);
        _exit(*(volatile unsigned char *)(a + BYTES * 8) == 1 ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void a_host_that_does_not_wait_faults(void)
{
    assert_int_equal(host_reads(true, false), 0);
    for (int waits = 0; waits < 2; waits++) {
        int status = host_reads(waits, true);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    }
    ls_check_memory(&check, arena.base, PAGES);
    ls_check_memory(&check, NULL, 0);
    assert_int_equal(*a, 0); /* it is open again */
}

CASE(test_a_host_that_does_not_wait_faults)
{
    both(a_host_that_does_not_wait_faults);
}

SUITE_MAIN(NULL, NULL)
