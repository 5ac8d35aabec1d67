/* libFuzzer: any bytes as a schedule. What is accepted can be written, read again, and is the same
 * table; what is valid can be simulated. */
#include <lockstep/parallel/schedule.h>

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void check_again(const struct ls_schedule *schedule)
{
    struct ls_error error = {0};
    struct ls_schedule copy;
    char *text;
    size_t size;
    FILE *file = open_memstream(&text, &size);
    LS_ASSERT(file && ls_schedule_write(schedule, file, &error) == LS_OK);
    fclose(file);
    LS_ASSERT(ls_schedule_parse(&copy, "again", text, size, schedule->ranks, schedule->chunks,
                                schedule->micro_batches, &error) == LS_OK);
    int64_t count = schedule->first[schedule->ranks];
    LS_ASSERT(copy.first[copy.ranks] == count);
    LS_ASSERT(memcmp(copy.actions, schedule->actions, (size_t)count * sizeof *copy.actions) == 0);
    ls_schedule_release(&copy);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct ls_error error = {0};
    struct ls_schedule schedule;
    struct ls_schedule_figures figures;
    int code = ls_schedule_parse(&schedule, "fuzz", (const char *)bytes, size, 0, 0, 0, &error);
    LS_ASSERT(code == LS_OK || (code == error.code && error.text[0]));
    if (code)
        return 0;
    code = ls_schedule_simulate(&schedule, &(struct ls_schedule_costs){.all = {1, 1, 1}}, &figures,
                                &error);
    LS_ASSERT(code == LS_OK || (code == error.code && error.text[0]));
    if (code == LS_OK) {
        check_again(&schedule);
        ls_schedule_figures_release(&figures);
    }
    ls_schedule_release(&schedule);
    return 0;
}
