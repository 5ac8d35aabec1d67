/* The texts of a conversation's first messages, in one run of the template.
 *
 * What the turns teach needs texts of many beginnings of the conversation. Rendering each by itself
 * takes time that grows with the square of the turns. But most templates go through the messages
 * once: the text of the first c messages is that of all, up to where the template sees that there
 * are no more. So the run stops before it takes message c, is told that this is the last one,
 * prints what it prints then, and goes back to where it was.
 *
 * This is exact, because the run notices whatever may differ. A list is open if it ends with the
 * messages: it is `messages`, or messages[1:]. An open list may be named, gone through and asked
 * for an element; each raises open_least to the messages that it takes to answer the same. Anything
 * else that is done with it (chat_evaluate) looks at its end: from there on no text is made, and
 * whoever wants one renders it by itself. Going back undoes what changes in place: namespaces, the
 * template's outer variables, streams. All else is new memory.
 *
 * How many messages there are is a value that knows of which list (length_from). Beside a smaller
 * number it tells no more than that the list is longer; who computes with it sees the end.
 *
 * Many templates go through the messages before they print them, to count turns or to check their
 * order. Passes that print nothing need not stop: what they leave in a namespace has with it how
 * many messages it takes to be the same (entry->least), and so has a name that is set to a
 * selection of the messages. Only who takes such a value raises open_least to that; the text of
 * fewer messages that takes it is not made. */
#include "chat/chat_private.h"

struct chat_note {
    struct chat_note *next;
    void *at;
    size_t bytes;
    unsigned char before[];
};

void chat_note(struct chat_run *run, void *at, size_t bytes)
{
    if (!run->noting)
        return;
    struct chat_note *note = chat_arena_take(&run->arena, sizeof *note + bytes);
    if (!note) {
        run->forgot = true;
        chat_fail(run, "no memory for the texts of turns");
        return;
    }
    *note = (struct chat_note){run->notes, at, bytes};
    memcpy(note->before, at, bytes);
    run->notes = note;
}

void chat_save(struct chat_run *run, struct chat_saved *saved)
{
    *saved = (struct chat_saved){*run, *run->output, chat_arena_mark(&run->arena)};
    run->prefixes = NULL;
    run->notes = NULL;
    run->noting = true;
}

void chat_go_back(struct chat_run *run, const struct chat_saved *saved)
{
    const bool forgot = run->forgot;
    for (const struct chat_note *note = run->notes; note; note = note->next)
        memcpy(note->at, note->before, note->bytes);
    chat_arena_return(&run->arena, &saved->mark);
    saved->run.prefixes->steps += saved->run.steps - run->steps;
    *run = saved->run;
    *run->output = saved->output;
    if (forgot)
        chat_fail(run, "no memory for the texts of turns");
}

void chat_stay(struct chat_run *run, const struct chat_saved *saved)
{
    run->prefixes = saved->run.prefixes;
    run->notes = saved->run.notes;
    run->noting = saved->run.noting;
}

void chat_open_least(struct chat_run *run, int64_t least)
{
    if (least > run->pass_least)
        run->open_least = ls_max(run->open_least, least);
}

void chat_entry_seen(struct chat_run *run, const struct chat_entry *entry)
{
    if (run->ending)
        run->stale |= entry->least > run->ending;
    else
        chat_open_least(run, entry->least);
}

bool chat_defers(const struct chat_node *node)
{
    for (; node->kind == CHAT_FILTER; node = node->first) {
        if (!chat_filter_by_element(node->function))
            return false;
        for (const struct chat_node *each = node->list; each; each = each->next)
            if (each->kind != CHAT_LITERAL)
                return false;
    }
    return node->kind == CHAT_NAME;
}

void chat_prefixes_begin(struct chat_run *run, struct chat_prefixes *prefixes)
{
    struct chat_dict *variables = &run->scope->variables;
    run->prefixes = prefixes;
    for (int64_t i = 0; i < variables->count; i++) {
        struct chat_entry *each = &variables->entries[i];
        each->value.open = chat_string_is(each->key.string, "messages");
        if (each->value.open)
            run->open = each->value.list;
    }
}

void chat_prefix_begin(struct chat_run *run, struct chat_saved *saved, int64_t count)
{
    chat_save(run, saved);
    run->ending = count;
    for (struct chat_list *list = run->open; list; list = list->open_next) {
        chat_note(run, list, sizeof *list);
        list->count = ls_min(list->count, ls_max(count - list->open_from, 0));
    }
}

void chat_prefix_end(struct chat_run *run, const struct chat_saved *saved, int64_t count)
{
    struct chat_prefixes *prefixes = saved->run.prefixes;
    struct chat_prefix *to = &prefixes->of[count];
    size_t shared = saved->output.count, own = run->output->count - shared;
    *to = (struct chat_prefix){shared, prefixes->own.count, own, .wanted = true};
    to->made = !run->status && !run->stale &&
               chat_text_put(&prefixes->own, chat_written(run->output).bytes + shared, own);
    chat_go_back(run, saved);
}
