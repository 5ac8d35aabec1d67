/* A queue's mode check: buffers that live or not, poison and red zones, and memory that is closed
 * to the host. */
#include <lockstep/device/check.h>

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { POISON = 0xff, ZONE = 0x5c };

/* ---- what is found --------------------------------------------------------------------------- */

/* The first failure is told. */
static void blame(struct ls_check *check, const void *what, const char *how)
{
    char name[LS_CHECK_TEXT];
    if (check->failure[0])
        return;
    check->names(check->of, what, name);
    snprintf(check->failure, sizeof check->failure, "%s: %s %s", check->where, name, how);
}

static bool meets(const struct ls_check_buffer *b, const unsigned char *at, size_t bytes)
{
    return at < b->at + b->bytes + b->zone && b->at < at + bytes;
}

static bool holds(const struct ls_check_buffer *b, const unsigned char *at, size_t bytes)
{
    return b->lives && at >= b->at && at + bytes <= b->at + b->bytes;
}

/* An operand lies in a buffer that lives, or outside of all. Otherwise one that it meets is to
 * blame: one that lives before others, and of these one that begins where the operand does. */
static void operand_check(struct ls_check *check, const unsigned char *at, size_t bytes)
{
    const struct ls_check_buffer *met = NULL;
    for (int i = 0; i < check->count; i++) {
        const struct ls_check_buffer *b = &check->buffers[i];
        if (holds(b, at, bytes))
            return;
        if (meets(b, at, bytes) &&
            (!met || b->lives > met->lives || (b->lives == met->lives && b->at == at)))
            met = b;
    }
    if (met)
        blame(check, met->what,
              met->lives ? "is read or written past its end"
                         : "is read or written when it does not live");
}

/* Opens or closes what the host keeps out of. */
static void memory_update(struct ls_check *check)
{
    bool open = check->host || check->running > 0;
    if (!check->memory || open == check->open)
        return;
    LS_ASSERT(
        !mprotect(check->memory, check->memory_bytes, open ? PROT_READ | PROT_WRITE : PROT_NONE));
    check->open = open;
}

void ls_check_submit(struct ls_queue *queue, const struct ls_command *command)
{
    struct ls_check *check = queue->check;
    struct ls_operands operands;
    if (check->count > 0) {
        ls_command_operands(queue, command, &operands);
        for (int i = 0; i < operands.count; i++)
            operand_check(check, ls_operand_pointer(command, &operands.list[i]),
                          operands.list[i].bytes);
    }
    check->host = false;
    memory_update(check);
}

/* ---- poison and red zones -------------------------------------------------------------------- */

struct poisoned {
    unsigned char *at;
    size_t bytes, zone; /* the zone is written, too */
};

static int poison_run(struct ls_queue *queue, const struct ls_command *command,
                      struct ls_error *error)
{
    const struct poisoned *e = command->arguments;
    (void)queue;
    (void)error;
    memset(e->at, POISON, e->bytes);
    memset(e->at + e->bytes, ZONE, e->zone);
    return LS_OK;
}

struct looked {
    const unsigned char *zone;
    size_t bytes;
    ls_check_names *names;
    const void *of, *what;
    char where[LS_CHECK_TEXT];
};

static int look_run(struct ls_queue *queue, const struct ls_command *command,
                    struct ls_error *error)
{
    const struct looked *e = command->arguments;
    char name[LS_CHECK_TEXT];
    (void)queue;
    for (size_t i = 0; i < e->bytes; i++)
        if (e->zone[i] != ZONE) {
            e->names(e->of, e->what, name);
            return ls_error_set(error, LS_EINVAL, "%s: %s was written past its end", e->where,
                                name);
        }
    return LS_OK;
}

/* They say no operands: nobody else's buffers are theirs. */
static int poison(struct ls_queue *queue, const struct ls_check_buffer *b, size_t zone,
                  struct ls_error *error)
{
    static const struct ls_op op = {.bytes = sizeof(struct poisoned), .run = poison_run};
    const struct poisoned e = {b->at, b->bytes, zone};
    return ls_submit(queue, &(struct ls_command){&op, &e}, error);
}

static int zone_look(struct ls_queue *queue, const struct ls_check_buffer *b,
                     struct ls_error *error)
{
    static const struct ls_op op = {.bytes = sizeof(struct looked), .run = look_run};
    const struct ls_check *check = queue->check;
    struct looked e = {.zone = b->at + b->bytes,
                       .bytes = b->zone,
                       .names = check->names,
                       .of = check->of,
                       .what = b->what};
    memcpy(e.where, check->where, sizeof e.where);
    return ls_submit(queue, &(struct ls_command){&op, &e}, error);
}

/* ---- buffers --------------------------------------------------------------------------------- */

void ls_check_list(struct ls_check *check, ls_check_names *names, const void *of)
{
    check->count = 0;
    check->names = names;
    check->of = of;
}

void ls_check_add(struct ls_check *check, void *at, size_t bytes, size_t zone, bool lives,
                  const void *what)
{
    LS_ASSERT(check->count < LS_CHECK_BUFFERS);
    check->buffers[check->count++] = (struct ls_check_buffer){at, bytes, zone, lives, what};
}

int ls_check_begin(struct ls_queue *queue, int buffer, struct ls_error *error)
{
    struct ls_check_buffer *b = &queue->check->buffers[buffer];
    b->lives = true;
    return poison(queue, b, b->zone, error);
}

int ls_check_end(struct ls_queue *queue, int buffer, struct ls_error *error)
{
    struct ls_check_buffer *b = &queue->check->buffers[buffer];
    b->lives = false;
    return poison(queue, b, 0, error);
}

void ls_check_use(struct ls_check *check, const void *what)
{
    for (int i = 0; i < check->count; i++)
        if (check->buffers[i].what == what && check->buffers[i].lives)
            return;
    blame(check, what, "is read or written when it does not live");
}

int ls_check_look(struct ls_queue *queue, struct ls_error *error)
{
    struct ls_check *check = queue->check;
    int status = LS_OK;
    for (int i = 0; i < check->count && !status && !check->failure[0]; i++)
        if (check->buffers[i].lives)
            status = zone_look(queue, &check->buffers[i], error);
    if (check->failure[0])
        status = ls_error_set(error, LS_EINVAL, "%s", check->failure);
    check->failure[0] = '\0';
    return status;
}

/* ---- the host keeps out ---------------------------------------------------------------------- */

void ls_check_memory(struct ls_check *check, void *memory, size_t bytes)
{
    check->host = true; /* of what was closed before */
    memory_update(check);
    check->memory = memory;
    check->memory_bytes = bytes;
    check->open = true;
    check->host = false;
    memory_update(check);
}

void ls_check_run_begin(struct ls_check *check)
{
    check->running++;
    memory_update(check);
}

void ls_check_run_end(struct ls_check *check)
{
    check->running--;
    memory_update(check);
}

void ls_check_waited(struct ls_check *check)
{
    check->host = true;
    memory_update(check);
}
