/* lockstep/device/check.h - check, the mode of a queue that finds who touches what he may not.
 *
 *   struct ls_check check = {0};
 *   queue.check = &check;                                  the mode is on
 *   ls_check_list(&check, names, of)                       buffers of a part of the program: none
 *   ls_check_add(&check, at, bytes, zone, lives, what)     each of them
 *   ls_check_begin(&queue, i, &error)                      buffer i lives from here on
 *   ... commands ...
 *   ls_check_look(&queue, &error)                          LS_EINVAL: what they did that is wrong
 *   ls_check_end(&queue, i, &error)
 *   ls_check_memory(&check, memory, bytes)                 the host keeps out of it
 *
 * - Buffers. A buffer that begins or ends is poisoned: bytes 0xff, not a number in every type that
 *   is computed in. A red zone lies behind each that lives. A command's operands must lie in
 *   buffers that live, or outside of all that are listed; ls_check_look also finds zones that were
 *   written, by ops whose operands are told wrong.
 * - Host reads. After a command was submitted, memory is open to commands alone: a host that reads
 *   or writes there before ls_queue_synchronise faults (SIGSEGV). For one rank whose memory no
 *   other thread uses.
 *
 * Poison, zones and looks are commands: no host waits for them, and they run on a queue that is
 * behind. Everything here is Local. */
#ifndef LOCKSTEP_DEVICE_CHECK_H
#define LOCKSTEP_DEVICE_CHECK_H

#include <lockstep/device/queue.h>

LS_C_BEGIN

enum { LS_CHECK_BUFFERS = 160, LS_CHECK_TEXT = 96 };

struct ls_check_buffer {
    unsigned char *at;
    size_t bytes, zone; /* of the buffer; of the red zone behind it */
    bool lives;
    const void *what; /* several buffers may be of one thing, at different times */
};

/* The name of `what`, a thing that `of` owns. Both must outlive the commands. */
typedef void ls_check_names(const void *of, const void *what, char name[LS_CHECK_TEXT]);

/* A plain value; {0} has no buffers and no memory. */
struct ls_check {
    struct ls_check_buffer buffers[LS_CHECK_BUFFERS];
    int count;
    ls_check_names *names;
    const void *of;
    char where[LS_CHECK_TEXT];       /* set by the caller: who submits now, as errors begin */
    char failure[3 * LS_CHECK_TEXT]; /* of a command, until the next ls_check_look */
    unsigned char *memory;           /* NULL: the host may touch all */
    size_t memory_bytes;
    bool open;   /* the memory is, now */
    bool host;   /* the host has waited, and may touch it */
    int running; /* commands, or lists of them */
};

/* Forgets all buffers. */
void ls_check_list(struct ls_check *check, ls_check_names *names, const void *of);
/* Buffers have numbers from 0, in the order in which they are added. */
void ls_check_add(struct ls_check *check, void *at, size_t bytes, size_t zone, bool lives,
                  const void *what);
int ls_check_begin(struct ls_queue *queue, int buffer, struct ls_error *error);
int ls_check_end(struct ls_queue *queue, int buffer, struct ls_error *error);
/* Somebody asks for what lies in a buffer of `what`: one must live. */
void ls_check_use(struct ls_check *check, const void *what);
/* LS_EINVAL: "WHERE: NAME was written past its end". Of a queue that is behind, a red zone's error
 * comes when it runs. */
int ls_check_look(struct ls_queue *queue, struct ls_error *error);

/* From here on the host keeps out of [memory, bytes): whole pages. NULL: it may touch all. */
void ls_check_memory(struct ls_check *check, void *memory, size_t bytes);
/* Around commands that run one after the other: the memory is opened once. They nest. */
void ls_check_run_begin(struct ls_check *check);
void ls_check_run_end(struct ls_check *check);

/* For the queue: a command is submitted; the host has waited for all. */
void ls_check_submit(struct ls_queue *queue, const struct ls_command *command);
void ls_check_waited(struct ls_check *check);

LS_C_END
#endif
