/* Values of tensors, which live until the program ends. */
#include "tensor_data.h"

#include <stdlib.h>

static void **kept;
static int64_t count, room;

static void all_free(void)
{
    for (int64_t i = 0; i < count; i++)
        free(kept[i]);
    free(kept);
}

const void *tensor_data(const struct ls_safetensors *file, const char *name)
{
    const struct ls_tensor_view *view = ls_safetensors_find(file, name);
    LS_ASSERT(view && ls_list_grow(&kept, count, &room, sizeof *kept));
    if (count == 0)
        atexit(all_free);
    void *values = kept[count++] = malloc(view->bytes + 1);
    LS_ASSERT(values);
    LS_ASSERT(!ls_stored_file_read(ls_safetensors_file(file), view->at, (int64_t)view->bytes,
                                   values, NULL));
    return values;
}
