/* libFuzzer: any bytes as a log of arrivals. What is taken is an order that clocks admit, and the
 * log goes on to the same order when it is opened at its end. */
#include <lockstep/parallel/arrival_log.h>

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static const char recipe[] = "r";

/* Every event is admitted. */
static void check_order(const struct ls_arrivals *arrivals, struct ls_arrival_rule rule)
{
    struct ls_error error = {0};
    struct ls_clocks clocks;
    struct ls_arrival arrival;
    LS_ASSERT(ls_clocks_init(&clocks, rule, &error) == LS_OK);
    while (ls_arrivals_next(arrivals, &clocks, &arrival))
        LS_ASSERT(arrival.pulled >= 0 && arrival.pulled <= arrival.event);
    LS_ASSERT(clocks.version == ls_arrivals_end(arrivals));
    ls_clocks_release(&clocks);
}

/* The rule is the first two bytes', so that their logs are found. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct ls_arrivals *arrivals, *again;
    struct ls_arrival_log *log;
    struct ls_error error = {0};
    char path[64];
    if (bytes < 2)
        return 0;
    const struct ls_arrival_rule rule = {1 + data[0] % 4, data[1] % 4 - 1};
    int fd = memfd_create("log", 0);
    LS_ASSERT(fd >= 0 && write(fd, data + 2, bytes - 2) == (ssize_t)(bytes - 2));
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int status = ls_arrivals_of_log(path, recipe, rule, &arrivals, &error);
    LS_ASSERT(status == LS_OK ||
              ((status == LS_EDATA || status == LS_ECONFIG) && error.text[0] && !arrivals));
    if (status == LS_OK) {
        int64_t end = ls_arrivals_end(arrivals);
        check_order(arrivals, rule);
        LS_ASSERT(ls_arrival_log_open(path, recipe, rule, end, &log, &error) == LS_OK);
        LS_ASSERT(ls_arrival_log_close(log, &error) == LS_OK);
        LS_ASSERT(ls_arrivals_of_log(path, recipe, rule, &again, &error) == LS_OK);
        LS_ASSERT(ls_arrivals_end(again) == end);
        ls_arrivals_free(again);
    }
    ls_arrivals_free(arrivals);
    close(fd);
    return 0;
}
