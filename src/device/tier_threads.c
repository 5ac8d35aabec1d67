/* Threads that move the pieces of a memory tier: one copies host memory, several read and write. */
#include "device/tier_private.h"

#include <lockstep/base/helper_thread.h>

#include <string.h>

int64_t tier_host_move(const struct ls_tier *tier, const struct tier_piece *piece)
{
    unsigned char *host = tier->host.base + piece->offset;
    if (piece->writes)
        memcpy(host, piece->device, piece->bytes);
    else
        memcpy(piece->device, host, piece->bytes);
    return (int64_t)piece->bytes;
}

static void move_piece(struct ls_tier *tier, struct tier_piece piece)
{
    int64_t result;
    do {
        result = -tier_fault(tier, &piece);
        if (!result)
            result = tier->move(tier, &piece);
    } while (tier_settle(tier, &piece, result));
}

static void *mover_main(void *user)
{
    struct ls_tier *tier = user;
    struct tier_piece piece;
    pthread_mutex_lock(&tier->mutex);
    while (!tier_over(tier)) {
        if (!tier_take(tier, &piece)) {
            pthread_cond_wait(&tier->work, &tier->mutex);
            continue;
        }
        pthread_mutex_unlock(&tier->mutex);
        move_piece(tier, piece);
        pthread_mutex_lock(&tier->mutex);
    }
    pthread_mutex_unlock(&tier->mutex);
    return NULL;
}

int tier_thread_start(struct ls_tier *tier, void *(*main)(void *), struct ls_error *error)
{
    int failure = ls_helper_start(&tier->threads[tier->threads_count], main, tier);
    if (failure)
        return ls_error_errno(error, failure, "a thread of the memory tier cannot be started");
    tier->threads_count++;
    return LS_OK;
}

int tier_threads_start(struct ls_tier *tier, int count, struct ls_error *error)
{
    int status = LS_OK;
    while (tier->threads_count < count && !status)
        status = tier_thread_start(tier, mover_main, error);
    return tier->threads_count > 0 ? LS_OK : status;
}
