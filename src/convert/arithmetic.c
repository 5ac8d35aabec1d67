/* What a shell's $((sum)) comes to: + - * / % over whole numbers, variables and parentheses.
 *
 *   sum     product { (+|-) product }
 *   product factor { (*|/|%) factor }
 *   factor  number | NAME | $NAME | ${NAME} | ${NAME:-number} | (sum) | $((sum)) | - factor | + ...
 */
#include "convert/convert_private.h"

#include <ctype.h>
#include <string.h>

enum { DEPTH_MAX = 32, NAME_BYTES = 128 };

struct sum {
    const char *at;
    convert_variable *variable;
    const void *user;
    int depth;
    bool unknown; /* what it comes to */
};

static int64_t sum_of(struct sum *s);

static char next(struct sum *s)
{
    while (isspace((unsigned char)*s->at))
        s->at++;
    return *s->at;
}

static bool take(struct sum *s, const char *text)
{
    bool is = next(s) && strncmp(s->at, text, strlen(text)) == 0;
    s->at += is ? strlen(text) : 0;
    return is;
}

/* The digits at text; *end is behind them. A number that begins with 0 is another to a shell. */
static int64_t number(struct sum *s, const char *text, const char **end)
{
    int64_t value = 0;
    bool zero = *text == '0';
    *end = text;
    for (; isdigit((unsigned char)**end) && !s->unknown; ++*end)
        s->unknown |= __builtin_mul_overflow(value, (int64_t)10, &value) ||
                      __builtin_add_overflow(value, (int64_t)(**end - '0'), &value);
    bool joined = isalnum((unsigned char)**end) || **end == '_' || **end == '#';
    s->unknown |= *end == text || (zero && *end - text > 1) || joined;
    return value;
}

/* Of a variable; fallback, up to '}', if it has none. */
static int64_t value_of(struct sum *s, const char *name, const char *fallback)
{
    const char *text = s->variable(s->user, name), *end;
    if (text && !*text)
        text = NULL;
    if (!text && !fallback)
        s->unknown = true;
    if (s->unknown)
        return 0;
    bool minus = text && *text == '-';
    int64_t value = number(s, text ? text + minus : fallback, &end);
    s->unknown |= *end != (text ? '\0' : '}');
    return minus ? -value : value;
}

static void name_take(struct sum *s, char name[NAME_BYTES])
{
    size_t used = 0;
    while ((isalnum((unsigned char)*s->at) || *s->at == '_') && used + 1 < NAME_BYTES)
        name[used++] = *s->at++;
    name[used] = '\0';
    s->unknown |= used == 0 || isdigit((unsigned char)name[0]);
}

static int64_t variable_of(struct sum *s)
{
    char name[NAME_BYTES];
    const char *fallback = NULL;
    if (!take(s, "${")) {
        take(s, "$");
        name_take(s, name);
        return value_of(s, name, NULL);
    }
    name_take(s, name);
    if (strncmp(s->at, ":-", 2) == 0)
        fallback = s->at + 2;
    const char *end = strchr(s->at, '}');
    s->unknown |= !end || (*s->at != '}' && !fallback);
    if (s->unknown)
        return 0;
    s->at = end + 1;
    return value_of(s, name, fallback);
}

static int64_t factor(struct sum *s)
{
    int64_t value = 0;
    if (s->unknown || ++s->depth > DEPTH_MAX) {
        s->unknown = true;
    } else if (take(s, "-")) {
        s->unknown |= *s->at == '-';
        s->unknown |= __builtin_sub_overflow((int64_t)0, factor(s), &value);
    } else if (take(s, "+")) {
        s->unknown |= *s->at == '+';
        value = factor(s);
    } else if (take(s, "$((")) {
        value = sum_of(s);
        s->unknown |= !take(s, "))");
    } else if (take(s, "(")) {
        value = sum_of(s);
        s->unknown |= !take(s, ")");
    } else if (isdigit((unsigned char)next(s))) {
        value = number(s, s->at, &s->at);
    } else {
        value = variable_of(s);
    }
    s->depth--;
    return value;
}

static int64_t product_of(struct sum *s)
{
    int64_t value = factor(s);
    while (!s->unknown && next(s) && strchr("*/%", *s->at)) {
        char op = *s->at++;
        int64_t by = factor(s);
        if (op == '*')
            s->unknown |= __builtin_mul_overflow(value, by, &value);
        else if (by == 0 || by == -1) /* -1: INT64_MIN has no counterpart */
            s->unknown = true;
        else
            value = op == '/' ? value / by : value % by;
    }
    return value;
}

static int64_t sum_of(struct sum *s)
{
    int64_t value = product_of(s);
    while (!s->unknown && next(s) && strchr("+-", *s->at)) {
        bool minus = *s->at++ == '-';
        int64_t by = product_of(s);
        s->unknown |= minus ? __builtin_sub_overflow(value, by, &value)
                            : __builtin_add_overflow(value, by, &value);
    }
    return value;
}

size_t convert_arithmetic(const char *text, convert_variable *variable, const void *user,
                          int64_t *out)
{
    struct sum s = {.at = text, .variable = variable, .user = user};
    s.unknown = !take(&s, "$((");
    *out = sum_of(&s);
    s.unknown |= !take(&s, "))");
    return s.unknown ? 0 : (size_t)(s.at - text);
}
