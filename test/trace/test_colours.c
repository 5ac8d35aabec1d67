/* Colours of pictures and pages: whoever sees them, with any kind of colour blindness, tells any
 * two apart, in light and in dark. */
#include "../support/suite.h"

#include <lockstep/trace/html.h>
#include <lockstep/trace/picture.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- how colours are seen -------------------------------------------------------------------- */

struct colour {
    double c[3];
};

/* Light of a display's "#rrggbb" (IEC 61966-2-1). */
static struct colour linear(const char *hex)
{
    struct colour out;
    for (int i = 0; i < 3; i++) {
        char digits[3] = {hex[1 + 2 * i], hex[2 + 2 * i], '\0'};
        double v = (double)strtol(digits, NULL, 16) / 255;
        out.c[i] = v <= 0.04045 ? v / 12.92 : pow((v + 0.055) / 1.055, 2.4);
    }
    return out;
}

static struct colour times(const double m[3][3], struct colour x)
{
    struct colour out;
    for (int i = 0; i < 3; i++)
        out.c[i] = fmax(m[i][0] * x.c[0] + m[i][1] * x.c[1] + m[i][2] * x.c[2], 0);
    return out;
}

/* All cones, and without one kind of them: Machado et al. 2009, severity 1. */
enum { EYES = 4 };
static const double eyes[EYES][3][3] = {
    {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}},
    {{0.152286, 1.052583, -0.204868},
     {0.114503, 0.786281, 0.099216},
     {-0.003882, -0.048116, 1.051998}},
    {{0.367322, 0.860646, -0.227968},
     {0.280085, 0.672501, 0.047413},
     {-0.011820, 0.042940, 0.968881}},
    {{1.255528, -0.076749, -0.178779},
     {-0.078411, 0.930809, 0.147602},
     {0.004733, 0.691367, 0.303900}},
};

/* CIE 1976 L*a*b*, white D65. */
static struct colour lab(struct colour light)
{
    static const double xyz[3][3] = {
        {0.4124, 0.3576, 0.1805}, {0.2126, 0.7152, 0.0722}, {0.0193, 0.1192, 0.9505}};
    static const double white[3] = {0.95047, 1, 1.08883};
    struct colour f = times(xyz, light);
    for (int i = 0; i < 3; i++) {
        double t = f.c[i] / white[i];
        f.c[i] = t > 0.008856 ? cbrt(t) : 7.787 * t + 16.0 / 116;
    }
    return (struct colour){{116 * f.c[1] - 16, 500 * (f.c[0] - f.c[1]), 200 * (f.c[1] - f.c[2])}};
}

/* The least distance (CIE 1976) that two colours have for any eyes; 2.3 is just noticeable. */
static double distance(const char *a, const char *b)
{
    double least = INFINITY;
    for (int e = 0; e < EYES; e++) {
        struct colour x = lab(times(eyes[e], linear(a))), y = lab(times(eyes[e], linear(b)));
        double sum = 0;
        for (int i = 0; i < 3; i++)
            sum += (x.c[i] - y.c[i]) * (x.c[i] - y.c[i]);
        least = fmin(least, sqrt(sum));
    }
    return least;
}

/* ---- the styles ------------------------------------------------------------------------------ */

/* Each of count colours, behind the mark with its number, is told apart from the others. */
static void assert_told_apart(const char *style, const char *mark, int count, double least)
{
    const char *at[16];
    for (int i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof name, mark, i);
        at[i] = strstr(style, name);
        assert_non_null(at[i]);
        at[i] += strlen(name);
        for (int j = 0; j < i; j++)
            if (distance(at[i], at[j]) < least)
                fail_msg("%.7s and %.7s (%s, %d and %d) are %.1f apart: expected %g", at[j], at[i],
                         mark, j, i, distance(at[i], at[j]), least);
    }
}

static void assert_both(char *text, const char *mark, int count, double least)
{
    const char *dark = strstr(text, "prefers-color-scheme:dark");
    assert_non_null(dark);
    assert_told_apart(text, mark, count, least);
    assert_told_apart(dark, mark, count, least);
    free(text);
}

CASE(test_curves)
{
    char *text = NULL;
    size_t bytes;
    FILE *file = open_memstream(&text, &bytes);
    ls_picture_begin(file, 100, 100, "");
    ls_picture_end(file);
    fclose(file);
    assert_told_apart(text, ".ls-a%d0{fill:", 4, 8);
    assert_told_apart(text, ".ls-a%d1{fill:", 4, 8);
    assert_both(text, ".ls-f%d{fill:", LS_PICTURE_COLOURS, 12);
}

CASE(test_parts)
{
    char *text = NULL;
    size_t bytes;
    FILE *file = open_memstream(&text, &bytes);
    ls_html_begin(file, "");
    ls_html_end(file);
    fclose(file);
    assert_both(text, "--p%d:", LS_HTML_PARTS, 8);
}

SUITE_MAIN(NULL, NULL)
