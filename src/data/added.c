/* Added tokens: texts that have an id of their own and are found before anything else. The rules
 * are those of the `tokenizers` package: of overlapping ones the leftmost, then the longest. */
#include "data/tokenizer_private.h"

#include <stdlib.h>
#include <string.h>

int data_added_put(struct data_added *added, const char *name, const struct data_added_token *token,
                   struct ls_error *error)
{
    if (token->content_bytes == 0 || token->content_bytes > DATA_TOKEN_BYTES_MAX)
        return ls_error_set(error, LS_EDATA,
                            "%s: the added token of id %d has %zu bytes; expected 1 to %d", name,
                            token->id, token->content_bytes, DATA_TOKEN_BYTES_MAX);
    if (!ls_list_grow(&added->tokens, added->count, &added->room, sizeof *added->tokens))
        return ls_error_set(error, LS_ENOMEM, "%s: no memory", name);
    struct data_added_token *put = &added->tokens[added->count];
    *put = *token;
    put->matched = NULL;
    put->content = malloc(token->content_bytes + 1);
    if (!put->content)
        return ls_error_set(error, LS_ENOMEM, "%s: no memory", name);
    memcpy(put->content, token->content, token->content_bytes);
    put->content[token->content_bytes] = '\0';
    added->count++;
    return LS_OK;
}

void data_added_release(struct data_added *added)
{
    for (int64_t i = 0; i < added->count; i++) {
        free(added->tokens[i].content);
        free(added->tokens[i].matched);
    }
    free(added->tokens);
    free(added->by_id);
    free(added->by_text);
    free(added->raw.tokens);
    free(added->normalized.tokens);
    *added = (struct data_added){0};
}

/* ---- by id and by text ----------------------------------------------------------------------- */

static int by_id(const void *a, const void *b)
{
    int32_t x = (*(const struct data_added_token *const *)a)->id;
    int32_t y = (*(const struct data_added_token *const *)b)->id;
    return (x > y) - (x < y);
}

static int compare(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    int order = memcmp(a, b, a_bytes < b_bytes ? a_bytes : b_bytes);
    return order ? order : (a_bytes > b_bytes) - (a_bytes < b_bytes);
}

static int by_text(const void *a, const void *b)
{
    const struct data_added_token *x = *(const struct data_added_token *const *)a;
    const struct data_added_token *y = *(const struct data_added_token *const *)b;
    return compare(x->content, x->content_bytes, y->content, y->content_bytes);
}

static int by_match(const void *a, const void *b)
{
    const struct data_added_token *x = *(const struct data_added_token *const *)a;
    const struct data_added_token *y = *(const struct data_added_token *const *)b;
    return compare(x->matched, x->matched_bytes, y->matched, y->matched_bytes);
}

/* *out = the tokens in an order; LS_EDATA if two are equal in it. */
static int sorted(const struct data_added *added, int (*order)(const void *, const void *),
                  const char *name, const struct data_added_token ***out, struct ls_error *error)
{
    const struct data_added_token **list = malloc((size_t)(added->count + 1) * sizeof *list);
    *out = list;
    if (!list)
        return ls_error_set(error, LS_ENOMEM, "%s: no memory", name);
    for (int64_t i = 0; i < added->count; i++)
        list[i] = &added->tokens[i];
    qsort(list, (size_t)added->count, sizeof *list, order);
    for (int64_t i = 1; i < added->count; i++)
        if (order(&list[i - 1], &list[i]) == 0)
            return ls_error_set(error, LS_EDATA,
                                "%s: added_tokens: \"%.100s\" (id %d) and \"%.100s\" (id %d); ids "
                                "and texts are unique",
                                name, list[i - 1]->content, list[i - 1]->id, list[i]->content,
                                list[i]->id);
    return LS_OK;
}

int data_added_index(struct data_added *added, const char *name, struct ls_error *error)
{
    int status = sorted(added, by_id, name, &added->by_id, error);
    return status ? status : sorted(added, by_text, name, &added->by_text, error);
}

static const struct data_added_token *find(const struct data_added *added,
                                           const struct data_added_token **list,
                                           const struct data_added_token *key,
                                           int (*order)(const void *, const void *))
{
    const struct data_added_token **found =
        list && added->count ? bsearch(&key, list, (size_t)added->count, sizeof *list, order)
                             : NULL;
    return found ? *found : NULL;
}

const struct data_added_token *data_added_of_id(const struct data_added *added, int32_t id)
{
    return find(added, added->by_id, &(struct data_added_token){.id = id}, by_id);
}

const struct data_added_token *data_added_of_text(const struct data_added *added, const char *text)
{
    char content[DATA_TOKEN_BYTES_MAX + 1];
    size_t bytes = strlen(text);
    if (bytes > DATA_TOKEN_BYTES_MAX)
        return NULL;
    memcpy(content, text, bytes + 1);
    return find(added, added->by_text,
                &(struct data_added_token){.content = content, .content_bytes = bytes}, by_text);
}

/* ---- finding --------------------------------------------------------------------------------- */

static int set_init(struct data_added_set *set, const struct data_added *added, bool normalized,
                    const char *name, struct ls_error *error)
{
    *set = (struct data_added_set){0};
    set->tokens = malloc((size_t)(added->count + 1) * sizeof *set->tokens);
    if (!set->tokens)
        return ls_error_set(error, LS_ENOMEM, "%s: no memory", name);
    for (int64_t i = 0; i < added->count; i++)
        if (added->tokens[i].normalized == normalized) {
            set->tokens[set->count++] = &added->tokens[i];
            set->ordinary = set->ordinary || !added->tokens[i].special;
        }
    qsort(set->tokens, (size_t)set->count, sizeof *set->tokens, by_match);
    int at = 0;
    for (int byte = 0; byte < 256; byte++) {
        set->first[byte] = at;
        while (at < set->count && (unsigned char)set->tokens[at]->matched[0] == byte)
            at++;
    }
    set->first[256] = set->count;
    for (int i = 1; i < set->count; i++)
        if (by_match(&set->tokens[i - 1], &set->tokens[i]) == 0)
            return ls_error_set(error, LS_EDATA,
                                "%s: added_tokens: \"%.100s\" and \"%.100s\" are the same once "
                                "they are normalized",
                                name, set->tokens[i - 1]->content, set->tokens[i]->content);
    return LS_OK;
}

int data_added_finish(struct data_added *added, const char *name, struct ls_error *error)
{
    int status = set_init(&added->raw, added, false, name, error);
    return status ? status : set_init(&added->normalized, added, true, name, error);
}

/* First of tokens [low, high), which agree before `depth`, whose byte there is `least` or more. */
static int lower_bound(const struct data_added_set *set, int low, int high, size_t depth,
                       unsigned least)
{
    while (low < high) {
        int middle = (low + high) / 2;
        if ((unsigned char)set->tokens[middle]->matched[depth] < least)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The longest token that text[bytes] begins with. */
static const struct data_added_token *longest(const struct data_added_set *set,
                                              const unsigned char *text, size_t bytes)
{
    int low = set->first[text[0]], high = set->first[text[0] + 1];
    const struct data_added_token *found = NULL;
    for (size_t depth = 1; low < high; depth++) {
        if (set->tokens[low]->matched_bytes == depth)
            found = set->tokens[low++];
        if (depth >= bytes || low >= high)
            break;
        low = lower_bound(set, low, high, depth, text[depth]);
        high = lower_bound(set, low, high, depth, text[depth] + 1u);
    }
    return found;
}

static bool word_before(const unsigned char *text, size_t at)
{
    size_t length;
    return at > 0 && data_is_word(data_utf8_decode(text + data_utf8_before(text, at), &length));
}

static bool word_at(const unsigned char *text, size_t bytes, size_t at)
{
    size_t length;
    return at < bytes && data_is_word(data_utf8_decode(text + at, &length));
}

/* White space before `begin`, not before `least`. */
static size_t spaces_before(const unsigned char *text, size_t least, size_t begin)
{
    while (begin > least) {
        size_t length, at = data_utf8_before(text, begin);
        if (!data_is_space(data_utf8_decode(text + at, &length)))
            break;
        begin = at;
    }
    return begin;
}

static size_t spaces_behind(const unsigned char *text, size_t bytes, size_t end)
{
    size_t length;
    while (end < bytes && data_is_space(data_utf8_decode(text + end, &length)))
        end += length;
    return end;
}

bool data_added_next(const struct data_added_set *set, const unsigned char *text, size_t bytes,
                     bool special, struct data_added_cursor *cursor)
{
    if (!special && !set->ordinary)
        return false;
    while (cursor->from < bytes) {
        size_t at = cursor->from;
        while (at < bytes && set->first[text[at]] == set->first[text[at] + 1])
            at++;
        const struct data_added_token *token =
            at < bytes ? longest(set, text + at, bytes - at) : NULL;
        cursor->from = at + (token ? token->matched_bytes : 1);
        if (!token || (token->special && !special))
            continue;
        size_t end = at + token->matched_bytes;
        if (token->single_word && (word_before(text, at) || word_at(text, bytes, end)))
            continue;
        /* White space that a match before took is not taken again. */
        size_t begin = token->lstrip ? spaces_before(text, cursor->end, at) : at;
        begin = token->lstrip && begin < cursor->end ? cursor->end : begin;
        end = token->rstrip ? spaces_behind(text, bytes, end) : end;
        if (begin >= end)
            continue; /* nothing is left */
        cursor->begin = begin;
        cursor->end = end;
        cursor->token = token;
        return true;
    }
    return false;
}
