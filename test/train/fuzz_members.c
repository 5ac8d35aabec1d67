/* libFuzzer: any bytes as the members of a run, and as a request. What is taken ascends, names
 * somebody, and its shortest text says the same. */
#include <lockstep/base.h>
#include <lockstep/train/members.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void text_check(const char *text, int workers)
{
    bool in[LS_MEMBERS_MAX], again[LS_MEMBERS_MAX];
    char shortest[8 * LS_MEMBERS_MAX];
    if (!ls_members_parse(text, workers, in))
        return;
    ls_members_text(in, workers, shortest, sizeof shortest);
    LS_ASSERT(ls_members_parse(shortest, workers, again));
    LS_ASSERT(memcmp(in, again, (size_t)workers * sizeof *in) == 0);
}

struct seen {
    int64_t last;
    int workers;
};

static void change_check(void *user, const struct ls_members_change *change)
{
    struct seen *seen = user;
    bool in[LS_MEMBERS_MAX], lost[LS_MEMBERS_MAX];
    LS_ASSERT(change->outer_step > seen->last &&
              ls_members_parse(change->workers, seen->workers, in));
    LS_ASSERT(!*change->lost || ls_members_parse(change->lost, seen->workers, lost));
    for (int i = 0; i < seen->workers && *change->lost; i++)
        LS_ASSERT(in[i] || !lost[i]);
    seen->last = change->outer_step;
    text_check(change->workers, seen->workers);
}

/* The first byte is the number of workers. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct ls_error error = {0};
    char folder[] = "/tmp/fuzz-members-XXXXXX", path[64];
    if (bytes < 1 || !mkdtemp(folder))
        return 0;
    struct seen seen = {.workers = 1 + data[0]};
    snprintf(path, sizeof path, "%s/" LS_MEMBERS_FILE, folder);
    FILE *file = fopen(path, "w");
    LS_ASSERT(file && fwrite(data + 1, 1, bytes - 1, file) == bytes - 1 && fclose(file) == 0);
    int status = ls_members_each(folder, seen.workers, change_check, &seen, &error);
    LS_ASSERT(status == LS_OK || (status == LS_EDATA && error.text[0]));
    unlink(path);
    rmdir(folder);
    char *text = strndup((const char *)data + 1, bytes - 1);
    if (text)
        text_check(text, seen.workers);
    free(text);
    return 0;
}
