/* The values of a chat template, and what Python's operators make of them. */
#include "chat/chat_private.h"

#include <math.h>

/* ---- making --------------------------------------------------------------------------------- */

struct chat_value chat_list_new(struct chat_run *run)
{
    struct chat_list *list = chat_take(run, sizeof *list);
    return list ? (struct chat_value){.kind = CHAT_LIST, .list = list} : (struct chat_value){0};
}

/* Room for one more of `bytes` each behind count, in the arena; the old place is left. */
static void *grow(struct chat_run *run, void *old, int64_t count, int64_t *room, size_t bytes)
{
    if (count < *room)
        return old;
    int64_t more = *room ? 2 * *room : 4;
    void *grown = chat_take(run, (size_t)more * bytes);
    if (grown && count > 0)
        memcpy(grown, old, (size_t)count * bytes);
    *room = grown ? more : *room;
    return grown;
}

void chat_list_add(struct chat_run *run, struct chat_value list, struct chat_value item)
{
    struct chat_list *l = list.kind == CHAT_LIST ? list.list : NULL;
    void *items = l ? grow(run, l->items, l->count, &l->room, sizeof *l->items) : NULL;
    if (!items)
        return;
    l->items = items;
    l->items[l->count++] = item;
}

void chat_list_pass(struct chat_run *run, struct chat_list *list, int64_t count)
{
    if (list->listing != CHAT_STREAM || count == 0)
        return;
    if (run->pass_least)
        chat_open_least(run, CHAT_OPEN_ALL);
    chat_note(run, list, sizeof *list);
    list->items += count;
    list->count -= count;
    list->room = list->count;
}

struct chat_value chat_listed(struct chat_run *run, struct chat_value list,
                              enum chat_listing listing)
{
    if (!run->status)
        list.list->listing = listing;
    return list;
}

void chat_no_list(struct chat_run *run, const char *what)
{
    chat_fail(run,
              "what range and filters such as map, select and items give, and a mapping's keys, "
              "values and items, %s: expected |list behind it",
              what);
}

struct chat_value chat_dict_new(struct chat_run *run)
{
    struct chat_dict *dict = chat_take(run, sizeof *dict);
    return dict ? (struct chat_value){.kind = CHAT_DICT, .dict = dict} : (struct chat_value){0};
}

/* The entry of a text: what scopes and messages are asked for all the time. Spends what comparing
 * it with each key before would (chat_equal). */
static inline struct chat_entry *entry_named(struct chat_run *run, const struct chat_dict *dict,
                                             struct chat_string name)
{
    struct chat_entry *each = dict->entries;
    const int64_t count = dict->count;
    int64_t i = 0, compared = 0;
    for (; i < count; i++, each++) {
        if (each->key.kind != CHAT_STRING || each->key.string.count != name.count)
            continue;
        compared++;
        if (chat_same(each->key.string, name))
            break;
    }
    const bool found = i < count;
    return chat_spend(run, 2 * (i + found) + compared * (int64_t)(name.count / 64)) && found ? each
                                                                                             : NULL;
}

static struct chat_entry *entry_find(struct chat_run *run, const struct chat_dict *dict,
                                     struct chat_value key)
{
    if (key.kind == CHAT_STRING)
        return entry_named(run, dict, key.string);
    for (int64_t i = 0; i < dict->count && chat_spend(run, 1); i++)
        if (chat_equal(run, &dict->entries[i].key, &key))
            return &dict->entries[i];
    return NULL;
}

static void key_check(struct chat_run *run, struct chat_value key)
{
    if (key.kind == CHAT_LIST || key.kind == CHAT_DICT)
        chat_fail(run, "%s cannot be a key", chat_kind_name(key));
}

void chat_dict_set(struct chat_run *run, struct chat_dict *dict, struct chat_value key,
                   struct chat_value value)
{
    struct chat_entry *entry = entry_find(run, dict, key);
    bool lasts = run->noting && (dict->changes || dict == &run->top->variables);
    key_check(run, key);
    if (dict->changes && run->pass_least && !entry)
        chat_open_least(run, CHAT_OPEN_ALL);
    if (!entry && !run->status) {
        if (lasts)
            chat_note(run, dict, sizeof *dict);
        void *entries = grow(run, dict->entries, dict->count, &dict->room, sizeof *dict->entries);
        if (!entries)
            return;
        dict->entries = entries;
        entry = &dict->entries[dict->count++];
        entry->key = key;
    }
    if (!entry)
        return;
    if (lasts)
        chat_note(run, entry, sizeof *entry);
    entry->value = value;
    entry->least = run->pass_least;
}

static const struct chat_value *seen(struct chat_run *run, const struct chat_entry *entry)
{
    if (!entry)
        return NULL;
    if (entry->least > run->pass_least)
        chat_entry_seen(run, entry);
    return &entry->value;
}

const struct chat_value *chat_dict_get(struct chat_run *run, const struct chat_dict *dict,
                                       struct chat_value key)
{
    return seen(run, entry_find(run, dict, key));
}

const struct chat_value *chat_dict_named(struct chat_run *run, const struct chat_dict *dict,
                                         struct chat_string name)
{
    return seen(run, entry_named(run, dict, name));
}

/* ---- what they are -------------------------------------------------------------------------- */

const char *chat_kind_name(struct chat_value value)
{
    static const char *const names[] = {
        "an undefined value", "none",   "a boolean", "an integer", "a float", "a string", "a list",
        "a mapping",          "a loop", "a macro",   "a function"};
    return names[value.kind];
}

bool chat_none(struct chat_value value)
{
    return value.kind == CHAT_NONE || (value.kind == CHAT_UNDEFINED && value.null);
}

static bool whole(struct chat_value value)
{
    return value.kind == CHAT_INT || value.kind == CHAT_BOOL;
}

static bool number(struct chat_value value, double *real)
{
    *real = whole(value) ? (double)value.integer : value.real;
    return whole(value) || value.kind == CHAT_FLOAT;
}

/* < 0, 0 or > 0, exactly: an integer may have more digits than a float. Of what is no number 0. */
static int order_numbers(const struct chat_value *a, const struct chat_value *b)
{
    if (whole(*a) && whole(*b))
        return (a->integer > b->integer) - (a->integer < b->integer);
    if (whole(*b))
        return -order_numbers(b, a);
    if (!whole(*a))
        return (a->real > b->real) - (a->real < b->real);
    if (isnan(b->real) || fabs(b->real) >= 0x1p63)
        return (b->real < 0) - (b->real > 0);
    const int64_t near = (int64_t)b->real;
    const double rest = b->real - (double)near;
    return a->integer != near ? (a->integer > near) - (a->integer < near) : (rest < 0) - (rest > 0);
}

static bool equal_dicts(struct chat_run *run, const struct chat_dict *a, const struct chat_dict *b)
{
    bool equal = a->count == b->count;
    for (int64_t i = 0; i < a->count && equal && !run->status; i++) {
        const struct chat_value *other = chat_dict_get(run, b, a->entries[i].key);
        equal = other && chat_equal(run, &a->entries[i].value, other);
    }
    return equal;
}

static bool equal_within(struct chat_run *run, const struct chat_value *a,
                         const struct chat_value *b)
{
    bool equal = false;
    if (a->kind == CHAT_DICT) {
        equal = a->dict == b->dict || (!a->dict->changes && equal_dicts(run, a->dict, b->dict));
    } else if (a->kind == CHAT_LIST) {
        if (a->list == b->list || a->list->listing == CHAT_STREAM)
            return a->list == b->list;
        equal = a->list->count == b->list->count && a->list->listing == b->list->listing;
        for (int64_t i = 0; equal && i < a->list->count && !run->status; i++)
            equal = chat_equal(run, &a->list->items[i], &b->list->items[i]);
    }
    return equal;
}

bool chat_equal(struct chat_run *run, const struct chat_value *a, const struct chat_value *b)
{
    double x, y;
    if (!chat_spend(run, 1))
        return false;
    if (a->kind == CHAT_STRING && b->kind == CHAT_STRING)
        return a->string.count == b->string.count &&
               chat_spend(run, (int64_t)a->string.count / 64) && chat_same(a->string, b->string);
    if (number(*a, &x) && number(*b, &y))
        return order_numbers(a, b) == 0 && !isnan(x) && !isnan(y);
    if (a->kind != b->kind)
        return chat_none(*a) && chat_none(*b);
    if (a->kind == CHAT_LOOP || a->kind == CHAT_MACRO_VALUE || a->kind == CHAT_CALLABLE)
        return a->kind != CHAT_CALLABLE && a->loop == b->loop;
    if (a->kind != CHAT_LIST && a->kind != CHAT_DICT)
        return true;
    if (++run->depth > CHAT_DEPTH_MAX)
        chat_fail(run, "values are nested more than %d deep", CHAT_DEPTH_MAX);
    bool equal = !run->status && equal_within(run, a, b);
    run->depth--;
    return equal;
}

int chat_order(struct chat_run *run, struct chat_value a, struct chat_value b)
{
    double x, y;
    if (number(a, &x) && number(b, &y))
        return order_numbers(&a, &b);
    if (a.kind == CHAT_STRING && b.kind == CHAT_STRING) {
        size_t common = a.string.count < b.string.count ? a.string.count : b.string.count;
        int order = common ? memcmp(a.string.bytes, b.string.bytes, common) : 0;
        return order ? order
                     : (a.string.count > b.string.count) - (a.string.count < b.string.count);
    }
    chat_fail(run, "%s and %s have no order", chat_kind_name(a), chat_kind_name(b));
    return 0;
}

void chat_sort(struct chat_run *run, struct chat_entry *entries, int64_t count, bool reverse)
{
    for (int64_t i = 1; i < count && !run->status; i++) {
        const struct chat_entry entry = entries[i];
        int64_t at = i;
        for (; at > 0; at--) {
            struct chat_value keys[] = {entries[at - 1].key, entry.key};
            if (!chat_spend(run, 1) || !chat_spend_operands(run, keys, 2))
                break;
            int order = chat_order(run, keys[0], keys[1]);
            if (reverse ? order >= 0 : order <= 0)
                break;
            entries[at] = entries[at - 1];
        }
        entries[at] = entry;
    }
}

static bool listed(struct chat_run *run, struct chat_list *list, struct chat_value item)
{
    bool found = false;
    int64_t i = 0;
    while (i < list->count && !found)
        found = chat_equal(run, &list->items[i++], &item);
    chat_list_pass(run, list, i);
    return found;
}

bool chat_contains(struct chat_run *run, struct chat_value list, struct chat_value item)
{
    if (list.kind == CHAT_STRING && item.kind == CHAT_STRING)
        return chat_find(list.string, item.string, 0) != SIZE_MAX;
    if (list.kind == CHAT_DICT) {
        key_check(run, item);
        return chat_dict_get(run, list.dict, item) != NULL;
    }
    if (list.kind == CHAT_STRING || (list.kind != CHAT_LIST && list.kind != CHAT_UNDEFINED))
        chat_fail(run, "%s cannot be in %s", chat_kind_name(item), chat_kind_name(list));
    return list.kind == CHAT_LIST && listed(run, list.list, item);
}

/* ---- parts ---------------------------------------------------------------------------------- */

struct chat_list *chat_items(struct chat_run *run, struct chat_value value)
{
    if (value.kind == CHAT_LIST && value.list->listing != CHAT_STREAM)
        return value.list;
    struct chat_value items = chat_list_new(run);
    if (run->status)
        return NULL;
    if (value.kind == CHAT_LIST) {
        *items.list = (struct chat_list){.items = value.list->items, .count = value.list->count};
        chat_list_pass(run, value.list, value.list->count);
        return items.list;
    }
    if (value.kind == CHAT_DICT) {
        for (int64_t i = 0; i < value.dict->count; i++)
            chat_list_add(run, items, value.dict->entries[i].key);
    } else if (value.kind == CHAT_STRING) {
        for (struct chat_string left = value.string; left.count > 0 && !run->status;) {
            size_t bytes = chat_character(left);
            chat_list_add(run, items, chat_text_value((struct chat_string){left.bytes, bytes}));
            left.bytes += bytes;
            left.count -= bytes;
        }
    } else if (value.kind != CHAT_UNDEFINED) {
        chat_fail(run, "%s cannot be gone through", chat_kind_name(value));
    }
    return items.list;
}

int64_t chat_length(struct chat_run *run, struct chat_value value)
{
    switch (value.kind) {
    case CHAT_UNDEFINED:
        return 0;
    case CHAT_STRING:
        return chat_characters(value.string);
    case CHAT_LIST:
        if (value.list->listing == CHAT_STREAM)
            chat_no_list(run, "has no length");
        return value.list->count;
    case CHAT_DICT:
        return value.dict->count;
    default:
        chat_fail(run, "%s has no length", chat_kind_name(value));
        return 0;
    }
}

enum member {
    INDEX,
    INDEX0,
    DEPTH,
    DEPTH0,
    FIRST,
    PREVIOUS,
    NEXT,
    LAST,
    LENGTH,
    BACK,
    BACK0,
    MEMBERS
};

static enum member member_find(struct chat_string name)
{
    static const char *const names[MEMBERS] = {"index",  "index0",   "depth",    "depth0",
                                               "first",  "previtem", "nextitem", "last",
                                               "length", "revindex", "revindex0"};
    int m = 0;
    while (m < MEMBERS && !chat_string_is(name, names[m]))
        m++;
    return (enum member)m;
}

/* Of the messages: what their end says. */
static void loop_looks_ahead(struct chat_run *run, const struct chat_loop *loop, enum member member)
{
    const bool one = member == LAST || member == NEXT;
    if (loop->open && !loop->filtered && one && loop->index + 1 < loop->count)
        chat_open_least(run, loop->open_from + loop->index + 2);
    else if (loop->open && (one || (member >= LENGTH && member < MEMBERS)))
        chat_open_least(run, CHAT_OPEN_ALL);
}

static struct chat_value loop_member(struct chat_run *run, const struct chat_loop *loop,
                                     struct chat_string name)
{
    const int64_t i = loop->index, left = loop->count - 1 - i;
    const enum member member = member_find(name);
    loop_looks_ahead(run, loop, member);
    switch (member) {
    case INDEX:
        return chat_int_value(i + 1);
    case INDEX0:
        return chat_int_value(i);
    case DEPTH: /* of recursive loops, which there are none of here */
    case DEPTH0:
        return chat_int_value(member == DEPTH);
    case FIRST:
        return chat_bool_value(i == 0);
    case LAST:
        return chat_bool_value(left == 0);
    case LENGTH:
        return chat_int_value(loop->count);
    case BACK:
        return chat_int_value(left + 1);
    case BACK0:
        return chat_int_value(left);
    default:
        break;
    }
    if ((member == PREVIOUS && i > 0) || (member == NEXT && left > 0))
        return loop->items[member == PREVIOUS ? i - 1 : i + 1];
    return (struct chat_value){.kind = CHAT_UNDEFINED, .string = name};
}

/* The methods of Python's mappings. Jinja's sandbox gives none that changes a mapping: its value is
 * undefined. */
static const struct {
    const char *name;
    bool changes;
} methods[] = {
    {"items", false}, {"keys", false}, {"values", false}, {"get", false},       {"copy", false},
    {"clear", true},  {"pop", true},   {"popitem", true}, {"setdefault", true}, {"update", true},
};

bool chat_mapping_method(struct chat_string name, struct chat_value *method)
{
    *method = (struct chat_value){.kind = CHAT_UNDEFINED, .string = name};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        if (!chat_string_is(name, methods[i].name))
            continue;
        method->kind = methods[i].changes ? CHAT_UNDEFINED : CHAT_CALLABLE;
        return true;
    }
    return false;
}

/* The value of a key that a mapping does not have. */
static struct chat_value absent(struct chat_run *run, const struct chat_dict *dict,
                                struct chat_value key, struct chat_value none)
{
    none.null = dict->nulls && listed(run, dict->nulls, key);
    return none;
}

struct chat_value chat_attribute(struct chat_run *run, const struct chat_value *from,
                                 const struct chat_node *node)
{
    struct chat_string name = node->text;
    if (from->kind == CHAT_DICT) {
        if (node->method && !from->dict->changes)
            return node->value;
        const struct chat_value *value = chat_dict_named(run, from->dict, name);
        return value ? *value
                     : absent(run, from->dict, chat_text_value(name),
                              (struct chat_value){.kind = CHAT_UNDEFINED, .string = name});
    }
    if (from->kind == CHAT_LOOP)
        return loop_member(run, from->loop, name);
    if (from->kind == CHAT_MACRO_VALUE)
        chat_fail(run, "the attribute \"%.*s\" of a macro is not supported", CHAT_SHOWN(name));
    return chat_item(run, *from, chat_text_value(name));
}

struct chat_value chat_item(struct chat_run *run, struct chat_value from, struct chat_value key)
{
    struct chat_value none = {.kind = CHAT_UNDEFINED};
    none.string =
        key.kind == CHAT_STRING ? key.string : chat_string_of("an element behind the last");
    if (from.kind == CHAT_DICT) {
        const struct chat_value *value = chat_dict_get(run, from.dict, key);
        if (!value && key.kind == CHAT_STRING && !from.dict->changes)
            chat_mapping_method(key.string, &none);
        return value ? *value : absent(run, from.dict, key, none);
    }
    if (from.kind == CHAT_LOOP && key.kind == CHAT_STRING)
        return loop_member(run, from.loop, key.string);
    if (from.kind == CHAT_UNDEFINED)
        chat_fail(run, "%.*s is undefined: expected a mapping or a list there",
                  CHAT_SHOWN(from.string));
    bool numbered =
        from.kind == CHAT_STRING || (from.kind == CHAT_LIST && from.list->listing <= CHAT_RANGE);
    const struct chat_list *list = numbered && whole(key) ? chat_items(run, from) : NULL;
    int64_t at = list && key.integer < 0 ? key.integer + list->count : key.integer;
    if (from.open && list && (key.integer < 0 || at < list->count))
        chat_open_least(run, key.integer < 0 ? CHAT_OPEN_ALL : list->open_from + at + 1);
    return list && at >= 0 && at < list->count ? list->items[at] : none;
}

/* Python's bounds of a slice in count elements. */
static int64_t bound(struct chat_run *run, struct chat_value value, int64_t count,
                     int64_t otherwise, bool down)
{
    if (value.kind == CHAT_NONE)
        return otherwise;
    if (!whole(value))
        chat_fail(run, "a slice has %s: expected an integer", chat_kind_name(value));
    if (!whole(value))
        return 0;
    int64_t at = value.integer < 0 ? ls_max(value.integer, -count - 1) + count : value.integer;
    return ls_max(ls_min(at, count - down), down ? -1 : 0);
}

/* The messages from one on, of whose end nothing is said, are as open as they are. */
static void slice_open(struct chat_run *run, struct chat_value from, struct chat_value *out,
                       const struct chat_value bounds[3], int64_t first)
{
    bool open = (bounds[0].kind == CHAT_NONE || (whole(bounds[0]) && bounds[0].integer >= 0)) &&
                bounds[1].kind == CHAT_NONE && bounds[2].kind == CHAT_NONE;
    if (!open)
        chat_open_least(run, CHAT_OPEN_ALL);
    if (!open || run->status)
        return;
    out->open = true;
    out->list->open_from = from.list->open_from + first;
    out->list->open_next = run->open;
    run->open = out->list;
}

struct chat_value chat_slice(struct chat_run *run, struct chat_value from,
                             const struct chat_value bounds[3])
{
    if (from.kind != CHAT_LIST && from.kind != CHAT_STRING) {
        chat_fail(run, "%s cannot be sliced", chat_kind_name(from));
        return (struct chat_value){0};
    }
    if (from.kind == CHAT_LIST && from.list->listing > CHAT_RANGE)
        chat_no_list(run, "cannot be sliced");
    const struct chat_list *list = chat_items(run, from);
    int64_t count = list ? list->count : 0;
    int64_t step = bounds[2].kind == CHAT_NONE ? 1 : whole(bounds[2]) ? bounds[2].integer : 0;
    if (step == 0 || step == INT64_MIN)
        chat_fail(run, "the step of a slice: expected an integer other than 0");
    bool down = step < 0;
    int64_t first = bound(run, bounds[0], count, down ? count - 1 : 0, down);
    int64_t end = bound(run, bounds[1], count, down ? -1 : count, down);
    struct chat_value out = chat_list_new(run);
    struct chat_output text = {0};
    if (from.kind == CHAT_LIST)
        chat_listed(run, out, from.list->listing);
    for (int64_t i = first; !run->status && (down ? i > end : i < end);) {
        if (from.kind == CHAT_LIST)
            chat_list_add(run, out, list->items[i]);
        else
            chat_put(run, &text, list->items[i].string);
        if (step > count || step < -count)
            break;
        i += step;
    }
    if (from.open)
        slice_open(run, from, &out, bounds, first);
    if (from.kind == CHAT_STRING)
        return chat_text_value(chat_written(&text));
    return out;
}

/* ---- arithmetic ----------------------------------------------------------------------------- */

static struct chat_value wholes(struct chat_run *run, enum chat_op op, int64_t a, int64_t b)
{
    int64_t out = 0;
    bool over = false;
    if ((op == CHAT_FLOOR || op == CHAT_MODULO) && b == 0) {
        chat_fail(run, "a division by zero");
        return (struct chat_value){0};
    }
    if (op == CHAT_ADD)
        over = __builtin_add_overflow(a, b, &out);
    else if (op == CHAT_SUBTRACT)
        over = __builtin_sub_overflow(a, b, &out);
    else if (op == CHAT_MULTIPLY)
        over = __builtin_mul_overflow(a, b, &out);
    else if (b == -1)
        over = op == CHAT_FLOOR && __builtin_sub_overflow(0, a, &out);
    else if (op == CHAT_FLOOR)
        out = a / b - (a % b != 0 && (a < 0) != (b < 0));
    else
        out = a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0);
    if (over)
        chat_fail(run, "an integer that does not fit 64 bits");
    return chat_int_value(out);
}

/* Python's a // b, and in *rest a % b, whose sign is that of b: as in its float_divmod. */
static double floored(double a, double b, double *rest)
{
    *rest = fmod(a, b);
    double quotient = (a - *rest) / b;
    if (*rest == 0) {
        *rest = copysign(0, b);
    } else if ((b < 0) != (*rest < 0)) {
        *rest += b;
        quotient -= 1;
    }
    if (quotient == 0)
        return copysign(0, a / b);
    double down = floor(quotient);
    return quotient - down > 0.5 ? down + 1 : down;
}

static struct chat_value reals(struct chat_run *run, enum chat_op op, double a, double b)
{
    double rest, down = floored(a, b, &rest);
    if (op != CHAT_ADD && op != CHAT_SUBTRACT && op != CHAT_MULTIPLY && b == 0)
        chat_fail(run, "a division by zero");
    double out = op == CHAT_ADD        ? a + b
                 : op == CHAT_SUBTRACT ? a - b
                 : op == CHAT_MULTIPLY ? a * b
                 : op == CHAT_DIVIDE   ? a / b
                 : op == CHAT_FLOOR    ? down
                                       : rest;
    return (struct chat_value){.kind = CHAT_FLOAT, .real = out};
}

/* A float would lose digits of it. */
static bool is_long(struct chat_value integer)
{
    return integer.integer > (int64_t)1 << 53 || integer.integer < -((int64_t)1 << 53);
}

static struct chat_value joined(struct chat_run *run, struct chat_string a, struct chat_string b)
{
    struct chat_output text = {0};
    chat_put(run, &text, a);
    chat_put(run, &text, b);
    return chat_text_value(chat_written(&text));
}

static struct chat_value repeated(struct chat_run *run, struct chat_string text, int64_t times)
{
    struct chat_output out = {0};
    for (int64_t i = 0; i < times && text.count > 0 && !run->status; i++)
        chat_put(run, &out, text);
    return chat_text_value(chat_written(&out));
}

struct chat_value chat_binary(struct chat_run *run, enum chat_op op, struct chat_value a,
                              struct chat_value b)
{
    double x, y;
    if (op == CHAT_CONCATENATE)
        return joined(run, chat_text_of(run, a), chat_text_of(run, b));
    if (whole(a) && whole(b) && op != CHAT_DIVIDE)
        return wholes(run, op, a.integer, b.integer);
    if (whole(a) && whole(b) && (is_long(a) || is_long(b)))
        chat_fail(run, "/ of an integer of more than 53 bits is not supported: expected //");
    if (number(a, &x) && number(b, &y))
        return reals(run, op, x, y);
    if (op == CHAT_ADD && a.kind == CHAT_STRING && b.kind == CHAT_STRING) {
        if (a.safe != b.safe)
            chat_fail(run, "+ beside what |safe gave, which escapes the other string, is not "
                           "supported: expected ~");
        return joined(run, a.string, b.string);
    }
    if (op == CHAT_MULTIPLY && a.kind == CHAT_STRING && whole(b))
        return repeated(run, a.string, b.integer);
    if (op == CHAT_MULTIPLY && whole(a) && b.kind == CHAT_STRING)
        return repeated(run, b.string, a.integer);
    if (op == CHAT_ADD && a.kind == CHAT_LIST && b.kind == CHAT_LIST &&
        a.list->listing == b.list->listing && a.list->listing <= CHAT_TUPLE) {
        struct chat_value out = chat_listed(run, chat_list_new(run), a.list->listing);
        for (int64_t i = 0; i < a.list->count + b.list->count && !run->status; i++)
            chat_list_add(run, out,
                          i < a.list->count ? a.list->items[i] : b.list->items[i - a.list->count]);
        return out;
    }
    static const char *const signs[] = {"+", "-", "*", "/", "//", "%"};
    const struct chat_value *missing = a.kind == CHAT_UNDEFINED   ? &a
                                       : b.kind == CHAT_UNDEFINED ? &b
                                                                  : NULL;
    if (missing)
        chat_fail(run, "%.*s is undefined", CHAT_SHOWN(missing->string));
    chat_fail(run, "%s cannot be used between two values, %s and %s", signs[op], chat_kind_name(a),
              chat_kind_name(b));
    return (struct chat_value){0};
}
