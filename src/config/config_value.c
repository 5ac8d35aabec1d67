/* One value: from text, to text, against its bounds. */
#include "config/config_private.h"

#include <lockstep/base/figure.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void *config_slot(const struct ls_config *config, const struct ls_config_key *key)
{
    return (unsigned char *)config + key->offset;
}

/* ---- numbers -------------------------------------------------------------------------------- */

/* The shortest decimal that reads back as value, whole numbers without an exponent. */
static void real_text(double value, char *text, size_t bytes)
{
    if (fabs(value) < 1e15 && value == floor(value)) {
        snprintf(text, bytes, "%.0f", value);
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, bytes, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            return;
    }
}

/* The whole of text is a decimal number, as YAML 1.2 writes integers and floats (without .inf and
 * .nan, which no key takes). */
static bool is_number(const char *text)
{
    size_t length = ls_figure_length(text);
    return length > 0 && !text[length];
}

enum whole { WHOLE, NOT_WHOLE, TOO_LARGE };

/* The exact value of a number, which may be written as 1000, 1e3, 1.5e3 or 1000.0. */
static enum whole whole_value(const char *text, int64_t *out)
{
    bool negative = *text == '-';
    const char *p = text + (*text == '-' || *text == '+');
    size_t digits = strspn(p, "0123456789."), length = 0, zeros = 0;
    const char *point = memchr(p, '.', digits);
    /* The value is the digits kept, `length` of them, times 10^shift. */
    long shift = point ? -(long)(p + digits - point - 1) : 0;
    char kept[20];
    for (size_t i = 0; i < digits; i++) {
        if (p[i] == '.')
            continue;
        if (p[i] == '0') {
            zeros += length > 0;
            continue;
        }
        if (length + zeros >= sizeof kept)
            return TOO_LARGE;
        for (; zeros > 0; zeros--)
            kept[length++] = '0';
        kept[length++] = p[i];
    }
    if (p[digits]) /* strtol saturates, which is as good here */
        shift += ls_max(ls_min(strtol(p + digits + 1, NULL, 10), 1000000), -1000000);
    shift += (long)zeros;
    *out = 0;
    if (length == 0)
        return WHOLE;
    if (shift < 0)
        return NOT_WHOLE; /* the last digit kept is not 0 */
    for (long i = 0; i < (long)length + shift; i++)
        if (__builtin_mul_overflow(*out, 10, out) ||
            __builtin_add_overflow(*out, i < (long)length ? kept[i] - '0' : 0, out))
            return TOO_LARGE;
    *out = negative ? -*out : *out;
    return WHOLE;
}

static bool within(const struct ls_config_key *key, double value)
{
    bool above = key->min_open ? value > key->min : value >= key->min;
    bool below = key->max_open ? value < key->max : value <= key->max;
    return above && below;
}

static bool parse_int(const struct ls_config_key *key, const char *text, int64_t *out)
{
    int64_t value;
    if (!is_number(text) || whole_value(text, &value) != WHOLE || !within(key, (double)value))
        return false;
    *out = value;
    return true;
}

/* "2GiB", "1.5 GB", "4194304", "0". */
static bool parse_bytes(const struct ls_config_key *key, const char *text, int64_t *out)
{
    double value;
    if (!ls_figure_read(LS_FIGURE_BYTES, text, &value) || value != floor(value) ||
        !within(key, value))
        return false;
    *out = (int64_t)value;
    return true;
}

/* "[128, 256]", "128, 256" or "128x256". */
static bool parse_pair(const struct ls_config_key *key, const char *text, int64_t *out)
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
    if (!parse_int(key, part[0], &value[0]) || !parse_int(key, part[1], &value[1]))
        return false;
    memcpy(out, value, sizeof value);
    return true;
}

/* In the largest unit that it is whole in. */
static void bytes_text(int64_t value, char *text, size_t bytes)
{
    static const struct {
        const char *name;
        int64_t bytes;
    } units[] = {{"TiB", 1LL << 40}, {"TB", 1000000000000}, {"GiB", 1 << 30},
                 {"GB", 1000000000}, {"MiB", 1 << 20},      {"MB", 1000000},
                 {"KiB", 1 << 10},   {"kB", 1000},          {"B", 1}};
    int i = 0;
    while (value % units[i].bytes)
        i++;
    snprintf(text, bytes, "%lld%s", (long long)(value / units[i].bytes),
             value ? units[i].name : "");
}

/* What a figure of a type is called; figures beside these have none. */
static const struct {
    enum ls_figure figure;
    const char *what, *such_as;
} figures[] = {
    [LS_CONFIG_FLOPS] = {LS_FIGURE_FLOPS, "operations a second", "989 TFLOP/s"},
    [LS_CONFIG_SIZE] = {LS_FIGURE_BYTES, "bytes", "80 GiB"},
    [LS_CONFIG_RATE] = {LS_FIGURE_RATE, "a rate", "450 GB/s"},
    [LS_CONFIG_SECONDS] = {LS_FIGURE_SECONDS, "a time", "3 us"},
    [LS_CONFIG_WATTS] = {LS_FIGURE_WATTS, "a power", "700 W"},
};

static bool parse_int_word(const struct ls_config_key *key, const char *text, int64_t *out)
{
    int value;
    if (!key->words || !ls_word_read(key->words, text, &value))
        return false;
    *out = value;
    return true;
}

static bool parse_figure(const struct ls_config_key *key, const char *text, double *out)
{
    double value;
    if (!ls_figure_read(figures[key->type].figure, text, &value) || !within(key, value))
        return false;
    *out = value;
    return true;
}

/* Whether a number keeps off an open bound only until it is a float, which runs compute with. */
static bool rounds_to_bound(const struct ls_config_key *key, double value)
{
    float rounded = (float)value;
    return (key->min_open && value > key->min && rounded <= key->min) ||
           (key->max_open && value < key->max && rounded >= key->max);
}

static bool parse_real(const struct ls_config_key *key, const char *text, double *out)
{
    if (!is_number(text))
        return false;
    double value = strtod(text, NULL);
    if (!isfinite(value) || !within(key, value) || rounds_to_bound(key, value))
        return false;
    *out = value;
    return true;
}

/* ---- words and text ------------------------------------------------------------------------- */

const char *ls_config_precision(const struct ls_config *config)
{
    return ls_word_of(ls_config_key_of("numerics.precision")->words,
                      (int)config->numerics.precision);
}

static bool parse_name(const struct ls_config_key *key, const char *text, char *out)
{
    size_t length = strlen(text);
    if (length == 0 || (double)length >= key->max)
        return false;
    for (size_t i = 0; i < length; i++)
        if (text[i] < ' ' || text[i] > '~')
            return false;
    memcpy(out, text, length + 1);
    return true;
}

/* ---- the whole key -------------------------------------------------------------------------- */

/* "auto or a whole number of at least 0" */
static void expected_number(const struct ls_config_key *key, char *text, size_t bytes)
{
    const char *kind = key->type == LS_CONFIG_INT ? "a whole number" : "a number";
    char low[32], high[32], what[96] = "";
    if (key->words)
        ls_words_expected(key->words, NULL, what, sizeof what / 2);
    ls_string_add(what, sizeof what, " or ", "%s", kind);
    real_text(key->min, low, sizeof low);
    snprintf(high, sizeof high, "%.0f", key->max);
    if (key->type == LS_CONFIG_REAL)
        real_text(key->max, high, sizeof high);
    if (key->max >= 0x1p60)
        snprintf(text, bytes, "%s of at least %s", what, low);
    else if (key->min_open || key->max_open)
        snprintf(text, bytes, "%s %s %s and %s %s", what, key->min_open ? "above" : "of at least",
                 low, key->max_open ? "below" : "at most", high);
    else
        snprintf(text, bytes, "%s from %s to %s", what, low, high);
}

static void expected_figure(const struct ls_config_key *key, char *text, size_t bytes)
{
    char least[LS_FIGURE_BYTES_MAX], most[LS_FIGURE_BYTES_MAX];
    ls_figure_text(figures[key->type].figure, key->min, least);
    ls_figure_text(figures[key->type].figure, key->max, most);
    snprintf(text, bytes, "%s from %s to %s, such as %s", figures[key->type].what, least, most,
             figures[key->type].such_as);
}

void ls_config_expected(const struct ls_config_key *key, char *text, size_t bytes)
{
    switch (key->type) {
    case LS_CONFIG_INT:
    case LS_CONFIG_REAL:
        expected_number(key, text, bytes);
        break;
    case LS_CONFIG_BYTES:
        *text = '\0';
        if (key->min > 0)
            snprintf(text, bytes, "at least %.0fMiB, ", key->min / 0x1p20);
        ls_string_add(text, bytes, "", "a size with its unit, such as 80GiB, 80GB or 512MiB");
        break;
    case LS_CONFIG_BOOL:
        snprintf(text, bytes, "true or false");
        break;
    case LS_CONFIG_WORD:
        ls_words_expected(key->words, NULL, text, bytes);
        break;
    case LS_CONFIG_STRING:
    case LS_CONFIG_PATH:
    case LS_CONFIG_PATHS:
        snprintf(text, bytes, "UTF-8 text of at most %d bytes", LS_CONFIG_TEXT_BYTES - 1);
        break;
    case LS_CONFIG_BLEND:
        snprintf(text, bytes, "a list of stores with weights");
        break;
    case LS_CONFIG_NAME:
        snprintf(text, bytes, "1 to %.0f printable ASCII characters", key->max - 1);
        break;
    case LS_CONFIG_PAIR:
        snprintf(text, bytes, "two whole numbers from %.0f to %.0f, such as [128, 256]", key->min,
                 key->max);
        break;
    default:
        expected_figure(key, text, bytes);
    }
}

/* Why text is none of the numbers that were expected, if that is not plain. */
static const char *number_reason(const struct ls_config_key *key, const char *text)
{
    char bare[32];
    size_t length = 0;
    int64_t value;
    if (is_number(text) && key->type == LS_CONFIG_INT) {
        enum whole whole = whole_value(text, &value);
        return whole == NOT_WHOLE   ? " (this one is not whole)"
               : whole == TOO_LARGE ? " (this one is past 2^63)"
                                    : "";
    }
    for (const char *p = text; *p && length + 1 < sizeof bare; p++)
        if (*p != '_' && *p != ',')
            bare[length++] = *p;
    bare[length] = '\0';
    return length < strlen(text) && is_number(bare) ? "; write it without _ and ," : "";
}

/* Values that other programs have, and people try. */
static const struct {
    const char *ours, *theirs;
} meant[] = {
    {"fp16", "float16|half|16"},         {"bf16", "bfloat16|bfloat"},
    {"fp32", "float32|float|single|32"}, {"true", "True|yes|on|1"},
    {"false", "False|no|off|none|0"},    {"auto", "true|True|yes|on|1|last|latest|newest"},
    {"never", "false|no|off|none|0"},    {"off", "false|no|none|0"},
};

/* The word among these that was meant by text; NULL: none of them. */
static const char *word_meant(const struct ls_word *words, const char *text)
{
    int value;
    for (size_t i = 0; i < sizeof meant / sizeof *meant; i++)
        if (ls_word_among(meant[i].theirs, text) && ls_word_read(words, meant[i].ours, &value))
            return meant[i].ours;
    return NULL;
}

static const struct ls_word switch_words[] = {{"true", true}, {"false", false}, {NULL, 0}};
static const struct ls_word resume_words[] = {{"auto", 0}, {"never", 1}, {NULL, 0}};

/* A plain number that ls_figure_read refuses: 0 and numbers from a million on need no unit, plain
 * times are seconds, and plain powers watts. */
static bool lacks_unit(const struct ls_config_key *key, const char *text)
{
    bool needs_one =
        key->type == LS_CONFIG_SIZE || key->type == LS_CONFIG_RATE || key->type == LS_CONFIG_FLOPS;
    double value = needs_one && is_number(text) ? strtod(text, NULL) : 0;
    return value != 0 && fabs(value) < 1e6;
}

/* "true or false, without quotes", "adamw, sgd or lion; did you mean lion?" */
static void explain(const struct ls_config_key *key, const char *text, bool quoted, char *why,
                    size_t bytes)
{
    double number = is_number(text) ? strtod(text, NULL) : NAN;
    ls_config_expected(key, why, bytes);
    if (quoted && key->type != LS_CONFIG_WORD && !config_is_text(key))
        ls_string_add(why, bytes, "", ", without quotes");
    else if (key->type == LS_CONFIG_REAL && rounds_to_bound(key, number))
        ls_string_add(why, bytes, "", " (this one is %g in float32)", (double)(float)number);
    else if (key->type == LS_CONFIG_INT || key->type == LS_CONFIG_REAL)
        ls_string_add(why, bytes, "", "%s", number_reason(key, text));
    else if (lacks_unit(key, text))
        ls_string_add(why, bytes, "", "; its unit is missing");
    const struct ls_word *words = key->type == LS_CONFIG_BOOL ? switch_words : key->words;
    const char *near = words ? word_meant(words, text) : NULL;
    if (near)
        ls_string_add(why, bytes, "", "%s", ls_meant(near, "").text);
    if (near || key->type != LS_CONFIG_WORD)
        return;
    const char *lacks = strcmp(key->name, "model.arch") ? "" : ls_family_lacks(text);
    if (*lacks)
        ls_string_add(why, bytes, "", "%s", lacks);
    else
        ls_words_expected(key->words, text, why, bytes);
}

bool ls_config_parse(const struct ls_config_key *key, void *slot, const char *text, bool quoted,
                     char *why, size_t bytes)
{
    bool good = false;
    /* train.resume=true or last, as other programs have it, is no path, unless it is there. */
    bool names = !strcmp(key->name, "train.resume") && access(text, F_OK) != 0;
    const char *resume = names ? word_meant(resume_words, text) : NULL;
    if (resume) {
        snprintf(why, bytes, "auto, never or the path of a checkpoint or a run%s",
                 ls_meant(resume, "").text);
        return false;
    }
    if (key->type == LS_CONFIG_BLEND)
        return config_blend_parse(text, slot, why, bytes);
    switch (key->type) {
    case LS_CONFIG_INT:
        good = (!quoted && parse_int(key, text, slot)) || parse_int_word(key, text, slot);
        break;
    case LS_CONFIG_BYTES:
        good = !quoted && parse_bytes(key, text, slot);
        break;
    case LS_CONFIG_REAL:
        good = !quoted && parse_real(key, text, slot);
        break;
    case LS_CONFIG_BOOL:
        good = !quoted && (strcmp(text, "true") == 0 || strcmp(text, "false") == 0);
        if (good)
            *(bool *)slot = *text == 't';
        break;
    case LS_CONFIG_WORD:
        good = ls_word_read(key->words, text, slot);
        break;
    case LS_CONFIG_STRING:
    case LS_CONFIG_PATH:
    case LS_CONFIG_PATHS:
        good = strlen(text) < LS_CONFIG_TEXT_BYTES &&
               ls_utf8_valid(text, strlen(text)) == strlen(text);
        if (good)
            snprintf(slot, LS_CONFIG_TEXT_BYTES, "%s", text);
        break;
    case LS_CONFIG_NAME:
        good = parse_name(key, text, slot);
        break;
    case LS_CONFIG_PAIR:
        good = parse_pair(key, text, slot);
        break;
    default:
        good = parse_figure(key, text, slot);
    }
    if (!good)
        explain(key, text, quoted, why, bytes);
    return good;
}

bool config_parse(struct ls_config *config, const struct ls_config_key *key, const char *text,
                  bool quoted, char *why, size_t bytes)
{
    return ls_config_parse(key, config_slot(config, key), text, quoted, why, bytes);
}

void config_quote(const char *value, char *text, size_t bytes)
{
    size_t used = 0;
    text[used++] = '"';
    for (; *value && used + 8 < bytes; value++) {
        unsigned char c = (unsigned char)*value;
        if (c == '"' || c == '\\')
            text[used++] = '\\';
        if (c < 0x20 || c == 0x7f)
            used += (size_t)snprintf(text + used, bytes - used, "\\u%04x", c);
        else
            text[used++] = (char)c;
    }
    text[used++] = '"';
    text[used] = '\0';
}

void ls_config_format(const struct ls_config_key *key, const void *slot, char *text, size_t bytes)
{
    char figure[LS_FIGURE_BYTES_MAX];
    switch (key->type) {
    case LS_CONFIG_INT: {
        int64_t value = *(const int64_t *)slot;
        if (key->words && (double)value < key->min)
            snprintf(text, bytes, "%s", ls_word_of(key->words, (int)value));
        else
            snprintf(text, bytes, "%lld", (long long)value);
        break;
    }
    case LS_CONFIG_BYTES:
        bytes_text(*(const int64_t *)slot, text, bytes);
        break;
    case LS_CONFIG_REAL:
        real_text(*(const double *)slot, text, bytes);
        break;
    case LS_CONFIG_BOOL:
        snprintf(text, bytes, "%s", *(const bool *)slot ? "true" : "false");
        break;
    case LS_CONFIG_WORD:
        snprintf(text, bytes, "%s", ls_word_of(key->words, *(const int *)slot));
        break;
    case LS_CONFIG_STRING:
    case LS_CONFIG_PATH:
    case LS_CONFIG_PATHS:
    case LS_CONFIG_NAME:
        config_quote(slot, text, bytes);
        break;
    case LS_CONFIG_BLEND:
        snprintf(text, bytes, "%s", *(const char *)slot ? (const char *)slot : "[]");
        break;
    case LS_CONFIG_PAIR:
        snprintf(text, bytes, "[%lld, %lld]", (long long)((const int64_t *)slot)[0],
                 (long long)((const int64_t *)slot)[1]);
        break;
    default:
        ls_figure_text(figures[key->type].figure, *(const double *)slot, figure);
        snprintf(text, bytes, "%s", figure);
    }
}

void ls_config_value(const struct ls_config *config, const struct ls_config_key *key, char *text,
                     size_t bytes)
{
    ls_config_format(key, config_slot(config, key), text, bytes);
}

bool config_is_text(const struct ls_config_key *key)
{
    return key->type == LS_CONFIG_STRING || config_is_path(key);
}

bool config_is_path(const struct ls_config_key *key)
{
    return key->type == LS_CONFIG_PATH || key->type == LS_CONFIG_PATHS;
}

bool config_path_word(const char *value)
{
    return !strcmp(value, "auto") || !strcmp(value, "never") || !strcmp(value, "byte");
}

bool config_is_initial(const struct ls_config *config, const struct ls_config_key *key)
{
    struct ls_config initial;
    char why[256], a[64], b[64];
    if (config_is_text(key) || key->type == LS_CONFIG_BLEND)
        return strcmp(config_slot(config, key), key->initial) == 0;
    LS_ASSERT(config_parse(&initial, key, key->initial, false, why, sizeof why));
    ls_config_value(config, key, a, sizeof a);
    ls_config_value(&initial, key, b, sizeof b);
    return strcmp(a, b) == 0;
}
