/* The expressions of a chat template. Each function parses one level of precedence, from a
 * conditional down to a literal, as Jinja has them. */
#include "chat/chat_private.h"

static struct chat_node *parse_unary(struct chat_parser *p, bool with_filters);

static struct chat_node *parse_over(struct chat_parser *p, enum chat_node_kind kind, size_t at,
                                    struct chat_node *first, struct chat_node *second)
{
    struct chat_node *node = chat_node_new(p, kind, at);
    if (!node)
        return NULL;
    node->first = first;
    node->second = second;
    chat_node_over(p, node, first);
    chat_node_over(p, node, second);
    return node;
}

static void fail_at_token(struct chat_parser *p, const char *what)
{
    const struct chat_token *token = &p->token;
    chat_parse_fail(p, token->at, "%s \"%.*s\" is not supported", what, CHAT_SHOWN(token->text));
}

/* One level deeper. */
static void nest(struct chat_parser *p, size_t at)
{
    if (++p->nesting > CHAT_NESTING_MAX)
        chat_parse_fail(p, at, "the expression is nested more than %d deep", CHAT_NESTING_MAX);
}

/* ---- lists ---------------------------------------------------------------------------------- */

static void append(struct chat_parser *p, struct chat_node *node, struct chat_node **last,
                   struct chat_node *item)
{
    if (!node || !item)
        return;
    if (*last)
        (*last)->next = item;
    else
        node->list = item;
    *last = item;
    chat_node_over(p, node, item);
}

/* [a, b] or (a, b), behind the bracket. */
static struct chat_node *parse_items(struct chat_parser *p, struct chat_node *node,
                                     struct chat_node *last, const char *close)
{
    while (!p->status && !chat_token_is(p, CHAT_SIGN, close)) {
        append(p, node, &last, chat_parse_expression(p));
        if (!chat_token_take(p, CHAT_SIGN, ","))
            break;
    }
    chat_token_expect(p, CHAT_SIGN, close);
    return node;
}

static struct chat_node *parse_dict(struct chat_parser *p, size_t at)
{
    struct chat_node *node = chat_node_new(p, CHAT_MAKE_DICT, at), *last = NULL;
    while (!p->status && !chat_token_is(p, CHAT_SIGN, "}")) {
        append(p, node, &last, chat_parse_expression(p));
        chat_token_expect(p, CHAT_SIGN, ":");
        append(p, node, &last, chat_parse_expression(p));
        if (!chat_token_take(p, CHAT_SIGN, ","))
            break;
    }
    chat_token_expect(p, CHAT_SIGN, "}");
    return node;
}

/* (a), (), (a, b), behind the bracket. */
static struct chat_node *parse_brackets(struct chat_parser *p, size_t at)
{
    struct chat_node *first = chat_token_is(p, CHAT_SIGN, ")") ? NULL : chat_parse_expression(p);
    if (first && !chat_token_is(p, CHAT_SIGN, ",")) {
        chat_token_expect(p, CHAT_SIGN, ")");
        return first;
    }
    struct chat_node *node = chat_node_new(p, CHAT_MAKE_TUPLE, at), *last = NULL;
    append(p, node, &last, first);
    chat_token_take(p, CHAT_SIGN, ",");
    return parse_items(p, node, last, ")");
}

/* The arguments of a call, behind "(": node's list. */
static void parse_arguments(struct chat_parser *p, struct chat_node *node)
{
    struct chat_node *last = NULL;
    int count = 0;
    while (!p->status && !chat_token_is(p, CHAT_SIGN, ")")) {
        struct chat_string keyword = {0};
        if (chat_token_is(p, CHAT_SIGN, "*") || chat_token_is(p, CHAT_SIGN, "**"))
            fail_at_token(p, "an argument that begins with");
        struct chat_node *item = chat_parse_expression(p);
        if (item && item->kind == CHAT_NAME && chat_token_take(p, CHAT_SIGN, "=")) {
            keyword = item->text;
            item = chat_parse_expression(p);
        } else if (last && last->keyword.count) {
            chat_parse_fail(p, p->token.at, "an argument without a name behind one with a name");
        }
        if (++count > CHAT_ARGUMENTS_MAX)
            chat_parse_fail(p, p->token.at, "more than %d arguments", CHAT_ARGUMENTS_MAX);
        append(p, node, &last, item);
        if (last)
            last->keyword = keyword;
        if (!chat_token_take(p, CHAT_SIGN, ","))
            break;
    }
    chat_token_expect(p, CHAT_SIGN, ")");
}

/* ---- literals and names --------------------------------------------------------------------- */

static struct chat_node *parse_literal(struct chat_parser *p, struct chat_value value)
{
    struct chat_node *node = chat_node_new(p, CHAT_LITERAL, p->token.at);
    if (node)
        node->value = value;
    chat_token_next(p);
    return node;
}

/* Strings beside each other are one. */
static struct chat_node *parse_strings(struct chat_parser *p)
{
    struct chat_string all = p->token.value.string;
    struct chat_node *node = parse_literal(p, p->token.value);
    while (node && chat_token_is(p, CHAT_STRING_TOKEN, NULL)) {
        struct chat_string more = p->token.value.string;
        char *bytes = chat_arena_take(&p->t->arena, all.count + more.count + 1);
        if (!bytes) {
            chat_parse_fail(p, node->at, "no memory for the template");
            return NULL;
        }
        memcpy(bytes, all.bytes, all.count);
        memcpy(bytes + all.count, more.bytes, more.count);
        all = (struct chat_string){bytes, all.count + more.count};
        node->value = chat_text_value(all);
        chat_token_next(p);
    }
    return node;
}

/* Jinja gives macros variables of its own. */
static void macro_name_check(struct chat_parser *p)
{
    static const char *const names[] = {"varargs", "kwargs", "caller"};
    bool own = false, parameter = false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        own |= chat_token_is(p, CHAT_WORD, names[i]);
    for (const struct chat_node *each = p->macro ? p->macro->second : NULL; each; each = each->next)
        parameter |= chat_same(each->text, p->token.text);
    if (p->macro && own && !parameter)
        fail_at_token(p, "a macro's variable");
}

static struct chat_node *parse_name(struct chat_parser *p)
{
    static const struct {
        const char *name;
        enum chat_kind kind;
        int64_t value;
    } words[] = {{"true", CHAT_BOOL, 1},  {"True", CHAT_BOOL, 1}, {"false", CHAT_BOOL, 0},
                 {"False", CHAT_BOOL, 0}, {"none", CHAT_NONE, 0}, {"None", CHAT_NONE, 0}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (chat_token_is(p, CHAT_WORD, words[i].name))
            return parse_literal(
                p, (struct chat_value){.kind = words[i].kind, .integer = words[i].value});
    macro_name_check(p);
    struct chat_node *node = chat_node_new(p, CHAT_NAME, p->token.at);
    if (node)
        node->text = p->token.text;
    chat_token_next(p);
    return node;
}

static struct chat_node *parse_primary(struct chat_parser *p)
{
    size_t at = p->token.at;
    if (chat_token_is(p, CHAT_WORD, NULL))
        return parse_name(p);
    if (chat_token_is(p, CHAT_STRING_TOKEN, NULL))
        return parse_strings(p);
    if (chat_token_is(p, CHAT_NUMBER, NULL))
        return parse_literal(p, p->token.value);
    if (chat_token_take(p, CHAT_SIGN, "("))
        return parse_brackets(p, at);
    if (chat_token_take(p, CHAT_SIGN, "["))
        return parse_items(p, chat_node_new(p, CHAT_MAKE_LIST, at), NULL, "]");
    if (chat_token_take(p, CHAT_SIGN, "{"))
        return parse_dict(p, at);
    chat_token_expect(p, CHAT_WORD, "an expression");
    return NULL;
}

/* ---- behind a value ------------------------------------------------------------------------- */

static struct chat_node *parse_none(struct chat_parser *p)
{
    struct chat_node *node = chat_node_new(p, CHAT_LITERAL, p->token.at);
    if (node)
        node->value = (struct chat_value){.kind = CHAT_NONE};
    return node;
}

/* a[b], a[b:c:d], behind "[". */
static struct chat_node *parse_subscript(struct chat_parser *p, struct chat_node *from, size_t at)
{
    struct chat_node *bounds[3] = {NULL, NULL, NULL};
    int colons = 0;
    while (!p->status && !chat_token_is(p, CHAT_SIGN, "]")) {
        if (chat_token_is(p, CHAT_SIGN, ":") && colons < 2) {
            chat_token_next(p);
            colons++;
        } else if (bounds[colons]) {
            chat_token_expect(p, CHAT_SIGN, "]");
        } else {
            bounds[colons] = chat_parse_expression(p);
        }
    }
    chat_token_expect(p, CHAT_SIGN, "]");
    if (colons == 0) {
        if (!bounds[0])
            chat_parse_fail(p, at, "expected an index within the brackets");
        return parse_over(p, CHAT_ITEM, at, from, bounds[0]);
    }
    struct chat_node *node = parse_over(p, CHAT_SLICE, at, from, NULL), *last = NULL;
    for (int i = 0; i < 3; i++)
        append(p, node, &last, bounds[i] ? bounds[i] : parse_none(p));
    return node;
}

/* a.b, a.b(c), a.0, behind ".". */
static struct chat_node *parse_member(struct chat_parser *p, struct chat_node *from, size_t at)
{
    if (chat_token_is(p, CHAT_NUMBER, NULL))
        return parse_over(p, CHAT_ITEM, at, from, parse_literal(p, p->token.value));
    struct chat_token name = p->token;
    chat_token_expect(p, CHAT_WORD, NULL);
    bool call = chat_token_take(p, CHAT_SIGN, "(");
    struct chat_node *node = parse_over(p, call ? CHAT_METHOD : CHAT_ATTRIBUTE, at, from, NULL);
    if (!node)
        return NULL;
    node->text = name.text;
    node->method = chat_mapping_method(name.text, &node->value);
    if (call && !chat_method_known(name.text)) {
        p->token = name;
        fail_at_token(p, "the method");
    }
    if (call)
        parse_arguments(p, node);
    return node;
}

static struct chat_node *parse_postfix(struct chat_parser *p, struct chat_node *node)
{
    while (!p->status) {
        size_t at = p->token.at;
        if (chat_token_take(p, CHAT_SIGN, ".")) {
            node = parse_member(p, node, at);
        } else if (chat_token_take(p, CHAT_SIGN, "[")) {
            node = parse_subscript(p, node, at);
        } else if (node && node->kind == CHAT_NAME && chat_token_take(p, CHAT_SIGN, "(")) {
            node->kind = CHAT_CALL;
            parse_arguments(p, node);
        } else if (chat_token_is(p, CHAT_SIGN, "(")) {
            chat_parse_fail(p, at, "a call of something that has no name is not supported");
        } else {
            break;
        }
    }
    return node;
}

/* a|b, a|b(c), behind "|". */
static struct chat_node *parse_filter(struct chat_parser *p, struct chat_node *from)
{
    const struct chat_builtin *filter = chat_filter_find(p->token.text);
    if (chat_token_is(p, CHAT_WORD, NULL) && !filter)
        fail_at_token(p, "the filter");
    struct chat_node *node = parse_over(p, CHAT_FILTER, p->token.at, from, NULL);
    if (node) {
        node->function = filter;
        node->text = p->token.text;
    }
    chat_token_expect(p, CHAT_WORD, NULL);
    if (chat_token_take(p, CHAT_SIGN, "("))
        parse_arguments(p, node);
    return node;
}

/* a is b, a is not b(c), a is b c, behind "is". */
static struct chat_node *parse_test(struct chat_parser *p, struct chat_node *from)
{
    static const char *const behind[] = {"else", "or", "and", "if", "is", "in", "not"};
    size_t at = p->token.at;
    bool inverse = chat_token_take(p, CHAT_WORD, "not");
    const struct chat_builtin *test = chat_test_find(p->token.text);
    if (chat_token_is(p, CHAT_WORD, NULL) && !test)
        fail_at_token(p, "the test");
    struct chat_node *node = parse_over(p, CHAT_TEST, at, from, NULL), *last = NULL;
    if (node) {
        node->function = test;
        node->text = p->token.text;
    }
    chat_token_expect(p, CHAT_WORD, NULL);
    bool word = chat_token_is(p, CHAT_WORD, NULL);
    for (int i = 0; i < 7; i++)
        word &= !chat_token_is(p, CHAT_WORD, behind[i]);
    if (chat_token_take(p, CHAT_SIGN, "("))
        parse_arguments(p, node);
    else if (word || chat_token_is(p, CHAT_STRING_TOKEN, NULL) ||
             chat_token_is(p, CHAT_NUMBER, NULL) || chat_token_is(p, CHAT_SIGN, "[") ||
             chat_token_is(p, CHAT_SIGN, "{"))
        append(p, node, &last, parse_postfix(p, parse_primary(p)));
    return inverse ? parse_over(p, CHAT_NOT, at, node, NULL) : node;
}

static struct chat_node *parse_filters(struct chat_parser *p, struct chat_node *node)
{
    while (!p->status)
        if (chat_token_take(p, CHAT_SIGN, "|"))
            node = parse_filter(p, node);
        else if (chat_token_take(p, CHAT_WORD, "is"))
            node = parse_test(p, node);
        else
            break;
    return node;
}

/* ---- operators ------------------------------------------------------------------------------ */

static struct chat_node *parse_unary(struct chat_parser *p, bool with_filters)
{
    size_t at = p->token.at;
    struct chat_node *node;
    nest(p, at);
    if (chat_token_take(p, CHAT_SIGN, "-"))
        node = parse_over(p, CHAT_MINUS, at, parse_unary(p, false), NULL);
    else if (chat_token_take(p, CHAT_SIGN, "+"))
        node = parse_over(p, CHAT_PLUS, at, parse_unary(p, false), NULL);
    else
        node = parse_primary(p);
    node = parse_postfix(p, node);
    p->nesting--;
    return with_filters ? parse_filters(p, node) : node;
}

struct operator_sign {
    const char *text;
    enum chat_op op;
};

/* a op b op c, of operators of one level; `below` parses what stands between. */
static struct chat_node *parse_chain(struct chat_parser *p, const struct operator_sign *signs,
                                     struct chat_node *(*below)(struct chat_parser *))
{
    struct chat_node *node = below(p);
    for (int i = 0; signs[i].text && !p->status;) {
        size_t at = p->token.at;
        if (!chat_token_take(p, CHAT_SIGN, signs[i].text)) {
            i++;
            continue;
        }
        node = parse_over(p, CHAT_BINARY, at, node, below(p));
        if (node)
            node->op = signs[i].op;
        i = 0;
    }
    return node;
}

static struct chat_node *parse_power(struct chat_parser *p)
{
    struct chat_node *node = parse_unary(p, true);
    if (chat_token_is(p, CHAT_SIGN, "**"))
        fail_at_token(p, "the operator");
    return node;
}

static struct chat_node *parse_product(struct chat_parser *p)
{
    static const struct operator_sign signs[] = {
        {"*", CHAT_MULTIPLY}, {"/", CHAT_DIVIDE}, {"//", CHAT_FLOOR}, {"%", CHAT_MODULO}, {0}};
    return parse_chain(p, signs, parse_power);
}

static struct chat_node *parse_concatenation(struct chat_parser *p)
{
    static const struct operator_sign signs[] = {{"~", CHAT_CONCATENATE}, {0}};
    return parse_chain(p, signs, parse_product);
}

static struct chat_node *parse_sum(struct chat_parser *p)
{
    static const struct operator_sign signs[] = {{"+", CHAT_ADD}, {"-", CHAT_SUBTRACT}, {0}};
    return parse_chain(p, signs, parse_concatenation);
}

/* The comparison at the token, which is passed; false if there is none. */
static bool comparison_take(struct chat_parser *p, enum chat_op *op)
{
    static const struct operator_sign signs[] = {{"==", CHAT_EQUAL}, {"!=", CHAT_UNEQUAL},
                                                 {"<", CHAT_LESS},   {"<=", CHAT_LESS_EQUAL},
                                                 {">", CHAT_MORE},   {">=", CHAT_MORE_EQUAL}};
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        if (chat_token_take(p, CHAT_SIGN, signs[i].text)) {
            *op = signs[i].op;
            return true;
        }
    *op = chat_token_is(p, CHAT_WORD, "not") ? CHAT_NOT_IN : CHAT_IN;
    if (*op == CHAT_NOT_IN) { /* "not in": nothing else may follow a value */
        chat_token_next(p);
        chat_token_expect(p, CHAT_WORD, "in");
        return !p->status;
    }
    return chat_token_take(p, CHAT_WORD, "in");
}

static struct chat_node *parse_comparison(struct chat_parser *p)
{
    struct chat_node *first = parse_sum(p), *node = NULL, *last = NULL;
    enum chat_op op;
    for (size_t at = p->token.at; !p->status && comparison_take(p, &op); at = p->token.at) {
        if (!node)
            node = parse_over(p, CHAT_COMPARE, at, first, NULL);
        struct chat_node *operand = parse_over(p, CHAT_OPERAND, at, parse_sum(p), NULL);
        if (operand)
            operand->op = op;
        append(p, node, &last, operand);
    }
    return node ? node : first;
}

static struct chat_node *parse_not(struct chat_parser *p)
{
    size_t at = p->token.at;
    if (!chat_token_take(p, CHAT_WORD, "not"))
        return parse_comparison(p);
    nest(p, at);
    struct chat_node *node = parse_over(p, CHAT_NOT, at, parse_not(p), NULL);
    p->nesting--;
    return node;
}

static struct chat_node *parse_and(struct chat_parser *p)
{
    struct chat_node *node = parse_not(p);
    for (size_t at = p->token.at; chat_token_take(p, CHAT_WORD, "and"); at = p->token.at)
        node = parse_over(p, CHAT_AND, at, node, parse_not(p));
    return node;
}

struct chat_node *chat_parse_alternative(struct chat_parser *p)
{
    struct chat_node *node = parse_and(p);
    for (size_t at = p->token.at; chat_token_take(p, CHAT_WORD, "or"); at = p->token.at)
        node = parse_over(p, CHAT_OR, at, node, parse_and(p));
    return node;
}

struct chat_node *chat_parse_expression(struct chat_parser *p)
{
    nest(p, p->token.at);
    struct chat_node *node = chat_parse_alternative(p);
    for (size_t at = p->token.at; chat_token_take(p, CHAT_WORD, "if"); at = p->token.at) {
        node = parse_over(p, CHAT_TERNARY, at, node, chat_parse_alternative(p));
        struct chat_node *other =
            chat_token_take(p, CHAT_WORD, "else") ? chat_parse_expression(p) : NULL;
        if (node)
            node->third = other;
        chat_node_over(p, node, other);
    }
    p->nesting--;
    return node;
}

struct chat_node *chat_parse_tuple(struct chat_parser *p)
{
    size_t at = p->token.at;
    struct chat_node *first = chat_parse_expression(p), *last = NULL;
    if (!chat_token_is(p, CHAT_SIGN, ","))
        return first;
    struct chat_node *node = chat_node_new(p, CHAT_MAKE_TUPLE, at);
    append(p, node, &last, first);
    while (chat_token_take(p, CHAT_SIGN, ",") && p->token.kind != CHAT_END_TAG)
        append(p, node, &last, chat_parse_expression(p));
    return node;
}
