/* The statements of a chat template: texts, outputs, if, for, set, macro, generation, break,
 * continue. */
#include "chat/chat_private.h"

struct chat_node *chat_node_new(struct chat_parser *p, enum chat_node_kind kind, size_t at)
{
    struct chat_node *node = p->status ? NULL : chat_arena_take(&p->t->arena, sizeof *node);
    if (!node) {
        chat_parse_fail(p, at, "no memory for the template");
        return NULL;
    }
    *node = (struct chat_node){.kind = kind, .at = at, .depth = 1};
    return node;
}

void chat_node_over(struct chat_parser *p, struct chat_node *node, const struct chat_node *below)
{
    if (!node || !below)
        return;
    node->depth = node->depth > below->depth ? node->depth : below->depth + 1;
    if (node->depth > CHAT_DEPTH_MAX)
        chat_parse_fail(p, node->at, "the template is nested more than %d deep", CHAT_DEPTH_MAX);
}

/* ---- tags ----------------------------------------------------------------------------------- */

static struct chat_node *parse_body(struct chat_parser *p, const char *const *ends,
                                    const char *opened, size_t at);

/* The statement's name was read; behind it `{% end... %}` was not. */
static void block_end(struct chat_parser *p)
{
    chat_token_expect(p, CHAT_WORD, NULL); /* parse_body found that it is the right one */
}

static void tag_end(struct chat_parser *p)
{
    if (!p->status && p->token.kind != CHAT_END_TAG)
        chat_token_expect(p, CHAT_END_TAG, NULL);
}

static void body_into(struct chat_parser *p, struct chat_node *node, const char *const *ends,
                      const char *opened)
{
    struct chat_node *list = parse_body(p, ends, opened, node ? node->at : 0);
    if (!node)
        return;
    node->list = list;
    for (const struct chat_node *each = list; each; each = each->next)
        chat_node_over(p, node, each);
}

static struct chat_node *parse_if(struct chat_parser *p, size_t at)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    static const char *const last[] = {"endif", NULL};
    struct chat_node *node = chat_node_new(p, CHAT_IF, at), **tail = node ? &node->list : NULL;
    for (bool more = true, other = false; more && !p->status;) {
        struct chat_node *branch = chat_node_new(p, CHAT_BRANCH, at);
        if (!branch)
            return NULL;
        branch->first = other ? NULL : chat_parse_tuple(p);
        chat_node_over(p, branch, branch->first);
        tag_end(p);
        body_into(p, branch, other ? last : ends, "if");
        *tail = branch;
        tail = &branch->next;
        chat_node_over(p, node, branch);
        other = chat_token_is(p, CHAT_WORD, "else");
        more = other || chat_token_is(p, CHAT_WORD, "elif");
        block_end(p);
    }
    tag_end(p);
    return node;
}

/* a, or a, b, or (a, b) */
static void parse_names(struct chat_parser *p, struct chat_node *node)
{
    bool bracket = chat_token_take(p, CHAT_SIGN, "(");
    do {
        if (node && node->names_count < CHAT_NAMES_MAX)
            node->names[node->names_count++] = p->token.text;
        else
            chat_parse_fail(p, p->token.at, "more than %d names", CHAT_NAMES_MAX);
        chat_token_expect(p, CHAT_WORD, NULL);
    } while (chat_token_take(p, CHAT_SIGN, ",") && chat_token_is(p, CHAT_WORD, NULL));
    if (bracket)
        chat_token_expect(p, CHAT_SIGN, ")");
}

static struct chat_node *parse_for(struct chat_parser *p, size_t at)
{
    static const char *const ends[] = {"else", "endfor", NULL}, *const last[] = {"endfor", NULL};
    struct chat_node *node = chat_node_new(p, CHAT_FOR, at);
    parse_names(p, node);
    chat_token_expect(p, CHAT_WORD, "in");
    struct chat_node *over = chat_parse_alternative(p), *only = NULL;
    if (chat_token_take(p, CHAT_WORD, "if"))
        only = chat_parse_expression(p);
    if (chat_token_is(p, CHAT_WORD, "recursive"))
        chat_parse_fail(p, p->token.at, "\"recursive\" is not supported");
    tag_end(p);
    p->scopes++;
    p->loops++;
    body_into(p, node, ends, "for");
    p->loops--;
    struct chat_node *other = NULL;
    if (chat_token_is(p, CHAT_WORD, "else")) {
        block_end(p);
        tag_end(p);
        other = chat_node_new(p, CHAT_BRANCH, p->token.at);
        body_into(p, other, last, "for");
    }
    p->scopes--;
    block_end(p);
    tag_end(p);
    if (!node || p->status)
        return NULL;
    node->first = over;
    node->second = only;
    node->third = other;
    chat_node_over(p, node, over);
    chat_node_over(p, node, only);
    chat_node_over(p, node, other);
    return node;
}

/* What a tag ends with, the node's first part. */
static struct chat_node *value_into(struct chat_parser *p, struct chat_node *node)
{
    struct chat_node *value = chat_parse_tuple(p);
    tag_end(p);
    if (node)
        node->first = value;
    chat_node_over(p, node, value);
    return node;
}

/* A body with names of its own, up to its end tag. */
static struct chat_node *scope_into(struct chat_parser *p, struct chat_node *node,
                                    const char *const *ends, const char *tag)
{
    tag_end(p);
    p->scopes++;
    body_into(p, node, ends, tag);
    p->scopes--;
    block_end(p);
    tag_end(p);
    return node;
}

static struct chat_node *parse_set(struct chat_parser *p, size_t at)
{
    static const char *const ends[] = {"endset", NULL};
    struct chat_node *node = chat_node_new(p, CHAT_SET, at);
    parse_names(p, node);
    if (chat_token_take(p, CHAT_SIGN, ".")) {
        if (node)
            node->text = p->token.text;
        chat_token_expect(p, CHAT_WORD, NULL);
    }
    if (chat_token_take(p, CHAT_SIGN, "="))
        return value_into(p, node);
    return scope_into(p, node, ends, "set");
}

static struct chat_node *parse_generation(struct chat_parser *p, size_t at)
{
    static const char *const ends[] = {"endgeneration", NULL};
    struct chat_node *node = chat_node_new(p, CHAT_GENERATION, at);
    p->t->marks = true;
    return scope_into(p, node, ends, "generation");
}

/* A parameter behind those that `node` has. */
static void parameter_check(struct chat_parser *p, const struct chat_node *node,
                            const struct chat_node *parameter)
{
    const struct chat_string name = parameter->text;
    for (const struct chat_node *each = node->second; each; each = each->next) {
        if (chat_same(each->text, name))
            chat_parse_fail(p, parameter->at, "the parameter \"%.*s\" already exists",
                            CHAT_SHOWN(name));
        if (each->first && !parameter->first)
            chat_parse_fail(p, parameter->at,
                            "a parameter without a default behind one with a default");
    }
}

/* a, b=1, behind "(" */
static void parse_parameters(struct chat_parser *p, struct chat_node *node)
{
    struct chat_node **tail = node ? &node->second : NULL;
    int count = 0;
    while (!p->status && !chat_token_is(p, CHAT_SIGN, ")")) {
        struct chat_node *each = chat_node_new(p, CHAT_PARAMETER, p->token.at);
        if (!each)
            return;
        if (++count > CHAT_ARGUMENTS_MAX)
            chat_parse_fail(p, each->at, "more than %d arguments", CHAT_ARGUMENTS_MAX);
        each->text = p->token.text;
        chat_token_expect(p, CHAT_WORD, NULL);
        if (chat_token_take(p, CHAT_SIGN, "="))
            each->first = chat_parse_expression(p);
        parameter_check(p, node, each);
        chat_node_over(p, each, each->first);
        chat_node_over(p, node, each);
        *tail = each;
        tail = &each->next;
        if (!chat_token_take(p, CHAT_SIGN, ","))
            break;
    }
    chat_token_expect(p, CHAT_SIGN, ")");
}

static struct chat_node *parse_macro(struct chat_parser *p, size_t at)
{
    static const char *const ends[] = {"endmacro", NULL};
    struct chat_node *node = chat_node_new(p, CHAT_MACRO, at);
    int loops = p->loops;
    if (p->scopes > 0)
        chat_parse_fail(p, at,
                        "a macro within a loop, a macro, a generation or a set is not supported");
    if (node)
        node->text = p->token.text;
    chat_token_expect(p, CHAT_WORD, NULL);
    chat_token_expect(p, CHAT_SIGN, "(");
    parse_parameters(p, node);
    p->loops = 0;
    p->macro = node;
    scope_into(p, node, ends, "macro");
    p->macro = NULL;
    p->loops = loops;
    return node;
}

static struct chat_node *parse_word(struct chat_parser *p, size_t at, enum chat_node_kind kind)
{
    tag_end(p);
    if (p->loops == 0)
        chat_parse_fail(p, at, "there is no loop to break or to continue");
    return chat_node_new(p, kind, at);
}

static struct chat_node *parse_statement(struct chat_parser *p)
{
    size_t at = p->token.at;
    if (chat_token_take(p, CHAT_WORD, "if"))
        return parse_if(p, at);
    if (chat_token_take(p, CHAT_WORD, "for"))
        return parse_for(p, at);
    if (chat_token_take(p, CHAT_WORD, "set"))
        return parse_set(p, at);
    if (chat_token_take(p, CHAT_WORD, "generation"))
        return parse_generation(p, at);
    if (chat_token_take(p, CHAT_WORD, "macro"))
        return parse_macro(p, at);
    if (chat_token_take(p, CHAT_WORD, "break"))
        return parse_word(p, at, CHAT_BREAK);
    if (chat_token_take(p, CHAT_WORD, "continue"))
        return parse_word(p, at, CHAT_CONTINUE);
    static const char *const inner[] = {"endif",    "elif",          "else",  "endfor",
                                        "endmacro", "endgeneration", "endset"};
    for (size_t i = 0; i < sizeof inner / sizeof *inner; i++)
        if (chat_token_is(p, CHAT_WORD, inner[i]))
            chat_parse_fail(p, at, "\"%s\" is out of place: no such tag is innermost", inner[i]);
    if (chat_token_is(p, CHAT_WORD, NULL))
        chat_parse_fail(p, at,
                        "the tag \"%.*s\" is not supported: expected if, for, set, macro, "
                        "generation, break or continue",
                        CHAT_SHOWN(p->token.text));
    else
        chat_token_expect(p, CHAT_WORD, NULL);
    return NULL;
}

static struct chat_node *parse_output(struct chat_parser *p)
{
    return value_into(p, chat_node_new(p, CHAT_OUTPUT, p->token.at));
}

/* ---- bodies --------------------------------------------------------------------------------- */

static bool ends_here(const struct chat_parser *p, const char *const *ends)
{
    bool ends_body = false;
    for (int i = 0; ends && ends[i] && !ends_body; i++)
        ends_body = chat_token_is(p, CHAT_WORD, ends[i]);
    return ends_body;
}

static void append(struct chat_node ***tail, struct chat_node *node)
{
    if (!node)
        return;
    **tail = node;
    *tail = &node->next;
}

/* Up to a tag that begins with one of `ends` (NULL: the template's end), whose word is p->token. */
static struct chat_node *parse_body(struct chat_parser *p, const char *const *ends,
                                    const char *opened, size_t at)
{
    struct chat_node *list = NULL, **tail = &list;
    if (++p->nesting > CHAT_NESTING_MAX)
        chat_parse_fail(p, at, "blocks are nested more than %d deep", CHAT_NESTING_MAX);
    while (!p->status) {
        char tag;
        size_t begin = p->at;
        struct chat_string text = chat_token_text(p, &tag);
        struct chat_node *node = text.count ? chat_node_new(p, CHAT_TEXT, begin) : NULL;
        if (node)
            node->value = chat_text_value(text);
        append(&tail, node);
        if (tag == 0 && ends)
            chat_parse_fail(p, at, "\"%s\" has no end: expected {%% end%s %%}", opened, opened);
        if (tag == 0 || (tag == '%' && ends_here(p, ends)))
            break;
        if (tag != '#')
            append(&tail, tag == '{' ? parse_output(p) : parse_statement(p));
    }
    p->nesting--;
    return list;
}

int chat_parse(struct ls_chat_template *t, struct ls_error *error)
{
    struct chat_parser p = {.t = t, .error = error};
    t->body = parse_body(&p, NULL, "template", 0);
    return p.status;
}
