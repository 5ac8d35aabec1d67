/* What the files of src/chat share: the values, nodes and state of a template that is rendered. */
#ifndef CHAT_CHAT_PRIVATE_H
#define CHAT_CHAT_PRIVATE_H

#include <lockstep/chat.h>

#include <jansson.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>

/* ---- memory (chat_memory.c) ----------------------------------------------------------------- */

/* Blocks that are freed together. */
struct chat_arena {
    struct chat_block *blocks;
    size_t used, limit; /* bytes; more than limit is refused */
};
/* Zeroed; NULL beyond the limit or without memory. */
void *chat_arena_take(struct chat_arena *arena, size_t bytes);
/* What is taken between the two is given back. */
struct chat_arena_mark {
    struct chat_block *block;
    size_t used, block_used;
};
struct chat_arena_mark chat_arena_mark(const struct chat_arena *arena);
void chat_arena_return(struct chat_arena *arena, const struct chat_arena_mark *mark);
void chat_arena_release(struct chat_arena *arena);

/* Appends to the bytes; false: no memory. */
bool chat_text_put(struct ls_chat_text *text, const char *bytes, size_t count);

/* ---- values --------------------------------------------------------------------------------- */

enum chat_kind {
    CHAT_UNDEFINED,
    CHAT_NONE,
    CHAT_BOOL,
    CHAT_INT,
    CHAT_FLOAT,
    CHAT_STRING,
    CHAT_LIST,
    CHAT_DICT,
    CHAT_LOOP,
    CHAT_MACRO_VALUE,
    CHAT_CALLABLE, /* a function, or a method of a mapping, that is not called */
};
struct chat_string {
    const char *bytes; /* UTF-8, not terminated */
    size_t count;
};
/* Names are compared all the time: most differ in their length, or in the first byte. */
static inline bool chat_same(struct chat_string a, struct chat_string b)
{
    return a.count == b.count &&
           (a.count == 0 || (a.bytes[0] == b.bytes[0] && memcmp(a.bytes, b.bytes, a.count) == 0));
}
static inline bool chat_string_is(struct chat_string string, const char *text)
{
    size_t i = 0;
    while (i < string.count && text[i] && text[i] == string.bytes[i])
        i++;
    return i == string.count && !text[i];
}
struct chat_value {
    enum chat_kind kind;
    bool rounded; /* a number of JSON that has more digits than real */
    bool null;    /* an undefined value that JSON has as null: it is none too */
    bool safe;    /* a string of the filter safe */
    bool open;    /* a list that ends with the messages, or its length (template_prefix.c) */
    union {
        struct {
            int64_t integer;     /* and a bool's */
            int64_t length_from; /* of an open length: the list's open_from */
        };
        double real;
        struct chat_string string; /* of undefined and callable: its name, for messages */
        struct chat_list *list;
        struct chat_dict *dict;
        struct chat_loop *loop;
        const struct chat_node *macro;
    };
};
/* What a list is in Python. */
enum chat_listing {
    CHAT_ARRAY,
    CHAT_TUPLE,
    CHAT_RANGE,  /* a list without a text */
    CHAT_VIEW,   /* the keys, values or items of a mapping: without elements by number, or a text */
    CHAT_STREAM, /* what filters such as map give: the same, without a length, and read once */
};
struct chat_list {
    struct chat_value *items;
    int64_t count, room;
    enum chat_listing listing;
    struct chat_list *open_next; /* of an open one: the messages from this one on */
    int64_t open_from;
};
struct chat_dict {
    struct chat_entry {
        struct chat_value key, value;
        int64_t least; /* the first c messages alone give this value too, for all c >= least */
    } * entries;       /* in the order of insertion */
    int64_t count, room;
    bool changes;            /* a namespace */
    struct chat_list *nulls; /* keys that a message has, of null; NULL: none */
};
/* The variable `loop` of a for. */
struct chat_loop {
    int64_t index, count;
    const struct chat_value *items;
    bool open; /* it goes through the messages from this one on */
    int64_t open_from;
    bool filtered; /* only through those of a condition */
};

/* ---- templates (template_token.c, template_parse.c, template_expression.c) ------------------ */

enum chat_node_kind {
    /* statements */
    CHAT_TEXT,
    CHAT_OUTPUT,     /* first */
    CHAT_IF,         /* list of CHAT_BRANCH */
    CHAT_BRANCH,     /* first: condition, NULL of else; list */
    CHAT_FOR,        /* first: iterable, second: condition or NULL; names; list; third: else */
    CHAT_SET,        /* names, or name.attribute; first: value, or NULL and list: a block */
    CHAT_GENERATION, /* list */
    CHAT_MACRO,      /* text(second: list of CHAT_PARAMETER); list */
    CHAT_PARAMETER,  /* text; first: its default, or NULL */
    CHAT_BREAK,
    CHAT_CONTINUE,
    /* expressions */
    CHAT_LITERAL,
    CHAT_NAME,
    CHAT_MAKE_LIST,  /* list */
    CHAT_MAKE_TUPLE, /* list */
    CHAT_MAKE_DICT,  /* list: key, value, key, value */
    CHAT_ATTRIBUTE,  /* first.text */
    CHAT_ITEM,       /* first[second] */
    CHAT_SLICE,      /* first[list of three, CHAT_LITERAL of none if left out] */
    CHAT_CALL,       /* text(list) */
    CHAT_METHOD,     /* first.text(list) */
    CHAT_FILTER,     /* first|text(list) */
    CHAT_TEST,       /* first is text(list) */
    CHAT_NOT,
    CHAT_MINUS,
    CHAT_PLUS,
    CHAT_AND,
    CHAT_OR,
    CHAT_COMPARE, /* first, list of CHAT_OPERAND */
    CHAT_OPERAND, /* op, first */
    CHAT_BINARY,  /* op */
    CHAT_TERNARY, /* first if second else third, which may be NULL */
};
enum chat_op {
    CHAT_ADD,
    CHAT_SUBTRACT,
    CHAT_MULTIPLY,
    CHAT_DIVIDE,
    CHAT_FLOOR,
    CHAT_MODULO,
    CHAT_CONCATENATE,
    CHAT_EQUAL,
    CHAT_UNEQUAL,
    CHAT_LESS,
    CHAT_LESS_EQUAL,
    CHAT_MORE,
    CHAT_MORE_EQUAL,
    CHAT_IN,
    CHAT_NOT_IN,
};
enum {
    CHAT_NAMES_MAX = 4,
    CHAT_ARGUMENTS_MAX = 16,
    CHAT_PARAMETERS_MAX = 4,     /* of a filter or a test */
    CHAT_NESTING_MAX = 100,      /* of brackets and blocks */
    CHAT_DEPTH_MAX = 200,        /* of trees, and of values */
    CHAT_CALLS_DEPTH_MAX = 1000, /* of the trees of macros that call each other */
};
struct chat_node {
    enum chat_node_kind kind;
    enum chat_op op;
    size_t at;   /* of the template's text */
    int depth;   /* of the tree below: bounded */
    bool method; /* an attribute: what mappings have under that name is value */
    struct chat_value value;
    struct chat_string text;    /* a name */
    struct chat_string keyword; /* of an argument; empty: none */
    struct chat_string names[CHAT_NAMES_MAX];
    int names_count;
    const void *function; /* of a filter or a test */
    struct chat_node *first, *second, *third, *list, *next;
};

/* A template, parsed. */
struct ls_chat_template {
    char *name;
    struct chat_string text; /* ends of lines are \n */
    struct chat_arena arena;
    struct chat_node *body;
    bool marks; /* {% generation %} is there */
    bool dated; /* strftime_now gives the day */
    struct tm day;
};
/* LS_EDATA, with name, line and column. */
int chat_refuse(const struct ls_chat_template *t, size_t at, struct ls_error *error,
                const char *format, va_list list) __attribute__((format(printf, 4, 0)));

enum chat_token_kind { CHAT_END_TAG, CHAT_WORD, CHAT_STRING_TOKEN, CHAT_NUMBER, CHAT_SIGN };
struct chat_token {
    enum chat_token_kind kind;
    size_t at;
    struct chat_string text;
    struct chat_value value; /* of a literal */
};
struct chat_parser {
    struct ls_chat_template *t;
    size_t at; /* behind the token */
    struct chat_token token;
    bool in_output;     /* the tag is {{ }} */
    int open;           /* brackets that are */
    int nesting, loops; /* that the token lies in */
    int scopes;         /* loops, macros, generations, blocks of set: their variables end there */
    const struct chat_node *macro; /* that the token lies in, or NULL */
    int status; /* the first failure: then tokens are CHAT_END_TAG and nodes NULL */
    struct ls_error *error;
};
/* Fails at a place of the text. */
void chat_parse_fail(struct chat_parser *p, size_t at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The next token of a tag becomes p->token. */
void chat_token_next(struct chat_parser *p);
/* The text up to the next tag, as the tags around it trim it; *tag is '{' or '%', 0 at the end. The
 * first token of the tag is p->token. */
struct chat_string chat_token_text(struct chat_parser *p, char *tag);
bool chat_token_is(const struct chat_parser *p, enum chat_token_kind kind, const char *text);
/* Whether it was that token, which then is passed. */
bool chat_token_take(struct chat_parser *p, enum chat_token_kind kind, const char *text);
void chat_token_expect(struct chat_parser *p, enum chat_token_kind kind, const char *text);
/* A new node; NULL after a failure. */
struct chat_node *chat_node_new(struct chat_parser *p, enum chat_node_kind kind, size_t at);
/* The node is as deep as what is below it now. */
void chat_node_over(struct chat_parser *p, struct chat_node *node, const struct chat_node *below);
struct chat_node *chat_parse_expression(struct chat_parser *p);
/* The same without a condition behind it: what a for goes through. */
struct chat_node *chat_parse_alternative(struct chat_parser *p);
/* a, b: a tuple, if there is a comma. */
struct chat_node *chat_parse_tuple(struct chat_parser *p);
int chat_parse(struct ls_chat_template *t, struct ls_error *error);

/* ---- rendering (template_render.c, template_evaluate.c) ------------------------------------- */

struct chat_arguments;

struct chat_output {
    char *bytes;
    size_t count, capacity;
};
struct chat_scope {
    struct chat_dict variables;
    struct chat_scope *outer;
};
/* A statement under way, and the one that it is within. */
struct chat_frame {
    const struct chat_node *node;
    struct chat_frame *outer;
};
struct chat_run {
    const struct ls_chat_template *t;
    bool rounded; /* numbers of 2^63 or more in the conversation have lost digits */
    struct chat_arena arena;
    int64_t steps;                  /* that are left */
    struct chat_scope *scope, *top; /* here, and of the template */
    struct chat_output *output;
    struct ls_chat_text *marked; /* where generations are marked; NULL: nowhere */
    size_t at;                   /* of the node that is evaluated */
    int depth;                   /* of the value that is compared or printed */
    int calls_depth;             /* of the macros under way */
    int generations;             /* within which the node lies */
    struct chat_frame *frame;
    int blocks;                     /* loops, macros and blocks of set within which the node lies */
    struct chat_prefixes *prefixes; /* that are rendered too; NULL: none */
    struct chat_list *open;         /* the lists that end with the messages */
    int64_t open_least;             /* the first c messages alone come to this state too, for all
                                       c >= open_least that there are */
    int64_t pass_least;             /* what is under way is a pass, or a value, of so many */
    int64_t ending;                 /* what is under way is the text of so many alone; 0: of all */
    bool stale;                     /* that text took a value of more messages than it has */
    struct chat_note *notes;        /* what memory held before, the last first */
    bool noting, forgot; /* notes are taken; one was not, so that nothing can be undone */
    int status;
    struct ls_error *error;
};
/* The first failure is kept; afterwards every value is undefined. */
void chat_fail(struct chat_run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Counts work; false, and a failure, where there was too much of it. */
void chat_overspent(struct chat_run *run);
static inline bool chat_spend(struct chat_run *run, int64_t steps)
{
    run->steps -= steps;
    if (run->steps < 0)
        chat_overspent(run);
    return !run->status;
}
/* Spends for every byte of the strings that an operation is given: of its operands, and of a list's
 * items. Whoever calls an operator, a method, a filter, a test or a function spends so first, so
 * that the work of a template is bounded whatever the operation does with them. */
bool chat_spend_operands(struct chat_run *run, const struct chat_value *operands, int count);
void *chat_take(struct chat_run *run, size_t bytes);
struct chat_value chat_evaluate(struct chat_run *run, const struct chat_node *node);
/* The same for callers that see to it what an open value tells of its end. */
struct chat_value chat_evaluate_open(struct chat_run *run, const struct chat_node *node);
/* Such a value, for those that do not. */
struct chat_value chat_closed(struct chat_run *run, struct chat_value value);
/* Whether the expression is true: of messages, and of how many there are, one of them tells. */
bool chat_holds(struct chat_run *run, const struct chat_node *node);
/* What the macro prints. */
struct chat_value chat_macro_call(struct chat_run *run, const struct chat_node *macro,
                                  const struct chat_arguments *arguments);
void chat_put(struct chat_run *run, struct chat_output *output, struct chat_string text);
/* What was put so far; its bytes are never NULL, as those of no value are. */
struct chat_string chat_written(const struct chat_output *output);

/* ---- texts of the first messages (template_prefix.c) ----------------------------------------- */

/* The text of the first messages alone: the first `shared` bytes of the whole, and bytes of own. */
struct chat_prefix {
    size_t shared, first, count;
    bool wanted, made;
};
struct chat_prefixes {
    struct chat_prefix *of; /* [messages + 1] */
    struct ls_chat_text own;
    int64_t steps; /* of what was gone back from */
};
/* A value that memory holds is about to change. */
void chat_note(struct chat_run *run, void *at, size_t bytes);
/* The list of the messages is open. */
void chat_prefixes_begin(struct chat_run *run, struct chat_prefixes *prefixes);
/* What was just seen is so for the first c messages too, if c is at least `least`. */
void chat_open_least(struct chat_run *run, int64_t least);
enum { CHAT_OPEN_ALL = INT32_MAX }; /* it is so for all messages alone */
/* What the entry holds is looked at. Of a namespace's keys nothing need be said: a pass that would
 * add one is not one that is left out (chat_dict_set). */
void chat_entry_seen(struct chat_run *run, const struct chat_entry *entry);
/* What such an expression says of the end of the messages, only who takes the value sees: it fails
 * of no fewer messages if it does not fail of all. */
bool chat_defers(const struct chat_node *node);
/* The state of a run, to which it can go back; or it stays where it is. */
struct chat_saved {
    struct chat_run run;
    struct chat_output output;
    struct chat_arena_mark mark;
};
void chat_save(struct chat_run *run, struct chat_saved *saved);
void chat_go_back(struct chat_run *run, const struct chat_saved *saved);
void chat_stay(struct chat_run *run, const struct chat_saved *saved);
/* From here on there are `count` messages; what is printed up to chat_prefix_end is their text. */
void chat_prefix_begin(struct chat_run *run, struct chat_saved *saved, int64_t count);
void chat_prefix_end(struct chat_run *run, const struct chat_saved *saved, int64_t count);

/* ---- values (template_value.c, template_print.c) -------------------------------------------- */

struct chat_string chat_string_of(const char *text);
/* What "%.*s" shows of a string. */
#define CHAT_SHOWN(string) (int)ls_min((int64_t)(string).count, 60), (string).bytes
static inline struct chat_value chat_text_value(struct chat_string text)
{
    return (struct chat_value){.kind = CHAT_STRING, .string = text};
}
static inline struct chat_value chat_int_value(int64_t integer)
{
    return (struct chat_value){.kind = CHAT_INT, .integer = integer};
}
static inline struct chat_value chat_bool_value(bool value)
{
    return (struct chat_value){.kind = CHAT_BOOL, .integer = value};
}
struct chat_value chat_list_new(struct chat_run *run);
void chat_list_add(struct chat_run *run, struct chat_value list, struct chat_value item);
/* Of a stream the first `count` elements are gone; of another list none. */
void chat_list_pass(struct chat_run *run, struct chat_list *list, int64_t count);
/* A new list as one of these. */
struct chat_value chat_listed(struct chat_run *run, struct chat_value list,
                              enum chat_listing listing);
struct chat_value chat_dict_new(struct chat_run *run);
void chat_dict_set(struct chat_run *run, struct chat_dict *dict, struct chat_value key,
                   struct chat_value value);
/* NULL: it has no such key. The second is the first for a text. */
const struct chat_value *chat_dict_get(struct chat_run *run, const struct chat_dict *dict,
                                       struct chat_value key);
const struct chat_value *chat_dict_named(struct chat_run *run, const struct chat_dict *dict,
                                         struct chat_string name);
const char *chat_kind_name(struct chat_value value);
/* Fails: a view or a stream is, or has, not what a list does. */
void chat_no_list(struct chat_run *run, const char *what);
static inline bool chat_true(struct chat_value value)
{
    switch (value.kind) {
    case CHAT_UNDEFINED:
    case CHAT_NONE:
        return false;
    case CHAT_BOOL:
    case CHAT_INT:
        return value.integer != 0;
    case CHAT_FLOAT:
        return value.real != 0;
    case CHAT_STRING:
        return value.string.count > 0;
    case CHAT_LIST:
        return value.list->count > 0 || value.list->listing == CHAT_STREAM;
    case CHAT_DICT:
        return value.dict->count > 0 || value.dict->changes;
    default:
        return true;
    }
}
/* None, or an absent key of null. */
bool chat_none(struct chat_value value);
bool chat_equal(struct chat_run *run, const struct chat_value *a, const struct chat_value *b);
/* < 0, 0 or > 0; a failure where they have no order. */
int chat_order(struct chat_run *run, struct chat_value a, struct chat_value b);
/* By their keys; equal ones stay in their order. */
void chat_sort(struct chat_run *run, struct chat_entry *entries, int64_t count, bool reverse);
bool chat_contains(struct chat_run *run, struct chat_value list, struct chat_value item);
/* What a for goes through: the list, which a stream is no more, a dict's keys, a string's
 * characters. */
struct chat_list *chat_items(struct chat_run *run, struct chat_value value);
/* Elements, or characters; a failure for what has no length. */
int64_t chat_length(struct chat_run *run, struct chat_value value);
/* Whether mappings have a method of that name; *method is its value, undefined if it is none. */
bool chat_mapping_method(struct chat_string name, struct chat_value *method);
/* from[key], and of a CHAT_ATTRIBUTE from.name, which of a mapping is a method rather than a key of
 * that name. */
struct chat_value chat_item(struct chat_run *run, struct chat_value from, struct chat_value key);
struct chat_value chat_attribute(struct chat_run *run, const struct chat_value *from,
                                 const struct chat_node *node);
struct chat_value chat_slice(struct chat_run *run, struct chat_value from,
                             const struct chat_value bounds[3]);
struct chat_value chat_binary(struct chat_run *run, enum chat_op op, struct chat_value a,
                              struct chat_value b);

/* As Python's str. */
struct chat_string chat_text_of(struct chat_run *run, struct chat_value value);
/* The arguments of Python's json.dumps. */
struct chat_json {
    int indent; /* < 0: None */
    bool ascii, sorted;
    struct chat_string between, colon; /* of items, and behind a key */
};
struct chat_string chat_json_of(struct chat_run *run, struct chat_value value,
                                const struct chat_json *how);

/* ---- strings (template_string.c) ------------------------------------------------------------ */

/* Bytes of the character at text[0], of count > 0. */
size_t chat_character(struct chat_string text);
/* The number of a character, and the bytes of one (4 at most), whose count it returns. */
uint32_t chat_code_point(struct chat_string character);
size_t chat_encode(uint32_t c, char *to);
int64_t chat_characters(struct chat_string text);
/* Bytes of the white space at the beginning, as Python's str.isspace has it; 0: none. */
size_t chat_space(struct chat_string text);
enum chat_side { CHAT_LEFT = 1, CHAT_RIGHT = 2 };
/* Without the characters at the ends that are in `of`; NULL: white space. */
struct chat_string chat_strip(struct chat_string text, const struct chat_string *of, int sides);
/* The place of part in text from `from` on, SIZE_MAX: nowhere. */
size_t chat_find(struct chat_string text, struct chat_string part, size_t from);

/* ---- filters, tests, functions, methods (template_call.c, template_method.c) ---------------- */

struct chat_arguments {
    struct chat_value value[CHAT_ARGUMENTS_MAX];
    struct chat_string keyword[CHAT_ARGUMENTS_MAX];
    int count, positional;
};
typedef struct chat_value chat_function(struct chat_run *run, struct chat_value self,
                                        const struct chat_arguments *arguments);
#define CHAT_FUNCTION(name)                                                                        \
    static struct chat_value name(struct chat_run *run, struct chat_value self,                    \
                                  const struct chat_arguments *arguments)
/* The same, whose value is that of an expression. */
#define CHAT_VALUE(name, expression)                                                               \
    CHAT_FUNCTION(name)                                                                            \
    {                                                                                              \
        (void)run;                                                                                 \
        (void)self;                                                                                \
        (void)arguments;                                                                           \
        return expression;                                                                         \
    }
struct chat_builtin {
    const char *name;
    chat_function *function;
    const char *parameters[CHAT_PARAMETERS_MAX]; /* their names, NULL behind the last */
};
/* NULL: there is none of that name. */
const struct chat_builtin *chat_filter_find(struct chat_string name);
const struct chat_builtin *chat_test_find(struct chat_string name);
bool chat_filter_counts(const struct chat_builtin *filter); /* it is length */
/* Whether the filter fails of a list only if it does of one of its elements. */
bool chat_filter_by_element(const struct chat_builtin *filter);
bool chat_method_known(struct chat_string name);
/* Whether the template has a function of that name. */
bool chat_function_known(const struct ls_chat_template *t, struct chat_string name);
struct chat_value chat_builtin_call(struct chat_run *run, const struct chat_builtin *builtin,
                                    struct chat_value self, const struct chat_arguments *arguments);
struct chat_value chat_call_function(struct chat_run *run, struct chat_string name,
                                     const struct chat_arguments *arguments);
struct chat_value chat_call_method(struct chat_run *run, struct chat_value self,
                                   struct chat_string name, const struct chat_arguments *arguments);
/* The argument of that place or name; NULL: it was not given. */
const struct chat_value *chat_argument(const struct chat_arguments *arguments, int place,
                                       const char *name);
/* What a filter's or method's argument is to be: a failure where it is not. */
bool chat_needs_string(struct chat_run *run, const struct chat_value *value, const char *what);

/* ---- rendering, conversations (chat_conversation.c) ------------------------------------------ */

/* Renders with these variables, to `out`. run->steps is what is left of CHAT_STEPS_MAX. */
enum { CHAT_STEPS_MAX = 20 << 20 };
int chat_render(const struct ls_chat_template *t, struct chat_run *run, struct ls_chat_text *out);

struct ls_chat {
    struct ls_chat_template t, with_tools; /* name NULL: absent; without with_tools t is for all */
    json_t *tokens;                        /* an object: bos_token and so on */
};
struct chat_conversation {
    const struct ls_chat *chat;
    const struct ls_chat_template *t; /* of chat */
    json_t *object, *messages;
    int64_t prompt;          /* the first so many messages ask for a completion; 0: none does */
    bool rounded;            /* an integer is too large for int64, and its last digits are lost */
    int64_t steps;           /* of all that was rendered */
    struct chat_arena arena; /* of values, which every rendering has */
    struct chat_list values; /* of the first messages, as many as were rendered */
};
/* Call chat_conversation_release whatever this returns. */
int chat_conversation_read(struct chat_conversation *c, const struct ls_chat *chat,
                           const char *text, size_t bytes, struct ls_error *error);
/* LS_EDATA if it has pictures, films or sounds: templates of text leave them out without a word. */
int chat_media_refuse(const struct chat_conversation *c, struct ls_error *error);
void chat_conversation_release(struct chat_conversation *c);
/* The first `count` messages as text, and in the same run the texts of fewer that are wanted; NULL:
 * none. */
int chat_conversation_render(struct chat_conversation *c, int64_t count, bool generation_prompt,
                             struct chat_prefixes *prefixes, struct ls_chat_text *text,
                             struct ls_error *error);

#endif
