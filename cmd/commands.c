/* The sub-commands by name, and what is the same for all: reading arguments, telling a failure. */
#include "lines.h"

#include <string.h>

bool cmd_run(const char *name, int argc, char **argv, int *code)
{
    static struct cmd_args args;
    struct ls_error error = {0};
    const struct cmd_page *page = cmd_page_of(name);
    if (!page || !page->run || strcmp(page->name, name) != 0)
        return false;
    int status = cmd_args_read(&args, page, argc, argv, &error);
    if (!status)
        status = page->run(&args, &error);
    /* Records that nobody wants end a command, and are no failure of it. */
    if (status == LS_EIO && cmd_lines_refused())
        status = LS_OK;
    *code = status < 0 ? cmd_fail(status, &error) : status;
    return true;
}
