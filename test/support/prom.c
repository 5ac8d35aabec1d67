/* Checks OpenMetrics text. */
#include "prom.h"
#include "testing.h"

#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FAMILIES_MAX = 64, NAME = 128 };

struct reader {
    char family[FAMILIES_MAX][NAME];
    int families, samples; /* of the last family */
    bool counter;
};

static size_t name_length(const char *at, bool colon)
{
    size_t length = 0;
    while (isalnum((unsigned char)at[length]) || at[length] == '_' || (colon && at[length] == ':'))
        length++;
    return isdigit((unsigned char)at[0]) ? 0 : length;
}

static const char *family(const struct reader *r)
{
    return r->families ? r->family[r->families - 1] : "";
}

static bool ends(const char *name, const char *tail)
{
    size_t length = strlen(name);
    return length > strlen(tail) && strcmp(name + length - strlen(tail), tail) == 0;
}

/* "# TYPE name counter" and so on. */
static const char *check_comment(struct reader *r, const char *line)
{
    char word[8], name[NAME], rest[512] = "", unit[64];
    if (sscanf(line, "# %7s %127s %511[^\n]", word, name, rest) < 2)
        return "a comment that is no metadata";
    if (name_length(name, true) != strlen(name))
        return "a malformed name";
    if (strcmp(word, "TYPE") == 0) {
        for (int i = 0; i < r->families; i++)
            if (strcmp(r->family[i], name) == 0)
                return "a family that comes twice";
        if (r->families && r->samples == 0)
            return "the family before has no sample";
        if (r->families == FAMILIES_MAX || ends(name, "_total"))
            return "a family named _total";
        r->counter = strcmp(rest, "counter") == 0;
        r->samples = 0;
        memcpy(r->family[r->families++], name, NAME);
        return r->counter || strcmp(rest, "gauge") == 0 ? NULL : "an unknown type";
    }
    if (strcmp(name, family(r)) != 0 || r->samples)
        return "metadata apart from its TYPE";
    snprintf(unit, sizeof unit, "_%.60s", rest);
    if (strcmp(word, "UNIT") == 0)
        return ends(name, unit) ? NULL : "a name that does not end with its unit";
    return strcmp(word, "HELP") == 0 ? NULL : "an unknown comment";
}

/* {a="b",c="d"}; the place behind it, NULL where it is malformed. */
static const char *skip_labels(const char *at)
{
    if (*at != '{')
        return at;
    do {
        at++;
        size_t length = name_length(at, false);
        if (!length || at[length] != '=' || at[length + 1] != '"')
            return NULL;
        for (at += length + 2; *at && *at != '"' && *at != '\n'; at++)
            if (*at == '\\' && !strchr("\\\"n", *++at))
                return NULL;
        if (*at++ != '"')
            return NULL;
    } while (*at == ',');
    return *at == '}' ? at + 1 : NULL;
}

static const char *check_sample(struct reader *r, const char *line)
{
    char name[NAME + 8];
    snprintf(name, sizeof name, "%s%s", family(r), r->counter ? "_total" : "");
    size_t length = name_length(line, true);
    if (!length || length != strlen(name) || strncmp(line, name, length) != 0)
        return "a sample of another name than its family's";
    const char *at = skip_labels(line + length);
    if (!at || *at != ' ')
        return "malformed labels";
    char *end;
    double value = strtod(at + 1, &end);
    if (end == at + 1 || *end != '\n')
        return "a malformed value, or more than it";
    if (r->counter && !(isfinite(value) && value >= 0))
        return "a counter that is no number from 0";
    r->samples++;
    return NULL;
}

void assert_prom(const char *text)
{
    static struct reader r;
    memset(&r, 0, sizeof r);
    const char *line = text;
    while (strcmp(line, "# EOF\n") != 0) {
        const char *end = strchr(line, '\n');
        if (!end)
            fail_msg("no # EOF at the end");
        const char *why = *line == '#' ? check_comment(&r, line) : check_sample(&r, line);
        if (why)
            fail_msg("%s: %.*s", why, (int)(end - line), line);
        line = end + 1;
    }
    if (r.families && r.samples == 0)
        fail_msg("the last family has no sample");
}

double prom_value(const char *text, const char *begin)
{
    for (const char *line = text; line && *line; line = strchr(line, '\n'), line += line != NULL)
        if (strncmp(line, begin, strlen(begin)) == 0)
            return strtod(strrchr(line, '}') ? strstr(line, "} ") + 2 : strchr(line, ' '), NULL);
    fail_msg("no sample begins with %s in\n%s", begin, text);
    return 0;
}
