/* The lock of a directory, and who holds it. */
#include <lockstep/base/file.h>
#include <lockstep/base/lock.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { HOST_BYTES = 128, SINCE_BYTES = 32, TRIES_MAX = 100, TRY_NS = 10000000 };

/* What the file says of who holds the lock. */
struct holder {
    long pid;                   /* 0: the file names nobody */
    unsigned long long started; /* clock ticks since boot: tells a process from a later one of the
                                 * same number */
    char host[HOST_BYTES], since[SINCE_BYTES];
};

struct ls_process ls_process_look(long pid)
{
    char path[64], text[1024];
    struct ls_process found = {0};
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    char *after = ls_file_head(path, text, sizeof text) ? strrchr(text, ')') : NULL;
    if (after) /* the name before it may hold anything */
        sscanf(after + 1,
               " %c %ld %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
               &found.state, &found.parent, &found.started);
    return found;
}

/* 0: there is none, or it has ended, and nobody has asked how. */
static unsigned long long process_start(long pid)
{
    const struct ls_process found = ls_process_look(pid);
    return found.state == 'Z' || found.state == 'X' ? 0 : found.started;
}

static void holder_self(struct holder *holder)
{
    *holder = (struct holder){.pid = (long)getpid(), .started = process_start((long)getpid())};
    if (gethostname(holder->host, sizeof holder->host - 1) || !holder->host[0])
        snprintf(holder->host, sizeof holder->host, "localhost");
    time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(holder->since, sizeof holder->since, "%Y-%m-%dT%H:%M:%SZ", &utc);
}

static bool on_this_host(const struct holder *holder)
{
    struct holder self;
    holder_self(&self);
    return !strcmp(self.host, holder->host);
}

/* Of a holder on this host: whether that very process runs. */
static bool runs(const struct holder *holder)
{
    return holder->pid > 0 && process_start(holder->pid) == holder->started;
}

static void holder_text(const struct holder *holder, char *text, size_t bytes)
{
    if (holder->pid > 0)
        snprintf(text, bytes, "process %ld on %s, since %s", holder->pid, holder->host,
                 holder->since);
    else
        snprintf(text, bytes, "%s", "");
}

static void holder_read(int fd, struct holder *holder)
{
    char text[512];
    ssize_t got = pread(fd, text, sizeof text - 1, 0);
    *holder = (struct holder){0};
    text[got > 0 ? got : 0] = '\0';
    if (sscanf(text, "host %127s pid %ld started %llu since %31s", holder->host, &holder->pid,
               &holder->started, holder->since) != 4)
        *holder = (struct holder){0};
}

/* A full disk is no reason to refuse: the lock itself needs no room. */
static void holder_write(int fd, const struct holder *holder)
{
    char text[512];
    int length = snprintf(text, sizeof text, "host %s\npid %ld\nstarted %llu\nsince %s\n",
                          holder->host, holder->pid, holder->started, holder->since);
    if (ftruncate(fd, 0) || pwrite(fd, text, (size_t)length, 0) != length)
        (void)!ftruncate(fd, 0);
}

/* Opens the file, and no other: what a link names is not the lock's to write, and a pipe would hold
 * up its reader. -1 with errno; ELOOP for whatever is no regular file. */
static int open_regular(int directory, const char *path, int flags)
{
    struct stat status;
    int fd = openat(directory, path, flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666);
    if (fd < 0) {
        if (errno == EISDIR || errno == ENXIO)
            errno = ELOOP;
        return -1;
    }
    int failure = fstat(fd, &status) ? errno : S_ISREG(status.st_mode) ? 0 : ELOOP;
    if (!failure)
        return fd;
    close(fd);
    errno = failure;
    return -1;
}

enum ls_lock_state ls_lock_look(const char *directory, char *who, size_t bytes)
{
    char path[PATH_MAX];
    struct holder holder = {0};
    int fd = -1;
    if (snprintf(path, sizeof path, "%s/lock", directory) < (int)sizeof path)
        fd = open_regular(AT_FDCWD, path, O_RDONLY);
    if (fd >= 0) {
        holder_read(fd, &holder);
        close(fd);
    }
    holder_text(&holder, who, bytes);
    return holder.pid <= 0          ? LS_LOCK_FREE
           : !on_this_host(&holder) ? LS_LOCK_ELSEWHERE
           : runs(&holder)          ? LS_LOCK_HELD
                                    : LS_LOCK_LEFT;
}

/* ---- taking it ------------------------------------------------------------------------------- */

static int refuse(const struct ls_lock *lock, const struct holder *holder, const char *advice,
                  struct ls_error *error)
{
    char who[256];
    holder_text(holder, who, sizeof who);
    return ls_error_set(error, LS_EBUSY, "%.300s is held by %s: %s", lock->path,
                        who[0] ? who : "a process that has not written its name", advice);
}

/* Somebody has the lock. It may not have written its name yet, over the one of its forerunner. */
static int refuse_held(const struct ls_lock *lock, struct ls_error *error)
{
    struct holder holder;
    char advice[PATH_MAX + 200];
    for (int tries = 0; tries < TRIES_MAX; tries++) {
        holder_read(lock->fd, &holder);
        if (holder.pid > 0 && (!on_this_host(&holder) || runs(&holder)))
            break;
        nanosleep(&(struct timespec){.tv_nsec = TRY_NS}, NULL);
    }
    snprintf(advice, sizeof advice, "wait for its end, stop it, or write elsewhere");
    if (holder.pid > 0 && !on_this_host(&holder))
        snprintf(advice, sizeof advice,
                 "wait for its end, stop it, or write elsewhere. If that host is lost for good, "
                 "remove %.300s",
                 lock->path);
    else if (holder.pid == (long)getpid())
        snprintf(advice, sizeof advice,
                 "that is this process: close its run first, or write elsewhere");
    return refuse(lock, &holder, advice, error);
}

/* A file system without locks: what the file says is all there is. */
static int judge_unlocked(const struct ls_lock *lock, struct ls_error *error)
{
    struct holder holder;
    char advice[PATH_MAX + 200];
    holder_read(lock->fd, &holder);
    bool here = holder.pid > 0 && on_this_host(&holder);
    if (holder.pid == 0 || (here && !runs(&holder)))
        return LS_OK;
    snprintf(advice, sizeof advice,
             here ? "wait for its end, stop it, or write elsewhere"
                  : "this file system has no locks that would tell whether it still runs: if it "
                    "does not, remove %.300s",
             lock->path);
    return refuse(lock, &holder, advice, error);
}

/* Whether what is open as fd is what has that name. */
static bool is_file(int fd, int directory, const char *path)
{
    struct stat opened, named;
    return !fstat(fd, &opened) && !fstatat(directory, path, &named, 0) &&
           opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

/* Opens the file and asks for the lock. *again: the file was removed in between, by a holder that
 * released it. */
static int try_take(struct ls_lock *lock, const struct ls_fault *fault, bool *again,
                    struct ls_error *error)
{
    *again = false;
    lock->directory_fd = open(lock->directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (lock->directory_fd < 0) {
        *again = errno == ENOENT;
        return ls_error_errno(error, errno, "%s: cannot open", lock->directory);
    }
    lock->fd = open_regular(lock->directory_fd, "lock", O_RDWR | O_CREAT);
    if (lock->fd < 0 && errno == ELOOP)
        return ls_error_set(error, LS_EIO,
                            "%.300s is no regular file (a link, a folder, a pipe or a device): the "
                            "lock is not written there; remove it, or write elsewhere",
                            lock->path);
    if (lock->fd < 0) {
        *again = errno == ENOENT; /* the directory was removed */
        return ls_error_errno(error, errno, "%s: cannot open", lock->path);
    }
    int failure = ls_fault_check(fault, "flock");
    if (!failure && flock(lock->fd, LOCK_EX | LOCK_NB))
        failure = errno;
    if (failure == EWOULDBLOCK)
        return refuse_held(lock, error);
    if (failure == ENOLCK || failure == ENOSYS || failure == EOPNOTSUPP)
        return judge_unlocked(lock, error);
    if (failure)
        return ls_error_errno(error, failure, "%s: cannot lock", lock->path);
    *again = !is_file(lock->fd, AT_FDCWD, lock->path);
    return LS_OK;
}

static void close_both(struct ls_lock *lock)
{
    if (lock->fd >= 0)
        close(lock->fd);
    if (lock->directory_fd >= 0)
        close(lock->directory_fd);
    lock->fd = lock->directory_fd = -1;
}

/* Bytes of the path up to the first directory that is absent; 0: all are there. */
static size_t first_absent(const char *path)
{
    char part[PATH_MAX];
    struct stat status;
    for (size_t end = 1; path[0] && path[end - 1]; end++) {
        if (path[end] != '/' && path[end])
            continue;
        snprintf(part, sizeof part, "%.*s", (int)end, path);
        if (stat(part, &status))
            return end;
    }
    return 0;
}

/* Another process that starts or ends at this moment may remove what lies above: *again. */
static int directory_make(struct ls_lock *lock, bool *again, struct ls_error *error)
{
    lock->made = first_absent(lock->directory);
    errno = 0;
    int code = ls_directory_make(lock->directory, NULL, error);
    *again = code && errno == ENOENT;
    return code;
}

/* Removes the directories that were made, as far as they are empty. "a/." cannot be removed, and
 * "a/" is gone with "a//", but what lies above can. */
static void made_remove(const struct ls_lock *lock)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s", lock->directory);
    for (size_t end = strlen(path); lock->made && end >= lock->made; path[end] = '\0') {
        if (rmdir(path) && errno != EINVAL && errno != ENOENT)
            break;
        do
            end--;
        while (end > 0 && path[end] != '/');
    }
}

int ls_lock_take(struct ls_lock *lock, const char *directory, const struct ls_fault *fault,
                 struct ls_error *error)
{
    struct holder former, self;
    *lock = (struct ls_lock){.fd = -1, .directory_fd = -1};
    if (snprintf(lock->directory, PATH_MAX, "%s", directory) >= PATH_MAX ||
        snprintf(lock->path, PATH_MAX, "%s/lock", directory) >= PATH_MAX)
        return ls_error_set(error, LS_EINVAL, "%.200s...: the path is longer than %d bytes",
                            directory, PATH_MAX);
    bool again = true;
    int code = LS_OK;
    for (int tries = 0; again && tries < TRIES_MAX; tries++) {
        close_both(lock);
        code = directory_make(lock, &again, error);
        if (!code)
            code = try_take(lock, fault, &again, error);
    }
    if (code || again) {
        if (lock->made && lock->fd >= 0 && code && code != LS_EBUSY)
            unlinkat(lock->directory_fd, "lock", 0);
        close_both(lock);
        made_remove(lock);
        return code ? code
                    : ls_error_set(error, LS_EBUSY,
                                   "%.300s: other processes keep taking its lock: try again",
                                   directory);
    }
    holder_read(lock->fd, &former);
    holder_text(&former, lock->former, sizeof lock->former);
    holder_self(&self);
    holder_write(lock->fd, &self);
    lock->held = true;
    return LS_OK;
}

const char *ls_lock_former(const struct ls_lock *lock)
{
    return lock->former;
}

bool ls_lock_in_place(const struct ls_lock *lock, char *now)
{
    char link[64];
    snprintf(now, PATH_MAX, "%s", lock->directory);
    /* By the file, or where that was removed, by the directory. */
    if (is_file(lock->fd, AT_FDCWD, lock->path) ||
        is_file(lock->directory_fd, AT_FDCWD, lock->directory))
        return true;
    snprintf(link, sizeof link, "/proc/self/fd/%d", lock->directory_fd);
    ssize_t length = readlink(link, now, PATH_MAX - 1);
    now[length > 0 ? length : 0] = '\0';
    if (!is_file(lock->directory_fd, AT_FDCWD, now)) /* "... (deleted)" */
        now[0] = '\0';
    return false;
}

void ls_lock_release(struct ls_lock *lock)
{
    char now[PATH_MAX];
    if (!lock->held)
        return;
    /* Removed while it is held: who opened it before sees that, and opens the next one. */
    if (is_file(lock->fd, lock->directory_fd, "lock"))
        unlinkat(lock->directory_fd, "lock", 0);
    if (lock->made && ls_lock_in_place(lock, now))
        made_remove(lock);
    close_both(lock);
    lock->held = false;
}
