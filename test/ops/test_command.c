/* Commands: an op touches what its operands say, no byte more, and does with it what they say; and
 * a command that was kept does again what it did. */
#include "../support/suite.h"
#include "every_op.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- every op's commands --------------------------------------------------------------------- */

enum { BUFFERS = 32, PAGE = 4096, BEFORE = 0x35 };
static unsigned char *addresses; /* of no memory: BUFFERS x EVERY_OP_BYTES */
static int taken;

static void *next_address(void)
{
    assert_true(taken < BUFFERS);
    return addresses + (size_t)taken++ * EVERY_OP_BYTES;
}

static void keep(void *user, const struct ls_queue *queue, const struct ls_command *command)
{
    struct ls_work work;
    (void)queue;
    if (ls_command_work(command, &work))
        assert_true(ls_command_list_add(user, command));
}

static struct ls_command_list commands_of(const struct every_op *op)
{
    struct ls_command_list list = {.count = 0};
    const struct ls_queue_watch watch = {.begin = keep, .user = &list};
    struct ls_ops idle;
    ls_ops_init_idle(&idle, LS_ISA_PLAIN);
    idle.queue.watch = &watch;
    taken = 0;
    if (op->run(&idle))
        fail_msg("%s refuses", op->name);
    return list;
}

/* ---- memory that faults where no operand is -------------------------------------------------- */

/* Bytes that end where memory ends. */
static unsigned char *guarded(size_t bytes)
{
    size_t room = (bytes + PAGE - 1) / PAGE * PAGE;
    unsigned char *at =
        mmap(NULL, room + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(at != MAP_FAILED);
    assert_int_equal(mprotect(at + PAGE, room, PROT_READ | PROT_WRITE), 0);
    return at + PAGE + room - bytes;
}

static void fill(unsigned char *at, const struct ls_operand *operand, unsigned char written)
{
    for (size_t i = 0; i < operand->bytes; i += 4) {
        const float value = 0.25f + (float)(i % 28) / 64;
        const int32_t number = operand->least;
        size_t bytes = operand->bytes - i < 4 ? operand->bytes - i : 4;
        memcpy(at + i, operand->below ? (const void *)&number : (const void *)&value, bytes);
    }
    if (operand->access == LS_WRITES)
        memset(at, written, operand->bytes);
}

/* Runs the command on guarded memory. Of what is only written, all bytes were `written` before. */
static void run_guarded(struct ls_ops *ops, const struct ls_command *command,
                        const struct ls_operands *operands, unsigned char written,
                        unsigned char *out[LS_OPERANDS_MAX])
{
    struct ls_error error = {0};
    for (int i = 0; i < operands->count; i++) {
        const struct ls_operand *operand = &operands->list[i];
        out[i] = guarded(operand->bytes);
        fill(out[i], operand, written);
        ls_operand_move(command, operand, out[i]);
        if (operand->access == LS_READS) {
            unsigned char *page = (unsigned char *)((uintptr_t)out[i] / PAGE * PAGE);
            size_t room = (size_t)(out[i] + operand->bytes - page);
            assert_int_equal(mprotect(page, room, PROT_READ), 0);
        }
    }
    assert_ok(ls_submit(&ops->queue, command, &error), error);
}

/* Between rows that lie apart nothing is written. */
static bool is_gap(unsigned char first, unsigned char second)
{
    return first == BEFORE && second == (unsigned char)~BEFORE;
}

enum { SAME, DIFFERENT };

/* In a process of its own: its status. */
static int tried(const struct ls_command *command)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct ls_ops ops;
        struct ls_error error = {0};
        struct ls_operands operands;
        unsigned char *out[2][LS_OPERANDS_MAX];
        signal(SIGSEGV, SIG_DFL);
        if (ls_ops_init(&ops, 1, ls_isa_best(), &error))
            _exit(100);
        ls_command_operands(&ops.queue, command, &operands);
        for (int turn = 0; turn < 2; turn++)
            run_guarded(&ops, command, &operands, turn ? (unsigned char)~BEFORE : BEFORE,
                        out[turn]);
        for (int i = 0; i < operands.count; i++)
            for (size_t b = 0; b < operands.list[i].bytes; b++)
                if (out[0][i][b] != out[1][i][b] && !is_gap(out[0][i][b], out[1][i][b]))
                    _exit(DIFFERENT);
        _exit(SAME);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

CASE(test_ops_touch_their_operands_alone)
{
    int commands = 0;
    for (int i = 0; i < every_op_count; i++) {
        struct ls_command_list list = commands_of(&every_op[i]);
        for (int64_t c = 0; c < list.count; c++, commands++) {
            const struct ls_command command = ls_command_list_get(&list, c);
            int status = tried(&command);
            if (WIFSIGNALED(status))
                fail_msg("%s, command %d: signal %d: an operand is missing, too short or written "
                         "where it should be read",
                         every_op[i].name, (int)c, WTERMSIG(status));
            if (WEXITSTATUS(status) != SAME)
                fail_msg("%s, command %d: a result depends on what was there before it was "
                         "written",
                         every_op[i].name, (int)c);
        }
        ls_command_list_release(&list);
    }
    assert_true(commands >= every_op_count);
}

/* ---- twins: operands that are told wrong ----------------------------------------------------- */

static const struct ls_op *told_by; /* the op whose operands are changed */
static enum { TOO_SHORT, MISSING, READ_ONLY, NOT_READ } lie;

static int run_as_told(struct ls_queue *queue, const struct ls_command *command,
                       struct ls_error *error)
{
    return told_by->run(queue, &(struct ls_command){told_by, command->arguments}, error);
}

static void operands_wrong(const struct ls_queue *queue, const struct ls_command *command,
                           struct ls_operands *out)
{
    told_by->operands(queue, &(struct ls_command){told_by, command->arguments}, out);
    struct ls_operand *last = &out->list[out->count - 1];
    if (lie == TOO_SHORT)
        last->bytes -= 4;
    else if (lie == MISSING)
        out->count--;
    else
        last->access = lie == READ_ONLY ? LS_READS : LS_WRITES;
}

static int run_tree_add(struct ls_ops *ops)
{
    ls_tree_add(ops, EVERY_OP_N, next_address(), next_address());
    return LS_OK;
}

CASE(test_wrong_operands_are_caught)
{
    const struct every_op tree_add = {"ls_tree_add", run_tree_add};
    struct ls_command_list list = commands_of(&tree_add);
    struct ls_command command = ls_command_list_get(&list, 0);
    const struct ls_op wrong = {command.op->bytes, operands_wrong, run_as_told};
    told_by = command.op;
    command.op = &wrong;
    for (lie = TOO_SHORT; lie <= NOT_READ; lie++) {
        /* What was sent elsewhere by the twin before goes back to where no memory is. */
        struct ls_operands operands;
        struct ls_ops idle;
        ls_ops_init_idle(&idle, LS_ISA_PLAIN);
        ls_command_operands(&idle.queue, &(struct ls_command){told_by, command.arguments},
                            &operands);
        taken = 0;
        for (int i = 0; i < operands.count; i++)
            ls_operand_move(&command, &operands.list[i], next_address());
        int status = tried(&command);
        if (lie == NOT_READ)
            assert_true(WIFEXITED(status) && WEXITSTATUS(status) == DIFFERENT);
        else
            assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    }
    ls_command_list_release(&list);
}

/* ---- lists ----------------------------------------------------------------------------------- */

/* Arguments stay what they were, however many are kept behind them. */
CASE(test_lists_keep_arguments)
{
    enum { COPIES = 500 };
    struct ls_command_list list = {.count = 0};
    const struct ls_queue_watch watch = {.begin = keep, .user = &list};
    struct ls_ops idle;
    ls_ops_init_idle(&idle, LS_ISA_PLAIN);
    idle.queue.watch = &watch;
    for (int i = 0; i < COPIES; i++)
        ls_copy(&idle, (size_t)i + 1, addresses + i, addresses + 2 * i);
    assert_int_equal(list.count, COPIES);
    for (int i = 0; i < COPIES; i++) {
        const struct ls_command command = ls_command_list_get(&list, i);
        struct ls_operands operands;
        ls_command_operands(&idle.queue, &command, &operands);
        assert_int_equal(operands.count, 2);
        for (int o = 0; o < 2; o++) {
            assert_int_equal(operands.list[o].bytes, i + 1);
            assert_ptr_equal(ls_operand_pointer(&command, &operands.list[o]),
                             addresses + (o + 1) * i);
        }
    }
    ls_command_list_release(&list);
}

static int addresses_setup(void **state)
{
    addresses = mmap(NULL, (size_t)BUFFERS * EVERY_OP_BYTES, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    every_op_at = next_address;
    return addresses == MAP_FAILED;
}

SUITE_MAIN(addresses_setup, NULL)
