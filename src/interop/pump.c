/* A thread that writes blocks while others are made. */
#include "interop/pump.h"

#include <lockstep/base/helper_thread.h>

#include <stdlib.h>

static void *writer_main(void *user)
{
    struct pump *pump = user;
    pthread_mutex_lock(&pump->mutex);
    for (;;) {
        while (pump->written == pump->made && !pump->ends)
            pthread_cond_wait(&pump->changed, &pump->mutex);
        if (pump->written == pump->made)
            break;
        const struct pump_block *block = &pump->blocks[pump->written % PUMP_BLOCKS];
        bool good = !pump->error.code;
        pthread_mutex_unlock(&pump->mutex);
        struct ls_error error = {0};
        if (good)
            block->put(block->user, block->data, block->bytes, &error);
        pthread_mutex_lock(&pump->mutex);
        if (error.code)
            pump->error = error;
        pump->written++;
        pthread_cond_signal(&pump->changed);
    }
    pthread_mutex_unlock(&pump->mutex);
    return NULL;
}

int pump_open(struct pump *pump, size_t bytes, struct ls_error *error)
{
    *pump = (struct pump){.memory = malloc(bytes * PUMP_BLOCKS)};
    if (!pump->memory)
        return ls_no_memory(error, "for blocks of a file");
    for (int i = 0; i < PUMP_BLOCKS; i++)
        pump->blocks[i].data = pump->memory + (size_t)i * bytes;
    pthread_mutex_init(&pump->mutex, NULL);
    pthread_cond_init(&pump->changed, NULL);
    int failure = ls_helper_start(&pump->thread, writer_main, pump);
    pump->runs = !failure;
    if (failure) {
        pthread_cond_destroy(&pump->changed);
        pthread_mutex_destroy(&pump->mutex);
    }
    return failure ? ls_error_errno(error, failure, "a thread that writes cannot be started")
                   : LS_OK;
}

/* Until at most so many blocks are to be written. */
static void wait_for(struct pump *pump, int64_t left)
{
    while (pump->made - pump->written > left)
        pthread_cond_wait(&pump->changed, &pump->mutex);
}

void *pump_take(struct pump *pump)
{
    pthread_mutex_lock(&pump->mutex);
    wait_for(pump, PUMP_BLOCKS - 1);
    pthread_mutex_unlock(&pump->mutex);
    return pump->blocks[pump->made % PUMP_BLOCKS].data;
}

/* The first failure, with the mutex held. */
static int outcome(const struct pump *pump, struct ls_error *error)
{
    return pump->error.code ? ls_error_copy(error, pump->error.code, &pump->error) : LS_OK;
}

int pump_put(struct pump *pump, pump_write *put, void *user, size_t bytes, struct ls_error *error)
{
    struct pump_block *block = &pump->blocks[pump->made % PUMP_BLOCKS];
    block->bytes = bytes;
    block->put = put;
    block->user = user;
    pthread_mutex_lock(&pump->mutex);
    pump->made++;
    pthread_cond_signal(&pump->changed);
    int status = outcome(pump, error);
    pthread_mutex_unlock(&pump->mutex);
    return status;
}

int pump_safetensors(void *user, const void *data, size_t bytes, struct ls_error *error)
{
    return ls_safetensors_writer_append(user, data, bytes, error);
}

int pump_drain(struct pump *pump, int status, struct ls_error *error)
{
    pthread_mutex_lock(&pump->mutex);
    wait_for(pump, 0);
    status = status ? status : outcome(pump, error);
    pthread_mutex_unlock(&pump->mutex);
    return status;
}

void pump_close(struct pump *pump)
{
    if (pump->runs) {
        pthread_mutex_lock(&pump->mutex);
        pump->ends = true;
        pthread_cond_signal(&pump->changed);
        pthread_mutex_unlock(&pump->mutex);
        pthread_join(pump->thread, NULL);
        pthread_cond_destroy(&pump->changed);
        pthread_mutex_destroy(&pump->mutex);
    }
    free(pump->memory);
    *pump = (struct pump){0};
}
