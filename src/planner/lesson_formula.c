/* Expressions in the pages of lessons. */
#include "planner/lesson_private.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static bool take(const char **at, char sign)
{
    *at += strspn(*at, " ");
    if (**at != sign)
        return false;
    ++*at;
    return true;
}

/* The newest meaning counts. */
const char *lesson_name(const struct lesson_page *page, const char *name, int length)
{
    for (int i = page->name_count - 1; i >= 0; i--)
        if (!strncmp(page->names[i], name, (size_t)length) && strchr(" (", page->names[i][length]))
            return page->names[i] + length;
    return NULL;
}

/* "(z) = P(z) + 1" or " = 7e9" */
static double let_value(struct lesson_page *page, const char *let, double argument)
{
    double *variable = *let == '(' ? &page->variables[let[1] - 'a'] : NULL;
    double before = variable ? *variable : 0;
    const char *body = strchr(let, '=') + 1;
    if (variable)
        *variable = argument;
    double value = lesson_expression(page, &body);
    if (variable)
        *variable = before;
    return value;
}

static double named(struct lesson_page *page, const char **at)
{
    double arguments[LESSON_ARGUMENTS_MAX] = {0};
    const char *name = *at;
    while (isalpha((unsigned char)**at) || **at == '_')
        ++*at;
    int length = (int)(*at - name), count = 0;
    LS_ASSERT(length > 0);
    if (length == 1 && islower((unsigned char)*name))
        return page->variables[*name - 'a'];
    if (take(at, '(')) {
        do {
            LS_ASSERT(count < LESSON_ARGUMENTS_MAX);
            arguments[count++] = lesson_expression(page, at);
        } while (take(at, ','));
        LS_ASSERT(**at == ')');
        ++*at;
    }
    char word[32];
    snprintf(word, sizeof word, "%.*s", length, name);
    const char *let = lesson_name(page, name, length);
    return let ? let_value(page, let, arguments[0]) : lesson_call(page, word, arguments);
}

static double atom(struct lesson_page *page, const char **at)
{
    if (take(at, '-'))
        return -atom(page, at);
    if (take(at, '(')) {
        double value = lesson_expression(page, at);
        LS_ASSERT(**at == ')');
        ++*at;
        return value;
    }
    if (!isdigit((unsigned char)**at))
        return named(page, at);
    char *end;
    double value = strtod(*at, &end);
    *at = end;
    return value;
}

static double product(struct lesson_page *page, const char **at)
{
    double value = atom(page, at);
    for (;;)
        if (take(at, '*'))
            value *= atom(page, at);
        else if (take(at, '/'))
            value /= atom(page, at);
        else
            return value;
}

static double sum(struct lesson_page *page, const char **at)
{
    double value = product(page, at);
    for (;;)
        if (take(at, '+'))
            value += product(page, at);
        else if (take(at, '-'))
            value -= product(page, at);
        else
            return value;
}

double lesson_expression(struct lesson_page *page, const char **at)
{
    double value = sum(page, at);
    if (take(at, '<'))
        value = value < sum(page, at);
    *at += strspn(*at, " ");
    return value;
}
