/* The filters, tests and functions of a chat template: a table each. */
#include "chat/chat_private.h"

#include <lockstep/base/words.h>

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

typedef struct chat_value value; /* short, for the tables below */

const struct chat_value *chat_argument(const struct chat_arguments *arguments, int place,
                                       const char *name)
{
    if (place < arguments->positional)
        return &arguments->value[place];
    for (int i = arguments->positional; i < arguments->count; i++)
        if (chat_string_is(arguments->keyword[i], name))
            return &arguments->value[i];
    return NULL;
}

bool chat_needs_string(struct chat_run *run, const struct chat_value *given, const char *what)
{
    bool is = given && given->kind == CHAT_STRING;
    if (!is && given && given->kind == CHAT_UNDEFINED)
        chat_fail(run, "%s: %.*s is undefined", what, CHAT_SHOWN(given->string));
    else if (!is)
        chat_fail(run, "%s: expected a string%s%s", what, given ? ", not " : "",
                  given ? chat_kind_name(*given) : "");
    return is;
}

static bool needs_int(struct chat_run *run, const value *given, const char *what, int64_t *to)
{
    bool is = given && (given->kind == CHAT_INT || given->kind == CHAT_BOOL);
    if (is)
        *to = given->integer;
    else
        chat_fail(run, "%s: expected an integer", what);
    return is;
}

/* Behaves as a method of strings does, of what str makes of it. */
static value as_method(struct chat_run *run, value self, const char *name,
                       const struct chat_arguments *arguments)
{
    return chat_call_method(run, chat_text_value(chat_text_of(run, self)), chat_string_of(name),
                            arguments);
}

/* ---- filters -------------------------------------------------------------------------------- */

CHAT_VALUE(filter_trim, as_method(run, self, "strip", arguments))
CHAT_VALUE(filter_upper, as_method(run, self, "upper", arguments))
CHAT_VALUE(filter_lower, as_method(run, self, "lower", arguments))

/* Bytes of what stands between words for the filter title, at the text's beginning; 0: a word does.
 */
static size_t between_words(struct chat_string text)
{
    return text.bytes[0] && strchr("-({[<", text.bytes[0]) ? 1 : chat_space(text);
}

/* Unlike Python's method it begins words behind white space and the above alone: It's. */
CHAT_FUNCTION(filter_title)
{
    struct chat_string left = chat_text_of(run, self);
    struct chat_output out = {0};
    while (left.count > 0 && !run->status) {
        size_t begin = 0, end, bytes;
        while (begin < left.count && (bytes = between_words((struct chat_string){
                                          left.bytes + begin, left.count - begin})))
            begin += bytes;
        end = begin;
        while (end < left.count &&
               !between_words((struct chat_string){left.bytes + end, left.count - end}))
            end++;
        value word = chat_text_value((struct chat_string){left.bytes + begin, end - begin});
        chat_put(run, &out, (struct chat_string){left.bytes, begin});
        chat_put(run, &out, as_method(run, word, "capitalize", arguments).string);
        left = (struct chat_string){left.bytes + end, left.count - end};
    }
    return chat_text_value(chat_written(&out));
}

CHAT_VALUE(filter_capitalize, as_method(run, self, "capitalize", arguments))
CHAT_VALUE(filter_replace, as_method(run, self, "replace", arguments))
CHAT_VALUE(filter_string, chat_text_value(chat_text_of(run, self)))
CHAT_VALUE(filter_length, chat_int_value(chat_length(run, self)))

/* The two of `separators`, which are a list or a tuple. */
static void separators_take(struct chat_run *run, const value *given, struct chat_json *how)
{
    const struct chat_list *list = given->kind == CHAT_LIST ? given->list : NULL;
    if (!list || list->count != 2)
        chat_fail(run, "tojson: separators: expected two strings");
    else if (chat_needs_string(run, &list->items[0], "tojson: separators") &&
             chat_needs_string(run, &list->items[1], "tojson: separators")) {
        how->between = list->items[0].string;
        how->colon = list->items[1].string;
    }
}

/* As transformers has it: tojson(ensure_ascii=false, indent=none, separators=none,
 * sort_keys=false). */
CHAT_FUNCTION(filter_tojson)
{
    int64_t indent = -1;
    const value *ascii = chat_argument(arguments, 0, "ensure_ascii");
    const value *wide = chat_argument(arguments, 1, "indent");
    const value *separators = chat_argument(arguments, 2, "separators");
    const value *sorted = chat_argument(arguments, 3, "sort_keys");
    if (self.kind == CHAT_UNDEFINED)
        chat_needs_string(run, &self, "tojson");
    if (wide && wide->kind != CHAT_NONE && needs_int(run, wide, "tojson", &indent))
        indent = ls_max(0, ls_min(indent, 16));
    struct chat_json how = {.indent = (int)indent,
                            .ascii = ascii && chat_true(*ascii),
                            .sorted = sorted && chat_true(*sorted),
                            .between = chat_string_of(indent < 0 ? ", " : ","),
                            .colon = chat_string_of(": ")};
    if (separators && separators->kind != CHAT_NONE)
        separators_take(run, separators, &how);
    return chat_text_value(chat_json_of(run, self, &how));
}

CHAT_FUNCTION(filter_default)
{
    const value *other = chat_argument(arguments, 0, "default_value");
    const value *also = chat_argument(arguments, 1, "boolean");
    (void)run;
    bool missing = self.kind == CHAT_UNDEFINED || (also && chat_true(*also) && !chat_true(self));
    return !missing ? self : other ? *other : chat_text_value((struct chat_string){"", 0});
}

/* A part of the name of an attribute; digits are the number of an element. */
static value part_of_name(struct chat_string part)
{
    int64_t number = 0;
    bool digits = part.count > 0 && part.count < 19;
    for (size_t i = 0; i < part.count && digits; i++) {
        digits = part.bytes[i] >= '0' && part.bytes[i] <= '9';
        number = digits ? number * 10 + (part.bytes[i] - '0') : 0;
    }
    return digits ? chat_int_value(number) : chat_text_value(part);
}

/* The element's attribute of that name, such as "function.name"; `other`, unless NULL, if it has
 * none; the element itself without a name. */
static value attribute(struct chat_run *run, value item, const value *name, const value *other)
{
    if (!name || name->kind != CHAT_STRING)
        return name ? chat_item(run, item, *name) : item;
    struct chat_string left = name->string;
    chat_spend_operands(run, name, 1);
    for (bool more = true; more && !run->status;) {
        size_t point = chat_find(left, chat_string_of("."), 0);
        more = point != SIZE_MAX;
        size_t end = more ? point : left.count;
        item = chat_item(run, item, part_of_name((struct chat_string){left.bytes, end}));
        if (item.kind == CHAT_UNDEFINED && other)
            item = *other;
        left = (struct chat_string){left.bytes + end + more, left.count - end - more};
    }
    return item;
}

CHAT_FUNCTION(filter_join)
{
    const value *between = chat_argument(arguments, 0, "d");
    const value *name = chat_argument(arguments, 1, "attribute");
    const struct chat_list *list = chat_items(run, self);
    struct chat_output out = {0};
    for (int64_t i = 0; list && i < list->count && !run->status; i++) {
        if (i > 0 && between)
            chat_put(run, &out, chat_text_of(run, *between));
        chat_put(run, &out, chat_text_of(run, attribute(run, list->items[i], name, NULL)));
    }
    return chat_text_value(chat_written(&out));
}

static value end_of(struct chat_run *run, value self, bool last)
{
    bool stream = self.kind == CHAT_LIST && self.list->listing == CHAT_STREAM;
    struct chat_list *list = stream ? self.list : chat_items(run, self);
    if (stream && last)
        chat_no_list(run, "has no last element");
    if (run->status || list->count == 0)
        return (value){.kind = CHAT_UNDEFINED, .string = chat_string_of("an element of nothing")};
    value out = list->items[last ? list->count - 1 : 0];
    chat_list_pass(run, list, 1);
    return out;
}

CHAT_VALUE(filter_first, end_of(run, self, false))
CHAT_VALUE(filter_last, end_of(run, self, true))

CHAT_FUNCTION(filter_list)
{
    value out = chat_list_new(run);
    const struct chat_list *list = chat_items(run, self);
    (void)arguments;
    for (int64_t i = 0; list && i < list->count && !run->status; i++)
        chat_list_add(run, out, list->items[i]);
    return out;
}

CHAT_FUNCTION(filter_reverse)
{
    const value none = {.kind = CHAT_NONE}, bounds[3] = {none, none, chat_int_value(-1)};
    (void)arguments;
    if (self.kind == CHAT_STRING)
        return chat_slice(run, self, bounds);
    bool stream = self.kind == CHAT_LIST && self.list->listing == CHAT_STREAM;
    value out = chat_list_new(run);
    const struct chat_list *list = chat_items(run, self);
    for (int64_t i = list ? list->count - 1 : -1; i >= 0 && !run->status; i--)
        chat_list_add(run, out, list->items[i]);
    return chat_listed(run, out, stream ? CHAT_ARRAY : CHAT_STREAM);
}

CHAT_FUNCTION(filter_items)
{
    if (self.kind == CHAT_UNDEFINED)
        return chat_listed(run, chat_list_new(run), CHAT_STREAM);
    return chat_listed(run, chat_call_method(run, self, chat_string_of("items"), arguments),
                       CHAT_STREAM);
}

/* What an element is sorted by: small and large letters are the same unless `exact`. */
static value sort_key(struct chat_run *run, value item, const value *exact)
{
    const struct chat_arguments none = {0};
    bool lower = item.kind == CHAT_STRING && !(exact && chat_true(*exact));
    return lower ? as_method(run, item, "lower", &none) : item;
}

static value sorted(struct chat_run *run, struct chat_entry *entries, int64_t count,
                    const value *reverse)
{
    value out = chat_list_new(run);
    if (!run->status)
        chat_sort(run, entries, count, reverse && chat_true(*reverse));
    for (int64_t i = 0; i < count && !run->status; i++)
        chat_list_add(run, out, entries[i].value);
    return out;
}

/* sort(reverse=false, case_sensitive=false, attribute=none) */
CHAT_FUNCTION(filter_sort)
{
    const value *exact = chat_argument(arguments, 1, "case_sensitive");
    const value *name = chat_argument(arguments, 2, "attribute");
    const struct chat_list *list = chat_items(run, self);
    int64_t count = list ? list->count : 0;
    struct chat_entry *entries = chat_take(run, (size_t)count * sizeof *entries + 1);
    if (name && name->kind == CHAT_STRING &&
        chat_find(name->string, chat_string_of(","), 0) != SIZE_MAX)
        chat_fail(run, "sort: several attributes are not supported");
    for (int64_t i = 0; i < count && !run->status; i++) {
        value item = attribute(run, list->items[i], name, NULL);
        entries[i] =
            (struct chat_entry){.key = sort_key(run, item, exact), .value = list->items[i]};
    }
    return sorted(run, entries, count, chat_argument(arguments, 0, "reverse"));
}

/* dictsort(case_sensitive=false, by="key", reverse=false) */
CHAT_FUNCTION(filter_dictsort)
{
    const struct chat_arguments none = {0};
    const value *exact = chat_argument(arguments, 0, "case_sensitive");
    const value *by = chat_argument(arguments, 1, "by");
    bool by_value = by && by->kind == CHAT_STRING && chat_string_is(by->string, "value");
    if (by && !by_value && (by->kind != CHAT_STRING || !chat_string_is(by->string, "key")))
        chat_fail(run, "dictsort: by: expected \"key\" or \"value\"");
    value pairs = chat_call_method(run, self, chat_string_of("items"), &none);
    int64_t count = run->status ? 0 : pairs.list->count;
    struct chat_entry *entries = chat_take(run, (size_t)count * sizeof *entries + 1);
    for (int64_t i = 0; i < count && !run->status; i++) {
        value pair = pairs.list->items[i];
        entries[i] = (struct chat_entry){.key = sort_key(run, pair.list->items[by_value], exact),
                                         .value = pair};
    }
    return sorted(run, entries, count, chat_argument(arguments, 2, "reverse"));
}

/* Whether the text, with white space at its ends, may be a number of Python; copy[size] is it
 * without
 * "_" between digits. */
static bool number_copy(struct chat_string text, char *copy, size_t size)
{
    size_t count = 0;
    text = chat_strip(text, NULL, CHAT_LEFT | CHAT_RIGHT);
    for (size_t i = 0; i < text.count; i++) {
        char c = text.bytes[i];
        bool within = i > 0 && i + 1 < text.count && isdigit((unsigned char)text.bytes[i - 1]) &&
                      isdigit((unsigned char)text.bytes[i + 1]);
        if (c == '_' && within)
            continue;
        if (!c || !strchr("0123456789+-.eE", c) || count + 1 >= size)
            return false;
        copy[count++] = c;
    }
    copy[count] = '\0';
    return count > 0;
}

/* What Python's int makes of the text, or int of float; false: neither makes anything. */
static bool integer_of(struct chat_run *run, struct chat_string text, int64_t *out)
{
    char copy[400], *end;
    if (!number_copy(text, copy, sizeof copy))
        return false;
    errno = 0;
    *out = strtoll(copy, &end, 10);
    bool over = errno == ERANGE;
    if (*end) {
        double real = strtod(copy, &end);
        over = fabs(real) >= 0x1p63;
        *out = over ? 0 : (int64_t)real;
    }
    if (!*end && over)
        chat_fail(run, "int: a number that does not fit 64 bits");
    return !*end;
}

CHAT_FUNCTION(filter_int)
{
    const value *other = chat_argument(arguments, 0, "default");
    int64_t whole;
    if (self.kind == CHAT_UNDEFINED)
        chat_needs_string(run, &self, "int");
    if (self.kind == CHAT_INT || self.kind == CHAT_BOOL)
        return chat_int_value(self.integer);
    if (self.kind == CHAT_FLOAT && fabs(self.real) >= 0x1p63)
        chat_fail(run, "int: a number that does not fit 64 bits");
    if (self.kind == CHAT_FLOAT && !run->status && !isnan(self.real))
        return chat_int_value((int64_t)self.real);
    if (self.kind == CHAT_STRING && integer_of(run, self.string, &whole))
        return chat_int_value(whole);
    return other ? *other : chat_int_value(0);
}

CHAT_FUNCTION(filter_abs)
{
    (void)arguments;
    struct chat_value zero = chat_int_value(0);
    bool below = chat_order(run, self, zero) < 0;
    return chat_binary(run, below ? CHAT_SUBTRACT : CHAT_ADD, zero, self);
}

CHAT_FUNCTION(filter_safe)
{
    value out = filter_string(run, self, arguments);
    out.safe = true;
    return out;
}

/* indent(width=4, first=False, blank=False): white space in front of lines. */
CHAT_FUNCTION(filter_indent)
{
    int64_t width = 4;
    const value *wide = chat_argument(arguments, 0, "width");
    const value *first = chat_argument(arguments, 1, "first");
    const value *also = chat_argument(arguments, 2, "blank");
    struct chat_string left = self.string;
    struct chat_output out = {0};
    if (!chat_needs_string(run, &self, "indent"))
        return self;
    if (wide)
        needs_int(run, wide, "indent", &width);
    bool here = first && chat_true(*first), blank = also && chat_true(*also), begins = true;
    while (!run->status) {
        size_t end = chat_find(left, chat_string_of("\n"), 0);
        size_t line = end == SIZE_MAX ? left.count : end;
        bool shown = begins ? here : line > 0 || blank;
        for (int64_t i = 0; shown && i < width && !run->status; i++)
            chat_put(run, &out, chat_string_of(" "));
        chat_put(run, &out, (struct chat_string){left.bytes, line + (end != SIZE_MAX)});
        if (end == SIZE_MAX)
            break;
        left = (struct chat_string){left.bytes + end + 1, left.count - end - 1};
        begins = false;
    }
    return chat_text_value(chat_written(&out));
}

/* The test named by an argument, of the element or its attribute; the rest are the test's. */
static bool passes(struct chat_run *run, value item, const struct chat_arguments *arguments,
                   int place)
{
    struct chat_arguments rest = {0};
    if (place >= arguments->positional)
        return chat_true(item);
    if (!chat_needs_string(run, &arguments->value[place], "a test's name"))
        return false;
    struct chat_string name = arguments->value[place].string;
    const struct chat_builtin *test = chat_test_find(name);
    for (int i = place + 1; i < arguments->positional; i++)
        rest.value[rest.count++] = arguments->value[i];
    rest.positional = rest.count;
    if (!test)
        chat_fail(run, "the test \"%.*s\" is not supported", CHAT_SHOWN(name));
    return !run->status && chat_true(chat_builtin_call(run, test, item, &rest));
}

/* Those of which the test holds, or does not. */
static value selected(struct chat_run *run, value self, const struct chat_arguments *arguments,
                      bool by_attribute, bool holds)
{
    value out = chat_list_new(run);
    const struct chat_list *list = chat_items(run, self);
    if (by_attribute && arguments->positional < 1)
        chat_fail(run, "expected the name of an attribute");
    for (int64_t i = 0; list && i < list->count && !run->status; i++) {
        value item =
            attribute(run, list->items[i], by_attribute ? &arguments->value[0] : NULL, NULL);
        if (passes(run, item, arguments, by_attribute) == holds)
            chat_list_add(run, out, list->items[i]);
    }
    return chat_listed(run, out, CHAT_STREAM);
}

CHAT_VALUE(filter_select, selected(run, self, arguments, false, true))
CHAT_VALUE(filter_reject, selected(run, self, arguments, false, false))
CHAT_VALUE(filter_selectattr, selected(run, self, arguments, true, true))
CHAT_VALUE(filter_rejectattr, selected(run, self, arguments, true, false))

/* map(attribute="name", default=""), map("filter"). */
CHAT_FUNCTION(filter_map)
{
    value out = chat_list_new(run);
    const value *name = chat_argument(arguments, CHAT_ARGUMENTS_MAX, "attribute");
    const value *other = chat_argument(arguments, CHAT_ARGUMENTS_MAX, "default");
    const value *filter_name = arguments->positional == 1 ? &arguments->value[0] : NULL;
    const struct chat_list *list = chat_items(run, self);
    const struct chat_builtin *filter = NULL;
    const struct chat_arguments none = {0};
    if (!name && chat_needs_string(run, filter_name, "map")) {
        filter = chat_filter_find(filter_name->string);
        if (!filter)
            chat_fail(run, "the filter \"%.*s\" is not supported", CHAT_SHOWN(filter_name->string));
    }
    for (int64_t i = 0; list && i < list->count && !run->status; i++)
        chat_list_add(run, out,
                      name ? attribute(run, list->items[i], name, other)
                           : chat_builtin_call(run, filter, list->items[i], &none));
    return chat_listed(run, out, CHAT_STREAM);
}

static const struct chat_builtin filters[] = {
    {"trim", filter_trim, {"chars"}},
    {"tojson", filter_tojson, {"ensure_ascii", "indent", "separators", "sort_keys"}},
    {"length", filter_length, {NULL}},
    {"count", filter_length, {NULL}},
    {"upper", filter_upper, {NULL}},
    {"lower", filter_lower, {NULL}},
    {"title", filter_title, {NULL}},
    {"capitalize", filter_capitalize, {NULL}},
    {"replace", filter_replace, {"old", "new", "count"}},
    {"string", filter_string, {NULL}},
    {"default", filter_default, {"default_value", "boolean"}},
    {"d", filter_default, {"default_value", "boolean"}},
    {"join", filter_join, {"d", "attribute"}},
    {"first", filter_first, {NULL}},
    {"last", filter_last, {NULL}},
    {"list", filter_list, {NULL}},
    {"reverse", filter_reverse, {NULL}},
    {"items", filter_items, {NULL}},
    {"sort", filter_sort, {"reverse", "case_sensitive", "attribute"}},
    {"dictsort", filter_dictsort, {"case_sensitive", "by", "reverse"}},
    {"int", filter_int, {"default"}},
    {"abs", filter_abs, {NULL}},
    {"safe", filter_safe, {NULL}},
    {"indent", filter_indent, {"width", "first", "blank"}},
    {"select", filter_select, {"*"}},
    {"reject", filter_reject, {"*"}},
    {"selectattr", filter_selectattr, {"*"}},
    {"rejectattr", filter_rejectattr, {"*"}},
    {"map", filter_map, {"*", "attribute", "default"}},
};

bool chat_filter_counts(const struct chat_builtin *filter)
{
    return filter->function == filter_length;
}

bool chat_filter_by_element(const struct chat_builtin *filter)
{
    static chat_function *const functions[] = {filter_list,       filter_select,     filter_reject,
                                               filter_selectattr, filter_rejectattr, filter_map};
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (filter->function == functions[i])
            return true;
    return false;
}

/* ---- tests ---------------------------------------------------------------------------------- */

#define KIND_TEST(name, condition) CHAT_VALUE(name, chat_bool_value(condition))
KIND_TEST(test_defined, self.kind != CHAT_UNDEFINED)
KIND_TEST(test_undefined, self.kind == CHAT_UNDEFINED)
KIND_TEST(test_none, chat_none(self))
KIND_TEST(test_string, self.kind == CHAT_STRING)
KIND_TEST(test_mapping, self.kind == CHAT_DICT && !self.dict->changes)
KIND_TEST(test_iterable, self.kind == CHAT_STRING || self.kind == CHAT_LIST ||
                             self.kind == CHAT_DICT || self.kind == CHAT_UNDEFINED)
KIND_TEST(test_sequence, self.kind == CHAT_STRING ||
                             (self.kind == CHAT_LIST && self.list->listing <= CHAT_RANGE) ||
                             self.kind == CHAT_DICT || self.kind == CHAT_UNDEFINED)
KIND_TEST(test_number, self.kind == CHAT_INT || self.kind == CHAT_FLOAT || self.kind == CHAT_BOOL)
KIND_TEST(test_integer, self.kind == CHAT_INT)
KIND_TEST(test_float, self.kind == CHAT_FLOAT)
KIND_TEST(test_boolean, self.kind == CHAT_BOOL)
KIND_TEST(test_true, self.kind == CHAT_BOOL && self.integer)
KIND_TEST(test_false, self.kind == CHAT_BOOL && !self.integer)

/* The one argument of a test, undefined if there is none: a failure. */
static value operand(struct chat_run *run, const struct chat_arguments *arguments)
{
    if (arguments->count == 1)
        return arguments->value[0];
    chat_fail(run, "the test needs one argument");
    return (value){0};
}

static bool equal_to(struct chat_run *run, value self, const struct chat_arguments *arguments)
{
    value other = operand(run, arguments);
    return chat_equal(run, &self, &other);
}

CHAT_VALUE(test_equal, chat_bool_value(equal_to(run, self, arguments)))
CHAT_VALUE(test_unequal, chat_bool_value(!equal_to(run, self, arguments)))
CHAT_VALUE(test_in, chat_bool_value(chat_contains(run, operand(run, arguments), self)))

static value remainder_is(struct chat_run *run, value self, value divisor, int64_t is)
{
    value left = chat_binary(run, CHAT_MODULO, self, divisor), right = chat_int_value(is);
    return chat_bool_value(chat_equal(run, &left, &right));
}

CHAT_VALUE(test_odd, remainder_is(run, self, chat_int_value(2), 1))
CHAT_VALUE(test_even, remainder_is(run, self, chat_int_value(2), 0))
CHAT_VALUE(test_divisible, remainder_is(run, self, operand(run, arguments), 0))

static const struct chat_builtin tests[] = {
    {"defined", test_defined, {NULL}},   {"undefined", test_undefined, {NULL}},
    {"none", test_none, {NULL}},         {"string", test_string, {NULL}},
    {"mapping", test_mapping, {NULL}},   {"iterable", test_iterable, {NULL}},
    {"sequence", test_sequence, {NULL}}, {"number", test_number, {NULL}},
    {"integer", test_integer, {NULL}},   {"float", test_float, {NULL}},
    {"boolean", test_boolean, {NULL}},   {"true", test_true, {NULL}},
    {"false", test_false, {NULL}},       {"odd", test_odd, {NULL}},
    {"even", test_even, {NULL}},         {"divisibleby", test_divisible, {"num"}},
    {"equalto", test_equal, {"other"}},  {"eq", test_equal, {"other"}},
    {"ne", test_unequal, {"other"}},     {"in", test_in, {"seq"}},
};

/* ---- finding and calling -------------------------------------------------------------------- */

#define FIND(table, name)                                                                          \
    for (size_t i = 0; i < sizeof(table) / sizeof *(table); i++)                                   \
        if (chat_string_is(name, (table)[i].name))                                                 \
            return &(table)[i];                                                                    \
    return NULL

const struct chat_builtin *chat_filter_find(struct chat_string name)
{
    FIND(filters, name);
}

const struct chat_builtin *chat_test_find(struct chat_string name)
{
    FIND(tests, name);
}

struct chat_value chat_builtin_call(struct chat_run *run, const struct chat_builtin *builtin,
                                    struct chat_value self, const struct chat_arguments *arguments)
{
    int most = 0;
    bool any = builtin->parameters[0] && !strcmp(builtin->parameters[0], "*");
    while (most < CHAT_PARAMETERS_MAX && builtin->parameters[most])
        most++;
    if (!any && arguments->positional > most)
        chat_fail(run, "%s takes at most %s", builtin->name, ls_counted(most, "argument").text);
    for (int i = arguments->positional; i < arguments->count; i++) {
        bool known = false;
        for (int k = 0; k < most; k++)
            known |= chat_string_is(arguments->keyword[i], builtin->parameters[k]);
        if (!known)
            chat_fail(run, "%s: the argument \"%.*s\" is not supported", builtin->name,
                      CHAT_SHOWN(arguments->keyword[i]));
    }
    return run->status ? self : builtin->function(run, self, arguments);
}

/* ---- functions ------------------------------------------------------------------------------ */

CHAT_FUNCTION(raise_exception)
{
    const value *text = chat_argument(arguments, 0, "message");
    struct chat_string message = text ? chat_text_of(run, *text) : chat_string_of("");
    chat_fail(run, "the template refuses the conversation: %.*s",
              (int)ls_min((int64_t)message.count, 300), message.count ? message.bytes : "");
    return self;
}

/* namespace(a=1) and dict(a=1), also with a mapping before them. */
static value mapping_of(struct chat_run *run, const struct chat_arguments *arguments)
{
    value out = chat_dict_new(run);
    const value *given = arguments->positional > 0 ? &arguments->value[0] : NULL;
    if (given && (arguments->positional > 1 || given->kind != CHAT_DICT))
        chat_fail(run, "expected arguments with names, as in namespace(found=false), or a mapping "
                       "before them");
    for (int64_t i = 0; given && !run->status && i < given->dict->count; i++) {
        chat_entry_seen(run, &given->dict->entries[i]);
        chat_dict_set(run, out.dict, given->dict->entries[i].key, given->dict->entries[i].value);
    }
    for (int i = arguments->positional; i < arguments->count && !run->status; i++)
        chat_dict_set(run, out.dict, chat_text_value(arguments->keyword[i]), arguments->value[i]);
    return out;
}

CHAT_FUNCTION(make_namespace)
{
    value out = mapping_of(run, arguments);
    (void)self;
    if (!run->status)
        out.dict->changes = true;
    return out;
}

CHAT_VALUE(make_dict, mapping_of(run, arguments))

CHAT_FUNCTION(make_range)
{
    int64_t bounds[3] = {0, 0, 1};
    value out = chat_list_new(run);
    (void)self;
    if (arguments->count < 1 || arguments->count > 3 || arguments->positional < arguments->count)
        chat_fail(run, "range takes one to three integers");
    for (int i = 0; i < arguments->count && !run->status; i++)
        needs_int(run, &arguments->value[i], "range", &bounds[arguments->count == 1 ? 1 : i]);
    int64_t step = bounds[2];
    if (step == 0)
        chat_fail(run, "the step of a range is 0");
    for (int64_t i = bounds[0]; !run->status && (step > 0 ? i < bounds[1] : i > bounds[1]);) {
        chat_list_add(run, out, chat_int_value(i));
        if (__builtin_add_overflow(i, step, &i))
            break;
    }
    return chat_listed(run, out, CHAT_RANGE);
}

/* The conversions of a day's strftime that need no time zone. */
static bool formats_day(const char *format)
{
    for (const char *at = strchr(format, '%'); at; at = strchr(at + 1, '%')) {
        at += 1 + (at[1] == '-');
        if (!*at || !strchr("%aAbBcCdDeFgGhHIjklmMnprRStTuUVwWxXyY", *at))
            return false;
    }
    return true;
}

CHAT_FUNCTION(strftime_now)
{
    char format[100], text[1000];
    const value *given = chat_argument(arguments, 0, "format");
    if (!chat_needs_string(run, given, "strftime_now"))
        return self;
    if (given->string.count >= sizeof format || memchr(given->string.bytes, 0, given->string.count))
        chat_fail(run, "strftime_now: expected a format of less than %zu bytes", sizeof format);
    if (run->status)
        return self;
    memcpy(format, given->string.bytes, given->string.count);
    format[given->string.count] = '\0';
    if (!formats_day(format))
        chat_fail(run, "strftime_now: the format \"%s\" is not supported", format);
    size_t count = run->status ? 0 : strftime(text, sizeof text, format, &run->t->day);
    char *kept = chat_take(run, count + 1);
    if (kept)
        memcpy(kept, text, count);
    return chat_text_value((struct chat_string){kept ? kept : "", kept ? count : 0});
}

static const struct {
    const char *name;
    chat_function *function;
} functions[] = {{"raise_exception", raise_exception},
                 {"namespace", make_namespace},
                 {"dict", make_dict},
                 {"range", make_range},
                 {"strftime_now", strftime_now}};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

bool chat_function_known(const struct ls_chat_template *t, struct chat_string name)
{
    for (int i = 0; i < FUNCTIONS; i++)
        if (chat_string_is(name, functions[i].name))
            return functions[i].function != strftime_now || t->dated;
    return false;
}

struct chat_value chat_call_function(struct chat_run *run, struct chat_string name,
                                     const struct chat_arguments *arguments)
{
    for (int i = 0; i < FUNCTIONS && chat_function_known(run->t, name); i++)
        if (chat_string_is(name, functions[i].name))
            return functions[i].function(run, (value){0}, arguments);
    if (chat_string_is(name, "strftime_now"))
        chat_fail(run, "strftime_now is not defined, because the text would be another one each "
                       "day: give the template a day (--template-date)");
    chat_fail(run, "the function \"%.*s\" is not supported", CHAT_SHOWN(name));
    return (value){0};
}
