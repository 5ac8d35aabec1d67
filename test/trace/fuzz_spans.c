/* A trace's file: any text; each span that is shown has a time and a name. */
#include <lockstep/trace.h>

#include <stddef.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void shown(void *user, const struct ls_trace_span *span)
{
    int64_t *count = user;
    LS_ASSERT(span->name && span->category && span->group && span->step >= -1);
    LS_ASSERT(span->begin_s >= 0 && span->duration_s >= 0);
    ++*count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct ls_error error = {0};
    struct ls_trace_sums sums;
    int64_t count = 0;
    int status =
        ls_trace_read_text("x.json", (const char *)data, bytes, shown, &count, &sums, &error);
    LS_ASSERT(sums.dropped >= 0);
    LS_ASSERT(status == LS_OK || (status == LS_EDATA && error.text[0]));
    return 0;
}
