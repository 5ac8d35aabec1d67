/* Regular expressions of the reference tokenizers, by PCRE2. The text of a pattern is translated,
 * so that every class holds the characters that it holds there; what has another meaning in PCRE2,
 * or none, is refused by name. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "data/tokenizer_private.h"

#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* PCRE2's \s takes U+180E, which the reference tokenizers do not. */
#define SPACE                                                                                      \
    "\\x09-\\x0d\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}"                 \
    "\\x{202f}\\x{205f}\\x{3000}"

struct data_pattern {
    pcre2_code *code;
    bool compiled; /* to machine code; else the pattern is interpreted */
};

/* ---- translation ----------------------------------------------------------------------------- */

enum { GROUPS_MAX = 100 }; /* within each other */
struct translation {
    const char *pattern, *at; /* what follows */
    enum data_pattern_syntax syntax;
    struct ls_text out;
    bool in_class;
    size_t item;               /* of out: where what a repetition repeats begins */
    bool repeated, once;       /* the item is a repetition; that of {1} */
    size_t groups[GROUPS_MAX]; /* where those begin that are open */
    int groups_count;
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
    int rc = data_text_reserve(&t->out, count + 1, t->error);
    if (rc)
        return rc;
    memcpy(t->out.bytes + t->out.count, text, count);
    t->out.count += count;
    t->out.bytes[t->out.count] = '\0';
    return LS_OK;
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
    int rc = put_text(t, range);
    for (int i = 0; i < count && !rc; i++) {
        if (!data_category_within(added[i].category, class))
            continue;
        snprintf(range, sizeof range, "\\x{%x}-\\x{%x}", added[i].first, added[i].last);
        rc = put_text(t, range);
    }
    return rc;
}

/* Those of \w: letters, marks, digits, numerals, connectors, letters in circles and squares. Of
 * other numbers Oniguruma has those of Latin-1, of other characters fancy-regex has the two
 * joiners. */
static int put_word(struct translation *t)
{
    static const char *const classes[] = {"L", "M", "Nd", "Nl", "Pc"};
    int rc = put_text(t, "\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}"
                         "\\x{1f170}-\\x{1f189}");
    if (!rc)
        rc = put_text(t, t->syntax == DATA_ONIGURUMA ? "\\xb2\\xb3\\xb9\\xbc-\\xbe"
                                                     : "\\x{200c}\\x{200d}");
    for (int i = 0; i < 5 && !rc; i++)
        rc = put_members(t, classes[i]);
    return rc;
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
    if (t->in_class && negated)
        return refuse(t, "a negated class in brackets");
    int rc = t->in_class ? LS_OK : put_text(t, negated ? "[^" : "[");
    if (!rc)
        rc = script                    ? put_script(t, script)
             : !strcmp(class, "space") ? put_text(t, SPACE)
             : !strcmp(class, "word")  ? put_word(t)
                                       : put_members(t, class);
    return rc || t->in_class ? rc : put_text(t, "]");
}

/* at stands behind "\p" or "\P". */
static int put_property(struct translation *t, bool negated)
{
    char class[16];
    size_t length = t->at[0] == '{' ? strcspn(t->at + 1, "}") : 0;
    if (length == 0 || length >= sizeof class)
        return refuse(t, "this property");
    snprintf(class, sizeof class, "%.*s", (int)length, t->at + 1);
    if (!data_category_known(class) && !script_find(class))
        return refuse(t, "this property");
    t->at += length + 2;
    return put_class(t, class, negated);
}

/* at stands behind a backslash. */
static int put_escape(struct translation *t)
{
    char c = *t->at++, escaped[24] = {'\\', c};
    unsigned code;
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
        return (unsigned char)c < 0x80 ? put(t, escaped, 2) : put(t, &c, 1);
    }
}

/* at stands behind "(". */
static int put_group(struct translation *t)
{
    static const char *const kinds[] = {"?:", "?i:", "?=", "?!", "?<=", "?<!", "?>", "?i)"};
    const char *kind = t->at[0] == '?' ? NULL : "";
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && !kind; i++)
        if (strncmp(t->at, kinds[i], strlen(kinds[i])) == 0)
            kind = kinds[i];
    if (!kind)
        return refuse(t, "this kind of group");
    if (t->groups_count == GROUPS_MAX)
        return refuse(t, "a group in so many groups");
    t->groups[t->groups_count] = t->out.count;
    t->groups_count += strcmp(kind, "?i)") != 0;
    t->at += strlen(kind);
    int rc = put_text(t, "(");
    return rc ? rc : put_text(t, *kind ? kind : "?:");
}

static int put_in_class(struct translation *t)
{
    char c = *t->at;
    if (c == '[')
        return refuse(t, "brackets in brackets");
    if (c == '&' && t->at[1] == '&')
        return refuse(t, "the && of brackets");
    t->in_class = c != ']';
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

/* A repetition of the item. That of a repetition repeats it, where PCRE2 takes none. */
static int put_repeated(struct translation *t, const char *repetition)
{
    static const char open[] = "(?:";
    const size_t bytes = sizeof open - 1;
    if (t->once) /* what Oniguruma makes of it depends on the item */
        return refuse(t, "a repetition of {1}");
    if (t->repeated) {
        int rc = put_text(t, "(?:)");
        if (rc)
            return rc;
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
        t->item = t->out.count;
        t->repeated = t->once = false;
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
    snprintf(text, sizeof text, "{%ld%s%s}%.*s", ls_max(least, 0), comma ? "," : "", more, changed,
             at);
    int rc = put_repeated(t, text);
    t->at = at + changed;
    t->once = t->syntax == DATA_ONIGURUMA && least == 1 && (!comma || most == 1);
    return rc;
}

/* at stands at "?", "*" or "+"; a ? or + behind it changes it. */
static int put_sign(struct translation *t)
{
    char text[3] = {t->at[0]};
    if (t->at[1] == '?' || t->at[1] == '+')
        text[1] = t->at[1];
    int rc = put_repeated(t, text);
    t->at += strlen(text);
    return rc;
}

/* at stands at what may be repeated. */
static int put_item(struct translation *t)
{
    char c = *t->at++;
    if (((unsigned char)c & 0xc0) != 0x80) /* a character is one item */
        t->item = t->out.count;
    t->repeated = t->once = false;
    switch (c) {
    case '\\':
        return put_escape(t);
    case '(':
        return put_group(t);
    case ')':
        t->groups_count -= t->groups_count > 0;
        t->item = t->groups[t->groups_count];
        return put_text(t, ")");
    case '$':
        return put_text(t, t->syntax == DATA_ONIGURUMA ? "(?=\\n|\\z)" : "\\z");
    case '[':
        t->in_class = true;
        t->at += *t->at == '^';
        return put_text(t, t->at[-1] == '^' ? "[^" : "[");
    default:
        return put(t, &c, 1);
    }
}

static int put_next(struct translation *t)
{
    char c = *t->at;
    if (t->in_class && c != '\\')
        return put_in_class(t);
    if (t->in_class) {
        t->at++;
        return put_escape(t);
    }
    if (c == '{')
        return put_braces(t);
    if (c == '^')
        return refuse(t, "\"^\"");
    return c == '?' || c == '*' || c == '+' ? put_sign(t) : put_item(t);
}

/* ---- patterns -------------------------------------------------------------------------------- */

static int compile(struct data_pattern *pattern, const char *source, const struct ls_text *text,
                   struct ls_error *error)
{
    int code;
    PCRE2_SIZE offset;
    uint32_t empty = 0;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (!context)
        return ls_error_set(error, LS_ENOMEM, "no memory for a pattern");
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pattern->code = pcre2_compile((PCRE2_SPTR)text->bytes, text->count, PCRE2_UTF | PCRE2_UCP,
                                  &code, &offset, context);
    pcre2_compile_context_free(context);
    if (!pattern->code) {
        PCRE2_UCHAR message[160] = "";
        pcre2_get_error_message(code, message, sizeof message);
        return ls_error_set(error, LS_EDATA, "pattern \"%.200s\": %s", source,
                            (const char *)message);
    }
    pcre2_pattern_info(pattern->code, PCRE2_INFO_MATCHEMPTY, &empty);
    if (empty)
        return ls_error_set(error, LS_ENOTSUP,
                            "pattern \"%.200s\": it may match an empty text, which is not "
                            "supported",
                            source);
    pattern->compiled = pcre2_jit_compile(pattern->code, PCRE2_JIT_COMPLETE) == 0;
    return LS_OK;
}

int data_pattern_new(const char *source, enum data_pattern_syntax syntax, struct data_pattern **out,
                     struct ls_error *error)
{
    *out = NULL;
    struct translation t = {.pattern = source, .at = source, .syntax = syntax, .error = error};
    struct data_pattern *pattern = calloc(1, sizeof *pattern);
    int rc = pattern ? put_text(&t, "") : ls_error_set(error, LS_ENOMEM, "no memory for a pattern");
    while (!rc && *t.at)
        rc = put_next(&t);
    if (!rc)
        rc = compile(pattern, source, &t.out, error);
    ls_text_release(&t.out);
    if (rc) {
        data_pattern_free(pattern);
        return rc;
    }
    *out = pattern;
    return LS_OK;
}

void data_pattern_free(struct data_pattern *pattern)
{
    if (!pattern)
        return;
    pcre2_code_free(pattern->code);
    free(pattern);
}

int data_matcher_new(const struct data_pattern *pattern, void **out, struct ls_error *error)
{
    *out = pcre2_match_data_create_from_pattern(pattern->code, NULL);
    return *out ? LS_OK : ls_error_set(error, LS_ENOMEM, "no memory for a pattern");
}

void data_matcher_free(void *matcher)
{
    pcre2_match_data_free(matcher);
}

int data_pattern_find(const struct data_pattern *pattern, void *matcher, const unsigned char *text,
                      size_t bytes, size_t start, struct data_range *found, struct ls_error *error)
{
    int rc = PCRE2_ERROR_JIT_STACKLIMIT;
    if (pattern->compiled)
        rc = pcre2_jit_match(pattern->code, text, bytes, start, 0, matcher, NULL);
    if (rc < 0 && rc != PCRE2_ERROR_NOMATCH)
        rc = pcre2_match(pattern->code, text, bytes, start, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                         matcher, NULL);
    if (rc < 0 && rc != PCRE2_ERROR_NOMATCH) {
        PCRE2_UCHAR message[160] = "";
        pcre2_get_error_message(rc, message, sizeof message);
        return ls_error_set(error, rc == PCRE2_ERROR_NOMEMORY ? LS_ENOMEM : LS_EDATA,
                            "the tokenizer's pattern cannot be matched in a text of %zu bytes: %s",
                            bytes, (const char *)message);
    }
    const size_t *place = pcre2_get_ovector_pointer(matcher);
    *found = rc < 0 ? (struct data_range){bytes, bytes} : (struct data_range){place[0], place[1]};
    return LS_OK;
}
