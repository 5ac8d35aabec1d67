/* What pictures are made of: text, lines, colours and scales. */
#include <lockstep/base/formatted.h>
#include <lockstep/trace/picture.h>

#include "trace/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- elements -------------------------------------------------------------------------------- */

/* Colours: the hues of Okabe and Ito, of such lightness that any two are told apart by colour-blind
 * readers too (test/trace/test_colours.c). The first word of a rule
 * is the picture's class, so that a page that holds it keeps its own. */
static const char style[] =
    "<style>\n"
    ".ls-picture{font:13px system-ui,-apple-system,\"Segoe UI\",\"DejaVu Sans\",sans-serif}\n"
    ".ls-picture .ls-text,.ls-picture .ls-title{fill:#1f2933}\n"
    ".ls-picture .ls-title{font-size:17px;font-weight:600}\n"
    ".ls-picture .ls-soft{fill:#5b6773}\n"
    ".ls-picture .ls-back{fill:#ffffff}\n"
    ".ls-picture .ls-halo{paint-order:stroke;stroke:#ffffff;stroke-width:5}\n"
    ".ls-picture .ls-veil{fill:#ffffff;fill-opacity:.45}\n"
    ".ls-picture .ls-idle{fill:#e9ecf0}\n"
    ".ls-picture .ls-grid{stroke:#e3e6ea}\n"
    ".ls-picture .ls-line{stroke:#7b8794}\n"
    ".ls-picture .ls-curve{fill:none;stroke-linejoin:round;stroke-width:1.6}\n"
    ".ls-picture .ls-mean{stroke-width:2.2}\n"
    ".ls-picture .ls-gap{stroke-width:1.5}\n"
    ".ls-picture .ls-key{stroke-width:2.2}\n"
    ".ls-picture .ls-faint{stroke-width:1;stroke-opacity:.35}\n"
    ".ls-picture .ls-s0{stroke:#0a72c4} .ls-picture .ls-f0{fill:#0a72c4}\n"
    ".ls-picture .ls-s1{stroke:#7d2a00} .ls-picture .ls-f1{fill:#7d2a00}\n"
    ".ls-picture .ls-s2{stroke:#0a9f6b} .ls-picture .ls-f2{fill:#0a9f6b}\n"
    ".ls-picture .ls-s3{stroke:#c04fa0} .ls-picture .ls-f3{fill:#c04fa0}\n"
    ".ls-picture .ls-s4{stroke:#ba8c00} .ls-picture .ls-f4{fill:#ba8c00}\n"
    ".ls-picture .ls-s5{stroke:#283038} .ls-picture .ls-f5{fill:#283038}\n"
    ".ls-picture .ls-a00{fill:#7cc0ee} .ls-picture .ls-a01{fill:#00619a}\n"
    ".ls-picture .ls-a10{fill:#6fd0ae} .ls-picture .ls-a11{fill:#00674a}\n"
    ".ls-picture .ls-a20{fill:#f2c14e} .ls-picture .ls-a21{fill:#8a5f00}\n"
    ".ls-picture .ls-a30{fill:#f0a07a} .ls-picture .ls-a31{fill:#701c00}\n"
    "@media (prefers-color-scheme:dark){\n"
    ".ls-picture .ls-text,.ls-picture .ls-title{fill:#e6e9ec}\n"
    ".ls-picture .ls-soft{fill:#a4afb9}\n"
    ".ls-picture .ls-back{fill:#14181d}\n"
    ".ls-picture .ls-halo{stroke:#14181d}\n"
    ".ls-picture .ls-veil{fill:#14181d}\n"
    ".ls-picture .ls-idle{fill:#262d35}\n"
    ".ls-picture .ls-grid{stroke:#2a323a}\n"
    ".ls-picture .ls-line{stroke:#74808b}\n"
    ".ls-picture .ls-s0{stroke:#4a9fe0} .ls-picture .ls-f0{fill:#4a9fe0}\n"
    ".ls-picture .ls-s1{stroke:#de6228} .ls-picture .ls-f1{fill:#de6228}\n"
    ".ls-picture .ls-s2{stroke:#25d898} .ls-picture .ls-f2{fill:#25d898}\n"
    ".ls-picture .ls-s3{stroke:#f3cfe4} .ls-picture .ls-f3{fill:#f3cfe4}\n"
    ".ls-picture .ls-s4{stroke:#f7d548} .ls-picture .ls-f4{fill:#f7d548}\n"
    ".ls-picture .ls-s5{stroke:#7c8a97} .ls-picture .ls-f5{fill:#7c8a97}\n"
    "}\n"
    "</style>\n";

void ls_picture_begin(FILE *file, int width, int height, const char *title)
{
    fprintf(file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"ls-picture\" role=\"img\" "
            "width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
            "style=\"max-width:100%%;height:auto\">\n<title>",
            width, height, width, height);
    ls_picture_xml(file, title);
    fprintf(file, "</title>\n%s", style);
    ls_picture_rect(file, "ls-back", 0, 0, width, height, NULL);
}

void ls_picture_end(FILE *file)
{
    fputs("</svg>\n", file);
}

void ls_picture_xml(FILE *file, const char *string)
{
    const char *c;
    while (*string) {
        size_t length = trace_character(&string, &c);
        /* U+FFFE and U+FFFF are characters, though none of XML's. */
        bool barred = length == 3 && !memcmp(c, "\xef\xbf", 2) && (unsigned char)c[2] >= 0xbe;
        const char *name = length > 1  ? NULL
                           : *c == '<' ? "&lt;"
                           : *c == '>' ? "&gt;"
                           : *c == '&' ? "&amp;"
                           : *c == '"' ? "&quot;"
                           : (unsigned char)*c < 0x20
                               ? " " /* XML 1.0 has no other control characters */
                               : NULL;
        if (name || barred)
            fputs(name ? name : "\xef\xbf\xbd", file);
        else
            fwrite(c, 1, length, file);
    }
}

void ls_picture_number(FILE *file, double value)
{
    long tenths = lround(value * 10);
    const char *sign = tenths < 0 ? "-" : "";
    tenths = labs(tenths);
    if (tenths % 10)
        fprintf(file, "%s%ld.%ld", sign, tenths / 10, tenths % 10);
    else
        fprintf(file, "%s%ld", sign, tenths / 10);
}

static void put_attribute(FILE *file, const char *name, double value)
{
    fprintf(file, " %s=\"", name);
    ls_picture_number(file, value);
    fputc('"', file);
}

void ls_picture_text(FILE *file, const char *classes, double x, double y, const char *anchor,
                     const char *format, ...)
{
    char text[512];
    LS_FORMAT(text, format);
    fprintf(file, "<text class=\"%s\"", classes);
    put_attribute(file, "x", x);
    put_attribute(file, "y", y);
    if (strcmp(anchor, "start") != 0)
        fprintf(file, " text-anchor=\"%s\"", anchor);
    fputc('>', file);
    ls_picture_xml(file, text);
    fputs("</text>\n", file);
}

struct ls_picture_class ls_picture_class(const char *of, int number)
{
    struct ls_picture_class out;
    snprintf(out.text, sizeof out.text, "%s%d", of, number);
    return out;
}

/* Letters of system fonts are about 7 units wide at 13 units a line; wide ones make up for narrow
 * ones. */
static const double letter_width = 7.2;

/* Of a character: where the next one begins. */
static const char *letter_end(const char *text)
{
    for (text++; ((unsigned char)*text & 0xc0) == 0x80;)
        text++;
    return text;
}

double ls_picture_text_width(const char *text)
{
    int letters = 0;
    for (; *text; text = letter_end(text))
        letters++;
    return letter_width * letters;
}

/* The bytes of the next word, or of what a line has room for: some paths have no blank. */
static size_t word_length(const char *text, double width, size_t most)
{
    const char *at = text;
    for (double room = width; *at && *at != ' '; at = letter_end(at)) {
        room -= letter_width;
        if (at > text && (room < 0 || (size_t)(letter_end(at) - text) > most))
            break;
    }
    return (size_t)ls_min(at - text, (int64_t)most);
}

int ls_picture_wrap(FILE *file, const char *classes, double x, double y, double width, int leading,
                    const char *text)
{
    char line[512] = "";
    size_t used = 0;
    int lines = 0;
    while (*text || used) {
        size_t word = word_length(text, width, sizeof line - 2), space = used > 0;
        char trial[sizeof line];
        snprintf(trial, sizeof trial, "%s%s%.*s", line, space ? " " : "", (int)word, text);
        bool fits = used == 0 || (*text && used + word + 2 < sizeof line &&
                                  ls_picture_text_width(trial) <= width);
        if (fits) {
            memcpy(line, trial, sizeof line);
            used = strlen(line);
            text += word;
            text += *text == ' ';
            if (used == 0)
                continue;
        }
        if (!fits || !*text) {
            if (file)
                ls_picture_text(file, classes, x, y + lines * leading, "start", "%s", line);
            lines++;
            used = 0;
            line[0] = '\0';
        }
    }
    return lines;
}

int ls_picture_title(FILE *file, int width, const char *title)
{
    enum { LINE = 22 };
    return 14 +
           LINE * ls_picture_wrap(file, "ls-title", 8, 26, (width - 16) * 13 / 17, LINE, title);
}

void ls_picture_line(FILE *file, const char *classes, double x1, double y1, double x2, double y2)
{
    fprintf(file, "<line class=\"%s\"", classes);
    put_attribute(file, "x1", x1);
    put_attribute(file, "y1", y1);
    put_attribute(file, "x2", x2);
    put_attribute(file, "y2", y2);
    fputs("/>\n", file);
}

void ls_picture_rect(FILE *file, const char *classes, double x, double y, double width,
                     double height, const char *tip)
{
    fprintf(file, "<rect class=\"%s\"", classes);
    put_attribute(file, "x", x);
    put_attribute(file, "y", y);
    put_attribute(file, "width", width);
    put_attribute(file, "height", height);
    if (!tip) {
        fputs("/>\n", file);
        return;
    }
    fputs("><title>", file);
    ls_picture_xml(file, tip);
    fputs("</title></rect>\n", file);
}

void ls_legend_add(struct ls_legend *legend, const char *classes, const char *text)
{
    double wide = 20 + ls_picture_text_width(text) + 14;
    if (legend->x > legend->left && legend->x + wide > legend->right) {
        legend->x = legend->left;
        legend->y += LS_LEGEND_ROW;
    }
    if (legend->file) {
        ls_picture_rect(legend->file, classes, legend->x, legend->y, 14, 14, NULL);
        ls_picture_text(legend->file, "ls-text", legend->x + 20, legend->y + 12, "start", "%s",
                        text);
    }
    legend->x += wide;
}

/* ---- scales ---------------------------------------------------------------------------------- */

/* 1, 2 or 5 times a power of ten, so that about `wanted` of them span the range. */
static double nice_step(double range, int wanted)
{
    double raw = range / wanted;
    double power = pow(10, floor(log10(raw)));
    double lead = raw / power;
    return power * (lead < 1.5 ? 1 : lead < 3.5 ? 2 : lead < 7.5 ? 5 : 10);
}

static void add_tick(struct ls_scale *scale, double value)
{
    double slack = (scale->high - scale->low) * 1e-9;
    if (scale->ticks < LS_TICKS_MAX && value >= scale->low - slack && value <= scale->high + slack)
        scale->tick[scale->ticks++] = value;
}

/* 1, 2, 4 and so on, or every second, third, ... of them where they are many. */
static void fit_doubling(struct ls_scale *scale, int wanted)
{
    double first = ceil(log2(scale->low) - 1e-9), last = floor(log2(scale->high) + 1e-9);
    double stride = fmax(1, ceil((last - first + 1) / (2.0 * wanted)));
    for (double power = first; power <= last; power += stride)
        add_tick(scale, exp2(power));
}

/* 1, 2 and 5 of each power of ten, or powers of ten where they are many; evenly spaced ones where
 * the range is less than one. */
static void fit_log(struct ls_scale *scale, int wanted)
{
    if (scale->high < scale->low * 10) {
        scale->step = nice_step(scale->high - scale->low, wanted);
        for (double i = ceil(scale->low / scale->step - 1e-9);
             i * scale->step <= scale->high * (1 + 1e-9); i++)
            add_tick(scale, i * scale->step);
        return;
    }
    static const double lead[] = {1, 2, 5};
    double first = floor(log10(scale->low)), last = ceil(log10(scale->high));
    int each = last - first <= wanted / 2 ? 3 : 1;
    double stride = fmax(1, ceil((last - first) / wanted));
    for (double power = first; power <= last; power += stride)
        for (int i = 0; i < each; i++)
            add_tick(scale, lead[i] * pow(10, power));
}

/* A range that is narrow for its place is one value's: ticks in it would be counted by more than a
 * double holds. */
static void range_widen(struct ls_scale *scale)
{
    static const double narrow = 1e-12, least = 1e-290;
    double most = fmax(fabs(scale->low), fabs(scale->high));
    double margin = scale->whole ? fmax(1, most * 1e-9) : most > least ? most * 0.1 : 1;
    if (scale->log && scale->high <= scale->low * (1 + narrow)) {
        scale->low /= scale->whole ? 2 : 1.1;
        scale->high *= scale->whole ? 2 : 1.1;
    } else if (!scale->log && scale->high - scale->low <= fmax(most * narrow, least)) {
        scale->low -= margin;
        scale->high += margin;
    }
}

void ls_scale_fit(struct ls_scale *scale, int wanted)
{
    scale->ticks = 0;
    scale->step = 0;
    range_widen(scale);
    if (scale->log) {
        (scale->whole ? fit_doubling : fit_log)(scale, wanted);
        return;
    }
    scale->step = nice_step(scale->high - scale->low, wanted);
    if (scale->whole)
        scale->step = fmax(scale->step, 1);
    if (scale->rounded) {
        scale->low = floor(scale->low / scale->step + 1e-9) * scale->step;
        scale->high = ceil(scale->high / scale->step - 1e-9) * scale->step;
    }
    for (double i = ceil(scale->low / scale->step - 1e-9);
         i * scale->step <= scale->high + scale->step * 1e-6; i++)
        add_tick(scale, i * scale->step);
}

double ls_scale_place(const struct ls_scale *scale, double value)
{
    double share = scale->log ? log(value / scale->low) / log(scale->high / scale->low)
                              : (value - scale->low) / (scale->high - scale->low);
    return scale->from + share * (scale->to - scale->from);
}

/* 1500 -> "1,500"; 0.25 -> "0.25"; 0.00003 -> "3e-05". */
struct ls_tick_text ls_scale_label(const struct ls_scale *scale, double value)
{
    struct ls_tick_text out;
    double step = scale->step > 0 ? scale->step : pow(10, floor(log10(value)));
    int decimals = step >= 1 ? 0 : (int)ceil(-log10(step) - 1e-9);
    if (fabs(value) < step / 2)
        value = 0;
    if (decimals > 4 || fabs(value) >= 1e9) {
        snprintf(out.text, sizeof out.text, "%.3g", value);
        for (char *comma = out.text; (comma = strchr(comma, ','));)
            *comma = '.';
        return out;
    }
    char plain[48];
    snprintf(plain, sizeof plain, "%.*f", decimals, value);
    size_t whole = strspn(plain, "-0123456789"), used = 0;
    for (size_t i = 0; plain[i] && used < sizeof out.text - 2; i++) {
        if (i > 0 && i < whole && (whole - i) % 3 == 0 && plain[i - 1] != '-')
            out.text[used++] = ',';
        out.text[used++] = plain[i] == ',' ? '.' : plain[i];
    }
    out.text[used] = '\0';
    return out;
}

/* Below the axis, or to the left of that where a wide one would not fit into its picture. */
static void x_tick_text(FILE *file, const struct ls_scale *x, double value, double y)
{
    const struct ls_tick_text label = ls_scale_label(x, value);
    double most = x->to + LS_AXES_RIGHT - ls_picture_text_width(label.text) / 2;
    ls_picture_text(file, "ls-text", fmin(ls_scale_place(x, value), most), y, "middle", "%s",
                    label.text);
}

void ls_scale_axis(FILE *file, const struct ls_scale *x, double y, const char *label)
{
    for (int i = 0; i < x->ticks; i++) {
        double at = ls_scale_place(x, x->tick[i]);
        ls_picture_line(file, "ls-line", at, y, at, y + 5);
        if (label)
            x_tick_text(file, x, x->tick[i], y + 20);
    }
    ls_picture_line(file, "ls-line", x->from, y, x->to, y);
    if (label)
        ls_picture_text(file, "ls-soft", (x->from + x->to) / 2, y + 40, "middle", "%s", label);
}

void ls_scale_axes(FILE *file, const struct ls_scale *x, const struct ls_scale *y,
                   const char *x_label, const char *y_label)
{
    ls_picture_text(file, "ls-soft", 8, y->to - 12, "start", "%s", y_label);
    for (int i = 0; i < y->ticks; i++) {
        double at = ls_scale_place(y, y->tick[i]);
        ls_picture_line(file, "ls-grid", x->from, at, x->to, at);
        ls_picture_text(file, "ls-text", x->from - 8, at + 4.5, "end", "%s",
                        ls_scale_label(y, y->tick[i]).text);
    }
    ls_scale_axis(file, x, y->from, x_label);
}
