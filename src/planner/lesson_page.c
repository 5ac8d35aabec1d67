/* Prints the pages of lessons: paragraphs, tables, numbers with their units. */
#include "planner/lesson_private.h"

#include <lockstep/base/words.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- what stands in braces ------------------------------------------------------------------- */

/* "112 GB", of 10^9 bytes */
static void gb_write(double bytes, char *out, size_t room)
{
    double gb = bytes / 1e9;
    if (bytes < 1e4)
        snprintf(out, room, "%.0f B", bytes);
    else if (gb < 1e-3)
        snprintf(out, room, "%.0f kB", bytes / 1e3);
    else if (gb < 0.1)
        snprintf(out, room, "%.3g MB", gb * 1e3);
    else if (gb < 1000)
        snprintf(out, room, "%.*f GB", gb < 99.95 ? 1 : 0, gb);
    else
        snprintf(out, room, "%.2f TB", gb / 1e3);
}

/* "1.23 s", "56.7 ms" */
static void seconds_write(double s, char *out, size_t room)
{
    if (fabs(s) < 1e-12) /* differences of equal sums too */
        snprintf(out, room, "0 s");
    else if (s >= 1)
        snprintf(out, room, s < 99.95 ? "%.3g s" : "%.0f s", s);
    else if (s >= 1e-3)
        snprintf(out, room, "%.3g ms", s * 1e3);
    else
        snprintf(out, room, "%.3g us", s * 1e6);
}

/* "84.2 %" of a share; "-" of NaN */
static void percent_write(double share, char *out, size_t room)
{
    snprintf(out, room, isfinite(share) ? "%.1f %%" : "-", 100 * share);
}

/* What the figures of the cluster are, and where they are from. */
static void cluster_write(const struct lesson_page *page, char *out, size_t room)
{
    const struct ls_cluster *c = page->cluster;
    const struct ls_cluster_link *far = &c->link[c->links - 1];
    char memory[32], rate[32];
    gb_write(c->accelerator.memory_bytes, memory, sizeof memory);
    gb_write(far->bytes_per_s * far->share, rate, sizeof rate);
    snprintf(out, room,
             "%s%s: %s of %ld x %s, %s each, %.4g TFLOP/s in bf16 of which large products reach "
             "%.0f %%; %s joins all at %s a second of each accelerator.",
             page->own ? "The lesson's own figures, those of clusters/h100-2048.yaml; --cluster "
                         "takes others. "
                       : "",
             c->name, ls_counted(c->hosts, "host").text, (long)c->accelerators, c->accelerator.name,
             memory, ls_cluster_peak(c, LS_BF16) / 1e12, 100 * c->accelerator.product_share,
             far->name, rate);
}

static void name_write(const struct lesson_page *page, int i, char *out, size_t room)
{
    const char *name = page->results[i].name;
    snprintf(out, room, "%.*s", (int)strcspn(name, ":"), name);
}

static bool takes(const char **at, const char *form)
{
    size_t length = strlen(form);
    if (strncmp(*at, form, length) != 0)
        return false;
    *at += length;
    return true;
}

/* "{gb N}" */
static void brace_write(struct lesson_page *page, const char *at, char *out, size_t room)
{
    const char *meaning = lesson_name(page, at, (int)strcspn(at, "}"));
    bool is_text = meaning && meaning[1] != '='; /* and no let of a number */
    if (is_text)
        snprintf(out, room, "%s", lesson_expand(page, meaning + 1).text);
    else if (takes(&at, "cluster"))
        cluster_write(page, out, room);
    else if (takes(&at, "gb "))
        gb_write(lesson_expression(page, &at), out, room);
    else if (takes(&at, "s "))
        seconds_write(lesson_expression(page, &at), out, room);
    else if (takes(&at, "% "))
        percent_write(lesson_expression(page, &at), out, room);
    else if (takes(&at, "+% "))
        snprintf(out, room, "%+.1f %%", 100 * lesson_expression(page, &at));
    else if (takes(&at, ".1 "))
        snprintf(out, room, "%.1f", lesson_expression(page, &at));
    else if (takes(&at, ".2 "))
        snprintf(out, room, "%.2f", lesson_expression(page, &at));
    else if (takes(&at, "yes "))
        snprintf(out, room, "%s", lesson_expression(page, &at) != 0 ? "yes" : "no");
    else if (takes(&at, "misfit "))
        snprintf(out, room, "%s", lesson_expression(page, &at) != 0 ? "" : ", does not fit");
    else if (takes(&at, "name "))
        name_write(page, (int)lesson_expression(page, &at), out, room);
    else if (takes(&at, "reason "))
        snprintf(out, room, "%s", lesson_reason(page, (int)lesson_expression(page, &at)).text);
    else
        snprintf(out, room, "%.0f", lesson_expression(page, &at));
    LS_ASSERT(is_text || *at == '}');
}

struct lesson_text lesson_expand(struct lesson_page *page, const char *text)
{
    struct lesson_text out = {""};
    size_t used = 0;
    for (;;) {
        size_t length = strcspn(text, "{");
        LS_ASSERT(used + length < sizeof out.text);
        memcpy(out.text + used, text, length);
        out.text[used += length] = '\0';
        text += length;
        if (!*text)
            return out;
        brace_write(page, text + 1, out.text + used, sizeof out.text - used);
        used = strlen(out.text);
        text = strchr(text, '}') + 1;
    }
}

/* ---- lines ----------------------------------------------------------------------------------- */

enum { INDENT = 2, COLUMNS = 96 };

/* Length of the word at text; a number and its unit are one. */
static int word_length(const char *text)
{
    static const char *const units[] = {"%", "s", "ms", "us", "B", "kB", "MB", "GB", "TB"};
    size_t length = strcspn(text, " "), next;
    if (length == 0 || text[length] == '\0' || !strchr("0123456789", text[length - 1]))
        return (int)length;
    next = strcspn(text + length + 1, " ,.;:)");
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (next == strlen(units[i]) && !strncmp(text + length + 1, units[i], next))
            return (int)(length + 1 + strcspn(text + length + 1, " "));
    return (int)length;
}

static void paragraph_print(FILE *file, const char *text)
{
    int column = 0;
    for (const char *word = text; *word;) {
        int length = word_length(word);
        if (column > 0 && column + 1 + length > COLUMNS) {
            fputc('\n', file);
            column = 0;
        }
        fprintf(file, "%*s%.*s", column > 0 ? 1 : INDENT, "", length, word);
        column += (column > 0 ? 1 : INDENT) + length;
        word += length + (word[length] == ' ');
    }
    fputc('\n', file);
}

static void row_print(const struct lesson_page *page, const char *row)
{
    const char *head = page->head;
    fprintf(page->text, "%*s", INDENT, "");
    for (bool first = true; *row; first = false) {
        int width = (int)strcspn(head, "|"), length = (int)strcspn(row, "|");
        if (!head[width])
            fprintf(page->text, "%.*s", length, row);
        else if (first)
            fprintf(page->text, "%-*.*s", width, length, row);
        else
            fprintf(page->text, " %*.*s", width - 1, length, row);
        head += width + (head[width] == '|');
        row += length + (row[length] == '|');
    }
    fputc('\n', page->text);
}

static void head_print(struct lesson_page *page, const char *line)
{
    page->head = line + 1;
    if (*line == '_')
        return;
    fprintf(page->text, "%*s", INDENT, "");
    for (line++; *line; line++)
        if (*line != '|')
            fputc(*line, page->text);
    fputc('\n', page->text);
}

/* "@z 0 1 2:LINE" */
static void loop_run(struct lesson_page *page, const char *at)
{
    double *variable = &page->variables[*at - 'a'];
    const char *line = strchr(at, ':') + 1;
    for (at++; *at != ':';) {
        double from = lesson_expression(page, &at), to = from;
        if (*at == '~') {
            at++;
            to = lesson_expression(page, &at);
        }
        for (*variable = from; *variable <= to; ++*variable)
            lesson_line(page, line);
    }
}

static void name_add(struct lesson_page *page, const char *line)
{
    LS_ASSERT(page->name_count < LESSON_NAMES_MAX);
    page->names[page->name_count++] = line;
}

void lesson_line(struct lesson_page *page, const char *line)
{
    const char *at = line + 1;
    if (!strncmp(line, "let ", 4) || !strncmp(line, "def ", 4))
        name_add(page, line + 4);
    else if (!strncmp(line, "keys ", 5))
        name_add(page, line);
    else if (!strncmp(line, "case ", 5))
        lesson_case(page, line + 5);
    else if (*line == '=')
        fprintf(page->text, "\n%s\n", at + 1);
    else if (*line == ' ')
        fprintf(page->text, "%s\n", lesson_expand(page, line).text);
    else if (*line == '|' || *line == '_')
        head_print(page, line);
    else if (*line == '>')
        row_print(page, lesson_expand(page, at).text);
    else if (*line == '@')
        loop_run(page, at);
    else if (*line == '?' && lesson_expression(page, &at) != 0)
        lesson_line(page, at + 1);
    else if (*line == '~')
        lesson_schedule(page, atoi(at));
    else if (*line == '!')
        lesson_picture_line(page, lesson_expand(page, at).text);
    else if (*line && !strchr(";?", *line))
        paragraph_print(page->text, lesson_expand(page, line).text);
}
