/* Where commands that take long show how far they are: standard error. */
#include "cmd.h"

#include <lockstep/base/meter.h>

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

int cmd_terminal_columns(int fd)
{
    struct winsize size;
    if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    const char *given = getenv("COLUMNS");
    long columns = given ? strtol(given, NULL, 10) : 0;
    return columns > 0 && columns < 10000 ? (int)columns : 80;
}

bool cmd_terminal_renews(int fd)
{
    const char *terminal = getenv("TERM");
    return isatty(fd) && !(terminal && strcmp(terminal, "dumb") == 0);
}

/* mpirun is the parent of the ranks of its machine. */
bool cmd_terminal_of_mpirun(int fd)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/fd/%d", (long)getppid(), fd);
    if (!getenv("OMPI_COMM_WORLD_RANK") || access(path, F_OK))
        return false;
    int theirs = open(path, O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    bool terminal = theirs >= 0 && isatty(theirs);
    if (theirs >= 0)
        close(theirs);
    return !terminal;
}

static void write_text(void *user, const char *text, size_t bytes)
{
    (void)user;
    fwrite(text, 1, bytes, stderr);
    fflush(stderr);
}

int cmd_progress_read(bool *shown, struct ls_error *error)
{
    const char *given = getenv("LOCKSTEP_PROGRESS");
    *shown = !given || !*given || strcmp(given, "on") == 0;
    if (*shown || strcmp(given, "off") == 0)
        return LS_OK;
    return ls_error_set(error, LS_ECONFIG,
                        "LOCKSTEP_PROGRESS = %s: expected on or off; unset it for on", given);
}

void cmd_progress_begin(void)
{
    struct ls_error error;
    bool shown;
    cmd_progress_read(&shown, &error);
    if (!shown)
        return;
    static char title[64];
    snprintf(title, sizeof title, "lockstep %s", cmd_name());
    bool live = cmd_terminal_renews(STDERR_FILENO);
    ls_meter_show(&(struct ls_meter_view){.title = title,
                                          .columns = live ? cmd_terminal_columns(STDERR_FILENO) : 0,
                                          .write = write_text});
}
