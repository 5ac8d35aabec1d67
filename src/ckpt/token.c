/* The number of a run's start, which grows: a writer of an earlier start names nothing any more. */
#include "ckpt/format.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define TOKEN_FILE "start"

static int token_path(char path[PATH_MAX], const char *directory, struct ls_error *error)
{
    return ls_path_join(path, directory, TOKEN_FILE, error);
}

static unsigned long long folder_of(const char *directory)
{
    struct stat status;
    return stat(directory, &status) ? 0 : (unsigned long long)status.st_ino;
}

int ls_run_token_read(const char *directory, struct ls_run_token *token, struct ls_error *error)
{
    enum { TOKEN_BYTES_MAX = 4096 };
    char path[PATH_MAX], *text = NULL;
    long long start = 0;
    unsigned long long folder = 0;
    size_t bytes;
    *token = (struct ls_run_token){0};
    int status = token_path(path, directory, error);
    if (status || (access(path, F_OK) && errno == ENOENT))
        return status;
    status = ls_file_read(path, TOKEN_BYTES_MAX, LS_ECKPT, &text, &bytes, error);
    if (!status &&
        (sscanf(text, "run %32[0-9a-f] start %lld folder %llu", token->run, &start, &folder) != 3 ||
         strlen(token->run) != sizeof token->run - 1 || start < 1))
        status = ls_error_set(error, LS_ECKPT,
                              "%s: expected \"run\" with 32 hexadecimal digits and \"start\" with "
                              "a number; remove the file if nothing else writes to this run",
                              path);
    token->start = start;
    free(text);
    if (!status && folder != folder_of(directory)) /* a copy of that folder is another run */
        *token = (struct ls_run_token){0};
    return status;
}

/* Over the bytes of the file, which takes no room. They are fewer than a disk writes at once, and
 * the number has as many digits or one more: whoever reads meanwhile finds no earlier start's. */
static int write_over(const char *path, const char *text, size_t bytes, struct ls_error *error)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    int failure = fd < 0 ? errno : ls_fd_write(fd, text, bytes, NULL, NULL);
    if (!failure && fdatasync(fd))
        failure = errno;
    if (fd >= 0)
        close(fd);
    return failure ? ls_error_errno(error, failure, "%s: cannot write over it", path) : LS_OK;
}

int ls_run_token_write(const char *directory, const struct ls_run_token *token,
                       struct ls_error *error)
{
    char path[PATH_MAX], text[128];
    int status = token_path(path, directory, error);
    int bytes = snprintf(text, sizeof text, "run %s\nstart %lld\nfolder %llu\n", token->run,
                         (long long)token->start, folder_of(directory));
    if (!status)
        status = ls_file_put(path, text, (size_t)bytes, NULL, error);
    return status == LS_ENOSPC && access(path, F_OK) == 0
               ? write_over(path, text, (size_t)bytes, error)
               : status;
}

static void start_see(void *user, const char *directory, const struct ls_checkpoint_state *state)
{
    int64_t *start = user;
    (void)directory;
    *start = ls_max(*start, state->start);
}

int ls_run_token_take(const char *directory, struct ls_run_token *token, struct ls_error *error)
{
    uint64_t random[2];
    int status = ls_run_token_read(directory, token, error);
    if (status)
        return status;
    if (!token->start) {
        if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
            return ls_error_errno(error, errno, "%s: cannot draw a name for the run", directory);
        ls_digest_hex(&(struct ls_digest){.high = random[0], .low = random[1]}, token->run);
        /* A copy of a run has checkpoints of starts that the run counts: its own come behind. */
        ls_checkpoint_list(directory, start_see, &token->start, NULL);
    }
    token->start++;
    return ls_run_token_write(directory, token, error);
}

int ckpt_token_check(const char *directory, int64_t start, struct ls_error *error)
{
    struct ls_run_token now;
    if (start == 0)
        return LS_OK;
    int status = ls_run_token_read(directory, &now, error);
    if (status || now.start == start)
        return status;
    if (now.start == 0)
        return ls_error_set(error, LS_EIO, "%s/" TOKEN_FILE ": it is gone", directory);
    return ls_error_set(error, LS_EBUSY,
                        "%s: a later start of this run, number %lld, writes here; this one, number "
                        "%lld, may not any more",
                        directory, (long long)now.start, (long long)start);
}
