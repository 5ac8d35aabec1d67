/* What standard output gets: text of others as it is shown, a model's and paths. */
#include "cmd.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

int cmd_flush(void)
{
    static int failure;
    errno = 0;
    if ((fflush(stdout) != 0 || ferror(stdout)) && !failure)
        failure = errno ? errno : EIO; /* a write between two flushes failed, nobody kept why */
    return failure;
}

void cmd_text_begin(struct cmd_text *text)
{
    *text = (struct cmd_text){.terminal = isatty(STDOUT_FILENO)};
}

void cmd_text_end(struct cmd_text *text)
{
    char shown[32];
    ls_escape(text->held, text->count, "\n\t", shown, sizeof shown);
    fputs(shown, stdout);
    text->count = 0;
}

void cmd_text_put(struct cmd_text *text, const char *bytes, size_t count)
{
    if (!text->terminal)
        fwrite(bytes, 1, count, stdout);
    for (size_t i = 0; text->terminal && i < count; i++) {
        text->held[text->count++] = bytes[i];
        unsigned char lead = (unsigned char)text->held[0];
        size_t whole = lead < 0xc2 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 1;
        if (text->count == whole)
            cmd_text_end(text);
    }
    cmd_flush();
}

void cmd_print(const char *format, ...)
{
    struct cmd_text text;
    char *bytes;
    va_list arguments;
    va_start(arguments, format);
    int count = vasprintf(&bytes, format, arguments);
    va_end(arguments);
    if (count < 0)
        return;
    cmd_text_begin(&text);
    cmd_text_put(&text, bytes, (size_t)count);
    cmd_text_end(&text);
    free(bytes);
}

struct cmd_size cmd_size(int64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    struct cmd_size out;
    double value = (double)bytes;
    int unit = 0;
    for (; value >= 1024 && unit < 5; unit++)
        value /= 1024;
    snprintf(out.text, sizeof out.text, unit ? "%.2f %s" : "%.0f %s", value, units[unit]);
    return out;
}
