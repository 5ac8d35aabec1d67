/* The methods of strings and mappings that a chat template may call: Python's. */
#include "chat/chat_private.h"

#include <lockstep/base/words.h>

#include <utf8proc.h>

static struct chat_value stripped(struct chat_run *run, struct chat_value self,
                                  const struct chat_arguments *arguments, int sides)
{
    const struct chat_value *of = chat_argument(arguments, 0, "chars");
    if (of && of->kind == CHAT_NONE)
        of = NULL;
    if (of && !chat_needs_string(run, of, "strip"))
        return self;
    if (of) /* each character is looked for */
        chat_spend(run, (int64_t)(self.string.count * (of->string.count / 64)));
    return chat_text_value(chat_strip(self.string, of ? &of->string : NULL, sides));
}

CHAT_VALUE(strip, stripped(run, self, arguments, CHAT_LEFT | CHAT_RIGHT))
CHAT_VALUE(lstrip, stripped(run, self, arguments, CHAT_LEFT))
CHAT_VALUE(rstrip, stripped(run, self, arguments, CHAT_RIGHT))

static bool small(char c)
{
    return c >= 'a' && c <= 'z';
}

static bool large(char c)
{
    return c >= 'A' && c <= 'Z';
}

/* Which letters become large: all, those that begin a text or a word. */
enum casing { UPPER, CAPITALIZED, TITLED };

/* Every letter has one that is small, but for two: of \u0130 that is two characters, and that of
 * \u03a3 depends on what stands beside it. */
static struct chat_value lowered(struct chat_run *run, struct chat_string text)
{
    struct chat_output out = {0};
    while (text.count > 0 && !run->status) {
        size_t bytes = chat_character(text);
        char small_one[4];
        uint32_t code = chat_code_point((struct chat_string){text.bytes, bytes});
        if (code == 0x130 || code == 0x3a3)
            chat_fail(run, "the letter U+%04X cannot be made lower case here", code);
        uint32_t low = (uint32_t)utf8proc_tolower((utf8proc_int32_t)code);
        chat_put(run, &out, (struct chat_string){small_one, chat_encode(low, small_one)});
        text = (struct chat_string){text.bytes + bytes, text.count - bytes};
    }
    return chat_text_value(chat_written(&out));
}

/* Upper case of letters outside ASCII has rules of many languages, which are not here. */
static struct chat_value cased(struct chat_run *run, struct chat_string text, enum casing casing)
{
    char *bytes = chat_take(run, text.count + 1);
    if (!bytes)
        return (struct chat_value){0};
    bool within = false;
    for (size_t i = 0; i < text.count; i++) {
        char c = text.bytes[i];
        if ((unsigned char)c >= 0x80) {
            chat_fail(run, "letters outside ASCII cannot be made upper case here");
            return (struct chat_value){0};
        }
        bool up =
            casing == UPPER || (casing == CAPITALIZED && i == 0) || (casing == TITLED && !within);
        bytes[i] = (char)(up && small(c) ? c - 32 : !up && large(c) ? c + 32 : c);
        within = small(c) || large(c);
    }
    return chat_text_value((struct chat_string){bytes, text.count});
}

CHAT_VALUE(lower, lowered(run, self.string))
CHAT_VALUE(upper, cased(run, self.string, UPPER))
CHAT_VALUE(capitalize, cased(run, self.string, CAPITALIZED))
CHAT_VALUE(title, cased(run, self.string, TITLED))

/* Whether the text begins, or ends, with the argument, or with one of a tuple. */
static struct chat_value edge(struct chat_run *run, struct chat_value self,
                              const struct chat_arguments *arguments, bool at_end)
{
    const struct chat_value *given = chat_argument(arguments, 0, "prefix");
    struct chat_list one = {.items = (struct chat_value *)given, .count = 1};
    const struct chat_list *list = given && given->kind == CHAT_LIST ? given->list : &one;
    bool found = false;
    if (!given)
        chat_needs_string(run, NULL, "startswith");
    for (int64_t i = 0; given && i < list->count && !found; i++) {
        if (!chat_needs_string(run, &list->items[i], at_end ? "endswith" : "startswith"))
            break;
        struct chat_string part = list->items[i].string, text = self.string;
        found = part.count <= text.count &&
                (part.count == 0 || memcmp(text.bytes + (at_end ? text.count - part.count : 0),
                                           part.bytes, part.count) == 0);
    }
    return chat_bool_value(found);
}

CHAT_VALUE(startswith, edge(run, self, arguments, false))
CHAT_VALUE(endswith, edge(run, self, arguments, true))

/* At most how many times, from an argument: -1, or none given, is as often as there are. */
static int64_t limit_of(struct chat_run *run, const struct chat_value *given)
{
    if (!given)
        return INT64_MAX;
    if (given->kind != CHAT_INT)
        chat_fail(run, "expected an integer, not %s", chat_kind_name(*given));
    return given->integer < 0 ? INT64_MAX : given->integer;
}

CHAT_FUNCTION(replace)
{
    const struct chat_value *from = chat_argument(arguments, 0, "old");
    const struct chat_value *to = chat_argument(arguments, 1, "new");
    int64_t left = limit_of(run, chat_argument(arguments, 2, "count"));
    struct chat_output out = {0};
    if (!chat_needs_string(run, from, "replace") || !chat_needs_string(run, to, "replace"))
        return self;
    if (from->string.count == 0)
        chat_fail(run, "replace: nothing to look for");
    size_t at = 0;
    for (; left > 0 && !run->status; left--) {
        size_t found = chat_find(self.string, from->string, at);
        if (found == SIZE_MAX)
            break;
        chat_put(run, &out, (struct chat_string){self.string.bytes + at, found - at});
        chat_put(run, &out, to->string);
        chat_spend(run, 1);
        at = found + from->string.count;
    }
    chat_put(run, &out, (struct chat_string){self.string.bytes + at, self.string.count - at});
    return chat_text_value(chat_written(&out));
}

/* Words between white space. */
static struct chat_value split_words(struct chat_run *run, struct chat_string text, int64_t left)
{
    struct chat_value out = chat_list_new(run);
    for (;;) {
        text = chat_strip(text, NULL, CHAT_LEFT);
        size_t end = 0;
        while (end < text.count &&
               !chat_space((struct chat_string){text.bytes + end, text.count - end}))
            end++;
        if (text.count == 0 || run->status)
            return out;
        if (left-- == 0)
            end = text.count; /* the rest is one */
        chat_list_add(run, out, chat_text_value((struct chat_string){text.bytes, end}));
        text = (struct chat_string){text.bytes + end, text.count - end};
    }
}

CHAT_FUNCTION(split)
{
    const struct chat_value *by = chat_argument(arguments, 0, "sep");
    int64_t left = limit_of(run, chat_argument(arguments, 1, "maxsplit"));
    if (!by || by->kind == CHAT_NONE)
        return split_words(run, self.string, left);
    struct chat_value out = chat_list_new(run);
    if (!chat_needs_string(run, by, "split"))
        return self;
    if (by->string.count == 0)
        chat_fail(run, "split: the separator is empty");
    size_t at = 0;
    while (!run->status) {
        size_t found = left-- > 0 ? chat_find(self.string, by->string, at) : SIZE_MAX;
        size_t end = found == SIZE_MAX ? self.string.count : found;
        chat_list_add(run, out,
                      chat_text_value((struct chat_string){self.string.bytes + at, end - at}));
        if (found == SIZE_MAX)
            break;
        at = end + by->string.count;
    }
    return out;
}

CHAT_FUNCTION(find)
{
    const struct chat_value *part = chat_argument(arguments, 0, "sub");
    if (!chat_needs_string(run, part, "find"))
        return self;
    size_t found = chat_find(self.string, part->string, 0);
    return chat_int_value(
        found == SIZE_MAX ? -1 : chat_characters((struct chat_string){self.string.bytes, found}));
}

CHAT_FUNCTION(join)
{
    const struct chat_value *of = chat_argument(arguments, 0, "iterable");
    const struct chat_list *list = of ? chat_items(run, *of) : NULL;
    struct chat_output out = {0};
    if (!of)
        chat_fail(run, "join: expected a list");
    for (int64_t i = 0; list && i < list->count; i++) {
        if (!chat_needs_string(run, &list->items[i], "join"))
            break;
        chat_put(run, &out, i > 0 ? self.string : (struct chat_string){0});
        chat_put(run, &out, list->items[i].string);
    }
    return chat_text_value(chat_written(&out));
}

CHAT_FUNCTION(items)
{
    struct chat_value out = chat_list_new(run);
    (void)arguments;
    for (int64_t i = 0; i < self.dict->count && !run->status; i++) {
        struct chat_value pair = chat_list_new(run);
        chat_entry_seen(run, &self.dict->entries[i]);
        chat_list_add(run, pair, self.dict->entries[i].key);
        chat_list_add(run, pair, self.dict->entries[i].value);
        if (!run->status)
            pair.list->listing = CHAT_TUPLE;
        chat_list_add(run, out, pair);
    }
    return chat_listed(run, out, CHAT_VIEW);
}

CHAT_FUNCTION(keys)
{
    struct chat_value out = {.kind = CHAT_LIST, .list = chat_items(run, self)};
    (void)arguments;
    return chat_listed(run, out, CHAT_VIEW);
}

CHAT_FUNCTION(values)
{
    struct chat_value out = chat_list_new(run);
    (void)arguments;
    for (int64_t i = 0; i < self.dict->count && !run->status; i++) {
        chat_entry_seen(run, &self.dict->entries[i]);
        chat_list_add(run, out, self.dict->entries[i].value);
    }
    return chat_listed(run, out, CHAT_VIEW);
}

CHAT_FUNCTION(get)
{
    const struct chat_value *key = chat_argument(arguments, 0, "key");
    const struct chat_value *other = chat_argument(arguments, 1, "default");
    if (!key)
        chat_fail(run, "get: expected a key");
    const struct chat_value *value = key ? chat_dict_get(run, self.dict, *key) : NULL;
    return value ? *value : other ? *other : (struct chat_value){.kind = CHAT_NONE};
}

static const struct {
    const char *name;
    enum chat_kind of;
    int most;
    chat_function *function;
} methods[] = {
    {"strip", CHAT_STRING, 1, strip},
    {"lstrip", CHAT_STRING, 1, lstrip},
    {"rstrip", CHAT_STRING, 1, rstrip},
    {"lower", CHAT_STRING, 0, lower},
    {"upper", CHAT_STRING, 0, upper},
    {"capitalize", CHAT_STRING, 0, capitalize},
    {"title", CHAT_STRING, 0, title},
    {"startswith", CHAT_STRING, 1, startswith},
    {"endswith", CHAT_STRING, 1, endswith},
    {"replace", CHAT_STRING, 3, replace},
    {"split", CHAT_STRING, 2, split},
    {"find", CHAT_STRING, 1, find},
    {"join", CHAT_STRING, 1, join},
    {"items", CHAT_DICT, 0, items},
    {"keys", CHAT_DICT, 0, keys},
    {"values", CHAT_DICT, 0, values},
    {"get", CHAT_DICT, 2, get},
};
enum { METHODS = sizeof methods / sizeof *methods };

bool chat_method_known(struct chat_string name)
{
    for (int i = 0; i < METHODS; i++)
        if (chat_string_is(name, methods[i].name))
            return true;
    return false;
}

struct chat_value chat_call_method(struct chat_run *run, struct chat_value self,
                                   struct chat_string name, const struct chat_arguments *arguments)
{
    for (int i = 0; i < METHODS && !run->status; i++) {
        if (methods[i].of != self.kind || !chat_string_is(name, methods[i].name))
            continue;
        if (arguments->count <= methods[i].most)
            return methods[i].function(run, self, arguments);
        chat_fail(run, "%.*s takes at most %s", CHAT_SHOWN(name),
                  ls_counted(methods[i].most, "argument").text);
    }
    if (self.kind == CHAT_UNDEFINED)
        chat_fail(run, "%.*s is undefined, so it has no %.*s()", CHAT_SHOWN(self.string),
                  CHAT_SHOWN(name));
    chat_fail(run, "%s has no %.*s()", chat_kind_name(self), CHAT_SHOWN(name));
    return self;
}
