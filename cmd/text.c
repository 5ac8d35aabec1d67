/* A model's text as it is shown. */
#include "cmd.h"

#include <unistd.h>

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
    fflush(stdout);
}
