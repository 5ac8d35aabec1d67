/* The value of an expression of a chat template. */
#include "chat/chat_private.h"

static struct chat_value undefined(struct chat_string name)
{
    return (struct chat_value){.kind = CHAT_UNDEFINED, .string = name};
}

static struct chat_value name_value(struct chat_run *run, struct chat_string name)
{
    for (struct chat_scope *scope = run->scope; scope && !run->status; scope = scope->outer) {
        const struct chat_value *value = chat_dict_named(run, &scope->variables, name);
        if (value)
            return *value;
    }
    if (chat_function_known(run->t, name))
        return (struct chat_value){.kind = CHAT_CALLABLE, .string = name};
    return undefined(name);
}

static void arguments_read(struct chat_run *run, const struct chat_node *node,
                           struct chat_arguments *arguments)
{
    arguments->count = arguments->positional = 0;
    for (const struct chat_node *each = node->list; each && !run->status; each = each->next) {
        int i = arguments->count++;
        arguments->keyword[i] = each->keyword;
        arguments->value[i] = chat_evaluate(run, each);
        arguments->positional += each->keyword.count == 0;
    }
}

static struct chat_value made(struct chat_run *run, const struct chat_node *node)
{
    struct chat_value out = node->kind == CHAT_MAKE_DICT ? chat_dict_new(run) : chat_list_new(run);
    if (run->status)
        return out;
    if (node->kind != CHAT_MAKE_DICT)
        out.list->listing = node->kind == CHAT_MAKE_TUPLE ? CHAT_TUPLE : CHAT_ARRAY;
    for (const struct chat_node *each = node->list; each && !run->status; each = each->next) {
        struct chat_value value = chat_evaluate(run, each);
        if (node->kind != CHAT_MAKE_DICT) {
            chat_list_add(run, out, value);
            continue;
        }
        each = each->next;
        chat_dict_set(run, out.dict, value, chat_evaluate(run, each));
    }
    return out;
}

static bool compared(struct chat_run *run, enum chat_op op, const struct chat_value sides[2])
{
    const struct chat_value *a = &sides[0], *b = &sides[1];
    if (!chat_spend_operands(run, sides, 2))
        return false;
    switch (op) {
    case CHAT_EQUAL:
        return chat_equal(run, a, b);
    case CHAT_UNEQUAL:
        return !chat_equal(run, a, b);
    case CHAT_IN:
        return chat_contains(run, *b, *a);
    case CHAT_NOT_IN:
        return !chat_contains(run, *b, *a);
    case CHAT_LESS:
        return chat_order(run, *a, *b) < 0;
    case CHAT_LESS_EQUAL:
        return chat_order(run, *a, *b) <= 0;
    case CHAT_MORE:
        return chat_order(run, *a, *b) > 0;
    default:
        return chat_order(run, *a, *b) >= 0;
    }
}

/* A list that is longer than a number stays so with every element more. */
static void sides_close(struct chat_run *run, struct chat_value sides[2])
{
    for (int i = 0; i < 2; i++) {
        struct chat_value *length = &sides[i], *other = &sides[!i];
        if (length->open && length->kind == CHAT_INT && other->kind == CHAT_INT && !other->open &&
            length->integer > other->integer) {
            chat_open_least(run, length->length_from + ls_max(other->integer, -1) + 1);
            length->open = false;
        }
    }
    for (int i = 0; i < 2; i++)
        sides[i] = chat_closed(run, sides[i]);
}

/* a < b < c: as a < b and b < c. */
static struct chat_value comparison(struct chat_run *run, const struct chat_node *node)
{
    struct chat_value last = chat_evaluate_open(run, node->first);
    bool holds = true;
    for (const struct chat_node *each = node->list; each && holds && !run->status;
         each = each->next) {
        struct chat_value sides[2] = {last, chat_evaluate_open(run, each->first)};
        last = sides[1];
        sides_close(run, sides);
        run->at = each->at;
        holds = compared(run, each->op, sides);
    }
    return chat_bool_value(holds);
}

static struct chat_value length_of(struct chat_run *run, const struct chat_node *node)
{
    const struct chat_arguments none = {0};
    struct chat_value self = chat_evaluate_open(run, node->first);
    const bool open = self.open && self.kind == CHAT_LIST;
    if (!open)
        self = chat_closed(run, self);
    run->at = node->at;
    if (run->status || !chat_spend_operands(run, &self, 1))
        return self;
    struct chat_value length = chat_builtin_call(run, node->function, self, &none);
    if (open && !run->status) {
        length.open = true;
        length.length_from = self.list->open_from;
    }
    return length;
}

/* `is defined` and the filter `default` are asked of what may be undefined; every other filter,
 * test and method takes it as a value too. */
static struct chat_value called(struct chat_run *run, const struct chat_node *node)
{
    struct chat_arguments arguments;
    struct chat_value self = {0};
    if (node->kind == CHAT_FILTER && chat_filter_counts(node->function))
        return length_of(run, node);
    if (node->kind != CHAT_CALL)
        self = chat_evaluate(run, node->first);
    arguments_read(run, node, &arguments);
    run->at = node->at;
    if (run->status || !chat_spend_operands(run, &self, 1) ||
        !chat_spend_operands(run, arguments.value, arguments.count))
        return self;
    struct chat_value function = {0};
    if (node->kind == CHAT_CALL)
        function = name_value(run, node->text);
    if (function.kind == CHAT_MACRO_VALUE)
        return chat_macro_call(run, function.macro, &arguments);
    if (node->kind == CHAT_CALL)
        return chat_call_function(run, node->text, &arguments);
    if (node->kind == CHAT_METHOD)
        return chat_call_method(run, self, node->text, &arguments);
    return chat_builtin_call(run, node->function, self, &arguments);
}

static struct chat_value part(struct chat_run *run, const struct chat_node *node)
{
    struct chat_value from = chat_evaluate_open(run, node->first), bounds[3];
    int i = 0;
    if (from.kind == CHAT_STRING && !chat_spend_operands(run, &from, 1))
        return from;
    if (node->kind == CHAT_ATTRIBUTE) {
        run->at = node->at;
        return run->status ? from : chat_attribute(run, &from, node);
    }
    if (node->kind == CHAT_ITEM) {
        struct chat_value key = chat_evaluate(run, node->second);
        run->at = node->at;
        return run->status ? from : chat_item(run, from, key);
    }
    for (const struct chat_node *each = node->list; each && i < 3; each = each->next)
        bounds[i++] = chat_evaluate(run, each);
    run->at = node->at;
    return run->status ? from : chat_slice(run, from, bounds);
}

static struct chat_value signed_value(struct chat_run *run, const struct chat_node *node)
{
    struct chat_value value = chat_evaluate(run, node->first);
    const bool minus = node->kind == CHAT_MINUS;
    run->at = node->at;
    if (run->status)
        return value;
    if (value.kind == CHAT_FLOAT) { /* 0 - 0.0 is not -0.0 */
        value.real = minus ? -value.real : value.real;
        return value;
    }
    return chat_binary(run, minus ? CHAT_SUBTRACT : CHAT_ADD, chat_int_value(0), value);
}

static struct chat_value operation(struct chat_run *run, const struct chat_node *node)
{
    struct chat_value a = chat_evaluate(run, node->first);
    struct chat_value b = chat_evaluate(run, node->second);
    run->at = node->at;
    if (run->status || !chat_spend_operands(run, (struct chat_value[]){a, b}, 2))
        return a;
    return chat_binary(run, node->op, a, b);
}

struct chat_value chat_closed(struct chat_run *run, struct chat_value value)
{
    if (value.open || value.kind == CHAT_LOOP) {
        chat_open_least(run, CHAT_OPEN_ALL);
        value.open = false;
    }
    return value;
}

struct chat_value chat_evaluate(struct chat_run *run, const struct chat_node *node)
{
    return chat_closed(run, chat_evaluate_open(run, node));
}

static bool holds(struct chat_run *run, struct chat_value value)
{
    const bool list = value.kind == CHAT_LIST;
    if (!value.open || (list ? value.list->count : value.integer) == 0)
        return chat_true(chat_closed(run, value));
    chat_open_least(run, (list ? value.list->open_from : value.length_from) + 1);
    return true;
}

bool chat_holds(struct chat_run *run, const struct chat_node *node)
{
    return holds(run, chat_evaluate_open(run, node));
}

struct chat_value chat_evaluate_open(struct chat_run *run, const struct chat_node *node)
{
    struct chat_value value;
    run->at = node->at;
    if (!chat_spend(run, 1))
        return (struct chat_value){.kind = CHAT_UNDEFINED};
    switch (node->kind) {
    case CHAT_LITERAL:
        return node->value;
    case CHAT_NAME:
        return name_value(run, node->text);
    case CHAT_MAKE_LIST:
    case CHAT_MAKE_TUPLE:
    case CHAT_MAKE_DICT:
        return made(run, node);
    case CHAT_ATTRIBUTE:
    case CHAT_ITEM:
    case CHAT_SLICE:
        return part(run, node);
    case CHAT_NOT:
        return chat_bool_value(!chat_holds(run, node->first));
    case CHAT_MINUS:
    case CHAT_PLUS:
        return signed_value(run, node);
    case CHAT_AND:
    case CHAT_OR:
        value = chat_evaluate_open(run, node->first);
        return holds(run, value) == (node->kind == CHAT_AND) ? chat_evaluate(run, node->second)
                                                             : chat_closed(run, value);
    case CHAT_COMPARE:
        return comparison(run, node);
    case CHAT_BINARY:
        return operation(run, node);
    case CHAT_TERNARY:
        if (chat_holds(run, node->second))
            return chat_evaluate_open(run, node->first);
        return node->third ? chat_evaluate_open(run, node->third)
                           : undefined(chat_string_of("a condition without \"else\""));
    default:
        return called(run, node);
    }
}
