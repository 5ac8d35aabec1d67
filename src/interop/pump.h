/* Blocks of a file: one thread writes them while the caller makes the next ones. No thread spins,
 * so that the two leave the cores to others while they wait.
 *
 *   pump_open(&pump, bytes, error)
 *   unsigned char *block = pump_take(&pump)      waits for a block that is free; fill it
 *   pump_put(&pump, put, user, count, error)     count bytes of it go to put, in the thread
 *   pump_drain(&pump, status, error)             all is written; before user is closed
 *   pump_close(&pump)
 *
 * Blocks are written in order. After a failure the rest is dropped: pump_put and pump_drain return
 * it. Local; the pump has one caller. */
#ifndef INTEROP_PUMP_H
#define INTEROP_PUMP_H

#include <lockstep/ckpt.h>

#include <pthread.h>

/* Takes the next bytes of a file. */
typedef int pump_write(void *user, const void *data, size_t bytes, struct ls_error *error);

enum { PUMP_BLOCKS = 4 };
/* A zero struct may be closed. Fields are private. */
struct pump {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool runs, ends;
    int64_t made, written; /* blocks so far */
    unsigned char *memory;
    struct pump_block {
        unsigned char *data;
        size_t bytes;
        pump_write *put;
        void *user;
    } blocks[PUMP_BLOCKS];
    struct ls_error error; /* the first failure */
};
/* bytes: of a block. LS_ENOMEM, or what the system says of a thread. */
int pump_open(struct pump *pump, size_t bytes, struct ls_error *error);
void *pump_take(struct pump *pump);
int pump_put(struct pump *pump, pump_write *put, void *user, size_t bytes, struct ls_error *error);
/* user: a struct ls_safetensors_writer. */
int pump_safetensors(void *user, const void *data, size_t bytes, struct ls_error *error);
/* Returns status, if that is a failure already. */
int pump_drain(struct pump *pump, int status, struct ls_error *error);
void pump_close(struct pump *pump);

#endif
