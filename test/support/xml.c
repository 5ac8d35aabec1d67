/* Checks that a text is well-formed XML. */
#include "xml.h"
#include "testing.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { DEPTH_MAX = 64, ATTRIBUTES_MAX = 64 };

static size_t name_length(const char *at)
{
    size_t length = 0;
    if (!isalpha((unsigned char)at[0]) && at[0] != '_')
        return 0;
    while (isalnum((unsigned char)at[length]) || strchr("_-.:", at[length] ? at[length] : ' '))
        length++;
    return length;
}

/* The end of text up to a character of `ends`, NULL where it holds a bare & or <. */
static const char *skip_text(const char *at, const char *ends)
{
    static const char *const entities[] = {"&lt;", "&gt;", "&amp;", "&quot;", "&#"};
    for (; *at && !strchr(ends, *at); at++) {
        bool known = *at != '&';
        for (size_t i = 0; i < sizeof entities / sizeof entities[0]; i++)
            known = known || strncmp(at, entities[i], strlen(entities[i])) == 0;
        if (!known || *at == '<' || ((unsigned char)*at < ' ' && !strchr("\t\n\r", *at)))
            return NULL;
    }
    return at;
}

/* Attributes of a tag up to > or />. */
static const char *skip_attributes(const char *at)
{
    struct {
        const char *name;
        size_t length;
    } seen[ATTRIBUTES_MAX];
    int count = 0;
    for (;;) {
        size_t space = strspn(at, " \t\n\r");
        at += space;
        if (*at == '>' || *at == '/')
            return at;
        size_t length = name_length(at);
        if (!length || !space || count == ATTRIBUTES_MAX)
            return NULL;
        for (int i = 0; i < count; i++)
            if (seen[i].length == length && strncmp(seen[i].name, at, length) == 0)
                return NULL;
        seen[count].name = at;
        seen[count++].length = length;
        at += length;
        if (at[0] != '=' || (at[1] != '"' && at[1] != '\''))
            return NULL;
        const char quote[2] = {at[1], '\0'};
        at = skip_text(at + 2, quote);
        if (!at || !*at)
            return NULL;
        at++;
    }
}

struct parser {
    const char *open[DEPTH_MAX];
    size_t length[DEPTH_MAX];
    int depth, elements;
};

static const char *skip_tag(struct parser *p, const char *at)
{
    bool closes = at[1] == '/';
    at += 1 + closes;
    size_t length = name_length(at);
    if (!length)
        return NULL;
    if (closes) {
        p->depth--;
        bool same = p->depth >= 0 && p->length[p->depth] == length &&
                    strncmp(p->open[p->depth], at, length) == 0;
        return same && at[length] == '>' ? at + length + 1 : NULL;
    }
    if (p->depth == DEPTH_MAX || (p->depth == 0 && p->elements++ > 0))
        return NULL;
    p->open[p->depth] = at;
    p->length[p->depth] = length;
    at = skip_attributes(at + length);
    if (!at)
        return NULL;
    if (*at == '/')
        return at[1] == '>' ? at + 2 : NULL;
    p->depth++;
    return at + 1;
}

bool xml_is_well_formed(const char *text, char *why, size_t size)
{
    struct parser p = {0};
    const char *at = text, *before = text;
    while (at && *at) {
        before = at;
        if (*at == '<')
            at = skip_tag(&p, at);
        else if (p.depth > 0 || isspace((unsigned char)*at))
            at = p.depth > 0 ? skip_text(at, "<") : at + 1;
        else
            at = NULL;
    }
    if (at && p.depth == 0 && p.elements == 1)
        return true;
    snprintf(why, size, "%s at byte %ld: %.80s", at ? "elements are left open" : "malformed",
             (long)(before - text), before);
    return false;
}

void assert_xml(const char *text)
{
    char why[200];
    if (!xml_is_well_formed(text, why, sizeof why))
        fail_msg("%s", why);
}
