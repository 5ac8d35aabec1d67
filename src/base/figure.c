/* Numbers with units. */
#include <lockstep/base/figure.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A value is number * times / over: of powers of ten only one is not 1, so that 3 us is the double
 * nearest to 0.000003. */
struct unit {
    const char *name;
    double times, over;
};

#define DECIMAL(base)                                                                              \
    {"k" base, 1e3, 1}, {"K" base, 1e3, 1}, {"M" base, 1e6, 1}, {"G" base, 1e9, 1},                \
        {"T" base, 1e12, 1}, {"P" base, 1e15, 1},                                                  \
    {                                                                                              \
        "E" base, 1e18, 1                                                                          \
    }
#define BINARY(base)                                                                               \
    {"Ki" base, 0x1p10, 1}, {"Mi" base, 0x1p20, 1}, {"Gi" base, 0x1p30, 1},                        \
    {                                                                                              \
        "Ti" base, 0x1p40, 1                                                                       \
    }
#define BITS(base)                                                                                 \
    {"M" base, 1e6, 8}, {"G" base, 1e9, 8},                                                        \
    {                                                                                              \
        "T" base, 1e12, 8                                                                          \
    }

/* Of a kind, those that are written come first. */
static const struct unit number[] = {{"", 1, 1}, {NULL, 0, 0}};
static const struct unit count[] = {{"k", 1e3, 1}, {"K", 1e3, 1},  {"M", 1e6, 1}, {"G", 1e9, 1},
                                    {"B", 1e9, 1}, {"T", 1e12, 1}, {"", 1, 1},    {NULL, 0, 0}};
static const struct unit bytes[] = {DECIMAL("B"), BINARY("B"), {"B", 1, 1}, DECIMAL(""),
                                    BINARY(""),   {"", 1, 1},  {NULL, 0, 0}};
static const struct unit rate[] = {DECIMAL("B/s"), BINARY("B/s"), {"B/s", 1, 1}, DECIMAL(""),
                                   BINARY(""),     BITS("bit/s"), BITS("b/s"),   BITS("bps"),
                                   {"", 1, 1},     {NULL, 0, 0}};
static const struct unit flops[] = {DECIMAL("FLOP/s"), {"FLOP/s", 1, 1}, DECIMAL("FLOPS"),
                                    DECIMAL(""),       {"", 1, 1},       {NULL, 0, 0}};
static const struct unit seconds[] = {{"h", 3600, 1}, {"min", 60, 1}, {"s", 1, 1}, {"ms", 1, 1e3},
                                      {"us", 1, 1e6}, {"ns", 1, 1e9}, {"", 1, 1},  {NULL, 0, 0}};
static const struct unit watts[] = {
    {"MW", 1e6, 1}, {"kW", 1e3, 1}, {"W", 1, 1}, {"", 1, 1}, {NULL, 0, 0}};

static const struct {
    const struct unit *units;
    bool needs_one;
} kinds[LS_FIGURES] = {
    [LS_FIGURE_NUMBER] = {number, false}, [LS_FIGURE_COUNT] = {count, false},
    [LS_FIGURE_BYTES] = {bytes, true},    [LS_FIGURE_RATE] = {rate, true},
    [LS_FIGURE_FLOPS] = {flops, true},    [LS_FIGURE_SECONDS] = {seconds, false},
    [LS_FIGURE_WATTS] = {watts, false},
};

size_t ls_figure_length(const char *text)
{
    const char *p = text + (*text == '-' || *text == '+');
    size_t digits = strspn(p, "0123456789");
    p += digits;
    if (*p == '.') {
        size_t decimals = strspn(p + 1, "0123456789");
        p += 1 + decimals;
        digits += decimals;
    }
    if (digits == 0)
        return 0;
    if (*p == 'e' || *p == 'E') {
        const char *q = p + 1 + (p[1] == '-' || p[1] == '+');
        size_t exponent = strspn(q, "0123456789");
        if (exponent > 0)
            p = q + exponent;
    }
    return (size_t)(p - text);
}

static bool units_read(const struct unit *units, const char *text, double *value)
{
    size_t length = ls_figure_length(text);
    const char *name = text + length + strspn(text + length, " ");
    for (const struct unit *u = units; u->name && length > 0; u++)
        if (strcmp(u->name, name) == 0) {
            *value = strtod(text, NULL) * u->times / u->over;
            return isfinite(*value);
        }
    return false;
}

bool ls_figure_read(enum ls_figure kind, const char *text, double *value)
{
    static const double plain_least = 1e6;
    double read;
    if (!units_read(kinds[kind].units, text, &read))
        return false;
    bool plain = !text[ls_figure_length(text)];
    if (kinds[kind].needs_one && plain && read != 0 && fabs(read) < plain_least)
        return false;
    *value = read;
    return true;
}

void ls_figure_text(enum ls_figure kind, double value, char text[LS_FIGURE_BYTES_MAX])
{
    const struct unit *units = kinds[kind].units;
    size_t best = 0;
    for (const struct unit *u = units; u->name; u++) {
        double scaled = value / u->times * u->over, again;
        bool plain = u->times == u->over;
        bool bits = u->over == 8;
        if (bits || (!plain && (scaled < 1 || scaled >= 4096)))
            continue;
        for (int digits = 1; digits <= 17; digits++) {
            char tried[LS_FIGURE_BYTES_MAX];
            snprintf(tried, sizeof tried, "%.*g%s%s", digits, scaled, *u->name ? " " : "", u->name);
            bool exponent = strchr(tried, 'e') && scaled >= 1 && scaled < 1e6;
            if (exponent || !units_read(units, tried, &again) || again != value)
                continue;
            /* Its digits: 3.35 TB/s beats 3350 GB/s, which is as long. */
            size_t length = strcspn(tried, " ") - (strchr(tried, '.') != NULL);
            if (best == 0 || length < best) {
                best = length;
                memcpy(text, tried, sizeof tried);
            }
            break;
        }
    }
}
