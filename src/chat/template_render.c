/* Runs the statements of a chat template: what they print, and which of it counts. */
#include "chat/chat_private.h"

enum {
    MEMORY_BYTES_MAX = 256 << 20,
    OUTPUT_BYTES_MAX = 64 << 20,
};

/* How a body ended. */
enum ending { ENDED, BROKEN, CONTINUED };

/* ---- failing, counting ---------------------------------------------------------------------- */

void chat_fail(struct chat_run *run, const char *format, ...)
{
    va_list list;
    if (run->status)
        return;
    va_start(list, format);
    run->status = chat_refuse(run->t, run->at, run->error, format, list);
    va_end(list);
}

void chat_overspent(struct chat_run *run)
{
    chat_fail(run, "the template takes more than %d steps", CHAT_STEPS_MAX);
}

bool chat_spend_operands(struct chat_run *run, const struct chat_value *operands, int count)
{
    enum { STEP_BYTES = 64 };
    int64_t bytes = 0;
    for (int i = 0; i < count; i++) {
        const struct chat_value *each = &operands[i];
        if (each->kind == CHAT_STRING)
            bytes += (int64_t)each->string.count;
        for (int64_t k = 0; each->kind == CHAT_LIST && k < each->list->count; k++)
            bytes += each->list->items[k].kind == CHAT_STRING
                         ? (int64_t)each->list->items[k].string.count
                         : 1;
    }
    return chat_spend(run, bytes / STEP_BYTES);
}

void *chat_take(struct chat_run *run, size_t bytes)
{
    if (!chat_spend(run, 1 + (int64_t)bytes / 256))
        return NULL;
    void *at = chat_arena_take(&run->arena, bytes);
    if (!at)
        chat_fail(run, "the template needs more than %d MiB, or there is no memory",
                  MEMORY_BYTES_MAX >> 20);
    return at;
}

void chat_put(struct chat_run *run, struct chat_output *output, struct chat_string text)
{
    if (text.count == 0 || run->status)
        return;
    if (text.count > OUTPUT_BYTES_MAX - output->count) {
        chat_fail(run, "a text of more than %d MiB", OUTPUT_BYTES_MAX >> 20);
        return;
    }
    if (output->count + text.count > output->capacity) {
        size_t capacity = 2 * (output->count + text.count);
        char *bytes = chat_take(run, capacity);
        if (!bytes)
            return;
        if (output->count)
            memcpy(bytes, output->bytes, output->count);
        output->bytes = bytes;
        output->capacity = capacity;
    }
    chat_spend(run, (int64_t)text.count / 256);
    memcpy(output->bytes + output->count, text.bytes, text.count);
    output->count += text.count;
}

struct chat_string chat_written(const struct chat_output *output)
{
    return (struct chat_string){output->bytes ? output->bytes : "", output->count};
}

/* ---- which text counts ---------------------------------------------------------------------- */

/* The text since the last mark is a part. */
static void mark(struct chat_run *run, bool counts)
{
    struct ls_chat_text *to = run->marked;
    if (!to || run->status)
        return;
    size_t begin = to->parts_count ? to->parts[to->parts_count - 1].end : 0;
    if (run->output->count == begin)
        return;
    if (!ls_list_grow(&to->parts, to->parts_count, &to->parts_room, sizeof *to->parts))
        chat_fail(run, "no memory for the text");
    else
        to->parts[to->parts_count++] =
            (struct ls_chat_part){.end = run->output->count, .counts = counts};
}

/* ---- statements ----------------------------------------------------------------------------- */

static enum ending body(struct chat_run *run, const struct chat_node *list);

static void assign(struct chat_run *run, struct chat_string name, struct chat_value value)
{
    chat_dict_set(run, &run->scope->variables, chat_text_value(name), value);
}

/* a, b = value */
static void assign_names(struct chat_run *run, const struct chat_node *node,
                         struct chat_value value)
{
    if (node->names_count == 1) {
        assign(run, node->names[0], value);
        return;
    }
    const struct chat_list *list = chat_items(run, value);
    int64_t count = list ? list->count : 0;
    if (count != node->names_count)
        chat_fail(run, "%lld values for %d names", (long long)count, node->names_count);
    for (int i = 0; i < node->names_count && !run->status; i++)
        assign(run, node->names[i], list->items[i]);
}

static void set_attribute(struct chat_run *run, const struct chat_node *node,
                          struct chat_value value)
{
    const struct chat_node name = {.kind = CHAT_NAME, .at = node->at, .text = node->names[0]};
    struct chat_value space = chat_evaluate_open(run, &name);
    if (space.kind == CHAT_DICT && space.dict->changes)
        chat_dict_set(run, space.dict, chat_text_value(node->text), value);
    else
        chat_fail(run, "%.*s is no namespace: its attributes cannot be set", CHAT_SHOWN(name.text));
}

/* What a block prints, as a value. */
static struct chat_value printed(struct chat_run *run, const struct chat_node *list)
{
    struct chat_output text = {0}, *outer = run->output;
    struct ls_chat_text *marked = run->marked;
    run->output = &text;
    run->marked = NULL;
    run->blocks++;
    body(run, list);
    run->blocks--;
    run->output = outer;
    run->marked = marked;
    return chat_text_value(chat_written(&text));
}

/* The text of {% set name %}: what is set within ends with it. */
static struct chat_value block_text(struct chat_run *run, const struct chat_node *list)
{
    struct chat_scope scope = {.outer = run->scope};
    run->scope = &scope;
    struct chat_value text = printed(run, list);
    run->scope = scope.outer;
    return text;
}

/* A name may keep messages, not how many there were. */
static struct chat_value kept(struct chat_run *run, const struct chat_node *node)
{
    struct chat_value value = chat_evaluate_open(run, node);
    return value.kind == CHAT_INT ? chat_closed(run, value) : value;
}

static bool makes_as_many(const struct chat_node *node)
{
    int count = 0;
    for (const struct chat_node *each = node->first->list; each; each = each->next)
        count++;
    return node->first->kind == CHAT_MAKE_TUPLE && count == node->names_count;
}

/* a, b = x, messages: a name may be of messages. */
static enum ending run_set_names(struct chat_run *run, const struct chat_node *node)
{
    struct chat_value values[CHAT_NAMES_MAX];
    int count = 0;
    for (const struct chat_node *each = node->first->list; each && !run->status; each = each->next)
        values[count++] = kept(run, each);
    run->at = node->at;
    for (int i = 0; i < count && !run->status; i++)
        assign(run, node->names[i], values[i]);
    return ENDED;
}

static enum ending run_set(struct chat_run *run, const struct chat_node *node)
{
    if (node->names_count > 1 && node->first && makes_as_many(node))
        return run_set_names(run, node);
    const bool keeps = node->names_count == 1 && !node->text.count; /* a name may be of messages */
    const bool defers = keeps && node->first && !run->ending && chat_defers(node->first);
    const int64_t open = run->open_least, pass = run->pass_least;
    struct chat_value value = !node->first ? block_text(run, node->list)
                              : keeps      ? kept(run, node->first)
                                           : chat_evaluate(run, node->first);
    run->at = node->at;
    if (defers && run->open_least > open) {
        run->pass_least = run->open_least;
        run->open_least = open;
    }
    if (node->text.count)
        set_attribute(run, node, value);
    else
        assign_names(run, node, value);
    run->pass_least = pass;
    return ENDED;
}

/* ---- macros --------------------------------------------------------------------------------- */

/* The argument of a parameter; -1: it was not given. */
static int argument_of(const struct chat_arguments *arguments, int place,
                       const struct chat_node *parameter)
{
    for (int i = arguments->positional; i < arguments->count; i++)
        if (chat_same(arguments->keyword[i], parameter->text))
            return i;
    return place < arguments->positional ? place : -1;
}

/* Every parameter gets a value, and every argument a parameter. */
static void parameters_set(struct chat_run *run, const struct chat_node *macro,
                           const struct chat_arguments *arguments)
{
    int place = 0, taken = 0;
    for (const struct chat_node *each = macro->second; each && !run->status; each = each->next) {
        int i = argument_of(arguments, place++, each);
        struct chat_value value = {.kind = CHAT_UNDEFINED, .string = each->text};
        if (i >= 0)
            value = arguments->value[i];
        else if (each->first)
            value = chat_evaluate(run, each->first);
        taken += i >= 0;
        assign(run, each->text, value);
    }
    if (taken < arguments->count)
        chat_fail(run, "the macro %.*s has no place for one of its %d arguments",
                  CHAT_SHOWN(macro->text), arguments->count);
}

struct chat_value chat_macro_call(struct chat_run *run, const struct chat_node *macro,
                                  const struct chat_arguments *arguments)
{
    struct chat_scope scope = {.outer = run->top}, *caller = run->scope;
    struct chat_value value = {.kind = CHAT_UNDEFINED};
    run->calls_depth += macro->depth;
    if (run->calls_depth > CHAT_CALLS_DEPTH_MAX)
        chat_fail(run, "macros call each other too deep");
    run->scope = &scope;
    parameters_set(run, macro, arguments);
    if (!run->status)
        value = printed(run, macro->list);
    run->scope = caller;
    run->calls_depth -= macro->depth;
    return value;
}

/* ---- conditions, loops ---------------------------------------------------------------------- */

static enum ending run_if(struct chat_run *run, const struct chat_node *node)
{
    for (const struct chat_node *branch = node->list; branch && !run->status; branch = branch->next)
        if (!branch->first || chat_holds(run, branch->first))
            return body(run, branch->list);
    return ENDED;
}

/* A loop under way. */
struct looping {
    const struct chat_node *node;
    const struct chat_list *list;
    int64_t *least;         /* [list->count], if it goes through messages: of so many this is one */
    struct chat_loop *loop; /* values may keep it, so it lives as long as they */
    struct chat_scope scope;
    bool open;    /* goes through the messages */
    bool passed;  /* a pass came to its end */
    int64_t does; /* no pass before this one is known to print nothing */
};

/* The elements that the loop's condition lets through. */
static void choose(struct chat_run *run, struct looping *l)
{
    struct chat_value out = chat_list_new(run);
    const struct chat_list *all = l->list;
    const int64_t least = run->pass_least;
    int64_t count = 0;
    for (int64_t i = 0; all && i < all->count && !run->status; i++) {
        run->scope->variables.count = 0;
        if (l->least)
            run->pass_least = l->least[i];
        assign_names(run, l->node, all->items[i]);
        if (run->status || !chat_true(chat_evaluate(run, l->node->second)))
            continue;
        if (l->least)
            l->least[count++] = l->least[i];
        chat_list_add(run, out, all->items[i]);
    }
    run->pass_least = least;
    l->list = run->status ? NULL : out.list;
}

static enum ending pass(struct chat_run *run, struct looping *l, int64_t i)
{
    enum ending ending = ENDED;
    l->scope.variables.count = 0;
    *l->loop = (struct chat_loop){i,
                                  l->list->count,
                                  l->list->items,
                                  l->open,
                                  l->open ? l->list->open_from : 0,
                                  l->node->second != NULL};
    assign(run, chat_string_of("loop"), (struct chat_value){.kind = CHAT_LOOP, .loop = l->loop});
    assign_names(run, l->node, l->list->items[i]);
    if (!run->status)
        ending = body(run, l->node->list);
    l->passed |= ending == ENDED;
    return ending;
}

/* As in Jinja the else is run where no pass came to its end: also behind a break in the first. */
static enum ending loop_end(struct chat_run *run, struct looping *l)
{
    l->scope.variables.count = 0;
    enum ending ending = !l->passed && l->node->third ? body(run, l->node->third->list) : ENDED;
    run->scope = l->scope.outer;
    return ending;
}

/* What is printed if the messages end with element i. */
static void end_with(struct chat_run *run, struct looping *l, int64_t i)
{
    struct chat_saved saved;
    const struct looping before = *l;
    int64_t count = l->list->open_from + i + 1;
    chat_prefix_begin(run, &saved, count);
    pass(run, l, i);
    loop_end(run, l);
    for (const struct chat_frame *each = run->frame; each; each = each->outer)
        body(run, each->node->next);
    chat_prefix_end(run, &saved, count);
    *l = before;
}

/* Whether the passes from i on print nothing, look no further than their element, and change only
 * what says when it is looked at (chat_entry_seen): then what follows goes on as if there were
 * fewer of them. */
static bool prints_nothing(struct chat_run *run, struct looping *l, int64_t i)
{
    struct chat_saved saved;
    const struct looping before = *l;
    bool nothing = !l->node->third;
    enum ending ending = ENDED;
    chat_save(run, &saved);
    for (; nothing && i < l->list->count && ending != BROKEN; i++) {
        run->pass_least = l->least[i];
        ending = pass(run, l, i);
        nothing = !run->status && run->output->count == saved.output.count &&
                  run->open_least == saved.run.open_least;
    }
    run->pass_least = 0;
    if (nothing) {
        chat_stay(run, &saved);
    } else {
        *l = before;
        chat_go_back(run, &saved);
    }
    l->does = i;
    return nothing;
}

/* The texts of the messages up to element i. False: the passes from here on need not be run. */
static bool prefixes_of(struct chat_run *run, struct looping *l, int64_t i)
{
    int64_t count = l->list->open_from + i + 1;
    if (run->open_least > count || !run->prefixes->of[count].wanted)
        return true;
    if (i >= l->does && prints_nothing(run, l, i))
        return false;
    end_with(run, l, i);
    return true;
}

static void least_set(struct chat_run *run, struct looping *l)
{
    l->least = chat_take(run, (size_t)l->list->count * sizeof *l->least + 1);
    for (int64_t i = 0; l->least && i < l->list->count; i++)
        l->least[i] = l->list->open_from + i + 1;
}

static enum ending run_for(struct chat_run *run, const struct chat_node *node)
{
    struct chat_value over = chat_evaluate_open(run, node->first);
    struct looping l = {.node = node, .scope.outer = run->scope, .open = over.open};
    bool stops = l.open && run->prefixes && run->blocks == 0;
    run->at = node->at;
    l.list = chat_items(run, over);
    if (stops && l.list)
        least_set(run, &l);
    run->scope = &l.scope;
    if (node->second)
        choose(run, &l);
    l.loop = chat_take(run, sizeof *l.loop);
    int64_t count = l.list && l.loop ? l.list->count : 0, i = 0;
    enum ending ending = ENDED;
    run->blocks++;
    if (l.open && node->second && !run->status) {
        if (stops && prints_nothing(run, &l, 0))
            count = 0;
        else
            chat_open_least(run, CHAT_OPEN_ALL);
        stops = false;
    }
    for (; i < count && ending != BROKEN && !run->status; i++) {
        if (stops && !prefixes_of(run, &l, i))
            break;
        if (l.open)
            chat_open_least(run, l.list->open_from + i + 1);
        ending = pass(run, &l, i);
    }
    run->blocks--;
    return loop_end(run, &l);
}

/* What is set within ends with it, as in transformers. Of one within another the outer counts. */
static enum ending run_generation(struct chat_run *run, const struct chat_node *node)
{
    struct chat_scope scope = {.outer = run->scope};
    run->scope = &scope;
    if (run->generations++ == 0)
        mark(run, false);
    enum ending ending = body(run, node->list);
    if (--run->generations == 0)
        mark(run, true);
    run->scope = scope.outer;
    return ending;
}

static enum ending statement(struct chat_run *run, const struct chat_node *node)
{
    run->at = node->at;
    switch (node->kind) {
    case CHAT_TEXT:
        chat_put(run, run->output, node->value.string);
        return ENDED;
    case CHAT_OUTPUT:
        chat_put(run, run->output, chat_text_of(run, chat_evaluate(run, node->first)));
        return ENDED;
    case CHAT_IF:
        return run_if(run, node);
    case CHAT_FOR:
        return run_for(run, node);
    case CHAT_SET:
        return run_set(run, node);
    case CHAT_GENERATION:
        return run_generation(run, node);
    case CHAT_MACRO:
        assign(run, node->text, (struct chat_value){.kind = CHAT_MACRO_VALUE, .macro = node});
        return ENDED;
    default:
        return node->kind == CHAT_BREAK ? BROKEN : CONTINUED;
    }
}

static enum ending body(struct chat_run *run, const struct chat_node *list)
{
    enum ending ending = ENDED;
    struct chat_frame frame = {list, run->frame};
    run->frame = &frame;
    for (; frame.node && ending == ENDED && chat_spend(run, 1); frame.node = frame.node->next)
        ending = statement(run, frame.node);
    run->frame = frame.outer;
    return ending;
}

/* ---- the whole ------------------------------------------------------------------------------ */

int chat_render(const struct ls_chat_template *t, struct chat_run *run, struct ls_chat_text *out)
{
    struct chat_output text = {0};
    out->count = 0;
    out->parts_count = 0;
    run->steps = CHAT_STEPS_MAX;
    run->top = run->scope;
    run->output = &text;
    run->marked = out;
    body(run, t->body);
    mark(run, false);
    if (!run->status && !chat_text_put(out, chat_written(&text).bytes, text.count))
        chat_fail(run, "no memory for the text");
    return run->status;
}
