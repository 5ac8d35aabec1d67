/* One figure of a cluster: from text with a unit, to text, against its bounds. */
#include "cluster_private.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- units ------------------------------------------------------------------------------------
 */

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
static const struct unit flops_units[] = {DECIMAL("FLOP/s"), {"FLOP/s", 1, 1}, DECIMAL("FLOPS"),
                                          DECIMAL(""),       {"", 1, 1},       {NULL, 0, 0}};
static const struct unit bytes_units[] = {DECIMAL("B"), BINARY("B"), {"B", 1, 1}, DECIMAL(""),
                                          BINARY(""),   {"", 1, 1},  {NULL, 0, 0}};
static const struct unit rate_units[] = {DECIMAL("B/s"), BINARY("B/s"), {"B/s", 1, 1}, DECIMAL(""),
                                         BINARY(""),     BITS("bit/s"), BITS("b/s"),   BITS("bps"),
                                         {"", 1, 1},     {NULL, 0, 0}};
static const struct unit seconds_units[] = {{"h", 3600, 1}, {"min", 60, 1}, {"s", 1, 1},
                                            {"ms", 1, 1e3}, {"us", 1, 1e6}, {"ns", 1, 1e9},
                                            {"", 1, 1},     {NULL, 0, 0}};
static const struct unit watts_units[] = {
    {"MW", 1e6, 1}, {"kW", 1e3, 1}, {"W", 1, 1}, {"", 1, 1}, {NULL, 0, 0}};
static const struct unit no_units[] = {{"", 1, 1}, {NULL, 0, 0}};

static const struct unit *units_of(enum cluster_kind kind)
{
    switch (kind) {
    case CLUSTER_FLOPS:
        return flops_units;
    case CLUSTER_BYTES:
        return bytes_units;
    case CLUSTER_RATE:
        return rate_units;
    case CLUSTER_SECONDS:
        return seconds_units;
    case CLUSTER_WATTS:
        return watts_units;
    default:
        return no_units;
    }
}

/* Bytes of the decimal number that text begins with: no NaN, no infinity, no hexadecimal. */
static size_t number_length(const char *text)
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

static bool parse_figure(const struct unit *units, const char *text, double *out)
{
    size_t length = number_length(text);
    const char *unit = text + length;
    if (length == 0)
        return false;
    unit += strspn(unit, " ");
    for (const struct unit *u = units; u->name; u++)
        if (strcmp(u->name, unit) == 0) {
            *out = strtod(text, NULL) * u->times / u->over;
            return isfinite(*out);
        }
    return false;
}

/* link.inter=100 is no rate of 100 B/s. */
static bool unit_is_lost(enum cluster_kind kind, const char *text, double value)
{
    enum { PLAIN_LEAST = 1000000 };
    bool needed = kind == CLUSTER_BYTES || kind == CLUSTER_RATE || kind == CLUSTER_FLOPS;
    return needed && value != 0 && value < PLAIN_LEAST && !text[number_length(text)];
}

/* The fewest digits that read back, in the unit that needs the fewest. */
static void format_figure(const struct unit *units, double value, char *text, size_t bytes)
{
    size_t best = 0;
    for (const struct unit *u = units; u->name; u++) {
        double number = value / u->times * u->over, again;
        bool plain = u->times == u->over;
        bool bits = u->over == 8;
        if (bits || (!plain && (number < 1 || number >= 4096)))
            continue;
        for (int digits = 1; digits <= 17; digits++) {
            char tried[CLUSTER_VALUE_BYTES];
            snprintf(tried, sizeof tried, "%.*g%s%s", digits, number, *u->name ? " " : "", u->name);
            bool exponent = strchr(tried, 'e') && number >= 1 && number < 1e6;
            if (exponent || !parse_figure(units, tried, &again) || again != value)
                continue;
            /* Its digits: 3.35 TB/s beats 3350 GB/s, which is as long. */
            size_t length = strcspn(tried, " ") - (strchr(tried, '.') != NULL);
            if (best == 0 || length < best) {
                best = length;
                snprintf(text, bytes, "%s", tried);
            }
            break;
        }
    }
}

void cluster_shortest(double value, char *text, size_t bytes)
{
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, bytes, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            return;
    }
}

/* ---- values -----------------------------------------------------------------------------------
 */

static const char *const topologies[] = {
    [LS_LINK_FULL] = "full", [LS_LINK_RING] = "ring", [LS_LINK_FAT_TREE] = "fat-tree"};

void cluster_expected(const struct cluster_key *key, char *text, size_t bytes)
{
    static const struct {
        const char *what, *such_as;
    } figures[] = {
        [CLUSTER_COUNT] = {"a whole number", ""},
        [CLUSTER_NUMBER] = {"a number", ""},
        [CLUSTER_FLOPS] = {"operations a second", ", such as 989 TFLOP/s"},
        [CLUSTER_BYTES] = {"bytes", ", such as 80 GiB"},
        [CLUSTER_RATE] = {"a rate", ", such as 450 GB/s"},
        [CLUSTER_SECONDS] = {"a time", ", such as 3 us"},
        [CLUSTER_WATTS] = {"a power", ", such as 700 W"},
    };
    char least[CLUSTER_VALUE_BYTES], most[CLUSTER_VALUE_BYTES];
    if (key->kind == CLUSTER_TEXT) {
        snprintf(text, bytes, "1 to %d printable ASCII characters", LS_CLUSTER_NAME_BYTES - 1);
    } else if (key->kind == CLUSTER_TOPOLOGY) {
        snprintf(text, bytes, "full, ring or fat-tree");
    } else if (key->kind == CLUSTER_PAIR) {
        snprintf(text, bytes, "two whole numbers from %.0f to %.0f, such as [128, 256]", key->least,
                 key->most);
    } else {
        bool whole = key->kind == CLUSTER_COUNT;
        format_figure(units_of(key->kind), key->least, least, sizeof least);
        format_figure(units_of(key->kind), key->most, most, sizeof most);
        if (whole)
            snprintf(most, sizeof most, "%.0f", key->most);
        snprintf(text, bytes, "%s from %s to %s%s", figures[key->kind].what, least, most,
                 figures[key->kind].such_as);
    }
}

bool cluster_parse_whole(const char *text, int64_t *out)
{
    double value;
    if (!parse_figure(no_units, text, &value) || value != floor(value) || fabs(value) > 0x1p53)
        return false;
    *out = (int64_t)value;
    return true;
}

bool cluster_parse_seconds(const char *text, double *out)
{
    return parse_figure(seconds_units, text, out) && *out > 0 && *out <= 1e6;
}

static bool whole_within(const struct cluster_key *key, const char *text, int64_t *out)
{
    int64_t value;
    if (!cluster_parse_whole(text, &value) || (double)value < key->least ||
        (double)value > key->most)
        return false;
    *out = value;
    return true;
}

/* "[128, 256]", "128, 256" or "128x256". */
static bool parse_pair(const struct cluster_key *key, const char *text, int64_t *out)
{
    char part[2][24];
    int64_t value[2];
    text += strspn(text, "[ ");
    size_t first = strcspn(text, ",x ");
    const char *rest = text + first + strspn(text + first, ",x ");
    size_t second = strcspn(rest, "] ");
    if (first >= sizeof part[0] || second >= sizeof part[1] || rest == text + first ||
        rest[second + strspn(rest + second, "] ")])
        return false;
    snprintf(part[0], sizeof part[0], "%.*s", (int)first, text);
    snprintf(part[1], sizeof part[1], "%.*s", (int)second, rest);
    if (!whole_within(key, part[0], &value[0]) || !whole_within(key, part[1], &value[1]))
        return false;
    memcpy(out, value, sizeof value);
    return true;
}

static bool parse_text(const char *text, char *out)
{
    size_t length = strlen(text);
    if (length == 0 || length >= LS_CLUSTER_NAME_BYTES)
        return false;
    for (size_t i = 0; i < length; i++)
        if (text[i] < ' ' || text[i] > '~')
            return false;
    memcpy(out, text, length + 1);
    return true;
}

bool cluster_parse(const struct cluster_key *key, const char *text, void *slot, char *why,
                   size_t bytes)
{
    bool good = false;
    double value;
    switch (key->kind) {
    case CLUSTER_TEXT:
        good = parse_text(text, slot);
        break;
    case CLUSTER_COUNT:
        good = whole_within(key, text, slot);
        break;
    case CLUSTER_PAIR:
        good = parse_pair(key, text, slot);
        break;
    case CLUSTER_TOPOLOGY:
        for (size_t i = 0; i < sizeof topologies / sizeof *topologies; i++)
            if (strcmp(text, topologies[i]) == 0) {
                *(enum ls_link_topology *)slot = (enum ls_link_topology)i;
                good = true;
            }
        break;
    default:
        good = parse_figure(units_of(key->kind), text, &value) && value >= key->least &&
               value <= key->most && !unit_is_lost(key->kind, text, value);
        if (good)
            *(double *)slot = value;
    }
    if (!good)
        cluster_expected(key, why, bytes);
    return good;
}

static void format_text(const char *value, char *text, size_t bytes)
{
    size_t at = 0;
    text[at++] = '"';
    for (const char *p = value; *p && at + 4 < bytes; p++) {
        if (*p == '"' || *p == '\\')
            text[at++] = '\\';
        text[at++] = *p;
    }
    text[at++] = '"';
    text[at] = '\0';
}

void cluster_format(const struct cluster_key *key, const void *slot, char *text, size_t bytes)
{
    switch (key->kind) {
    case CLUSTER_TEXT:
        format_text(slot, text, bytes);
        break;
    case CLUSTER_COUNT:
        snprintf(text, bytes, "%lld", (long long)*(const int64_t *)slot);
        break;
    case CLUSTER_PAIR:
        snprintf(text, bytes, "[%lld, %lld]", (long long)((const int64_t *)slot)[0],
                 (long long)((const int64_t *)slot)[1]);
        break;
    case CLUSTER_TOPOLOGY:
        snprintf(text, bytes, "%s", topologies[*(const enum ls_link_topology *)slot]);
        break;
    default:
        format_figure(units_of(key->kind), *(const double *)slot, text, bytes);
    }
}

/* ---- types ------------------------------------------------------------------------------------
 */

static const struct {
    enum ls_dtype dtype;
    const char *word;
} dtypes[] = {{LS_F32, "fp32"}, {LS_BF16, "bf16"}, {LS_F16, "fp16"}, {LS_U8, "u8"}};

int cluster_dtype_of(const char *word)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(dtypes[i].word, word) == 0)
            return (int)dtypes[i].dtype;
    return -1;
}

const char *cluster_dtype_word(enum ls_dtype dtype)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (dtypes[i].dtype == dtype)
            return dtypes[i].word;
    return dtypes[0].word;
}
