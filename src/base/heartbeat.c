/* A file of one line, "host H process P beat N", which a thread writes over again and again. */
#include <lockstep/base/heartbeat.h>

#include <lockstep/base/helper_thread.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE_BYTES = 160 };

struct ls_heartbeat {
    int fd;
    double interval_s;
    char host[64];
    unsigned long long beats;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stops;
};

/* Always as many bytes, so that a reader finds no rest of a longer line. */
static int line_write(int fd, const char *words)
{
    char line[LINE_BYTES];
    int length = snprintf(line, sizeof line, "%-*s\n", LINE_BYTES - 2, words);
    return pwrite(fd, line, (size_t)length, 0) == length ? 0 : errno;
}

static int beat(struct ls_heartbeat *heart, const char *what)
{
    char words[LINE_BYTES];
    snprintf(words, sizeof words, "host %s process %ld %s %llu", heart->host, (long)getpid(), what,
             ++heart->beats);
    return line_write(heart->fd, words);
}

static void *thread_main(void *argument)
{
    struct ls_heartbeat *heart = argument;
    pthread_mutex_lock(&heart->lock);
    while (!heart->stops)
        if (ls_condition_wait_until(&heart->changed, &heart->lock,
                                    ls_now_s() + heart->interval_s) == ETIMEDOUT)
            beat(heart, "beat"); /* one that fails is one that is missed */
    pthread_mutex_unlock(&heart->lock);
    return NULL;
}

static void heart_free(struct ls_heartbeat *heart)
{
    if (heart->fd >= 0)
        close(heart->fd);
    pthread_mutex_destroy(&heart->lock);
    pthread_cond_destroy(&heart->changed);
    free(heart);
}

/* What takes room keeps it: no O_TRUNC. */
static int line_open(const char *path)
{
    return open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
}

int ls_heartbeat_reserve(const char *path, struct ls_error *error)
{
    int fd = line_open(path);
    int failure = fd < 0 ? errno : line_write(fd, "");
    if (fd >= 0 && close(fd) && !failure)
        failure = errno;
    return failure ? ls_error_errno(error, failure, "%s: cannot write to it", path) : LS_OK;
}

int ls_heartbeat_start(struct ls_heartbeat **out, const char *path, double interval_s,
                       struct ls_error *error)
{
    struct ls_heartbeat *heart = calloc(1, sizeof *heart);
    int status = LS_OK, failure;
    *out = NULL;
    if (!heart)
        return ls_error_set(error, LS_ENOMEM, "%s: no memory for it", path);
    heart->interval_s = interval_s;
    if (gethostname(heart->host, sizeof heart->host - 1) || strpbrk(heart->host, " \n"))
        snprintf(heart->host, sizeof heart->host, "localhost");
    pthread_mutex_init(&heart->lock, NULL);
    ls_condition_init(&heart->changed);
    heart->fd = line_open(path);
    failure = heart->fd < 0 ? errno : beat(heart, "beat");
    if (failure)
        status = ls_error_errno(error, failure, "%s: cannot write to it", path);
    else if (ls_helper_start(&heart->thread, thread_main, heart))
        status = ls_error_set(error, LS_ENOMEM, "%s: no thread to write it", path);
    if (status)
        heart_free(heart);
    else
        *out = heart;
    return status;
}

void ls_heartbeat_stop(struct ls_heartbeat *heart)
{
    if (!heart)
        return;
    pthread_mutex_lock(&heart->lock);
    heart->stops = true;
    pthread_cond_signal(&heart->changed);
    pthread_mutex_unlock(&heart->lock);
    pthread_join(heart->thread, NULL);
    beat(heart, "over");
    heart_free(heart);
}

bool ls_heartbeat_read(const char *path, struct ls_heartbeat_seen *seen)
{
    char line[LINE_BYTES + 1], what[8];
    *seen = (struct ls_heartbeat_seen){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? 0 : read(fd, line, LINE_BYTES);
    if (fd >= 0)
        close(fd);
    line[length > 0 ? length : 0] = '\0';
    if (sscanf(line, "host %63s process %ld %7s %llu", seen->host, &seen->pid, what,
               &seen->beats) != 4)
        return false;
    seen->over = !strcmp(what, "over");
    return true;
}
