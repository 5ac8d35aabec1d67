/* Lists of tokens, and texts, that grow. */
#include "data/data_private.h"

#include <stdlib.h>

int data_ids_reserve(struct ls_token_list *list, int64_t more, struct ls_error *error)
{
    int64_t need = list->count + more;
    if (need <= list->capacity)
        return LS_OK;
    int64_t capacity = ls_max(ls_max(need, list->capacity + list->capacity / 2), 1024);
    int32_t *ids = realloc(list->ids, (size_t)capacity * sizeof *ids);
    if (!ids)
        return ls_no_memory(error, "for %lld tokens", (long long)capacity);
    list->ids = ids;
    list->capacity = capacity;
    return LS_OK;
}

int data_text_reserve(struct ls_text *text, size_t more, struct ls_error *error)
{
    size_t need;
    return ls_size_add(text->count, more, &need) &&
                   ls_bytes_grow(&text->bytes, need, &text->capacity)
               ? LS_OK
               : ls_no_memory(error, "for %zu bytes of text more", more);
}

int data_text_put(struct ls_text *text, const void *bytes, size_t count, struct ls_error *error)
{
    int status = data_text_reserve(text, count, error);
    if (!status && count > 0) {
        memcpy(text->bytes + text->count, bytes, count);
        text->count += count;
    }
    return status;
}

void ls_token_list_release(struct ls_token_list *list)
{
    free(list->ids);
    *list = (struct ls_token_list){0};
}

void ls_text_release(struct ls_text *text)
{
    free(text->bytes);
    *text = (struct ls_text){0};
}
