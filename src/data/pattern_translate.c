/* The text of a pattern of the reference tokenizers as PCRE2 reads it: every class holds the
 * characters that it holds there, and what has another meaning in PCRE2, or none, is refused by
 * name. */
#include "data/pattern_translate.h"

#include <stdio.h>
#include <string.h>

/* PCRE2's \s takes U+180E, which the reference tokenizers do not. */
#define SPACE                                                                                      \
    "\\x09-\\x0d\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}"                 \
    "\\x{202f}\\x{205f}\\x{3000}"

enum { GROUPS_MAX = 100 }; /* within each other */
/* Of a group, or of the whole pattern, what may match nothing. */
struct branches {
    bool earlier; /* a branch before this one */
    bool before;  /* what lies before the last item in this one */
};
struct group {
    size_t begin;             /* in out */
    bool looks;               /* ahead or behind */
    bool caseless;            /* around it */
    struct branches branches; /* around it */
};
struct translation {
    const char *pattern, *at; /* what follows */
    enum data_pattern_syntax syntax;
    struct ls_text out;
    const char *members;   /* of brackets: where they begin; NULL outside */
    const char *class_end; /* of the last class: what follows */
    bool caseless;         /* within (?i) */
    bool joins;            /* the last character is one that check_joined() asks for */
    bool begins;           /* no item went before in this branch */
    size_t item;           /* of out: where what a repetition repeats begins */
    bool item_empty;       /* it may match nothing */
    bool repeated, once;   /* it is a repetition; that of {1} */
    struct branches branches;
    struct group groups[GROUPS_MAX]; /* those that are open */
    int groups_count;
    bool unoptimized; /* there is what PCRE2's optimized search is wrong about */
    struct ls_error *error;
};

static int refuse(const struct translation *t, const char *what)
{
    return ls_error_set(t->error, LS_ENOTSUP,
                        "pattern \"%.200s\": %s (at character %d) is not supported", t->pattern,
                        what, (int)(t->at - t->pattern) + 1);
}

static int put(struct translation *t, const char *text, size_t count)
{
    return data_text_put(&t->out, text, count, t->error);
}

static int put_text(struct translation *t, const char *text)
{
    return put(t, text, strlen(text));
}

/* The members of \p{class}, to stand in brackets. */
static int put_members(struct translation *t, const char *class)
{
    int count;
    const struct data_unicode_range *added = data_unicode_added(&count);
    char range[64];
    snprintf(range, sizeof range, "\\p{%s}", class);
    int status = put_text(t, range);
    for (int i = 0; i < count && !status; i++) {
        if (!data_category_within(added[i].category, class))
            continue;
        snprintf(range, sizeof range, "\\x{%x}-\\x{%x}", added[i].first, added[i].last);
        status = put_text(t, range);
    }
    return status;
}

/* Those of \w: letters, marks, digits, numerals, connectors, letters in circles and squares. Of
 * other numbers Oniguruma has those of Latin-1, but not in brackets; of other characters
 * fancy-regex has the two joiners. */
static int put_word(struct translation *t)
{
    static const char *const classes[] = {"L", "M", "Nd", "Nl", "Pc"};
    int status = put_text(t, "\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}"
                             "\\x{1f170}-\\x{1f189}");
    if (!status)
        status = put_text(t, t->syntax != DATA_ONIGURUMA ? "\\x{200c}\\x{200d}"
                             : t->members                ? ""
                                                         : "\\xb2\\xb3\\xb9\\xbc-\\xbe");
    for (int i = 0; i < 5 && !status; i++)
        status = put_members(t, classes[i]);
    return status;
}

/* Scripts, and what Unicode 15 to 16 added to them, which PCRE2 may not know yet. */
static const struct script {
    const char *name, *added;
} scripts[] = {
    {"Han", "\\x{2b739}\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}"},
    {"Hiragana", "\\x{1b132}"},
    {"Katakana", "\\x{1b155}"},
    {"Hangul", ""},
    {"Thai", ""},
    {"Hebrew", ""},
    {"Greek", ""},
    {"Latin", "\\x{a7cb}-\\x{a7cd}\\x{a7da}-\\x{a7dc}\\x{1df25}-\\x{1df2a}"},
    {"Cyrillic", "\\x{1c89}-\\x{1c8a}\\x{1e030}-\\x{1e06d}\\x{1e08f}"},
    {"Arabic", "\\x{897}\\x{10ec2}-\\x{10ec4}\\x{10efc}-\\x{10eff}"},
    {"Devanagari", "\\x{11b00}-\\x{11b09}"},
};

static const struct script *script_find(const char *name)
{
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++)
        if (!strcmp(scripts[i].name, name))
            return &scripts[i];
    return NULL;
}

/* A script by itself, and not what others share with it, which PCRE2's \p{Han} means. */
static int put_script(struct translation *t, const struct script *script)
{
    char text[160];
    snprintf(text, sizeof text, "\\p{sc:%s}%s", script->name, script->added);
    return put_text(t, text);
}

/* A class by its members: "space", "word", a category or a script. */
static int put_class(struct translation *t, const char *class, bool negated)
{
    const struct script *script = script_find(class);
    if (t->members && negated)
        return refuse(t, "a negated class in brackets");
    int status = t->members ? LS_OK : put_text(t, negated ? "[^" : "[");
    if (!status)
        status = script                    ? put_script(t, script)
                 : !strcmp(class, "space") ? put_text(t, SPACE)
                 : !strcmp(class, "word")  ? put_word(t)
                                           : put_members(t, class);
    t->class_end = t->at;
    return status || t->members ? status : put_text(t, "]");
}

/* Of marks, U+1171E has got another category after Unicode 14. */
static bool property_known(const char *class)
{
    bool changed = !strcmp(class, "Mn") || !strcmp(class, "Mc");
    return (data_category_known(class) && !changed) || script_find(class);
}

/* at stands behind "\p" or "\P". */
static int put_property(struct translation *t, bool negated)
{
    char class[16];
    size_t length = t->at[0] == '{' ? strcspn(t->at + 1, "}") : 0;
    if (length == 0 || length >= sizeof class)
        return refuse(t, "this property");
    snprintf(class, sizeof class, "%.*s", (int)length, t->at + 1);
    if (!property_known(class))
        return refuse(t, "this property");
    t->at += length + 2;
    return put_class(t, class, negated);
}

/* at stands at a backslash. */
static int put_escape(struct translation *t)
{
    char c = *++t->at, escaped[24] = {'\\', c};
    unsigned code;
    if ((unsigned char)c >= 0x80) /* the character that follows means itself */
        return LS_OK;
    t->at++;
    if (t->caseless && c && strchr("pPuwW", c))
        return refuse(t, "this escape within (?i)");
    switch (c) {
    case 'p':
    case 'P':
        return put_property(t, c == 'P');
    case 's':
    case 'S':
        return put_class(t, "space", c == 'S');
    case 'd':
    case 'D':
        return put_class(t, "Nd", c == 'D');
    case 'w':
    case 'W':
        return put_class(t, "word", c == 'W');
    case 'r':
    case 'n':
    case 't':
    case 'f':
        return put(t, escaped, 2);
    case 'u':
        if (strspn(t->at, "0123456789abcdefABCDEF") < 4 || sscanf(t->at, "%4x", &code) != 1)
            return refuse(t, "\\u without four digits");
        t->at += 4;
        snprintf(escaped, sizeof escaped, "\\x{%x}", code);
        return put_text(t, escaped);
    default:
        if (c == '\0' || strchr("0123456789", c) || (c >= 'a' && c <= 'z') ||
            (c >= 'A' && c <= 'Z'))
            return refuse(t, c ? "this escape" : "a backslash at the end");
        return put(t, escaped, 2);
    }
}

static void begin_item(struct translation *t)
{
    t->item = t->out.count;
    t->branches.before = t->branches.before && t->item_empty;
    t->item_empty = t->repeated = t->once = t->begins = false;
}

static void begin_branch(struct translation *t)
{
    t->branches.before = t->item_empty = t->begins = true;
    t->repeated = t->once = false;
}

/* The branch that ends here, or one before it, may match nothing. */
static bool branches_empty(const struct translation *t)
{
    return t->branches.earlier || (t->branches.before && t->item_empty);
}

/* at stands at "(". (?i) is no item. */
static int put_group(struct translation *t)
{
    static const char *const kinds[] = {"?:", "?i:", "?=", "?!", "?<=", "?<!", "?>", "?i)"};
    const char *kind = *++t->at == '?' ? NULL : "";
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && !kind; i++)
        if (strncmp(t->at, kinds[i], strlen(kinds[i])) == 0)
            kind = kinds[i];
    if (!kind)
        return refuse(t, "this kind of group");
    if (!strcmp(kind, "?i)") && !t->begins) /* to Oniguruma the branches that follow are within */
        return refuse(t, "(?i) behind the beginning of a branch");
    if (t->groups_count == GROUPS_MAX)
        return refuse(t, "a group in so many groups");
    if (strcmp(kind, "?i)") != 0) {
        begin_item(t);
        t->groups[t->groups_count++] =
            (struct group){t->item, strpbrk(kind, "=!") != NULL, t->caseless, t->branches};
        t->branches.earlier = false;
        begin_branch(t);
    }
    t->caseless = t->caseless || (kind[0] && kind[1] == 'i');
    t->unoptimized = t->unoptimized || !strcmp(kind, "?>") || !strcmp(kind, "?=");
    t->at += strlen(kind);
    int status = put_text(t, "(");
    return status ? status : put_text(t, *kind ? kind : "?:");
}

/* at stands at ")". */
static int put_group_end(struct translation *t)
{
    bool empty = branches_empty(t);
    t->at++;
    t->groups_count -= t->groups_count > 0;
    const struct group *group = &t->groups[t->groups_count];
    t->item = group->begin;
    t->item_empty = empty || group->looks;
    t->unoptimized = t->unoptimized || (empty && !group->looks);
    t->caseless = group->caseless;
    t->branches = group->branches;
    t->repeated = t->once = t->begins = false;
    return put_text(t, ")");
}

/* A "-" between what is a class and something else, which may mean a range to one of the two. */
static bool ranges_class(const struct translation *t)
{
    bool class_before = t->at == t->class_end, first = t->at == t->members;
    bool class_behind = t->at[1] == '\\' && t->at[2] && strchr("sSdDwWpP", t->at[2]);
    return (class_before && t->at[1] != ']') || (class_behind && !first);
}

static int put_in_class(struct translation *t)
{
    char c = *t->at;
    if (c == '[')
        return refuse(t, "brackets in brackets");
    if (c == '&' && t->at[1] == '&')
        return refuse(t, "the && of brackets");
    if (c == ']' && t->at == t->members)
        return refuse(t, "\"]\" at the beginning of brackets");
    if (c == '-' && ranges_class(t))
        return refuse(t, "a range of a class");
    if (c == ']')
        t->members = NULL;
    t->at++;
    return put(t, &c, 1);
}

/* What stands behind the digits at at, whose number is *bound; without any it stays. */
static const char *bound_read(const char *at, long *bound)
{
    enum { BOUND_MAX = 65535 }; /* PCRE2's */
    if (*at < '0' || *at > '9')
        return at;
    for (*bound = 0; *at >= '0' && *at <= '9'; at++)
        *bound = *bound > BOUND_MAX ? *bound : 10 * *bound + (*at - '0');
    return at;
}

/* A repetition of the item. That of a repetition repeats it, where PCRE2 takes none. Of an item
 * that may match nothing Oniguruma and PCRE2 end the repetition in other ways. */
static int put_repeated(struct translation *t, const char *repetition, long least, bool many)
{
    static const char open[] = "(?:";
    const size_t bytes = sizeof open - 1;
    if (t->once) /* what Oniguruma makes of it depends on the item */
        return refuse(t, "a repetition of {1}");
    if (t->item_empty && many)
        return refuse(t, "a repetition of what may match an empty text");
    t->item_empty = t->item_empty || least == 0;
    t->unoptimized = t->unoptimized || (t->out.bytes[t->item] == '(' && repetition[1] == '+');
    if (t->repeated) {
        int status = put_text(t, "(?:)");
        if (status)
            return status;
        memmove(t->out.bytes + t->item + bytes, t->out.bytes + t->item,
                t->out.count - t->item - bytes - 1);
        memcpy(t->out.bytes + t->item, open, bytes);
    }
    t->repeated = true;
    return put_text(t, repetition);
}

/* at stands at "{". Of Oniguruma, {,m} is {0,m}, which PCRE2 of some versions takes for a text, and
 * the ? of {n}? and the + of {n,m}+ are repetitions by themselves, where those of PCRE2 change the
 * one before. What is no repetition is a text in both. */
static int put_braces(struct translation *t)
{
    long least = -1, most = -1;
    char text[40], more[24] = "";
    const char *at = bound_read(t->at + 1, &least);
    bool comma = *at == ',';
    at = comma ? bound_read(at + 1, &most) : at;
    if (*at != '}' || (least < 0 && most < 0)) {
        begin_item(t);
        t->joins = false;
        t->at++;
        return put_text(t, "\\{");
    }
    if (t->syntax != DATA_ONIGURUMA && least < 0)
        return refuse(t, "a repetition without its least");
    if (most >= 0 && least > most)
        return refuse(t, "a repetition whose least is above its most");
    at++;
    bool changed = t->syntax == DATA_ONIGURUMA ? comma && *at == '?' : *at == '?' || *at == '+';
    if (most >= 0)
        snprintf(more, sizeof more, "%ld", most);
    long top = comma ? most : least;
    snprintf(text, sizeof text, "{%ld%s%s}%.*s", ls_max(least, 0), comma ? "," : "", more, changed,
             at);
    int status = put_repeated(t, text, ls_max(least, 0), top < 0 || top > 1);
    t->at = at + changed;
    t->once = t->syntax == DATA_ONIGURUMA && least == 1 && (!comma || most == 1);
    return status;
}

/* at stands at "?", "*" or "+"; a ? or + behind it changes it. */
static int put_sign(struct translation *t)
{
    char text[3] = {t->at[0]};
    if (t->at[1] == '?' || t->at[1] == '+')
        text[1] = t->at[1];
    int status = put_repeated(t, text, text[0] == '+', text[0] != '?');
    t->joins = false;
    t->at += strlen(text);
    return status;
}

/* Where case is ignored, Oniguruma takes some letters in a row for one character too, as ss for
 * U+00DF, also if groups lie between them. Of ASCII these are ss, st, ff, fi and fl. */
static int check_joined(struct translation *t, char c)
{
    if (t->caseless && t->joins && strchr("sStTfFiIlL", c))
        return refuse(t, "this letter behind s or f within (?i)");
    t->joins = t->caseless && strchr("sSfF", c);
    return LS_OK;
}

/* at stands at what may be repeated, and is no group. */
static int put_item(struct translation *t)
{
    char c = *t->at;
    begin_item(t);
    int status = check_joined(t, c);
    if (status || c == '\\')
        return status ? status : put_escape(t);
    t->at++;
    switch (c) {
    case '$':
        t->item_empty = true;
        return put_text(t, t->syntax == DATA_ONIGURUMA ? "(?=\\n|\\z)" : "\\z");
    case '[':
        t->at += *t->at == '^';
        t->members = t->at;
        return put_text(t, t->at[-1] == '^' ? "[^" : "[");
    default:
        return put(t, &c, 1);
    }
}

/* at stands at "|". */
static int put_bar(struct translation *t)
{
    t->branches.earlier = branches_empty(t);
    t->joins = false;
    begin_branch(t);
    t->at++;
    return put_text(t, "|");
}

static int put_next(struct translation *t)
{
    char c = *t->at;
    if (t->caseless && (unsigned char)c >= 0x80)
        return refuse(t, "a character beyond ASCII within (?i)");
    if (t->members)
        return c == '\\' ? put_escape(t) : put_in_class(t);
    switch (c) {
    case '{':
        return put_braces(t);
    case '^':
        return refuse(t, "\"^\"");
    case '?':
    case '*':
    case '+':
        return put_sign(t);
    case '(':
        return put_group(t);
    case ')':
        return put_group_end(t);
    case '|':
        return put_bar(t);
    default:
        return ((unsigned char)c & 0xc0) != 0x80 ? put_item(t) : put(t, t->at++, 1);
    }
}

int pattern_translate(const char *pattern, enum data_pattern_syntax syntax, struct ls_text *out,
                      bool *unoptimized, struct ls_error *error)
{
    struct translation t = {.pattern = pattern, .at = pattern, .syntax = syntax, .error = error};
    begin_branch(&t);
    int status = put_text(&t, "");
    while (!status && *t.at)
        status = put_next(&t);
    *out = t.out;
    *unoptimized = t.unoptimized;
    return status;
}
