/* The sub-commands by name, and what is the same for all: reading arguments, telling a failure. */
#include "cmd.h"
#include "lines.h"

#include <lockstep/compare/report.h>
#include <lockstep/trace/picture.h>

#include <string.h>

#define ROW(function, name, words_max) {name, cmd_##function, words_max},
static const struct {
    const char *name;
    int (*run)(const struct cmd_args *args, struct ls_error *error);
    int words_max;
} commands[] = {CMD_COMMANDS(ROW)};

bool cmd_run(const char *name, int argc, char **argv, int *code)
{
    static struct cmd_args args;
    struct ls_error error = {0};
    size_t i = 0, count = sizeof commands / sizeof *commands;
    while (i < count && strcmp(commands[i].name, name) != 0)
        i++;
    if (i == count)
        return false;
    int status = cmd_args_read(&args, name, argc, argv, commands[i].words_max, &error);
    if (!status)
        status = commands[i].run(&args, &error);
    /* Records that nobody wants end a command, and are no failure of it. */
    if (status == LS_EIO && cmd_lines_refused())
        status = LS_OK;
    *code = status < 0 ? cmd_fail(status, &error) : status;
    return true;
}
