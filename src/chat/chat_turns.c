/* What a conversation teaches: its texts, and which parts of them the assistant says. */
#include "chat/chat_private.h"

#include <stdlib.h>

/* Of all texts of a conversation. */
static const int64_t conversation_steps_max = INT64_C(1) << 32;

static int part_add(struct ls_chat_text *text, size_t end, bool counts, bool ends_document,
                    struct ls_error *error)
{
    size_t begin = text->parts_count ? text->parts[text->parts_count - 1].end : 0;
    if (end == begin && !ends_document)
        return LS_OK;
    if (!ls_list_grow(&text->parts, text->parts_count, &text->parts_room, sizeof *text->parts))
        return ls_no_memory(error, "for a conversation");
    text->parts[text->parts_count++] = (struct ls_chat_part){end, counts, ends_document};
    return LS_OK;
}

/* A text: the first `shared` bytes of another, and bytes of its own. */
struct piece {
    const struct ls_chat_text *of;
    size_t shared;
    const char *own;
    size_t own_count;
};

/* The texts of one turn: the prompt, and what it becomes with the answer. They are pieces of the
 * last prompt, and of the whole conversation. */
struct turns {
    struct piece prompt, answered;
    struct ls_chat_text last[2], alone[2]; /* [answered, prompt]; pieces that share nothing */
    struct chat_prefixes prefixes[2];
    size_t common; /* bytes with which both of last begin */
};

static size_t piece_bytes(const struct piece *piece)
{
    return piece->shared + piece->own_count;
}

/* What lies from byte `at` on in one place. */
static struct chat_string piece_from(const struct piece *piece, size_t at)
{
    if (at < piece->shared)
        return (struct chat_string){piece->of->bytes + at, piece->shared - at};
    return (struct chat_string){piece->own + (at - piece->shared), piece_bytes(piece) - at};
}

static bool begins_with(const struct turns *turns, const struct piece *piece,
                        const struct piece *with)
{
    size_t at = piece->shared < with->shared ? piece->shared : with->shared;
    size_t bytes = piece_bytes(with);
    if (piece->of != with->of && at > turns->common)
        at = turns->common;
    if (bytes > piece_bytes(piece))
        return false;
    while (at < bytes) {
        struct chat_string a = piece_from(piece, at), b = piece_from(with, at);
        size_t count = a.count < b.count ? a.count : b.count;
        if (memcmp(a.bytes, b.bytes, count) != 0)
            return false;
        at += count;
    }
    return true;
}

static bool is_assistants(const struct chat_conversation *c, int64_t i)
{
    json_t *message = json_array_get(c->messages, (size_t)i);
    return !strcmp(json_string_value(json_object_get(message, "role")), "assistant");
}

/* Message i is an answer to be learned. */
static bool answers(const struct chat_conversation *c, int64_t i)
{
    json_t *weight = json_object_get(json_array_get(c->messages, (size_t)i), "weight");
    return is_assistants(c, i) && i >= c->prompt &&
           !(json_is_number(weight) && json_number_value(weight) == 0);
}

/* The last prompt, or the whole conversation, and in the same run those of the turns before. */
static int last_render(struct chat_conversation *c, int64_t count, bool prompt, struct turns *turns,
                       struct ls_error *error)
{
    struct chat_prefix *of = calloc((size_t)count + 1, sizeof *of);
    struct ls_chat_text *last = &turns->last[prompt];
    turns->prefixes[prompt].of = of;
    if (!of)
        return ls_no_memory(error, "for a conversation");
    for (int64_t i = 0; i < count; i++)
        of[i + !prompt].wanted = answers(c, i);
    int status = chat_conversation_render(c, count, prompt, &turns->prefixes[prompt], last, error);
    if (status) { /* by itself it may need less memory */
        memset(of, 0, ((size_t)count + 1) * sizeof *of);
        status = chat_conversation_render(c, count, prompt, NULL, last, error);
    }
    of[count] = (struct chat_prefix){.shared = last->count, .made = !status};
    return status;
}

static int turns_begin(struct chat_conversation *c, int64_t count, struct turns *turns,
                       struct ls_error *error)
{
    const struct ls_chat_text *last = turns->last;
    struct ls_error later; /* the turn is rendered again, and then says why it fails */
    int status = last_render(c, count, false, turns, error);
    if (!status && last_render(c, count - 1, true, turns, &later) == LS_ENOMEM)
        status = ls_no_memory(error, "for a conversation");
    while (!status && turns->common < last[0].count && turns->common < last[1].count &&
           last[0].bytes[turns->common] == last[1].bytes[turns->common])
        turns->common++;
    return status;
}

static void turns_release(struct turns *turns)
{
    for (int i = 0; i < 2; i++) {
        free(turns->prefixes[i].of);
        ls_chat_text_release(&turns->prefixes[i].own);
        ls_chat_text_release(&turns->last[i]);
        ls_chat_text_release(&turns->alone[i]);
    }
}

/* The first `count` messages. */
static int piece_take(struct chat_conversation *c, int64_t count, bool prompt, struct turns *turns,
                      struct piece *piece, struct ls_error *error)
{
    const struct chat_prefixes *prefixes = &turns->prefixes[prompt];
    const struct chat_prefix *of = &prefixes->of[count];
    struct ls_chat_text *alone = &turns->alone[prompt];
    if (of->made) {
        *piece = (struct piece){&turns->last[prompt], of->shared,
                                of->count ? prefixes->own.bytes + of->first : "", of->count};
        return LS_OK;
    }
    int status = chat_conversation_render(c, count, prompt, NULL, alone, error);
    *piece = (struct piece){alone, 0, alone->count ? alone->bytes : "", alone->count};
    if (!status && c->steps > conversation_steps_max)
        status =
            ls_error_set(error, LS_EDATA,
                         "message %lld: the template looks at the whole conversation, so that each "
                         "turn is rendered with all before it, in more than %lld million steps: "
                         "expected fewer messages, or a template with {%% generation %%}",
                         (long long)count, (long long)conversation_steps_max / 1000000);
    return status;
}

/* Message i is an answer: its prompt, and both together. */
static int turn_take(struct chat_conversation *c, int64_t i, struct turns *turns,
                     struct ls_error *error)
{
    int status = piece_take(c, i, true, turns, &turns->prompt, error);
    if (!status)
        status = piece_take(c, i + 1, false, turns, &turns->answered, error);
    if (!status && (!begins_with(turns, &turns->answered, &turns->prompt) ||
                    piece_bytes(&turns->answered) == piece_bytes(&turns->prompt)))
        status =
            ls_error_set(error, LS_EDATA,
                         "message %lld: the template's prompt for this turn is not how the turn "
                         "begins, so it does not show which of it the model says; a template with "
                         "{%% generation %%} tells",
                         (long long)i + 1);
    return status;
}

static int piece_add(struct ls_chat_text *text, const struct piece *piece, struct ls_error *error)
{
    return chat_text_put(text, piece->of->bytes, piece->shared) &&
                   chat_text_put(text, piece->own, piece->own_count)
               ? LS_OK
               : ls_no_memory(error, "for a conversation");
}

/* One text of all turns, if that is what each sees; *one is false if it is not. */
static int one_text(struct chat_conversation *c, int64_t count, struct turns *turns,
                    struct ls_chat_text *text, bool *one, struct ls_error *error)
{
    struct piece whole;
    int status = piece_take(c, count, false, turns, &whole, error);
    *one = true;
    for (int64_t i = 0; i < count && !status && *one; i++) {
        if (!answers(c, i))
            continue;
        status = turn_take(c, i, turns, error);
        *one = !status && begins_with(turns, &whole, &turns->answered);
        if (!status && *one)
            status = part_add(text, piece_bytes(&turns->prompt), false, false, error);
        if (!status && *one)
            status = part_add(text, piece_bytes(&turns->answered), true, i + 1 == count, error);
    }
    return status || !*one ? status : piece_add(text, &whole, error);
}

/* A text of each turn. */
static int many_texts(struct chat_conversation *c, int64_t count, struct turns *turns,
                      struct ls_chat_text *text, struct ls_error *error)
{
    int status = LS_OK;
    for (int64_t i = 0; i < count && !status; i++) {
        if (!answers(c, i))
            continue;
        size_t begin = text->count;
        status = turn_take(c, i, turns, error);
        if (!status)
            status = piece_add(text, &turns->answered, error);
        if (!status)
            status = part_add(text, begin + piece_bytes(&turns->prompt), false, false, error);
        if (!status)
            status = part_add(text, text->count, true, true, error);
    }
    return status;
}

/* The first `bytes` become one part, which does not count. */
static int parts_drop(struct ls_chat_text *text, size_t bytes, struct ls_error *error)
{
    int64_t whole = 0;
    while (whole < text->parts_count && text->parts[whole].end <= bytes)
        whole++;
    if (bytes == 0)
        return LS_OK;
    if (!ls_list_grow(&text->parts, text->parts_count, &text->parts_room, sizeof *text->parts))
        return ls_no_memory(error, "for a conversation");
    memmove(text->parts + 1, text->parts + whole,
            (size_t)(text->parts_count - whole) * sizeof *text->parts);
    text->parts[0] = (struct ls_chat_part){.end = bytes};
    text->parts_count += 1 - whole;
    return LS_OK;
}

/* What the text has in common with the prompt of its completion does not count: so TRL has it. */
static int prompt_drop(struct chat_conversation *c, struct ls_chat_text *text,
                       struct ls_error *error)
{
    struct ls_chat_text prompt = {0};
    int status = chat_conversation_render(c, c->prompt, true, NULL, &prompt, error);
    size_t same = 0;
    while (!status && same < text->count && same < prompt.count &&
           text->bytes[same] == prompt.bytes[same])
        same++;
    while (same > 0 && same < text->count && (text->bytes[same] & 0xc0) == 0x80)
        same--; /* not within a character */
    ls_chat_text_release(&prompt);
    return status ? status : parts_drop(text, same, error);
}

/* The template says itself what counts. */
static int marked_text(struct chat_conversation *c, int64_t count, struct ls_chat_text *text,
                       struct ls_error *error)
{
    bool counts = false;
    for (int64_t i = c->prompt; i < count; i++)
        if (is_assistants(c, i) && !answers(c, i))
            return ls_error_set(error, LS_EDATA,
                                "message %lld: it is not to be learned, and the template's {%% "
                                "generation %%} does not tell its text from that of others",
                                (long long)i + 1);
    int status = chat_conversation_render(c, count, false, NULL, text, error);
    if (!status && c->prompt)
        status = prompt_drop(c, text, error);
    for (int64_t i = 0; i < text->parts_count && !status; i++)
        counts |= text->parts[i].counts;
    if (!status && !counts)
        status = ls_error_set(error, LS_EDATA,
                              "the template's {%% generation %%} contains nothing, so no turn "
                              "would be learned");
    if (!status)
        text->parts[text->parts_count - 1].ends_document = true;
    return status;
}

int ls_chat_examples(const struct ls_chat *chat, const char *conversation, size_t bytes,
                     struct ls_chat_text *text, struct ls_error *error)
{
    struct chat_conversation c;
    struct turns turns = {0};
    bool one = true;
    text->count = 0;
    text->parts_count = 0;
    int status = chat_conversation_read(&c, chat, conversation, bytes, error);
    if (!status)
        status = chat_media_refuse(&c, error);
    int64_t count = status ? 0 : (int64_t)json_array_size(c.messages);
    while (count > 0 && !answers(&c, count - 1))
        count--; /* what comes behind the last answer teaches nothing */
    if (!status && count == 0)
        status = ls_error_set(error, LS_EDATA,
                              "no message has the role \"assistant\" and counts: there is nothing "
                              "to learn");
    if (!status && c.t->marks) {
        status = marked_text(&c, count, text, error);
    } else if (!status) {
        status = turns_begin(&c, count, &turns, error);
        if (!status)
            status = one_text(&c, count, &turns, text, &one, error);
        if (!status && !one) {
            text->parts_count = 0;
            status = many_texts(&c, count, &turns, text, error);
        }
    }
    turns_release(&turns);
    chat_conversation_release(&c);
    return status;
}
