/* Words and numbers as people read them, and how wide a terminal shows them. */
#include <lockstep/base/words.h>

#include <lockstep/base.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

static bool ends_with(const char *word, const char *end)
{
    size_t length = strlen(word), tail = strlen(end);
    return length >= tail && strcmp(word + length - tail, end) == 0;
}

struct ls_counted ls_counted(int64_t n, const char *noun)
{
    struct ls_counted counted;
    size_t length = strlen(noun);
    const char *end = "s";
    if (n == 1) {
        end = "";
    } else if (ends_with(noun, "s") || ends_with(noun, "x") || ends_with(noun, "ch") ||
               ends_with(noun, "sh")) {
        end = "es";
    } else if (length > 1 && ends_with(noun, "y") && !strchr("aeiou", noun[length - 2])) {
        end = "ies";
        length--;
    } else if (ends_with(noun, "leaf")) {
        end = "ves";
        length--;
    }
    snprintf(counted.text, sizeof counted.text, "%lld %.*s%s", (long long)n, (int)length, noun,
             end);
    return counted;
}

struct ls_counted ls_bytes(double bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    struct ls_counted text;
    int unit = 0;
    for (; bytes >= 1024 && unit < 5; unit++)
        bytes /= 1024;
    snprintf(text.text, sizeof text.text, unit && bytes < 100 ? "%.1f %s" : "%.0f %s", bytes,
             units[unit]);
    return text;
}

struct ls_counted ls_amount(double n)
{
    static const char *const units[] = {"", " k", " M", " G", " T", " P", " E"};
    struct ls_counted out;
    int unit = 0;
    while (n >= 999.5 && unit < 6) { /* 999.6 has four digits */
        n /= 1000;
        unit++;
    }
    snprintf(out.text, sizeof out.text, "%.3g%s", n, units[unit]);
    return out;
}

struct ls_counted ls_duration(double s)
{
    const double minute = 60, hour = 3600, day = 86400, year = 365.25 * day;
    struct ls_counted out;
    if (s >= 3 * year)
        snprintf(out.text, sizeof out.text, "%.20s years", ls_amount(s / year).text);
    else if (s >= 2 * day)
        snprintf(out.text, sizeof out.text, s >= 999.5 * day ? "%.0f days" : "%.3g days", s / day);
    else if (s >= 2 * hour)
        snprintf(out.text, sizeof out.text, "%.3g h", s / hour);
    else if (s >= 20 * minute)
        snprintf(out.text, sizeof out.text, "%.3g min", s / minute);
    else if (s >= 1 || s == 0)
        snprintf(out.text, sizeof out.text, "%.4g s", s);
    else if (s >= 999.5e-6)
        snprintf(out.text, sizeof out.text, "%.4g ms", s * 1e3);
    else
        snprintf(out.text, sizeof out.text, "%.3g us", s * 1e6);
    return out;
}

struct ls_shape_text ls_shape_text(int dims, const int64_t *shape)
{
    struct ls_shape_text out = {"["};
    for (int i = 0; i < dims; i++)
        ls_string_add(out.text, sizeof out.text, i ? ", " : "", "%lld", (long long)shape[i]);
    ls_string_add(out.text, sizeof out.text, "", "]");
    return out;
}

double ls_shown(double value)
{
    return isnan(value) ? (double)NAN : value;
}

size_t ls_columns_fit(const char *line, int columns)
{
    size_t at = 0;
    while (line[at] && columns > 0) {
        utf8proc_int32_t c;
        size_t bytes = ls_utf8_character(line + at, strnlen(line + at, 4));
        utf8proc_iterate((const utf8proc_uint8_t *)line + at, (utf8proc_ssize_t)bytes, &c);
        int width = bytes && utf8proc_charwidth(c) == 2 ? 2 : 1;
        if (width > columns)
            break;
        columns -= width;
        at += bytes ? bytes : 1;
    }
    return at;
}

void ls_print_wrapped(FILE *file, const char *text, int indent, int width)
{
    int column = 0;
    while (*text) {
        int length = (int)strcspn(text, " \n");
        if (column && column + length + 1 > width) {
            fputc('\n', file);
            column = 0;
        }
        column += column ? fprintf(file, " %.*s", length, text)
                         : fprintf(file, "%*s%.*s", indent, "", length, text);
        text += length;
        if (*text == '\n') {
            fputs("\n\n", file);
            column = 0;
        }
        text += strspn(text, " \n");
    }
    fputc('\n', file);
}

void ls_print_troff(FILE *file, const char *text)
{
    bool line_start = true;
    for (; *text; text++) {
        if (line_start && (*text == '.' || *text == '\''))
            fputs("\\&", file);
        line_start = *text == '\n';
        if (*text == '\\')
            fputs("\\e", file);
        else if (*text == '-')
            fputs("\\-", file);
        else if (*text == '\n' && text[1] == '\n')
            fputs("\n.PP", file);
        else
            fputc(*text, file);
    }
}
