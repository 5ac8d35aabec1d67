/* One figure of a cluster: from text with a unit, to text, against its bounds. */
#include "cluster_private.h"

#include <lockstep/base/figure.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

static enum ls_figure figure_of(enum cluster_kind kind)
{
    static const enum ls_figure figures[] = {
        [CLUSTER_COUNT] = LS_FIGURE_NUMBER, [CLUSTER_NUMBER] = LS_FIGURE_NUMBER,
        [CLUSTER_FLOPS] = LS_FIGURE_FLOPS,  [CLUSTER_BYTES] = LS_FIGURE_BYTES,
        [CLUSTER_RATE] = LS_FIGURE_RATE,    [CLUSTER_SECONDS] = LS_FIGURE_SECONDS,
        [CLUSTER_WATTS] = LS_FIGURE_WATTS,
    };
    return figures[kind];
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
    char least[LS_FIGURE_BYTES_MAX], most[LS_FIGURE_BYTES_MAX];
    if (key->kind == CLUSTER_TEXT) {
        snprintf(text, bytes, "1 to %d printable ASCII characters", LS_CLUSTER_NAME_BYTES - 1);
    } else if (key->kind == CLUSTER_TOPOLOGY) {
        snprintf(text, bytes, "full, ring or fat-tree");
    } else if (key->kind == CLUSTER_PAIR) {
        snprintf(text, bytes, "two whole numbers from %.0f to %.0f, such as [128, 256]", key->least,
                 key->most);
    } else {
        bool whole = key->kind == CLUSTER_COUNT;
        ls_figure_text(figure_of(key->kind), key->least, least);
        ls_figure_text(figure_of(key->kind), key->most, most);
        if (whole)
            snprintf(most, sizeof most, "%.0f", key->most);
        snprintf(text, bytes, "%s from %s to %s%s", figures[key->kind].what, least, most,
                 figures[key->kind].such_as);
    }
}

bool cluster_parse_whole(const char *text, int64_t *out)
{
    double value;
    if (!ls_figure_read(LS_FIGURE_NUMBER, text, &value) || value != floor(value) ||
        fabs(value) > 0x1p53)
        return false;
    *out = (int64_t)value;
    return true;
}

bool cluster_parse_seconds(const char *text, double *out)
{
    return ls_figure_read(LS_FIGURE_SECONDS, text, out) && *out > 0 && *out <= 1e6;
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
        good = ls_figure_read(figure_of(key->kind), text, &value) && value >= key->least &&
               value <= key->most;
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
    char figure[LS_FIGURE_BYTES_MAX];
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
        ls_figure_text(figure_of(key->kind), *(const double *)slot, figure);
        snprintf(text, bytes, "%s", figure);
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
